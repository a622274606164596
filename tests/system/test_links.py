"""Ports on interfaces of Linux follow what those are joined to: a cable pulled at the far end, an interface set down."""

import pytest

import lab
from routing import ping, wait
from test_hosts import AF_PACKET, AF_XDP

CONFIG = """
[dpdk]
memory = "no-huge"
memory_mb = 512
file_prefix = "{{prefix}}"
buffer_size = {buffer}

[api]
socket = "{{socket}}"

[[worker]]
cpu = {{cpu}}

[[route]]
prefix = "198.19.0.0/24"
via = ["198.18.2.2", "198.18.3.2"]
"""

PORT = """
[[port]]
name = "p{n}"
device = "{driver}{n},iface={outside}{arguments}"

[[interface]]
name = "net{n}"
port = "p{n}"
addresses = ["198.18.{n}.1/24"]
"""


@pytest.mark.parametrize("driver", [AF_PACKET, AF_XDP], ids=["af_packet", "af_xdp"])
def test_a_cable_pulled_at_the_far_end(tmp_path, driver):
    name, arguments, buffer = driver
    with lab.hosts("lrl-a", "lrl-b", "lrl-c") as (a, b, c):
        text = CONFIG.format(buffer=buffer) + "".join(
            PORT.format(n=n, driver=name, outside=host.outside, arguments=arguments) for n, host in ((1, a), (2, b), (3, c)))
        for n, host in ((1, a), (2, b), (3, c)):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
        for host in (b, c):
            # The whole network behind both is the host itself.
            host.run("ip route add local 198.19.0.0/24 dev lo")
        with lab.linerate(tmp_path, text, "lrlinks") as router:
            def up(port):
                return router.ports()[port]["up"]

            def sent(port):
                return router.ports()[port]["tx"]["packets"]

            def connected(n):
                return [r for r in router.show("routes")["routes"] if r["prefix"] == f"198.18.{n}.0/24"]

            def all_answer(loss=0):
                """Sixteen destinations behind both links; by how many of these each link was used."""
                before = sent("p2"), sent("p3")
                for n in range(1, 17):
                    ping(a, f"198.19.0.{n}", 1, "-W 2", loss)
                return sent("p2") - before[0], sent("p3") - before[1]

            for port in ("p1", "p2", "p3"):
                wait(f"{port} is up", lambda p=port: up(p))
            # Both gateways are known from here on.
            for n in (2, 3):
                wait("the gateway answers", lambda t=f"198.18.{n}.2": "1 received" in a.run(f"ping -n -c 1 -W 1 {t}", check=False).stdout,
                     show=lambda: (router.show("neighbors"), router.ports(), c.run("ip neigh show").stdout, c.run("ip -s link show eth0").stdout))
            by_b, by_c = all_answer()
            assert by_b and by_c, (by_b, by_c)

            # The far end, the near end, and both ways back.
            for down, back in ((lambda: c.run("ip link set eth0 down"), lambda: c.run("ip link set eth0 up")),
                               (lambda: lab.sh(f"ip link set {c.outside} down"), lambda: lab.sh(f"ip link set {c.outside} up"))):
                down()
                wait("the port is down", lambda: not up("p3"), 2)
                wait("the route is gone", lambda: not connected(3), 2)
                assert up("p2") and connected(2)
                before = sent("p3")
                by_b, by_c = all_answer()
                assert by_b >= 16 and by_c == 0, (by_b, by_c)
                ping(a, "198.18.3.2", 1, "-W 1", loss=1)
                assert sent("p3") == before, "nothing is sent into a dead link"
                back()
                wait("the port is up", lambda: up("p3"), 5)
                wait("the route is back", lambda: connected(3), 2)
                # The host lost its way back with its link.
                c.run("ip route replace default via 198.18.3.1")
                wait("the gateway is back", lambda: all_answer()[1] > 0)
            router.at_rest()

"""docs/router.md as it stands: the edge router's two files, two providers, a customer."""

import os
import pathlib
import re

import pytest

import lab
import routing
from routing import ping, wait

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "router.md"
PROVIDER = """
router bgp {asn}
 bgp router-id 198.18.{n}.1
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor 198.18.{n}.2 remote-as 64496
 neighbor 198.18.{n}.2 timers connect 1
 neighbor 2001:db8:{n}::2 remote-as 64496
 neighbor 2001:db8:{n}::2 timers connect 1
 address-family ipv4 unicast
  network 203.0.113.0/24
  network 10.{n}.0.0/16
  network 10.77.{n}.0/28
 exit-address-family
 address-family ipv6 unicast
  network 2001:db8:a000::/36
  neighbor 2001:db8:{n}::2 activate
 exit-address-family
"""


def block(language, nth=0):
    """A listing of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)[nth]


class Named(lab.Host):
    """A host whose wire has the name that the page gives it."""

    def __init__(self, name, outside):
        super().__init__(name)
        lab.sh(f"ip link set {self.outside} down && ip link set {self.outside} name {outside} && ip link set {outside} up")
        lab.sh(f"sysctl -qw net.ipv6.conf.{outside}.disable_ipv6=1")
        self.outside = outside


@pytest.fixture
def around():
    """Two providers and a customer on the wires that the page names."""
    made = []
    try:
        for name, outside in (("lre-1", "uplink1"), ("lre-2", "uplink2"), ("lre-c", "customers")):
            made.append(Named(name, outside))
        one, two, customer = made
        for n, host in ((1, one), (2, two)):
            host.address(f"198.18.{n}.1/30", f"198.18.{n}.2")
            host.address(f"2001:db8:{n}::1/64", f"2001:db8:{n}::2")
            host.run("ip addr add 203.0.113.1/32 dev lo")
            host.run(f"ip addr add 10.{n}.0.1/32 dev lo")
            host.run("ip addr add 2001:db8:a000::1/128 dev lo nodad")
        customer.address("198.19.0.2/24", "198.19.0.1")
        customer.address("2001:db8:f000::2/64", "2001:db8:f000::1")
        with routing.spaces("edge") as (space,):
            yield one, two, customer, space
    finally:
        for host in made:
            host.close()


@pytest.mark.skipif(1 not in os.sched_getaffinity(0), reason="the page's worker runs on CPU 1, which is not this process's")
def test_the_edge_router_of_the_docs_runs_as_written(around, tmp_path):
    one, two, customer, space = around
    # Only where the API's socket is, which the page leaves to its default, is the test's own.
    config = block("toml").replace("{", "{{").replace("}", "}}") + '\n[api]\nsocket = "{socket}"\n'
    with lab.linerate(tmp_path, config) as router, routing.daemons() as start:
        for n, host in ((1, one), (2, two)):
            start(routing.Frr, host, ["bgpd"], PROVIDER.format(asn=64500 + n, n=n))
        frr = start(routing.Frr, space, ["staticd", "bgpd"], block("frr"), fpm=True)
        frr.bgp_up(2)
        frr.bgp_up(2, "ipv6")

        def learned():
            routes = router.show("routes --source learned")["routes"]
            return {r["prefix"]: len(r["paths"]) for r in routes}
        wanted = {"203.0.113.0/24": 2, "10.1.0.0/16": 1, "10.2.0.0/16": 1, "2001:db8:a000::/36": 2}
        wait("routes of both providers, those longer than /24 filtered",
             lambda: {p: n for p, n in learned().items() if p in wanted} == wanted, show=learned)
        assert "10.77.1.0/28" not in learned()

        def ours(host, family, prefix):
            return prefix in lab.sh(f"ip netns exec {host.name} ip {family} route").stdout
        for host in (one, two):
            wait("our prefixes at the providers",
                 lambda h=host: ours(h, "-4", "198.19.0.0/24") and ours(h, "-6", "2001:db8:f000::/48"))

        for target in ("203.0.113.1", "10.1.0.1", "10.2.0.1", "2001:db8:a000::1"):
            ping(customer, target)
        trace = customer.run("traceroute -n -q1 -w2 10.1.0.1").stdout
        assert re.search(r"\b1\s+198\.19\.0\.1\b", trace), trace

        # A customer's packet from an address that is not his, and one from outside that claims to be ours.
        before = router.drops()
        spoof = "import scapy.all as s; s.conf.verb = 0; s.sendp([{}] * 5, iface='eth0')"
        mac = router.ports()["p3"]["mac"]
        packet = f"s.Ether(dst='{mac}')/s.IP(src='8.8.8.8', dst='10.1.0.1')/s.UDP()/b'x'"
        customer.run(f'/usr/bin/python3 -c "{spoof.format(packet)}"')
        mac = router.ports()["p1"]["mac"]
        packet = f"s.Ether(dst='{mac}')/s.IP(src='198.19.0.9', dst='198.19.0.2')/s.UDP()/b'x'"
        one.run(f'/usr/bin/python3 -c "{spoof.format(packet)}"')
        lab.settle(router.drops)
        after = router.drops()
        new = {k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)}
        assert (new.get("ip4_source_invalid"), new.get("acl_in_denied")) == (5, 5), new

        # telnet to a customer is answered by the router.
        answer = one.run("/usr/bin/python3 -c \"import socket; s = socket.socket(); s.settimeout(3); "
                         "print(s.connect_ex(('198.19.0.2', 23)))\"").stdout
        assert answer.strip() in ("113", "111", "13"), answer

        # One provider goes: traffic goes on by the other.
        one.run("ip link set eth0 down")
        wait("one path left", lambda: learned().get("203.0.113.0/24") == 1, show=learned)
        ping(customer, "203.0.113.1")
        router.at_rest()

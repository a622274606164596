"""Two Linux hosts talk through linerate: the kernel's stack on both ends, nothing of ours but the router."""

import json
import re
import time

import pytest

import lab

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

[[port]]
name = "p0"
device = "{driver}0,iface={a}{arguments}"
mtu = {mtu0}

[[port]]
name = "p1"
device = "{driver}1,iface={b}{arguments}"
mtu = {mtu1}

[[interface]]
name = "left"
port = "p0"
addresses = ["198.18.1.1/24", "2001:db8:1::1/64"]

[[interface]]
name = "right"
port = "p1"
addresses = ["198.18.2.1/24", "2001:db8:2::1/64"]
"""

# Driver, arguments, buffer size. AF_PACKET copies a frame into one buffer; AF_XDP's buffers must fit into a page.
AF_PACKET = ("net_af_packet", ",blocksz=40960,framesz=10240,framecnt=512", 10240)
AF_XDP = ("net_af_xdp", ",force_copy=1", 2048)


def router(folder, a, b, prefix, driver=AF_PACKET, mtu0=1500, mtu1=1500):
    name, arguments, buffer = driver
    text = CONFIG.format(driver=name, arguments=arguments, buffer=buffer, a=a.outside, b=b.outside, mtu0=mtu0, mtu1=mtu1)
    return lab.linerate(folder, text, prefix)


def addressed(a, b):
    a.address("198.18.1.2/24", "198.18.1.1")
    a.address("2001:db8:1::2/64", "2001:db8:1::1")
    b.address("198.18.2.2/24", "198.18.2.1")
    b.address("2001:db8:2::2/64", "2001:db8:2::1")
    return a, b


def received(ping):
    sent, back = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", ping.stdout).groups())
    return sent, back


def iperf(a, b, target, *options):
    server = b.start("iperf3 -s -1")
    time.sleep(0.5)
    try:
        out = a.run(f"iperf3 -J -t 3 -c {target} {' '.join(options)}", timeout=30).stdout
    finally:
        server.terminate()
        server.wait()
    return json.loads(out)


@pytest.mark.parametrize("driver", [AF_PACKET, AF_XDP], ids=["af_packet", "af_xdp"])
def test_ping_and_iperf3(tmp_path, balanced, driver):
    with lab.hosts("lrh1", "lrh2") as (a, b):
        addressed(a, b)
        with router(tmp_path, a, b, "lrhosts", driver) as r:
            # Nothing is resolved yet on either side: the first packet must wait for ARP and ND, not be lost.
            for target in ("198.18.2.2", "2001:db8:2::2"):
                assert received(a.run(f"ping -c 5 -i 0.2 -W 3 {target}")) == (5, 5)
            # The router itself answers, on the near and on the far side.
            for target in ("198.18.1.1", "198.18.2.1", "2001:db8:1::1", "2001:db8:2::1"):
                assert received(a.run(f"ping -c 3 -i 0.2 -W 3 -s 1400 {target}")) == (3, 3)
            for target in ("198.18.2.2", "2001:db8:2::2"):
                assert iperf(a, b, target)["end"]["sum_received"]["bytes"] > 1_000_000
            neighbors = {n["address"]: n["mac"] for n in r.show("neighbors")["neighbors"]}
            assert neighbors["198.18.1.2"] == a.mac and neighbors["2001:db8:2::2"] == b.mac
            balanced(r)


def test_jumbo_frames_of_9000_bytes(tmp_path, balanced):
    with lab.hosts("lrj1", "lrj2", mtu=9000) as (a, b):
        addressed(a, b)
        with router(tmp_path, a, b, "lrjumbo", mtu0=9000, mtu1=9000) as r:
            assert received(a.run("ping -c 3 -i 0.2 -M do -s 8972 198.18.2.2")) == (3, 3)
            assert received(a.run("ping -c 3 -i 0.2 -M do -s 8952 2001:db8:2::2")) == (3, 3)
            assert received(a.run("ping -c 3 -i 0.2 -M do -s 8972 198.18.1.1")) == (3, 3)
            assert iperf(a, b, "198.18.2.2", "-M", "8900")["end"]["sum_received"]["bytes"] > 1_000_000
            balanced(r)


def test_traceroute_sees_the_router_by_its_near_address(tmp_path, balanced):
    with lab.hosts("lrt1", "lrt2") as (a, b):
        addressed(a, b)
        with router(tmp_path, a, b, "lrtrace") as r:
            for target, near in (("198.18.2.2", "198.18.1.1"), ("2001:db8:2::2", "2001:db8:1::1")):
                out = a.run(f"ping -c 1 -t 1 -W 3 {target}", check=False).stdout
                assert near in out and re.search("[Tt]ime (to live )?exceeded", out), out
            out = a.run("ping -c 1 -W 5 198.18.2.77", check=False).stdout
            assert "198.18.1.1" in out and "Destination Host Unreachable" in out, out
            out = a.run("ping -c 1 -W 5 198.51.100.1", check=False).stdout
            assert "198.18.1.1" in out and "Net Unreachable" in out, out
            balanced(r)


def test_path_mtu_is_signalled_and_fragments_are_made(tmp_path, balanced):
    with lab.hosts("lrm1", "lrm2", mtu=9000) as (a, b):
        addressed(a, b)
        b.run("ip link set eth0 mtu 1500")
        with router(tmp_path, a, b, "lrmtu", mtu0=9000, mtu1=1500) as r:
            out = a.run("ping -c 2 -i 0.2 -W 3 -M do -s 4000 198.18.2.2", check=False).stdout
            assert "mtu" in out.lower() and "1500" in out, out
            a.run("ping -c 2 -i 0.2 -W 3 -M do -s 4000 2001:db8:2::2", check=False)
            assert "mtu 1500" in a.run("ip -6 route get 2001:db8:2::2").stdout
            a.run("ip route flush cache")
            # Without DF the router fragments; the far host puts the pieces together.
            assert received(a.run("ping -c 3 -i 0.2 -W 3 -M dont -s 4000 198.18.2.2")) == (3, 3)
            # TCP finds the path MTU by itself.
            assert iperf(a, b, "2001:db8:2::2")["end"]["sum_received"]["bytes"] > 1_000_000
            balanced(r)

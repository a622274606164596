"""Two linerate routers, three Linux hosts and two ways between the routers: what a cut link costs.

    a ── r1 ══ two links ══ r2 ── b
          └── c
"""

import contextlib
import time

import pytest

import lab
import routing
from routing import fib, ping, wait

OSPF = """
interface {lan}
 ip ospf passive
exit
{links}
router ospf
 ospf router-id {id}
 timers throttle spf 0 50 200
 redistribute connected
 network 0.0.0.0/0 area 0
 maximum-paths 4
"""
OSPF_LINK = """
interface {name}
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf bfd
exit
bfd
 profile fast
  receive-interval 100
  transmit-interval 100
 exit
exit
interface {name}
 ip ospf bfd profile fast
exit
"""
BGP = """
bfd
 profile fast
  receive-interval 100
  transmit-interval 100
 exit
exit
router bgp {asn}
 bgp router-id {id}
 no bgp ebgp-requires-policy
 timers bgp 3 9
 {neighbors}
 address-family ipv4 unicast
  redistribute connected
  maximum-paths 4
 exit-address-family
"""

# Addresses of b: flows to different ones take different ways.
FLOWS = range(11, 17)


class Wire:
    """A veth pair with both ends outside, for two instances."""

    def __init__(self, name):
        self.ends = f"{name}-1", f"{name}-2"
        lab.sh(f"ip link add {self.ends[0]} type veth peer name {self.ends[1]}")
        for end in self.ends:
            lab.sh(f"ethtool -K {end} tx off tso off gso off gro off")
            lab.sh(f"sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1")
            lab.sh(f"ip link set {end} up")

    def cut(self, silently):
        """All frames are lost, and no device says so; or both ends go down."""
        self.silently = silently
        if silently:
            for end in self.ends:
                lab.lose(end)
        else:
            lab.sh(f"ip link set {self.ends[0]} down")

    def mend(self):
        if self.silently:
            for end in self.ends:
                lab.lose(end, False)
        else:
            lab.sh(f"ip link set {self.ends[0]} up")

    def close(self):
        lab.sh(f"ip link del {self.ends[0]}", check=False)


@pytest.fixture
def place(tmp_path):
    """Hosts a, c and b; wires x and y; routers with their namespaces."""
    with contextlib.ExitStack() as stack:
        a, c, b = stack.enter_context(lab.hosts("lrt-a", "lrt-c", "lrt-b"))
        r1, r2 = stack.enter_context(routing.spaces("lrt-r1", "lrt-r2"))
        wires = []
        for name in ("lrt-x", "lrt-y"):
            wires.append(Wire(name))
            stack.callback(wires[-1].close)
        for host, net in ((a, 1), (c, 3), (b, 2)):
            host.address(f"198.18.{net}.2/24", f"198.18.{net}.1")
        for last in FLOWS:
            b.run(f"ip addr add 198.18.2.{last}/24 dev eth0")
        routers = []
        for at, (space, hosts) in enumerate(((r1, (("lana", a, 1), ("lanc", c, 3))), (r2, (("lanb", b, 2),)))):
            ports = {name: (routing.device(host.outside, net), [f"198.18.{net}.1/24"]) for name, host, net in hosts}
            for i, wire in enumerate(wires):
                # By the kernel's queue, which a test can have lose all.
                ports[f"up{i}"] = (routing.device(wire.ends[at], 5 + i) + ",qdisc_bypass=0", [f"198.18.{100 + i}.{at + 1}/24"])
            folder = tmp_path / f"r{at + 1}"
            folder.mkdir()
            expected = {"no_route", "interface_down", "tx_full", "tx_port_down", "host_unreachable"}
            routers.append(stack.enter_context(routing.linerate(folder, routing.config(space, ports), f"lrtop{at}", expected)))
        start = stack.enter_context(routing.daemons())
        yield a, b, c, wires, (r1, r2), routers, start


def ospf(start, spaces):
    links = "".join(OSPF_LINK.format(name=f"up{i}") for i in range(2))
    return [start(routing.Frr, space, ["ospfd", "bfdd"], OSPF.format(lan=lan, links=links, id=router_id), fpm=True)
            for space, lan, router_id in ((spaces[0], "lana", "10.0.0.1"), (spaces[1], "lanb", "10.0.0.2"))]


def bgp(start, spaces):
    def config(at):
        neighbors = "".join(f"neighbor 198.18.{100 + i}.{2 - at} {what}\n" for i in range(2) for what in (
            f"remote-as {65002 - at}", "timers connect 1", "bfd", "bfd profile fast"))
        return BGP.format(asn=65001 + at, id=f"10.0.0.{at + 1}", neighbors=neighbors)
    return [start(routing.Frr, space, ["bgpd", "bfdd"], config(at), fpm=True) for at, space in enumerate(spaces)]


@pytest.mark.parametrize("protocol", [ospf, bgp])
def test_a_cut_link_is_left_and_taken_again(place, protocol):
    a, b, c, wires, spaces, routers, start = place
    frrs = protocol(start, spaces)

    def paths(router, prefix):
        found = fib(router, prefix)
        return len(found[0]["paths"]) if found else 0

    def watched():
        """BFD has both links on both sides: a routing session is up earlier, and would be missed by nobody but its hold time."""
        return all([p["status"] for p in frr.json("show bfd peers")] == ["up", "up"] for frr in frrs)

    def both():
        return watched() and paths(routers[0], "198.18.2.0/24") == 2 and paths(routers[1], "198.18.1.0/24") == 2 \
            and paths(routers[1], "198.18.3.0/24") == 2
    wait("two ways", both, 30)
    for host in (a, c):
        ping(host, "198.18.2.2")

    def spread():
        def sent():
            return [p["tx"]["packets"] for n, p in sorted(routers[0].ports().items()) if n.startswith("up")]
        before = sent()
        routing.flows(a, "198.18.2.2", 1000)

        def shares_of_all():
            shares = [y - x for x, y in zip(before, sent())]
            return shares if sum(shares) >= 980 else None
        shares = wait("all flows are on their way", shares_of_all)
        assert min(shares) > 380, shares
        return shares
    print(f"1,000 flows over two equal links: {spread()}")
    # One after the other: BFD finds out, then the ports.
    for wire, silently in zip(wires, (True, False)):
        streams = [routing.Stream(host, f"198.18.2.{last}", 0.02) for host in (a, c) for last in FLOWS]
        try:
            time.sleep(0.5)
            wire.cut(silently)
            wait("one way", lambda: paths(routers[0], "198.18.2.0/24") == 1 and paths(routers[1], "198.18.1.0/24") == 1)
            wait("all is well by one link", lambda: " 0% packet loss" in a.run(
                "ping -n -c 20 -i 0.01 -W 2 198.18.2.2", check=False).stdout, 5)
            wire.mend()
            wait("two ways again", both, 30)
        finally:
            longest = max(s.end()[1] for s in streams)
        how = "cut in silence" if silently else "down"
        print(f"{protocol.__name__} with BFD 100 ms x 3: link {how}, longest outage of {len(streams)} flows {longest:.0f} ms")
        assert longest < 2000
        spread()

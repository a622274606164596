"""Multicast that others have got wrong in public: what must not be forwarded, what must not be answered, and that copies are
what came in, fragments and options included.
"""

import pytest
from scapy.all import (ICMP, IP, UDP, Ether, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6MLReport2, ICMPv6PacketTooBig,
                       IPOption_NOP, IPOption_Router_Alert, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, PadN, Raw, RouterAlert)

import bench
from bench import A4, A6, UP, error6, interface, ours, theirs
from test_bugs_fragments import pieces_of

G4, G6 = "239.1.1.1", "ff3e::1:1"
MAC4, MAC6 = "01:00:5e:01:01:01", "33:33:00:01:00:01"
ROUTES = f"""
[[multicast_route]]
source = "{A4}"
group = "{G4}"
input = "in"
outputs = ["one", {{ interface = "two", ttl_threshold = 8 }}]

[[multicast_route]]
group = "239.1.1.2"
input = "in"
outputs = ["small"]

[[multicast_route]]
source = "{A6}"
group = "{G6}"
input = "in"
outputs = ["one", "two"]

[[multicast_route]]
group = "ff3e::1:2"
input = "in"
outputs = ["one", "small"]

[[multicast_route]]
group = "239.1.1.3"
input = "in"
outputs = []
"""
TEXT = (interface("in", "in", 1) + interface("one", "one", 2) + interface("two", "two", 3)
        + interface("small", "two", 7, 1300, 7) + ROUTES)
U = UDP(sport=4001, dport=4002)


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with bench.bench(tmp_path_factory.mktemp("multicast"), "lrbm", ["in", "one", "two"], TEXT) as running:
        yield running


def v4(dst=G4, mac=MAC4, **fields):
    return Ether(src=theirs(1), dst=mac) / IP(**{"src": A4, "dst": dst, "id": 7, "ttl": 33} | fields)


def v6(dst=G6, mac=MAC6, **fields):
    return Ether(src=theirs(1), dst=mac) / IPv6(**{"src": A6, "dst": dst, "hlim": 33} | fields)


def copied(frame, net):
    """What a router makes of a packet to a group: as to one station, but for the group's MAC address."""
    out = bench.routed(frame, net)
    return bytes(frame)[:6] + out[6:]


COPIED = [
    ("no payload", v4(proto=253)),
    ("UDP", v4() / U / Raw(bytes(range(200)))),
    ("as long as can be", v4() / U / Raw(bytes(1472))),
    ("DF", v4(flags="DF") / U / Raw(b"x")),
    ("options", v4(options=[IPOption_NOP()] * 8) / U / Raw(b"x")),
    ("a first fragment", v4(flags="MF") / U / Raw(bytes(800))),
    ("a later fragment", v4(frag=100, proto=17) / Raw(bytes(5))),
    ("a fragment of no bytes", v4(frag=100, flags="MF", proto=17)),
    ("IPv6", v6() / U / Raw(bytes(range(200)))),
    ("IPv6, no next header", v6(nh=59)),
    ("IPv6, destination options", v6() / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]) / U / Raw(b"x")),
    ("IPv6, a fragment", v6() / IPv6ExtHdrFragment(offset=9, m=1, nh=17) / Raw(bytes(64))),
]


@pytest.mark.parametrize("frame", [pytest.param(c[1], id=c[0]) for c in COPIED])
def test_copies_are_what_came_in(router, frame):
    wanted = {"one": [copied(frame, 2)], "two": [copied(frame, 3)]}
    router.check({"in": [frame]}, wanted)
    router.check({"in": [bytes(frame).ljust(64, b"\xa5")] * 40}, {port: frames * 40 for port, frames in wanted.items()})


DROPPED = [
    # DPDK/grout 15e9fc41: never by the way of unicast.
    ("to a group without a route, in a unicast frame", v4("239.9.9.9", ours(1)) / U, "ip4_multicast_unrouted"),
    ("to a group without a route", v4("239.9.9.9", "01:00:5e:09:09:09") / U, "ip4_multicast_unrouted"),
    ("to an IPv6 group without a route", v6("ff0e::9", "33:33:00:00:00:09") / U, "ip6_multicast_unrouted"),
    ("no hops left, no error", v4(ttl=1) / U, "ttl_expired"),
    ("no hops left at all", v4(ttl=0) / U, "ttl_expired"),
    ("IPv6, no hops left, no error", v6(hlim=1) / U, "ttl_expired"),
    ("of a group of the link", v4("224.0.0.251", "01:00:5e:00:00:fb") / U, "local_unhandled"),
    ("of an IPv6 group of the link", v6("ff02::fb", "33:33:00:00:00:fb") / U, "local_unhandled"),
    ("of an IPv6 group of the interface", v6("ff01::1", "33:33:00:00:00:01") / U, "ip6_bad_destination"),
    ("a ping to all stations", v4("224.0.0.1", "01:00:5e:00:00:01") / ICMP(), "local_unhandled"),
    ("IGMP for a group with a route", v4(proto=2, options=[IPOption_Router_Alert()]) / Raw(b"\x16\x00\x09\xfe\xef\x01\x01\x01"),
     "local_unhandled"),
    ("MLD", v6("ff02::16", "33:33:00:00:00:16", hlim=1, src="fe80::2") / IPv6ExtHdrHopByHop(options=[RouterAlert(), PadN()])
     / ICMPv6MLReport2(), "local_unhandled"),
    ("router alert for a group with a route", v4(options=[IPOption_Router_Alert()]) / U, "local_unhandled"),
    ("from nobody", v4(src="0.0.0.0") / U, "ip4_bad_source"),
    ("from a group", v4(src="239.1.1.9") / U, "ip4_bad_source"),
    ("from the loopback", v4(src="127.0.0.1") / U, "ip4_bad_source"),
    ("from ::", v6(src="::") / U, "ip6_bad_source"),
    ("from a link-local address", v6(src="fe80::2") / U, "ip6_link_local_scope"),
    ("a route to nowhere", v4("239.1.1.3", "01:00:5e:01:01:03") / U, "multicast_no_output"),
    ("a ping to a group that cannot be answered", v4("239.9.9.9", "01:00:5e:09:09:09") / ICMP(), "ip4_multicast_unrouted"),
    ("DF and too long, no error", v4("239.1.1.2", "01:00:5e:01:01:02", flags="DF") / U / Raw(bytes(1400)), "mtu_exceeded"),
    ("hop-by-hop header beyond the packet", v6(nh=0) / Raw(b"\x11\xff" + bytes(62)), "ip6_bad_extension"),
]


@pytest.mark.parametrize("frame, reason", [pytest.param(*c[1:], id=c[0]) for c in DROPPED])
def test_neither_copied_nor_answered(router, frame, reason):
    router.check({"in": [frame]}, drops={reason: 1})


def test_a_ping_to_all_ipv6_stations_is_answered_from_an_address_of_the_interface(router):
    ping = v6("ff02::1", "33:33:00:00:00:01") / ICMPv6EchoRequest(id=1, data=b"all")
    pong = Ether(src=ours(1), dst=theirs(1)) / IPv6(src="2001:db8:1::1", dst=A6, hlim=64) / ICMPv6EchoReply(id=1, data=b"all")
    router.check({"in": [ping]}, {"in": [pong]})


def test_by_the_wrong_interface(router):
    """A copy that went round is not copied again (RPF check)."""
    for frame in (v4() / U, v6() / U):
        router.check({"one": [frame] * 3, "two": [frame] * 2}, drops={"multicast_wrong_interface": 5})


def test_the_threshold_of_an_output(router):
    for ttl, ports in ((8, ["one"]), (9, ["one", "two"]), (2, ["one"])):
        frame = v4(ttl=ttl) / U
        router.check({"in": [frame]}, {port: [copied(frame, 2 if port == "one" else 3)] for port in ports})


def test_what_is_too_long_for_an_output(router):
    """IPv4: cut for that output. IPv6: the sender is told (RFC 4443 2.4 e), the others get their copy."""
    frame = v4("239.1.1.2", "01:00:5e:01:01:02") / U / Raw(bytes(range(250)) * 5 + bytes(150))
    wanted = [frame_to("01:00:5e:01:01:02", piece) for piece in pieces_of(frame)]
    router.check({"in": [frame]}, {"two": wanted})
    frame = v6("ff3e::1:2", "33:33:00:01:00:02") / U / Raw(bytes(1400))
    router.check({"in": [frame]}, {"one": [copied(frame, 2)], "in": [error6(frame, ICMPv6PacketTooBig(mtu=1300))]})


def frame_to(mac, frame):
    return bytes(Ether(dst=mac))[:6] + frame[6:]


def test_unicast_goes_on_beside_it(router):
    """One burst of copies and of packets for one station: neither takes the other's place."""
    alone = [UP / IP(src=A4, dst="198.18.2.2", id=i) / U for i in range(50)]
    group = [v4(id=i) / U for i in range(50)]
    mixed = [f for pair in zip(alone, group) for f in pair]
    router.check({"in": mixed}, {"one": [bench.routed(f) for f in alone] + [copied(f, 2) for f in group],
                                 "two": [copied(f, 3) for f in group]})

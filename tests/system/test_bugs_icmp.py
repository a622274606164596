"""ICMP errors that others have got wrong in public, whole and byte for byte: about what, to whom, from where, how much is
quoted, with which MTU, how many; and about what there must never be one.
"""

import time

import pytest
from scapy.all import (ICMP, IP, TCP, UDP, Ether, ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_Redirect,
                       ICMPv6PacketTooBig, ICMPv6ParamProblem, ICMPv6TimeExceeded, ICMPv6Unknown, IPOption_NOP,
                       IPOption_RR, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, PadN, Raw)

import bench
from bench import A4, A6, B4, B6, OUR4, OUR6, PAIR, S4, S6, UP, error4, error6, routed

# A host with two addresses on the network; what it sends from the other one is answered from the network of that one.
NARROW = bench.interface("narrow", "in", 9, 300, 9, addresses=["198.18.9.1/24"], known=False) + f"""
[[neighbor]]
interface = "narrow"
address = "198.18.9.2"
mac = "{bench.theirs(9)}"
"""
SECOND = NARROW + PAIR.replace('addresses = ["198.18.1.1/24",', 'addresses = ["198.18.1.1/24", "198.18.101.1/24",', 1) + f"""
[[neighbor]]
interface = "in"
address = "198.18.101.2"
mac = "{UP.src}"
"""
NOWHERE4, NOWHERE6 = "203.0.113.9", "2001:db9::9"
PROHIBITED4, PROHIBITED6 = "10.8.0.1", "2001:db8:f008::1"
U = UDP(sport=4001, dport=4002)


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with bench.bench(tmp_path_factory.mktemp("icmp"), "lrbi", ["in", "out"], SECOND) as running:
        yield running


def data(length):
    return Raw(bytes(i % 251 for i in range(length)))


def v4(**fields):
    return UP / IP(**{"src": A4, "dst": B4, "id": 7} | fields)


def v6(**fields):
    return UP / IPv6(**{"src": A6, "dst": B6} | fields)


def quoting(packet, options=b"", cut=None, kind=3, code=1):
    """An ICMP error that somebody else has sent about `packet`, as much of it as `cut` says."""
    return ICMP(type=kind, code=code) / Raw(bytes(packet)[:cut])


# Name, frame, type and code, and what else the error says. From the address the packet came in by (githedgehog/dataplane counted
# only), with the MTU of the way out (RFC 1191; DPDK/grout sent 0).
ERRORS4 = [
    ("TTL 1", v4(ttl=1) / U / data(64), 11, 0, {}),
    ("TTL 0", v4(ttl=0) / U / data(64), 11, 0, {}),
    ("TTL 1, TCP", v4(ttl=1) / TCP(sport=1, dport=2, flags="S"), 11, 0, {}),
    ("TTL 1, ping", v4(ttl=1) / ICMP() / data(9), 11, 0, {}),
    ("TTL 1, no payload", v4(ttl=1, proto=253), 11, 0, {}),
    ("TTL 1, options", v4(ttl=1, options=[IPOption_RR(routers=["0.0.0.0"] * 9)]) / U / data(64), 11, 0, {}),
    ("TTL 1, first fragment", v4(ttl=1, flags="MF") / U / data(64), 11, 0, {}),
    ("TTL 1, from the other address", v4(ttl=1, src="198.18.101.2") / U / data(64), 11, 0, {"src": "198.18.101.1"}),
    ("TTL 1, from behind a gateway", v4(ttl=1, src="10.2.0.9") / U / data(64), 11, 0, None),
    ("no route", v4(dst=NOWHERE4) / U / data(64), 3, 0, {}),
    ("prohibited", v4(dst=PROHIBITED4) / U / data(64), 3, 13, {}),
    ("no such port", v4(dst=OUR4) / U / data(64), 3, 3, {}),
    ("no such port, address of the other side", v4(dst="198.18.2.1") / U / data(64), 3, 3, {}),
    ("no such protocol", v4(dst=OUR4, proto=253) / data(64), 3, 2, {}),
    ("DF, one byte too long", v4(dst=S4, flags="DF") / U / data(1273), 3, 4, {"mtu": 1300}),
    ("DF, far too long", v4(dst=S4, flags="DF") / U / data(1472), 3, 4, {"mtu": 1300}),
    ("DF, with options", v4(dst=S4, flags="DF", options=[IPOption_NOP()] * 40) / U / data(1300), 3, 4, {"mtu": 1300}),
    ("TTL 1 before the MTU", v4(dst=S4, flags="DF", ttl=1) / U / data(1400), 11, 0, {}),
    # As much of the packet as fits into 576 bytes (RFC 1812 4.3.2.3).
    *((f"quote of a packet of {n} bytes", v4(ttl=1) / U / data(n - 28), 11, 0, {}) for n in (547, 548, 549, 576, 1500)),
]


@pytest.mark.parametrize("frame, kind, code, more", [pytest.param(*c[1:], id=c[0]) for c in ERRORS4])
def test_icmp4(router, frame, kind, code, more):
    if more is None:
        # The way back is not the way it came: the error follows the route, and says where the packet came in all the same.
        wanted = {"out": [Ether(src=bench.ours(2), dst=bench.theirs(2)) / Raw(error4(frame, kind, code)[14:])]}
        wanted["out"][0].type = 0x800
    else:
        wanted = {"in": [error4(frame, kind, code, **more)]}
    router.check({"in": [frame]}, wanted)
    padded = bytes(frame).ljust(60, b"\xa5")
    router.check({"in": [padded]}, wanted)


ERRORS6 = [
    ("hop limit 1", v6(hlim=1) / U / data(64), ICMPv6TimeExceeded(code=0)),
    ("hop limit 0", v6(hlim=0) / U / data(64), ICMPv6TimeExceeded(code=0)),
    ("hop limit 1, ping", v6(hlim=1) / ICMPv6EchoRequest(data=b"x"), ICMPv6TimeExceeded(code=0)),
    ("hop limit 1, a later fragment", v6(hlim=1) / IPv6ExtHdrFragment(offset=5, m=1, nh=17) / data(64), ICMPv6TimeExceeded(code=0)),
    ("hop limit 1, options", v6(hlim=1) / IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(4))]) / U / data(64), ICMPv6TimeExceeded(code=0)),
    ("no route", v6(dst=NOWHERE6) / U / data(64), ICMPv6DestUnreach(code=0)),
    ("prohibited", v6(dst=PROHIBITED6) / U / data(64), ICMPv6DestUnreach(code=1)),
    ("no such port", v6(dst=OUR6) / U / data(64), ICMPv6DestUnreach(code=4)),
    ("no such protocol", v6(dst=OUR6, nh=253) / data(64), ICMPv6ParamProblem(code=1, ptr=6)),
    # DPDK/grout dropped these in silence.
    ("one byte too long", v6(dst=S6) / U / data(1253), ICMPv6PacketTooBig(mtu=1300)),
    ("far too long", v6(dst=S6) / U / data(1452), ICMPv6PacketTooBig(mtu=1300)),
    ("too long, a fragment", v6(dst=S6) / IPv6ExtHdrFragment(offset=5, m=1, nh=17) / data(1400), ICMPv6PacketTooBig(mtu=1300)),
    ("too long, options", v6(dst=S6) / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]) / U / data(1400), ICMPv6PacketTooBig(mtu=1300)),
    ("hop limit before the MTU", v6(dst=S6, hlim=1) / U / data(1400), ICMPv6TimeExceeded(code=0)),
    # As much as fits into the least MTU of IPv6 (RFC 4443 2.4 c).
    *((f"quote of a packet of {n} bytes", v6(hlim=1) / U / data(n - 48), ICMPv6TimeExceeded(code=0))
      for n in (1231, 1232, 1233, 1280, 1500)),
]


@pytest.mark.parametrize("frame, message", [pytest.param(*c[1:], id=c[0]) for c in ERRORS6])
def test_icmp6(router, frame, message):
    router.check({"in": [frame]}, {"in": [error6(frame, message)]})


# What comes in by the other wire says who it is by the address of that interface.
def test_the_address_is_that_of_the_incoming_interface(router):
    down = Ether(src=bench.theirs(2), dst=bench.ours(2))
    frame = down / IP(src="198.18.2.2", dst=A4, ttl=1) / U / data(20)
    frame6 = down / IPv6(src="2001:db8:2::2", dst=A6, hlim=1) / U / data(20)
    router.check({"out": [frame, frame6]}, {"out": [error4(frame, 11, 0, net=2), error6(frame6, ICMPv6TimeExceeded(), net=2)]})


def test_errors_fit_the_link_they_go_back_by(router):
    """They must not be fragmented on the way, so that a link of 300 bytes gets a shorter quote."""
    for length in (200, 252, 253, 272):
        frame = Ether(src=bench.theirs(9), dst=bench.ours(9)) / IP(src="198.18.9.2", dst=B4, ttl=1) / U / data(length - 8)
        wanted = error4(frame, 11, 0, net=9, most=300)
        router.check({"in": [bench.tagged(9, 9, 0x800, bytes(frame)[14:], to_us=True)]}, {"in": [bench.tagged(9, 9, 0x800, wanted[14:])]})


INNER4 = IP(src="10.2.0.1", dst=A4, id=9) / U / data(30)
# Name, frame, reason: an error would be due, and there must be none (RFC 1122 3.2.2, RFC 1812 4.3.2.7, RFC 4443 2.4 e).
NEVER = [
    *((f"about an ICMP error of type {kind}", v4(ttl=1) / quoting(INNER4, kind=kind, code=0), "ttl_expired") for kind in (3, 4, 5, 11, 12)),
    ("about an ICMP error with options", v4(ttl=1, options=[IPOption_NOP()] * 8) / quoting(INNER4), "ttl_expired"),
    # DPDK/grout cb55da86, 09138804: what is quoted is not looked at, whatever it says.
    ("about an ICMP error that quotes options",
     v4(ttl=1) / quoting(IP(src="10.2.0.1", dst=A4, options=[IPOption_NOP()] * 40) / U), "ttl_expired"),
    ("about an ICMP error with half a quote", v4(ttl=1) / quoting(INNER4, cut=9), "ttl_expired"),
    ("about an ICMP error without a quote", v4(ttl=1) / quoting(INNER4, cut=0), "ttl_expired"),
    ("about an ICMP message of no bytes", v4(ttl=1, proto=1), "ttl_expired"),
    ("about an ICMP error that finds no route", v4(dst=NOWHERE4) / quoting(INNER4), "no_route"),
    ("about an ICMP error that is prohibited", v4(dst=PROHIBITED4) / quoting(INNER4), "route_prohibit"),
    ("about an ICMP error too long for its way", v4(dst=S4, flags="DF") / ICMP(type=3, code=1) / data(1400), "mtu_exceeded"),
    ("about a later fragment", v4(ttl=1, frag=3) / data(64), "ttl_expired"),
    ("about the last fragment", v4(dst=NOWHERE4, frag=3, flags=0) / data(64), "no_route"),
    ("about a fragment of DF too long", v4(dst=S4, frag=3, flags="DF") / data(1400), "mtu_exceeded"),
    ("about a multicast", Ether(src=UP.src, dst="01:00:5e:01:01:01") / IP(src=A4, dst="239.1.1.1", ttl=1) / U, "ip4_multicast_unrouted"),
    ("about a broadcast to a port", Ether(src=UP.src, dst="ff:ff:ff:ff:ff:ff") / IP(src=A4, dst="255.255.255.255") / U, "ip4_broadcast"),
    ("about a broadcast of the network", v4(dst="198.18.1.255") / U / data(64), "local_unhandled"),
    ("about a directed broadcast", v4(dst="198.18.2.255") / U / data(64), "ip4_broadcast"),
    ("about a network address", v4(dst="198.18.1.0") / U / data(64), "local_unhandled"),
    ("about a frame to all stations", Ether(src=UP.src, dst="ff:ff:ff:ff:ff:ff") / IP(src=A4, dst=B4, ttl=1) / U,
     "l2_broadcast_unicast_ip"),
    ("to a broadcast address", v4(src="198.18.1.255", ttl=1) / U, "ip4_bad_source"),
    ("to a group", v4(src="224.0.0.1", ttl=1) / U, "ip4_bad_source"),
    ("to nobody", v4(src="0.0.0.0", ttl=1) / U, "ip4_bad_source"),
    *((f"about an ICMPv6 error of type {kind}", v6(hlim=1) / ICMPv6Unknown(type=kind, msgbody=bytes(40)), "ttl_expired")
      for kind in (1, 2, 3, 4, 100, 127)),
    ("about an ICMPv6 error behind options",
     v6(hlim=1) / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]) / ICMPv6DestUnreach() / data(40), "ttl_expired"),
    ("about an ICMPv6 error in a first fragment",
     v6(hlim=1) / IPv6ExtHdrFragment(offset=0, m=1) / ICMPv6DestUnreach() / data(40), "ttl_expired"),
    ("about a redirect", v6(hlim=1) / ICMPv6ND_Redirect(), "ttl_expired"),
    ("about an ICMPv6 error that finds no route", v6(dst=NOWHERE6) / ICMPv6TimeExceeded() / data(40), "no_route"),
    ("about an ICMPv6 error too long for its way", v6(dst=S6) / ICMPv6TimeExceeded() / data(1400), "mtu_exceeded"),
    ("to ::", v6(src="::", hlim=1) / U, "ip6_bad_source"),
    ("to an IPv6 group", v6(src="ff0e::1", hlim=1) / U, "ip6_bad_source"),
]


@pytest.mark.parametrize("frame, reason", [pytest.param(*c[1:], id=c[0]) for c in NEVER])
def test_never_an_error(router, frame, reason):
    router.check({"in": [frame]}, drops={reason: 1})


def test_errors_of_others_pass_as_they_are(router):
    """DPDK/grout cb55da86, 09138804: ICMP errors whose quotes have options, or end early, are packets like all others."""
    frames = [v4() / quoting(IP(src=B4, dst=A4, options=[IPOption_NOP()] * 40) / U / data(8)),
              *(v4() / quoting(INNER4, cut=n) for n in (0, 1, 19, 20, 27)),
              v6() / ICMPv6PacketTooBig(mtu=1280) / Raw(bytes(IPv6(src=B6, dst=A6) / U / data(1300))[:1232]),
              v6() / ICMPv6DestUnreach() / Raw(b"\x60")]
    router.check({"in": frames}, {"out": [routed(f) for f in frames]})


def test_errors_to_the_router_itself_are_no_harm(router):
    """The same for the router's own address: looked at as far as they go, and no answer."""
    frames = [v4(dst=OUR4) / quoting(IP(src=OUR4, dst=A4, ihl=15) / U, cut=n) for n in (0, 1, 8, 20, 24)]
    frames += [v4(dst=OUR4) / ICMP(type=5, code=1, gw=A4) / Raw(bytes(INNER4)), v4(dst=OUR4) / ICMP(type=0) / data(9)]
    six = [v6(dst=OUR6) / ICMPv6PacketTooBig(mtu=mtu) / Raw(bytes(IPv6(src=OUR6, dst=A6) / U)[:n])
           for mtu, n in ((0, 48), (67, 0), (1 << 31, 7))]
    six.append(v6(dst=OUR6) / ICMPv6EchoReply(data=b"nobody asked"))
    router.check({"in": frames + six}, drops={"icmp_ignored": len(frames + six)})
    broken = [v4(dst=OUR4) / ICMP(type=8, chksum=1) / data(9), v4(dst=OUR4, proto=1) / Raw(b"\x08\x00\xf7"),
              v6(dst=OUR6) / ICMPv6EchoRequest(cksum=1), v6(dst=OUR6, nh=58) / Raw(b"\x80\x00\x00\x00\x00")]
    router.check({"in": broken}, drops={"icmp_malformed": len(broken)})


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_exactly_so_many_errors_as_the_limit_says(tmp_path, limit):
    """danos/vyatta-dataplane 79ee89a3: of N + 1 triggers N were allowed, or N + 1. Both families draw from one limit."""
    text = PAIR + f"\n[router]\nicmp_errors_per_second = {limit}\n"
    with bench.bench(tmp_path, f"lrbl{limit}", ["in", "out"], text) as running:
        four = [v4(ttl=1, id=i) / U for i in range(limit + 5)]
        six = [v6(hlim=1) / UDP(sport=i) for i in range(3)]
        wanted = [error4(f, 11, 0) for f in four[:limit]]
        running.check({"in": four}, {"in": wanted}, {"ttl_expired": 5})
        if limit == 1:
            # A second gives one more, whichever family asks for it.
            time.sleep(1.1)
            running.check({"in": six}, {"in": [error6(six[0], ICMPv6TimeExceeded())]}, {"ttl_expired": 2})
        else:
            # Pings are no errors: no limit of theirs.
            pings = [v4(dst=OUR4) / ICMP(id=9, seq=i) for i in range(20)]
            pongs = [Ether(src=UP.dst, dst=UP.src) / IP(src=OUR4, dst=A4, id=7, ttl=64) / ICMP(type=0, id=9, seq=i) for i in range(20)]
            running.check({"in": pings}, {"in": pongs})

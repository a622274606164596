"""Headers that others have got wrong in public: what is not sound is dropped under its name, what is sound leaves byte for byte.

The comment at a case names the public report or fix that it comes from.
"""

import pytest
from scapy.all import (ICMP, IP, UDP, Ether, ICMPv6EchoReply, ICMPv6EchoRequest, IPOption_NOP,
                       IPOption_Router_Alert, IPOption_RR, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment,
                       IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN, Raw, RouterAlert, checksum)

import bench
from bench import A4, A6, B4, B6, DOWN, OUR4, OUR6, PAIR, UP, routed

DATA = Raw(bytes(range(200)))
U = UDP(sport=4001, dport=4002)


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with bench.bench(tmp_path_factory.mktemp("headers"), "lrbh", ["in", "out"], PAIR) as running:
        yield running


def v4(**fields):
    return UP / IP(**{"src": A4, "dst": B4, "id": 7} | fields)


def v6(**fields):
    return UP / IPv6(**{"src": A6, "dst": B6} | fields)


def cut(packet, l3):
    """The frame ends so many bytes behind the Ethernet header."""
    return Ether(bytes(packet)[:14 + l3])


def to(mac, packet):
    out = packet.copy()
    out.dst = mac
    return out


def raw_options(options, payload, **fields):
    """Options as they are given: scapy would not write what is malformed."""
    whole = IP(**{"src": A4, "dst": B4, "id": 7, "proto": 17, "ihl": 5 + len(options) // 4, "chksum": 0} | fields)
    whole.len = 20 + len(options) + len(payload)
    header = bytes(whole) + options
    sum_ = checksum(header).to_bytes(2, "big")
    return Ether(src=UP.src, dst=UP.dst, type=0x800) / Raw(header[:10] + sum_ + header[12:]) / payload


OPTIONS = [IPOption_RR(routers=["0.0.0.0"] * 2, pointer=4), IPOption_NOP()]

# Name, frame, reason of the drop.
DROPPED = [
    # DPDK/grout#177
    ("IPv4 version 5", v4(version=5) / U / DATA, "ip4_bad_version"),
    ("IPv4 version 6", v4(version=6) / U / DATA, "ip4_bad_version"),
    ("IPv4 version 0", v4(version=0) / U / DATA, "ip4_bad_version"),
    ("header length of 3 words", v4(ihl=3) / U / DATA, "ip4_bad_header_length"),
    ("header length of 0 words", v4(ihl=0) / U / DATA, "ip4_bad_header_length"),
    ("header length beyond the packet", cut(v4(ihl=15) / U, 40), "ip4_bad_header_length"),
    ("10 bytes of an IPv4 header", cut(v4() / U, 10), "ip4_too_short"),
    ("19 bytes of an IPv4 header", cut(v4() / U, 19), "ip4_too_short"),
    ("no byte behind the Ethernet header", cut(v4(), 0), "ip4_too_short"),
    ("39 bytes of an IPv6 header", cut(v6() / U, 39), "ip6_too_short"),
    ("IPv6 version 4", v6(version=4) / U / DATA, "ip6_bad_version"),
    ("IPv6 payload beyond the frame", v6(plen=209) / U / DATA, "ip6_bad_payload_length"),
    ("total length below the header", v4(len=19) / U / DATA, "ip4_bad_total_length"),
    ("total length beyond the frame", v4(len=229) / U / DATA, "ip4_bad_total_length"),
    ("checksum one off", v4(chksum=int(IP(bytes(v4() / U / DATA)[14:]).chksum) ^ 1) / U / DATA, "ip4_bad_checksum"),
    # FDio/vpp d9252468792: what is checked does not depend on options.
    ("version 5 with options", v4(version=5, options=OPTIONS) / U / DATA, "ip4_bad_version"),
    ("total length within the options", v4(len=24, options=OPTIONS) / U / DATA, "ip4_bad_total_length"),
    ("checksum of the first 20 bytes only",
     v4(options=OPTIONS, chksum=IP(bytes(v4(options=OPTIONS, ihl=8, len=236) / U / DATA)[14:34]).chksum ^ 0x55) / U / DATA,
     "ip4_bad_checksum"),
    ("martian source with options", v4(src="127.0.0.1", options=OPTIONS) / U / DATA, "ip4_bad_source"),
    ("an option longer than the header", raw_options(b"\x07\x28\x04\x00", U / DATA), "ip4_bad_options"),
    ("an option of length 1", raw_options(b"\x07\x01\x04\x00", U / DATA), "ip4_bad_options"),
    ("a source route", raw_options(b"\x83\x07\x04\x0a\x02\x00\x01\x00", U / DATA), "ip4_source_route"),
    # DPDK/grout 15e9fc41: a unicast frame is no way for these to be forwarded.
    ("unicast frame to 0.0.0.0", v4(dst="0.0.0.0") / U / DATA, "ip4_bad_destination"),
    ("unicast frame to 0.1.2.3", v4(dst="0.1.2.3") / U / DATA, "ip4_bad_destination"),
    ("unicast frame to 255.255.255.255", v4(dst="255.255.255.255") / U / DATA, "ip4_broadcast"),
    ("unicast frame to 224.0.0.9", v4(dst="224.0.0.9") / U / DATA, "local_unhandled"),
    ("unicast frame to 239.1.2.3", v4(dst="239.1.2.3") / U / DATA, "ip4_multicast_unrouted"),
    ("unicast frame to 240.0.0.1", v4(dst="240.0.0.1") / U / DATA, "ip4_bad_destination"),
    ("unicast frame to 127.0.0.1", v4(dst="127.0.0.1") / U / DATA, "ip4_bad_destination"),
    ("unicast frame to a network's broadcast", v4(dst="198.18.2.255") / U / DATA, "ip4_broadcast"),
    ("unicast frame to ff02::5", v6(dst="ff02::5") / U / DATA, "local_unhandled"),
    ("unicast frame to ff0e::5", v6(dst="ff0e::5") / U / DATA, "ip6_multicast_unrouted"),
    ("unicast frame to ff01::1", v6(dst="ff01::1") / U / DATA, "ip6_bad_destination"),
    ("unicast frame to ::", v6(dst="::") / U / DATA, "ip6_bad_destination"),
    # DPDK/grout 5582c979: DHCP and the like in broadcast frames.
    ("DHCP in a broadcast frame",
     Ether(src=UP.src, dst="ff:ff:ff:ff:ff:ff") / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67) / Raw(bytes(240)),
     "ip4_broadcast"),
    ("a directed broadcast in a broadcast frame", to("ff:ff:ff:ff:ff:ff", v4(dst="198.18.1.255") / U / DATA), "ip4_broadcast"),
    ("another network's broadcast in a broadcast frame", to("ff:ff:ff:ff:ff:ff", v4(dst="198.18.2.255") / U / DATA),
     "l2_broadcast_unicast_ip"),
    ("unicast IPv4 in a broadcast frame", to("ff:ff:ff:ff:ff:ff", v4() / U / DATA), "l2_broadcast_unicast_ip"),
    ("unicast IPv4 in a multicast frame", to("01:00:5e:01:02:03", v4() / U / DATA), "l2_broadcast_unicast_ip"),
    ("unicast IPv6 in a broadcast frame", to("ff:ff:ff:ff:ff:ff", v6() / U / DATA), "l2_broadcast_unicast_ip"),
    ("unicast IPv6 in a multicast frame", to("33:33:00:00:00:01", v6() / U / DATA), "l2_broadcast_unicast_ip"),
    ("own IPv4 address in a broadcast frame", to("ff:ff:ff:ff:ff:ff", v4(dst=OUR4) / ICMP() / DATA), "l2_broadcast_unicast_ip"),
    # FDio/vpp d029af6616f and 6c15c5b7118: chains of IPv6 headers longer than the packet.
    ("hop-by-hop header beyond the packet", v6(nh=0) / Raw(b"\x11\xff" + bytes(62)), "ip6_bad_extension"),
    ("hop-by-hop header one byte too long", v6(nh=0) / Raw(b"\x11\x01\x01\x04" + bytes(4) + b"\x01\x05" + bytes(5)), "ip6_bad_extension"),
    ("hop-by-hop header of one byte", v6(nh=0) / Raw(b"\x11"), "ip6_bad_extension"),
    ("hop-by-hop header announced, nothing there", v6(nh=0), "ip6_bad_extension"),
    ("to the router: hop-by-hop header beyond the packet", v6(dst=OUR6, nh=0) / Raw(b"\x3a\xff" + bytes(62)), "ip6_bad_extension"),
    ("to the router: chain cut in the second header",
     v6(dst=OUR6, nh=60) / Raw(b"\x2b\x00\x01\x04" + bytes(4) + b"\x3a\x02\x00\x00"), "ip6_bad_extension"),
    ("to the router: fragment header of 7 bytes", v6(dst=OUR6, nh=44) / Raw(b"\x3a" + bytes(6)), "ip6_bad_extension"),
    ("to the router: hop-by-hop header in second place",
     v6(dst=OUR6, nh=60) / Raw(b"\x00\x00\x01\x04" + bytes(4) + b"\x3a\x00\x01\x04" + bytes(4)) / ICMPv6EchoRequest(), "ip6_bad_extension"),
]


@pytest.mark.parametrize("frame, reason", [pytest.param(*c[1:], id=c[0]) for c in DROPPED])
def test_dropped_and_counted(router, frame, reason):
    router.check({"in": [frame]}, drops={reason: 1})


CHAIN = IPv6ExtHdrHopByHop(options=[RouterAlert(), PadN(optdata=b"\0\0")]) / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(12))])
# Name, frame that must leave as it came but for the fields that a router changes.
PASSED = [
    ("record route, timestamp and padding", raw_options(b"\x07\x0f\x04" + bytes(12) + b"\x44\x0c\x05\x01" + bytes(8) + b"\x00", U / DATA)),
    ("router alert", v4(options=[IPOption_Router_Alert()]) / U / DATA),
    ("40 bytes of options", v4(options=[IPOption_NOP()] * 40) / U / DATA),
    ("an option nobody knows", raw_options(b"\x9e\x06\xde\xad\xbe\xef\x01\x01", U / DATA)),
    # openvswitch/ovs 2ff8ed8de: the checksum is over the whole header, at both ends of the arithmetic.
    *((f"options, identification {n:#x}", v4(options=OPTIONS, id=n, ttl=2 + n % 250) / U / DATA) for n in (0, 1, 0xfffe, 0xffff)),
    ("UDP without checksum", v4() / UDP(sport=1, dport=2, chksum=0) / DATA),
    ("IP header alone", v4(proto=253)),
    ("TTL 255", v4(ttl=255) / U / DATA),
    ("the reserved flag", v4(flags="evil") / U / DATA),
    # githedgehog/dataplane 835adcf6 and b2b99d8a: extension headers vanished on the way.
    ("hop-by-hop and destination options", v6() / CHAIN / U / DATA),
    ("a routing header of type 4, all segments used",
     v6() / IPv6ExtHdrRouting(type=4, segleft=0, addresses=["2001:db8::9"]) / U / DATA),
    ("a fragment with options in front", v6() / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))])
     / IPv6ExtHdrFragment(offset=5, m=1, id=99, nh=17) / DATA),
    ("authentication header", v6(nh=51) / Raw(b"\x11\x04" + bytes(22)) / U / DATA),
    ("mobility header", v6(nh=135) / Raw(b"\x3b\x00\x05" + bytes(5))),
    ("no next header", v6(nh=59) / DATA),
    ("an extension header nobody knows", v6(nh=253) / DATA),
    ("twelve destination options", v6(nh=60) / Raw((b"\x3c\x00\x01\x04" + bytes(4)) * 11 + b"\x11\x00\x01\x04" + bytes(4)) / U / DATA),
    # The options themselves are not acted on, and what is behind the hop-by-hop header is none of a router's business (RFC 8200 4).
    ("hop-by-hop option beyond its header", v6(nh=0) / Raw(b"\x3b\x00\x01\x05\x00\x00\x00\x00")),
    ("destination options cut off", v6(nh=60) / Raw(b"\x11\x03" + bytes(6))),
    ("routing header of one byte", v6(nh=43) / Raw(b"\x11")),
    ("IPv6 in IPv6", v6() / IPv6(src="2001:db8:aaaa::1", dst="2001:db8:bbbb::1") / U / DATA),
    ("IPv4 in IPv4", v4() / IP(src="10.9.9.9", dst="10.9.9.8") / U / DATA),
]


@pytest.mark.parametrize("frame", [pytest.param(c[1], id=c[0]) for c in PASSED])
def test_leaves_byte_for_byte(router, frame):
    router.check({"in": [frame]}, {"out": [routed(frame)]})


# openvswitch/ovs 892545b95: Ethernet pads to 60 bytes; what pads is not part of the packet.
SHORT = [
    ("IPv4, 1 byte of payload", v4() / U / Raw(b"x")),
    ("IPv4 without payload", v4(proto=253)),
    ("IPv6 without payload", v6(nh=59)),
    ("IPv6, UDP without payload", v6() / U),
]


@pytest.mark.parametrize("filler", [b"\0", b"\xa5"], ids=["zeros", "rubbish"])
@pytest.mark.parametrize("frame", [pytest.param(c[1], id=c[0]) for c in SHORT])
def test_padding_is_ignored_and_not_forwarded(router, frame, filler):
    for length in (60, 64, 128):
        padded = bytes(frame).ljust(length, filler)
        router.check({"in": [padded]}, {"out": [routed(frame)]})


def test_padding_is_not_answered(router):
    """Pings, whose answers are made in place: lengths and checksums are the packet's, not the frame's."""
    for data in (b"", b"x", b"odd"):
        ping = UP / IP(src=A4, dst=OUR4, id=3, ttl=9) / ICMP(id=1, seq=2) / Raw(data)
        pong = DOWN / IP(src=OUR4, dst=A4, id=3, ttl=64) / ICMP(type=0, id=1, seq=2) / Raw(data)
        ping6 = UP / IPv6(src=A6, dst=OUR6, hlim=9) / ICMPv6EchoRequest(id=1, seq=2, data=data)
        pong6 = DOWN / IPv6(src=OUR6, dst=A6, hlim=64) / ICMPv6EchoReply(id=1, seq=2, data=data)
        for frame, answer in ((ping, pong), (ping6, pong6)):
            router.check({"in": [frame]}, {"in": [answer]})
            router.check({"in": [bytes(frame).ljust(70, b"\xa5")]}, {"in": [answer]})


def test_bursts_of_sound_and_unsound_packets(router):
    """All the cases at once, several times: no packet is taken for its neighbour in a burst."""
    drops = {}
    for _, _, reason in DROPPED:
        drops[reason] = drops.get(reason, 0) + 5
    frames = [c[1] for pair in zip(DROPPED, (PASSED * 3)[:len(DROPPED)]) for c in pair]
    wanted = [routed(c[1]) for c in (PASSED * 3)[:len(DROPPED)]]
    router.check({"in": frames * 5}, {"out": wanted * 5}, drops)

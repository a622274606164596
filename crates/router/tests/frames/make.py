#!/usr/bin/env python3
"""Writes frames.txt: what goes into the testbed's router and what must come out, encoded by scapy.

    python3 make.py > frames.txt

Each line: case, `in` or `out`, port, hex.
"""
from scapy.all import ARP, Dot1Q, Ether, ICMP, IP, Raw, TCP, UDP, fragment
from scapy.layers.inet import IPOption_NOP, IPOption_RR, IPOption_Router_Alert
from scapy.layers.inet6 import (
    ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, ICMPv6ND_NA,
    ICMPv6ND_NS, ICMPv6PacketTooBig, ICMPv6ParamProblem, ICMPv6TimeExceeded, IPv6, IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop, RouterAlert)

ROUTER = ["02:00:00:00:00:%02x" % p for p in range(5)]        # by port
NINTH = ["02:00:00:00:09:%02x" % i for i in range(7)]         # host 9, by interface
LAN, WAN, VLAN, QINQ, SMALL, JUMBO = 0, 1, 2, 3, 4, 6


def case(name, port_in, frame_in, *out):
    print(name, "in", port_in, bytes(frame_in).hex())
    for port, frame in out:
        print(name, "out", port, bytes(frame).hex())


def pattern(n):
    return bytes(i * 7 % 251 for i in range(n))


def fwd(name, port_in, eth_in, port_out, eth_out, packet, pad=0):
    after = packet.copy()
    if IP in after:
        after[IP].ttl -= 1
    else:
        after[IPv6].hlim -= 1
    case(name, port_in, bytes(eth_in / packet) + bytes(pad), (port_out, eth_out / after))


to_lan = Ether(dst=ROUTER[0], src=NINTH[LAN])
from_lan = Ether(dst=NINTH[LAN], src=ROUTER[0])
to_wan = Ether(dst=NINTH[WAN], src=ROUTER[1])
udp4 = IP(src="10.0.0.9", dst="198.18.5.5", ttl=64, id=77, tos=0x28) / UDP(sport=1, dport=2) / pattern(18)
udp6 = IPv6(src="2001:db8::9", dst="2001:db8:18::5", hlim=64, tc=9, fl=0x12345) / UDP(sport=1, dport=2) / pattern(18)

fwd("ip4", 0, to_lan, 1, to_wan, udp4)
fwd("ip4_1518", 0, to_lan, 1, to_wan, IP(src="10.0.0.9", dst="198.18.5.6", flags="DF") / UDP() / pattern(1472))
fwd("ip4_padding", 0, to_lan, 1, to_wan, IP(src="10.0.0.9", dst="198.18.5.7") / UDP() / b"x", pad=17)
fwd("ip4_options", 0, to_lan, 1, to_wan, IP(src="10.0.0.9", dst="198.18.5.8", options=[
    IPOption_Router_Alert(), IPOption_NOP(), IPOption_RR(routers=["0.0.0.0", "0.0.0.0"])]) / TCP() / pattern(9))
fwd("ip4_fragment_transit", 0, to_lan, 1, to_wan,
    IP(src="10.0.0.9", dst="198.18.5.9", flags="MF", frag=185, id=9) / Raw(pattern(64)))
fwd("ip4_max_payload_protocol", 0, to_lan, 1, to_wan, IP(src="10.0.0.9", dst="198.18.5.1", proto=253) / Raw(b""))
fwd("ip6", 0, to_lan, 1, to_wan, udp6)
fwd("ip6_padding", 0, to_lan, 1, to_wan, IPv6(src="2001:db8::9", dst="2001:db8:18::6", nh=59) / Raw(b"ab"), pad=4)
fwd("ip6_extensions", 0, to_lan, 1, to_wan, IPv6(src="2001:db8::9", dst="2001:db8:18::7")
    / IPv6ExtHdrHopByHop(options=[RouterAlert()]) / IPv6ExtHdrFragment(m=1, offset=3, id=5) / Raw(pattern(48)))
fwd("ip6_unique_local_source", 0, to_lan, 1, to_wan, IPv6(src="fd00::1", dst="2001:db8:18::8") / UDP() / b"ula")

fwd("vlan_push", 0, to_lan, 1, Ether(dst=NINTH[VLAN], src=ROUTER[1]) / Dot1Q(vlan=7),
    IP(src="10.0.0.9", dst="100.64.7.1") / UDP() / pattern(30))
fwd("vlan_pop", 1, Ether(dst=ROUTER[1], src=NINTH[VLAN]) / Dot1Q(vlan=7, prio=5), 0, from_lan,
    IP(src="10.0.7.9", dst="10.0.0.9") / UDP() / pattern(30))
fwd("vlan_to_qinq_keeps_priority", 1, Ether(dst=ROUTER[1], src=NINTH[VLAN]) / Dot1Q(vlan=7, prio=5, id=1), 2,
    Ether(dst=NINTH[QINQ], src=ROUTER[2], type=0x88A8) / Dot1Q(vlan=7, prio=5, id=1) / Dot1Q(vlan=9),
    IP(src="10.0.7.9", dst="100.64.9.1") / UDP() / pattern(30))
fwd("qinq_pop", 2, Ether(dst=ROUTER[2], src=NINTH[QINQ], type=0x88A8) / Dot1Q(vlan=7) / Dot1Q(vlan=9), 0, from_lan,
    IPv6(src="2001:db8:9::9", dst="2001:db8::9") / UDP() / pattern(30))
fwd("vlan_to_vlan", 1, Ether(dst=ROUTER[1], src=NINTH[VLAN]) / Dot1Q(vlan=7, prio=3), 1,
    Ether(dst=NINTH[VLAN], src=ROUTER[1]) / Dot1Q(vlan=7, prio=3), IPv6(src="2001:db8:7::8", dst="2001:db8:64:7::1") / UDP())
fwd("priority_tag", 0, Ether(dst=ROUTER[0], src=NINTH[LAN]) / Dot1Q(vlan=0, prio=6), 1, to_wan, udp4)
fwd("jumbo", 4, Ether(dst=ROUTER[4], src=NINTH[JUMBO]), 4, Ether(dst=NINTH[JUMBO], src=ROUTER[4]),
    IP(src="10.0.6.8", dst="100.64.6.1") / UDP() / pattern(8972))


def error4(name, offender, source, kind, code, eth_in=to_lan, eth_out=from_lan, port=0, mtu=None):
    message = ICMP(type=kind, code=code, **({"nexthopmtu": mtu} if mtu else {}))
    answer = IP(src=source, dst=offender[IP].src, tos=0xC0, id=0, ttl=64, flags="DF") / message
    case(name, port, eth_in / offender, (port, eth_out / answer / Raw(bytes(offender)[:548])))


def error6(name, offender, source, message, eth_in=to_lan, eth_out=from_lan, port=0):
    answer = IPv6(src=source, dst=offender[IPv6].src, hlim=64) / message / Raw(bytes(offender)[:1232])
    case(name, port, eth_in / offender, (port, eth_out / answer))


def from9(dst, **more):
    return IP(src="10.0.0.9", dst=dst, **more)


def from9v6(dst, **more):
    return IPv6(src="2001:db8::9", dst=dst, **more)


jumbo_in, jumbo_out = Ether(dst=ROUTER[4], src=NINTH[JUMBO]), Ether(dst=NINTH[JUMBO], src=ROUTER[4])
error4("ttl_1", from9("198.18.0.1", ttl=1) / UDP() / b"ttl", "10.0.0.1", 11, 0)
error4("ttl_0", from9("198.18.0.1", ttl=0) / UDP() / pattern(700), "10.0.0.1", 11, 0)
error4("ttl_options", from9("198.18.0.1", ttl=1, options=[IPOption_Router_Alert()]) / UDP() / b"ttl", "10.0.0.1", 11, 0)
error4("no_route", from9("203.0.113.200") / UDP(), "10.0.0.1", 3, 0)
error4("prohibit", from9("203.0.113.70") / UDP(), "10.0.0.1", 3, 13)
error4("unreachable", from9("203.0.113.130") / UDP(), "10.0.0.1", 3, 1)
error4("echo_to_nowhere", from9("203.0.113.200") / ICMP(type=8), "10.0.0.1", 3, 0)
error4("fragmentation_needed", IP(src="10.0.6.9", dst="100.64.4.1", flags="DF") / UDP() / pattern(1973), "10.0.6.1", 3, 4,
       jumbo_in, jumbo_out, 4, 1280)
error4("port_unreachable", from9("10.0.1.1") / UDP(dport=33434) / b"trace", "10.0.0.1", 3, 3)
error4("protocol_unreachable", from9("10.0.0.1", proto=47) / Raw(b"gre?"), "10.0.0.1", 3, 2)
vlan_in = Ether(dst=ROUTER[1], src=NINTH[VLAN]) / Dot1Q(vlan=7, prio=2)
error4("ttl_on_vlan", IP(src="10.0.7.9", dst="198.18.0.1", ttl=1) / UDP() / b"ttl", "10.0.7.1", 11, 0, vlan_in,
       Ether(dst=NINTH[VLAN], src=ROUTER[1]) / Dot1Q(vlan=7, prio=2), 1)

error6("hop_limit_1", from9v6("2001:db8:18::1", hlim=1) / UDP() / b"ttl", "2001:db8::1", ICMPv6TimeExceeded())
error6("hop_limit_0", from9v6("2001:db8:18::1", hlim=0) / UDP() / pattern(1400), "2001:db8::1", ICMPv6TimeExceeded())
error6("no_route6", from9v6("2001:db8:ffff::1") / UDP(), "2001:db8::1", ICMPv6DestUnreach(code=0))
error6("prohibit6", from9v6("2001:db8:113:2::1") / UDP(), "2001:db8::1", ICMPv6DestUnreach(code=1))
error6("unreachable6", from9v6("2001:db8:113:3::1") / UDP(), "2001:db8::1", ICMPv6DestUnreach(code=3))
error6("packet_too_big", IPv6(src="2001:db8:6::9", dst="2001:db8:64:4::1") / UDP() / pattern(1233), "2001:db8:6::1",
       ICMPv6PacketTooBig(mtu=1280), jumbo_in, jumbo_out, 4)
error6("port_unreachable6", from9v6("2001:db8:1::1") / UDP(dport=33434), "2001:db8::1", ICMPv6DestUnreach(code=4))
error6("next_header_unknown", from9v6("2001:db8::1", nh=47) / Raw(b"gre?"), "2001:db8::1", ICMPv6ParamProblem(code=1, ptr=6))
error6("port_unreachable_link_local", IPv6(src="fe80::9", dst="fe80::ff:fe00:0") / UDP(), "fe80::ff:fe00:0",
       ICMPv6DestUnreach(code=4))

# A 3,000-byte datagram through an MTU of 1280: 1256 bytes of payload in each fragment but the last.
whole = IP(src="10.0.6.9", dst="100.64.4.1", id=4242, tos=8, ttl=9) / UDP(sport=7, dport=8) / pattern(2972)
pieces = fragment(IP(bytes(whole)), fragsize=1256)
for p in pieces:
    p.ttl -= 1
    del p.chksum
case("fragmentation", 4, jumbo_in / whole, *[(2, Ether(dst=NINTH[SMALL], src=ROUTER[2]) / p) for p in pieces])
fits = IP(src="10.0.6.9", dst="100.64.4.1", ttl=9) / UDP() / pattern(1252)
fwd("exactly_the_mtu", 4, jumbo_in, 2, Ether(dst=NINTH[SMALL], src=ROUTER[2]), fits)
fwd("exactly_the_mtu6", 4, jumbo_in, 2, Ether(dst=NINTH[SMALL], src=ROUTER[2]),
    IPv6(src="2001:db8:6::9", dst="2001:db8:64:4::1") / UDP() / pattern(1232))


def ping4(name, port, eth_in, eth_out, src, dst, payload):
    case(name, port, eth_in / IP(src=src, dst=dst, ttl=7, id=5, flags="DF") / ICMP(type=8, id=3, seq=4) / payload,
         (port, eth_out / IP(src=dst, dst=src, ttl=64, id=5) / ICMP(type=0, id=3, seq=4) / payload))


def ping6(name, port, eth_in, eth_out, src, dst, payload, answer_from=None):
    case(name, port, eth_in / IPv6(src=src, dst=dst, hlim=7, fl=5) / ICMPv6EchoRequest(id=3, seq=4, data=payload),
         (port, eth_out / IPv6(src=answer_from or dst, dst=src, hlim=64, fl=5) / ICMPv6EchoReply(id=3, seq=4, data=payload)))


ping4("ping", 0, to_lan, from_lan, "10.0.0.9", "10.0.0.1", pattern(56))
ping4("ping_odd", 0, to_lan, from_lan, "10.0.0.9", "10.0.0.1", pattern(57))
ping4("ping_other_interface", 0, to_lan, from_lan, "10.0.0.9", "10.0.9.1", b"far side")
ping4("ping_9000", 4, jumbo_in, jumbo_out, "10.0.6.9", "10.0.6.1", pattern(8972))
ping6("ping6", 0, to_lan, from_lan, "2001:db8::9", "2001:db8::1", pattern(56))
ping6("ping6_9000", 4, jumbo_in, jumbo_out, "2001:db8:6::9", "2001:db8:1::1", pattern(8951))
ping6("ping6_link_local", 0, Ether(dst=ROUTER[0], src="02:00:00:00:00:77"), Ether(dst="02:00:00:00:00:77", src=ROUTER[0]),
      "fe80::77", "fe80::ff:fe00:0", b"neighbour")
ping6("ping6_all_nodes", 0, Ether(dst="33:33:00:00:00:01", src="02:00:00:00:00:77"),
      Ether(dst="02:00:00:00:00:77", src=ROUTER[0]), "fe80::77", "ff02::1", b"anybody", "fe80::ff:fe00:0")


def arp(name, port, tags, interface_ip, asker_ip, asker="02:00:00:00:00:77"):
    case(name, port, Ether(dst="ff:ff:ff:ff:ff:ff", src=asker) / tags
         / ARP(op=1, hwsrc=asker, psrc=asker_ip, hwdst="00:00:00:00:00:00", pdst=interface_ip),
         (port, Ether(dst=asker, src=ROUTER[port]) / tags
          / ARP(op=2, hwsrc=ROUTER[port], psrc=interface_ip, hwdst=asker, pdst=asker_ip)))


case("arp", 0, Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:77")
     / ARP(op=1, hwsrc="02:00:00:00:00:77", psrc="10.0.0.77", hwdst="00:00:00:00:00:00", pdst="10.0.0.1"),
     (0, Ether(dst="02:00:00:00:00:77", src=ROUTER[0])
      / ARP(op=2, hwsrc=ROUTER[0], psrc="10.0.0.1", hwdst="02:00:00:00:00:77", pdst="10.0.0.77")))
arp("arp_vlan", 1, Dot1Q(vlan=7, prio=1), "10.0.7.1", "10.0.7.77")
arp("arp_probe", 2, Dot1Q(vlan=7, type=0x8100) / Dot1Q(vlan=9), "10.0.9.1", "0.0.0.0")
arp("arp_unnumbered_peer", 1, Dot1Q(vlan=7), "10.0.7.1", "172.31.255.1")


def ns(name, src, target, options, eth_out_dst, dst_out, solicited):
    group = "ff02::1:ff" + "00:%x" % int(target.rsplit(":", 1)[1], 16)
    case(name, 0, Ether(dst="33:33:ff:00:00:%02x" % int(target.rsplit(":", 1)[1], 16), src="02:00:00:00:00:77")
         / IPv6(src=src, dst=group, hlim=255) / ICMPv6ND_NS(tgt=target) / options,
         (0, Ether(dst=eth_out_dst, src=ROUTER[0]) / IPv6(src=target, dst=dst_out, hlim=255)
          / ICMPv6ND_NA(tgt=target, R=1, S=solicited, O=1) / ICMPv6NDOptDstLLAddr(lladdr=ROUTER[0])))


slla = ICMPv6NDOptSrcLLAddr(lladdr="02:00:00:00:00:77")
ns("nd", "2001:db8::77", "2001:db8::1", slla, "02:00:00:00:00:77", "2001:db8::77", 1)
ns("nd_link_local_source", "fe80::77", "2001:db8::1", slla, "02:00:00:00:00:77", "fe80::77", 1)
ns("nd_link_local_target", "fe80::77", "fe80::ff:fe00:0", slla, "02:00:00:00:00:77", "fe80::77", 1)
ns("nd_duplicate_detection", "::", "2001:db8::1", Raw(b""), "33:33:00:00:00:01", "ff02::1", 0)
case("nd_without_option_unicast", 0, Ether(dst=ROUTER[0], src="02:00:00:00:00:77")
     / IPv6(src="2001:db8::77", dst="2001:db8::1", hlim=255) / ICMPv6ND_NS(tgt="2001:db8::1"),
     (0, Ether(dst="02:00:00:00:00:77", src=ROUTER[0]) / IPv6(src="2001:db8::1", dst="2001:db8::77", hlim=255)
      / ICMPv6ND_NA(tgt="2001:db8::1", R=1, S=1, O=1) / ICMPv6NDOptDstLLAddr(lladdr=ROUTER[0])))

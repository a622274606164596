"""ARP and neighbour discovery that others have got wrong in public: questions and answers byte for byte, packets that wait, and
what becomes of them.
"""

import json
import socket
import time

import pytest
from scapy.all import (ARP, IP, UDP, Dot1Q, Ether, ICMPv6DestUnreach, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr,
                       ICMPv6NDOptSrcLLAddr, IPv6, Raw, in6_getnsma, in6_getnsmac)
from scapy.pton_ntop import inet_ntop, inet_pton

import bench
from bench import A4, A6, UP, error4, error6, interface, ours, routed, theirs
from routing import wait

ALL = "ff:ff:ff:ff:ff:ff"
U = UDP(sport=4001, dport=4002)

# The neighbours of `in` are known, those of `lan` are not; VLANs 101 and 102 are two networks of one port.
TEXT = (interface("in", "in", 1) + interface("lan", "out", 3, known=False)
        + interface("v101", "in", 101, vlan=101, known=False) + interface("v102", "in", 102, vlan=102, known=False))
# `lone` has addresses without networks, `bare` none at all; peers that are no part of any network are on both.
UNNUMBERED = (interface("in", "in", 1)
              + interface("lone", "out", 51, vlan=51, addresses=["198.19.51.1/32", "2001:db8:51::1/128"], known=False)
              + interface("bare", "out", 52, vlan=52, addresses=[], known=False) + """
[[route]]
prefix = "198.19.51.2/32"
via = { interface = "lone" }

[[route]]
prefix = "2001:db8:51::2/128"
via = { interface = "lone" }

[[route]]
prefix = "198.19.52.2/32"
via = { interface = "bare" }
""")
GATEWAYS = """
[[route]]
prefix = "10.3.0.0/16"
via = "198.18.3.9"

[[route]]
prefix = "2001:db8:f003::/48"
via = "2001:db8:3::9"
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with bench.bench(tmp_path_factory.mktemp("neighbours"), "lrbn", ["in", "out"], TEXT) as running:
        yield running


def vlan(frame, number):
    """A frame with a tag."""
    whole = bytes(frame)
    return whole[:12] + b"\x81\0" + bytes(Dot1Q(vlan=number, type=int.from_bytes(whole[12:14], "big"))) + whole[14:]


def asks4(address, net, sender=None, source=None):
    """The router's question for an IPv4 address; Ethernet pads it."""
    arp = ARP(op=1, hwsrc=ours(net), psrc=sender or f"198.18.{net}.1", hwdst="00:00:00:00:00:00", pdst=address)
    return bytes(Ether(src=ours(net), dst=ALL) / arp).ljust(60, b"\0")


def group_of(address):
    """Solicited-node group, and its MAC address."""
    group = inet_ntop(socket.AF_INET6, in6_getnsma(inet_pton(socket.AF_INET6, address)))
    return group, in6_getnsmac(inet_pton(socket.AF_INET6, group))


def asks6(address, net):
    group, mac = group_of(address)
    return bytes(Ether(src=ours(net), dst=mac) / IPv6(src=f"2001:db8:{net}::1", dst=group, hlim=255)
                 / ICMPv6ND_NS(tgt=address) / ICMPv6NDOptSrcLLAddr(lladdr=ours(net)))


def request(sender, mac, target, to=ALL):
    return Ether(src=mac, dst=to) / ARP(op=1, hwsrc=mac, psrc=sender, pdst=target)


def reply(sender, mac, target, to):
    return Ether(src=mac, dst=to) / ARP(op=2, hwsrc=mac, psrc=sender, hwdst=to, pdst=target)


def solicitation(sender, mac, target, unicast=None):
    group, group_mac = group_of(target)
    return (Ether(src=mac, dst=unicast or group_mac) / IPv6(src=sender, dst=target if unicast else group, hlim=255)
            / ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=mac))


def advertisement(target, mac, to, to_mac, **flags):
    return (Ether(src=mac, dst=to_mac) / IPv6(src=target, dst=to, hlim=255) / ICMPv6ND_NA(tgt=target, **{"R": 1, "S": 1, "O": 1} | flags)
            / ICMPv6NDOptDstLLAddr(lladdr=mac))


def known(router, address):
    return [(n["interface"], n["mac"], n["state"]) for n in router.get("neighbors")["neighbors"] if n["address"] == address]


def test_packets_for_a_dead_neighbour_are_given_back(router):
    """DPDK/grout 918478fb: what waits is bounded and not kept for ever; who sent it is told, once for each packet."""
    four = [UP / IP(src=A4, dst="198.18.3.66", id=i, ttl=9) / U / Raw(bytes(i)) for i in range(40)]
    six = [UP / IPv6(src=A6, dst="2001:db8:3::66", hlim=9) / UDP(sport=i, dport=9) / Raw(bytes(i)) for i in range(40)]
    questions = [asks4("198.18.3.66", 3)] * 3 + [asks6("2001:db8:3::66", 3)] * 3
    errors = [error4(f, 3, 1) for f in four[:32]] + [error6(f, ICMPv6DestUnreach(code=3)) for f in six[:32]]
    begin = time.monotonic()
    router.check({"in": four + six}, {"in": errors, "out": questions}, {"neighbor_queue_full": 16}, seconds=8)
    took = time.monotonic() - begin
    # Three questions, a second apart, and a second for the answer to the last (RFC 4861 7.2.2).
    assert 2.8 < took < 5, took
    # For a moment it is known to be dead and nothing waits; then it is asked for again. Whoever sends is told either way.
    router.check({"in": [four[0], six[0]]}, {"in": [errors[0], errors[32]]}, besides=questions)


def test_what_waited_leaves_in_order_when_the_answer_comes(router):
    mac = theirs(3)
    four = [UP / IP(src=A4, dst="198.18.3.10", id=i) / U for i in range(32)]
    router.check({"in": four}, {"out": [asks4("198.18.3.10", 3)]})
    router.check({"out": [reply("198.18.3.10", mac, "198.18.3.1", ours(3))]}, {"out": [routed(f, 3) for f in four]}, {"arp_consumed": 1},
                 ordered=True)
    six = [UP / IPv6(src=A6, dst="2001:db8:3::10") / UDP(sport=i, dport=9) for i in range(32)]
    router.check({"in": six}, {"out": [asks6("2001:db8:3::10", 3)]})
    answer = advertisement("2001:db8:3::10", mac, "2001:db8:3::1", ours(3), R=0)
    router.check({"out": [answer]}, {"out": [routed(f, 3) for f in six]}, {"nd_consumed": 1}, ordered=True)
    for address in ("198.18.3.10", "2001:db8:3::10"):
        wait("known", lambda a=address: known(router, a) == [("lan", mac, "reachable")], show=lambda a=address: known(router, a))


@pytest.mark.parametrize("length", [42, 60, 64])
def test_arp_is_answered_byte_for_byte(router, length):
    question = bytes(request(A4, UP.src, "198.18.1.1")).ljust(length, b"\0")
    router.check({"in": [question]}, {"in": [bytes(reply("198.18.1.1", ours(1), A4, UP.src)).ljust(length, b"\0")]})


def test_a_solicitation_to_the_group_of_the_address_is_answered(router):
    """FDio/vpp f35bf23434b: a port that is not promiscuous must take the frames of these groups all the same."""
    link = json.loads(router.space.run("ip -j -d link show wire-in").stdout)[0]
    assert link["allmulti"] >= 1 and not any(p["promiscuous"] for p in router.get("ports")["ports"])
    own = "fe80::ff:fe00:101"
    for target in ("2001:db8:1::1", own):
        question = solicitation(A6, UP.src, target)
        router.check({"in": [question]}, {"in": [advertisement(target, ours(1), A6, UP.src)]})
        # The neighbour checks whether we are still there.
        question = solicitation(A6, UP.src, target, unicast=ours(1))
        router.check({"in": [question]}, {"in": [advertisement(target, ours(1), A6, UP.src)]})
        # Somebody is about to use our address (RFC 4862 5.4.3): all are told, and nobody in particular.
        group, mac = group_of(target)
        duplicate = Ether(src="02:66:00:00:00:01", dst=mac) / IPv6(src="::", dst=group, hlim=255) / ICMPv6ND_NS(tgt=target)
        router.check({"in": [duplicate]}, {"in": [advertisement(target, ours(1), "ff02::1", "33:33:00:00:00:01", S=0)]})
    # Another address with the same group, and one of another interface.
    same = "2001:db8:1:77::1"
    assert group_of(same) == group_of("2001:db8:1::1")
    for target in (same, "2001:db8:3::1"):
        router.check({"in": [solicitation(A6, UP.src, target)]}, drops={"nd_ignored": 1})


def test_solicitations_that_are_not_sound_are_not_answered(router):
    """RFC 4861 7.1.1: from farther than the link, with an impossible option, or cut off."""
    sound = solicitation(A6, UP.src, "2001:db8:1::1")

    def changed(change):
        out = sound.copy()
        change(out)
        return out
    bad = [changed(lambda f: setattr(f[IPv6], "hlim", 254)),
           changed(lambda f: setattr(f[ICMPv6ND_NS], "code", 1)),
           changed(lambda f: setattr(f[ICMPv6ND_NS], "tgt", "ff02::1")),
           changed(lambda f: setattr(f[ICMPv6NDOptSrcLLAddr], "len", 0)),
           changed(lambda f: setattr(f[ICMPv6NDOptSrcLLAddr], "len", 9))]
    router.check({"in": bad}, drops={"nd_malformed": len(bad)})
    router.check({"in": [changed(lambda f: setattr(f[ICMPv6ND_NS], "cksum", 1))]}, drops={"icmp_malformed": 1})


def test_arp_that_is_not_sound_is_not_answered(router):
    whole = bytes(request(A4, UP.src, "198.18.1.1"))
    bad = [whole[:41], whole[:15], whole[:14] + b"\0\2" + whole[16:], whole[:16] + b"\x86\xdd" + whole[18:],
           whole[:18] + b"\x08" + whole[19:], whole[:19] + b"\x10" + whole[20:]]
    router.check({"in": bad}, drops={"arp_malformed": len(bad)})
    # From a group address; from nobody's network; for another's address; our own question come back.
    others = [Ether(src=UP.src, dst=ALL) / ARP(op=1, hwsrc="01:00:5e:00:00:01", psrc=A4, pdst="198.18.1.1")]
    router.check({"in": others}, drops={"arp_malformed": 1})
    router.check({"in": [asks4("198.18.1.1", 1)]}, drops={"arp_ignored": 1})


def test_an_address_of_another_vlan_is_not_answered_for(router):
    """FDio/vpp issue 1890: ARP on VLAN 101 for the address of VLAN 102 ended the process."""
    for number, other in ((101, 102), (102, 101)):
        mac = theirs(number)
        stray = [vlan(request(f"198.18.{number}.2", mac, f"198.18.{other}.1"), number),
                 vlan(request(f"198.18.{other}.2", mac, f"198.18.{other}.1"), number)]
        router.check({"in": stray}, drops={"arp_consumed": 2})
        router.check({"in": [vlan(solicitation(f"2001:db8:{number}::2", mac, f"2001:db8:{other}::1"), number)]}, drops={"nd_ignored": 1})
        question = vlan(request(f"198.18.{number}.2", mac, f"198.18.{number}.1"), number)
        router.check({"in": [question]}, {"in": [vlan(reply(f"198.18.{number}.1", ours(number), f"198.18.{number}.2", mac), number)]})
    # Nobody has learned a neighbour where it is not.
    for number in (101, 102):
        wait("learned", lambda n=number: known(router, f"198.18.{n}.2"))
        assert {name for name, _, _ in known(router, f"198.18.{number}.2")} == {f"v{number}"}


def test_peers_without_a_network_are_asked_answered_and_reached(tmp_path):
    """FDio/vpp 2a7bc81a: unnumbered, /32 to /32, no ARP reply."""
    with bench.bench(tmp_path, "lrbu", ["in", "out"], UNNUMBERED) as router:
        # Routes by an interface alone have their destinations asked for.
        four = ((51, "198.19.51.2", "198.19.51.1"), (52, "198.19.52.2", "198.18.1.1"))
        six = (51, "2001:db8:51::2", "2001:db8:51::1")
        questions = {vlan_asks4(number, peer, own) for number, peer, own in four} | {vlan_asks6(*six)}
        asked = set()
        wait("all questions", lambda: asked.update(router.wires["out"].receive(1, 0.5)) or asked == questions, show=lambda: asked)
        answers = [vlan(reply(peer, theirs(number), own, ours(number)), number) for number, peer, own in four]
        answers.append(vlan(advertisement(six[1], theirs(51), six[2], ours(51), R=0), 51))
        router.wires["out"].receive(0)
        router.check({"out": answers}, drops={"arp_consumed": 2, "nd_consumed": 1})
        for number, peer, own in four:
            mac = theirs(number)
            question = vlan(request(peer, mac, own), number)
            router.check({"out": [question]}, {"out": [vlan(reply(own, ours(number), peer, mac), number)]})
            frame, back = UP / IP(src=A4, dst=peer) / U, Ether(src=mac, dst=ours(number)) / IP(src=peer, dst=A4) / U
            router.check({"in": [frame], "out": [vlan(back, number)]}, {"out": [routed(frame, number, number)], "in": [routed(back, 1)]})
        mac = theirs(51)
        router.check({"out": [vlan(solicitation(six[1], mac, six[2]), 51)]}, {"out": [vlan(advertisement(six[2], ours(51), six[1], mac), 51)]})
        frame = UP / IPv6(src=A6, dst=six[1]) / U
        router.check({"in": [frame]}, {"out": [routed(frame, 51, 51)]})


def test_a_flood_of_claims_leaves_neighbours_in_use_alone(tmp_path):
    """One station asks as tens of thousands: it gets its answers, and nobody loses a neighbour that packets go to."""
    text = interface("in", "in", 1) + interface("wide", "out", 3, addresses=["10.3.0.1/16"], known=False)
    with bench.bench(tmp_path, "lrbf", ["in", "out"], text) as router:
        mac, frame = theirs(3), UP / IP(src=A4, dst="10.3.0.2") / U
        out = bytes(Ether(src=ours(3), dst=mac, type=0x800) / Raw(routed(frame, 3)[14:]))
        router.check({"in": [frame]}, {"out": [asks4("10.3.0.2", 3, sender="10.3.0.1")]})
        router.check({"out": [reply("10.3.0.2", mac, "10.3.0.1", ours(3))]}, {"out": [out]}, {"arp_consumed": 1})
        # Another that asked first and is sent to.
        other = Ether(src=ours(3), dst=theirs(5), type=0x800) / Raw(routed(UP / IP(src=A4, dst="10.3.0.3") / U, 3)[14:])
        router.check({"out": [request("10.3.0.3", theirs(5), "10.3.0.1")]}, {"out": [reply("10.3.0.1", ours(3), "10.3.0.3", theirs(5))]})
        wait("known", lambda: known(router, "10.3.0.3"))
        router.check({"in": [UP / IP(src=A4, dst="10.3.0.3") / U]}, {"out": [other]})

        bad = "02:66:00:00:00:66"
        whole = bytes(request("10.3.0.0", bad, "10.3.0.1"))
        flood = [whole[:28] + bytes((10, 3, n >> 8, n & 255)) + whole[32:] for n in range(256, 256 + 30000)]
        for start in range(0, len(flood), 500):
            router.wires["out"].send(flood[start:start + 500])
        most = 24576
        wait("the share of one interface is full", lambda: len(router.get("neighbors")["neighbors"]) >= most - 100, 30,
             show=lambda: len(router.get("neighbors")["neighbors"]))
        router.wires["out"].send(flood[:3000])
        router.wires["out"].receive(0, 0.5)
        assert len(router.get("neighbors")["neighbors"]) <= most + 4
        time.sleep(0.5)
        router.wires["out"].receive(0)
        # Those in use have their place, and a new one finds some.
        router.check({"in": [frame]}, {"out": [out]})
        router.check({"in": [UP / IP(src=A4, dst="10.3.0.3") / U]}, {"out": [other]})
        fresh = UP / IP(src=A4, dst="10.3.255.9") / U
        router.check({"in": [fresh]}, {"out": [asks4("10.3.255.9", 3, sender="10.3.0.1")]})
        back = bytes(Ether(src=ours(3), dst=theirs(9), type=0x800) / Raw(routed(fresh, 3)[14:]))
        router.check({"out": [reply("10.3.255.9", theirs(9), "10.3.0.1", ours(3))]}, {"out": [back]}, {"arp_consumed": 1})


def vlan_asks4(number, peer, own):
    arp = ARP(op=1, hwsrc=ours(number), psrc=own, hwdst="00:00:00:00:00:00", pdst=peer)
    return vlan(Ether(src=ours(number), dst=ALL) / arp, number).ljust(60, b"\0")


def vlan_asks6(number, peer, own):
    group, mac = group_of(peer)
    return vlan(Ether(src=ours(number), dst=mac) / IPv6(src=own, dst=group, hlim=255) / ICMPv6ND_NS(tgt=peer)
                / ICMPv6NDOptSrcLLAddr(lladdr=ours(number)), number)


def test_a_gateway_that_asks_before_it_is_resolved(tmp_path):
    """DPDK/grout issue 89: a route first, then ARP from its gateway: one entry, and traffic flows. Those that wait go first."""
    with bench.bench(tmp_path, "lrbq", ["in", "out"], TEXT + GATEWAYS) as router:
        mac = theirs(9)
        # The gateway of a route is asked for without a packet that waits, and has not answered.
        router.wires["out"].receive(2)
        wait("given up", lambda: [n[2] for n in known(router, "198.18.3.9") + known(router, "2001:db8:3::9")] == ["failed"] * 2)
        router.wires["out"].receive(0)
        # It is asked again now and then, for the route needs it.
        again = [asks4("198.18.3.9", 3), asks6("2001:db8:3::9", 3)]
        frame, frame6 = UP / IP(src=A4, dst="10.3.1.1") / U, UP / IPv6(src=A6, dst="2001:db8:f003::1") / U
        router.check({"in": [frame, frame6]}, {"in": [error4(frame, 3, 1), error6(frame6, ICMPv6DestUnreach(code=3))]}, besides=again)
        question = request("198.18.3.9", mac, "198.18.3.1")
        router.check({"out": [question]}, {"out": [reply("198.18.3.1", ours(3), "198.18.3.9", mac)]}, besides=again)
        question6 = solicitation("2001:db8:3::9", mac, "2001:db8:3::1")
        router.check({"out": [question6]}, {"out": [advertisement("2001:db8:3::1", ours(3), "2001:db8:3::9", mac)]}, besides=again)
        # The answers went out from a worker; the router's control learns of the gateway a few milliseconds later.
        wait("learned", lambda: all(n[1] == mac for n in known(router, "198.18.3.9") + known(router, "2001:db8:3::9")), 0.5, 0.005)
        through = [bytes(Ether(src=ours(3), dst=mac, type=f.type) / Raw(routed(f, 3)[14:])) for f in (frame, frame6)]
        router.check({"in": [frame, frame6]}, {"out": through})
        for address in ("198.18.3.9", "2001:db8:3::9"):
            assert [name for name, _, _ in known(router, address)] == ["lan"], known(router, address)

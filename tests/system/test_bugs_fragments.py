"""Fragments that others have got wrong in public: a router passes them as they are, whatever they would make together, cuts what
is too long so that every byte is where it was, and leaves those for itself to Linux.
"""

import time

import pytest
from scapy.all import (ICMP, IP, UDP, Ether, ICMPv6EchoReply, ICMPv6EchoRequest, IPOption_NOP, IPOption_Router_Alert,
                       IPOption_RR, IPv6, IPv6ExtHdrFragment, Raw)

import bench
import routing
from bench import A4, A6, B4, B6, DOWN, OUR4, OUR6, PAIR, S4, UP, error6, routed
from scapy.all import ICMPv6PacketTooBig

U = UDP(sport=4001, dport=4002)


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with bench.bench(tmp_path_factory.mktemp("fragments"), "lrbf", ["in", "out"], PAIR) as running:
        yield running


def data(length, start=0):
    return bytes((start + i) % 251 for i in range(length))


def f4(offset, payload, more=True, **fields):
    """An IPv4 fragment; the offset is in units of 8 bytes."""
    return UP / IP(**{"src": A4, "dst": B4, "id": 99, "proto": 17, "frag": offset, "flags": "MF" if more else 0} | fields) / Raw(payload)


def f6(offset, payload, more=True, **fields):
    return UP / IPv6(**{"src": A6, "dst": B6} | fields) / IPv6ExtHdrFragment(offset=offset, m=int(more), id=99, nh=17) / Raw(payload)


# FDio/vpp 755042de, 7c3275e8, 2da54ee8; danos/vyatta-dataplane 00002e7e; openvswitch/ovs c3f4d9fe5. Name, what a sender sends:
# payloads by offset, and whether more follow.
SETS = [
    ("in order", [(0, data(64), 1), (8, data(64), 1), (16, data(5), 0)]),
    ("the last one first", [(16, data(5), 0), (8, data(64), 1), (0, data(64), 1)]),
    ("of no bytes", [(0, b"", 1), (0, b"", 0), (7, b"", 1), (8191, b"", 0)]),
    ("of one byte", [(0, b"a", 1), (1, b"b", 1), (9, b"c", 0)]),
    ("whose length is no multiple of 8", [(0, data(61), 1), (8, data(3), 0)]),
    ("alone in their packet", [(0, data(64), 0), (0, data(64), 0)]),
    ("twice", [(0, data(64), 1)] * 2 + [(8, data(64), 0)] * 3),
    ("that overlap", [(0, data(64), 1), (4, data(64, 9), 1), (7, data(64, 5), 0), (0, data(8), 1)]),
    ("that cover all others", [(8, data(8), 1), (0, data(200, 3), 0)]),
    ("that begin in the header of UDP", [(0, data(8), 1), (0, data(4), 1), (1, data(30), 0)]),
    ("beyond 65,535 bytes", [(8191, data(1400), 0), (8190, data(64), 1)]),
    ("two ends", [(8, data(64), 0), (4, data(32), 0), (0, data(32), 1)]),
]


@pytest.mark.parametrize("pieces", [pytest.param(c[1], id=c[0]) for c in SETS])
def test_pass_as_they_are(router, pieces):
    for make in (f4, f6):
        frames = [make(*piece) for piece in pieces]
        router.check({"in": frames}, {"out": [routed(f) for f in frames]})


@pytest.mark.parametrize("pieces", [pytest.param(c[1], id=c[0]) for c in SETS])
def test_to_the_router_itself_are_no_harm(router, pieces):
    """There is no Linux here that could put them together: they are dropped, one by one, and nothing is kept."""
    frames = [f4(*piece, dst=OUR4) for piece in pieces] + [f6(*piece, dst=OUR6) for piece in pieces]
    whole = sum(IP(bytes(f)[14:]).frag == 0 and IP(bytes(f)[14:]).flags != 1 for f in frames if IP in f)
    # What says that it is a fragment and is not is an IPv4 packet like any other: no such port. It may be too short for one.
    answers = [bench.error4(f, 3, 3) for f in frames if IP in f and f[IP].frag == 0 and f[IP].flags == 0]
    router.check({"in": frames}, {"in": answers}, {"local_unhandled": len(frames) - whole})


def pieces_of(frame, mtu=1300, net=7, vlan=7):
    """The fragments that a router makes of a frame for a small MTU (RFC 791 3.2), each with the header as scapy writes it."""
    whole = bytes(frame)[14:]
    header = IP(whole[:(whole[0] & 15) * 4])
    payload = whole[header.ihl * 4:header.len]
    kept = [o for o in header.options if o.copy_flag]
    at, frames = 0, []
    while at < len(payload):
        options = header.options if at == 0 else kept
        room = (mtu - 20 - sum(len(bytes(o)) for o in options) // 4 * 4) & ~7
        piece = payload[at:at + room]
        last = at + room >= len(payload)
        out = IP(src=header.src, dst=header.dst, tos=header.tos, id=header.id, ttl=header.ttl - 1, proto=header.proto,
                 frag=header.frag + at // 8, flags=header.flags if last else header.flags | 1, options=options) / Raw(piece)
        frames.append(bench.tagged(net, vlan, 0x800, bytes(out)))
        at += room
    return frames


ALERT, ROUTE = IPOption_Router_Alert(), IPOption_RR(routers=["0.0.0.0"] * 3, pointer=4)
# Name, frame that must leave in so many pieces.
CUT = [
    ("one byte too long", UP / IP(src=A4, dst=S4, id=1) / U / Raw(data(1273)), 2),
    ("as long as can be", UP / IP(src=A4, dst=S4, id=2, tos=0xb9) / U / Raw(data(1472)), 2),
    ("identification 0", UP / IP(src=A4, dst=S4, id=0) / ICMP() / Raw(data(1400)), 2),
    # openvswitch/ovs 2ff8ed8de: the checksum of each is over its own options.
    ("an option for all fragments", UP / IP(src=A4, dst=S4, id=3, options=[ALERT]) / U / Raw(data(1400)), 2),
    ("an option for the first fragment only", UP / IP(src=A4, dst=S4, id=4, options=[ROUTE, IPOption_NOP()]) / U / Raw(data(1400)), 2),
    ("both", UP / IP(src=A4, dst=S4, id=5, options=[ALERT, ROUTE, IPOption_NOP()]) / U / Raw(data(1400)), 2),
    ("a first fragment", f4(0, data(1400), dst=S4), 2),
    ("a fragment in the middle", f4(185, data(1480), dst=S4), 2),
    ("a last fragment", f4(185, data(1401), False, dst=S4), 2),
    ("a fragment that ends at 65,535 bytes", f4(8008, data(1451), False, dst=S4), 2),
]


@pytest.mark.parametrize("frame, count", [pytest.param(*c[1:], id=c[0]) for c in CUT])
def test_what_is_too_long_is_cut(router, frame, count):
    wanted = pieces_of(frame)
    assert len(wanted) == count
    router.check({"in": [frame]}, {"out": wanted})
    assert b"".join(Ether(f)[IP].payload.original for f in wanted) == bytes(IP(bytes(frame)[14:]).payload.original)


def test_what_cannot_be_cut_is_named(router):
    """A fragment that ends beyond the longest packet there is has no offset for its second half."""
    router.check({"in": [f4(8100, data(1400), False, dst=S4)]}, drops={"mtu_exceeded": 1})


def test_fragments_of_ipv6_are_never_cut(router):
    frame = f6(10, data(1400), dst=bench.S6)
    router.check({"in": [frame]}, {"in": [error6(frame, ICMPv6PacketTooBig(mtu=1300))]})


def test_the_order_is_kept_among_cut_and_whole_packets(router):
    frames = []
    for i in range(40):
        frames.append(UP / IP(src=A4, dst=S4, id=i) / U / Raw(data(1400 if i % 3 else 20, i)))
    wanted = [f for frame in frames for f in (pieces_of(frame) if len(frame) > 1314 else [routed(frame, 7, 7)])]
    router.check({"in": frames}, {"out": wanted}, ordered=True)


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """The same router with Linux above it, and nobody else."""
    with routing.spaces("lrbg-r") as (linux,):
        linux.run("sysctl -qw net.ipv4.ipfrag_time=2 net.ipv6.ip6frag_time=2")
        text = PAIR + f'\n[linux]\nnamespace = "{linux.name}"\n'
        with bench.bench(tmp_path_factory.mktemp("joined"), "lrbg", ["in", "out"], text) as running:
            # Nobody is there to answer Linux's own questions.
            for address in (A4, A6):
                linux.run(f"ip neigh replace {address} lladdr {UP.src} dev in nud permanent")
            yield linux, running


def ping4(size):
    """A ping in fragments, and what Linux must answer, but for the identification that it chooses."""
    message = bytes(ICMP(id=5, seq=6) / Raw(data(size)))
    at = range(0, len(message), 1480)
    asked = [UP / IP(src=A4, dst=OUR4, id=77, proto=1, frag=i // 8, flags="MF" if i + 1480 < len(message) else 0)
             / Raw(message[i:i + 1480]) for i in at]
    answer = bytes(ICMP(type=0, id=5, seq=6) / Raw(data(size)))
    wanted = [DOWN / IP(src=OUR4, dst=A4, proto=1, frag=i // 8, flags="MF" if i + 1480 < len(message) else 0)
              / Raw(answer[i:i + 1480]) for i in at]
    return asked, wanted


def ping6(size):
    message = bytes(IPv6(src=A6, dst=OUR6) / ICMPv6EchoRequest(id=5, seq=6, data=data(size)))[40:]
    answer = bytes(IPv6(src=OUR6, dst=A6) / ICMPv6EchoReply(id=5, seq=6, data=data(size)))[40:]

    def cut(upper, src, dst, ether, room):
        at = range(0, len(upper), room)
        return [ether / IPv6(src=src, dst=dst, hlim=64) / IPv6ExtHdrFragment(nh=58, offset=i // 8, m=int(i + room < len(upper)), id=77)
                / Raw(upper[i:i + room]) for i in at]
    return cut(message, A6, OUR6, UP, 1448), cut(answer, OUR6, A6, DOWN, 1448)


def answers(wire, count, is_wanted):
    """Frames of this kind from a wire on which Linux speaks too."""
    found, end = [], time.monotonic() + 5
    while len(found) < count and time.monotonic() < end:
        found += [f for f in wire.receive(1, 0.2) if is_wanted(Ether(f))]
    return found


@pytest.mark.parametrize("size", [1480, 4000, 9000])
@pytest.mark.parametrize("order", [1, -1], ids=["forwards", "backwards"])
def test_a_ping_in_fragments_is_answered(joined, size, order):
    _, running = joined
    wire = running.wires["in"]
    for make, kind in ((ping4, IP), (ping6, IPv6)):
        asked, wanted = make(size)
        wire.receive(0)
        wire.send(asked[::order])
        got = answers(wire, len(wanted), lambda f, k=kind: k in f and f[k].dst in (A4, A6) and (
            f[k].proto == 1 if k is IP else IPv6ExtHdrFragment in f))
        for frame in wanted:
            # The identification is Linux's choice.
            if kind is IP:
                frame[IP].id = Ether(got[0])[IP].id
            else:
                frame[IPv6ExtHdrFragment].id = Ether(got[0])[IPv6ExtHdrFragment].id
                frame[IPv6].fl = Ether(got[0])[IPv6].fl
        bench.assert_same(got, [bytes(f) for f in wanted], f"answers to a ping of {size} bytes")


def test_an_atomic_fragment_is_answered(joined):
    """An IPv6 packet that says it is a fragment and is whole (RFC 6946)."""
    _, running = joined
    message = bytes(IPv6(src=A6, dst=OUR6) / ICMPv6EchoRequest(id=8, seq=9, data=b"atomic"))[40:]
    running.wires["in"].send([UP / IPv6(src=A6, dst=OUR6) / IPv6ExtHdrFragment(nh=58, offset=0, m=0, id=4) / Raw(message)])
    got = answers(running.wires["in"], 1, lambda f: ICMPv6EchoReply in f)
    wanted = DOWN / IPv6(src=OUR6, dst=A6, hlim=64, fl=Ether(got[0])[IPv6].fl) / ICMPv6EchoReply(id=8, seq=9, data=b"atomic")
    bench.assert_same(got, [bytes(wanted)], "the answer")


def test_fragments_that_never_become_whole_are_not_kept(joined):
    """FDio/vpp 7293495e, 0363d7b9: reassembly is Linux's, within its own limits; linerate keeps none of them back, and goes on."""
    _, running = joined
    before = running.counters()
    for make, to in ((f4, OUR4), (f6, OUR6)):
        for pieces in (c[1] for c in SETS):
            running.wires["in"].send([make(*piece, dst=to) for piece in pieces])
        running.wires["in"].send([f4(0, data(900), dst=OUR4, id=i, proto=132) for i in range(2000)])
        running.wires["in"].send([f4(100, data(900), dst=OUR4, id=i) for i in range(2000)])
    ports, drops = running.instance.at_rest()
    received = ports["in"]["rx"]["packets"] - before[0]["in"]
    gone = sum(drops.get(r, 0) - before[2].get(r, 0) for r in ("punted", "punt_policed", "punt_queue_full"))
    assert received == 8000 + 2 * sum(len(c[1]) for c in SETS) and gone >= received, (received, drops)
    time.sleep(1.1)
    asked, wanted = ping4(3000)
    running.wires["in"].receive(0)
    running.wires["in"].send(asked)
    assert len(answers(running.wires["in"], len(wanted), lambda f: IP in f and f[IP].proto == 1 and f[IP].dst == A4)) == len(wanted)

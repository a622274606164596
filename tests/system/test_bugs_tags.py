"""VLAN tags that others have got wrong in public: which interface a frame belongs to, and which tags it leaves with, in which
order and with which priority.
"""

import pytest
from scapy.all import ARP, ICMP, IP, UDP, Ether, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6TimeExceeded, IPv6, Raw

import bench
from bench import error4, error6, interface, ours, routed, theirs

# Network number, port, outer and inner tag. Tags that are another's in another order are in it on purpose.
NETS = [(1, "in", None, None), (10, "in", 5, None), (20, "in", 5, 6), (21, "in", 6, 5), (30, "out", 7, 8), (31, "out", 8, 7),
        (40, "out", 7, None), (2, "out", None, None)]
U = UDP(sport=4001, dport=4002) / Raw(b"tagged or not")


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    text = "".join(interface(f"n{net}", port, net, vlan=outer, inner=inner) for net, port, outer, inner in NETS)
    with bench.bench(tmp_path_factory.mktemp("tags"), "lrbt", ["in", "out"], text) as running:
        yield running


def tagged(frame, *tags):
    """A frame with these (TPID, VLAN or TCI) tags, the outer one first."""
    whole = bytes(frame)
    return whole[:12] + b"".join(tpid.to_bytes(2, "big") + tci.to_bytes(2, "big") for tpid, tci in tags) + whole[12:]


def tags(net, priority=0, outer=0x88A8):
    """The tags of a network as the router writes them: the outer one of two is a service tag (IEEE 802.1ad)."""
    _, _, first, second = next(n for n in NETS if n[0] == net)
    if first is None:
        return []
    if second is None:
        return [(0x8100, first | priority)]
    return [(outer, first | priority), (0x8100, second)]


def port(net):
    return next(n[1] for n in NETS if n[0] == net)


@pytest.mark.parametrize("to", [2, 30, 31, 40])
@pytest.mark.parametrize("net", [1, 10, 20, 21])
def test_tags_are_put_on_taken_off_and_exchanged(router, net, to):
    """githedgehog/dataplane 4177cbc3: outer and inner tag changed places."""
    frames, wanted = [], []
    for number in (net, to):
        other = to if number == net else net
        ether = Ether(src=theirs(number), dst=ours(number))
        for packet in (ether / IP(src=f"198.18.{number}.2", dst=f"198.18.{other}.2", id=number) / U,
                       ether / IPv6(src=f"2001:db8:{number}::2", dst=f"2001:db8:{other}::2", fl=5) / U):
            # Either kind of tag is taken for the outer one.
            for outer in (0x88A8, 0x8100):
                frames.append((port(number), tagged(packet, *tags(number, outer=outer))))
                wanted.append((port(other), tagged(routed(packet, other), *tags(other))))
    by = lambda pairs: {p: [f for at, f in pairs if at == p] for p in ("in", "out")}  # noqa: E731
    router.check(by(frames), by(wanted))


@pytest.mark.parametrize("net", [10, 20])
def test_the_priority_stays(router, net):
    """Priority and drop eligibility go from the outer tag to the outer tag."""
    for bits in (0x2000, 0xE000, 0x1000, 0xF000):
        packet = Ether(src=theirs(net), dst=ours(net)) / IP(src=f"198.18.{net}.2", dst="198.18.30.2") / U
        router.check({"in": [tagged(packet, *tags(net, bits))]}, {"out": [tagged(routed(packet, 30), *tags(30, bits))]})
    # A tag of VLAN 0 is a priority without a VLAN: the frame is an untagged one.
    packet = Ether(src=theirs(1), dst=ours(1)) / IP(src="198.18.1.2", dst="198.18.2.2") / U
    router.check({"in": [tagged(packet, (0x8100, 0xA000))]}, {"out": [routed(packet, 2)]})


@pytest.mark.parametrize("net", [10, 20, 21])
def test_answers_have_the_tags_of_the_question(router, net):
    ether, back = Ether(src=theirs(net), dst=ours(net)), Ether(src=ours(net), dst=theirs(net))
    own, peer, own6, peer6 = f"198.18.{net}.1", f"198.18.{net}.2", f"2001:db8:{net}::1", f"2001:db8:{net}::2"
    expired = ether / IP(src=peer, dst="198.18.30.2", ttl=1) / U
    expired6 = ether / IPv6(src=peer6, dst="2001:db8:30::2", hlim=1) / U
    pairs = [(ether / IP(src=peer, dst=own, id=1) / ICMP(id=1), back / IP(src=own, dst=peer, id=1, ttl=64) / ICMP(type=0, id=1)),
             (ether / IPv6(src=peer6, dst=own6) / ICMPv6EchoRequest(id=1), back / IPv6(src=own6, dst=peer6, hlim=64) / ICMPv6EchoReply(id=1)),
             (Ether(src=theirs(net), dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=theirs(net), psrc=peer, pdst=own),
              back / ARP(op=2, hwsrc=ours(net), psrc=own, hwdst=theirs(net), pdst=peer)),
             (expired, error4(expired, 11, 0, net=net)), (expired6, error6(expired6, ICMPv6TimeExceeded(), net=net))]
    router.check({"in": [tagged(q, *tags(net)) for q, _ in pairs]}, {"in": [tagged(a, *tags(net)) for _, a in pairs]})


UNKNOWN = [
    ("a VLAN that is nobody's", [(0x8100, 99)], "vlan_unknown"),
    ("the two tags of another port", [(0x88A8, 7), (0x8100, 8)], "vlan_unknown"),
    ("an inner tag that is nobody's", [(0x88A8, 5), (0x8100, 7)], "vlan_unknown"),
    ("the outer tag alone, of which there is no VLAN", [(0x8100, 6)], "vlan_unknown"),
    ("the inner tag as the outer one, and none behind", [(0x88A8, 8)], "vlan_unknown"),
    ("VLAN 4095", [(0x8100, 4095)], "vlan_unknown"),
    ("three tags", [(0x88A8, 5), (0x8100, 6), (0x8100, 1)], "ethertype_unknown"),
]


@pytest.mark.parametrize("given, reason", [pytest.param(*c[1:], id=c[0]) for c in UNKNOWN])
def test_tags_of_no_interface(router, given, reason):
    packet = Ether(src=theirs(20), dst=ours(20)) / IP(src="198.18.20.2", dst="198.18.30.2") / U
    router.check({"in": [tagged(packet, *given)]}, drops={reason: 1})


def test_tags_that_are_cut_off(router):
    packet = tagged(Ether(src=theirs(20), dst=ours(20)) / IP(src="198.18.20.2", dst="198.18.30.2") / U, *tags(20))
    # The kernel takes no frame of less than an Ethernet header.
    frames = [packet[:length] for length in range(14, 22)]
    router.check({"in": frames}, drops={"vlan_too_short": len(frames)})
    router.check({"in": [packet[:22], packet[:41]]}, drops={"ip4_too_short": 2})

"""Packets in by a foreign hand, bytes out checked by a foreign eye: scapy writes, scapy computes what must come out,
tshark finds nothing malformed; every packet is in a counter."""

import subprocess

import lab
from scapy.all import (ARP, ICMP, IP, UDP, TCP, Dot1Q, Ether, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6NDOptDstLLAddr,
                       IPOption_Router_Alert, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, PadN, Raw, RouterAlert, rdpcap, wrpcap)

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
device = "net_pcap0,rx_pcap={rx},tx_pcap={folder}/back.pcap"
mtu = 9000

[[port]]
name = "p1"
device = "net_pcap1,rx_pcap={folder}/empty.pcap,tx_pcap={folder}/out.pcap"
mtu = 9000

[[interface]]
name = "in"
port = "p0"
mac = "02:00:00:00:00:01"
addresses = ["198.18.1.1/24", "2001:db8:1::1/64"]

[[interface]]
name = "out"
port = "p1"
mac = "02:00:00:00:00:02"
addresses = ["198.18.2.1/24", "2001:db8:2::1/64"]

[[interface]]
name = "out-v7"
port = "p1"
vlan = 7
mac = "02:00:00:00:00:03"
addresses = ["198.18.7.1/24", "2001:db8:7::1/64"]

[[route]]
prefix = "10.0.0.0/8"
via = "198.18.2.2"

[[route]]
prefix = "10.7.0.0/16"
via = "198.18.7.2"

[[route]]
prefix = "10.8.0.0/16"
action = "blackhole"

[[route]]
prefix = "2001:db8:f000::/36"
via = "2001:db8:2::2"

[[route]]
prefix = "2001:db8:f700::/40"
via = "2001:db8:7::2"

[[neighbor]]
interface = "out"
address = "198.18.2.2"
mac = "02:aa:00:00:00:02"

[[neighbor]]
interface = "out"
address = "2001:db8:2::2"
mac = "02:aa:00:00:00:02"

[[neighbor]]
interface = "out-v7"
address = "198.18.7.2"
mac = "02:aa:00:00:00:07"

[[neighbor]]
interface = "out-v7"
address = "2001:db8:7::2"
mac = "02:aa:00:00:00:07"

[[neighbor]]
interface = "in"
address = "198.18.1.2"
mac = "02:bb:00:00:00:01"

[[neighbor]]
interface = "in"
address = "2001:db8:1::2"
mac = "02:bb:00:00:00:01"
"""

UP = Ether(src="02:bb:00:00:00:01", dst="02:00:00:00:00:01")
A4, A6 = "198.18.1.2", "2001:db8:1::2"


def routed(packet, tagged=False):
    """What a router must make of a packet: scapy's own serialisation of the changed fields."""
    out = packet.copy()
    out.src, out.dst = ("02:00:00:00:00:03", "02:aa:00:00:00:07") if tagged else ("02:00:00:00:00:02", "02:aa:00:00:00:02")
    if IP in out:
        out[IP].ttl -= 1
        del out[IP].chksum
    else:
        out[IPv6].hlim -= 1
    if tagged:
        tag = Dot1Q(vlan=7, type=out.type)
        out.type = 0x8100
        out = Ether(bytes(out)[:14] + bytes(tag) + bytes(out)[14:])
    return bytes(out)


def run(folder, packets, buffer):
    """Sends packets in by p0; returns what left by p1 and by p0, the drops, and the ports."""
    wrpcap(str(folder / "in.pcap"), packets)
    wrpcap(str(folder / "empty.pcap"), [], linktype=1)
    text = CONFIG.format(rx=folder / "in.pcap", folder=folder, buffer=buffer)
    with lab.linerate(folder, text, "lrbytes") as r:
        ports, drops = r.at_rest()
    read = lambda name: [bytes(p) for p in rdpcap(str(folder / name))]
    for name in ("out.pcap", "back.pcap"):
        eye = subprocess.run(["tshark", "-r", str(folder / name), "-o", "ip.check_checksum:TRUE", "-Y",
                              "_ws.malformed || ip.checksum.status == 0"], capture_output=True, text=True, check=True)
        assert eye.stdout == "", f"{name}: {eye.stdout}"
    return read("out.pcap"), read("back.pcap"), drops, ports


def cases():
    data = Raw(bytes(range(256)) * 4)
    # scapy's default port is DNS's, and tshark would call the payload malformed.
    udp = lambda: UDP(sport=40001, dport=40002)
    yield UP / IP(src=A4, dst="10.1.2.3", ttl=64) / UDP(sport=1, dport=2), False
    yield UP / IP(src=A4, dst="10.1.2.3", ttl=2, tos=0xb8, id=7, flags="DF") / TCP(sport=1, dport=2) / data, False
    yield UP / IP(src=A4, dst="10.255.255.255", ttl=255) / ICMP() / data, False
    yield UP / IP(src=A4, dst="10.7.9.9", ttl=9) / UDP(sport=5, dport=6) / data, True
    yield UP / IP(src=A4, dst="10.1.1.1", options=[IPOption_Router_Alert()]) / udp() / data, False
    yield UP / IP(src=A4, dst="10.1.1.1", frag=100, flags="MF", id=9) / data, False
    # a checksum whose incremental update meets the ends of one's complement arithmetic
    for ident in range(0xff00, 0xff40):
        yield UP / IP(src=A4, dst="10.0.0.1", id=ident, ttl=1 + ident % 200 + 1) / udp(), False
    yield UP / IPv6(src=A6, dst="2001:db8:f123::1", hlim=64) / UDP(sport=1, dport=2) / data, False
    yield UP / IPv6(src=A6, dst="2001:db8:f700::9", hlim=2, tc=0x28, fl=0xabcde) / TCP() / data, True
    yield UP / IPv6(src=A6, dst="2001:db8:f001::1") / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / udp() / data, False
    yield UP / IPv6(src=A6, dst="2001:db8:f001::1") / IPv6ExtHdrHopByHop(options=[RouterAlert()]) / udp() / data, False
    yield UP / IPv6(src=A6, dst="2001:db8:f001::1", nh=59), False
    yield UP / IP(src=A4, dst="10.3.0.1") / udp() / Raw(b"j" * 8900), False
    yield UP / IPv6(src=A6, dst="2001:db8:f003::1") / udp() / Raw(b"j" * 8900), False


def bad():
    """Each malformed packet with the reason it must be counted under."""
    ip = lambda **k: UP / IP(src=A4, dst="10.1.1.1", **k) / UDP() / Raw(b"x" * 30)
    yield Raw(bytes(UP)[:12]), "eth_too_short"
    yield UP / Dot1Q(vlan=99) / IP(src=A4, dst="10.1.1.1"), "vlan_unknown"
    yield Ether(bytes(UP)[:12] + b"\x81\x00\x00"), "vlan_too_short"
    yield Ether(src="02:bb:00:00:00:01", dst="02:00:00:00:00:99") / IP(src=A4, dst="10.1.1.1"), "eth_not_for_us"
    yield Ether(src="03:bb:00:00:00:01", dst="02:00:00:00:00:01") / IP(src=A4, dst="10.1.1.1"), "eth_source_multicast"
    yield Ether(src=UP.src, dst=UP.dst, type=0x1234) / Raw(b"x" * 50), "ethertype_unknown"
    yield ip(version=5), "ip4_bad_version"
    yield ip(ihl=3), "ip4_bad_header_length"
    yield ip(len=19), "ip4_bad_total_length"
    yield ip(len=1400), "ip4_bad_total_length"
    yield ip(chksum=0x1234), "ip4_bad_checksum"
    yield Ether(bytes(UP / IP(src=A4, dst="10.1.1.1"))[:24]), "ip4_too_short"
    for source in ("224.0.0.1", "255.255.255.255", "127.0.0.1", "0.0.0.0"):
        yield UP / IP(src=source, dst="10.1.1.1") / UDP(), "ip4_bad_source"
    for target in ("127.0.0.1", "0.1.2.3", "240.0.0.1"):
        yield UP / IP(src=A4, dst=target) / UDP(), "ip4_bad_destination"
    yield Ether(src=UP.src, dst="ff:ff:ff:ff:ff:ff") / IP(src=A4, dst="10.1.1.1") / UDP(), "l2_broadcast_unicast_ip"
    yield UP / IP(src=A4, dst="10.8.0.1") / UDP(), "route_blackhole"
    ip6 = lambda **k: UP / IPv6(**{"src": A6, "dst": "2001:db8:f001::1", **k}) / UDP() / Raw(b"x" * 30)
    yield ip6(version=4), "ip6_bad_version"
    yield ip6(plen=1400), "ip6_bad_payload_length"
    yield Ether(bytes(ip6())[:14 + 39]), "ip6_too_short"
    for source in ("ff02::1", "::1", "::"):
        yield ip6(src=source), "ip6_bad_source"
    for target in ("::1", "::"):
        yield ip6(dst=target), "ip6_bad_destination"
    yield ip6(src="fe80::1"), "ip6_link_local_scope"


def by_flow(frames):
    """Frames by destination and ports; fragments but the first have none."""
    flows = {}
    for frame in frames:
        p = Ether(frame)
        l3 = p[IP] if IP in p else p[IPv6]
        l4 = next((p[kind] for kind in (UDP, TCP) if kind in p), None)
        flows.setdefault((l3.dst, l4 and l4.sport, l4 and l4.dport), []).append(frame)
    return flows


def test_well_formed_packets_leave_byte_exact(tmp_path):
    for buffer in (9600, 2048):
        wanted = list(cases())
        folder = tmp_path / str(buffer)
        folder.mkdir()
        out, back, drops, ports = run(folder, [p for p, _ in wanted], buffer)
        expected = [routed(Ether(bytes(p)), tagged) for p, tagged in wanted]
        assert len(out) == len(expected), drops
        # Order is kept within a flow; different flows may go different ways through the graph.
        left, right = by_flow(out), by_flow(expected)
        assert left.keys() == right.keys()
        for flow, wants in right.items():
            assert len(left[flow]) == len(wants), flow
            for got, want in zip(left[flow], wants):
                assert got[:len(want)] == want, f"{Ether(want).summary()}\n{got[:80].hex()}\n{want[:80].hex()}"
        assert back == []
        assert ports["p0"]["rx"]["packets"] == len(wanted) and ports["p1"]["tx"]["packets"] == len(wanted)
        assert ports["p1"]["tx"]["bytes"] == sum(map(len, out))


def test_malformed_packets_are_dropped_each_with_its_own_reason(tmp_path):
    wanted = list(bad())
    out, back, drops, ports = run(tmp_path, [p for p, _ in wanted], 9600)
    expected = {}
    for _, reason in wanted:
        expected[reason] = expected.get(reason, 0) + 1
    assert drops == expected
    assert (out, back) == ([], []) and ports["p0"]["rx"]["packets"] == len(wanted)


def test_icmp_errors_and_echo_replies_as_scapy_reads_them(tmp_path):
    data = Raw(bytes(range(200)))
    packets = [
        UP / IP(src=A4, dst="10.1.1.1", ttl=1) / UDP(sport=7, dport=9) / data,
        UP / IP(src=A4, dst="203.0.113.9") / UDP() / data,
        UP / IP(src=A4, dst="198.18.1.1") / ICMP(id=5, seq=6) / data,
        UP / IPv6(src=A6, dst="2001:db8:f001::1", hlim=1) / UDP() / data,
        UP / IPv6(src=A6, dst="2001:db9::1") / UDP() / data,
        UP / IPv6(src=A6, dst="2001:db8:1::1") / ICMPv6EchoRequest(id=5, seq=6, data=bytes(data)),
    ]
    out, back, drops, _ = run(tmp_path, packets, 9600)
    assert out == []
    kind = lambda p: ((p[IP].src, p[ICMP].type, p[ICMP].code) if IP in p else
                      (p[IPv6].src, p[IPv6].payload.type, p[IPv6].payload.code))
    # Order is kept within a flow, and these are six: what is answered may leave before what is refused.
    got = {kind(Ether(b)): Ether(b) for b in back}
    expected = [("198.18.1.1", 11, 0), ("198.18.1.1", 3, 0), ("198.18.1.1", 0, 0),
                ("2001:db8:1::1", 3, 0), ("2001:db8:1::1", 1, 0), ("2001:db8:1::1", 129, 0)]
    assert len(back) == len(packets) and set(got) == set(expected), list(got)
    for p in got.values():
        assert (p.src, p.dst) == ("02:00:00:00:00:01", "02:bb:00:00:00:01")
        again = Ether(bytes(p))
        if IP in p:
            assert p[IP].dst == A4
            del again[IP].chksum, again[ICMP].chksum
        else:
            assert p[IPv6].dst == A6
            del again[IPv6].payload.cksum
        assert bytes(again) == bytes(p), "a checksum differs from scapy's"
    assert bytes(got[expected[2]][ICMP].payload)[:200] == bytes(data)
    quoted = bytes(got[expected[0]][ICMP].payload)
    assert quoted[12:20] == bytes(packets[0][IP])[12:20], "the quote begins with the offending header"


def test_other_users_of_the_routers_addresses_are_shown(tmp_path):
    claims = "ff:ff:ff:ff:ff:ff"
    arp = lambda mac, address, op: (Ether(src=mac, dst=claims) /
                                    ARP(op=op, hwsrc=mac, psrc=address, hwdst="00:00:00:00:00:00", pdst=address))
    advertisement = lambda mac, address: (
        Ether(src=mac, dst="33:33:00:00:00:01") / IPv6(src="fe80::66", dst="ff02::1", hlim=255)
        / ICMPv6ND_NA(tgt=address, R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=mac))
    packets = [*[arp("02:bb:00:00:00:66", "198.18.1.1", 1)] * 3, arp("02:bb:00:00:00:67", "198.18.1.1", 2),
               *[advertisement("02:bb:00:00:00:68", "2001:db8:1::1")] * 2,
               # Nobody's address, and the router's own words come back.
               arp("02:bb:00:00:00:66", "198.18.1.9", 1), arp("02:00:00:00:00:01", "198.18.1.1", 1)]
    wrpcap(str(tmp_path / "in.pcap"), packets)
    wrpcap(str(tmp_path / "empty.pcap"), [], linktype=1)
    with lab.linerate(tmp_path, CONFIG.format(rx=tmp_path / "in.pcap", folder=tmp_path, buffer=9600), "lrbytes") as r:
        r.at_rest()
        found = {(c["interface"], c["address"]): (c["mac"], c["count"]) for c in r.show("conflicts")["conflicts"]}
        assert found == {("in", "198.18.1.1"): ("02:bb:00:00:00:67", 4), ("in", "2001:db8:1::1"): ("02:bb:00:00:00:68", 2)}
        text = r.cli("show conflicts").stdout
        assert "198.18.1.1" in text and "02:bb:00:00:00:68" in text and "s ago" in text, text
        typed = subprocess.run([lab.LINERATE, "shell", "--socket", str(r.socket)], input="show ip conflicts\n", text=True,
                               capture_output=True, timeout=20, check=False)
        assert typed.returncode == 0 and "02:bb:00:00:00:67" in typed.stdout, typed
        assert r.log.read_text().count("give one of the two another") == 2

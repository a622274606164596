"""Access lists in a running router: scapy writes packets, knows which must pass, and reads what came out; rules count them."""

import subprocess

import lab
from scapy.all import (ICMP, IP, TCP, UDP, Dot1Q, Ether, ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment,
                       PadN, Raw, rdpcap, wrpcap)

CONFIG = """
[dpdk]
memory = "no-huge"
memory_mb = 512
file_prefix = "{{prefix}}"

[api]
socket = "{{socket}}"

[[worker]]
cpu = {{cpu}}

[[port]]
name = "p0"
device = "net_pcap0,rx_pcap={folder}/in.pcap,tx_pcap={folder}/back.pcap"

[[port]]
name = "p1"
device = "net_pcap1,rx_pcap={folder}/empty.pcap,tx_pcap={folder}/out.pcap"

[[interface]]
name = "left"
port = "p0"
mac = "02:00:00:00:00:01"
addresses = ["198.18.1.1/24", "2001:db8:1::1/64"]
acl_in = "left-in"

[[interface]]
name = "left-v7"
port = "p0"
vlan = 7
mac = "02:00:00:00:00:01"
addresses = ["198.18.7.1/24"]
acl_in = "tagged"

[[interface]]
name = "right"
port = "p1"
mac = "02:00:00:00:00:02"
addresses = ["198.18.2.1/24", "2001:db8:2::1/64"]
acl_out = "right-out"

[[acl]]
name = "left-in"
rules = [
    "remark the way back",
    "permit tcp any any established",
    {{{{ action = "permit", protocol = "tcp", dst = "198.18.2.0/24", dst_port = [80, 443] }}}},
]
rules_file = "more.acl"

[[acl]]
name = "tagged"
rules = ["permit udp any any vlan 7"]

[[acl]]
name = "right-out"
default = "permit"
rules = ["deny udp any any eq 9999", "reject tcp any any eq 443"]

[[neighbor]]
interface = "right"
address = "198.18.2.2"
mac = "02:aa:00:00:00:02"

[[neighbor]]
interface = "right"
address = "2001:db8:2::2"
mac = "02:aa:00:00:00:02"

[[neighbor]]
interface = "left"
address = "198.18.1.2"
mac = "02:bb:00:00:00:01"

[[neighbor]]
interface = "left"
address = "2001:db8:1::2"
mac = "02:bb:00:00:00:01"
"""

RULES = """! what follows is in the words of IOS
10 permit icmp any any echo
20 permit icmp6 any any echo-request
30 permit udp any any eq 5000 9999
40 permit ip any any fragments
50 reject udp 198.18.1.0 0.0.0.255 any range 6000 6009
55 reject udp 2001:db8:1::/64 any range 6000 6009
60 deny udp any any eq 7000 log
"""

UP = Ether(src="02:bb:00:00:00:01", dst="02:00:00:00:00:01")
V4 = IP(src="198.18.1.2", dst="198.18.2.2")
V6 = IPv6(src="2001:db8:1::2", dst="2001:db8:2::2")
DATA = Raw(b"x" * 32)

PASS, ANSWER = "passes", "is answered"


def cases():
    """Each packet with its fate, and the rules (list, place) that count it."""
    yield UP / V4 / TCP(dport=22, flags="A") / DATA, PASS, [("left-in", 0)]
    yield UP / V6 / TCP(dport=22, flags="R"), PASS, [("left-in", 0)]
    yield UP / V4 / TCP(dport=80, flags="S"), PASS, [("left-in", 1)]
    yield UP / V4 / TCP(dport=22, flags="S"), "acl_in_denied", [("left-in", 10)]
    yield UP / V6 / TCP(dport=80, flags="S"), "acl_in_denied", [("left-in", 10)]
    yield UP / V4 / TCP(dport=443, flags="S"), ANSWER, [("left-in", 1), ("right-out", 1)]
    yield UP / V4 / ICMP(type=8), PASS, [("left-in", 2)]
    yield UP / V4 / ICMP(type=0), "acl_in_denied", [("left-in", 10)]
    yield UP / V6 / ICMPv6EchoRequest(), PASS, [("left-in", 3)]
    yield UP / V4 / UDP(dport=5000) / DATA, PASS, [("left-in", 4)]
    yield UP / V6 / UDP(dport=5000) / DATA, PASS, [("left-in", 4)]
    yield UP / V4 / UDP(dport=9999) / DATA, "acl_out_denied", [("left-in", 4), ("right-out", 0)]
    yield UP / V4 / UDP(dport=6005) / DATA, ANSWER, [("left-in", 6)]
    yield UP / V6 / UDP(dport=6005) / DATA, ANSWER, [("left-in", 7)]
    yield UP / V4 / UDP(dport=7000) / DATA, "acl_in_denied", [("left-in", 8)]
    yield UP / IP(src="198.18.1.2", dst="198.18.2.2", proto=17, frag=9) / DATA, PASS, [("left-in", 5)]
    yield UP / IP(src="198.18.1.2", dst="198.18.2.2", flags="MF") / UDP(dport=5000, len=900) / DATA, PASS, [("left-in", 4)]
    yield UP / IP(src="198.18.1.2", dst="198.18.2.2", proto=6, frag=1) / DATA, "acl_undetermined", []
    options = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])
    yield UP / V6 / options / UDP(dport=5000) / DATA, PASS, [("left-in", 4)]
    yield UP / V6 / IPv6ExtHdrFragment(offset=8, nh=17) / DATA, PASS, [("left-in", 5)]
    chain = V6 / options
    for _ in range(12):
        chain = chain / options
    yield UP / chain / UDP(dport=5000) / DATA, "acl_undetermined", []
    tagged = UP / Dot1Q(vlan=7) / IP(src="198.18.7.2", dst="198.18.2.2")
    yield tagged / UDP(dport=1) / DATA, PASS, [("tagged", 0)]
    yield tagged / TCP(dport=80), "acl_in_denied", [("tagged", 2)]
    # For the router itself: pings are permitted, BGP is not.
    yield UP / IP(src="198.18.1.2", dst="198.18.1.1") / ICMP(type=8) / DATA, ANSWER, [("left-in", 2)]
    yield UP / IP(src="198.18.1.2", dst="198.18.1.1") / TCP(dport=179, flags="S"), "acl_in_denied", [("left-in", 10)]


def test_every_packet_meets_its_rule(tmp_path):
    table = list(cases())
    # Several times, so that bursts hold packets of every fate.
    packets = [Ether(bytes(packet)) for _ in range(3) for packet, _, _ in table]
    wrpcap(str(tmp_path / "in.pcap"), packets)
    wrpcap(str(tmp_path / "empty.pcap"), [], linktype=1)
    (tmp_path / "more.acl").write_text(RULES)
    with lab.linerate(tmp_path, CONFIG.format(folder=tmp_path), "lracl") as r:
        _, drops = r.at_rest()
        acls = {a["name"]: a for a in r.show("acl")["acls"]}
        log = r.show("acl --log")["samples"]
        interfaces = {i["name"]: (i["acl_in"], i["acl_out"]) for i in r.show("interfaces")["interfaces"]}
        text = r.cli("show acl left-in").stdout
    expected, hits = {}, {}
    for packet, fate, rules in table:
        if fate not in (PASS, ANSWER):
            expected[fate] = expected.get(fate, 0) + 3
        for rule in rules:
            hits.setdefault(rule, [0, 0])
            hits[rule][0] += 3
            hits[rule][1] += 3 * len(packet)
    # What leaves by an interface whose list has nothing to say about it counts in the last line of that list.
    assert drops == expected
    for name in ("left-in", "tagged"):
        for place, rule in enumerate(acls[name]["rules"]):
            assert (rule["packets"], rule["bytes"]) == tuple(hits.get((name, place), (0, 0))), (name, place, rule)
    for place in (0, 1):
        assert acls["right-out"]["rules"][place]["packets"] == hits[("right-out", place)][0]
    passed = sum(3 for _, fate, _ in table if fate == PASS)
    assert acls["right-out"]["rules"][2]["packets"] == passed, acls["right-out"]
    assert acls["left-in"]["rules"][0]["description"] == "the way back"
    assert (acls["left-in"]["inputs"], acls["right-out"]["outputs"]) == (["left"], ["right"])
    assert interfaces == {"left": ("left-in", None), "left-v7": ("tagged", None), "right": (None, "right-out")}
    assert [(s["acl"], s["source"], s["destination_port"]) for s in log] == [("left-in", "198.18.1.2", 7000)] * 3
    assert "permit tcp any any established  ! the way back" in text and "(deny everything else)" in text
    out, back = (list(rdpcap(str(tmp_path / name))) for name in ("out.pcap", "back.pcap"))
    assert len(out) == passed and len(back) == sum(3 for _, fate, _ in table if fate == ANSWER)
    for answer in back:
        if ICMP in answer and answer[ICMP].type != 0:
            assert (answer[IP].src, answer[ICMP].type, answer[ICMP].code) == ("198.18.1.1", 3, 13)
        elif IPv6 in answer:
            error = bytes(answer[IPv6].payload)
            assert (answer[IPv6].src, error[0], error[1]) == ("2001:db8:1::1", 1, 1)
    for name in ("out.pcap", "back.pcap"):
        eye = subprocess.run(["tshark", "-r", str(tmp_path / name), "-o", "ip.check_checksum:TRUE", "-Y",
                              "ip.checksum.status == 0 || icmp.checksum.status == 0 || icmpv6.checksum.status == 0"],
                             capture_output=True, text=True, check=True)
        assert eye.stdout == "", f"{name}: {eye.stdout}"


def test_mistakes_in_lists_are_named(tmp_path):
    config = tmp_path / "bad.toml"
    text = CONFIG.format(folder=tmp_path).format(prefix="x", socket="/tmp/x", cpu=lab.CPU)
    config.write_text(text)
    (tmp_path / "more.acl").write_text("permit ip any any\npermit tcp any any eq 70000\n")
    done = lab.sh(f"{lab.LINERATE} check {config}", check=False)
    assert done.returncode == 3
    assert "more.acl:2:23: found `70000`: expected a port" in done.stderr, done.stderr


def test_thousands_of_rules(tmp_path):
    """A list of 10,000 rules: read, compiled and used; the last rule is found as the first one is."""
    rules = [f"permit udp host 10.{i >> 16}.{i >> 8 & 255}.{i & 255} any eq {1024 + i}" for i in range(10_000)]
    (tmp_path / "more.acl").write_text("\n".join(rules))
    packet = lambda i, port: UP / IP(src=f"10.0.{i >> 8}.{i & 255}", dst="198.18.2.2") / UDP(dport=port) / DATA
    good = [packet(i, 1024 + i) for i in (0, 1, 4999, 9998, 9999)]
    bad = [packet(i, 1025 + i) for i in (0, 5000, 9999)]
    wrpcap(str(tmp_path / "in.pcap"), [Ether(bytes(p)) for p in good + bad])
    wrpcap(str(tmp_path / "empty.pcap"), [], linktype=1)
    with lab.linerate(tmp_path, CONFIG.format(folder=tmp_path), "lracl2") as r:
        _, drops = r.at_rest()
        found = r.show("acl left-in")["acls"][0]["rules"]
    # Port 9999 is denied on the way out: that is none of these.
    assert drops == {"acl_in_denied": len(bad)}
    assert [i for i, rule in enumerate(found) if rule["packets"]] == [2 + i for i in (0, 1, 4999, 9998, 9999)] + [10_003]

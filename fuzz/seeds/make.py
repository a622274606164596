#!/usr/bin/env python3
"""Makes the fuzzer's first inputs: packets by scapy in the framing of `linerate_router::fuzz::graph`, the example
configurations, and route tables in each format and compression. Run it again after changing what a target reads."""

import bz2
import gzip
import pathlib
import shutil

from scapy.all import (ARP, ICMP, IP, TCP, UDP, Dot1Q, Ether, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS,
                       ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPOption_Router_Alert, IPv6, IPv6ExtHdrFragment,
                       IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, Raw, RouterAlert, fragment)

SEEDS = pathlib.Path(__file__).parent
ROOT = SEEDS.parents[1]


def step(port, segments, frame):
    frame = bytes(frame)
    return bytes([port, segments - 1]) + len(frame).to_bytes(2, "little") + frame


def wait(milliseconds):
    return b"\xff\0" + milliseconds.to_bytes(2, "little")


def up(port, *tags):
    frame = Ether(src="02:00:00:00:09:00", dst=f"02:00:00:00:00:{port:02x}")
    for tag in tags:
        frame /= Dot1Q(vlan=tag)
    return frame


def packets():
    lan, lan6, data = "10.0.0.9", "2001:db8::9", Raw(bytes(range(64)))
    yield "forward", [
        step(0, 1, up(0) / IP(src=lan, dst="198.18.1.1") / UDP(sport=1, dport=2) / data),
        step(0, 2, up(0) / IP(src=lan, dst="198.19.1.1", options=[IPOption_Router_Alert()]) / TCP() / data),
        step(1, 1, up(1, 7) / IP(src="10.0.7.9", dst="100.64.9.1", ttl=1) / ICMP()),
        step(2, 3, up(2, 7, 9) / IPv6(src="2001:db8:9::9", dst="2001:db8:18::1") / TCP() / data),
        step(0, 1, up(0) / IPv6(src=lan6, dst="2001:db8:19::1", hlim=1) / UDP() / data),
    ]
    yield "local", [
        step(0, 1, Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=lan, pdst="10.0.0.1")),
        step(0, 1, up(0) / IP(src=lan, dst="10.0.0.1") / ICMP() / data),
        step(0, 1, up(0) / IPv6(src=lan6, dst="2001:db8::1") / ICMPv6EchoRequest(data=bytes(data))),
        step(0, 1, Ether(dst="33:33:ff:00:00:01") / IPv6(src=lan6, dst="ff02::1:ff00:1")
             / ICMPv6ND_NS(tgt="2001:db8::1") / ICMPv6NDOptSrcLLAddr(lladdr="02:00:00:00:09:00")),
    ]
    yield "unresolved", [
        *[step(0, 1, up(0) / IP(src=lan, dst=f"100.65.0.{n}") / UDP() / data) for n in range(6)],
        step(0, 1, up(0) / IPv6(src=lan6, dst="2001:db8:65::1") / UDP() / data),
        wait(1000),
        step(1, 1, up(1) / ARP(op=2, hwsrc="02:00:00:00:00:77", psrc="10.0.1.77", pdst="10.0.1.1")),
        step(1, 1, up(1) / IPv6(src="2001:db8:1::77", dst="2001:db8:1::1", hlim=255)
             / ICMPv6ND_NA(tgt="2001:db8:1::77") / ICMPv6NDOptDstLLAddr(lladdr="02:00:00:00:00:77")),
        wait(5000),
    ]
    big = IP(src=lan, dst="100.64.4.1", flags=0) / UDP() / Raw(b"x" * 1440)
    yield "sizes", [
        step(4, 4, up(4) / IP(src="10.0.6.9", dst="198.18.0.1") / UDP() / Raw(b"j" * 4000)),
        step(4, 1, up(4) / IPv6(src="2001:db8:6::9", dst="2001:db8:18::1") / UDP() / Raw(b"j" * 2000)),
        step(0, 1, up(0) / big),
        *[step(0, 1, up(0) / piece) for piece in fragment(big, 600)],
    ]
    yield "extensions", [
        step(0, 1, up(0) / IPv6(src=lan6, dst="2001:db8:18::1") / IPv6ExtHdrHopByHop(options=[RouterAlert()])
             / IPv6ExtHdrFragment(id=1, m=1) / UDP() / data),
        step(0, 1, up(0) / IPv6(src=lan6, dst="2001:db8::1") / IPv6ExtHdrRouting(addresses=["::2"]) / UDP()),
    ]
    yield "refused", [
        step(0, 1, up(0) / IP(src=lan, dst=f"203.0.113.{n}") / UDP() / data) for n in (1, 65, 129, 193)
    ] + [step(3, 1, up(3) / IP(src=lan, dst=lan)), step(0, 1, bytes(up(0))[:9])]


def put(folder, name, content):
    (SEEDS / folder / name).write_bytes(content)


def main():
    for folder in ("packets", "config", "rib"):
        (SEEDS / folder).mkdir(exist_ok=True)
    for name, steps in packets():
        put("packets", name, b"".join(steps))
    for path in sorted((ROOT / "examples").glob("*.toml")):
        shutil.copyfile(path, SEEDS / "config" / path.name)
    table = b"# prefix nexthop\n10.0.0.0/8 1\n10.1.0.0/16 198.18.0.1\n0.0.0.0/0 7\n2001:db8::/32 2001:db8::1\n::/0 3\n"
    put("rib", "text", table)
    put("rib", "text.gz", gzip.compress(table, mtime=0))
    put("rib", "text.bz2", bz2.compress(table))
    for name in ("bird.mrt", "gobgp.mrt"):
        put("rib", name, (ROOT / "crates/control/tests/data" / name).read_bytes())
    put("rib", "bird.mrt.gz", gzip.compress((ROOT / "crates/control/tests/data/bird.mrt").read_bytes(), mtime=0))


if __name__ == "__main__":
    main()

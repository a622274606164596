"""Access lists in a running router: scapy sends on one link, listens on both; rules, drops and counters are the CLI's."""

import threading
import time

import lab
from scapy.all import (ICMP, IP, TCP, UDP, Ether, ICMPv6DestUnreach, ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment, Raw,
                       AsyncSniffer, fragment)

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
device = "net_af_packet0,iface={a}"

[[port]]
name = "p1"
device = "net_af_packet1,iface={b}"

[[interface]]
name = "left"
port = "p0"
addresses = ["198.18.1.1/24", "2001:db8:1::1/64"]
acl_in = "in"

[[interface]]
name = "right"
port = "p1"
addresses = ["198.18.2.1/24", "2001:db8:2::1/64"]
acl_out = "out"

[[acl]]
name = "in"
rules = [
    "remark the way back",
    "permit tcp any any established",
    {{{{ action = "permit", protocol = "tcp", dst = "198.18.2.0/24", dst_port = [80, 443] }}}},
]
rules_file = "in.acl"

[[acl]]
name = "out"
default = "permit"
rules = ["deny udp any any eq 9999", "reject tcp any host 198.18.2.2 eq 443"]
"""

RULES = """
! what follows is read from a file
10 permit icmp any any echo
20 permit icmp6 any any echo-request
30 permit udp any any eq 5000 9999
40 permit ip any any fragments
50 reject udp any any range 6000 6009
60 deny udp any any eq 7000 log
"""


def send_and_hear(host, other, packets):
    """Sends from the one host; returns what both heard of the other side afterwards."""
    script = host.folder / "packets.pcap"
    from scapy.all import rdpcap, wrpcap
    wrpcap(str(script), packets)
    heard = {}
    for who in (host, other):
        out = who.folder / f"{who.name}.pcap"
        out.unlink(missing_ok=True)
        who.listener = who.start(f"tcpdump -i {who.inside} -U -w {out} inbound")
    time.sleep(1)
    host.run(f"/usr/bin/python3 -c \"from scapy.all import *; sendp(rdpcap('{script}'), iface='{host.inside}', verbose=0)\"")
    time.sleep(1)
    for who in (host, other):
        who.listener.terminate()
        who.listener.wait()
        heard[who.name] = list(rdpcap(str(who.folder / f"{who.name}.pcap")))
    return heard[host.name], heard[other.name]

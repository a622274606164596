#!/usr/bin/env python3
"""Records the kernel's listings of a namespace with a bit of everything: `unshare -n kernel.py FILE`, as root. The file
beside this script was made by it on Linux 6.18."""

import pathlib
import socket
import struct
import subprocess
import sys

SETUP = """
link add eth0 type veth peer name eth1
link add br0 type bridge
link set lo up
link set eth0 up
link set eth1 up master br0
addr add 198.18.0.1/24 dev eth0
addr add 10.9.9.1 peer 10.9.9.2/32 dev eth0
addr add 2001:db8::1/64 dev eth0 nodad
neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev eth0
neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev eth0 router
nexthop add id 1 via 198.18.0.2 dev eth0
nexthop add id 2 via fe80::2 dev eth0
nexthop add id 3 group 1,5/2,250
nexthop add id 4 blackhole
nexthop add id 5 group 1 type resilient buckets 8
route add 10.1.0.0/16 nexthop via 198.18.0.2 weight 3 nexthop via 198.18.0.3
route add 10.2.0.0/16 via inet6 fe80::2 dev eth0 mtu 1400
route add 10.3.0.0/16 nhid 3
route add 10.4.0.0/16 encap ip id 3 dst 10.0.0.1 dev eth0
route add prohibit 10.5.0.0/16 table 100000
-6 route add 2001:db8:1::/48 nexthop via 2001:db8::2 nexthop via fe80::3 dev eth0
-6 route add 2001:db8:2::/48 from 2001:db8:3::/48 via 2001:db8::2
-6 route add unreachable 2001:db8:4::/48
"""

# Message type, address family, bytes of the fixed part: links, addresses, next hops, routes, neighbours, rules.
LISTINGS = [(18, 0, 16), (22, 0, 8), (106, 0, 8), (26, 2, 12), (26, 10, 12), (30, 0, 12), (34, 0, 12)]


def main():
    for line in SETUP.strip().splitlines():
        if subprocess.run(["ip", *line.split()]).returncode:
            print("not here:", line)
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    everything = b""
    for sequence, (kind, family, fixed) in enumerate(LISTINGS, 1):
        kernel.send(struct.pack("IHHII", 16 + fixed, kind, 0x301, sequence, 0) + bytes([family]) + bytes(fixed - 1))
        done = False
        while not done:
            answer = kernel.recv(65536)
            at = 0
            while at < len(answer):
                length, kind = struct.unpack_from("IH", answer, at)
                done |= kind == 3
                at += length + 3 & ~3
            everything += answer
    pathlib.Path(sys.argv[1]).write_bytes(everything)


if __name__ == "__main__":
    main()

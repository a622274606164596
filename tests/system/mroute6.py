"""The owner of a Linux multicast table of IPv6, as a routing daemon is it: `mroute6.py TABLE INPUT OUTPUT…`, with names of interfaces.

It tells the kernel of the interfaces (MRT6_ADD_MIF), learns by MLDv2 reports who is a member of what, adds a route for each source
that the kernel reports for want of one (MRT6MSG_NOCACHE), asks every 0.1 s how many packets of it the kernel has counted
(SIOCGETSGCNT_IN6), and deletes it when there were none for KEEPALIVE seconds: what a PIM daemon's keepalive timer does (RFC 7761
4.1.4). It prints a line of JSON for each of these.
"""

import fcntl
import json
import select
import socket
import struct
import sys
import time

MRT6_INIT, MRT6_ADD_MIF, MRT6_ADD_MFC, MRT6_DEL_MFC, MRT6_TABLE = 200, 202, 204, 205, 209
SIOCGETSGCNT_IN6 = 0x89E1
NOCACHE = 1
MLD2_REPORT = 143
KEEPALIVE = 3


def address(packed):
    return struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, packed, 0)


def text(*packed):
    return [socket.inet_ntop(socket.AF_INET6, a) for a in packed]


def tell(**what):
    print(json.dumps(what), flush=True)


class Owner:
    def __init__(self, table, names):
        self.indices = [socket.if_nametoindex(name) for name in names]
        self.members, self.routes = {}, {}
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        if table:
            self.option(MRT6_TABLE, struct.pack("=I", table))
        self.option(MRT6_INIT, struct.pack("=i", 1))
        self.option(socket.IPV6_RECVPKTINFO, struct.pack("=i", 1))
        for mif, index in enumerate(self.indices):
            self.option(MRT6_ADD_MIF, struct.pack("=HBBHxxI", mif, 0, 1, index, 0))
            # All MLDv2-capable routers (RFC 3810 5.2.14).
            self.option(socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, "ff02::16") + struct.pack("=I", index))
        tell(ready=names)

    def option(self, number, value):
        self.socket.setsockopt(socket.IPPROTO_IPV6, number, value)

    def route(self, number, source, group):
        outputs = sum(1 << mif for mif in self.members.get(group, ()) if mif != 0)
        self.option(number, address(source) + address(group) + struct.pack("=HH8I", 0, 0, outputs, *[0] * 7))

    def hear(self):
        message, about, *_ = self.socket.recvmsg(2000, 200)
        # struct mrt6msg: zero where ICMPv6 has a type.
        if message[:2] == bytes([0, NOCACHE]) and message[2:4] == b"\0\0":
            source, group = message[8:24], message[24:40]
            self.route(MRT6_ADD_MFC, source, group)
            self.routes[source, group] = [0, time.monotonic()]
            tell(added=text(source, group))
        if message[0] == MLD2_REPORT:
            index, = (struct.unpack("=16sI", data)[1] for level, kind, data in about if kind == socket.IPV6_PKTINFO)
            at = 8
            for _ in range(struct.unpack("!H", message[6:8])[0]):
                kind, auxiliary, sources, group = struct.unpack("!BBH16s", message[at:at + 20])
                at += 20 + 16 * sources + 4 * auxiliary
                # To exclude nobody is to join, to include nobody is to leave (RFC 3810 5.2.12).
                # The socket hears of all interfaces; groups of a link's scope stay there.
                if index in self.indices and group[1] & 15 > 2 and sources == 0 and kind in (2, 3, 4):
                    self.member(group, self.indices.index(index), kind != 3)

    def member(self, group, mif, joins):
        of = self.members.setdefault(group, set())
        if joins == (mif in of):
            return
        of.symmetric_difference_update({mif})
        tell(members=text(group) + sorted(of))
        for source, other in self.routes:
            if other == group:
                self.route(MRT6_ADD_MFC, source, group)

    def check(self):
        for (source, group), seen in list(self.routes.items()):
            request = bytearray(address(source) + address(group) + bytes(24))
            fcntl.ioctl(self.socket, SIOCGETSGCNT_IN6, request)
            packets, = struct.unpack_from("=Q", request, 56)
            if packets != seen[0]:
                seen[:] = packets, time.monotonic()
                tell(packets=packets)
            elif time.monotonic() - seen[1] > KEEPALIVE:
                self.route(MRT6_DEL_MFC, source, group)
                del self.routes[source, group]
                tell(deleted=text(source, group))


owner = Owner(int(sys.argv[1]), sys.argv[2:])
while True:
    if select.select([owner.socket], [], [], 0.1)[0]:
        owner.hear()
    owner.check()

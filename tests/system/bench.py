"""A router between wires whose other ends are in the test's hands: scapy writes what goes in and says, whole, what must come out.

No kernel speaks on these wires, so that every frame and every count is the test's own: `Bench.check` compares all bytes, all
ports' counters and all drop reasons, to the last packet.
"""

import contextlib
import ctypes
import errno
import http.client
import json
import os
import socket
import struct
import time

from scapy.all import ICMP, IP, Dot1Q, Ether, IPv6, Raw, hexdump

import lab
import routing

SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
STATUS_VLAN, STATUS_TPID = 1 << 4, 1 << 6

LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def namespace(name):
    """Runs the block in a network namespace; sockets made there stay there."""
    here, there = (os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", f"/run/netns/{name}"))
    try:
        if LIBC.setns(there, 0):
            raise OSError(ctypes.get_errno(), f"no way into the namespace {name}")
        yield
    finally:
        assert LIBC.setns(here, 0) == 0
        os.close(here)
        os.close(there)


class Wire:
    """What is on the other side of a port: a tap of DPDK's, on which a raw socket sends and receives frames as they are. (The
    other drivers for tests see frames through the kernel's eyes: AF_PACKET's puts fragments together and drops tags.)"""

    def __init__(self, space, device):
        with namespace(space):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.socket.bind((device, 0))
        # The kernel puts tags aside, and our own frames come back: neither is what is on the wire.
        for option in (PACKET_AUXDATA, PACKET_IGNORE_OUTGOING):
            self.socket.setsockopt(SOL_PACKET, option, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)

    def send(self, frames):
        for i, frame in enumerate(frames, 1):
            self.socket.send(bytes(frame))
            # In portions: the kernel drops what it has no room for before linerate's port.
            i % 100 or time.sleep(0.005)

    def receive(self, count, seconds=2.0):
        """So many frames, or as many as come in that time, and what else is there already."""
        frames, end = [], time.monotonic() + seconds
        while len(frames) < count and time.monotonic() < end:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            with contextlib.suppress(TimeoutError):
                frames.append(self.one())
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(self.one())
        return frames

    def one(self):
        try:
            data, extra, _, _ = self.socket.recvmsg(65536, 64)
        except OSError as error:
            # Told once, of a link that went down since the last time.
            if error.errno != errno.ENETDOWN:
                raise
            data, extra, _, _ = self.socket.recvmsg(65536, 64)
        for level, kind, aux in extra:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", aux)
                if status & STATUS_VLAN:
                    tpid = tpid if status & STATUS_TPID else 0x8100
                    data = data[:12] + struct.pack(">HH", tpid, tci) + data[12:]
        return data

    def close(self):
        self.socket.close()


class Api(http.client.HTTPConnection):
    """The instance's API, without a process per question."""

    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def ask(self, path, body=None):
        """Status and answer; with a body it is a POST."""
        try:
            if body is None:
                self.request("GET", path)
            else:
                self.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = self.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            self.close()


class Bench:
    """A running instance, its wires by the names of the ports, and the namespace of the wires."""

    def __init__(self, instance, wires, space):
        self.instance, self.wires, self.space = instance, wires, space
        self.api = Api(instance.socket)

    def get(self, what):
        status, answer = self.api.ask(f"/v1/{what}")
        assert status == 200, answer
        return answer

    def ports(self):
        """The ports by name."""
        return {p["name"]: p for p in self.get("ports")["ports"]}

    def check_alive(self):
        """The process runs and answers."""
        assert self.instance.process.poll() is None, self.instance.log.read_text()[-3000:]
        self.get("status")

    def counters(self):
        """What came in and went out by port, what was dropped by reason, and what no counter explains by port."""
        ports, drops = self.get("ports")["ports"], self.get("drops")["drops"]
        return ({p["name"]: p["rx"]["packets"] for p in ports}, {p["name"]: p["tx"]["packets"] for p in ports},
                by_reason(drops), {p["name"]: p["unaccounted"] for p in ports})

    def check(self, sent, wanted=None, drops=None, seconds=8.0, ordered=False, besides=()):
        """Sends frames (port to list) and waits until exactly `wanted` (port to list) has come out and exactly `drops` were
        counted. `ordered`: in that order. `besides`: frames that may come as well, by a timer of the router's."""
        wanted = {port: [bytes(f) for f in frames] for port, frames in (wanted or {}).items()}
        before = self.counters()
        for port, frames in sent.items():
            self.wires[port].send(frames)
        expected = ({port: len(sent.get(port, ())) for port in self.wires},
                    {port: len(wanted.get(port, ())) for port in self.wires},
                    dict(drops or {}), dict.fromkeys(self.wires, 0))
        end = time.monotonic() + seconds
        while True:
            after = self.counters()
            change = tuple({key: after[i].get(key, 0) - before[i].get(key, 0) for key in expected[i] | after[i]}
                           for i in range(3))
            got = (change[0], change[1], {k: n for k, n in change[2].items() if n}, after[3])
            if besides and all(n >= expected[1][p] for p, n in got[1].items()):
                got = (got[0], expected[1], *got[2:])
            if got == expected or time.monotonic() > end:
                break
            time.sleep(0.002)
        frames = {port: wire.receive(len(wanted.get(port, ())), 2.0 if got == expected else 0.1)
                  for port, wire in self.wires.items()}
        for port, wire in frames.items():
            wire = [f for f in wire if f not in besides]
            assert_same(wire, wanted.get(port, []), f"by {port}")
            assert not ordered or wire == wanted.get(port, []), f"by {port}: another order"
        assert got == expected, f"received, sent, dropped, unexplained:\n     are {got}\nmust be {expected}"


def by_reason(drops):
    total = {}
    for d in drops:
        if d["packets"]:
            total[d["reason"]] = total.get(d["reason"], 0) + d["packets"]
    return total


def assert_same(got, wanted, where):
    """The same frames, in whatever order flows may come."""
    missing, extra = list(wanted), []
    for frame in got:
        if frame in missing:
            missing.remove(frame)
        else:
            extra.append(frame)
    if not missing and not extra:
        return
    text = [f"{len(got)} frames {where}, {len(missing)} are missing and {len(extra)} should not be"]
    for what, frames in (("missing", missing), ("not expected", extra)):
        for frame in frames[:3]:
            text += [f"--- {what}:", Ether(frame).summary(), hexdump(frame[:256], dump=True)]
    raise AssertionError("\n".join(text))


HEAD = """
[dpdk]
memory = "no-huge"
memory_mb = 256
file_prefix = "{prefix}"
buffer_size = 2048

[api]
socket = "{socket}"

[[worker]]
cpu = {cpu}
"""


def port(name, at, mtu):
    return f'\n[[port]]\nname = "{name}"\ndevice = "net_tap{at},iface={device(name)}"\nmtu = {mtu}\n'


def device(name):
    """The name of the other side of a port."""
    return f"wire-{name}"


@contextlib.contextmanager
def bench(folder, prefix, ports, text, mtu=1500):
    """An instance with these ports (names), each with a wire, and what else `text` says; at the end nothing is unexplained."""
    config = HEAD + "".join(port(name, at, mtu) for at, name in enumerate(ports))
    # Braces of inline tables are not places to fill in.
    config += text.replace("{", "{{").replace("}", "}}")
    with routing.spaces(prefix) as (space,):
        # The kernel is to say nothing on the wires.
        space.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
        with lab.linerate(folder, config, prefix, within=space.name) as instance, contextlib.ExitStack() as stack:
            wires = {}
            for name in ports:
                # With room for all that a test sends while the worker does something else.
                space.run(f"ip link set {device(name)} up txqueuelen 20000")
                wires[name] = Wire(space.name, device(name))
                stack.callback(wires[name].close)
            running = Bench(instance, wires, space)
            try:
                routing.wait("links are up", lambda: all(p["up"] for p in running.get("ports")["ports"]))
                yield running
            except BaseException:
                print(instance.log.read_text()[-3000:])
                raise
            instance.at_rest()


# The router between two networks that most of the cases need, with a small MTU behind a VLAN tag. Routers and hosts on the
# wires have fixed addresses: the router 02:00:00:00:0N:01, its neighbours .2 and ::2 02:aa:00:00:0N:02.
def interface(name, port, net, mtu=None, vlan=None, inner=None, extra="", addresses=None, known=True):
    """An interface with the networks 198.18.N.0/24 and 2001:db8:N::/64, or these addresses, and its neighbours where they are
    `known`."""
    if addresses is None:
        addresses = [f"198.18.{net}.1/24", f"2001:db8:{net}::1/64"]
    text = f'\n[[interface]]\nname = "{name}"\nport = "{port}"\nmac = "{ours(net)}"\naddresses = {json.dumps(addresses)}\n'
    for key, value in (("mtu", mtu), ("vlan", vlan), ("inner_vlan", inner)):
        text += f"{key} = {value}\n" if value else ""
    text += extra
    for address in (f"198.18.{net}.2", f"2001:db8:{net}::2") if known else ():
        text += f'\n[[neighbor]]\ninterface = "{name}"\naddress = "{address}"\nmac = "{theirs(net)}"\n'
    return text


def ours(net):
    return f"02:00:00:00:{net:02x}:01"


def theirs(net):
    return f"02:aa:00:00:{net:02x}:02"


A4, A6 = "198.18.1.2", "2001:db8:1::2"
OUR4, OUR6 = "198.18.1.1", "2001:db8:1::1"
# Behind the neighbour on network 2, and behind that on network 7, whose MTU is small.
B4, B6 = "10.2.0.1", "2001:db8:f002::1"
S4, S6 = "10.7.0.1", "2001:db8:f007::1"

UP = Ether(src=theirs(1), dst=ours(1))
DOWN = Ether(src=ours(1), dst=theirs(1))

PAIR = interface("in", "in", 1) + interface("out", "out", 2) + interface("small", "out", 7, 1300, 7) + "".join(
    f'\n[[route]]\nprefix = "{prefix}"\nvia = "{gateway}"\n' for prefix, gateway in (
        ("10.2.0.0/16", "198.18.2.2"), ("10.7.0.0/16", "198.18.7.2"),
        ("2001:db8:f002::/48", "2001:db8:2::2"), ("2001:db8:f007::/48", "2001:db8:7::2"))) + """
[[route]]
prefix = "10.8.0.0/16"
action = "prohibit"

[[route]]
prefix = "2001:db8:f008::/48"
action = "prohibit"
"""


def routed(packet, net=2, vlan=None):
    """What a router makes of a packet for a network: scapy serialises the fields that change."""
    whole = bytes(packet)
    if whole[14] >> 4 == 4:
        # The header alone, so that nothing behind it is put anew.
        head = IP(whole[14:14 + (whole[14] & 15) * 4])
        head.ttl -= 1
        del head.chksum
        l3 = bytes(head) + whole[14 + head.ihl * 4:14 + head.len]
    else:
        head = IPv6(whole[14:54])
        head.hlim -= 1
        l3 = bytes(head) + whole[54:54 + head.plen]
    return tagged(net, vlan, 0x800 if head.version == 4 else 0x86dd, l3)


def tagged(net, vlan, ethertype, l3, to_us=False):
    """A frame for the neighbour on a network, or from it, in a VLAN where one is named."""
    src, dst = (theirs(net), ours(net)) if to_us else (ours(net), theirs(net))
    if vlan:
        return bytes(Ether(src=src, dst=dst) / Dot1Q(vlan=vlan, type=ethertype) / Raw(l3))
    return bytes(Ether(src=src, dst=dst, type=ethertype) / Raw(l3))


def error4(about, kind, code, net=1, mtu=0, src=None, dst=None, most=576):
    """The ICMP error about a frame (RFC 792, RFC 1812 4.3.2): the quote is as much as fits."""
    quoted = bytes(about)[14:]
    quoted = quoted[:IP(quoted).len][:most - 28]
    message = ICMP(type=kind, code=code, nexthopmtu=mtu) if (kind, code) == (3, 4) else ICMP(type=kind, code=code)
    head = IP(src=src or f"198.18.{net}.1", dst=dst or IP(quoted).src, tos=0xc0, ttl=64, id=0, flags="DF")
    return bytes(Ether(src=ours(net), dst=theirs(net)) / head / message / Raw(quoted))


def error6(about, message, net=1, src=None, most=1280):
    """The ICMPv6 error about a frame (RFC 4443 2.4 c); `message`: scapy's header without the quote."""
    quoted = bytes(about)[14:]
    head = IPv6(quoted)
    quoted = quoted[:40 + head.plen][:most - 48]
    return bytes(Ether(src=ours(net), dst=theirs(net)) / IPv6(src=src or f"2001:db8:{net}::1", dst=head.src, hlim=64)
                 / message / Raw(quoted))

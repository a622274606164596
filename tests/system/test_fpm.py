"""What comes over FPM from who is not FRR: nonsense, second connections, and very many sessions."""

import json
import os
import random
import struct
import time

import pytest

import routing
from routing import fib, ping, wait

import lab

NEWROUTE, DELROUTE, NEWNEXTHOP, DELNEXTHOP = 24, 25, 104, 105


def attribute(kind, value):
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def netlink(kind, body, flags=0x501):
    return struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body


def frame(payload):
    return struct.pack(">BBH", 1, 1, 4 + len(payload)) + payload


def nexthop(number, gateway, interface, kind=NEWNEXTHOP):
    body = struct.pack("BBBBI", 2, 0, 11, 0, 0) + attribute(1, struct.pack("I", number))
    return netlink(kind, body + attribute(6, bytes(map(int, gateway.split(".")))) + attribute(5, struct.pack("I", interface)))


def route(address, length, nhid, kind=NEWROUTE, table=254, extra=b""):
    body = struct.pack("BBBBBBBBI", 2, length, 0, 0, table, 186, 0, 1, 0)
    body += attribute(1, bytes(map(int, address.split("."))))
    return netlink(kind, body + (attribute(30, struct.pack("I", nhid)) if nhid else b"") + extra)


# A client for the namespace of the router: it sends what is in a file, some times over.
CLIENT = """
import socket, sys, time
data = open(sys.argv[1], "rb").read()
for _ in range(int(sys.argv[2])):
    s = socket.create_connection(("127.0.0.1", 2620), 10)
    s.settimeout(float(sys.argv[3]))
    try:
        s.sendall(data)
        s.recv(1)
    except (TimeoutError, ConnectionError):
        pass
    s.close()
    time.sleep(0.01)
"""


class Fpm:
    def __init__(self, space, folder):
        self.space, self.folder = space, folder
        (folder / "client.py").write_text(CLIENT)

    def send(self, data, times=1, seconds=0.05):
        """Sends, waits so long for the server to hang up, hangs up."""
        (self.folder / "data").write_bytes(data)
        self.space.run(f"python3 {self.folder}/client.py {self.folder}/data {times} {seconds}", timeout=120)


@pytest.fixture
def place(tmp_path):
    with lab.hosts("lrf-a", "lrf-b") as hosts, routing.spaces("lrf-r") as (r,):
        ports = {}
        for i, (name, host) in enumerate(zip(("lan", "wan"), hosts), 1):
            host.address(f"198.18.{i}.2/24", f"198.18.{i}.1")
            ports[name] = (routing.device(host.outside, i), [f"198.18.{i}.1/24"])
        hosts[1].run("ip addr add 198.19.0.1/32 dev lo")
        with routing.linerate(tmp_path, routing.config(r, ports, hold=1), "lrfpm", {"no_route"}) as router:
            wan = json.loads(r.run("ip -j link show wan").stdout)[0]["ifindex"]
            good = frame(nexthop(7, "198.18.2.2", wan)) + frame(route("198.19.0.0", 16, 7))
            yield hosts[0], r, router, Fpm(r, tmp_path), wan, good


def faults(router):
    return {f["what"]: f["count"] for f in router.show("linux")["faults"]}


def test_nonsense_is_counted_and_forwarding_goes_on(place):
    a, r, router, fpm, wan, good = place
    r.run("ip route add 198.19.0.0/24 via 198.18.2.2")
    wait("a route of the kernel", lambda: fib(router, "198.19.0.0/24"))
    ping(a, "198.19.0.1")
    stream = routing.Stream(a, "198.19.0.1")
    dice = random.Random(4)
    try:
        for data in (
            b"\x01\x01\x00\x03",  # shorter than its header
            b"\x07\x01\x00\x10" + bytes(12),  # another version
            b"\x01\x01\xff\xff" + bytes(3000),  # 64 KB announced, the end before
            b"GET / HTTP/1.1\r\nHost: router\r\n\r\n",
            frame(struct.pack("IHHII", 0xfffffff0, NEWROUTE, 0, 0, 0)),  # a message longer than memory
            frame(struct.pack("IHHII", 3, NEWROUTE, 0, 0, 0)),  # and one shorter than itself
            frame(netlink(NEWROUTE, b"\x02")),  # cut off
            frame(netlink(4711, bytes(64))),
            frame(route("198.51.100.0", 55, 7)),  # a prefix length that IPv4 does not have
            frame(route("198.51.100.0", 24, 999_999)),  # an object that nobody has described
            frame(route("198.51.100.0", 24, 0, extra=struct.pack("HH", 0, 1) + bytes(8))),  # an attribute of length 0
            frame(netlink(NEWNEXTHOP, struct.pack("BBBBI", 2, 0, 11, 0, 0) + attribute(1, b"\x09\x00"))),
            frame(netlink(NEWNEXTHOP, struct.pack("BBBBI", 0, 0, 11, 0, 0) + attribute(1, struct.pack("I", 8))
                          + attribute(2, struct.pack("IBBH", 8, 0, 0, 0)))),  # a group that is its own member
            frame(route("198.51.100.0", 24, 8)),
            *(bytes(dice.randrange(256) for _ in range(dice.randrange(1, 4000))) for _ in range(20)),
            *(frame(bytes(dice.randrange(256) for _ in range(dice.randrange(1, 400)))) * 20 for _ in range(10)),
        ):
            fpm.send(good + data)
    finally:
        lost = stream.end()[0]
    assert lost == 0
    seen = faults(router)
    assert seen and sum(seen.values()) > 5, seen
    assert not fib(router, "198.51.100.0/24")
    # Said once per kind, however often it comes.
    quiet = len(router.log.read_text())
    fpm.send(good + b"\x07\x01\x00\x10" + bytes(12), 10)
    again = router.log.read_text()[quiet:]
    assert again.count("FRR has connected") == 10
    # And the next one who speaks sense is understood.
    fpm.send(good, seconds=2)
    assert wait("the route", lambda: fib(router, "198.19.0.0/16") or True)


def test_a_second_connection_does_not_disturb_the_first(place):
    a, r, router, fpm, wan, good = place
    (fpm.folder / "first").write_bytes(good)
    first = r.start(f"python3 {fpm.folder}/client.py {fpm.folder}/first 1 60")
    try:
        wait("the route", lambda: fib(router, "198.19.0.0/16"))
        fpm.send(frame(route("198.19.0.0", 16, 7, DELROUTE)), 3, 1)
        wait("three refused", lambda: router.show("linux")["fpm"]["connections_refused"] == 3)
        assert router.show("linux")["fpm"]["connected"]
        time.sleep(1.5)
        assert fib(router, "198.19.0.0/16")
        ping(a, "198.19.0.1")
    finally:
        first.kill()
        first.wait()
    wait("swept", lambda: not fib(router, "198.19.0.0/16"))


def test_memory_is_flat_over_hundreds_of_sessions_with_a_table(place):
    a, r, router, fpm, wan, good = place
    ping(a, "198.18.2.2")
    routes = [route(f"10.{i >> 8}.{i & 255}.0", 24, 7) for i in range(5000)]
    table = good + b"".join(frame(b"".join(routes[i:i + 100])) for i in range(0, len(routes), 100))
    # A little different each time: other objects for the same routes, as FRR numbers them anew.
    again = table.replace(attribute(30, struct.pack("I", 7)), attribute(30, struct.pack("I", 8)))
    again = again.replace(nexthop(7, "198.18.2.2", wan), nexthop(8, "198.18.2.2", wan))

    def memory():
        status = open(f"/proc/{router.process.pid}/status").read()
        return int(status.split("VmRSS:")[1].split()[0])
    stream = routing.Stream(a, "198.18.2.2")
    fpm.send(table, 20, 0.03)
    fpm.send(again, 20, 0.03)
    wait("all routes", lambda: router.show("linux")["fpm"]["routes"] >= 5000)
    before = memory()
    for _ in range(5):
        fpm.send(table, 20, 0.03)
        fpm.send(again, 20, 0.03)
    sessions = router.show("linux")["fpm"]["sessions"]
    grown = memory() - before
    print(f"{sessions} sessions with 5,000 routes: {before} KiB, grown by {grown} KiB")
    assert sessions > 200 and grown < 4096, (sessions, before, grown)
    wait("all swept", lambda: router.show("linux")["fpm"]["routes"] == 0)
    assert not fib(router, "10.0.0.0/24")
    assert stream.end()[0] == 0
    assert os.path.exists(f"/proc/{router.process.pid}")

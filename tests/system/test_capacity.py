"""Very many routes, and very many times: all are forwarded by, none is left, memory comes back and stays flat."""

import json
import os
import struct
import subprocess
import time

import lab
import routing
from routing import ping, wait
from test_fpm import DELROUTE, attribute, frame, netlink, nexthop, route
from test_vrf import in_red

NEWNEXTHOP = 104


def memory(router):
    """Resident memory in KiB."""
    status = open(f"/proc/{router.process.pid}/status").read()
    return int(status.split("VmRSS:")[1].split()[0])


def state(router):
    """Everything that is made for routes and neighbours, by kind. Neighbours that hosts make of themselves come and go."""
    linux, tables = router.show("linux"), router.show("router")["tables"]
    return {
        "routes of FRR": linux["fpm"]["routes"], "next-hop objects": linux["fpm"]["next_hops"],
        "kernel routes": linux["kernel_routes"], "vrfs": [(v["ip4_routes"], v["ip6_routes"]) for v in router.show("vrfs")["vrfs"]],
        **{kind: tables[kind] for kind in ("actions", "next_hops", "adjacencies", "buckets")},
        "neighbours": sorted((n["interface"], n["address"], n["state"]) for n in router.show("neighbors")["neighbors"]
                             if n["state"] == "static"),
    }


def settled(router, start, seconds=10):
    """Nothing is left that was not there at the start. Hosts may have been forgotten as neighbours meanwhile, and with them
    their adjacencies, next hops and host routes."""
    def same():
        now = state(router)
        less = all(now[kind] <= start[kind] for kind in ("actions", "next_hops", "adjacencies", "buckets"))
        routes = all(a <= b for new, old in zip(now["vrfs"], start["vrfs"]) for a, b in zip(new, old))
        exact = all(now[kind] == start[kind] for kind in ("routes of FRR", "next-hop objects", "kernel routes", "neighbours"))
        return less and routes and exact
    wait("as at the start", same, seconds, show=lambda: f"{state(router)}\n{start}")


def test_hundreds_of_thousands_of_routes_come_and_go_while_packets_flow():
    """`linerate bench capacity`, smaller: the same code, the same bars. It ends with an error where one is not met."""
    done = lab.sh(f"{lab.LINERATE} bench capacity --routes 200k --routes6 100k --json", check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    report = json.loads(done.stdout)
    found = {r["id"].removeprefix("router.capacity."): r for r in report["results"]}
    for what in ("lost", "wrong", "unaccounted", "left"):
        assert found[what]["value"] == 0, (what, report)
    assert found["sent4"]["value"] > 50_000 and found["sent6"]["value"] > 50_000, report
    taken = found["memory.peak"]["max"] - found["memory.before"]["min"]
    kept = found["memory.after"]["max"] - found["memory.before"]["min"]
    print(f"300,000 routes: {taken:.0f} MiB taken, {kept:.1f} kept, "
          f"{found['load']['max']:.1f} s to load, {found['withdraw']['max']:.1f} s to withdraw")
    assert taken > 20 and kept < 0.05 * taken + 16, report


# In the router's namespace: sends files to the FPM port and stays connected until it is told the next.
CLIENT = """
import socket, sys
session = None
for line in sys.stdin:
    word, _, path = line.strip().partition(" ")
    if word == "close":
        session.close()
        session = None
    else:
        session = session or socket.create_connection(("127.0.0.1", 2620), 10)
        session.sendall(open(path, "rb").read())
    print(word, flush=True)
"""


class Zebra:
    """Who stands for zebra."""

    def __init__(self, space, folder):
        self.folder = folder
        (folder / "zebra.py").write_text(CLIENT)
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", space.name, "/usr/bin/python3", str(folder / "zebra.py")], text=True,
            stdin=-1, stdout=-1)

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == word.split()[0]

    def send(self, data):
        (self.folder / "said").write_bytes(data)
        self.say(f"send {self.folder / 'said'}")

    def close(self):
        self.process.kill()
        self.process.wait()


def table_of(count, number, table=254, kind=24, first=0):
    """Messages for so many /24, some to a frame."""
    routes = [route(f"{20 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0", 24, number, kind, table) for i in range(first, first + count)]
    return b"".join(frame(b"".join(routes[i:i + 200])) for i in range(0, len(routes), 200))


def test_a_vrf_loses_a_full_table_and_the_others_do_not_notice(tmp_path):
    """By FRR (`no router bgp … vrf red`), by FRR restarted without it, by `ip route flush table`."""
    count = 300_000
    with lab.hosts("lrc-a", "lrc-b", "lrc-c", "lrc-d") as (a, b, c, d), routing.spaces("lrc-r") as (space,):
        for n, host in enumerate((a, b, c, d), 1):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
        for host in (b, d):
            host.run("ip addr add 198.19.0.1/32 dev lo")
        for host in (b, d):
            host.run("ip addr add 20.0.5.1/32 dev lo")
        ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 1}.1/24"])
                 for i, (name, host) in enumerate((("lan", a), ("wan", b), ("red1", c), ("red2", d)))}
        with routing.linerate(tmp_path, in_red(routing.config(space, ports, hold=2), "red1", "red2"), "lrcvrf",
                              {"no_route", "unreachable"}) as router:
            index = {name: json.loads(space.run(f"ip -j link show {name}").stdout)[0]["ifindex"] for name in ("wan", "red2")}
            zebra = Zebra(space, tmp_path)
            blue = frame(nexthop(7, "198.18.2.2", index["wan"])) + frame(route("198.19.0.0", 16, 7))
            red = frame(nexthop(8, "198.18.4.2", index["red2"]))
            fpm = lambda: router.show("linux")["fpm"]  # noqa: E731

            def routes():
                return {v["name"]: v["ip4_routes"] for v in router.show("vrfs")["vrfs"]}

            def gone(what, seconds, left):
                begin = time.time()
                wait(f"{what}: the routes are gone", lambda: routes()["red"] <= left, seconds, 0.02)
                return time.time() - begin
            try:
                zebra.send(blue)
                wait("the route of the default VRF", lambda: fpm()["routes"] == 1)
                ping(a, "198.19.0.1")
                ping(c, "198.18.4.2")
                before, start, own = memory(router), state(router), routes()["red"]
                stream = routing.Stream(a, "198.19.0.1")
                for round in range(2):
                    zebra.send(red + table_of(count, 8, 100))
                    wait("the whole table", lambda: routes()["red"] == own + count, 30)
                    ping(c, "20.0.5.1")
                    loaded = memory(router)
                    begin = time.time()
                    zebra.send(table_of(count, 0, 100, DELROUTE) + frame(netlink(105, struct.pack("BBBBI", 0, 0, 0, 0, 0)
                                                                                + attribute(1, struct.pack("I", 8)))))
                    gone("withdrawn", 10, own)
                    print(f"{count} routes of a VRF withdrawn in {time.time() - begin:.2f} s")
                    settled(router, start)
                    ping(c, "20.0.5.1", loss=3)
                    # FRR comes back, and has no such VRF any more.
                    zebra.send(red + table_of(count, 8, 100))
                    wait("the whole table", lambda: routes()["red"] == own + count, 30)
                    zebra.say("close")
                    wait("closed", lambda: not fpm()["connected"])
                    zebra.send(blue)
                    wait("swept", lambda: routes()["red"] == own, 20)
                    assert fpm()["swept"] == count
                    settled(router, start)

                # The kernel's: the router's own routes in that table are made again.
                connected = space.run("ip route show table 100").stdout
                assert "198.18.3.0/24" in connected and "198.18.4.0/24" in connected
                (tmp_path / "batch").write_text("".join(
                    f"route add 20.{i >> 8}.{i & 255}.0/24 via 198.18.4.2 dev red2 table 100\n" for i in range(20_000)))
                space.run(f"ip -batch {tmp_path / 'batch'}")
                wait("the kernel's routes", lambda: routes()["red"] == own + 20_000, 20)
                ping(c, "20.0.5.1")
                space.run("ip route flush table 100")
                print(f"20,000 routes of the kernel flushed, gone {gone('flushed', 10, own):.2f} s later")
                wait("connected routes", lambda: space.run("ip route show table 100").stdout == connected, 5)
                space.run("ping -n -c 2 -i 0.2 -W 3 -I red1 198.18.3.2")
                settled(router, start)
                lost, longest = stream.end()
                assert lost == 0, f"{lost} packets of another VRF lost, {longest} ms"
                kept = wait("memory", lambda: (memory(router) - before < 0.1 * (loaded - before) + 8192) and memory(router) - before,
                            10, show=lambda: f"before {before}, loaded {loaded}, now {memory(router)} KiB")
                print(f"memory: {before} KiB before, {loaded} with the table, {kept} more in the end")
            finally:
                zebra.close()


# A cycle in the router's namespace: a session of zebra's with objects, groups and routes in two tables, routes and neighbours
# of the kernel, all of it made and taken back. What a session leaves is for the next one to take over, and in the end swept.
CYCLES = """
import socket, subprocess, sys
tables = [open(path, "rb").read() for path in sys.argv[1].split(",")]
ip = subprocess.Popen(["ip", "-batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
for line in sys.stdin:
    first, count = map(int, line.split())
    for n in range(first, first + count):
        session = socket.create_connection(("127.0.0.1", 2620), 10)
        session.sendall(tables[n % len(tables)])
        for i in range(4):
            ip.stdin.write(f"route add 30.{n & 255}.{i}.0/24 via 198.18.2.{3 + n % 200} dev wan\\n")
            ip.stdin.write(f"route add 2001:db8:30:{n:x}::/64 via 2001:db8:2::{3 + n % 200:x} dev wan metric {1 + i}\\n")
            ip.stdin.write(f"route add 30.{n & 255}.{i}.0/24 via 198.18.4.{3 + n % 200} dev red2 table 100\\n")
            ip.stdin.write(f"neigh replace 198.18.2.{3 + (n + i) % 200} lladdr 02:00:00:00:{n & 255:02x}:{i:02x} dev wan nud permanent\\n")
        ip.stdin.flush()
        for i in range(4):
            ip.stdin.write(f"route del 30.{n & 255}.{i}.0/24 dev wan\\n")
            ip.stdin.write(f"route del 2001:db8:30:{n:x}::/64 dev wan metric {1 + i}\\n")
            ip.stdin.write(f"route del 30.{n & 255}.{i}.0/24 dev red2 table 100\\n")
            ip.stdin.write(f"neigh del 198.18.2.{3 + (n + i) % 200} dev wan\\n")
        ip.stdin.flush()
        # Until the router has read it all it does not close; then it has.
        session.shutdown(socket.SHUT_WR)
        session.recv(1)
        session.close()
    print("done", flush=True)
# It ends at the first thing that the kernel refuses.
ip.stdin.close()
print("end", ip.wait(), flush=True)
"""


def group(number, members):
    body = struct.pack("BBBBI", 0, 0, 11, 0, 0) + attribute(1, struct.pack("I", number))
    return netlink(NEWNEXTHOP, body + attribute(2, b"".join(struct.pack("IBBH", m, w, 0, 0) for m, w in members)))


def test_memory_is_flat_over_a_thousand_cycles(tmp_path):
    cycles, chunk = 1000, 50
    with lab.hosts("lrc-a", "lrc-b", "lrc-c", "lrc-d") as (a, b, c, d), routing.spaces("lrc-r") as (space,):
        for n, host in enumerate((a, b, c, d), 1):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
            host.address(f"2001:db8:{n}::2/64", f"2001:db8:{n}::1")
        ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 1}.1/24", f"2001:db8:{i + 1}::1/64"])
                 for i, (name, host) in enumerate((("lan", a), ("wan", b), ("red1", c), ("red2", d)))}
        with routing.linerate(tmp_path, in_red(routing.config(space, ports, hold=1), "red1", "red2"), "lrccyc",
                              {"no_route", "unreachable", "resolve_failed"}) as router:
            index = {name: json.loads(space.run(f"ip -j link show {name}").stdout)[0]["ifindex"] for name in ("wan", "red2")}
            ping(a, "198.18.2.2")
            ping(c, "198.18.4.2")
            paths = []
            # Sessions of different sizes, with the same numbers for other objects each time.
            for n, size in enumerate((700, 10, 300, 0, 1200)):
                objects = [nexthop(1 + i, f"198.18.2.{10 + (i + n) % 30}", index["wan"]) for i in range(20)]
                objects += [nexthop(101 + i, f"198.18.4.{10 + (i + n) % 30}", index["red2"]) for i in range(20)]
                objects += [group(201 + i, [(1 + (i * 3 + n) % 20, 1), (1 + (i * 7 + 1) % 20, 2 + n)]) for i in range(10)]
                data = b"".join(map(frame, objects))
                data += table_of(size, 1 + n) + table_of(size // 2, 205, first=2000) + table_of(size // 3, 103, 100)
                paths.append(tmp_path / f"table{n}")
                paths[-1].write_bytes(data)
            (tmp_path / "cycles.py").write_text(CYCLES)
            start = state(router)
            stream = routing.Stream(a, "198.18.2.2")
            runner = subprocess.Popen(
                ["ip", "netns", "exec", space.name, "/usr/bin/python3", str(tmp_path / "cycles.py"), ",".join(map(str, paths))],
                text=True, stdin=-1, stdout=-1)
            begin, seen = time.time(), []
            try:
                for first in range(0, cycles, chunk):
                    runner.stdin.write(f"{first} {chunk}\n")
                    runner.stdin.flush()
                    assert runner.stdout.readline() == "done\n"
                    wait("all sessions", lambda end=first + chunk: router.show("linux")["fpm"]["sessions"] == end, 10, 0.02)
                    seen.append(memory(router))
                runner.stdin.close()
                assert runner.stdout.readline() == "end 0\n"
            finally:
                runner.kill()
                runner.wait()
            print(f"{cycles} cycles in {time.time() - begin:.1f} s; memory by {chunk}: {seen} KiB")
            # What stays at most: the tables of one session, whatever came before. The largest of each five are alike.
            quarter = len(seen) // 4
            early, late = max(seen[:quarter]), max(seen[-quarter:])
            assert late - early < 1024, f"memory grew by {late - early} KiB over {cycles} cycles: {seen}"
            settled(router, start, 30)
            assert stream.end()[0] == 0
            ping(a, "198.18.2.2")
            ping(c, "198.18.4.2")


def test_memory_is_flat_when_a_tap_is_deleted_a_hundred_times(tmp_path):
    with lab.hosts("lrc-a", "lrc-b") as (a, b), routing.spaces("lrc-r") as (space,):
        for n, host in enumerate((a, b), 1):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
        ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 1}.1/24"])
                 for i, (name, host) in enumerate((("lan", a), ("wan", b)))}
        with routing.linerate(tmp_path, routing.config(space, ports), "lrctap", {"no_route", "unreachable"}) as router:
            ping(a, "198.18.2.2")

            def index():
                found = space.run("ip -j link show wan", check=False).stdout
                return json.loads(found)[0]["ifindex"] if found.startswith("[") else None

            def whole():
                return index() and "198.18.2.1/24" in space.run("ip addr show wan", check=False).stdout
            start, begin, seen = state(router), time.time(), []
            open_files = lambda: len(os.listdir(f"/proc/{router.process.pid}/fd"))  # noqa: E731
            descriptors = open_files()
            for n in range(100):
                old = wait("the tap", whole, 5, 0.01) and index()
                space.run("ip link del wan")
                wait("another tap", lambda old=old: index() not in (None, old), 5, 0.01)
                if n % 5 == 4:
                    seen.append(memory(router))
            print(f"100 taps in {time.time() - begin:.1f} s; memory: {seen} KiB")
            settled(router, start)
            quarter = len(seen) // 4
            assert max(seen[-quarter:]) - max(seen[:quarter]) < 1024, seen
            # One more for as long as the API closes a connection.
            wait("open files as at the start", lambda: open_files() <= descriptors, 5, show=open_files)
            ping(a, "198.18.2.2")
            space.run("ping -n -c 2 -i 0.2 -W 3 198.18.2.2")

"""What others have got wrong in public between control and packets: prefixes that cannot be, neighbours that Linux gives up,
routes that change under load, traces and floods at load, and packets lost without a name.
"""

import json
import socket
import threading
import time

import pytest
from scapy.all import IP, UDP, Ether, IPv6, Raw

import bench
import lab
import routing
from bench import A4, A6, B4, OUR4, PAIR, UP, error4, interface, ours, routed
from routing import wait
from test_bugs_neighbours import ALL, advertisement, asks4, asks6, known, reply, request, solicitation
from test_fpm import CLIENT, attribute, frame, netlink, nexthop, route

U = UDP(sport=4001, dport=4002)
TEXT = interface("in", "in", 1) + interface("lan", "out", 3, known=False) + """
[[route]]
prefix = "10.2.0.0/16"
via = "198.18.3.2"

[[neighbor]]
interface = "lan"
address = "198.18.3.2"
mac = "02:aa:00:00:03:02"
"""


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A router with Linux and an FPM above it; who speaks on the wires are Linux and the test."""
    folder = tmp_path_factory.mktemp("control")
    with routing.spaces("lrbc-r") as (linux,):
        text = TEXT + f'\n[linux]\nnamespace = "{linux.name}"\nfpm = "127.0.0.1:2620"\nhold_seconds = 1\n\n[linux.punt]\nlocal = 1000\n'
        with bench.bench(folder, "lrbc", ["in", "out"], text) as running:
            running.linux, running.folder = linux, folder
            (folder / "client.py").write_text(CLIENT)
            yield running


def fpm(running, data, seconds=0.2):
    """Sends over FPM as FRR would, and hangs up after so long."""
    (running.folder / "data").write_bytes(data)
    return running.linux.start(f"python3 {running.folder}/client.py {running.folder}/data 1 {seconds}")


def faults(running):
    return sum(f["count"] for f in running.get("linux")["faults"])


def routes6(address, length, gateway):
    """A route of IPv6 over FPM."""
    body = bytes([10, length, 0, 0, 254, 186, 0, 1]) + bytes(4) + attribute(1, socket.inet_pton(socket.AF_INET6, address))
    return netlink(24, body + attribute(5, socket.inet_pton(socket.AF_INET6, gateway)))


def routes4(address, length, gateway):
    return route(address, length, 0, extra=attribute(5, socket.inet_aton(gateway)))


class TestPrefixLengths:
    """FDio/vpp e7f34c93: prefix length 55 for IPv4 ended the process."""

    @pytest.mark.parametrize("old, new, said", [
        ('prefix = "10.2.0.0/16"', 'prefix = "10.2.0.0/55"', "10.2.0.0/55"),
        ('prefix = "2001:db8:f002::/48"', 'prefix = "2001:db8:f002::/129"', "2001:db8:f002::/129"),
        ('"198.18.1.1/24"', '"198.18.1.1/55"', "198.18.1.1/55"),
        ('"2001:db8:1::1/64"', '"2001:db8:1::1/200"', "2001:db8:1::1/200"),
        ('prefix = "10.2.0.0/16"', 'prefix = "10.2.0.0/-1"', "10.2.0.0/-1"),
    ])
    def test_in_the_configuration(self, tmp_path, old, new, said):
        text = bench.HEAD.format(prefix="lrbx", socket=tmp_path / "s", cpu=lab.CPU)
        text += "".join(bench.port(name, at, 1500) for at, name in enumerate(("in", "out"))) + PAIR
        line = text[:text.index(old)].count("\n") + 1
        (tmp_path / "bad.toml").write_text(text.replace(old, new, 1))
        done = lab.sh(f"{lab.LINERATE} check {tmp_path}/bad.toml", check=False)
        assert done.returncode == 3 and f"bad.toml:{line}" in done.stderr and said in done.stderr, done.stderr

    @pytest.mark.parametrize("key, value", [("acl", "permit ip 10.0.0.0/55 any"), ("rib", "10.0.0.0/55 198.18.2.2")])
    def test_in_lists_and_files(self, tmp_path, key, value):
        text = bench.HEAD.format(prefix="lrbx", socket=tmp_path / "s", cpu=lab.CPU)
        text += "".join(bench.port(name, at, 1500) for at, name in enumerate(("in", "out"))) + PAIR
        (tmp_path / "file").write_text(f"# a line\n{value}\n")
        text += f'\n[[rib]]\nfile = "{tmp_path}/file"\n' if key == "rib" else f'\n[[acl]]\nname = "a"\nrules_file = "{tmp_path}/file"\n'
        (tmp_path / "bad.toml").write_text(text)
        done = lab.sh(f"{lab.LINERATE} check {tmp_path}/bad.toml", check=False)
        assert done.returncode == 3 and "file:2" in done.stderr and "10.0.0.0/55" in done.stderr, done.stderr

    @pytest.mark.parametrize("prefix", ["10.2.0.0/55", "10.2.0.0/-1", "10.2.0.0/4294967296", "2001:db8::/129"])
    def test_in_questions(self, joined, prefix):
        status, answer = joined.api.ask(f"/v1/routes?prefix={prefix}")
        assert status == 400 and "prefix" in answer["error"], answer
        done = joined.instance.cli(f"show routes {prefix}", check=False)
        assert done.returncode not in (0, 101) and prefix in done.stderr + done.stdout, done
        joined.check_alive()

    @pytest.mark.parametrize("length", [33, 55, 128, 255])
    def test_over_fpm(self, joined, length):
        before = faults(joined)
        good = routes4("198.51.100.0", 24, "198.18.3.2")
        bad = [routes4("203.0.113.0", length, "198.18.3.2"), netlink(25, routes4("203.0.113.0", length, "198.18.3.2")[16:])]
        if length > 128:
            bad += [routes6("2001:db8:bad::", length, "2001:db8:3::2")]
        client = fpm(joined, frame(b"".join(bad)) + frame(good), 1)
        wait("what is sound is taken in", lambda: joined.get("routes?prefix=198.51.100.0/24")["routes"])
        wait("what is not is counted, each of it", lambda: faults(joined) - before == len(bad), show=lambda: joined.get("linux")["faults"])
        client.wait(10)
        wait("swept", lambda: not joined.get("routes?prefix=198.51.100.0/24")["routes"])
        assert not [r for r in joined.get("routes?limit=1000")["routes"] if r["prefix"].startswith(("203.0.113", "2001:db8:bad"))]


def heard(wire, is_wanted, seconds=5.0):
    """The first such frame."""
    end = time.monotonic() + seconds
    seen = []
    while time.monotonic() < end:
        for got in wire.receive(1, 0.2):
            if is_wanted(got):
                return got
            seen.append(Ether(got).summary())
    raise AssertionError(f"not heard: {seen}")


@pytest.mark.parametrize("address", ["198.18.3.20", "2001:db8:3::20"])
def test_a_neighbour_that_linux_gives_up_is_not_used_any_more(joined, address):
    """danos/vyatta-dataplane b9fb2222: the kernel said NUD_FAILED, and packets went to the old station for ever."""
    v6, wire = ":" in address, joined.wires["out"]
    old, new = "02:aa:00:00:03:20", "02:aa:00:00:03:21"
    question = asks6(address, 3) if v6 else asks4(address, 3)
    packet = UP / IPv6(src=A6, dst=address) / U if v6 else UP / IP(src=A4, dst=address) / U

    def through(mac):
        return bytes(Ether(src=ours(3), dst=mac))[:12] + routed(packet, 3)[12:]

    def answer(mac):
        return advertisement(address, mac, "2001:db8:3::1", ours(3), R=0) if v6 else reply(address, mac, "198.18.3.1", ours(3))
    # It makes itself known, is used, and Linux hears of it.
    asks = solicitation(address, old, "2001:db8:3::1") if v6 else request(address, old, "198.18.3.1")
    told = advertisement("2001:db8:3::1", ours(3), address, old) if v6 else reply("198.18.3.1", ours(3), address, old)
    wire.receive(0)
    wire.send([asks])
    heard(wire, lambda f: f == bytes(told))
    joined.wires["in"].send([packet])
    heard(wire, lambda f: f == through(old))
    wait("Linux knows it", lambda: old in joined.linux.run(f"ip neigh show {address} dev lan").stdout)
    wire.receive(0)
    # Linux gives it up: the question goes to all at once, a packet waits, and leaves to where the answer says.
    joined.linux.run(f"ip neigh change {address} lladdr {old} dev lan nud failed")
    heard(wire, lambda f: f == question)
    assert known(joined, address)[0][1:] in [(None, "incomplete"), ("", "incomplete")]
    joined.wires["in"].send([packet])
    wire.send([answer(new)])
    heard(wire, lambda f: f == through(new))
    wait("Linux knows that", lambda: new in joined.linux.run(f"ip neigh show {address} dev lan").stdout)
    time.sleep(0.5)
    assert [entry[1:] for entry in known(joined, address)] == [(new, "reachable")], "and it stays so"
    # One that was set by hand, and is given up.
    joined.linux.run(f"ip neigh replace {address} lladdr {old} dev lan nud permanent")
    wait("static", lambda: [entry[1:] for entry in known(joined, address)] == [(old, "static")])
    joined.linux.run(f"ip neigh change {address} lladdr {old} dev lan nud failed")
    wait("no longer", lambda: not [1 for entry in known(joined, address) if entry[1] == old])


LISTEN = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 4002))
s.settimeout(5)
print("ready", flush=True)
for _ in range(2): print(s.recvfrom(100), flush=True)
"""


def test_broadcasts_of_the_network_reach_linux(joined):
    """They come in frames for all stations, as those for 255.255.255.255 do, and are for daemons."""
    (joined.folder / "listen.py").write_text(LISTEN)
    listener = joined.linux.start(f"python3 {joined.folder}/listen.py")
    try:
        assert "ready" in listener.stdout.readline()
        for to in ("198.18.1.255", "255.255.255.255"):
            joined.wires["in"].send([Ether(src=UP.src, dst=ALL) / IP(src=A4, dst=to) / U / Raw(to.encode())])
            assert f"(b'{to}', ('{A4}', 4001))" in listener.stdout.readline()
    finally:
        listener.kill()
        listener.wait()
    # Not those of another network: nobody's amplifier.
    before = joined.counters()[2].get("l2_broadcast_unicast_ip", 0)
    joined.wires["in"].send([Ether(src=UP.src, dst=ALL) / IP(src=A4, dst="198.18.3.255") / U])
    wait("dropped", lambda: joined.counters()[2].get("l2_broadcast_unicast_ip", 0) == before + 1)


def transit(count, start=0):
    """Packets of many flows, and what must come of each."""
    frames = [UP / IP(src=A4, dst=f"10.2.{i >> 8 & 255}.{i & 255}", id=i & 0xffff) / UDP(sport=i & 0xffff, dport=9)
              for i in range(start, start + count)]
    return [bytes(f) for f in frames], [routed(f, 3) for f in frames]


def test_routes_change_under_load(joined):
    """FDio/vpp issue 3692: tens of thousands of changes a second, and the lookup crashed. All else loses nothing."""
    # More and less specific routes beside the one that is used, and others far away; all come and go.
    def framed(messages):
        return b"".join(frame(b"".join(messages[n:n + 200])) for n in range(0, len(messages), 200))

    def deleted(messages):
        return [netlink(25, m[16:]) for m in messages]
    long = [routes4(f"10.3.{i >> 8}.{i & 255}", 32, "198.18.3.2") for i in range(10_000)]
    wide = [routes4("10.0.0.0", 8, "198.18.3.77"), routes4("10.2.0.0", 15, "198.18.3.77")]
    changes = framed(long) + framed(wide) + framed(deleted(long)) + framed(deleted(wide))
    frames, wanted = transit(200)
    out = joined.wires["out"]
    out.receive(0)
    client = fpm(joined, changes * 12, 1)
    sent = 0
    got = []
    want = set(wanted)
    try:
        while client.poll() is None:
            joined.wires["in"].send(frames)
            sent += len(frames)
            got += [f for f in out.receive(len(frames), 1.0) if f in want]
    finally:
        client.wait(60)
    got += [f for f in out.receive(1, 0.3) if f in want]
    print(f"{sent} packets while 240,000 routes came and went: {joined.get('linux')['fpm']}")
    assert sent > 2000 and len(got) == sent, (sent, len(got))
    assert all(got.count(f) == sent // len(frames) for f in wanted)


def test_long_prefixes_come_and_go_without_end(joined):
    """DPDK/grout 3cb98b27: routes longer than /24, added and deleted, used up the table's second level. cc48b6ac: a next hop that
    goes with all its routes was walked after it was gone."""
    index = json.loads(joined.linux.run("ip -j link show lan").stdout)[0]["ifindex"]

    def learned():
        return sum(c["routes"] for c in joined.get("fib")["fibs"][0]["sources"] if c["source"] == "learned")
    wait("what earlier tests have told is swept", lambda: learned() == 0)

    def one(i):
        """A /32; now and then the /29 around it."""
        address = f"10.{64 + (i >> 15)}.{i >> 7 & 255}.{i & 127}"
        return route(address, 32, 7) if i % 3 else route(address, 29, 7) if not i & 7 else b""
    many = b"".join(frame(b"".join(map(one, range(n, n + 300)))) for n in range(0, 60_000, 300))
    hop = frame(nexthop(7, "198.18.3.2", index))
    sizes = []
    for _ in range(2):
        # The routes are not deleted one by one: their next hop goes, and then FRR, which gets ten seconds to come back.
        client = fpm(joined, hop + many, 5)
        wait("all are there", lambda: learned() > 40_000)
        packet = UP / IP(src=A4, dst="10.64.2.1") / U
        joined.wires["out"].receive(0)
        joined.wires["in"].send([packet])
        heard(joined.wires["out"], lambda f: f == routed(packet, 3))
        begin = time.monotonic()
        client.kill()
        client.wait()
        wait("all are gone", lambda: learned() == 0, 25)
        sizes.append((joined.get("fib")["fibs"][0]["lookup_bytes"], round(time.monotonic() - begin, 1)))
    print(f"FIB bytes and seconds (one of them the hold time) after each withdrawal: {sizes}")
    assert sizes[-1][0] <= sizes[0][0] * 1.05, sizes


def via6(prefix, length, gateway, index):
    """An IPv4 route by an IPv6 gateway (RFC 8950) over FPM: RTA_VIA."""
    there = attribute(18, (10).to_bytes(2, "little") + socket.inet_pton(socket.AF_INET6, gateway))
    return route(prefix, length, 0, extra=there + attribute(4, index.to_bytes(4, "little")))


def test_gateways_of_the_other_family_are_told_apart(joined):
    """FRRouting/frr pull request 9602, DPDK/grout 9388228e: IPv6 gateways of IPv4 routes were cut to four bytes, which link-local
    addresses have in common, and those with an IPv4 address in their tail were merged with it."""
    index = json.loads(joined.linux.run("ip -j link show lan").stdout)[0]["ifindex"]
    gateways = {"10.5.0.0": "fe80::c612:302", "10.6.0.0": "fe80::1", "10.7.0.0": "2001:db8:3::c612:302"}
    client = fpm(joined, frame(b"".join(via6(net, 16, gateway, index) for net, gateway in gateways.items())), 8)
    out = joined.wires["out"]
    try:
        for n, (net, gateway) in enumerate(gateways.items()):
            wait("the route", lambda p=net: joined.get(f"routes?prefix={p}/16")["routes"])
            mac = f"02:aa:00:00:04:{n:02x}"
            # Only it is asked, and only its answer counts.
            asks = solicitation(gateway, mac, "fe80::ff:fe00:301" if gateway.startswith("fe80") else "2001:db8:3::1")
            out.send([asks])
            wait("known", lambda g=gateway, m=mac: [e[1] for e in known(joined, g)] == [m])
        for n, net in enumerate(gateways):
            packet = UP / IP(src=A4, dst=net[:-1] + "9") / U
            joined.wires["in"].send([packet])
            mac = f"02:aa:00:00:04:{n:02x}"
            heard(out, lambda f, p=packet, m=mac: f == bytes(Ether(src=ours(3), dst=m))[:12] + routed(p, 3)[12:])
        # What needs no gateway of the other family goes where it always went.
        packet = UP / IP(src=A4, dst="10.2.0.9") / U
        joined.wires["in"].send([packet])
        heard(out, lambda f: f == routed(packet, 3))
    finally:
        client.kill()
        client.wait()


def test_traces_and_a_flood_for_linux_at_load(joined):
    """DPDK/grout 1c843873, 914aca70: a trace under load kept a worker for ever, and a flood for the control plane took buffers that
    never came back. Here both at once: every packet in transit leaves as it should, every other one has a name."""
    frames, wanted = transit(150, 1000)
    flood = [bytes(UP / IP(src=A4, dst=OUR4, id=i & 0xffff) / UDP(sport=5000 + i % 50, dport=7) / Raw(bytes(400))) for i in range(450)]
    stop, hops = threading.Event(), []

    def trace():
        while not stop.is_set():
            status, answer = bench.Api(joined.instance.socket).ask("/v1/trace", {"packets": 100, "wait_ms": 200})
            hops.append((status, len(answer.get("packets", answer))))
    tracer = threading.Thread(target=trace)
    before, out = joined.counters(), joined.wires["out"]
    out.receive(0)
    tracer.start()
    rounds, want, got = 40, set(wanted), []
    try:
        for _ in range(rounds):
            joined.wires["in"].send([f for i, one in enumerate(frames) for f in (one, *flood[3 * i:3 * i + 3])])
            got += [f for f in out.receive(len(frames), 1.0) if f in want]
    finally:
        stop.set()
        tracer.join()
    got += [f for f in out.receive(1, 0.3) if f in want]
    assert len(got) == rounds * len(frames) and set(got) == want
    assert len(hops) >= 3 and {status for status, _ in hops} == {200}, hops
    _, drops = joined.instance.at_rest()
    change = {k: n - before[2].get(k, 0) for k, n in drops.items()}
    flooded = sum(change.get(reason, 0) for reason in ("punted", "punt_policed", "punt_queue_full"))
    # Linux hears a little else on its taps.
    assert rounds * len(flood) <= flooded < rounds * len(flood) + 100, change
    assert change.get("punt_policed", 0) > 0, change
    joined.check_alive()


def test_an_idle_worker_counts_its_first_packet(joined):
    """openvswitch/ovs 8523ee2f: what was lost while nothing else came was not counted."""
    for _ in range(3):
        time.sleep(0.7)
        before = joined.counters()
        joined.wires["in"].send([UP / IP(src=A4, dst="10.2.0.1", ttl=1, proto=1) / Raw(b"\x03")])
        wait("counted", lambda b=before: joined.counters()[2].get("ttl_expired", 0) == b[2].get("ttl_expired", 0) + 1, 2)


def test_what_a_port_does_not_send_is_counted(tmp_path):
    """openvswitch/ovs c98762d9, githedgehog/dataplane 349080d9: lost without a trace where the queue was full or the port down."""
    with bench.bench(tmp_path, "lrbd", ["in", "out"], PAIR) as router:
        packets = [UP / IP(src=A4, dst=B4, id=i) / U for i in range(50)]
        router.check({"in": packets}, {"out": [routed(p) for p in packets]})
        router.space.run("ip link set wire-out down")
        wait("down", lambda: not router.ports()["out"]["up"])
        wait("its routes are gone", lambda: not [r for r in router.get("routes")["routes"] if r["prefix"] == "198.18.2.0/24" and r.get("paths")])
        # There is no way any more, and every sender is told.
        router.check({"in": packets}, {"in": [error4(p, 3, 1) for p in packets]})
        router.space.run("ip link set wire-out up")
        wait("up", lambda: router.ports()["out"]["up"])
        wait("its routes", lambda: [r for r in router.get("routes")["routes"] if r["prefix"] == "10.2.0.0/16" and r.get("paths")])
        router.check({"in": packets}, {"out": [routed(p) for p in packets]})
        # Packets on their way while it goes down and up: sent, or lost with a name, or answered.
        before, count = router.counters(), 0
        for state in ("down", "up") * 4:
            router.wires["in"].send(packets)
            router.space.run(f"ip link set wire-out {state}")
            router.wires["in"].send(packets)
            count += 2 * len(packets)
        ports, drops = router.instance.at_rest()
        assert ports["in"]["rx"]["packets"] - before[0]["in"] == count
        lost = {k: n - before[2].get(k, 0) for k, n in drops.items() if n > before[2].get(k, 0)}
        print(f"lost while a port went down and up: {lost}")
        # Before its link is known to be down, a device takes less than it is given.
        assert lost.get("tx_full", 0) > 0, lost
        assert set(lost) <= {"tx_full", "tx_port_down", "adjacency_gone", "unreachable"}, lost
        gone = ports["out"]["tx"]["packets"] + ports["in"]["tx"]["packets"] - before[1]["out"] - before[1]["in"] + sum(lost.values())
        assert gone == count, (gone, count, lost)

"""Linux above linerate: routes, addresses, links and neighbours set by iproute2; sockets of the router itself."""

import json
import re
import time

import pytest

import lab
import routing
from routing import fib, ping, wait


# What the tests provoke; while a tap is made anew packets wait for its neighbours.
LOSSES = {"route_blackhole", "no_route", "interface_down", "neighbor_queue_full"}

# An address of the router on its loopback, from before linerate starts.
EARLY = "2001:db8:fffe::1"


@pytest.fixture
def place(tmp_path):
    """A host a on `lan`, hosts b and c on `wan` and `dmz`, and the namespace r of the router."""
    with lab.hosts("lrk-a", "lrk-b", "lrk-c") as hosts, routing.spaces("lrk-r") as (r,):
        ports = {}
        for i, (name, host) in enumerate(zip(("lan", "wan", "dmz"), hosts), 1):
            host.address(f"198.18.{i}.2/24", f"198.18.{i}.1")
            host.address(f"2001:db8:{i}::2/64", f"2001:db8:{i}::1")
            # The driver puts fragments together, so that it needs room for more than one frame.
            ports[name] = (routing.device(host.outside, i, 10240), [f"198.18.{i}.1/24", f"2001:db8:{i}::1/64"])
        for host in hosts[1:]:
            host.run("ip addr add 198.19.0.1/32 dev lo")
            host.run("ip addr add 2001:db8:1000::1/128 dev lo nodad")
        r.run(f"ip addr add {EARLY}/128 dev lo nodad")
        with routing.linerate(tmp_path, routing.config(r, ports, buffer=10240), "lrkern", LOSSES) as router:
            yield *hosts, r, router


def interface(router, name):
    return next(i for i in router.show("interfaces")["interfaces"] if i["name"] == name)


def addresses(space, device):
    return [f"{a['local']}/{a['prefixlen']}" for a in json.loads(space.run(f"ip -j addr show {device}").stdout)[0]["addr_info"]]


def link_local(space, device):
    return next((a.split("/")[0] for a in addresses(space, device) if a.startswith("fe80")), None)


# What the sender must be told, by the kind of the route; nothing of a blackhole.
DROPS = [("198.19.0.0/24", "198.19.0.1", {"blackhole": None, "unreachable": "Destination Host Unreachable",
                                          "prohibit": "Packet filtered"}, "Destination Net Unreachable"),
         ("2001:db8:1000::/48", "2001:db8:1000::1", {"blackhole": None, "unreachable": "Address unreachable",
                                                     "prohibit": "Administratively prohibited"}, "No route")]


def test_routes_added_replaced_and_deleted(place):
    a, b, c, r, router = place
    for prefix, target, kinds, nothing in DROPS:
        v6 = ":" in prefix
        via = {host: f"via {'2001:db8:%d::2' % n if v6 else '198.18.%d.2' % n} dev {dev}"
               for host, n, dev in ((b, 2, "wan"), (c, 3, "dmz"))}
        assert nothing in ping(a, target, 1, loss=1)
        r.run(f"ip route add {prefix} {via[b]}")
        wait("the route", lambda: fib(router, prefix))
        assert fib(router, prefix)[0]["source"] == "kernel"
        ping(a, target)
        for kind, told in kinds.items():
            r.run(f"ip route del {prefix}")
            r.run(f"ip route add {kind} {prefix}")
            wait(kind, lambda k=kind: [x["action"] for x in fib(router, prefix)] == [k])
            out = ping(a, target, 2, "-i 0.2 -W 1", loss=2)
            assert told in out if told else "rom" not in out.split("\n", 1)[1], out
        r.run(f"ip route replace {prefix} {via[b]} metric 50")
        r.run(f"ip route del {kind} {prefix} {'metric 1024' if v6 else ''}")
        wait("what had stood by forwards", lambda: [x["action"] for x in fib(router, prefix)] == ["forward"])
        # A better metric takes over, and gives back when it goes.
        r.run(f"ip route add {prefix} {via[c]} metric 10")
        for device, change in (("dmz", None), ("wan", f"ip route del {prefix} metric 10")):
            if change:
                r.run(change)
            wait(f"by {device}", lambda d=device: [p["interface"] for p in fib(router, prefix)[0]["paths"]] == [d])
            ping(a, target)
        r.run(f"ip route del {prefix} metric 50")
        wait("none", lambda: not fib(router, prefix))
        assert nothing in ping(a, target, 1, loss=1)


@pytest.mark.parametrize("target, prefix, net", [("198.19.0.1", "198.19.0.0/24", "198.18.{}.2"),
                                                 ("2001:db8:1000::1", "2001:db8:1000::/48", "2001:db8:{}::2")])
def test_multipath_routes_spread_by_weight(place, target, prefix, net):
    a, b, c, r, router = place
    hops = [f"nexthop via {net.format(n)} dev {dev} weight {w}" for n, dev, w in ((2, "wan", 1), (3, "dmz", 3))]
    r.run(f"ip route add {prefix} {' '.join(hops)}")
    wait("two paths", lambda: fib(router, prefix) and len(fib(router, prefix)[0]["paths"]) == 2)
    ping(a, target)
    before = routing.received(b), routing.received(c)
    routing.flows(a, target, 1200)

    def shares():
        got = [routing.received(h) - n for h, n in zip((b, c), before)]
        return got if sum(got) >= 1180 else None
    got = wait("the flows", shares)
    assert abs(got[0] / sum(got) - 0.25) < 0.05, got


def test_very_many_routes_at_once(place, tmp_path):
    """More than the kernel's messages have room for: what is lost on the way is asked for again."""
    a, b, _, r, router = place
    ping(a, "198.18.2.2")
    stream = routing.Stream(a, "198.18.2.2")
    before = router.show("linux")["kernel_routes"]
    prefixes = [f"10.{i >> 8}.{i & 255}.0/24" for i in range(30_000)]
    for change, expected in (("add", len(prefixes)), ("replace", len(prefixes)), ("del", 0)):
        hop = "" if change == "del" else f" via 198.18.{2 if change == 'add' else 3}.2"
        (tmp_path / "batch").write_text("".join(f"route {change} {p}{hop}\n" for p in prefixes))
        r.run(f"ip -batch {tmp_path}/batch")
        wait(f"{change}", lambda e=expected: router.show("linux")["kernel_routes"] == before + e, 30)
        wait("the last one", lambda e=expected: bool(fib(router, prefixes[-1])) == bool(e))
        if expected:
            device = "wan" if change == "add" else "dmz"
            assert all(fib(router, p)[0]["paths"][0]["interface"] == device for p in prefixes[::5000])
    assert stream.end()[0] == 0


def test_addresses_of_taps_and_of_the_loopback(place):
    a, b, _, r, router = place
    # Another network on an interface.
    a.run("ip addr add 198.18.9.2/24 dev eth0")
    r.run("ip addr add 198.18.9.1/24 dev lan")
    wait("connected", lambda: fib(router, "198.18.9.0/24"))
    ping(a, "198.18.9.1", options="-i 0.1 -W 3 -I 198.18.9.2")
    r.run("ip addr del 198.18.9.1/24 dev lan")
    wait("gone", lambda: not fib(router, "198.18.9.0/24"))
    # The last IPv4 address of an interface: its network is gone, IPv6 is not; all comes back with it.
    ping(a, "198.18.2.2")
    r.run("ip addr del 198.18.2.1/24 dev wan")
    wait("no network", lambda: not fib(router, "198.18.2.0/24") and not fib(router, "198.18.2.1/32"))
    assert "Net Unreachable" in ping(a, "198.18.2.2", 1, loss=1)
    ping(a, "2001:db8:2::2")
    r.run("ip addr add 198.18.2.1/24 dev wan")
    wait("the network again", lambda: fib(router, "198.18.2.0/24"))
    ping(a, "198.18.2.2")
    # Addresses of the router as such.
    for address in ("198.51.100.1/32", "2001:db8:ffff::1/128"):
        target = address.split("/")[0]
        r.run(f"ip addr add {address} dev lo")
        wait("local", lambda x=address: fib(router, x))
        ping(a, target)
        ping(b, target)
        r.run(f"ip addr del {address} dev lo")
        wait("no longer", lambda x=address: not fib(router, x))
        ping(a, target, 1, loss=1)


def test_links_set_down_and_up_mtu_and_mac(place):
    a, b, _, r, router = place
    ping(a, "198.18.2.2")
    before = addresses(r, "wan")
    own = link_local(r, "wan")
    ping(b, f"{own}%eth0")
    r.run("ip link set wan down")
    wait("down", lambda: not interface(router, "wan")["admin_up"])
    ping(a, "198.18.2.2", 2, "-i 0.1 -W 1", loss=2)
    r.run("ip link set wan up")
    wait("up", lambda: interface(router, "wan")["admin_up"])
    wait("all addresses, the link-local one too", lambda: sorted(addresses(r, "wan")) == sorted(before))
    for target in ("198.18.2.2", "2001:db8:2::2"):
        ping(a, target)
    ping(b, f"{own}%eth0")
    r.run("ip link set wan mtu 1300")
    wait("MTU", lambda: interface(router, "wan")["mtu"] == 1300)
    for target in ("198.18.2.2", "2001:db8:2::2"):
        out = ping(a, target, 1, "-M do -s 1400 -W 2", loss=1)
        assert re.search(r"mtu ?= ?1300", out), out
    r.run("ip link set wan mtu 1500")
    wait("MTU", lambda: interface(router, "wan")["mtu"] == 1500)
    a.run("ip route flush cache")
    a.run("ip -6 route flush cache")
    for target in ("198.18.2.2", "2001:db8:2::2"):
        ping(a, target, options="-M do -s 1400 -W 2 -i 0.1")
    r.run("ip link set wan address 02:00:00:00:09:99")
    wait("MAC", lambda: interface(router, "wan")["mac"] == "02:00:00:00:09:99")
    for address in ("198.18.2.1", "2001:db8:2::1"):
        b.run(f"ip neigh flush to {address}")
    for target in ("198.18.2.2", "2001:db8:2::2"):
        ping(a, target)
    assert "02:00:00:00:09:99" in b.run("ip neigh show 198.18.2.1").stdout


def test_a_tap_that_is_deleted_comes_back_with_all_it_had(place):
    a, b, _, r, router = place
    # Linux has a route of its own to this one, by the loopback, which it listed after the addresses.
    wait("local from the start", lambda: [x["action"] for x in fib(router, EARLY + "/128")] == ["local"])
    ping(a, EARLY)
    r.run("ip addr add 198.18.22.1/24 dev wan")
    before = addresses(r, "wan")
    stream = routing.Stream(a, "198.18.2.2")
    time.sleep(1.2)
    for _ in range(3):
        index = json.loads(r.run("ip -j link show wan").stdout)[0]["ifindex"]
        r.run("ip link del wan")
        wait("a new tap", lambda i=index: 'ifindex":' in (out := r.run("ip -j link show wan", check=False).stdout)
             and json.loads(out)[0]["ifindex"] != i and sorted(addresses(r, "wan")) == sorted(before))
        ping(a, "198.18.2.2")
        ping(a, "2001:db8:2::2")
        for host in (a, b):
            ping(host, EARLY)
        ping(r, "198.18.2.2")
        # Neighbours are asked for once a second at most.
        time.sleep(1)
    _, longest = stream.end()
    print(f"tap deleted, forwarding interrupted for at most {longest:.0f} ms")
    assert longest < 1000
    assert "deleted in Linux" in router.log.read_text()


ECHO = """
import socket, threading
def tcp(family, address):
    s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((address, 7)); s.listen()
    while True:
        c, _ = s.accept(); threading.Thread(target=talk, args=(c,)).start()
def talk(c):
    while data := c.recv(65536): c.sendall(data)
    c.close()
def udp(family, address):
    # Bound to the address: the answer comes from where the question went.
    s = socket.socket(family, socket.SOCK_DGRAM); s.bind((address, 7))
    while True: s.sendto(*s.recvfrom(65536))
for address in {addresses}:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for what in (tcp, udp): threading.Thread(target=what, args=(family, address)).start()
print("ready", flush=True)
"""
CLIENT = """
import os, socket
data = os.urandom({size})
for address in {addresses}:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.create_connection((address, 7), 10)
    s.sendall(data); s.shutdown(socket.SHUT_WR)
    back = b""
    while part := s.recv(65536): back += part
    assert back == data, (address, len(back))
    u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(5)
    # The second one is in fragments.
    for n in (100, 4000):
        u.sendto(data[:n], (address, 7))
        assert u.recvfrom(65536)[0] == data[:n], (address, n)
print("same")
"""


def test_sockets_of_the_router(place, tmp_path):
    """TCP and UDP to the router's addresses, near, far and on the loopback, as ssh or SNMP would use them."""
    a, _, _, r, router = place
    r.run("ip addr add 198.51.100.1/32 dev lo")
    wait("local", lambda: fib(router, "198.51.100.1/32"))
    mine = ["198.18.1.1", "198.18.2.1", "198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"]
    (tmp_path / "server.py").write_text(ECHO.format(addresses=mine))
    (tmp_path / "client.py").write_text(CLIENT.format(addresses=mine, size=300_000))
    server = r.start(f"python3 {tmp_path}/server.py")
    try:
        assert "ready" in server.stdout.readline()
        assert "same" in a.run(f"python3 {tmp_path}/client.py").stdout
    finally:
        server.kill()
        server.wait()
    # Nobody listens: the sender is told.
    out = a.run("traceroute -n -q 1 -w 2 -p 7777 198.18.2.1").stdout
    assert re.search(r"^ 1  198.18.[12].1 ", out, re.M), out
    # The router as a host: its own pings and traceroutes.
    for target in ("198.18.1.2", "2001:db8:2::2"):
        ping(r, target)
    # The way through it shows where packets came in.
    for target, near in (("198.18.2.2", "198.18.1.1"), ("2001:db8:2::2", "2001:db8:1::1")):
        hops = re.findall(r"^ \d+  (\S+)", a.run(f"traceroute -n -q 1 -w 2 {target}").stdout, re.M)
        assert hops == [near, target], hops


def test_neighbours_are_seen_and_set_in_linux(place):
    a, b, _, r, router = place
    for target in ("198.18.2.2", "2001:db8:2::2"):
        ping(a, target)
        wait("b in ip neigh", lambda t=target: b.mac in r.run(f"ip neigh show {t} dev wan").stdout)
    # A host that answers no question about its address.
    b.run("sysctl -qw net.ipv4.conf.eth0.arp_ignore=1")
    b.run("ip addr add 198.18.2.77/32 dev lo")
    ping(a, "198.18.2.77", 1, "-W 1", loss=1)
    r.run(f"ip neigh replace 198.18.2.77 lladdr {b.mac} dev wan nud permanent")
    wait("set by hand", lambda: [n for n in router.show("neighbors")["neighbors"]
                                 if n["address"] == "198.18.2.77" and n["mac"] == b.mac])
    ping(a, "198.18.2.77")
    r.run("ip neigh del 198.18.2.77 dev wan")
    wait("no longer", lambda: not [n for n in router.show("neighbors")["neighbors"]
                                   if n["address"] == "198.18.2.77" and n["state"] == "static"])
    ping(a, "198.18.2.77", 1, "-W 1", loss=1)


def test_static_neighbours_on_both_sides(tmp_path):
    """Those of the configuration are permanent in Linux; of those of Linux one that cannot be keeps no other back."""
    mac = "02:00:00:00:09:99"
    with lab.hosts("lrk-a") as (a,), routing.spaces("lrk-r") as (r,):
        a.address("198.18.1.2/24", "198.18.1.1")
        text = routing.config(r, {"lan": (routing.device(a.outside), ["198.18.1.1/24", "2001:db8:1::1/64"])})
        for address in ("198.18.1.9", "2001:db8:1::9"):
            text += f'\n[[neighbor]]\ninterface = "lan"\naddress = "{address}"\nmac = "{mac}"\n'
        with routing.linerate(tmp_path, text, "lrkstat", LOSSES) as router:
            def of_linux(address):
                return r.run(f"ip neigh show {address} dev lan").stdout

            def there():
                return all(mac in of_linux(n) and "PERMANENT" in of_linux(n) for n in ("198.18.1.9", "2001:db8:1::9"))

            def static(address):
                return [n for n in router.show("neighbors")["neighbors"] if n["address"] == address and n["state"] == "static"]
            wait("permanent in Linux", there, show=lambda: r.run("ip neigh show").stdout)
            r.run("ip neigh del 198.18.1.9 dev lan")
            r.run("ip -6 neigh flush dev lan nud permanent", check=False)
            wait("put back", there, show=lambda: r.run("ip neigh show").stdout)
            r.run("ip link set lan down")
            r.run("ip link set lan up")
            wait("there after a flap", there, show=lambda: r.run("ip neigh show").stdout)

            # One of our own addresses, and one that can be.
            r.run("ip neigh replace 198.18.1.1 lladdr 02:00:00:00:09:01 dev lan nud permanent")
            r.run("ip neigh replace 198.18.1.77 lladdr 02:00:00:00:09:77 dev lan nud permanent")
            wait("taken over", lambda: static("198.18.1.77"))
            assert static("198.18.1.9") and not static("198.18.1.1")
            wait("named", lambda: "198.18.1.1" in router.log.read_text(), show=router.log.read_text)
            r.run("ip neigh del 198.18.1.77 dev lan")
            wait("no longer", lambda: not static("198.18.1.77"))
            # A neighbour that both know becomes Linux's own: it is left alone.
            ping(a, "198.18.1.1")
            wait("known to Linux", lambda: a.mac in of_linux("198.18.1.2"))
            r.run(f"ip neigh replace 198.18.1.2 lladdr {a.mac} dev lan nud permanent")
            wait("static", lambda: static("198.18.1.2"))
            time.sleep(1)
            assert static("198.18.1.2") and "PERMANENT" in of_linux("198.18.1.2")
            assert static("198.18.1.9") and there()


def test_a_link_that_flaps_keeps_its_addresses(tmp_path):
    """The wire of linerate is a device that knows its link state (a tap of DPDK's); linerate itself is in a namespace."""
    with routing.spaces("lrk-w", "lrk-r") as (wire, r):
        text = routing.config(r, {"lan": ("net_tap0,iface=wire0", ["198.18.1.1/24", "2001:db8:1::1/64"])})
        # What is sent before the link is known to be down the device does not take.
        expected = {"no_route", "interface_down", "tx_port_down", "tx_full"}
        with routing.linerate(tmp_path, text, "lrflap", expected, within=wire.name) as router:
            # The other end of the wire has the address of linerate's port; it needs one of its own.
            for command in ("ip link set wire0 address 02:00:00:00:00:02", "ip addr add 198.18.1.2/24 dev wire0",
                            "ip addr add 2001:db8:1::2/64 dev wire0 nodad", "ip link set wire0 up",
                            "sysctl -qw net.ipv6.conf.wire0.keep_addr_on_down=1"):
                wire.run(command)
            before = addresses(r, "lan")
            assert [a for a in before if a.startswith("fe80")], before
            r.run("ip route add 198.19.0.0/16 via 198.18.1.2")
            for _ in range(3):
                wait("carrier", lambda: "LOWER_UP" in r.run("ip link show lan").stdout)
                wait("routes", lambda: fib(router, "198.19.0.0/16")[0]["paths"])
                for address in ("198.18.1.1", "2001:db8:1::1", f"{link_local(r, 'lan')}%wire0"):
                    ping(wire, address)
                ping(r, "198.18.1.2")
                wire.run("ip link set wire0 down")
                wait("no carrier in Linux", lambda: "NO-CARRIER" in r.run("ip link show lan").stdout)
                wait("no path", lambda: not fib(router, "198.19.0.0/16")[0]["paths"])
                assert sorted(addresses(r, "lan")) == sorted(before)
                wire.run("ip link set wire0 up")
            wait("carrier", lambda: "LOWER_UP" in r.run("ip link show lan").stdout)
            assert sorted(addresses(r, "lan")) == sorted(before)
            ping(wire, "198.18.1.1")

"""OSPF, IS-IS, BFD and BIRD above linerate; and that a flood at the router takes no session down."""

import contextlib
import time

import pytest

import lab
import routing
from routing import fib, ping, wait

OSPF = """
interface {interface}
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
 ip ospf area 0
 ipv6 ospf6 network point-to-point
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 dead-interval 4
 ipv6 ospf6 area 0
exit
router ospf
 ospf router-id {id}
 timers throttle spf 0 50 200
 redistribute connected
router ospf6
 ospf6 router-id {id}
 timers throttle spf 0 50 200
 redistribute connected
"""
ISIS = """
interface {interface}
 ip router isis core
 ipv6 router isis core
 isis network point-to-point
 isis hello-interval 1
 isis hello-multiplier 4
 isis hello padding
exit
router isis core
 net 49.0001.0000.0000.000{number}.00
 is-type level-2-only
 lsp-gen-interval 1
 spf-interval 1
 redistribute ipv4 connected level-2
 redistribute ipv6 connected level-2
"""


@contextlib.contextmanager
def router(folder, mtu=1500, text="", fpm=True):
    """Host a on `lan`, b on `wan`, with 198.19.0.0/24 and 2001:db8:1000::/64 behind b, which only a protocol can tell."""
    with lab.hosts("lri-a", "lri-b", mtu=mtu) as hosts, routing.spaces("lri-r") as (r,):
        frame, buffer = (10240, 10240) if mtu > 1500 else (0, 2048)
        ports = {}
        for i, (name, host) in enumerate(zip(("lan", "wan"), hosts), 1):
            host.address(f"198.18.{i}.2/24", f"198.18.{i}.1")
            host.address(f"2001:db8:{i}::2/64", f"2001:db8:{i}::1")
            ports[name] = (routing.device(host.outside, i, frame), [f"198.18.{i}.1/24", f"2001:db8:{i}::1/64"])
        hosts[1].run("ip addr add 198.19.0.1/24 dev lo")
        hosts[1].run("ip addr add 2001:db8:1000::1/64 dev lo nodad")
        config = routing.config(r, ports, linux=text, mtu=mtu, buffer=buffer)
        if not fpm:
            config = config.replace('fpm = "127.0.0.1:2620"\n', "")
        expected = {"no_route", "interface_down", "punt_policed", "punt_queue_full", "icmp_ignored"}
        with routing.linerate(folder, config, "lrigp", expected) as instance:
            with routing.daemons() as start:
                yield *hosts, r, instance, start


BEHIND = (("198.19.0.0/24", "198.19.0.1"), ("2001:db8:1000::/64", "2001:db8:1000::1"))


def classes(instance):
    return {c["class"]: c for c in instance.show("punt")["classes"]}


def test_ospf_for_both_families(tmp_path):
    with router(tmp_path) as (a, b, r, instance, start):
        for space, interface, router_id in ((b, "eth0", "10.0.0.2"), (r, "wan", "10.0.0.1")):
            frr = start(routing.Frr, space, ["ospfd", "ospf6d"], OSPF.format(interface=interface, id=router_id),
                        fpm=space is r)
        for prefix, target in BEHIND:
            wait(prefix, lambda p=prefix: fib(instance, p), 30, show=lambda: frr.vtysh("show ip ospf neighbor", "show ipv6 ospf6 neighbor"))
            ping(a, target)
        assert classes(instance)["ospf"]["packets"] > 10


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_isis_with_padded_hellos(tmp_path, mtu):
    """Hellos are as long as the MTU; above 1,500 bytes they have an ethertype instead of a length."""
    with router(tmp_path, mtu) as (a, b, r, instance, start):
        for space, interface, number in ((b, "eth0", 2), (r, "wan", 1)):
            frr = start(routing.Frr, space, ["isisd"], ISIS.format(interface=interface, number=number), fpm=space is r)
        kind = "ether proto 0x8870" if mtu > 1500 else "isis"
        capture = b.start(f"timeout 15 tcpdump -n -c 1 -i eth0 {kind} and ether src not {b.mac} and greater {mtu}")
        for prefix, target in BEHIND:
            wait(prefix, lambda p=prefix: fib(instance, p), 30, show=lambda: frr.vtysh("show isis neighbor detail"))
            ping(a, target)
        assert classes(instance)["isis"]["packets"] > 3
        # Padded hellos go both ways.
        out = capture.communicate()[0]
        assert "1 packet captured" in out, out


BFD = """
bfd
 profile fast
  receive-interval 100
  transmit-interval 100
 exit
exit
router bgp {asn}
 bgp router-id {id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 3 9
 neighbor {peer} remote-as external
 neighbor {peer} timers connect 1
 neighbor {peer} bfd
 neighbor {peer} bfd profile fast
 address-family ipv4 unicast
  {networks}
 exit-address-family
"""
FLOOD = """
import socket, time
s = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
end = time.time() + {seconds}
sent = 0
while time.time() < end:
    for port in (53, 161, 179, 4789):
        s[0].sendto(b"x" * 64, ("198.18.1.1", port))
    sent += 4
    sent % 400 or time.sleep(0.001)
print(sent)
"""


def test_bfd_finds_a_cut_link_and_survives_a_flood(tmp_path):
    limits = "[linux.punt]\nlocal = 1000\nicmp = 100\n"
    with router(tmp_path, text=limits) as (a, b, r, instance, start):
        peers = [start(routing.Frr, space, ["bgpd", "bfdd"], BFD.format(asn=asn, id=me, peer=peer, networks=net), fpm=space is r)
                 for space, asn, me, peer, net in ((b, 65002, "198.18.2.2", "198.18.2.1", "network 198.19.0.0/24"),
                                                   (r, 65001, "198.18.2.1", "198.18.2.2", ""))]
        frr = peers[1]

        def state():
            sessions = frr.json("show bfd peers")
            return sessions and sessions[0]["status"]
        wait("BFD up", lambda: state() == "up", 30, show=lambda: frr.vtysh("show bfd peers"))
        wait("route", lambda: fib(instance, "198.19.0.0/24"))

        def lives(daemon):
            """Up, and how often it came up and went down."""
            status = daemon.json("show bfd peers")[0]
            counters = daemon.json("show bfd peers counters")[0]
            (session,) = daemon.json("show bgp ipv4 unicast summary")["peers"].values()
            return (status["status"], counters["session-up"], counters["session-down"], session["state"],
                    session["connectionsEstablished"], session["connectionsDropped"])
        before = [lives(daemon) for daemon in peers]
        assert all(life[0] == "up" and life[3] == "Established" for life in before), before
        # Pings and UDP for the router itself, as fast as the host can send them.
        (tmp_path / "flood.py").write_text(FLOOD.format(seconds=4))
        floods = [a.start("ping -q -f -w 4 -s 1400 198.18.2.1"), a.start(f"python3 {tmp_path}/flood.py")]
        for flood in floods:
            flood.communicate(timeout=30)
        assert [lives(daemon) for daemon in peers] == before
        punted = classes(instance)
        print({n: (c["packets"], c["policed"]) for n, c in punted.items() if c["packets"]})
        assert punted["local"]["policed"] > 1000
        assert punted["bfd"]["policed"] == punted["bgp"]["policed"] == 0
        assert punted["bfd"]["queue_full"] == punted["bgp"]["queue_full"] == 0
        ping(a, "198.19.0.1")
        # A cut that no device reports.
        b.lose()
        begin = time.time()
        wait("BFD down and route gone", lambda: not fib(instance, "198.19.0.0/24"), 5, 0.01)
        took = time.time() - begin
        print(f"BFD 100 ms x 3: route withdrawn {took * 1000:.0f} ms after the cut")
        assert took < 2
        b.lose(False)
        wait("route again", lambda: fib(instance, "198.19.0.0/24"), 30)
        ping(a, "198.19.0.1")


BIRD = """
router id {id};
protocol device {{ scan time 1; }}
protocol direct {{ ipv4; ipv6; interface "lo"; }}
protocol kernel k4 {{ ipv4 {{ import none; export where source ~ [ RTS_BGP, RTS_OSPF, RTS_OSPF_EXT1, RTS_OSPF_EXT2 ]; }}; merge paths on; }}
protocol kernel k6 {{ ipv6 {{ import none; export where source ~ [ RTS_BGP, RTS_OSPF, RTS_OSPF_EXT1, RTS_OSPF_EXT2 ]; }}; }}
protocol bgp {{
  local as {asn};
  neighbor {peer} as {other};
  hold time 3; keepalive time 1; connect retry time 1; connect delay time 1; error wait time 1,2;
  ipv4 {{ import all; export where source = RTS_DEVICE; next hop self; }};
}}
protocol ospf v3 {{
  ipv6 {{ import all; export where source = RTS_DEVICE; }};
  area 0 {{ interface "{interface}" {{ type ptp; hello 1; dead 4; }}; }};
}}
"""


def test_bird_by_the_kernel_alone(tmp_path):
    """Another routing stack, no FPM: BIRD writes the kernel's tables and linerate follows those."""
    with router(tmp_path, fpm=False) as (a, b, r, instance, start):
        birds = [start(routing.Bird, space, BIRD.format(id=me, asn=asn, peer=peer, other=other, interface=interface))
                 for space, me, asn, peer, other, interface in (
                     (b, "198.18.2.2", 65002, "198.18.2.1", 65001, "eth0"),
                     (r, "198.18.2.1", 65001, "198.18.2.2", 65002, "wan"))]
        for prefix, target in BEHIND:
            route = wait(prefix, lambda p=prefix: fib(instance, p), 30, show=lambda: birds[1].birdc("show protocols all"))[0]
            assert route["source"] == "kernel", route
            ping(a, target)
        # It goes without a word to us but by the kernel.
        birds[0].daemon.end()
        for prefix, _ in BEHIND:
            wait("withdrawn", lambda p=prefix: not fib(instance, p))

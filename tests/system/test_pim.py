"""FRR's pimd above linerate: IGMPv3 members, PIM-SM with the router as rendezvous point; streams go through the data plane."""

import json
import subprocess
import time

import pytest

import lab
import routing
from routing import wait

GROUP = "239.1.1.1"
CONFIG = f"""
interface lan
 ip pim
 ip igmp
interface one
 ip pim
 ip igmp
interface two
 ip pim
 ip igmp
ip pim rp 198.18.1.1 224.0.0.0/4
"""
# Joins a group, says when it has, and prints how many numbered datagrams came, how many of them twice.
MEMBER = """
import json, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5000))
group = socket.inet_aton('{group}')
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + socket.inet_aton('{own}'))
s.settimeout(0.2)
print('joined', flush=True)
seen, twice, end = set(), 0, time.time() + {seconds}
while time.time() < end:
    try:
        n = struct.unpack('!I', s.recv(2000)[:4])[0]
    except TimeoutError:
        continue
    twice += n in seen
    seen.add(n)
print(json.dumps(dict(seen=len(seen), twice=twice, last=max(seen, default=-1))))
"""
SENDER = """
import socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('198.18.1.2'))
for n in range({count}):
    s.sendto(struct.pack('!I', n) + bytes(200), ('{group}', 5000))
    time.sleep(0.005)
"""


@pytest.fixture
def place(tmp_path):
    with lab.hosts("lrm-s", "lrm-1", "lrm-2") as (source, one, two), routing.spaces("lrm-r") as (space,):
        for n, host in ((1, source), (2, one), (3, two)):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
        yield source, one, two, space, tmp_path


# pimd looks at the kernel's counters when this is over, and lets a source go whose last packet is longer ago than 30 seconds.
KEEPALIVE = 3
SILENCE = 30


def script(host, text):
    return subprocess.Popen(["ip", "netns", "exec", host.name, "/usr/bin/python3", "-c", text], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def test_streams_reach_members_once_and_through_the_data_plane(place):
    source, one, two, space, folder = place
    ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 1}.1/24"])
             for i, (name, host) in enumerate((("lan", source), ("one", one), ("two", two)))}
    with routing.linerate(folder, routing.config(space, ports), "lrpim",
                          {"ip4_multicast_unrouted", "multicast_no_output", "ttl_expired", "multicast_wrong_interface"}) as router, \
            routing.daemons() as start:
        frr = start(routing.Frr, space, ["pimd"], CONFIG, fpm=True)
        seconds = 9
        members = [script(host, MEMBER.format(group=GROUP, own=f"198.18.{n}.2", seconds=seconds))
                   for n, host in ((2, one), (3, two))]
        for member in members:
            assert member.stdout.readline().strip() == "joined"
        wait("pimd knows both members", lambda: frr.vtysh("show ip igmp groups").count(GROUP) == 2,
             show=lambda: frr.vtysh("show ip igmp groups") + frr.logs())
        sender = script(source, SENDER.format(count=1000, group=GROUP))

        def route():
            routes = router.show("multicast routes")["routes"]
            return next((r for r in routes if r["group"] == GROUP and r.get("source") == "198.18.1.2"), None)
        found = wait("the stream's route in the data plane", route,
                     show=lambda: space.run("ip mroute").stdout + frr.vtysh("show ip mroute"))
        assert found["input"] == "lan", found
        assert sender.wait(30) == 0
        got = [json.loads(m.communicate(timeout=30)[0].strip().splitlines()[-1]) for m in members]
        for member in got:
            # The first few find no route: pimd learns the source by them. While it sets the tree up, one or two may come
            # both by Linux and by the data plane, as in any PIM-SM network whose source registers (RFC 7761 3.2).
            assert member["twice"] <= 3 and member["seen"] >= 900 and member["last"] == 999, got
        at_end = route()
        assert at_end["packets"] >= 900, at_end
        # Linux counts samples of the stream, so that pimd knows that the source is alive.
        assert "198.18.1.2" in space.run("ip -s mroute").stdout
        # The members have left: no copy goes out any more.
        wait("no outputs left", lambda: not (route() or {}).get("outputs"), 40, show=route)
        time.sleep(0.2)
        router.at_rest()


def test_pimd_keeps_sources_that_send_and_lets_the_silent_ones_go(tmp_path):
    """Of two streams one falls silent. All that pimd knows of them is what Linux counts: a sample a second."""
    other = "239.1.1.2"
    with lab.hosts("lrk-s", "lrk-m") as (source, member), routing.spaces("lrk-r") as (space,), routing.daemons() as start:
        for n, host in ((1, source), (2, member)):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
        ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 1}.1/24"])
                 for i, (name, host) in enumerate((("lan", source), ("one", member)))}
        with routing.linerate(tmp_path, routing.config(space, ports), "lrkat",
                              {"ip4_multicast_unrouted", "multicast_no_output"}) as router:
            timers = f"ip pim keep-alive-timer {KEEPALIVE}\nip pim rp keep-alive-timer {KEEPALIVE}\n"
            frr = start(routing.Frr, space, ["pimd"], CONFIG.replace("interface two\n ip pim\n ip igmp\n", "") + timers, fpm=True)
            members = [script(member, MEMBER.replace("5000", port).format(group=group, own="198.18.2.2", seconds=60))
                       for group, port in ((GROUP, "5000"), (other, "5001"))]
            for each in members:
                assert each.stdout.readline().strip() == "joined"
            wait("pimd knows the member", lambda: all(g in frr.vtysh("show ip igmp groups") for g in (GROUP, other)))
            began = time.time()
            senders = [script(source, SENDER.format(group=group, count=count)) for group, count in ((GROUP, 12000), (other, 400))]

            def routes():
                return {r["group"]: r for r in router.show("multicast routes")["routes"] if r.get("source") == "198.18.1.2"}

            def show():
                return f"{routes()}\n{space.run('ip -s mroute').stdout}{frr.vtysh('show ip pim upstream')}"
            try:
                wait("routes of both", lambda: len(routes()) == 2, show=show)
                assert senders[1].wait(20) == 0
                ended = time.time()
                wait("the silent one's route is gone", lambda: other not in routes(), SILENCE + 3 * KEEPALIVE, show=show)
                # Not before its time, and the other one has been there all the while, longer than pimd waits for a silent source.
                assert time.time() - ended > SILENCE - KEEPALIVE
                wait("its time has come", lambda: time.time() - began > SILENCE + 2 * KEEPALIVE)
                assert senders[0].poll() is None
                kept, packets = routes()[GROUP], (time.time() - began) * 150
                assert [o["interface"] for o in kept["outputs"]] == ["one"] and kept["packets"] > packets, show()
            finally:
                for process in senders + members:
                    process.kill()
                    process.communicate()

"""IPv6 multicast with the kernel's own multicast routing above linerate: MLDv2 members, routes by the first packet, counters fed
back; and the same stream in two VRFs. The owner of the kernel's tables is `mroute6.py`: Debian's FRR has no pim6d.
"""

import json
import pathlib
import subprocess
import time

import lab
import routing
from routing import wait
from test_vrf import in_red

GROUP = "ff3e::8:1"
SOURCE = "2001:db8:1::2"
# Joins, and prints who sent how many numbered datagrams, and how many came twice, when it is told to end.
MEMBER = """
import json, select, socket, struct, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind(('::', 5000))
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, '{group}') + struct.pack('=I', socket.if_nametoindex('eth0')))
print('joined', flush=True)
seen, twice = dict(), 0
while True:
    ready = select.select([s, sys.stdin], [], [])[0]
    if s in ready:
        who, n = struct.unpack('!II', s.recv(2000)[:8])
        twice += n in seen.setdefault(who, set())
        seen[who].add(n)
    elif ready:
        break
print(json.dumps(dict(twice=twice, seen=dict((who, len(all)) for who, all in seen.items()))))
"""
SENDER = """
import socket, struct, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 8)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex('eth0'))
for n in range({count}):
    s.sendto(struct.pack('!II', {who}, n) + bytes(200), ('{group}', 5000))
    time.sleep(0.005)
"""


def script(host, text):
    return subprocess.Popen(["ip", "netns", "exec", host.name, "/usr/bin/python3", "-c", text], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Owner(routing.Daemon):
    """`mroute6.py`, and what it has said."""

    def __init__(self, space, folder, table, *interfaces):
        super().__init__(f"mroute6-{table}", space, ["/usr/bin/python3", "-B", pathlib.Path(__file__).with_name("mroute6.py"), table,
                                                     *interfaces], folder / f"mroute6-{table}.log")
        wait(f"{self.name} is ready", lambda: self.check() or self.said("ready"), show=self.tail)

    def said(self, what):
        lines = self.log.read_text().splitlines()
        return [line[what] for line in map(json.loads, filter(lambda text: text.startswith("{"), lines)) if what in line]

    def logs(self):
        return f"--- {self.name}\n{self.tail()}"

    close = routing.Daemon.end


def test_members_by_mld_get_the_stream_of_their_vrf_while_the_kernel_counts_it(tmp_path):
    """Twice the same source and group; each VRF's member hears its own source, and routes live as long as their streams do."""
    with lab.hosts("lrd-s", "lrd-m", "lrd-rs", "lrd-rm") as hosts, routing.spaces("lrd-r") as (space,), routing.daemons() as start:
        names = ["lan", "one", "rlan", "rone"]
        ports = {}
        for i, (name, host) in enumerate(zip(names, hosts)):
            host.address(f"2001:db8:{1 + i % 2}::2/64", f"2001:db8:{1 + i % 2}::1")
            ports[name] = (routing.device(host.outside, i), [f"2001:db8:{1 + i % 2}::1/64"])
        with routing.linerate(tmp_path, in_red(routing.config(space, ports), "rlan", "rone"), "lrmld",
                              {"ip6_multicast_unrouted", "multicast_no_output"}) as router:
            wait("rules lead to the VRF's table", lambda: space.run("ip -6 mrule").stdout.count("lookup 100") == 4,
                 show=lambda: space.run("ip -6 mrule").stdout)
            owners = [start(Owner, space, tmp_path, table, *of) for table, of in ((0, names[:2]), (100, names[2:]))]
            members = [script(hosts[at], MEMBER.format(group=GROUP)) for at in (1, 3)]
            for member, owner in zip(members, owners):
                assert member.stdout.readline().strip() == "joined"
                wait("its report is heard", lambda o=owner: [GROUP, 1] in o.said("members"), show=owner.logs)
            # Longer than two timers of the owner; the other one's ends before.
            senders = [script(hosts[at], SENDER.format(group=GROUP, who=at, count=n)) for at, n in ((0, 1500), (2, 400))]

            def routes():
                found = router.show(f"multicast routes {GROUP}")["routes"]
                return {r.get("vrf", "default"): r for r in found if r.get("source") == SOURCE}
            found = wait("a route in each VRF", lambda: len(routes()) == 2 and routes(),
                         show=lambda: f"{routes()}\n{space.run('ip -6 mroute show table all').stdout}")
            for vrf, (lan, one) in (("default", names[:2]), ("red", names[2:])):
                assert (found[vrf]["input"], [o["interface"] for o in found[vrf]["outputs"]]) == (lan, [one]), found
            assert router.show("multicast routes --vrf red")["routes"][0]["input"] == "rlan"
            # The one whose stream ends goes, by what the kernel has counted, the other one stays.
            assert senders[1].wait(10) == 0
            wait("the ended stream's route is gone", lambda: "red" not in routes(), 10, show=owners[1].logs)
            assert senders[0].poll() is None and owners[1].said("deleted") == [[SOURCE, GROUP]]
            assert senders[0].wait(15) == 0
            assert not owners[0].said("deleted") and len(owners[0].said("added")) == 1, owners[0].logs()
            # Samples, not the stream: one a second of 1,500 packets, besides the first ones.
            counted = owners[0].said("packets")
            assert len(counted) >= 5 and counted[-1] < 150, owners[0].logs()
            at_end = routes()["default"]
            assert at_end["packets"] >= 1400, at_end
            time.sleep(0.2)
            got = [json.loads(m.communicate("end", timeout=10)[0].strip().splitlines()[-1]) for m in members]
            for member, (who, count) in zip(got, (("0", 1500), ("2", 400))):
                assert list(member["seen"]) == [who] and member["seen"][who] >= count - 60 and member["twice"] <= 3, got
            # Members that leave (their sockets are closed) are told of by MLD too, and no copy goes out any more.
            wait("the member has left", lambda: not (routes().get("default") or {}).get("outputs"), 10, show=owners[0].logs)
            wait("the stream's route is gone", lambda: not routes(), 10, show=owners[0].logs)
            router.at_rest()

"""Multicast by configured routes: real receivers on Linux hosts, packets written and checked by scapy."""

import json
import textwrap
import time

import pytest
from scapy.all import IP, IPv6, Ether, Raw, UDP, raw

import lab

CONFIG = """
[dpdk]
memory = "no-huge"
memory_mb = 512
file_prefix = "{prefix}"
buffer_size = 10240

[api]
socket = "{socket}"

[[worker]]
cpu = {cpu}
"""

PORT = """
[[port]]
name = "{name}"
device = "net_af_packet{n},iface={iface},blocksz=40960,framesz=10240,framecnt=512"

[[interface]]
name = "{name}"
port = "{name}"
addresses = ["198.18.{n}.1/24", "2001:db8:{n}::1/64"]
"""

ROUTES = """
[[multicast_route]]
source = "198.18.0.2"
group = "239.1.1.1"
input = "src"
outputs = ["one", { interface = "two", ttl_threshold = 5 }]

[[multicast_route]]
group = "239.1.1.2"
input = "src"
outputs = ["two"]

[[multicast_route]]
source = "2001:db8::2"
group = "ff3e::1:1"
input = "src"
outputs = ["one", "two"]
"""

# Joins a group, and prints what comes for so many seconds: one JSON list of [payload, TTL].
RECEIVER = """
import json, socket, struct, sys, time
group, seconds = sys.argv[1], float(sys.argv[2])
v6 = ":" in group
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((group, 5000))
index = socket.if_nametoindex("eth0")
if v6:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index))
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("=4sII", socket.inet_aton(group), 0, index)[:8] + struct.pack("=I", index))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTTL, 1)
print("ready", flush=True)
got, end = [], time.time() + seconds
while time.time() < end:
    s.settimeout(max(0.01, end - time.time()))
    try:
        data, extra, _, _ = s.recvmsg(20000, 100)
    except TimeoutError:
        break
    got.append([data.decode(errors="replace"), extra[0][2][0]])
print(json.dumps(got), flush=True)
"""

SENDER = """
import socket, sys, time
group, payload, ttl, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
v6 = ":" in group
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
if v6:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
for i in range(count):
    s.sendto(f"{payload}{i}".encode(), (group, 5000))
    time.sleep(0.002)
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "receiver.py").write_text(textwrap.dedent(RECEIVER))
    (tmp_path / "sender.py").write_text(textwrap.dedent(SENDER))
    with lab.hosts("src", "one", "two") as hosts:
        text = CONFIG
        for n, host in enumerate(hosts):
            text += PORT.format(name=host.name, n=n, iface=host.outside)
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
            net = "2001:db8:" if n == 0 else f"2001:db8:{n}:"
            host.address(f"{net}:2/64", f"{net}:1")
        text = text.replace("2001:db8:0::1/64", "2001:db8::1/64")
        folder = tmp_path / "lr"
        folder.mkdir()
        with lab.linerate(folder, text + ROUTES.replace("{", "{{").replace("}", "}}")) as router:
            yield tmp_path, hosts, router


def received(process):
    out, _ = process.communicate(timeout=30)
    return json.loads(out.splitlines()[-1])


def stream(folder, hosts, group, ttl, count=50):
    """Sends a stream to a group and returns what each receiver got."""
    src, *receivers = hosts
    waiting = [r.start(f"python3 {folder}/receiver.py {group} 4") for r in receivers]
    for process in waiting:
        assert process.stdout.readline().strip() == "ready"
    src.run(f"python3 {folder}/sender.py {group} hello- {ttl} {count}")
    return [received(process) for process in waiting]


def routes(router):
    return {(r["source"], r["group"]): r for r in router.show("multicast routes")["routes"]}


def test_receivers_get_the_stream_with_one_hop_less(network):
    folder, hosts, router = network
    for group, source in [("239.1.1.1", "198.18.0.2"), ("ff3e::1:1", "2001:db8::2")]:
        sent = [[f"hello-{i}", 8] for i in range(50)]
        assert stream(folder, hosts, group, 9) == [sent, sent]
        route = routes(router)[(source, group)]
        assert (route["packets"], route["wrong_interface"]) == (50, 0)
        assert route["idle_seconds"] < 30
    # Fewer hops than one output wants; none for any; a group that only one receiver is to get, from whatever source.
    one, two = stream(folder, hosts, "239.1.1.1", 5, 5)
    assert (len(one), two) == (5, [])
    assert stream(folder, hosts, "239.1.1.1", 1, 5) == [[], []]
    one, two = stream(folder, hosts, "239.1.1.2", 64, 5)
    assert (one, len(two)) == ([], 5)
    assert stream(folder, hosts, "239.1.1.3", 64, 5) == [[], []]
    _, drops = router.at_rest()
    assert drops["ttl_expired"] == 5 and drops["ip4_multicast_unrouted"] >= 5


def test_bytes_are_what_scapy_says(network):
    folder, hosts, router = network
    src, one, two = hosts
    ports = router.ports()
    frames = []
    for payload in (b"", b"x" * 64, bytes(range(256)) * 5):
        frames.append(Ether(src=src.mac, dst="01:00:5e:01:01:01") / IP(src="198.18.0.2", dst="239.1.1.1", ttl=33, id=7, tos=0xb8) / UDP(sport=9, dport=5000) / Raw(payload))
        frames.append(Ether(src=src.mac, dst="33:33:00:01:00:01") / IPv6(src="2001:db8::2", dst="ff3e::1:1", hlim=33, tc=0xb8, fl=5) / UDP(sport=9, dport=5000) / Raw(payload))
    for host in (one, two):
        got = exchange(folder, src, host, frames)
        mac = ports[host.name]["mac"]
        want = []
        for frame in frames:
            copy = Ether(raw(frame))
            copy.src = mac
            if IP in copy:
                copy[IP].ttl, copy[IP].chksum = 32, None
            else:
                copy[IPv6].hlim = 32
            want.append(raw(Ether(raw(copy))))
        assert got == want


def exchange(folder, sender, receiver, frames):
    """Sends frames from one host; returns the UDP multicast frames that arrive at another."""
    script = (
        "import socket,sys,time\n"
        "s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3))\n"
        "s.bind(('eth0',0))\n"
        "s.setsockopt(263,1,__import__('struct').pack('IHH8s',socket.if_nametoindex('eth0'),2,0,b''))\n"
        "print('ready',flush=True)\n"
        "end=time.time()+3\n"
        "while time.time()<end:\n"
        "    s.settimeout(max(0.01,end-time.time()))\n"
        "    try: data,address=s.recvfrom(20000)\n"
        "    except TimeoutError: break\n"
        "    if address[2]!=4: print(data.hex(),flush=True)\n"
    )
    path = folder / "sniff.py"
    path.write_text(script)
    process = receiver.start(f"python3 {path}")
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.2)
    send = "import socket;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0));" + ";".join(
        f"s.send(bytes.fromhex('{raw(f).hex()}'))" for f in frames)
    sender.run(f'python3 -c "{send}"')
    out, _ = process.communicate(timeout=20)
    got = [bytes.fromhex(line) for line in out.split()]
    # What Linux says of its own accord is not asked for here.
    return [f for f in got if f[0] & 1 and UDP in Ether(f) and Ether(f)[UDP].dport == 5000]


def test_the_wrong_interface_and_control_traffic_get_no_further(network):
    folder, hosts, router = network
    src, one, two = hosts
    stray = Ether(src=one.mac, dst="01:00:5e:01:01:01") / IP(src="198.18.0.2", dst="239.1.1.1", ttl=33) / UDP(dport=5000)
    assert exchange(folder, one, two, [stray] * 3) == []
    assert routes(router)[("198.18.0.2", "239.1.1.1")]["wrong_interface"] == 3
    igmp = Ether(src=src.mac, dst="01:00:5e:01:01:01") / IP(src="198.18.0.2", dst="239.1.1.1", ttl=1, proto=2) / Raw(bytes(8))
    local = Ether(src=src.mac, dst="01:00:5e:00:00:05") / IP(src="198.18.0.2", dst="224.0.0.5", ttl=1, proto=89) / Raw(bytes(24))
    assert exchange(folder, src, one, [igmp, local]) == []
    _, drops = router.at_rest()
    assert drops["multicast_wrong_interface"] == 3 and drops["local_unhandled"] >= 2
    assert "239.1.1.1" in router.cli("show multicast routes").stdout

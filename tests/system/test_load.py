"""A loaded worker: no system call per packet, memory within bounds, every packet accounted for."""

import os
import pathlib
import re
import time

import pytest
from scapy.all import IP, UDP, Ether, IPv6, Raw, wrpcap

import lab

ROUTES = pathlib.Path(os.environ.get("LINERATE_ROUTES", pathlib.Path(__file__).parents[2].parent / "shared" / "data"))

CONFIG = """
[dpdk]
memory = "no-huge"
memory_mb = 256
file_prefix = "{{prefix}}"

[api]
socket = "{{socket}}"

[[worker]]
cpu = {{cpu}}
idle = "{idle}"

[[port]]
name = "p0"
device = "net_pcap0,rx_pcap={folder}/in.pcap,infinite_rx=1"

[[port]]
name = "p1"
device = "net_pcap1,rx_pcap={folder}/in.pcap,infinite_rx=1"

[[interface]]
name = "a"
port = "p0"
mac = "02:00:00:00:00:01"
addresses = ["198.18.1.1/24", "2001:db8:1::1/64"]

[[interface]]
name = "b"
port = "p1"
mac = "02:00:00:00:00:02"
addresses = ["198.18.2.1/24", "2001:db8:2::1/64"]

[[route]]
prefix = "10.0.0.0/8"
via = "198.18.2.2"

[[neighbor]]
interface = "b"
address = "198.18.2.2"
mac = "02:aa:00:00:00:02"

[[neighbor]]
interface = "a"
address = "198.18.1.2"
mac = "02:aa:00:00:00:01"

[[neighbor]]
interface = "a"
address = "2001:db8:1::2"
mac = "02:aa:00:00:00:01"

{more}
"""


def frames(folder):
    """What both ports receive for ever; one half is addressed to the one, the other half to the other."""
    out = []
    for i in range(256):
        up = Ether(src="02:bb:00:00:00:01", dst=f"02:00:00:00:00:0{1 + i % 2}")
        out.append(up / IP(src="198.18.1.2", dst=f"10.{i}.1.2") / UDP(sport=i) / Raw(b"x" * 18))
    wrpcap(str(folder / "in.pcap"), out)


def worker_thread(process):
    """The busiest thread: (tid, share of a CPU)."""
    def read():
        return {int(p.parent.name): int(p.read_text().split()[0])
                for p in pathlib.Path(f"/proc/{process.pid}/task").glob("*/schedstat")}
    before, started = read(), time.monotonic()
    time.sleep(1)
    after, wall = read(), time.monotonic() - started
    tid = max(after, key=lambda t: after[t] - before.get(t, 0))
    return tid, (after[tid] - before.get(tid, 0)) / 1e9 / wall


def test_a_loaded_worker_makes_no_system_calls(tmp_path):
    frames(tmp_path)
    with lab.linerate(tmp_path, CONFIG.format(folder=tmp_path, idle="spin", more=""), "lrstrace") as r:
        tid, share = worker_thread(r.process)
        assert share > 0.2, "the worker is not under load"
        before = r.show("workers")["workers"][0]["packets"]
        out = lab.sh(f"timeout -s INT 3 strace -c -p {tid} 2>&1", check=False).stdout
        forwarded = r.show("workers")["workers"][0]["packets"] - before
        assert forwarded > 100_000, out
        calls = sum(int(m) for m in re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+)", out, re.M))
        assert calls <= 5, f"{calls} system calls for {forwarded} packets\n{out}"


def rss_megabytes(process):
    """Resident memory that is the process's own: without hugepages and without the packet-buffer memory, which DPDK
    takes in one mapping of the configured size."""
    text = pathlib.Path(f"/proc/{process.pid}/smaps").read_text()
    total = buffers = 0
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", text)[1:]:
        size, rss = (int(re.search(rf"(?m)^{key}: +(\d+)", block)[1]) for key in ("Size", "Rss"))
        total += rss
        if size == 256 * 1024:
            buffers += rss
    assert buffers, "the packet-buffer mapping was not found"
    return (total - buffers) / 1024


@pytest.mark.skipif(not (ROUTES / "bgp-ipv4.txt.gz").exists(), reason=f"no real routing tables in {ROUTES}: set LINERATE_ROUTES")
def test_both_real_tables_fit_in_400_megabytes(tmp_path):
    frames(tmp_path)
    more = f"""
[[rib]]
file = "{ROUTES}/bgp-ipv4.txt.gz"
default = "198.18.2.2"

[[rib]]
file = "{ROUTES}/bgp-ipv6.txt.gz"
default = "2001:db8:1::2"
"""
    with lab.linerate(tmp_path, CONFIG.format(folder=tmp_path, idle="sleep", more=more), "lrmemory") as r:
        fib = r.show("fib")
        assert sum(f["routes"] for f in fib["fibs"]) > 901_899 + 160_147
        assert rss_megabytes(r.process) < 400
        r.cli("show routes --longest 8.8.8.8")


def test_counters_balance_while_packets_rain(tmp_path):
    frames(tmp_path)
    with lab.linerate(tmp_path, CONFIG.format(folder=tmp_path, idle="spin", more=""), "lrrain") as r:
        time.sleep(1)
        drops, ports = r.drops(), r.ports()
        assert set(drops) == {"eth_not_for_us"}, drops
        # Half of what comes in is for the other station; what is for us leaves by p1.
        received = sum(p["rx"]["packets"] for p in ports.values())
        assert abs(drops["eth_not_for_us"] / received - 0.5) < 0.05
        assert ports["p1"]["tx"]["packets"] > 0 and ports["p0"]["tx"]["packets"] == 0
        # Under load no more is open than the bursts in hand.
        assert all(abs(p["unaccounted"]) <= 64 * 8 for p in ports.values()), ports

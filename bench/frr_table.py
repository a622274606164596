"""A whole table from BIRD by BGP to FRR and by FPM to linerate, with the time of each part. Run by frr-table.sh."""

import argparse
import contextlib
import gzip
import ipaddress
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

BAR = 1.0  # seconds from FRR's last byte to the last route in the FIB
GENERATED = 500_000
FPM_PORT = 2620
FRR = "/usr/lib/frr"

LINERATE = """
[dpdk]
memory = "no-huge"
memory_mb = 256
file_prefix = "{name}"

[api]
socket = "{folder}/api.sock"

[[worker]]
cpu = {cpu}

[[port]]
name = "p0"
device = "net_af_packet0,iface={wire}"

[[interface]]
name = "wan"
port = "p0"
addresses = ["198.18.0.1/24"]

[linux]
namespace = "{router}"
fpm = "127.0.0.1:{port}"
"""

BIRD = """
log "{folder}/bird.log" all;
router id 198.18.0.2;
protocol device {{ }}
protocol static feed {{
  ipv4;
  include "{folder}/routes.conf";
}}
protocol bgp upstream {{
  local 198.18.0.2 as 65001;
  neighbor 198.18.0.1 as 65000;
  connect retry time 1;
  connect delay time 1;
  ipv4 {{ import none; export all; next hop self; }};
}}
"""

FRR_CONFIG = """hostname router
fpm address 127.0.0.1 port {port}
fpm use-next-hop-groups
router bgp 65000
 bgp router-id 198.18.0.1
 no bgp ebgp-requires-policy
 neighbor 198.18.0.2 remote-as 65001
"""


def run(*command, check=True):
    done = subprocess.run(command, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def prefixes(path):
    """The table's distinct IPv4 prefixes that BGP may carry to a router with address 198.18.0.1/24."""
    if not path:
        return generated(GENERATED)
    opener = gzip.open if str(path).endswith(".gz") else open
    found = set()
    with opener(path, "rt") as lines:
        for line in lines:
            word = line.split(maxsplit=1)
            if word and "/" in word[0] and ":" not in word[0]:
                found.add(word[0])
    def fits(text):
        net = ipaddress.ip_network(text)
        first = int(net.network_address) >> 24
        own = net.prefixlen >= 24 and text.startswith("198.18.0.")
        # FRR takes no routes to these.
        return 0 < first < 224 and first != 127 and not own and not net.is_link_local
    return sorted(p for p in found if fits(p))


def generated(count):
    """Distinct prefixes, /16 to /24, clustered as allocations are; the same every time."""
    draw, found = random.Random(1), set()
    lengths, weights = range(16, 25), [1, 1, 2, 3, 5, 6, 12, 11, 60]
    while len(found) < count:
        block = draw.randrange(1 << 24, 223 << 24) & 0xFFFC_0000
        for _ in range(draw.randrange(1, 200)):
            length = draw.choices(lengths, weights)[0]
            address = (block | draw.randrange(1 << 18)) >> (32 - length) << (32 - length)
            if address >> 24 not in (0, 127) and address >> 16 not in (0xA9FE, 0xC612):
                found.add(f"{ipaddress.IPv4Address(address)}/{length}")
    return sorted(found)[:count]


def sent(capture, port, since):
    """Times of the first and the last packet with data to a port in a capture of Ethernet, and bytes of data; of packets
    from `since` on."""
    first = last = None
    total = 0
    with open(capture, "rb") as file:
        head = file.read(24)
        if len(head) < 24:
            return None, None, 0
        magic = struct.unpack("<I", head[:4])[0]
        order, unit = {0xA1B2C3D4: ("<", 1e-6), 0xA1B23C4D: ("<", 1e-9), 0xD4C3B2A1: (">", 1e-6),
                       0x4D3CB2A1: (">", 1e-9)}[magic]
        while len(record := file.read(16)) == 16:
            seconds, fraction, have, _ = struct.unpack(order + "IIII", record)
            data = file.read(have)
            if len(data) < 54 or data[12:14] != b"\x08\x00" or data[23] != 6:
                continue
            ip = (data[14] & 15) * 4
            tcp = data[14 + ip:]
            if len(tcp) < 13 or struct.unpack("!H", tcp[2:4])[0] != port:
                continue
            payload = struct.unpack("!H", data[16:18])[0] - ip - (tcp[12] >> 4) * 4
            at = seconds + fraction * unit
            if payload > 0 and at >= since:
                last = at
                first = first or at
                total += payload
    return first, last, total


def cpu_seconds(pid, thread=None):
    """CPU time of a process, or of those of its threads that have this name."""
    total = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            if thread is None or (task / "comm").read_text().strip() == thread:
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


class Lab:
    """Namespaces and programs; all of it is gone when it is closed."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.name = f"lrt{os.getpid()}"
        self.peer, self.router, self.wire = f"{self.name}p", f"{self.name}r", f"{self.name}w"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="linerate-frr-table-"))
        self.folder.chmod(0o755)
        self.programs = {}
        self.closing = contextlib.ExitStack()
        self.closing.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def network(self):
        for namespace in (self.peer, self.router):
            run("ip", "netns", "add", namespace)
            self.closing.callback(run, "ip", "netns", "del", namespace, check=False)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "link", "add", self.wire, "type", "veth", "peer", "name", "eth0", "netns", self.peer)
        self.closing.callback(run, "ip", "link", "del", self.wire, check=False)
        inside = ("ip", "netns", "exec", self.peer)
        off = ("tx", "off", "tso", "off", "gso", "off", "gro", "off")
        run(*inside, "ethtool", "-K", "eth0", *off)
        run("ethtool", "-K", self.wire, *off)
        run("sysctl", "-qw", f"net.ipv6.conf.{self.wire}.disable_ipv6=1")
        run("ip", "link", "set", self.wire, "up")
        run("ip", "-n", self.peer, "link", "set", "eth0", "up")
        run("ip", "-n", self.peer, "address", "add", "198.18.0.2/24", "dev", "eth0")

    def start(self, name, *command, namespace=None):
        if namespace:
            command = ("ip", "netns", "exec", namespace, *command)
        log = (self.folder / f"{name}.out").open("wb")
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.programs[name] = process
        self.closing.callback(self.stop, process)
        return process

    @staticmethod
    def stop(process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def show(self, what):
        done = subprocess.run([self.arguments.linerate, "show", what, "--json", "--socket", self.folder / "api.sock"],
                              capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, what, ready, seconds):
        end = time.monotonic() + seconds
        while not ready():
            for name, process in self.programs.items():
                if process.poll() is not None:
                    self.fail(f"{name} has ended")
            if time.monotonic() > end:
                self.fail(f"waited {seconds} s for {what}")
            time.sleep(0.2)

    def fail(self, why):
        logs = "".join(f"--- {p.name}\n{p.read_text(errors='replace')[-2000:]}"
                       for p in sorted(self.folder.glob("*.out")) + sorted(self.folder.glob("*.log")))
        sys.exit(f"frr-table: {why}\n{logs}")

    def frr(self, daemon, *more):
        folder = self.folder / "frr"
        return self.start(daemon, f"{FRR}/{daemon}", "-f", f"{folder}/frr.conf", "-i", f"{folder}/{daemon}.pid",
                          "--vty_socket", str(folder), "-z", f"{folder}/zserv.api", "-A", "127.0.0.1",
                          "--log", f"file:{folder}/{daemon}.log", *more, namespace=self.router)

    def measure(self):
        arguments, folder = self.arguments, self.folder
        table = prefixes(arguments.table)
        (folder / "routes.conf").write_text("".join(f"route {p} blackhole;\n" for p in table))
        fill = dict(name=self.name, folder=folder, cpu=arguments.cpu, wire=self.wire, router=self.router, port=FPM_PORT)
        (folder / "linerate.toml").write_text(LINERATE.format(**fill))
        (folder / "bird.conf").write_text(BIRD.format(**fill))
        (folder / "frr").mkdir()
        (folder / "frr").chmod(0o777)  # FRR's daemons give root up
        (folder / "frr/frr.conf").write_text(FRR_CONFIG.format(**fill))
        self.network()
        router = self.start("linerate", arguments.linerate, "run", str(folder / "linerate.toml"))
        self.wait("linerate", lambda: self.show("linux") is not None, 60)
        self.start("tcpdump", "tcpdump", "-i", "lo", "-s", "96", "-B", "16384", "-U", "-w", str(folder / "fpm.pcap"),
                   "--immediate-mode", "-Z", "root", f"tcp dst port {FPM_PORT}", namespace=self.router)
        zebra = self.frr("zebra", "-M", "dplane_fpm_nl")
        time.sleep(1)
        bgpd = self.frr("bgpd")
        self.wait("FRR's connection to FPM", lambda: self.show("linux")["fpm"]["connected"], 30)
        time.sleep(2)
        parts = {"zebra": (zebra.pid, None), "bgpd": (bgpd.pid, None), "linerate": (router.pid, "linux")}
        before = {name: cpu_seconds(*part) for name, part in parts.items()}
        begin = time.time()
        self.start("bird", "bird", "-f", "-c", str(folder / "bird.conf"), "-s", str(folder / "bird.ctl"),
                   namespace=self.peer)
        state = {"routes": -1, "since": time.monotonic()}

        def arrived():
            routes = self.show("linux")["fpm"]["routes"]
            if routes != state["routes"]:
                state.update(routes=routes, since=time.monotonic())
            # All there, and nothing more came for a while.
            return routes >= len(table) and time.monotonic() - state["since"] > 2

        self.wait(f"{len(table)} routes", arrived, arguments.seconds)
        used = {name: cpu_seconds(*part) - before[name] for name, part in parts.items()}
        fpm = self.show("linux")["fpm"]
        fib = {f["family"]: f for f in self.show("fib")["fibs"]}
        sources = next(f["sources"] for f in fib.values() if f["sources"])
        in_fib = next((s["routes"] for s in sources if s["source"] == "learned"), 0)
        self.stop(self.programs.pop("tcpdump"))
        return len(table), begin, used, fpm, in_fib, sent(folder / "fpm.pcap", FPM_PORT, begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--linerate", required=True)
    parser.add_argument("--table", default="")
    parser.add_argument("--cpu", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=300)
    arguments = parser.parse_args()
    # An end by signal closes the lab as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = Lab(arguments)
    with lab.closing:
        routes, begin, used, fpm, in_fib, (first, last, size) = lab.measure()
    if last is None:
        sys.exit("frr-table: the capture has no FPM message")
    after = max(fpm["published_at"] - last, 0)
    total = max(fpm["published_at"], last) - begin
    print(f"routes announced by BIRD               {routes:>10,}")
    print(f"routes in the FIB                      {in_fib:>10,}")
    print(f"BIRD started to FRR's first FPM byte   {first - begin:>10.2f} s")
    print(f"BIRD started to FRR's last FPM byte    {last - begin:>10.2f} s   ({size / 1e6:,.0f} MB)")
    print(f"from there to the last route in the FIB{after:>10.4f} s   (bar: {BAR:.0f} s)")
    print(f"longest batch from message to FIB      {fpm['publish_longest_seconds']:>10.4f} s")
    print(f"FRR's part of the time                 {100 * (1 - after / total):>10.2f} %")
    print("CPU time: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items()))
    met = after <= BAR and in_fib >= routes
    print("bar met" if met else "BAR NOT MET")
    def result(name, value, unit):
        return {"id": f"router.fpm.{name}", "value": round(value, 6), "unit": unit, "runs": 1}
    print(json.dumps({
        "host": {"cpus": os.cpu_count(), "kernel": os.uname().release},
        "config": {"table": str(arguments.table) or f"generated, {GENERATED}", "routes": routes},
        "results": [
            result("routes", in_fib, "routes"), result("frr_first_byte", first - begin, "s"),
            result("frr_last_byte", last - begin, "s"), result("after_last_byte", after, "s"),
            result("longest_batch", fpm["publish_longest_seconds"], "s"),
            result("frr_share", 1 - after / total, "1"),
            *(result(f"cpu.{name}", seconds, "s") for name, seconds in used.items())],
        "met": met}))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()

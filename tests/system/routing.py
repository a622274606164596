"""Routing daemons of Debian in network namespaces, and a linerate joined to one.

A daemon here is a child process in the foreground: it has its sockets and files in a folder of its own, is ended by its
process id, and what it logged is in the error when a test fails. Nothing starts by itself and nothing is left behind.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import lab

FRR = pathlib.Path("/usr/lib/frr")
# zebra tries to connect three seconds after it was told this.
FPM = "fpm address 127.0.0.1 port 2620\n"


def wait(what, condition, seconds=20, every=0.1, show=None):
    """Waits until `condition()` is true and returns its value; `show()` is in the error otherwise."""
    end = time.time() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.time() > end:
            raise AssertionError(f"not within {seconds} s: {what}" + (f"\n{show()}" if show else ""))
        time.sleep(every)


class Space:
    """A network namespace for a router's Linux side: nothing in it but the loopback."""

    def __init__(self, name):
        self.name = name
        lab.sh(f"ip netns add {name}")
        self.run("ip link set lo up")
        # An address can be used at once; there is nobody here whose address it could be.
        self.run("sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0")

    def run(self, command, **options):
        return lab.sh(f"ip netns exec {self.name} {command}", **options)

    def start(self, command):
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command.split()], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def close(self):
        lab.sh(f"ip netns del {self.name}", check=False)


@contextlib.contextmanager
def spaces(*names):
    made = []
    try:
        for name in names:
            made.append(Space(name))
        yield made
    finally:
        for space in made:
            space.close()


class Daemon:
    """A program in a namespace; its output goes to a file."""

    def __init__(self, name, space, arguments, log):
        self.name, self.log = name, log
        with log.open("ab") as out:
            self.process = subprocess.Popen(["ip", "netns", "exec", space.name, *map(str, arguments)], stdout=out,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def check(self):
        code = self.process.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self.tail()}"

    def tail(self):
        return self.log.read_text(errors="replace")[-4000:]

    def end(self, how=signal.SIGTERM, seconds=10):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Frr:
    """FRR: zebra and the daemons asked for, configured by one text as `frr.conf` has it."""

    def __init__(self, space, daemons, config, fpm=False):
        self.space, self.names, self.config = space, ["zebra", *daemons], config
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lrfrr-"))
        shutil.chown(self.folder, "frr", "frr")
        self.fpm = fpm
        self.daemons = {}
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self, *names, config=None, options=()):
        """Starts all daemons, or those named, and configures them."""
        folder = self.folder
        for name in names or self.names:
            # What a killed daemon leaves behind would look like a running one.
            (folder / f"{name}.vty").unlink(missing_ok=True)
            arguments = [FRR / name, "-u", "frr", "-g", "frr", "--vty_socket", folder, "-z", folder / "zserv.api",
                         "-i", folder / f"{name}.pid", "-P", "0", "--log", "stdout", *options]
            if name == "zebra" and self.fpm:
                arguments += ["-M", "dplane_fpm_nl"]
            if name == "bfdd":
                arguments += ["--bfdctl", folder / "bfdd.sock"]
            self.daemons[name] = Daemon(name, self.space, arguments, folder / f"{name}.log")
            # Routes of daemons that come before zebra listens are told later, after a pause.
            wait(f"{name} listens", lambda n=name: self.listens(n), 15, 0.02, lambda n=name: self.daemons[n].tail())
        self.config = self.config if config is None else config
        path = folder / "frr.conf"
        lines = FPM + self.config if self.fpm and "zebra" in self.daemons else self.config
        path.write_text("".join(line.strip() + "\n" for line in lines.splitlines()))
        done = lab.sh(f"vtysh --vty_socket {folder} -f {path} 2>&1", check=False)
        assert done.returncode == 0 and "%" not in done.stdout, f"FRR refuses its configuration:\n{done.stdout}"

    def listens(self, name):
        self.daemons[name].check()
        return (self.folder / f"{name}.vty").exists()

    def vtysh(self, *commands, check=True):
        options = " ".join(f"-c '{c}'" for c in commands)
        return lab.sh(f"vtysh --vty_socket {self.folder} {options} 2>&1", check=check).stdout

    def configure(self, *commands):
        out = self.vtysh("configure terminal", *commands)
        assert "%" not in out, out

    def json(self, command):
        """The answer to a show command; what is no JSON (a daemon that starts) counts as nothing."""
        text = self.vtysh(f"{command} json", check=False)
        try:
            return json.loads(text)
        except ValueError:
            return {}

    def routes(self, family="ip", protocol=""):
        """FRR's routes: prefix to the installed next hops."""
        table = self.json(f"show {family} route {protocol}".strip())
        return {prefix: [h for r in routes if r.get("selected") for h in r.get("nexthops", []) if h.get("fib")]
                for prefix, routes in table.items()}

    def bgp_up(self, count, family="ipv4"):
        def up():
            peers = self.json(f"show bgp {family} unicast summary").get("peers", {})
            # Established is not enough: the peer has said that it has told everything it has.
            return sum(p["state"] == "Established" and p.get("pfxRcd") is not None for p in peers.values()) >= count
        wait(f"{count} BGP sessions ({family})", up, show=lambda: self.vtysh("show bgp summary", check=False) + self.logs())

    def kill(self, *names):
        """SIGKILL, as a crash or the kernel's out-of-memory killer would."""
        for name in names or list(self.daemons):
            self.daemons.pop(name).end(signal.SIGKILL)

    def stop(self, *names):
        # Clients first, as systemd does: zebra would tell all routes as gone otherwise too.
        for name in reversed(names or list(self.daemons)):
            self.daemons.pop(name).end()

    def logs(self):
        return "".join(f"--- {n}\n{d.tail()}" for n, d in self.daemons.items())

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Bird:
    """BIRD 2."""

    def __init__(self, space, config):
        self.space = space
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lrbird-"))
        (self.folder / "bird.conf").write_text(config)
        self.daemon = Daemon("bird", space, ["/usr/sbin/bird", "-f", "-c", self.folder / "bird.conf", "-s", self.socket,
                                             "-P", self.folder / "bird.pid"], self.folder / "log")
        wait("BIRD listens", lambda: self.daemon.check() or self.socket.exists(), show=self.logs)

    @property
    def socket(self):
        return self.folder / "bird.ctl"

    def birdc(self, command):
        return lab.sh(f"birdc -s {self.socket} {command}").stdout

    def logs(self):
        return self.daemon.tail()

    def close(self):
        self.daemon.end()
        shutil.rmtree(self.folder, ignore_errors=True)


class Keepalived:
    """keepalived, VRRP only."""

    def __init__(self, space, config):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lrka-"))
        (self.folder / "keepalived.conf").write_text(config)
        self.daemon = Daemon("keepalived", space, [
            "/usr/sbin/keepalived", "--dont-fork", "--log-console", "--log-detail", "--vrrp", "--no-syslog",
            "--use-file", self.folder / "keepalived.conf", "--pid", self.folder / "pid", "--vrrp_pid", self.folder / "vrrp.pid",
        ], self.folder / "log")

    def logs(self):
        return self.daemon.tail()

    def kill(self):
        """Its processes end without a last word: the others must notice by themselves."""
        child = self.folder / "vrrp.pid"
        self.daemon.process.kill()
        if child.exists():
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(child.read_text()), signal.SIGKILL)
        self.daemon.process.wait()

    def close(self):
        self.daemon.end()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def daemons():
    """A function that starts a daemon (`start(routing.Frr, …)`); all are ended, and on a failure their logs are printed."""
    started = []

    def start(kind, *arguments, **options):
        started.append(kind(*arguments, **options))
        return started[-1]

    try:
        yield start
    except BaseException:
        for daemon in started:
            print(daemon.logs())
        raise
    finally:
        for daemon in reversed(started):
            daemon.close()


CONFIG = """
[dpdk]
memory = "no-huge"
memory_mb = 256
file_prefix = "{{prefix}}"
buffer_size = {buffer}

[api]
socket = "{{socket}}"

[[worker]]
cpu = {{cpu}}

[linux]
namespace = "{space}"
fpm = "127.0.0.1:2620"
hold_seconds = {hold}
{linux}
{ports}
"""

PORT = """
[[port]]
name = "{name}"
device = "{device}"
mtu = {mtu}

[[interface]]
name = "{name}"
port = "{name}"
addresses = {addresses}
"""


def device(outside, at=0, frame=0):
    """An AF_PACKET port on a veth's outer end; `frame`: the longest frame where that is above what the driver assumes."""
    jumbo = f",blocksz=40960,framesz={frame},framecnt=512" if frame else ""
    return f"net_af_packet{at},iface={outside}{jumbo}"


def config(space, ports, hold=3, linux="", mtu=1500, buffer=2048):
    """A router joined to a namespace. `ports`: name to device and addresses."""
    texts = [PORT.format(name=name, device=dev, mtu=mtu, addresses=json.dumps(addresses))
             for name, (dev, addresses) in ports.items()]
    return CONFIG.format(space=space.name, hold=hold, linux=linux, ports="".join(texts), buffer=buffer)


def ping(host, target, count=3, options="-i 0.1 -W 3", loss=0):
    """Pings; exactly `loss` packets may be lost."""
    out = host.run(f"ping -n -c {count} {options} {target}", check=False).stdout
    found = re.search(r"(\d+) packets transmitted, (\d+) received", out)
    assert found and int(found[2]) == int(found[1]) - loss, out
    return out


class Stream:
    """A ping that goes on in the background: what was lost, and the longest time without an answer."""

    def __init__(self, host, target, every=0.01):
        self.every = every
        self.process = host.start(f"ping -n -D -i {every} {target}")

    def end(self):
        """Packets lost, and the longest outage in milliseconds. What came instead of answers is printed."""
        self.process.send_signal(signal.SIGINT)
        out = self.process.communicate(timeout=10)[0]
        sent, back = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", out).groups())
        times = [float(t) for t in re.findall(r"^\[([\d.]+)\].*(?:ttl|hlim)=", out, re.M)]
        longest = max((b - a for a, b in zip(times, times[1:])), default=float("inf"))
        if sent - back > 1:
            print("\n".join([line for line in out.splitlines() if "bytes from" not in line][1:6]))
            print("\n".join(f"no answer from {a:.3f} to {b:.3f}" for a, b in zip(times, times[1:]) if b - a > 3 * self.every))
        # The last one may still have been on its way.
        return max(sent - back - 1, 0), max(longest - self.every, 0) * 1000

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def flows(host, target, count=400, base=20000):
    """Sends one UDP packet of each of so many flows."""
    family = "AF_INET6" if ":" in target else "AF_INET"
    # In portions: the kernel drops what it has no room for before linerate's port.
    script = (f"import socket, time; s = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n"
              f"for p in range({base}, {base + count}): s.sendto(b'linerate', ('{target}', p)); p % 50 or time.sleep(0.01)")
    host.run(f"python3 -c \"{script}\"")


def received(host, device="eth0"):
    """Packets that a host's interface has received."""
    return json.loads(host.run(f"ip -s -j link show {device}").stdout)[0]["stats64"]["rx"]["packets"]


def fib(instance, prefix):
    """The routes of the data plane for exactly this prefix."""
    return [r for r in instance.show(f"routes {prefix}")["routes"] if r["prefix"] == prefix]


# What is for Linux or used up by the router itself is booked under names of its own; hosts speak of themselves.
QUIET = {"punted", "punt_unwanted", "nd_consumed", "nd_ignored", "arp_consumed", "arp_ignored"}


@contextlib.contextmanager
def linerate(folder, text, prefix, expected=(), within=None):
    """A running instance. At the end every packet is accounted for, and only for `expected` reasons was any lost."""
    with lab.linerate(folder, text, prefix, within) as instance:
        try:
            yield instance
        except BaseException:
            print("drops:", instance.drops(), "ports:", {n: p["rx"] | p["tx"] for n, p in instance.ports().items()})
            print(instance.log.read_text()[-3000:])
            raise
        # Seen only where something fails.
        print(instance.log.read_text()[-3000:])
        _, drops = instance.at_rest()
        unexpected = {reason: n for reason, n in drops.items() if reason not in QUIET | set(expected)}
        assert not unexpected, unexpected

"""What system tests are made of: hosts in network namespaces, and a running linerate between them."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

LINERATE = os.environ.get("LINERATE", "linerate")

# The worker's CPU: the last, so that control has one of its own where there are two.
CPU = max(os.sched_getaffinity(0))


def sh(command, check=True, timeout=60):
    """Runs a shell command; its output is in the error when it fails."""
    done = subprocess.run(command, shell=True, text=True, capture_output=True, timeout=timeout)
    if check and done.returncode:
        raise AssertionError(f"{command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Host:
    """A Linux host: a namespace with one end of a veth pair; the other end stays outside, for linerate."""

    def __init__(self, name, mtu=1500):
        self.name = name
        self.outside = f"{name}-lr"
        self.mac = None
        sh(f"ip netns add {name}")
        sh(f"ip link add {self.outside} mtu {mtu} type veth peer name eth0 netns {name} mtu {mtu}")
        # A raw socket gets packets as the sender's stack left them: checksums and segmentation must be finished there.
        self.run("ethtool -K eth0 tx off tso off gso off gro off")
        sh(f"ethtool -K {self.outside} tx off tso off gso off gro off")
        # The kernel outside must not answer for, or speak on, the wire that is linerate's.
        sh(f"sysctl -qw net.ipv6.conf.{self.outside}.disable_ipv6=1")
        self.run("sysctl -qw net.ipv6.conf.eth0.accept_dad=0 net.ipv6.conf.eth0.accept_ra=0")
        self.run("ip link set lo up")
        self.run("ip link set eth0 up")
        sh(f"ip link set {self.outside} up")
        self.mac = json.loads(self.run("ip -j link show eth0").stdout)[0]["address"]

    def run(self, command, **options):
        return sh(f"ip netns exec {self.name} {command}", **options)

    def start(self, command):
        """Starts a program in the namespace; the caller stops it."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command.split()], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def address(self, address, gateway):
        self.run(f"ip addr add {address} dev eth0" + (" nodad" if ":" in address else ""))
        self.run(f"ip {'-6 ' if ':' in address else ''}route add default via {gateway}")

    def lose(self, everything=True):
        """From now on the wire loses every frame either way, in silence: no device says that it is down. Or no longer."""
        lose(self.outside, everything)
        lose("eth0", everything, self.run)

    def close(self):
        sh(f"ip netns del {self.name}", check=False)
        sh(f"ip link del {self.outside}", check=False)


def lose(device, everything=True, run=sh):
    """A device sends nothing any more, and says nothing of it: its queue has no room. Or it sends again."""
    run(f"tc qdisc {'add' if everything else 'del'} dev {device} root pfifo limit 0")


@contextlib.contextmanager
def hosts(*names, mtu=1500):
    made = []
    try:
        for name in names:
            made.append(Host(name, mtu))
        yield made
    finally:
        for host in made:
            host.close()


class Linerate:
    """A running instance."""

    def __init__(self, folder, config, prefix, within=None):
        self.folder = pathlib.Path(folder)
        self.prefix = prefix
        self.socket = self.folder / "api.sock"
        self.log = self.folder / "log"
        path = self.folder / "linerate.toml"
        path.write_text(config.format(prefix=prefix, socket=self.socket, cpu=CPU))
        inside = ["ip", "netns", "exec", within] if within else []
        self.process = subprocess.Popen([*inside, LINERATE, "run", str(path)], stdout=self.log.open("wb"),
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.wait_ready()

    def wait_ready(self, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"linerate ended with {self.process.returncode}:\n{self.log.read_text()}")
            if self.socket.exists() and self.cli("show ports", check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"linerate was not ready in {seconds} s:\n{self.log.read_text()}")

    def cli(self, command, check=True):
        return sh(f"{LINERATE} {command} --socket {self.socket}", check=check)

    def show(self, what):
        return json.loads(self.cli(f"show {what} --json").stdout)

    def ports(self):
        """The ports by name."""
        return {p["name"]: p for p in self.show("ports")["ports"]}

    def drops(self):
        """Packets dropped, by reason."""
        return {d["reason"]: d["packets"] for d in self.show("drops")["drops"] if d["packets"]}

    def at_rest(self):
        """Ports and drops once the counters no longer move; every packet that came in must be in one of them."""
        def read():
            ports = self.ports()
            moving = {name: (p["rx"]["packets"], p["tx"]["packets"], p["unaccounted"]) for name, p in ports.items()}
            return moving, self.drops()
        settle(read)
        ports, drops = self.ports(), self.drops()
        lost = {name: p["unaccounted"] for name, p in ports.items() if p["unaccounted"]}
        assert not lost, f"packets that no counter explains: {lost}\n{ports}\n{drops}"
        return ports, drops

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"linerate did not stop on SIGTERM:\n{self.log.read_text()}") from None
        return self.process.returncode


@contextlib.contextmanager
def linerate(folder, config, prefix="lrtest", within=None):
    """An instance; `within` a network namespace if one is named."""
    instance = Linerate(folder, config, prefix, within)
    try:
        yield instance
    finally:
        code = instance.stop()
    assert code == 0, instance.log.read_text()


def settle(read, seconds=5):
    """Reads until two readings a moment apart agree: counters at rest."""
    end = time.time() + seconds
    last = read()
    while time.time() < end:
        time.sleep(0.3)
        now = read()
        if now == last:
            return now
        last = now
    return last

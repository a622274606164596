#!/usr/bin/env python3
"""Records what FRR's zebra sends over FPM: `capture.py FOLDER` writes one file per TCP session, the bytes as they came.

Needs root and Debian's frr. Everything runs in namespaces of its own, with sockets in a temporary folder; nothing of the
host is touched. The files beside this script were made by it with FRR 8.4.4.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

FRR = pathlib.Path("/usr/lib/frr")

ROUTER = """
log file {folder}/log
fpm address 127.0.0.1
{fpm}
ip route 10.1.0.0/16 198.18.0.2
ip route 10.2.0.0/16 198.18.0.2
ip route 10.2.0.0/16 198.18.0.3
ip route 10.3.0.0/16 Null0
ip route 10.4.0.0/16 reject
ip route 10.5.0.0/16 10.1.0.1
ip route 10.6.0.0/16 198.51.100.1 eth0 onlink
ip route 10.7.0.0/16 198.18.0.2 label 100/200
ip route 10.8.0.0/16 198.18.0.2 table 1000
ip route 10.9.0.0/16 eth0
ipv6 route 2001:db8:1::/48 2001:db8:0:1::2
ipv6 route 2001:db8:2::/48 2001:db8:0:1::2
ipv6 route 2001:db8:2::/48 fe80::2 eth1
ipv6 route 2001:db8:3::/48 Null0
ipv6 route 2001:db8:4::/48 fe80::9 eth0
"""

BGP = """
router bgp {asn}
 bgp router-id {id}
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 bgp bestpath as-path multipath-relax
 neighbor eth0 interface remote-as external
 neighbor eth1 interface remote-as external
 address-family ipv4 unicast
  neighbor eth0 activate
  neighbor eth1 activate
  {v4}
 exit-address-family
 address-family ipv6 unicast
  neighbor eth0 activate
  neighbor eth1 activate
  {v6}
 exit-address-family
"""

PEER_V4 = "\n  ".join(f"network 10.{i}.0.0/16" for i in range(20, 24))
PEER_V6 = "\n  ".join(f"network 2001:db8:{i}::/48" for i in range(20, 22))


class Host:
    """A network namespace, with FRR's daemons when asked."""

    def __init__(self, name, root):
        self.folder = root / name
        self.folder.mkdir(parents=True)
        # The daemons give up root before they write here.
        root.chmod(0o755)
        shutil.chown(self.folder, "frr", "frr")
        self.processes = [subprocess.Popen(["unshare", "-n", "sleep", "600"])]
        while os.readlink(f"/proc/{self.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        self.run("ip link set lo up")

    @property
    def pid(self):
        return self.processes[0].pid

    def run(self, command, check=True):
        command = ["nsenter", "-t", str(self.pid), "-n", *command.split()]
        return subprocess.run(command, check=check, capture_output=True, text=True).stdout

    def daemon(self, name, config, *options):
        file = self.folder / f"{name}.conf"
        file.write_text(config)
        f = self.folder
        self.processes.append(subprocess.Popen([
            "nsenter", "-t", str(self.pid), "-n", str(FRR / name), "-f", str(file),
            "-i", str(f / f"{name}.pid"), "-z", str(f / "zserv.api"), "--vty_socket", str(f), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while not (f / f"{name}.vty").exists():
            time.sleep(0.02)
            if self.processes[-1].poll() is not None:
                raise SystemExit(f"{name} ended at once")

    def vtysh(self, *commands):
        arguments = [word for command in commands for word in ("-c", command)]
        done = subprocess.run(["vtysh", "--vty_socket", str(self.folder), *arguments], capture_output=True, text=True)
        return done.stdout

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


class Recorder:
    """The FPM server's side of one TCP session in a namespace."""

    def __init__(self, host):
        self.data = bytearray()
        ready = threading.Event()
        threading.Thread(target=self.serve, args=(host.pid, ready), daemon=True).start()
        ready.wait()

    def serve(self, pid, ready):
        # Only this thread moves: sockets belong to the namespace of the thread that makes them.
        import ctypes
        with open(f"/proc/{pid}/ns/net") as ns:
            if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        listener = socket.create_server(("127.0.0.1", 2620))
        ready.set()
        self.session, _ = listener.accept()
        listener.close()
        while chunk := self.session.recv(65536):
            self.data += chunk

    def quiet(self, seconds=1.5):
        """Waits until nothing has come for a while."""
        size, since = -1, time.time()
        while time.time() - since < seconds:
            if len(self.data) != size:
                size, since = len(self.data), time.time()
            time.sleep(0.05)


def wire(router, peer):
    for i in range(2):
        router.run(f"ip link add eth{i} type veth peer name eth{i} netns {peer.pid}")
    for host, last in ((router, 1), (peer, 2)):
        for i in range(2):
            host.run(f"sysctl -qw net.ipv6.conf.eth{i}.accept_dad=0")
            host.run(f"ip addr add 198.18.{i}.{last}/24 dev eth{i}")
            host.run(f"ip addr add 2001:db8:0:{i + 1}::{last}/64 dev eth{i} nodad")
            host.run(f"ip link set eth{i} up")


def capture(name, out, fpm, bgp=False):
    """One session: the routes that are there at the start, then changes, one of each kind."""
    root = pathlib.Path(tempfile.mkdtemp())
    router, peer = Host("router", root), Host("peer", root)
    try:
        wire(router, peer)
        recorder = Recorder(router)
        router.daemon("zebra", ROUTER.format(folder=router.folder, fpm=fpm), "-M", "dplane_fpm_nl")
        if bgp:
            peer.daemon("zebra", "")
            peer.daemon("bgpd", BGP.format(asn=65002, id="198.18.0.2", v4=PEER_V4 + "\n  redistribute kernel", v6=PEER_V6))
            for i in range(20, 24):
                peer.run(f"ip route add blackhole 10.{i}.0.0/16")
            for i in range(20, 22):
                peer.run(f"ip -6 route add blackhole 2001:db8:{i}::/48")
            router.daemon("bgpd", BGP.format(asn=65001, id="198.18.0.1", v4="", v6=""))
            time.sleep(8)
            recorder.quiet(3)
            print(router.vtysh("show ip route bgp", "show ipv6 route bgp"))
            peer.run("ip route del blackhole 10.21.0.0/16")
            recorder.quiet()
            peer.run("ip link set eth1 down")
            recorder.quiet(3)
        else:
            router.daemon("staticd", ROUTER.format(folder=router.folder, fpm=""))
            recorder.quiet(4)
            print(router.vtysh("show ip route", "show ipv6 route", "show fpm counters"))
            for change in ("ip route 10.1.0.0/16 198.18.0.3", "no ip route 10.1.0.0/16 198.18.0.2",
                           "no ip route 10.3.0.0/16 Null0", "ip route 10.10.0.0/16 198.18.1.2 200",
                           "no ipv6 route 2001:db8:2::/48 fe80::2 eth1"):
                router.vtysh("configure terminal", change)
                recorder.quiet()
            router.run("ip link set eth1 down")
            recorder.quiet()
            # The second session shows what FRR sends after a reconnection.
            again = Recorder(router)
            recorder.session.shutdown(socket.SHUT_RDWR)
            again.quiet(8)
            (out / f"{name}-again.fpm").write_bytes(again.data)
        (out / f"{name}.fpm").write_bytes(recorder.data)
        print(name, len(recorder.data))
    finally:
        router.close()
        peer.close()
        shutil.rmtree(root)


def main():
    out = pathlib.Path(sys.argv[1])
    capture("static", out, "")
    capture("static-no-nhg", out, "no fpm use-next-hop-groups")
    capture("bgp", out, "", bgp=True)
    capture("bgp-no-nhg", out, "no fpm use-next-hop-groups", bgp=True)


if __name__ == "__main__":
    main()

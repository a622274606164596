"""VRRP: keepalived and FRR's vrrpd above linerate, a Linux host as the other router of the group.

The host has the lower priority and uses the group's address as its gateway while linerate is the master.
"""

import contextlib
import json

import pytest

import lab
import routing
from routing import ping, wait

KEEPALIVED = """
vrrp_instance v1 {{
  state BACKUP
  interface {interface}
  virtual_router_id 51
  priority {priority}
  advert_int 0.2
  version 3
  {vmac}
  virtual_ipaddress {{
    198.18.1.100/32
  }}
}}
"""
VRRPD = """
interface lan
 vrrp 51 version 3
 vrrp 51 priority 200
 vrrp 51 advertisement-interval 200
 vrrp 51 ip 198.18.1.100
 vrrp 51 ipv6 2001:db8:1::100
"""
GROUP, GROUP6 = "00:00:5e:00:01:33", "00:00:5e:00:02:33"


@contextlib.contextmanager
def router(folder):
    """Host b, the other router of the group, on `lan`; host c on `wan`, beyond."""
    with lab.hosts("lrv-b", "lrv-c") as (b, c), routing.spaces("lrv-r") as (r,):
        ports = {}
        for i, (name, host) in enumerate((("lan", b), ("wan", c)), 1):
            host.run(f"ip addr add 198.18.{i}.2/24 dev eth0")
            host.run(f"ip addr add 2001:db8:{i}::2/64 dev eth0 nodad")
            ports[name] = (routing.device(host.outside, i), [f"198.18.{i}.1/24", f"2001:db8:{i}::1/64"])
        c.run("ip route add default via 198.18.2.1")
        c.run("ip -6 route add default via 2001:db8:2::1")
        with routing.linerate(folder, routing.config(r, ports), "lrvrrp", {"no_route", "eth_not_ours"}) as instance:
            with routing.daemons() as start:
                yield b, c, r, instance, start


def neighbor(host, address):
    found = json.loads(host.run(f"ip -j neigh show {address} dev eth0").stdout)
    return found[0].get("lladdr") if found else None


def has(space, address):
    return f" {address}/" in space.run("ip -o addr").stdout


def use_the_group(b, c, gateway, target):
    b.run(f"ip route replace {target} via {gateway}")
    try:
        ping(b, target)
        ping(c, target.replace("::2", "::1") if ":" in target else "198.18.2.1")
    finally:
        b.run(f"ip route del {target} via {gateway}")


@pytest.mark.parametrize("vmac", ["", "use_vmac vrrp.51"], ids=["plain", "vmac"])
def test_keepalived_takes_over_and_hands_over(tmp_path, vmac):
    with router(tmp_path) as (b, c, r, instance, start):
        other = start(routing.Keepalived, b, KEEPALIVED.format(interface="eth0", priority=100, vmac=vmac))
        wait("the host is master", lambda: has(b, "198.18.1.100"), show=other.logs)
        mac = next(i["mac"] for i in instance.show("interfaces")["interfaces"] if i["name"] == "lan")
        for _ in range(2):
            ours = start(routing.Keepalived, r, KEEPALIVED.format(interface="lan", priority=200, vmac=vmac))
            wait("linerate's Linux is master", lambda: has(r, "198.18.1.100") and not has(b, "198.18.1.100"), show=ours.logs)
            wait("the group answers", lambda: b.run("ping -n -c 1 -W 1 198.18.1.100", check=False).returncode == 0,
                 show=lambda: r.run("ip addr").stdout + instance.cli("show interfaces").stdout)
            assert neighbor(b, "198.18.1.100") == (GROUP if vmac else mac)
            use_the_group(b, c, "198.18.1.100", "198.18.2.2")
            # It dies; the other one takes over after three advertisements that do not come.
            ours.kill()
            for device in ("lan", "vrrp.51"):
                r.run(f"ip addr del 198.18.1.100/32 dev {device}", check=False)
            r.run("ip link del vrrp.51", check=False)
            wait("the host again", lambda: has(b, "198.18.1.100"), show=other.logs)
            ours.close()
        vrrp = {c["class"]: c for c in instance.show("punt")["classes"]}["vrrp"]
        assert vrrp["packets"] > 3 and not vrrp["policed"], vrrp


def test_vrrpd_of_frr_by_macvlans_for_both_families(tmp_path):
    with router(tmp_path) as (b, c, r, instance, start):
        for name, mac, address in (("vrrp4-lan", GROUP, "198.18.1.100/24"), ("vrrp6-lan", GROUP6, "2001:db8:1::100/64")):
            r.run(f"ip link add {name} link lan type macvlan mode bridge")
            r.run(f"ip link set {name} address {mac}")
            r.run(f"ip addr add {address} dev {name}" + (" nodad" if ":" in address else ""))
            r.run(f"ip link set {name} up")
        frr = start(routing.Frr, r, ["vrrpd"], VRRPD)

        def masters():
            return frr.vtysh("show vrrp").count("Master") >= 2
        wait("master for both", masters, 30, show=lambda: frr.vtysh("show vrrp"))
        for gateway, mac, target in (("198.18.1.100", GROUP, "198.18.2.2"), ("2001:db8:1::100", GROUP6, "2001:db8:2::2")):
            wait(f"{gateway} answers", lambda g=gateway: b.run(f"ping -n -c 1 -W 1 {g}", check=False).returncode == 0,
                 show=lambda: r.run("ip addr").stdout + instance.cli("show interfaces").stdout)
            assert neighbor(b, gateway) == mac
            use_the_group(b, c, gateway, target)

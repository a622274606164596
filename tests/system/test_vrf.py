"""VRFs whose routes are in tables of Linux: rules lead what is of their taps there, nothing leaks into the default one."""

import time

import lab
import routing
from routing import ping, wait

VRF = '\n[[vrf]]\nname = "red"\ntable = 100\n'


def in_red(config, *names):
    """The interfaces of these names belong to VRF red."""
    for name in names:
        config = config.replace(f'[[interface]]\nname = "{name}"\n', f'[[interface]]\nname = "{name}"\nvrf = "red"\n')
    return config + VRF


def test_routes_of_a_table_are_those_of_its_vrf(tmp_path):
    with lab.hosts("lrv-a", "lrv-b", "lrv-c") as (a, b, c), routing.spaces("lrv-r") as (space,):
        for n, host in ((1, a), (2, b), (3, c)):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
            host.address(f"2001:db8:{n}::2/64", f"2001:db8:{n}::1")
        c.run("ip addr add 198.19.0.1/32 dev lo")
        ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 1}.1/24", f"2001:db8:{i + 1}::1/64"])
                 for i, (name, host) in enumerate((("dflt", a), ("red1", b), ("red2", c)))}
        with routing.linerate(tmp_path, in_red(routing.config(space, ports), "red1", "red2"), "lrvrf",
                              {"no_route", "unreachable"}) as router:
            # Across the VRF, not out of it nor into it.
            ping(b, "198.18.3.2")
            ping(b, "2001:db8:3::2")
            ping(a, "198.18.3.2", loss=3)
            ping(b, "198.18.1.2", loss=3)

            # A route of the VRF's table, and one of main: each for its own.
            space.run("ip route add 198.19.0.0/16 via 198.18.3.2 dev red2 table 100")
            wait("the route in VRF red", lambda: [r for r in router.show("routes --vrf red")["routes"]
                                                  if r["prefix"] == "198.19.0.0/16"])
            ping(b, "198.19.0.1")
            ping(a, "198.19.0.1", loss=3)
            assert not [r for r in router.show("routes")["routes"] if r["prefix"] == "198.19.0.0/16"]

            # Sockets of Linux: bound to a tap, and answering from a tap's address.
            assert "198.18.2.0/24" in space.run("ip route show table 100").stdout
            space.run("ping -n -c 2 -i 0.2 -W 3 -I red1 198.18.2.2")
            space.run("ping -n -c 2 -i 0.2 -W 3 -I 198.18.2.1 198.19.0.1")
            server = space.start("/usr/bin/python3 -m http.server --bind 198.18.2.1 8080")
            try:
                wait("the server listens", lambda: "8080" in space.run("ss -tln").stdout)
                code = c.run("/usr/bin/python3 -c \"import urllib.request as u; "
                             "print(u.urlopen('http://198.18.2.1:8080/', timeout=5).status)\"").stdout
                assert code.strip() == "200"
            finally:
                server.terminate()
                server.communicate()

            space.run("ip route del 198.19.0.0/16 table 100")
            wait("the route is gone", lambda: not [r for r in router.show("routes --vrf red")["routes"]
                                                   if r["prefix"] == "198.19.0.0/16"])
        assert "lookup 100" not in space.run("ip rule").stdout + space.run("ip -6 rule").stdout, "rules are taken back"


def test_rules_that_go_are_put_back(tmp_path):
    """`ip rule flush` and `ip rule del` take the rules away that lead sockets to a VRF's table."""
    with lab.hosts("lrv-b", "lrv-c") as (b, c), routing.spaces("lrv-r") as (space,):
        for n, host in ((2, b), (3, c)):
            host.address(f"198.18.{n}.2/24", f"198.18.{n}.1")
            host.address(f"2001:db8:{n}::2/64", f"2001:db8:{n}::1")
        ports = {name: (routing.device(host.outside, i), [f"198.18.{i + 2}.1/24", f"2001:db8:{i + 2}::1/64"])
                 for i, (name, host) in enumerate((("red1", b), ("red2", c)))}
        with routing.linerate(tmp_path, in_red(routing.config(space, ports), "red1", "red2"), "lrvrule", {"no_route"}) as router:
            def rules(of):
                return sorted(line for line in space.run(f"ip {of}").stdout.splitlines() if "lookup 100" in line)

            def ours():
                return {of: rules(of) for of in ("rule", "-6 rule", "mrule", "-6 mrule")}
            before = ours()
            assert len(before["rule"]) == 6 and len(before["-6 rule"]) == 6, before
            space.run("ip rule del pref 1000 iif red1")
            wait("the rule is back", lambda: ours() == before, show=ours)
            for of in ("rule", "-6 rule"):
                space.run(f"ip {of} flush")
                # Those of the system are not ours to put back.
                space.run(f"ip {of} add pref 32766 lookup main")
            wait("all rules are back", lambda: ours() == before, show=ours)
            space.run("ping -n -c 2 -i 0.2 -W 3 -I 198.18.2.1 198.18.3.2")
            space.run("ping -n -c 2 -i 0.2 -W 3 -I red1 2001:db8:2::2")
            # Those of an address that goes are gone for good.
            space.run("ip addr del 198.18.3.1/24 dev red2")
            wait("the rule has gone", lambda: len(rules("rule")) == 5, show=ours)
            time.sleep(0.5)
            assert len(rules("rule")) == 5
            assert router.process.poll() is None
        assert "lookup 100" not in space.run("ip rule").stdout + space.run("ip -6 rule").stdout, "rules are taken back"

"""BGP of FRR above linerate: routes by FPM, unnumbered sessions, multipath, FRR that dies and comes back."""

import contextlib
import time

import pytest

import lab
import routing
from routing import fib, ping, wait

PEER = """
router bgp 65001
 bgp router-id {id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 neighbor {router} remote-as 65000
 neighbor {router} timers connect 1
 neighbor {router6} remote-as 65000
 neighbor {router6} timers connect 1
 address-family ipv4 unicast
  {networks}
  no neighbor {router6} activate
 exit-address-family
 address-family ipv6 unicast
  {networks6}
  neighbor {router6} activate
 exit-address-family
"""
ROUTER = """
router bgp 65000
 bgp router-id 198.18.1.1
 no bgp ebgp-requires-policy
 timers bgp 1 3
"""


def neighbor(address):
    return f"""
 neighbor {address} remote-as external
 neighbor {address} timers connect 1"""


def neighbor6(address):
    return neighbor(address) + f"""
 address-family ipv4 unicast
  no neighbor {address} activate
 exit-address-family
 address-family ipv6 unicast
  neighbor {address} activate
 exit-address-family"""


def networks(prefixes):
    return "\n".join(f"network {p}" for p in prefixes)


@pytest.fixture
def place(tmp_path, request):
    """A traffic source a, peers b and c, linerate between them with its Linux side in a namespace."""
    with lab.hosts("lrb-a", "lrb-b", "lrb-c") as (a, b, c), routing.spaces("lrb-r") as (space,):
        a.address("198.18.1.2/24", "198.18.1.1")
        a.address("2001:db8:1::2/64", "2001:db8:1::1")
        for i, host in enumerate((b, c), 2):
            if "unnumbered" not in request.node.name:
                host.address(f"198.18.{i}.2/24", f"198.18.{i}.1")
                host.address(f"2001:db8:{i}::2/64", f"2001:db8:{i}::1")
            # The destination of the traffic is behind both.
            host.run("ip addr add 198.19.0.1/24 dev lo")
            host.run("ip addr add 2001:db8:1000::1/128 dev lo nodad")
        yield a, b, c, space, tmp_path


@contextlib.contextmanager
def router(place, numbered=True, hold=3):
    """linerate between the three, and a function that starts daemons; every packet is accounted for at the end."""
    a, b, c, space, folder = place
    ports = {"lan": (routing.device(a.outside, 0), ["198.18.1.1/24", "2001:db8:1::1/64"])}
    for i, (name, host) in enumerate((("up1", b), ("up2", c)), 1):
        net = [f"198.18.{i + 1}.1/24", f"2001:db8:{i + 1}::1/64"] if numbered else []
        ports[name] = (routing.device(host.outside, i), net)
    # A device that has just gone down may refuse what is sent.
    with routing.linerate(folder, routing.config(space, ports, hold), "lrbgp", {"no_route", "hop_down", "tx_full"}) as r:
        with routing.daemons() as start:
            yield r, start


def peer(start, host, net, v4=("198.19.0.0/16",), v6=("2001:db8:1000::/36",)):
    return start(routing.Frr, host, ["bgpd"], PEER.format(
        id=f"198.18.{net}.2", router=f"198.18.{net}.1", router6=f"2001:db8:{net}::1",
        networks=networks(v4), networks6=networks(v6)))


def test_sessions_over_both_families_give_routes_by_fpm(place):
    a, b, _, space, _ = place
    with router(place) as (r, start):
        far = peer(start, b, 2, v4=("198.19.0.0/16", "198.51.100.0/24"))
        frr = start(routing.Frr, space, ["bgpd"], ROUTER + neighbor("198.18.2.2") + neighbor6("2001:db8:2::2"), fpm=True)
        frr.bgp_up(1)
        frr.bgp_up(1, "ipv6")
        for prefix, gateway in (("198.19.0.0/16", "198.18.2.2"), ("198.51.100.0/24", "198.18.2.2"), ("2001:db8:1000::/36", None)):
            route = wait(prefix, lambda p=prefix: fib(r, p), show=frr.logs)[0]
            assert (route["source"], route["action"], route["best"]) == ("learned", "forward", True), route
            assert [p["interface"] for p in route["paths"]] == ["up1"], route
            assert gateway is None or route["via"][0]["gateway"] == gateway, route
        before = routing.received(b)
        ping(a, "198.19.0.1", 20, "-i 0.02 -W 2")
        ping(a, "2001:db8:1000::1", 20, "-i 0.02 -W 2")
        assert routing.received(b) - before >= 40
        # What the peer takes back is gone, and the sender is told; what it has besides stays.
        far.configure("router bgp 65001", "address-family ipv4 unicast", "no network 198.19.0.0/16")
        wait("the route is gone", lambda: not fib(r, "198.19.0.0/16"))
        assert "198.18.1.1" in ping(a, "198.19.0.1", 2, loss=2)
        assert fib(r, "198.51.100.0/24")


UNNUMBERED = """
route-map WEIGHT permit 10
 set extcommunity bandwidth {bandwidth}
exit
router bgp {asn}
 bgp router-id {id}
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 3
 {neighbors}
 address-family ipv4 unicast
  {networks}
  maximum-paths 8
 exit-address-family
 address-family ipv6 unicast
  {networks6}
  {activate}
  maximum-paths 8
 exit-address-family
"""


def unnumbered(start, space, asn, router_id, links, v4, v6, bandwidth=None, fpm=False):
    each = "".join(f"neighbor {i} interface remote-as external\nneighbor {i} timers connect 1\n" for i in links)
    # The share that this peer asks for.
    out = f"neighbor {links[0]} route-map WEIGHT out" if bandwidth else ""
    text = UNNUMBERED.format(asn=asn, id=router_id, neighbors=each, networks=networks(v4) + "\n" + out,
                             networks6=networks(v6) + "\n" + out, bandwidth=bandwidth or 1,
                             activate="\n".join(f"neighbor {i} activate" for i in links))
    interfaces = "".join(f"interface {i}\n ipv6 nd ra-interval 1\n no ipv6 nd suppress-ra\nexit\n" for i in links)
    return start(routing.Frr, space, ["bgpd"], interfaces + text, fpm=fpm)


def test_unnumbered_sessions_weights_and_a_link_that_is_cut(place):
    """IPv4 routes with IPv6 next hops (RFC 8950) over links without IPv4 addresses, to two peers, one to three."""
    a, b, c, space, _ = place
    with router(place, numbered=False) as (r, start):
        v4, v6 = ["198.19.0.0/16"], ["2001:db8:1000::/36"]
        unnumbered(start, b, 65001, "10.0.0.2", ["eth0"], v4, v6, 1000)
        unnumbered(start, c, 65001, "10.0.0.3", ["eth0"], v4, v6, 3000)
        frr = unnumbered(start, space, 65000, "10.0.0.1", ["up1", "up2"], ["198.18.1.0/24"], ["2001:db8:1::/64"], fpm=True)
        frr.bgp_up(2)
        for prefix in ("198.19.0.0/16", "2001:db8:1000::/36"):
            def both(p=prefix):
                found = fib(r, p)
                return found and len(found[0]["paths"]) == 2 and found[0]["paths"]
            paths = wait(f"{prefix} by two paths", both, show=lambda: frr.vtysh("show ip route") + frr.logs())
            assert {p["interface"]: p["weight"] for p in paths}["up2"] == 3 * min(p["weight"] for p in paths), paths
        for host in (b, c):
            wait("the way back", lambda h=host: "198.18.1.0/24" in h.run("ip route").stdout
                 and "2001:db8:1::/64" in h.run("ip -6 route").stdout)
        for target in ("198.19.0.1", "2001:db8:1000::1"):
            ping(a, target)
            spread(a, b, c, target, 0.25)
        cut(a, b, c, r, "198.19.0.1")


def spread(a, b, c, target, expected, count=1200):
    before = routing.received(b), routing.received(c)
    routing.flows(a, target, count)
    shares = wait("the flows have arrived", lambda: arrived(before, b, c, count))
    share = shares[0] / sum(shares)
    # Daemons talk meanwhile, and a binomial share of 1,200 flows has a deviation of 1.25 %.
    assert abs(share - expected) < 0.05, shares
    return share


def arrived(before, b, c, count):
    got = [routing.received(host) - n for host, n in zip((b, c), before)]
    return got if sum(got) >= 0.98 * count else None


def cut(a, b, c, r, target):
    """One link loses every packet, and no device says so: the session's hold time finds out; then it is mended."""
    # Several destinations, so that some flows go by the link that is cut.
    streams = [routing.Stream(a, f"198.19.0.{last}") for last in range(1, 9)]
    try:
        time.sleep(0.3)
        b.lose()
        wait("one path is left", lambda: len(fib(r, "198.19.0.0/16")[0]["paths"]) == 1)
        ping(a, target)
        routing.flows(a, target)
        b.lose(False)
        wait("two paths again", lambda: len(fib(r, "198.19.0.0/16")[0]["paths"]) == 2)
    finally:
        longest = max(s.end()[1] for s in streams)
    print(f"outage of a link that fails in silence, BGP hold time 3 s: {longest:.0f} ms")
    assert longest < 5000
    spread(a, b, c, target, 0.25)


def test_frr_killed_and_started_again_costs_no_packet(place):
    a, b, _, space, _ = place
    with router(place, hold=5) as (r, start):
        far = peer(start, b, 2, v4=("198.19.0.0/16", "198.51.100.0/24"))
        frr = start(routing.Frr, space, ["bgpd"], ROUTER + neighbor("198.18.2.2") + neighbor6("2001:db8:2::2"), fpm=True)
        for prefix in ("198.19.0.0/16", "198.51.100.0/24", "2001:db8:1000::/36"):
            wait(prefix, lambda p=prefix: fib(r, p), show=frr.logs)
        streams = [routing.Stream(a, t) for t in ("198.19.0.1", "2001:db8:1000::1")]
        try:
            time.sleep(0.3)
            frr.kill()
            # What goes while nobody listens must be noticed afterwards.
            far.configure("router bgp 65001", "address-family ipv4 unicast", "no network 198.51.100.0/24")
            time.sleep(1)
            assert fib(r, "198.51.100.0/24") and fib(r, "198.19.0.0/16"), "routes are held"
            frr.start()
            frr.bgp_up(1)
            wait("the route that is no more is swept", lambda: not fib(r, "198.51.100.0/24"), 15)
            time.sleep(0.5)
            assert fib(r, "198.19.0.0/16") and fib(r, "2001:db8:1000::/36")
            # Gone for good: after the hold time there is nobody whose routes these could be.
            frr.kill()
            time.sleep(2)
            assert fib(r, "198.19.0.0/16")
        finally:
            lost = [s.end()[0] for s in streams]
        assert lost == [0, 0], f"lost over FRR's restart: {lost}"
        wait("routes of a dead FRR are swept", lambda: not fib(r, "198.19.0.0/16"), 10)
        assert not fib(r, "2001:db8:1000::/36")
        assert "198.18.1.1" in ping(a, "198.19.0.1", 2, loss=2)


def test_graceful_restart_of_bgpd_costs_no_packet(place):
    """bgpd dies and comes back; zebra and the peer keep its routes meanwhile (RFC 4724). The way back is by BGP too."""
    a, b, _, space, _ = place
    graceful = " bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n"
    with router(place) as (r, start):
        b.run("ip route del default")
        far = start(routing.Frr, b, ["bgpd"], PEER.format(
            id="198.18.2.2", router="198.18.2.1", router6="2001:db8:2::1", networks="network 198.19.0.0/16",
            networks6="") .replace("timers bgp 1 3", "timers bgp 1 3\n" + graceful))
        frr = start(routing.Frr, space, ["bgpd"], ROUTER + graceful + neighbor("198.18.2.2") + """
 address-family ipv4 unicast
  network 198.18.1.0/24
 exit-address-family""", fpm=True)
        wait("the way there", lambda: fib(r, "198.19.0.0/16"), show=frr.logs)
        wait("the way back", lambda: "198.18.1.0/24" in b.run("ip route").stdout, show=far.logs)
        ping(a, "198.19.0.1")
        stream = routing.Stream(a, "198.19.0.1")
        try:
            time.sleep(0.3)
            frr.kill("bgpd")
            time.sleep(1)
            frr.start("bgpd")
            frr.bgp_up(1)
            time.sleep(1)
        finally:
            lost = stream.end()[0]
        assert lost == 0
        assert fib(r, "198.19.0.0/16")


def test_linerate_started_again_below_a_living_frr(place):
    """Its taps go and come back with other numbers: sessions come up again, routes return, nothing needs a hand."""
    a, b, _, space, _ = place
    with contextlib.ExitStack() as daemons:
        start = daemons.enter_context(routing.daemons())
        peer(start, b, 2)
        frr = start(routing.Frr, space, ["bgpd"], ROUTER + neighbor("198.18.2.2") + neighbor6("2001:db8:2::2"), fpm=True)
        for _ in range(2):
            with router(place) as (r, _):
                for prefix in ("198.19.0.0/16", "2001:db8:1000::/36"):
                    wait(prefix, lambda p=prefix: fib(r, p) and fib(r, p)[0]["paths"], 30, show=frr.logs)
                ping(a, "198.19.0.1")
                ping(a, "2001:db8:1000::1")

//! What the plane answers after changes of interfaces, routes and neighbours.

use super::*;
use crate::event::NdKind;
use crate::model::Path;
use crate::naive::NaiveFib;
use crate::neighbor::{NeighborState, SECOND};
use crate::plane::NextHop;
use crate::show::{ActionView, RouteFilter, RouterStats};
use linerate_tables::fib::Lookup;

pub(crate) type TestRouter = Router<NaiveFib<u32>, NaiveFib<u128>>;

pub(crate) fn router_with(options: NeighborOptions) -> TestRouter {
    Router::new(Domain::new(), NaiveFib::default(), NaiveFib::default(), options).unwrap()
}

pub(crate) fn router() -> TestRouter {
    router_with(NeighborOptions::default())
}

pub(crate) fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

pub(crate) fn net(s: &str) -> IpNet {
    s.parse().unwrap()
}

pub(crate) fn interface(index: IfIndex, addresses: &[&str]) -> (IfIndex, Interface) {
    let addresses: Vec<_> = addresses.iter().map(|a| net(a)).collect();
    let mac = [2, 0, 0, 0, 0, index as u8];
    (index, Interface::new(&format!("if{index}"), index, mac, 1500, &addresses))
}

pub(crate) fn mac(n: u8) -> [u8; 6] {
    [2, 0xaa, 0, 0, 0, n]
}

fn via(gateways: &[&str]) -> Arc<RouteAction> {
    let path = |g: &&str| Path { gateway: Some(ip(g)), interface: None, weight: 1, vrf: None };
    Arc::new(RouteAction::Forward(gateways.iter().map(path).collect()))
}

/// What happens to a packet, in words.
fn say(r: &TestRouter, to: &str, hash: u32) -> String {
    let plane = r.plane();
    let id = match ip(to) {
        IpAddr::V4(a) => plane.fib4.lookup(a.to_bits()),
        IpAddr::V6(a) => plane.fib6.lookup(a.to_bits()),
    };
    match plane.next_hops.resolve_one(id, hash) {
        NextHop::Forward(a) => {
            let adjacency = plane.next_hops.adjacency(a);
            assert!(adjacency.complete);
            format!("if{} mac {}", adjacency.interface, adjacency.mac()[5])
        }
        NextHop::Resolve(a) => {
            let adjacency = plane.next_hops.adjacency(a);
            assert!(!adjacency.complete);
            format!("ask if{} for {}", adjacency.interface, plane.next_hops.next_hop_ip(a).unwrap())
        }
        NextHop::Glean(i) => format!("ask if{i} for it"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn spread(r: &TestRouter, to: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for h in 0..4000u32 {
        *counts.entry(say(r, to, h.wrapping_mul(0x85eb_ca6b))).or_default() += 1;
    }
    counts
}

fn reply(r: &mut TestRouter, now: u64, interface: IfIndex, address: &str, n: u8) {
    r.event(
        now,
        match ip(address) {
            IpAddr::V4(address) => {
                RouterEvent::ArpSeen { interface, address, mac: mac(n), kind: ArpKind::Reply }
            }
            IpAddr::V6(address) => {
                let kind = NdKind::Advertisement { solicited: true, overrides: true };
                RouterEvent::NdSeen { interface, address, mac: Some(mac(n)), kind }
            }
        },
    );
}

fn config(interfaces: &[(IfIndex, Interface)], routes: &[(&str, Arc<RouteAction>)]) -> RouterConfig {
    RouterConfig {
        interfaces: interfaces.to_vec(),
        routes: routes.iter().map(|(p, a)| (net(p), a.clone())).collect(),
        neighbors: Vec::new(),
        vrfs: Vec::new(),
    }
}

fn two_interfaces() -> [(IfIndex, Interface); 2] {
    [interface(1, &["10.0.0.1/24", "2001:db8:1::1/64"]), interface(2, &["10.0.1.1/24", "2001:db8:2::1/64"])]
}

#[test]
fn a_packet_meets_addresses_networks_and_routes() {
    let mut r = router();
    r.apply(
        0,
        config(
            &two_interfaces(),
            &[
                ("0.0.0.0/0", via(&["10.0.1.9"])),
                ("172.16.0.0/12", Arc::new(RouteAction::Blackhole)),
                ("172.17.0.0/16", Arc::new(RouteAction::Prohibit)),
                ("172.18.0.0/16", Arc::new(RouteAction::Unreachable)),
            ],
        ),
    )
    .unwrap();
    let expected = [
        ("10.0.0.1", "local"),
        ("10.0.0.0", "local"),
        ("10.0.0.255", "local"),
        ("10.0.0.7", "ask if1 for it"),
        ("10.0.1.7", "ask if2 for it"),
        ("8.8.8.8", "ask if2 for 10.0.1.9"),
        ("172.16.0.1", "blackhole"),
        ("172.17.0.1", "prohibit"),
        ("172.18.0.1", "unreachable"),
        ("2001:db8:1::1", "local"),
        ("2001:db8:1::", "local"),
        ("2001:db8:2::5", "ask if2 for it"),
        ("fe80::ff:fe00:1", "local"),
        ("2001:db9::", "none"),
    ];
    for (to, what) in expected {
        assert_eq!(say(&r, to, 1), what, "{to}");
    }
    assert_eq!(r.probes().map(|p| (p.interface, p.address)).collect::<Vec<_>>(), [(2, ip("10.0.1.9"))]);
    reply(&mut r, 1, 2, "10.0.1.9", 9);
    assert_eq!(say(&r, "8.8.8.8", 1), "if2 mac 9");
    assert_eq!(say(&r, "10.0.1.9", 1), "if2 mac 9", "the gateway is a neighbour like any other");
}

#[test]
fn a_request_from_a_gateway_makes_one_entry_and_traffic_flows() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", via(&["10.0.0.2"]))])).unwrap();
    assert_eq!(say(&r, "20.1.1.1", 0), "ask if1 for 10.0.0.2");
    let kind = ArpKind::RequestForUs;
    let (interface, address) = (1, "10.0.0.2".parse().unwrap());
    r.event(5, RouterEvent::ArpSeen { interface, address, mac: mac(2), kind });
    assert_eq!(say(&r, "20.1.1.1", 0), "if1 mac 2");
    assert_eq!(r.neighbors().count(), 1);
    assert_eq!(r.routes(&RouteFilter { source: Some(Source::Neighbor), ..Default::default() }).len(), 1);
}

#[test]
fn a_silent_neighbour_is_given_up_refused_for_a_while_and_asked_again() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[])).unwrap();
    let generation = r.plane().next_hops.generation();
    r.event(0, RouterEvent::Unresolved { interface: 1, address: ip("10.0.0.77"), asked: false });
    r.event(1, RouterEvent::Unresolved { interface: 1, address: ip("10.0.0.77"), asked: false });
    let mut probes = r.probes().count();
    assert_eq!(probes, 1, "one probe however many packets wait");
    for t in 1..=3 {
        r.tick(t * SECOND);
        probes += r.probes().count();
    }
    assert_eq!(probes, 3);
    assert_eq!(say(&r, "10.0.0.77", 0), "unreachable");
    assert_ne!(r.plane().next_hops.generation(), generation, "nodes are told to look again");
    r.event(3 * SECOND, RouterEvent::Unresolved { interface: 1, address: ip("10.0.0.77"), asked: false });
    assert_eq!(r.probes().count(), 0, "it is not asked for again while it is refused");
    r.tick(6 * SECOND);
    assert_eq!(say(&r, "10.0.0.77", 0), "ask if1 for it");
    assert_eq!((r.neighbors().count(), r.stats().neighbor_events.failed), (0, 1));
}

#[test]
fn a_silent_gateway_is_asked_again_until_it_answers() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", via(&["10.0.0.2"]))])).unwrap();
    (1..=3).for_each(|t| r.tick(t * SECOND));
    assert_eq!(say(&r, "20.0.0.1", 0), "unreachable");
    r.probes().for_each(drop);
    r.tick(8 * SECOND);
    assert_eq!(r.probes().count(), 1);
    reply(&mut r, 8 * SECOND + 1, 1, "10.0.0.2", 2);
    assert_eq!(say(&r, "20.0.0.1", 0), "if1 mac 2");
}

#[test]
fn a_neighbour_in_use_is_confirmed_while_packets_flow_and_an_unused_one_forgotten() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[])).unwrap();
    for (address, n) in [("10.0.0.5", 5), ("10.0.0.6", 6)] {
        r.event(0, RouterEvent::Unresolved { interface: 1, address: ip(address), asked: false });
        reply(&mut r, 1, 1, address, n);
    }
    r.probes().for_each(drop);
    let plane = r.plane();
    let NextHop::Forward(a) = plane.next_hops.resolve_one(plane.fib4.lookup(0x0a00_0005), 0) else {
        panic!()
    };
    plane.next_hops.mark_used(a);
    r.tick(61 * SECOND);
    let probes: Vec<_> = r.probes().collect();
    assert_eq!(probes, [Probe { interface: 1, address: ip("10.0.0.5"), unicast: Some(mac(5)) }]);
    assert_eq!(say(&r, "10.0.0.5", 0), "if1 mac 5");
    reply(&mut r, 61 * SECOND + 5, 1, "10.0.0.5", 5);
    let state = |r: &TestRouter, a| r.neighbors().find(|n| n.address == ip(a)).map(|n| n.state);
    assert_eq!(state(&r, "10.0.0.5"), Some(NeighborState::Reachable));
    assert_eq!(state(&r, "10.0.0.6"), Some(NeighborState::Stale));
    (62..700).for_each(|t| r.tick(t * SECOND));
    assert_eq!(state(&r, "10.0.0.6"), None);
    assert_eq!(say(&r, "10.0.0.6", 0), "ask if1 for it");
}

#[test]
fn a_neighbour_that_leaves_is_asked_alone_then_by_all_then_given_up() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", via(&["10.0.0.2"]))])).unwrap();
    reply(&mut r, 0, 1, "10.0.0.2", 2);
    r.probes().for_each(drop);
    let mut told = Vec::new();
    for t in 60..=67 {
        r.tick(t * SECOND);
        told.extend(r.probes().map(|p| p.unicast.is_some()));
    }
    assert_eq!(told, [true, true, true, false, false, false]);
    assert_eq!(say(&r, "20.0.0.1", 0), "unreachable");
}

#[test]
fn gratuitous_arp_updates_what_is_known_and_adds_nothing() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[])).unwrap();
    let seen = |address: &str, n, kind| RouterEvent::ArpSeen {
        interface: 1,
        address: address.parse().unwrap(),
        mac: mac(n),
        kind,
    };
    for kind in [ArpKind::Gratuitous, ArpKind::Other, ArpKind::Reply] {
        r.event(0, seen("10.0.0.5", 5, kind));
    }
    assert_eq!(r.neighbors().count(), 0);
    r.event(0, seen("10.0.0.5", 5, ArpKind::RequestForUs));
    assert_eq!(say(&r, "10.0.0.5", 0), "if1 mac 5");
    r.event(1, seen("10.0.0.5", 6, ArpKind::Gratuitous));
    assert_eq!(say(&r, "10.0.0.5", 0), "if1 mac 6");
    assert_eq!(r.stats().neighbor_events.mac_changes, 1);
    // Our own address from another station; an address of another network; a group MAC; broadcast; another VLAN's.
    r.event(2, seen("10.0.0.1", 9, ArpKind::Gratuitous));
    assert_eq!(r.stats().neighbor_events.duplicates, 1);
    for address in ["10.9.9.9", "10.0.0.255", "10.0.0.0", "10.0.1.5"] {
        r.event(3, seen(address, 9, ArpKind::RequestForUs));
        r.event(3, RouterEvent::Unresolved { interface: 1, address: ip(address), asked: false });
    }
    let (interface, address, kind) = (1, "10.0.0.8".parse().unwrap(), ArpKind::RequestForUs);
    r.event(3, RouterEvent::ArpSeen { interface, address, mac: [0xff; 6], kind });
    r.event(3, RouterEvent::ArpSeen { interface: 77, address, mac: mac(1), kind });
    assert_eq!((r.neighbors().count(), r.stats().neighbor_events.ignored), (1, 9));
}

#[test]
fn neighbour_discovery_follows_its_flags() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[])).unwrap();
    let (interface, address) = (1, "2001:db8:1::5".parse().unwrap());
    let nd = |n, kind| RouterEvent::NdSeen { interface, address, mac: Some(mac(n)), kind };
    let advert = |solicited, overrides| NdKind::Advertisement { solicited, overrides };
    r.event(0, nd(5, advert(true, true)));
    assert_eq!(r.neighbors().count(), 0, "an advertisement nobody asked for adds nothing");
    r.event(0, nd(5, NdKind::Solicitation));
    assert_eq!(say(&r, "2001:db8:1::5", 0), "if1 mac 5");
    r.event(0, nd(5, advert(true, false)));
    assert_eq!(r.neighbors().next().map(|n| n.state), Some(NeighborState::Reachable));
    r.event(0, nd(6, advert(false, false)));
    assert_eq!(say(&r, "2001:db8:1::5", 0), "if1 mac 5", "no override, no change");
    assert_eq!(r.neighbors().next().map(|n| n.state), Some(NeighborState::Stale));
    r.event(0, nd(6, advert(false, true)));
    assert_eq!(say(&r, "2001:db8:1::5", 0), "if1 mac 6");
}

#[test]
fn an_advertisement_without_an_address_confirms_and_changes_none() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("2000::/3", via(&["2001:db8:1::7"]))])).unwrap();
    let heard = |address: &str, mac, solicited| RouterEvent::NdSeen {
        interface: 1,
        address: address.parse().unwrap(),
        mac,
        kind: NdKind::Advertisement { solicited, overrides: true },
    };
    let state = |r: &TestRouter| r.neighbors().next().map(|n| (n.mac, n.state));
    r.event(0, heard("2001:db8:1::7", None, true));
    assert_eq!(
        state(&r),
        Some((None, NeighborState::Incomplete)),
        "RFC 4861 7.2.5: discarded while incomplete"
    );
    r.event(0, heard("2001:db8:1::7", Some(mac(7)), false));
    assert_eq!(state(&r), Some((Some(mac(7)), NeighborState::Stale)));
    r.event(1, heard("2001:db8:1::7", None, false));
    assert_eq!(state(&r), Some((Some(mac(7)), NeighborState::Stale)), "not an answer");
    r.event(1, heard("2001:db8:1::7", None, true));
    assert_eq!(state(&r), Some((Some(mac(7)), NeighborState::Reachable)));
    r.event(1, heard("2001:db8:1::8", None, true));
    assert_eq!(r.neighbors().count(), 1);
}

#[test]
fn a_scan_of_a_network_is_bounded_and_evicts_no_resolved_neighbour() {
    let options =
        NeighborOptions { max_entries: 300, max_unresolved: 100, max_probes: 150, ..Default::default() };
    let mut r = router_with(options);
    r.apply(0, config(&[interface(1, &["10.0.0.1/8", "2001:db8::1/64"])], &[])).unwrap();
    for n in 1..=250u8 {
        let address = ip(&format!("10.1.0.{n}"));
        r.event(0, RouterEvent::Unresolved { interface: 1, address, asked: false });
        reply(&mut r, 0, 1, &address.to_string(), n);
    }
    for n in 0..100_000u32 {
        let now = u64::from(n) * SECOND / 1000;
        let address = if n % 2 == 0 {
            IpAddr::from((0x0a02_0000 + n).to_be_bytes())
        } else {
            IpAddr::V6((0x2001_0db8_u128 << 96 | u128::from(n + 2)).into())
        };
        r.event(now, RouterEvent::Unresolved { interface: 1, address, asked: false });
        r.tick(now);
        let stats = r.stats();
        assert!(
            stats.neighbors <= 300 && r.default_vrf.v4.rib.len() < 400 && stats.plane.next_hops < 400,
            "{stats:?}"
        );
        if n % 7 == 0 {
            assert!(r.probes().count() <= 150);
        }
        if n % 1000 == 0 && n < 50_000 {
            for k in 1..=250u8 {
                assert_eq!(say(&r, &format!("10.1.0.{k}"), 0), format!("if1 mac {k}"));
            }
        }
    }
    assert!(r.stats().neighbor_events.refused > 0);
}

#[test]
fn one_path_of_several_that_fails_takes_only_itself_out() {
    let mut r = router();
    let routes = [("20.0.0.0/8", via(&["10.0.0.2", "10.0.1.2", "10.0.1.3"]))];
    r.apply(0, config(&two_interfaces(), &routes)).unwrap();
    for (i, a, n) in [(1, "10.0.0.2", 2), (2, "10.0.1.2", 3), (2, "10.0.1.3", 4)] {
        reply(&mut r, 0, i, a, n);
    }
    let before: Vec<String> = (0..500).map(|h| say(&r, "20.0.0.1", h * 7919)).collect();
    assert_eq!(spread(&r, "20.0.0.1").len(), 3);
    r.set_link(1, 1, false).unwrap();
    let after: Vec<String> = (0..500).map(|h| say(&r, "20.0.0.1", h * 7919)).collect();
    for (b, a) in before.iter().zip(&after) {
        assert!(if b == "if1 mac 2" { a.starts_with("if2") } else { a == b }, "{b} became {a}");
    }
    r.set_link(2, 2, false).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "unreachable");
    r.set_link(3, 1, true).unwrap();
    r.set_link(3, 2, true).unwrap();
    assert_eq!(say(&r, "10.0.0.1", 0), "local");
    for (i, a, n) in [(1, "10.0.0.2", 2), (2, "10.0.1.2", 3), (2, "10.0.1.3", 4)] {
        reply(&mut r, 4, i, a, n);
    }
    assert_eq!(spread(&r, "20.0.0.1").len(), 3);
}

#[test]
fn a_path_whose_gateway_falls_silent_is_left_out_of_its_group() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", via(&["10.0.0.2", "10.0.1.2"]))])).unwrap();
    reply(&mut r, 0, 1, "10.0.0.2", 2);
    (1..=3).for_each(|t| r.tick(t * SECOND));
    assert_eq!(spread(&r, "20.0.0.1").into_keys().collect::<Vec<_>>(), ["if1 mac 2"]);
    reply(&mut r, 4 * SECOND, 2, "10.0.1.2", 3);
    assert_eq!(spread(&r, "20.0.0.1").into_keys().collect::<Vec<_>>(), ["if1 mac 2", "if2 mac 3"]);
}

#[test]
fn weights_divide_the_flows() {
    let mut r = router();
    let path = |g, weight| Path { gateway: Some(ip(g)), interface: None, weight, vrf: None };
    let action = RouteAction::Forward(vec![path("10.0.0.2", 30), path("10.0.1.2", 10)]);
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", Arc::new(action))])).unwrap();
    reply(&mut r, 0, 1, "10.0.0.2", 2);
    reply(&mut r, 0, 2, "10.0.1.2", 3);
    let share = spread(&r, "20.0.0.1")["if1 mac 2"];
    assert!((2850..3150).contains(&share), "{share} of 4000");
}

#[test]
fn gateways_resolve_over_other_routes_and_follow_them() {
    let mut r = router();
    let routes = [
        ("20.0.0.0/8", via(&["172.16.0.1"])),
        ("172.16.0.0/16", via(&["10.0.0.2", "10.0.1.2"])),
        ("30.0.0.0/8", via(&["192.168.0.1"])),
        ("192.168.0.1/32", Arc::new(RouteAction::Blackhole)),
        ("40.0.0.0/8", via(&["50.0.0.1"])),
        ("50.0.0.0/8", via(&["40.0.0.1"])),
    ];
    r.apply(0, config(&two_interfaces(), &routes)).unwrap();
    reply(&mut r, 0, 1, "10.0.0.2", 2);
    reply(&mut r, 0, 2, "10.0.1.2", 3);
    assert_eq!(spread(&r, "20.0.0.1").into_keys().collect::<Vec<_>>(), ["if1 mac 2", "if2 mac 3"]);
    assert_eq!(say(&r, "30.0.0.1", 0), "blackhole");
    assert_eq!([say(&r, "40.0.0.1", 0), say(&r, "50.0.0.1", 0)], ["unreachable", "unreachable"], "a loop");
    r.insert(1, 0, Source::Static, net("172.16.0.0/24"), &via(&["10.0.1.2"])).unwrap();
    assert_eq!(spread(&r, "20.0.0.1").into_keys().collect::<Vec<_>>(), ["if2 mac 3"]);
    r.withdraw(2, 0, Source::Static, net("172.16.0.0/24")).unwrap();
    assert_eq!(spread(&r, "20.0.0.1").len(), 2);
    r.withdraw(3, 0, Source::Static, net("172.16.0.0/16")).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "unreachable");
    r.insert(4, 0, Source::Static, net("50.0.0.0/8"), &via(&["10.0.0.2"])).unwrap();
    assert_eq!(say(&r, "40.0.0.1", 0), "if1 mac 2", "the loop is gone");
}

#[test]
fn ipv4_leaves_by_ipv6_gateways_and_link_local_ones_by_their_interface() {
    let mut r = router();
    let path = |g, interface| {
        RouteAction::Forward(vec![Path { gateway: Some(ip(g)), interface, weight: 1, vrf: None }])
    };
    let routes = [("20.0.0.0/8", Arc::new(path("fe80::9", Some(2)))), ("2000::/3", via(&["2001:db8:1::9"]))];
    r.apply(0, config(&two_interfaces(), &routes)).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "ask if2 for fe80::9");
    reply(&mut r, 0, 2, "fe80::9", 9);
    reply(&mut r, 0, 1, "2001:db8:1::9", 8);
    assert_eq!([say(&r, "20.0.0.1", 0), say(&r, "2a00::1", 0)], ["if2 mac 9", "if1 mac 8"]);
    let refused = r.insert(1, 0, Source::Static, net("21.0.0.0/8"), &path("fe80::9", None)).unwrap_err();
    assert!(matches!(refused, RouterError::GatewayNeedsInterface { .. }));
    r.set_link(2, 2, false).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "unreachable");
    r.set_link(3, 2, true).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "ask if2 for fe80::9");
}

#[test]
fn routes_between_a_neighbour_and_its_network_win_over_its_host_route() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[])).unwrap();
    r.event(0, RouterEvent::Unresolved { interface: 1, address: ip("10.0.0.200"), asked: false });
    reply(&mut r, 0, 1, "10.0.0.200", 7);
    assert_eq!(say(&r, "10.0.0.200", 0), "if1 mac 7");
    r.insert(1, 0, Source::Static, net("10.0.0.128/25"), &RouteAction::Prohibit).unwrap();
    assert_eq!(say(&r, "10.0.0.200", 0), "prohibit");
    r.insert(1, 0, Source::Static, net("10.0.0.200/32"), &RouteAction::Blackhole).unwrap();
    r.withdraw(2, 0, Source::Static, net("10.0.0.128/25")).unwrap();
    assert_eq!(say(&r, "10.0.0.200", 0), "blackhole");
    r.withdraw(2, 0, Source::Static, net("10.0.0.200/32")).unwrap();
    assert_eq!(say(&r, "10.0.0.200", 0), "if1 mac 7");
}

#[test]
fn flaps_and_last_addresses_converge() {
    let mut r = router();
    let routes = [("0.0.0.0/0", via(&["10.0.0.2"])), ("::/0", via(&["2001:db8:1::2"]))];
    r.apply(0, config(&two_interfaces(), &routes)).unwrap();
    let told = |r: &TestRouter| {
        ["8.8.8.8", "2a00::1", "10.0.0.1", "fe80::ff:fe00:1", "10.0.0.9"].map(|a| say(r, a, 0)).join(", ")
    };
    let before = told(&r);
    for round in 1..=20 {
        r.set_link(round, 1, false).unwrap();
        assert_eq!(told(&r), ["unreachable"; 5].join(", "));
        r.set_link(round, 1, true).unwrap();
        assert_eq!(told(&r), before);
    }
    r.set_interfaces(30, [interface(1, &[]), interface(2, &["10.0.1.1/24"])]).unwrap();
    assert_eq!(told(&r), "unreachable, unreachable, unreachable, local, unreachable", "IPv6 is still on");
    r.set_interfaces(31, two_interfaces()).unwrap();
    assert_eq!(told(&r), before);
    r.set_interfaces(32, []).unwrap();
    assert_eq!(told(&r), ["unreachable"; 5].join(", "));
    r.set_interfaces(33, two_interfaces()).unwrap();
    assert_eq!(told(&r), before);
}

#[test]
fn an_interface_that_changes_its_mac_or_mtu_rewrites_its_adjacencies() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", via(&["10.0.0.2"]))])).unwrap();
    reply(&mut r, 0, 1, "10.0.0.2", 2);
    let mut changed = two_interfaces();
    (changed[0].1.mac, changed[0].1.mtu, changed[0].1.vlan) = ([2, 9, 9, 9, 9, 9], 9000, Some(5));
    r.set_interfaces(1, changed).unwrap();
    let plane = r.plane();
    let NextHop::Forward(a) = plane.next_hops.resolve_one(plane.fib4.lookup(0x1400_0001), 0) else {
        panic!()
    };
    let a = plane.next_hops.adjacency(a);
    assert_eq!((a.mtu, a.header_len, &a.header[6..12]), (9000, 18, &[2, 9, 9, 9, 9, 9][..]));
}

#[test]
fn static_neighbours_stay_as_they_are() {
    let mut r = router();
    let mut c = config(&two_interfaces(), &[("20.0.0.0/8", via(&["10.0.0.2"]))]);
    c.neighbors = vec![StaticNeighbor { interface: 1, address: ip("10.0.0.2"), mac: mac(2) }];
    r.apply(0, c.clone()).unwrap();
    assert_eq!(r.probes().count(), 0);
    reply(&mut r, 1, 1, "10.0.0.2", 9);
    (0..2000).for_each(|t| r.tick(t * SECOND));
    assert_eq!([say(&r, "20.0.0.1", 0), say(&r, "10.0.0.2", 0)], ["if1 mac 2", "if1 mac 2"]);
    assert_eq!((r.stats().neighbor_events.static_conflicts, r.probes().count()), (1, 0));
    r.set_link(2000 * SECOND, 1, false).unwrap();
    r.set_link(2000 * SECOND, 1, true).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "if1 mac 2");
    c.neighbors.clear();
    r.apply(2001 * SECOND, c).unwrap();
    assert_eq!(say(&r, "20.0.0.1", 0), "ask if1 for 10.0.0.2");
    let bad = |address, m| StaticNeighbor { interface: 1, address: ip(address), mac: m };
    for n in [bad("10.0.0.1", mac(1)), bad("224.0.0.5", mac(1)), bad("10.0.0.9", [0xff; 6])] {
        let c = RouterConfig { neighbors: vec![n], ..config(&two_interfaces(), &[]) };
        assert!(matches!(r.apply(0, c), Err(RouterError::BadNeighbor { .. })));
    }
    assert_eq!(say(&r, "20.0.0.1", 0), "ask if1 for 10.0.0.2", "a refused configuration changes nothing");
}

#[test]
fn what_a_route_cannot_be_is_refused_by_name() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[])).unwrap();
    let path = |gateway: Option<&str>, interface, weight| Path {
        gateway: gateway.map(ip),
        interface,
        weight,
        vrf: None,
    };
    let mut refuse = |prefix, paths: Vec<Path>| {
        let error = r.insert(0, 0, Source::Static, net(prefix), &RouteAction::Forward(paths)).unwrap_err();
        assert_eq!(say(&r, "20.0.0.1", 0), "none");
        error.to_string()
    };
    let p = "20.0.0.0/8";
    assert!(refuse(p, vec![]).contains("no path"));
    assert!(refuse(p, vec![path(None, None, 1)]).contains("neither"));
    assert!(refuse(p, vec![path(Some("10.0.0.2"), None, 0)]).contains("weight 0"));
    assert!(refuse(p, vec![path(Some("10.0.0.2"), None, 257)]).contains("weight 257"));
    assert!(refuse(p, vec![path(None, Some(9), 1)]).contains("number 9"));
    assert!(refuse(p, vec![path(Some("224.0.0.1"), None, 1)]).contains("224.0.0.1"));
    assert!(refuse("2001::/16", vec![path(Some("10.0.0.2"), None, 1)]).contains("10.0.0.2"));
    assert!(refuse(p, vec![path(Some("10.0.0.2"), None, 1); 513]).contains("513"));
    assert!("10.0.0.0/55".parse::<IpNet>().is_err(), "a length that no address has cannot even be written");
}

#[test]
fn applying_the_same_again_changes_nothing_and_a_difference_only_itself() {
    let mut r = router();
    let mut c = config(
        &two_interfaces(),
        &[
            ("20.0.0.0/8", via(&["10.0.0.2"])),
            ("30.0.0.0/8", via(&["10.0.0.2", "10.0.1.2"])),
            ("2000::/3", via(&["2001:db8:1::9"])),
        ],
    );
    assert_eq!(r.apply(0, c.clone()).unwrap(), Changes { added: 3, replaced: 0, removed: 0 });
    let (stats, generation) = (r.stats(), r.plane().next_hops.generation());
    c.routes.reverse();
    c.routes[1].1 = via(&["10.0.1.2", "10.0.0.2"]);
    assert_eq!(r.apply(0, c.clone()).unwrap(), Changes::default());
    assert_eq!((r.stats(), r.plane().next_hops.generation()), (stats, generation));
    c.routes.pop();
    c.routes[0].1 = Arc::new(RouteAction::Blackhole);
    assert_eq!(r.apply(0, c).unwrap(), Changes { added: 0, replaced: 1, removed: 1 });
    assert_eq!([say(&r, "2000::1", 0), say(&r, "20.0.0.1", 0)], ["blackhole", "none"]);
}

#[test]
fn the_preferred_source_forwards_and_the_next_takes_over() {
    let mut r = router();
    r.apply(0, config(&two_interfaces(), &[("20.0.0.0/8", Arc::new(RouteAction::Prohibit))])).unwrap();
    r.insert(0, 0, Source::Learned, net("20.0.0.0/8"), &RouteAction::Blackhole).unwrap();
    r.insert(0, 0, Source::Static, net("10.0.0.0/24"), &RouteAction::Blackhole).unwrap();
    assert_eq!([say(&r, "20.0.0.1", 0), say(&r, "10.0.0.9", 0)], ["prohibit", "ask if1 for it"]);
    assert!(r.withdraw(0, 0, Source::Static, net("20.0.0.0/8")).unwrap());
    assert!(!r.withdraw(0, 0, Source::Static, net("20.0.0.0/8")).unwrap());
    assert_eq!(say(&r, "20.0.0.1", 0), "blackhole");
    r.set_link(1, 1, false).unwrap();
    assert_eq!(say(&r, "10.0.0.9", 0), "blackhole");
}

#[test]
fn views_filter_and_page() {
    let mut r = router();
    let many: Vec<String> = (0..50).map(|i| format!("20.{i}.0.0/16")).collect();
    let mut routes: Vec<(&str, Arc<RouteAction>)> =
        many.iter().map(|p| (p.as_str(), via(&["10.0.0.2"]))).collect();
    routes.push(("2000::/3", via(&["2001:db8:1::9"])));
    r.apply(0, config(&two_interfaces(), &routes)).unwrap();
    let all = r.routes(&RouteFilter { source: Some(Source::Static), ..Default::default() });
    assert_eq!(all.len(), 51);
    let mut paged = Vec::new();
    let mut filter = RouteFilter { source: Some(Source::Static), limit: 7, ..Default::default() };
    loop {
        let page = r.routes(&filter);
        let Some(last) = page.last() else { break };
        filter.after = Some(last.prefix);
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let shown =
        |f: RouteFilter| r.routes(&f).iter().map(|v| v.prefix.to_string()).collect::<Vec<_>>().join(" ");
    let f = RouteFilter::default;
    assert_eq!(shown(RouteFilter { longest_match: Some(ip("20.7.1.1")), ..f() }), "20.7.0.0/16");
    assert_eq!(shown(RouteFilter { longest_match: Some(ip("99.7.1.1")), ..f() }), "");
    assert_eq!(shown(RouteFilter { within: Some(net("20.48.0.0/15")), ..f() }), "20.48.0.0/16 20.49.0.0/16");
    assert_eq!(
        shown(RouteFilter { gateway: Some(ip("2001:db8:1::9")), ..f() }),
        "2000::/3 2001:db8:1::9/128"
    );
    assert_eq!(shown(RouteFilter { interface: Some(2), ip4: Some(true), ..f() }), "10.0.1.0/24",);
    let view = &r.routes(&RouteFilter { longest_match: Some(ip("20.7.1.1")), ..f() })[0];
    assert_eq!(view.action, ActionView::Route(via(&["10.0.0.2"])));
    assert_eq!(view.paths[0].state, Some(NeighborState::Incomplete));
    assert_eq!(view.paths[0].interface, Some(1));
    let host = &r.routes(&RouteFilter { source: Some(Source::Neighbor), ip4: Some(true), ..f() })[0];
    assert_eq!((host.prefix, &host.action), (net("10.0.0.2/32"), &ActionView::Neighbor(1)));
}

#[test]
fn nothing_is_left_after_all_is_removed() {
    let mut r = router();
    let mut first: Option<RouterStats> = None;
    for round in 0..300u64 {
        let now = round * 10_000 * SECOND;
        let mut c = config(
            &two_interfaces(),
            &[
                ("20.0.0.0/8", via(&["10.0.0.2"])),
                ("20.0.0.0/25", via(&["10.0.0.2"])),
                ("20.0.0.1/32", via(&["10.0.0.2"])),
                ("30.0.0.0/8", via(&["20.0.0.2", "10.0.1.2", "10.0.1.3"])),
                ("2000::/3", via(&["2001:db8:1::9"])),
            ],
        );
        c.neighbors = vec![StaticNeighbor { interface: 2, address: ip("10.0.1.3"), mac: mac(3) }];
        r.apply(now, c).unwrap();
        reply(&mut r, now, 1, "10.0.0.2", 2);
        r.event(now, RouterEvent::Unresolved { interface: 1, address: ip("10.0.0.99"), asked: false });
        r.tick(now + SECOND);
        r.set_link(now + SECOND, 2, false).unwrap();
        r.apply(now + 2 * SECOND, RouterConfig::default()).unwrap();
        (0..9).for_each(|t| r.tick(now + (3 + t) * 1000 * SECOND));
        r.probes().for_each(drop);
        let stats = RouterStats { neighbor_events: Default::default(), ..r.stats() };
        assert_eq!(*first.get_or_insert(stats), stats);
        assert_eq!((stats.plane, stats.actions, stats.neighbors), Default::default());
        assert_eq!(
            (
                r.default_vrf.v4.rib.len(),
                r.default_vrf.v6.rib.len(),
                r.default_vrf.v4.fib.len(),
                r.default_vrf.v6.fib.len()
            ),
            (0, 0, 0, 0)
        );
    }
}

//! VRFs: overlapping networks, routes that lead from one table to another, and tables that come and go.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use ipnet::IpNet;
use linerate_pipeline::DropReason;
use linerate_router::naive::NaiveFib;
use linerate_router::neighbor::NeighborOptions;
use linerate_router::show::RouteFilter;
use linerate_router::{Path, RouteAction, Router, RouterConfig, RouterError, Source, VrfConfig};
use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::qsbr::Domain;

/// Two customers with the same addresses, and a network both may reach. Interfaces 1 and 2 are red, 3 and 4 blue.
fn overlapping() -> RouterConfig {
    let red: &[(&str, &[Path])] =
        &[("198.51.100.0/24", &[via("10.0.1.9")]), ("2001:db8:f::/48", &[via("2001:db8:1::9")])];
    let blue: &[(&str, &[Path])] = red;
    RouterConfig {
        interfaces: vec![
            interface(0, 0, &["10.9.0.1/24", "2001:db8:9::1/64"]),
            interface(1, 1, &["10.0.1.1/24", "2001:db8:1::1/64"]),
            interface(2, 1, &["10.0.2.1/24", "2001:db8:2::1/64"]),
            interface(3, 2, &["10.0.1.1/24", "2001:db8:1::1/64"]),
            interface(4, 2, &["10.0.2.1/24", "2001:db8:2::1/64"]),
        ],
        neighbors: neighbors(&[
            (0, "10.9.0.9"),
            (1, "10.0.1.9"),
            (3, "10.0.1.9"),
            (2, "10.0.2.9"),
            (4, "10.0.2.9"),
            (0, "2001:db8:9::9"),
            (1, "2001:db8:1::9"),
            (3, "2001:db8:1::9"),
            (2, "2001:db8:2::9"),
            (4, "2001:db8:2::9"),
        ]),
        vrfs: vec![vrf(1, "red", red), vrf(2, "blue", blue)],
        ..RouterConfig::default()
    }
}

#[test]
fn the_same_addresses_in_two_vrfs_do_not_meet() {
    let mut bed = live(overlapping());
    for (port, out) in [(2, 1), (4, 3)] {
        for (from, to) in [("10.0.2.9", "198.51.100.7"), ("10.0.2.9", "10.0.1.9")] {
            assert_eq!(only(&both(&mut bed, port, &udp(port, from, to)).0), Some((out, station(out, 9))));
        }
        for to in ["2001:db8:f::7", "2001:db8:1::9"] {
            let (sent, _) = both(&mut bed, port, &udp(port, "2001:db8:2::9", to));
            assert_eq!(only(&sent), Some((out, station(out, 9))));
        }
        // Its own addresses answer where they are, in their VRF.
        for (from, to) in [("10.0.2.9", "10.0.1.1"), ("2001:db8:2::9", "2001:db8:1::1")] {
            let (sent, _) = both(&mut bed, port, &ping(port, from, to));
            assert_eq!(only(&sent), Some((port, station(port, 9))));
            assert_eq!((read(&sent[0]).0, read(&sent[0]).1), (ip(to), ip(from)));
        }
        // An error goes back by the same VRF, from its address.
        let mut dying = udp(port, "10.0.2.9", "198.51.100.7");
        dying = packet(port, "10.0.2.9", "198.51.100.7", 17, 1, &dying[34..]);
        let (sent, _) = both(&mut bed, port, &dying);
        assert_eq!(only(&sent), Some((port, station(port, 9))));
        assert_eq!(read(&sent[0]), (ip("10.0.2.1"), ip("10.0.2.9"), Some(11)));
    }
    // The default VRF knows nothing of them, nor they of it.
    assert_eq!(read(&both(&mut bed, 0, &udp(0, "10.9.0.9", "10.0.1.9")).0[0]).2, Some(3));
    assert_eq!(read(&both(&mut bed, 2, &udp(2, "10.0.2.9", "10.9.0.9")).0[0]).2, Some(3));
    assert_eq!(read(&both(&mut bed, 0, &ping(0, "10.9.0.9", "10.0.1.1")).0[0]).2, Some(3));
}

#[test]
fn stations_of_overlapping_networks_are_resolved_each_on_its_link() {
    let mut bed =
        live(RouterConfig { neighbors: neighbors(&[(2, "10.0.2.9"), (4, "10.0.2.9")]), ..overlapping() });
    let now = bed.now;
    for (port, out) in [(2, 1), (4, 3)] {
        assert!(bed.frame(port, &udp(port, "10.0.2.9", "10.0.1.50")).iter().all(|s| s.port == out));
        bed.control();
        let mac = station(out, 50);
        let kind = linerate_router::event::ArpKind::Reply;
        let address = "10.0.1.50".parse().unwrap();
        let seen = linerate_router::RouterEvent::ArpSeen { interface: out, address, mac, kind };
        bed.router.event(now, seen);
        let sent = bed.workers[0].tick(now);
        assert_eq!(only(&sent), Some((out, mac)));
        assert_eq!(only(&bed.frame(port, &udp(port, "10.0.2.9", "10.0.1.50"))), Some((out, mac)));
    }
}

/// By an interface of another VRF, by a gateway of another VRF, by the other's table, and by the link of another VRF.
#[test]
fn routes_lead_from_one_vrf_to_another() {
    let by = |interface, gateway: &str| Path { interface: Some(interface), ..via(gateway) };
    let in_vrf = |vrf, gateway: &str| Path { vrf: Some(vrf), ..via(gateway) };
    let link = |interface| Path { gateway: None, interface: Some(interface), weight: 1, vrf: None };
    let red: &[(&str, &[Path])] = &[
        ("203.0.113.0/26", &[by(0, "10.9.0.9")]),
        ("203.0.113.64/26", &[in_vrf(0, "10.9.0.9")]),
        ("203.0.113.128/26", &[Path::table(0)]),
        ("10.9.0.0/24", &[link(0)]),
        ("2001:db8:9::/64", &[Path::table(0)]),
        // Shared: half by its own gateway, half by the default VRF's table.
        ("203.0.113.192/26", &[via("10.0.1.9"), Path::table(0)]),
    ];
    let mut config = overlapping();
    config.vrfs[0] = vrf(1, "red", red);
    config.routes = vec![
        route("203.0.113.128/25", &[via("10.9.0.9")]),
        // The way back: a table that leads on to the other.
        route("10.0.2.0/24", &[Path::table(1)]),
        route("2001:db8:2::/64", &[Path::table(1)]),
    ];
    let mut bed = live(config);
    for to in ["203.0.113.1", "203.0.113.65", "203.0.113.129", "10.9.0.9"] {
        let (sent, drops) = both(&mut bed, 2, &udp(2, "10.0.2.9", to));
        assert_eq!((only(&sent), drops), (Some((0, station(0, 9))), vec![]), "{to}");
    }
    assert_eq!(
        only(&both(&mut bed, 2, &udp(2, "2001:db8:2::9", "2001:db8:9::9")).0),
        Some((0, station(0, 9)))
    );
    let ports: std::collections::BTreeSet<_> = (192..=255)
        .map(|n| only(&both(&mut bed, 2, &udp(2, "10.0.2.9", &format!("203.0.113.{n}"))).0).unwrap().0)
        .collect();
    assert_eq!(ports, [0, 1].into());
    assert_eq!(only(&both(&mut bed, 0, &udp(0, "10.9.0.9", "10.0.2.9")).0), Some((2, station(2, 9))));
    // An address of the router in the other VRF answers, and the answer goes back the way the question came.
    let (sent, _) = both(&mut bed, 2, &ping(2, "10.0.2.9", "10.9.0.1"));
    assert_eq!(only(&sent), Some((2, station(2, 9))));
    assert_eq!(read(&sent[0]), (ip("10.9.0.1"), ip("10.0.2.9"), Some(0)));
    // Unknown stations of the other VRF's link are asked for there.
    let sent = bed.frame(2, &udp(2, "10.0.2.9", "10.9.0.44"));
    assert!(sent.iter().all(|s| s.port == 0) && bed.held() == 1);
    // blue was not asked about any of it.
    assert_eq!(read(&both(&mut bed, 4, &udp(4, "10.0.2.9", "10.9.0.9")).0[0]).2, Some(3));
}

#[test]
fn tables_that_lead_in_circles_end() {
    let mut config = overlapping();
    config.vrfs[0] = vrf(1, "red", &[("0.0.0.0/0", &[Path::table(2)])]);
    config.vrfs[1] = vrf(
        2,
        "blue",
        &[("0.0.0.0/0", &[Path::table(1)]), ("9.0.0.0/8", &[Path { vrf: Some(1), ..via("8.8.8.8") }])],
    );
    let mut bed = live(config);
    for to in ["9.1.1.1", "7.7.7.7"] {
        let (sent, _) = both(&mut bed, 4, &udp(4, "10.0.2.9", to));
        assert_eq!(read(&sent[0]).2, Some(3), "{to}");
    }
}

#[test]
fn interfaces_move_between_vrfs_with_their_networks_and_neighbours() {
    let mut bed = live(overlapping());
    let now = bed.now;
    let mut config = overlapping();
    // Both links of red go to the default VRF, and come back.
    for i in [1, 2] {
        config.interfaces[i].1.vrf = 0;
    }
    for (config, to_red) in [(config, false), (overlapping(), true)] {
        bed.router.apply(now, config).unwrap();
        let (sent, _) = both(&mut bed, 2, &udp(2, "10.0.2.9", "10.0.1.9"));
        assert_eq!(only(&sent), Some((1, station(1, 9))));
        let routed = both(&mut bed, 2, &udp(2, "10.0.2.9", "198.51.100.7")).0;
        assert_eq!(only(&routed) == Some((1, station(1, 9))), to_red);
        let hosts = |vrf| {
            let filter = RouteFilter { vrf, source: Some(Source::Neighbor), ..RouteFilter::default() };
            bed.router.routes(&filter).len()
        };
        assert_eq!((hosts(0), hosts(1), hosts(2)), if to_red { (2, 4, 4) } else { (6, 0, 4) });
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let mut bed = live(overlapping());
    let r = &mut bed.router;
    let refused = |e: RouterError| e.to_string();
    let prefix: IpNet = "1.0.0.0/8".parse().unwrap();
    assert_eq!(
        refused(r.insert(0, 7, Source::Static, prefix, &RouteAction::Blackhole).unwrap_err()),
        "there is no VRF number 7"
    );
    assert!(
        r.withdraw(0, 7, Source::Static, prefix).is_err()
            && r.set_routes(0, 7, Source::Static, vec![]).is_err()
    );
    assert_eq!(
        refused(r.delete_vrf(0, 1).unwrap_err()),
        "VRF number 1 cannot be deleted: interface if1 is in it; move it to another first"
    );
    assert!(matches!(r.delete_vrf(0, 0), Err(RouterError::DefaultVrf)));
    assert!(matches!(r.create_vrf(0, 0, "x"), Err(RouterError::DefaultVrf)));
    assert!(matches!(r.create_vrf(0, 1, "x"), Err(RouterError::VrfExists { vrf: 1 })));
    assert!(matches!(r.create_vrf(0, 5000, "x"), Err(RouterError::VrfNumber { vrf: 5000 })));
    assert!(matches!(r.create_vrf(0, 3, ""), Err(RouterError::VrfName { .. })));
    assert!(matches!(r.create_vrf(0, 3, "red"), Err(RouterError::VrfNameTaken { .. })));
    let both =
        RouteAction::Forward(vec![Path { gateway: None, interface: Some(0), weight: 1, vrf: Some(1) }]);
    assert!(matches!(
        r.insert(0, 0, Source::Static, prefix, &both),
        Err(RouterError::VrfAndInterface { .. })
    ));
    let lost = RouterConfig { vrfs: vec![], ..overlapping() };
    assert!(matches!(r.apply(0, lost), Err(RouterError::InterfaceVrf { vrf: 1, .. })));
    let (fib4, fib6) = (NaiveFib::<u32>::default(), NaiveFib::<u128>::default());
    let mut alone = Router::new(Domain::new(), fib4, fib6, NeighborOptions::default()).unwrap();
    assert!(matches!(alone.create_vrf(0, 1, "red"), Err(RouterError::OneVrfOnly)));
}

#[test]
fn paths_live_and_die_with_the_vrf_they_lead_to() {
    let mut config = overlapping();
    config.interfaces.truncate(3);
    config.neighbors.retain(|n| n.interface < 3);
    config.vrfs.truncate(1);
    config.routes = vec![
        route("203.0.113.0/24", &[Path::table(2)]),
        route("192.88.99.0/24", &[Path { vrf: Some(2), ..via("7.7.7.7") }]),
    ];
    let mut bed = live(config);
    let now = bed.now;
    for _ in 0..3 {
        assert_eq!(read(&both(&mut bed, 0, &udp(0, "10.9.0.9", "203.0.113.1")).0[0]).2, Some(3));
        bed.router.create_vrf(now, 2, "blue").unwrap();
        let leads_out = RouteAction::Forward(vec![Path { interface: Some(1), ..via("10.0.1.9") }]);
        for prefix in ["203.0.113.0/24", "7.0.0.0/8"] {
            bed.router.insert(now, 2, Source::Learned, prefix.parse().unwrap(), &leads_out).unwrap();
        }
        for to in ["203.0.113.1", "192.88.99.1"] {
            assert_eq!(only(&both(&mut bed, 0, &udp(0, "10.9.0.9", to)).0), Some((1, station(1, 9))), "{to}");
        }
        bed.router.delete_vrf(now, 2).unwrap();
    }
    assert_eq!(bed.drops(), vec![] as Vec<(DropReason, u64)>);
}

/// A router over the real FIBs with two VRFs at most.
fn real() -> Router<Ip4Fib, Ip6Fib> {
    let domain = Domain::new();
    let (fib4, fib6) = (Ip4Fib::new(&domain).unwrap(), Ip6Fib::new(&domain).unwrap());
    let router = Router::new(domain.clone(), fib4, fib6, NeighborOptions::default()).unwrap();
    let mut router = router.with_vrfs(move || Ok((Ip4Fib::new(&domain)?, Ip6Fib::new(&domain)?)));
    let config = RouterConfig {
        interfaces: vec![interface(0, 0, &["10.9.0.1/16"])],
        vrfs: vec![VrfConfig { vrf: 1, name: "red".into(), routes: vec![] }],
        ..RouterConfig::default()
    };
    router.apply(0, config).unwrap();
    router
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
}

fn table(routes: u32) -> Vec<(IpNet, Arc<RouteAction>)> {
    let actions: Vec<_> = (0..200)
        .map(|n| {
            Arc::new(RouteAction::Forward(vec![Path { interface: Some(0), ..via(&format!("10.9.1.{n}")) }]))
        })
        .collect();
    let prefix = |n: u32| {
        let net = ipnet::Ipv4Net::new((0x0b00_0000 + (n << 8)).into(), 24).unwrap();
        (IpNet::from(net), actions[n as usize % actions.len()].clone())
    };
    (0..routes).map(prefix).collect()
}

/// A full table goes with its VRF: quickly, and its memory comes back although a worker once looked into it.
#[test]
fn a_vrf_with_a_full_table_is_deleted_at_once() {
    const ROUTES: u32 = 1_000_000;
    let mut r = real();
    let before = (r.stats().actions, r.stats().plane.next_hops);
    let mut worker = r.plane();
    let mut rounds = Vec::new();
    for round in 0..5 {
        r.set_routes(1, 1, Source::Learned, table(ROUTES)).unwrap();
        assert!(worker.vrfs4.get().get(1).is_some());
        assert_eq!(r.vrf_stats(1).unwrap().ip4.fib_routes, ROUTES as usize);
        let full = resident();
        let started = Instant::now();
        r.delete_vrf(2, 1).unwrap();
        let took = started.elapsed();
        assert!(worker.vrfs4.get().get(1).is_none());
        worker.vrfs6.get();
        r.tick(3);
        rounds.push((full, resident(), took));
        r.create_vrf(4, 1, "red").unwrap();
        // Gateways that no route names any more are forgotten in time.
        for t in 0..20 {
            r.tick((10 + 100 * (round + 1) + t) * SECOND);
        }
        let after = (r.stats().actions, r.stats().plane.next_hops);
        assert_eq!(after, before, "round {round}");
    }
    for (full, left, took) in &rounds {
        eprintln!("{ROUTES} routes: {full} KiB full, {left} KiB after, deleted in {took:?}");
        assert!(*took < Duration::from_secs(2), "{took:?}");
    }
    // The allocator takes two rounds to find its shape.
    let (_, first, _) = rounds[2];
    let (full, last, _) = rounds[4];
    assert!(last < first + full / 10, "memory grew from {first} to {last} KiB");
}

#[test]
fn a_thousand_vrfs_come_and_go_and_memory_stays() {
    let mut r = real();
    let mut worker = r.plane();
    let mut sizes = Vec::new();
    for n in 0..1000u64 {
        r.create_vrf(n, 2, "blue").unwrap();
        r.set_routes(n, 2, Source::Learned, table(500)).unwrap();
        let (all, plane) = (table(1)[0].clone(), Path::table(2));
        r.insert(n, 0, Source::Static, all.0, &RouteAction::Forward(vec![plane])).unwrap();
        worker.vrfs4.get();
        worker.vrfs6.get();
        r.delete_vrf(n, 2).unwrap();
        worker.vrfs4.get();
        worker.vrfs6.get();
        r.tick(n);
        if n % 100 == 99 {
            sizes.push(resident());
        }
    }
    eprintln!("resident after each hundred: {sizes:?} KiB");
    // What 100 of them would take is some 20 MiB; the first hundred warms the allocator up.
    assert!(sizes[9] < sizes[1] + 4096, "{sizes:?}");
}

//! The whole control path with real tables: RIB, next hops, FIBs; what it takes and that it is right.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests may fail and print as tests do"
)]

use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use ipnet::IpNet;
use linerate_pipeline::Interface;
use linerate_router::event::ArpKind;
use linerate_router::model::Changes;
use linerate_router::neighbor::NeighborOptions;
use linerate_router::show::RouteFilter;
use linerate_router::{NextHop, Plane, RouteAction, Router, RouterConfig, RouterEvent, Source};
use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::fib::{Fib, Lookup};
use linerate_tables::qsbr::Domain;

type FullRouter = Router<Ip4Fib, Ip6Fib>;
type FullPlane = Plane<<Ip4Fib as Fib<u32>>::Reader, <Ip6Fib as Fib<u128>>::Reader>;

/// SplitMix64: the same on every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }
}

/// Gateway `n`, 1 to 64, of either family.
fn gateway(n: u32, ip4: bool) -> IpAddr {
    if ip4 {
        IpAddr::from([10, 99, 0, n as u8 + 1])
    } else {
        IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, n as u16 + 1])
    }
}

/// A real table as routes over 64 gateways; `None`, said loudly, where it is not there.
fn real(name: &str, ip4: bool) -> Option<Vec<(IpNet, Arc<RouteAction>)>> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir =
        std::env::var_os("LINERATE_ROUTES").map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let path = dir.join(name);
    let Ok(file) = std::fs::File::open(&path) else {
        eprintln!("SKIPPED: no routing table at {}; set LINERATE_ROUTES to its directory", path.display());
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let actions: Vec<_> = (0..=64).map(|n| Arc::new(RouteAction::via(gateway(n, ip4)))).collect();
    let route = |line: &str| {
        let (prefix, nh) = line.split_once(' ').unwrap();
        (prefix.parse().unwrap(), actions[nh.parse::<usize>().unwrap()].clone())
    };
    Some(text.lines().map(route).collect())
}

fn router(domain: &Domain) -> FullRouter {
    let (fib4, fib6) = (Ip4Fib::new(domain).unwrap(), Ip6Fib::new(domain).unwrap());
    Router::new(domain.clone(), fib4, fib6, NeighborOptions::default()).unwrap()
}

fn interfaces() -> Vec<(u16, Interface)> {
    let addresses = ["10.99.0.1/24".parse().unwrap(), "2001:db8:ffff::1/64".parse().unwrap()];
    vec![(0, Interface::new("wan", 0, [2, 0, 0, 0, 0, 1], 1500, &addresses))]
}

fn answer(plane: &FullPlane, to: IpAddr) -> Option<IpAddr> {
    let id = match to {
        IpAddr::V4(a) => plane.fib4.lookup(a.to_bits()),
        IpAddr::V6(a) => plane.fib6.lookup(a.to_bits()),
    };
    match plane.next_hops.resolve_one(id, 0) {
        NextHop::Forward(a) | NextHop::Resolve(a) => plane.next_hops.next_hop_ip(a),
        _ => None,
    }
}

fn resident_megabytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / 1e6
}

#[test]
fn both_real_tables_load_and_change_without_growing() {
    let (Some(mut v4), Some(v6)) = (real("bgp-ipv4.txt.gz", true), real("bgp-ipv6.txt.gz", false)) else {
        return;
    };
    let (count4, count6) = (v4.len(), v6.len());
    let sample: Vec<_> = v4.iter().step_by(97).chain(v6.iter().step_by(31)).cloned().collect();
    let churned: Vec<_> = v4.iter().step_by(3).chain(v6.iter().step_by(3)).cloned().collect();
    v4.extend(v6);
    let domain = Domain::new();
    let mut r = router(&domain);
    let start = Instant::now();
    let config =
        RouterConfig { interfaces: interfaces(), routes: v4, neighbors: Vec::new(), vrfs: Vec::new() };
    let changes = r.apply(0, config).unwrap();
    let loaded = start.elapsed();
    assert_eq!(changes, Changes { added: count4 + count6, replaced: 0, removed: 0 });
    let stats = r.stats();
    println!(
        "loaded {count4} + {count6} routes in {loaded:?}; {:.0} MB resident; {stats:?}",
        resident_megabytes()
    );
    assert_eq!(stats.ip4.fib_routes, count4 + 4 + 64, "own addresses, the network, and the gateways in it");
    let plane = r.plane();
    let check = |r: &FullRouter| {
        for (prefix, action) in &sample {
            let filter = RouteFilter { longest_match: Some(prefix.addr()), ..RouteFilter::default() };
            let RouteAction::Forward(paths) = &**action else { unreachable!() };
            let view = &r.routes(&filter)[0];
            let best = answer(&plane, prefix.addr());
            assert_eq!(best, view.paths[0].neighbor, "{prefix}");
            assert!(view.prefix != *prefix || best == paths[0].gateway, "{prefix}");
        }
    };
    check(&r);
    let mut rng = Rng(1);
    let mut round = |r: &mut FullRouter, updates: usize| {
        let start = Instant::now();
        for _ in 0..updates / 2 {
            let (prefix, action) = &churned[rng.below(churned.len())];
            r.withdraw(0, 0, Source::Static, *prefix).unwrap();
            r.insert(0, 0, Source::Static, *prefix, action).unwrap();
        }
        updates as f64 / start.elapsed().as_secs_f64()
    };
    round(&mut r, 200_000);
    let before = (resident_megabytes(), r.stats());
    let rate = round(&mut r, 1_000_000);
    let after = (resident_megabytes(), r.stats());
    println!("{:.0} k updates/s; resident {:.1} -> {:.1} MB", rate / 1e3, before.0, after.0);
    assert!(after.0 < before.0 + 8.0, "a million updates took {:.1} MB", after.0 - before.0);
    assert_eq!(
        (after.1.actions, after.1.plane, after.1.ip4.routes),
        (before.1.actions, before.1.plane, before.1.ip4.routes)
    );
    check(&r);
    // All of it goes again, and leaves nothing.
    r.apply(0, RouterConfig::default()).unwrap();
    (0..100).for_each(|t| r.tick(t * 100_000_000_000));
    assert_eq!((r.stats().plane, r.stats().actions, r.stats().ip4.fib_routes), Default::default());
}

#[test]
fn readers_see_untouched_routes_right_during_churn_and_gateway_changes() {
    let domain = Domain::new();
    let mut r = router(&domain);
    let via = |n| RouteAction::via(gateway(n, true));
    let routes = vec![
        ("20.0.0.0/8".parse().unwrap(), Arc::new(via(1))),
        ("21.0.0.0/8".parse().unwrap(), Arc::new(via(2))),
    ];
    r.apply(0, RouterConfig { interfaces: interfaces(), routes, neighbors: Vec::new(), vrfs: Vec::new() })
        .unwrap();
    let seen = |n: u8, mac: u8| RouterEvent::ArpSeen {
        interface: 0,
        address: [10, 99, 0, n + 1].into(),
        mac: [2, mac, mac, mac, mac, mac],
        kind: ArpKind::Reply,
    };
    r.event(0, seen(1, 1));
    r.event(0, seen(2, 2));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (plane, domain, stop) = (r.plane(), domain.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut reader = domain.register();
                let (mut batches, mut macs) = (0u64, std::collections::HashSet::new());
                while !stop.load(Relaxed) {
                    let addrs: [u32; 64] =
                        std::array::from_fn(|i| 0x1400_0000 + ((i as u32 % 2) << 24) + (i as u32) * 77_777);
                    let (mut ids, mut out) = ([0; 64], [NextHop::None; 64]);
                    plane.fib4.lookup_batch(&addrs, &mut ids);
                    let forwards = plane.next_hops.resolve(&ids, |_| 0, &mut out);
                    assert_eq!(forwards, 64, "{out:?}");
                    for (i, next_hop) in out.iter().enumerate() {
                        let NextHop::Forward(a) = next_hop else { panic!("{next_hop:?}") };
                        let adjacency = plane.next_hops.adjacency(*a);
                        let mac = adjacency.mac();
                        assert_eq!(mac[1..], [mac[1]; 5], "a header half old, half new");
                        assert!(
                            if i % 2 == 0 { mac[1] % 2 == 1 } else { mac[1] % 2 == 0 },
                            "the other's header"
                        );
                        macs.insert(mac[1]);
                    }
                    batches += 1;
                    reader.quiescent();
                }
                assert!(macs.len() > 2, "changes were seen");
                batches
            })
        })
        .collect();
    let mut rng = Rng(7);
    for round in 0..60_000u32 {
        let prefix: IpNet =
            format!("22.{}.{}.0/{}", rng.below(4), rng.below(256), 20 + rng.below(9)).parse().unwrap();
        if rng.below(2) == 0 {
            let paths = rng.below(3) as u32;
            let gateways = (0..=paths).map(|p| linerate_router::Path {
                gateway: Some(gateway(3 + p + round % 7, true)),
                interface: None,
                weight: 1,
                vrf: None,
            });
            r.insert(0, 0, Source::Static, prefix, &RouteAction::Forward(gateways.collect())).unwrap();
        } else {
            r.withdraw(0, 0, Source::Static, prefix).unwrap();
        }
        // Gateway 1 has odd MAC addresses, gateway 2 even ones.
        r.event(0, seen(1, (round as u8) | 1));
        r.event(0, seen(2, (round as u8) & !1));
    }
    stop.store(true, Relaxed);
    let batches: u64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    println!("{batches} batches checked");
    r.tick(0);
    let plane = r.stats().plane;
    assert!(plane.next_hops < 2000 && plane.adjacencies < 2000, "{plane:?}");
}

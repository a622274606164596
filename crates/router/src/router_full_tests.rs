//! Full tables, refusing FIBs, many gateways, routes over routes; and when workers are told to look again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::tests::{interface, ip, mac, net, router, router_with};
use super::*;
use crate::model::Path;
use crate::naive::{NaiveFib, NaiveReader};
use crate::neighbor::SECOND;
use crate::plane::{NextHop, NextHops};
use linerate_tables::fib::{FibError, FibMemory, Lookup};

type Hook = Box<dyn FnMut() -> Result<(), FibError>>;

/// A FIB that asks before it inserts.
struct Hooked<A: Address>(NaiveFib<A>, Hook);

impl<A: Address> Fib<A> for Hooked<A> {
    type Reader = NaiveReader<A>;
    fn reader(&self) -> NaiveReader<A> {
        self.0.reader()
    }
    fn insert(&mut self, prefix: Prefix<A>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        (self.1)()?;
        self.0.insert(prefix, nh)
    }
    fn withdraw(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.0.withdraw(prefix)
    }
    fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.0.get(prefix)
    }
    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Result<(), FibError> {
        (self.1)()?;
        self.0.load(routes)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn memory(&self) -> FibMemory {
        self.0.memory()
    }
}

type HookedRouter = Router<Hooked<u32>, Hooked<u128>>;

fn hooked(hook: impl FnMut() -> Result<(), FibError> + Clone + 'static) -> HookedRouter {
    let other = hook.clone();
    let fib4 = Hooked(NaiveFib::default(), Box::new(hook));
    let fib6 = Hooked(NaiveFib::default(), Box::new(other));
    Router::new(Domain::new(), fib4, fib6, NeighborOptions::default()).unwrap()
}

fn via(gateways: impl IntoIterator<Item = IpAddr>) -> Arc<RouteAction> {
    let path = |g| Path { gateway: Some(g), interface: None, weight: 1, vrf: None };
    Arc::new(RouteAction::Forward(gateways.into_iter().map(path).collect()))
}

fn arp(address: IpAddr, n: u8) -> RouterEvent {
    let IpAddr::V4(address) = address else { panic!("IPv4 only") };
    RouterEvent::ArpSeen { interface: 1, address, mac: mac(n), kind: ArpKind::Reply }
}

/// What the plane says about an IPv4 address.
fn ask<F4: Fib<u32>, F6: Fib<u128>>(r: &Router<F4, F6>, to: &str, hash: u32) -> NextHop {
    let plane = r.plane();
    let IpAddr::V4(to) = ip(to) else { panic!("IPv4 only") };
    plane.next_hops.resolve_one(plane.fib4.lookup(to.to_bits()), hash)
}

fn mac_of<F4: Fib<u32>, F6: Fib<u128>>(r: &Router<F4, F6>, to: &str) -> Option<u8> {
    match ask(r, to, 0) {
        NextHop::Forward(a) => Some(r.plane().next_hops.adjacency(a).mac()[5]),
        _ => None,
    }
}

/// A worker that looks when the generation changes and never again must find what changed: the generation changes after
/// the last store to a FIB.
#[test]
fn workers_are_told_after_the_fib_has_changed() {
    let (inserted_at, readers) =
        (Arc::new(AtomicU64::new(0)), Arc::new(std::sync::Mutex::new(None::<NextHops>)));
    let (at, of) = (inserted_at.clone(), readers.clone());
    let mut r = hooked(move || {
        if let Some(next_hops) = &*of.lock().unwrap() {
            at.store(next_hops.generation(), Relaxed);
        }
        Ok(())
    });
    r.set_interfaces(0, [interface(1, &["10.0.0.1/24"])]).unwrap();
    let next_hops = r.plane().next_hops;
    *readers.lock().unwrap() = Some(next_hops.clone());
    let check = |r: &mut HookedRouter, what: &str, change: &dyn Fn(&mut HookedRouter)| {
        inserted_at.store(u64::MAX, Relaxed);
        change(r);
        let at = inserted_at.load(Relaxed);
        assert_ne!(at, u64::MAX, "{what} changes the FIB");
        assert!(next_hops.generation() > at, "{what}");
    };
    let address = ip("10.0.0.77");
    let wait = RouterEvent::Unresolved { interface: 1, address, asked: true };
    r.event(0, wait);
    check(&mut r, "an answer", &|r| r.event(1, arp(ip("10.0.0.77"), 7)));
    check(&mut r, "a static neighbour", &|r| {
        r.set_neighbors(2, vec![StaticNeighbor { interface: 1, address: ip("10.0.0.78"), mac: mac(8) }])
            .unwrap();
    });
    r.event(3, RouterEvent::Unresolved { interface: 1, address: ip("10.0.0.79"), asked: true });
    r.tick(SECOND + 3);
    r.tick(2 * SECOND + 3);
    check(&mut r, "silence", &|r| r.tick(3 * SECOND + 3));
    check(&mut r, "a route", &|r| {
        r.insert(4 * SECOND, 0, Source::Static, net("10.0.0.80/32"), &RouteAction::Blackhole).unwrap();
    });
}

/// While a worker is held up nothing is recycled; a neighbour that then finds the tables full is unreachable, and its
/// old adjacency, which may become another's, is named by nobody.
#[test]
fn a_neighbour_that_finds_the_tables_full_is_unreachable_until_there_is_room() {
    let domain = Domain::new();
    let mut worker = domain.register();
    let limits = Limits { next_hops: 64, adjacencies: 4 };
    let (fib4, fib6) = (NaiveFib::default(), NaiveFib::default());
    let mut r = Router::with_limits(domain, fib4, fib6, NeighborOptions::default(), limits).unwrap();
    let (one, two) = (ip("10.0.0.2"), ip("10.0.0.3"));
    let routes = [("20.0.0.0/8", via([one])), ("30.0.0.0/8", via([two])), ("40.0.0.0/8", via([one, two]))];
    let routes = routes.map(|(p, a)| (net(p), a)).to_vec();
    let config = RouterConfig {
        interfaces: vec![interface(1, &["10.0.0.1/24"])],
        routes,
        neighbors: vec![],
        vrfs: vec![],
    };
    r.apply(0, config).unwrap();
    r.event(0, arp(one, 2));
    r.event(0, arp(two, 3));
    assert_eq!([mac_of(&r, "20.0.0.1"), mac_of(&r, "30.0.0.1")], [Some(2), Some(3)]);
    // It moves, and there is no room for its new header.
    let moved = |n| RouterEvent::ArpSeen {
        interface: 1,
        address: "10.0.0.2".parse().unwrap(),
        mac: mac(n),
        kind: ArpKind::Gratuitous,
    };
    r.event(1, moved(9));
    assert_eq!(ask(&r, "20.0.0.1", 0), NextHop::Unreachable);
    assert_eq!(ask(&r, "10.0.0.2", 0), NextHop::Unreachable);
    for hash in 0..200 {
        assert_eq!(
            ask(&r, "40.0.0.1", u32::wrapping_mul(hash, 0x9e37_79b9)),
            ask(&r, "30.0.0.1", 0),
            "the group goes on by the other"
        );
    }
    assert!(r.stats().neighbor_events.plane_full > 0);
    worker.quiescent();
    r.tick(2 * SECOND);
    assert_eq!(
        [mac_of(&r, "20.0.0.1"), mac_of(&r, "10.0.0.2"), mac_of(&r, "30.0.0.1")],
        [Some(9), Some(9), Some(3)]
    );
}

#[test]
fn a_state_that_does_not_fit_is_an_error() {
    let limits = Limits { next_hops: 12, adjacencies: 64 };
    let (fib4, fib6) = (NaiveFib::default(), NaiveFib::default());
    let mut r = Router::with_limits(Domain::new(), fib4, fib6, NeighborOptions::default(), limits).unwrap();
    let routes =
        |n: u8| (0..n).map(|n| (net(&format!("20.{n}.0.0/16")), via([[10, 0, 0, n + 2].into()]))).collect();
    let config = |n| RouterConfig {
        interfaces: vec![interface(1, &["10.0.0.1/24"])],
        routes: routes(n),
        neighbors: vec![],
        vrfs: Vec::new(),
    };
    assert_eq!(r.apply(0, config(6)), Err(RouterError::Plane(PlaneError::TooManyNextHops)));
    r.apply(0, config(3)).unwrap();
}

#[test]
fn a_fib_that_refuses_leaves_no_use_behind() {
    for bulk in [false, true] {
        for fails_at in 0..40 {
            let left = Arc::new(AtomicUsize::new(usize::MAX));
            let count = left.clone();
            let mut r = hooked(move || {
                let n = count.load(Relaxed);
                count.store(n.wrapping_sub(1), Relaxed);
                if n == 0 { Err(FibError::Full(1)) } else { Ok(()) }
            });
            let interfaces = vec![interface(1, &["10.0.0.1/24", "2001:db8::1/64"])];
            let mut routes: Vec<_> =
                (0..6u8).map(|n| (net(&format!("20.{n}.0.0/16")), via([[10, 0, 0, n + 2].into()]))).collect();
            routes.extend((0..6u8).map(|n| (net(&format!("2001:{n}::/32")), via([ip("2001:db8::9")]))));
            if bulk {
                let many = |n: u32| {
                    (
                        IpNet::new([30, 0, (n >> 8) as u8, n as u8].into(), 32).unwrap(),
                        via([[10, 0, 0, 99].into()]),
                    )
                };
                routes.extend((0..5000).map(many));
            }
            let config = || RouterConfig {
                interfaces: interfaces.clone(),
                routes: routes.clone(),
                neighbors: vec![],
                vrfs: vec![],
            };
            left.store(fails_at, Relaxed);
            let _ = r.apply(0, config());
            left.store(usize::MAX, Relaxed);
            r.apply(1, config()).unwrap();
            r.apply(2, RouterConfig::default()).unwrap();
            (0..40).for_each(|t| r.tick(t * 100 * SECOND));
            let stats = r.stats();
            assert_eq!(
                (stats.actions, stats.plane, stats.ip4.fib_routes),
                Default::default(),
                "{fails_at} {bulk}"
            );
        }
    }
}

/// Each gateway has a route of its own and is a neighbour: the tables count it once.
#[test]
fn sixty_five_thousand_gateways_forward() {
    use linerate_tables::fib::{ip4::Ip4Fib, ip6::Ip6Fib};
    const N: u32 = 65_000;
    let domain = Domain::new();
    let (fib4, fib6) = (Ip4Fib::new(&domain).unwrap(), Ip6Fib::new(&domain).unwrap());
    let mut r = Router::new(domain, fib4, fib6, NeighborOptions::default()).unwrap();
    let gateway = |n: u32| IpAddr::from((0x0a00_0002 + n).to_be_bytes());
    let route =
        |n: u32| (IpNet::new((0x1400_0000 + (n << 8)).to_be_bytes().into(), 24).unwrap(), via([gateway(n)]));
    let config = RouterConfig {
        interfaces: vec![interface(1, &["10.0.0.1/15"])],
        routes: (0..N).map(route).collect(),
        neighbors: vec![],
        vrfs: Vec::new(),
    };
    r.apply(0, config).unwrap();
    (0..N).for_each(|n| r.event(1, arp(gateway(n), n as u8)));
    let plane = r.plane();
    for n in 0..N {
        for to in [0x1400_0001 + (n << 8), 0x0a00_0002 + n] {
            let NextHop::Forward(a) = plane.next_hops.resolve_one(plane.fib4.lookup(to), 0) else {
                panic!("gateway {n}, to {to:x}")
            };
            assert_eq!(plane.next_hops.next_hop_ip(a), Some(gateway(n)));
        }
    }
    assert_eq!(r.stats().neighbor_events.plane_full, 0);
    // The routes go and the neighbours stay, with next hops of their own.
    r.set_routes(2, 0, Source::Static, Vec::new()).unwrap();
    assert_eq!(mac_of(&r, "10.0.1.2"), Some(0));
    r.apply(3, RouterConfig::default()).unwrap();
    (0..9).for_each(|t| r.tick(t * 1000 * SECOND));
    assert_eq!((r.stats().plane, r.stats().actions), Default::default());
}

/// More ends than a group can have: the largest shares are used.
#[test]
fn nested_groups_that_are_too_large_keep_as_many_paths_as_a_group_can_have() {
    let mut r = router();
    let hosts =
        |third: u8| (2..302u16).map(move |n| IpAddr::from([10, third, (n >> 8) as u8, (n & 0xff) as u8]));
    let routes = vec![
        (net("172.16.0.0/16"), via(hosts(1))),
        (net("172.17.0.0/16"), via(hosts(2))),
        (net("20.0.0.0/8"), via([ip("172.16.0.1"), ip("172.17.0.1")])),
    ];
    let config = RouterConfig {
        interfaces: vec![interface(1, &["10.0.0.1/8"])],
        routes,
        neighbors: vec![],
        vrfs: vec![],
    };
    r.apply(0, config).unwrap();
    let ends: std::collections::HashSet<_> =
        (0..40_000u32).map(|h| ask(&r, "20.0.0.1", h.wrapping_mul(0x85eb_ca6b))).collect();
    assert_eq!(ends.len(), 512);
}

/// Routes over routes over routes, many ways each: every gateway is followed once. One by one they were 64 to the sixth.
#[test]
fn many_paths_over_many_levels_are_resolved_once_each() {
    let mut r = router();
    let gateway = |level: u8, n: u8| IpAddr::from([100, level, 0, n + 2]);
    let mut routes = vec![(net("20.0.0.0/8"), via((0..64).map(|n| gateway(0, n))))];
    for level in 0..6u8 {
        let on: Vec<IpAddr> = (0..64)
            .map(|n| if level == 5 { [10, 0, 0, n + 2].into() } else { gateway(level + 1, n) })
            .collect();
        routes.push((net(&format!("100.{level}.0.0/16")), via(on)));
    }
    let interfaces = vec![interface(1, &["10.0.0.1/24"])];
    r.apply(0, RouterConfig { interfaces: interfaces.clone(), routes, neighbors: vec![], vrfs: vec![] })
        .unwrap();
    let ends: std::collections::HashSet<_> =
        (0..9000u32).map(|h| ask(&r, "20.0.0.1", h.wrapping_mul(0x85eb_ca6b))).collect();
    assert_eq!(ends.len(), 64);
    // All lead to all others, and back: no way out, and no end of ways without a bound.
    let mesh = (0..40u8).map(|level| {
        (net(&format!("100.{level}.0.0/16")), via((0..40).filter(|l| *l != level).map(|l| gateway(l, 0))))
    });
    r.apply(1, RouterConfig { interfaces, routes: mesh.collect(), neighbors: vec![], vrfs: vec![] }).unwrap();
    assert_eq!(ask(&r, "100.7.0.1", 0), NextHop::Unreachable);
}

#[test]
fn static_neighbours_leave_the_room_for_learned_ones_alone() {
    let mut r = router_with(NeighborOptions { max_entries: 2, ..NeighborOptions::default() });
    r.set_interfaces(0, [interface(1, &["10.0.0.1/24"])]).unwrap();
    let statics =
        (10..20).map(|n| StaticNeighbor { interface: 1, address: [10, 0, 0, n].into(), mac: mac(n) });
    r.set_neighbors(0, statics.collect()).unwrap();
    for n in 2..=4 {
        let address: std::net::Ipv4Addr = [10, 0, 0, n].into();
        r.event(0, RouterEvent::Unresolved { interface: 1, address: address.into(), asked: false });
        r.event(0, RouterEvent::ArpSeen { interface: 1, address, mac: mac(n), kind: ArpKind::Reply });
    }
    assert_eq!(["10.0.0.2", "10.0.0.3", "10.0.0.4"].map(|a| mac_of(&r, a)), [Some(2), Some(3), None]);
    r.set_neighbors(0, Vec::new()).unwrap();
    assert_eq!((r.neighbors().count(), r.stats().neighbor_events.refused), (2, 1));
}

#[test]
fn a_static_neighbour_that_cannot_be_keeps_no_other_back() {
    let mut r = router_with(NeighborOptions::default());
    r.set_interfaces(0, [interface(1, &["10.0.0.1/24"])]).unwrap();
    let of = |interface, n| StaticNeighbor { interface, address: [10, 0, 0, n].into(), mac: mac(n) };
    // One of ours, one of an interface that is gone.
    let all = vec![of(1, 2), of(1, 1), of(7, 3), of(1, 4)];
    let refused = r.set_neighbors_that_can_be(0, all.clone());
    let problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2);
    assert!(problems[0].contains("10.0.0.1") && problems[1].contains("10.0.0.3"), "{problems:?}");
    assert_eq!(["10.0.0.2", "10.0.0.4"].map(|a| mac_of(&r, a)), [Some(2), Some(4)]);
    // Those that were there and cannot be any more go.
    r.set_interfaces(1, [interface(1, &["10.0.0.2/24"]), interface(7, &["10.0.7.1/24"])]).unwrap();
    assert_eq!(r.set_neighbors_that_can_be(1, all).len(), 1);
    assert_eq!(r.neighbors().count(), 3);
    assert!(r.set_neighbors(2, vec![of(1, 2)]).is_err());
    assert_eq!(r.neighbors().count(), 3, "all or none");
}

/// The cable of a port with many interfaces: one look at them, whatever the number of routes.
#[test]
fn a_link_that_goes_down_costs_its_interfaces_and_not_the_table() {
    let flap = |routes: u32, vlans: u16| {
        let mut r = router();
        let of = |v: u16| {
            let (_, i) = interface(1, &[&format!("10.{}.{}.1/24", v >> 8, v & 0xff)]);
            (v, Interface { name: format!("v{v}"), vlan: Some(v + 1), ..i })
        };
        let action = via([[10, 0, 0, 2].into()]);
        let route =
            |n: u32| (IpNet::new((0x1400_0000 + (n << 8)).to_be_bytes().into(), 24).unwrap(), action.clone());
        let interfaces: Vec<_> = (0..vlans).map(of).collect();
        r.apply(
            0,
            RouterConfig {
                interfaces,
                routes: (0..routes).map(route).collect(),
                neighbors: vec![],
                vrfs: vec![],
            },
        )
        .unwrap();
        let start = std::time::Instant::now();
        for up in [false, true] {
            r.set_links(1, (0..vlans).map(|v| (v, up))).unwrap();
        }
        let took = start.elapsed();
        assert_eq!(ask(&r, "10.0.0.1", 0), NextHop::Local);
        took
    };
    let median = |routes, vlans| {
        let mut all: Vec<_> = (0..5).map(|_| flap(routes, vlans)).collect();
        all.sort();
        all[2]
    };
    let (few, many) = (median(10, 100), median(200_000, 100));
    assert!(many < 20 * few, "{few:?} with ten routes, {many:?} with 200,000");
}

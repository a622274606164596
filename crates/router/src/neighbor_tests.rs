//! Floods of stations that claim to be there, beside neighbours that packets leave to.

use std::net::Ipv4Addr;

use linerate_tables::fib::Lookup;

use super::*;
use crate::event::{ArpKind, NdKind, RouterEvent};
use crate::model::StaticNeighbor;
use crate::router::tests::{TestRouter, interface, ip, mac, router_with};

const OPTIONS: NeighborOptions = NeighborOptions {
    retransmit: SECOND,
    tries: 3,
    reachable: 60 * SECOND,
    forget: 600 * SECOND,
    refuse: 3 * SECOND,
    retry_gateway: 5 * SECOND,
    max_entries: 400,
    max_interface_entries: 300,
    max_unresolved: 100,
    max_interface_unresolved: 60,
    max_probes: 4096,
};

fn flooded() -> TestRouter {
    let mut r = router_with(OPTIONS);
    let all = [interface(1, &["10.1.0.1/16", "2001:db8:1::1/64"]), interface(2, &["10.2.0.1/16"])];
    r.set_interfaces(0, all).unwrap();
    r
}

fn asks_us(r: &mut TestRouter, now: u64, interface: IfIndex, n: u32) {
    let event = match n % 2 {
        0 => RouterEvent::ArpSeen {
            interface,
            address: Ipv4Addr::from(0x0a00_0400 + (u32::from(interface) << 16) + n / 2),
            mac: mac(n as u8),
            kind: ArpKind::RequestForUs,
        },
        _ => RouterEvent::NdSeen {
            interface,
            address: (0x2001_0db8_0001_u128 << 80 | u128::from(n + 0x100)).into(),
            mac: Some(mac(n as u8)),
            kind: NdKind::Solicitation,
        },
    };
    r.event(now, event);
}

fn answers(r: &mut TestRouter, now: u64, interface: IfIndex, address: &str, n: u8) {
    r.event(now, RouterEvent::Unresolved { interface, address: ip(address), asked: true });
    let IpAddr::V4(address) = ip(address) else { unreachable!() };
    r.event(now, RouterEvent::ArpSeen { interface, address, mac: mac(n), kind: ArpKind::Reply });
}

/// The last byte of the MAC address that packets to here get.
fn leaves_to(r: &TestRouter, address: &str) -> Option<u8> {
    let plane = r.plane();
    let id = match ip(address) {
        IpAddr::V4(a) => plane.fib4.lookup(a.to_bits()),
        IpAddr::V6(a) => plane.fib6.lookup(a.to_bits()),
    };
    let NextHop::Forward(adjacency) = plane.next_hops.resolve_one(id, 0) else { return None };
    plane.next_hops.mark_used(adjacency);
    Some(plane.next_hops.adjacency(adjacency).mac()[5])
}

#[test]
fn a_flood_never_throws_out_whom_packets_leave_to() {
    let mut r = flooded();
    // One answered a question of ours, one asked us first and gets packets.
    answers(&mut r, 0, 1, "10.1.0.2", 2);
    let asked = RouterEvent::ArpSeen {
        interface: 1,
        address: [10, 1, 0, 3].into(),
        mac: mac(3),
        kind: ArpKind::RequestForUs,
    };
    r.event(0, asked);
    for n in 0..30_000u32 {
        let now = u64::from(n) * SECOND / 500;
        assert_eq!(leaves_to(&r, "10.1.0.2"), Some(2), "{n}");
        assert_eq!(leaves_to(&r, "10.1.0.3"), Some(3), "{n}");
        asks_us(&mut r, now, 1, n);
        r.tick(now);
        let asked: Vec<Probe> = r.probes().collect();
        for probe in asked.into_iter().filter(|p| p.unicast.is_some()) {
            let IpAddr::V4(address) = probe.address else { panic!("{probe:?} is not used") };
            let mac = mac(address.octets()[3]);
            r.event(now, RouterEvent::ArpSeen { interface: 1, address, mac, kind: ArpKind::Reply });
        }
        assert!(r.neighbors.total.entries <= 300, "the share of one interface");
    }
    // And there is room for others, there and elsewhere.
    answers(&mut r, 60 * SECOND, 1, "10.1.0.9", 9);
    answers(&mut r, 60 * SECOND, 2, "10.2.0.9", 9);
    assert_eq!([leaves_to(&r, "10.1.0.9"), leaves_to(&r, "10.2.0.9")], [Some(9), Some(9)]);
    assert_eq!(r.stats().neighbor_events.refused, 0);
}

#[test]
fn stations_that_answer_to_everything_leave_others_their_share() {
    let mut r = flooded();
    for n in 0..1_000u32 {
        let address = Ipv4Addr::from(0x0a01_0400 + n).to_string();
        answers(&mut r, u64::from(n), 1, &address, n as u8);
    }
    assert_eq!(r.neighbors.on[&1], Count { entries: 300, unresolved: 0 });
    assert_eq!(r.stats().neighbor_events.refused, 700);
    for n in 10..100u8 {
        answers(&mut r, 2000, 2, &format!("10.2.0.{n}"), n);
    }
    assert_eq!(leaves_to(&r, "10.2.0.99"), Some(99));
    // Those of no use make room when they have not been used for long.
    (0..70).for_each(|t| r.tick(t * SECOND));
    answers(&mut r, 70 * SECOND, 1, "10.1.0.9", 9);
    assert_eq!(leaves_to(&r, "10.1.0.9"), Some(9));
}

#[test]
fn a_scan_of_one_network_leaves_others_their_questions() {
    let mut r = flooded();
    for n in 0..1_000u32 {
        let address = Ipv4Addr::from(0x0a01_0400 + n).into();
        r.event(0, RouterEvent::Unresolved { interface: 1, address, asked: false });
    }
    assert_eq!(r.neighbors.on[&1], Count { entries: 60, unresolved: 60 });
    for n in 0..1_000u32 {
        let address = Ipv4Addr::from(0x0a02_0400 + n).into();
        r.event(0, RouterEvent::Unresolved { interface: 2, address, asked: false });
    }
    assert_eq!(r.neighbors.on[&2].unresolved, 40);
    (1..=3).for_each(|t| r.tick(t * SECOND));
    // Given up: these make room.
    answers(&mut r, 3 * SECOND, 1, "10.1.0.9", 9);
    assert_eq!(leaves_to(&r, "10.1.0.9"), Some(9));
}

#[test]
fn the_account_is_right_after_any_events() {
    let mut r = flooded();
    let mut seed = 1u32;
    let mut next = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    for n in 0..20_000u32 {
        let (now, on) = (u64::from(n) * SECOND / 20, 1 + next(2) as IfIndex);
        let address = Ipv4Addr::from(0x0a00_0400 + (u32::from(on) << 16) + next(500));
        match next(12) {
            0..4 => asks_us(&mut r, now, on, next(2_000)),
            4..6 => answers(&mut r, now, on, &address.to_string(), next(200) as u8),
            6..8 => {
                r.event(now, RouterEvent::Unresolved { interface: on, address: address.into(), asked: false })
            }
            8 => drop(leaves_to(&r, &address.to_string())),
            9 => r.distrust_neighbor(now, on, address.into()),
            10 if n % 50 == 0 => r.set_link(now, on, next(2) == 0).unwrap(),
            11 if n % 7 == 0 => {
                let statics = (0..next(5)).map(|_| StaticNeighbor {
                    interface: on,
                    address: Ipv4Addr::from(0x0a00_0400 + (u32::from(on) << 16) + next(500)).into(),
                    mac: mac(1),
                });
                r.set_neighbors(now, statics.collect()).unwrap();
            }
            _ => r.tick(now),
        }
        r.probes().for_each(drop);
        let (all, mut gives, mut on) = (&r.neighbors, 0, BTreeMap::<IfIndex, Count>::new());
        for (_, entry) in all.iter() {
            let standing = Standing::of(entry);
            let count = on.entry(entry.interface).or_default();
            count.entries += usize::from(standing.counts);
            count.unresolved += usize::from(standing.unresolved);
            gives += usize::from(standing.gives.is_some());
        }
        assert_eq!((all.givers.len(), all.givers_on.len()), (gives, gives));
        for (interface, count) in &all.on {
            assert_eq!(on.get(interface).copied().unwrap_or_default(), *count);
            assert!(count.entries <= 300 && count.unresolved <= 60);
        }
        assert!(all.total.entries <= 400 && all.total.unresolved <= 100);
    }
}

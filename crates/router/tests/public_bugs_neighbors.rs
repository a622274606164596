//! Neighbours under attack and in doubt, and what routers have got wrong about them in public.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use common::*;
use linerate_pipeline::{HeapPacket, IpPolicy};
use linerate_router::event::ArpKind;
use linerate_router::neighbor::NeighborState;
use linerate_router::testbed::{Live, Sent};
use linerate_router::{RouterConfig, RouterEvent};
use linerate_wire::Header;
use linerate_wire::arp::{self, ArpPacket};
use linerate_wire::eth::{self, EthHeader};
use zerocopy::IntoBytes;

/// An inside and a large network to scan; gateways on both.
fn config() -> RouterConfig {
    RouterConfig {
        interfaces: vec![
            interface(0, 0, &["10.0.0.1/24"]),
            interface(1, 0, &["10.64.0.1/12"]),
            interface(2, 0, &["10.2.0.1/16"]),
        ],
        routes: vec![route("198.51.100.0/24", &[via("10.64.9.9")])],
        neighbors: neighbors(&[(0, "10.0.0.9")]),
        ..RouterConfig::default()
    }
}

fn arp_frame(
    port: u16,
    operation: u16,
    sender: (&str, [u8; 6]),
    target: (&str, [u8; 6]),
    to: [u8; 6],
) -> Vec<u8> {
    let bits = |a: &str| a.parse::<Ipv4Addr>().unwrap().to_bits();
    let body = ArpPacket::new(operation, (sender.1, bits(sender.0)), (target.1, bits(target.0)));
    let header = EthHeader { dst: to, src: sender.1, ethertype: eth::ETHERTYPE_ARP.into() };
    let _ = port;
    [header.as_bytes(), body.as_bytes(), &[0; 18]].concat()
}

/// Answers ARP requests for these addresses only.
fn answer(s: &Sent, real: &[&str]) -> Option<Vec<u8>> {
    let a = ArpPacket::view_at(&s.frame, 14).filter(|_| s.frame[12..14] == [8, 6])?;
    let asked = Ipv4Addr::from_bits(a.target_ip.get());
    real.iter().find(|r| r.parse::<Ipv4Addr>().unwrap() == asked)?;
    let mac = station(s.port, asked.octets()[3]);
    let asker = (Ipv4Addr::from_bits(a.sender_ip.get()).to_string(), a.sender_mac);
    Some(arp_frame(s.port, arp::REPLY, (&asked.to_string(), mac), (&asker.0, asker.1), a.sender_mac))
}

fn state(bed: &Live, address: &str) -> Option<NeighborState> {
    bed.router.neighbors().find(|n| n.address == ip(address)).map(|n| n.state)
}

/// Thousands of unused addresses a second are tried; stations on that link, on another, and a gateway are found all the
/// same, and their first packets arrive.
#[test]
fn real_stations_are_resolved_while_somebody_scans_the_network() {
    let real = ["10.64.9.9", "10.66.0.44", "10.2.0.44"];
    let mut bed = live(config());
    let mut arrived = Vec::new();
    let mut next = 0u32;
    for ms in 0..3000u64 {
        // 3,000 addresses a second.
        let scanned = (0..3).map(|_| {
            next += 1;
            let to = Ipv4Addr::from_bits(0x0a41_0000 + next).to_string();
            HeapPacket::new(&udp(0, "10.0.0.9", &to))
        });
        let scanned: Vec<_> = scanned.collect();
        let mut sent = bed.receive(0, 0, scanned);
        if ms % 100 == 50 {
            for to in ["198.51.100.7", "10.66.0.44", "10.2.0.44"] {
                sent.extend(bed.frame(0, &udp(0, "10.0.0.9", to)));
            }
        }
        let answers: Vec<_> = sent.iter().filter_map(|s| Some((s.port, answer(s, &real)?))).collect();
        for (port, frame) in answers {
            sent.extend(bed.frame(port, &frame));
        }
        sent.extend(bed.run(1_000_000, |s| answer(s, &real)));
        arrived.extend(
            sent.into_iter().filter(|s| s.frame[12..14] == [8, 0] && s.port != 0).map(|s| (ms, read(&s).1)),
        );
    }
    for to in ["198.51.100.7", "10.66.0.44", "10.2.0.44"] {
        let first = arrived.iter().find(|(_, a)| *a == ip(to)).map(|(ms, _)| *ms);
        let count = arrived.iter().filter(|(_, a)| *a == ip(to)).count();
        assert!(first.is_some_and(|ms| ms < 200), "{to} first after {first:?} ms");
        assert!(count >= 28, "{to}: {count} of 30");
    }
    assert!(bed.router.neighbors().count() < 8000, "the table of neighbours is bounded");
    assert!(bed.held() <= 1024);
}

/// Case 34: on one link, a question for the router's address on another: no answer, nothing learned.
#[test]
fn questions_on_the_wrong_link_are_not_answered() {
    let mut bed = live(config());
    let asker = ("10.64.0.7", station(1, 7));
    let sent = bed.frame(1, &arp_frame(1, arp::REQUEST, asker, ("10.2.0.1", [0; 6]), [0xff; 6]));
    bed.control();
    assert!(sent.is_empty() && state(&bed, "10.64.0.7").is_none());
}

/// Case 26: a route whose gateway is not resolved yet, then a question from the gateway: one entry, and traffic flows.
#[test]
fn a_question_from_the_gateway_resolves_it() {
    let mut bed = live(config());
    assert_eq!(state(&bed, "10.64.9.9"), Some(NeighborState::Incomplete));
    bed.frame(0, &udp(0, "10.0.0.9", "198.51.100.7"));
    assert_eq!(bed.held(), 1);
    let gateway = ("10.64.9.9", station(1, 9));
    let answered = bed.frame(1, &arp_frame(1, arp::REQUEST, gateway, ("10.64.0.1", [0; 6]), [0xff; 6]));
    assert_eq!(only(&answered), Some((1, gateway.1)));
    bed.control();
    let sent = bed.run(5_000_000, |_| None);
    assert_eq!(only(&sent), Some((1, gateway.1)), "what waited goes out");
    assert_eq!(bed.router.neighbors().filter(|n| n.address == ip("10.64.9.9")).count(), 1);
    assert_eq!(bed.held(), 0);
}

/// Case 29: the host system says that a neighbour does not answer: it is asked for anew at once, what is sent meanwhile waits
/// and goes on when it answers after all, or is given back. Nothing of the kind for a static one.
#[test]
fn a_neighbour_that_the_host_finds_silent_is_asked_for_anew() {
    let gateway = "10.64.9.9";
    for alive in [true, false] {
        let mut bed = live(config());
        bed.run(50_000_000, |s| answer(s, &[gateway]));
        assert_eq!(state(&bed, gateway), Some(NeighborState::Reachable));
        bed.router.distrust_neighbor(bed.now, 1, ip(gateway));
        bed.router.distrust_neighbor(bed.now, 1, ip("10.64.9.10"));
        assert_eq!(state(&bed, gateway), Some(NeighborState::Incomplete));
        assert!(bed.frame(0, &udp(0, "10.0.0.9", "198.51.100.7")).is_empty() && bed.held() == 1);
        let sent = bed.run(4 * SECOND, |s| if alive { answer(s, &[gateway]) } else { None });
        let questions = sent.iter().filter(|s| s.port == 1 && s.frame[12..14] == [8, 6]).count();
        let out = |port| sent.iter().filter(|s| s.port == port && s.frame[12..14] == [8, 0]).count();
        if alive {
            assert_eq!((questions, out(1), out(0)), (1, 1, 0));
            assert_eq!(state(&bed, gateway), Some(NeighborState::Reachable));
        } else {
            assert_eq!((questions, out(1), out(0)), (3, 0, 1), "host unreachable");
            assert_eq!(state(&bed, gateway), Some(NeighborState::Failed));
        }
        assert_eq!(bed.held(), 0);
        bed.router.distrust_neighbor(bed.now, 0, ip("10.0.0.9"));
        assert_eq!(state(&bed, "10.0.0.9"), Some(NeighborState::Static));
    }
}

/// An ICMP error is as long as the link it goes back by allows, for it must not be fragmented.
#[test]
fn icmp_errors_fit_the_link_back() {
    for (mtu, longest) in [(1500, 576), (300, 300), (68, 68)] {
        let mut config = config();
        config.interfaces[0].1.mtu = mtu;
        let mut bed = live(config);
        let sent = bed.frame(0, &packet(0, "10.0.0.9", "203.0.113.1", 17, 64, &[7; 1000]));
        let (port, frame) = (sent[0].port, &sent[0].frame);
        assert_eq!((sent.len(), port, frame.len() - 14), (1, 0, longest), "{mtu}");
        assert_eq!(frame[34..36], [3, 0], "no route");
    }
}

/// Announcements make no entry, unless that is configured; of known stations they are always believed. Answers that nobody
/// asked for make none either way.
#[test]
fn announcements_are_learned_where_configured_only() {
    for learn_gratuitous in [false, true] {
        let mut config = config();
        config.interfaces[1].1.policy = IpPolicy { learn_gratuitous, ..IpPolicy::default() };
        let mut bed = live(config);
        let announce = |last, mac| arp_frame(1, arp::REQUEST, (last, mac), (last, [0; 6]), [0xff; 6]);
        bed.frame(1, &announce("10.64.0.7", station(1, 7)));
        bed.control();
        assert_eq!(state(&bed, "10.64.0.7").is_some(), learn_gratuitous);
        // On no network of the link: never.
        bed.frame(1, &announce("10.2.0.7", station(1, 8)));
        let unasked = arp_frame(
            1,
            arp::REPLY,
            ("10.64.0.8", station(1, 8)),
            ("10.64.0.1", router_mac(1)),
            router_mac(1),
        );
        bed.frame(1, &unasked);
        bed.control();
        assert!(state(&bed, "10.2.0.7").is_none() && state(&bed, "10.64.0.8").is_none());
        bed.router.event(
            bed.now,
            RouterEvent::ArpSeen {
                interface: 1,
                address: "10.64.0.9".parse().unwrap(),
                mac: station(1, 9),
                kind: ArpKind::RequestForUs,
            },
        );
        bed.frame(1, &announce("10.64.0.9", station(1, 99)));
        bed.control();
        let mac = bed.router.neighbors().find(|n| n.address == ip("10.64.0.9")).unwrap().mac;
        assert_eq!(mac, Some(station(1, 99)));
    }
}

#[test]
fn a_duplicate_address_is_noticed_with_who_uses_it_and_told_once_a_minute() {
    let mut bed = live(config());
    let claim = arp_frame(1, arp::REQUEST, ("10.64.0.1", station(1, 66)), ("10.64.0.1", [0; 6]), [0xff; 6]);
    let mut told = 0;
    for second in 0..130u64 {
        bed.now = 1 + second * SECOND;
        bed.frame(1, &claim);
        bed.control();
        told += bed.router.conflicts_to_tell().len();
    }
    let (interface, conflict) = bed.router.conflicts().next().unwrap();
    assert_eq!((interface, conflict.address, conflict.mac), (1, ip("10.64.0.1"), station(1, 66)));
    assert_eq!((conflict.count, told, bed.router.stats().neighbor_events.duplicates), (130, 3, 130));
}

/// Cases 40 and 29: a link or a neighbour goes, and what it costs does not depend on how many routes use it.
#[test]
fn groups_are_repaired_at_once_whatever_the_number_of_routes() {
    let mut times = Vec::new();
    for routes in [100u32, 100_000] {
        let paths = [via("10.64.9.9"), via("10.2.0.9")];
        let action = std::sync::Arc::new(linerate_router::RouteAction::Forward(paths.to_vec()));
        let prefix =
            |n: u32| ipnet::Ipv4Net::new(Ipv4Addr::from_bits(0x1400_0000 + (n << 8)), 24).unwrap().into();
        let mut config = config();
        config.routes = (0..routes).map(|n| (prefix(n), action.clone())).collect();
        config.neighbors.extend(neighbors(&[(1, "10.64.9.9"), (2, "10.2.0.9")]));
        let mut bed = live(config);
        let outs = |bed: &mut Live| -> Vec<u16> {
            (1..=200u8)
                .map(|n| only(&bed.frame(0, &udp(0, "10.0.0.9", &format!("20.0.0.{n}")))).unwrap().0)
                .collect()
        };
        let before = outs(&mut bed);
        assert!(before.contains(&1) && before.contains(&2));
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            bed.router.set_link(bed.now, 1, false).unwrap();
            best = best.min(started.elapsed());
            assert!(outs(&mut bed).iter().all(|port| *port == 2), "its flows have moved");
            bed.router.set_link(bed.now, 1, true).unwrap();
            assert_eq!(outs(&mut bed), before, "and come back, those and no others");
        }
        times.push(best);
    }
    eprintln!("a link goes down under 100 routes: {:?}, under 100,000: {:?}", times[0], times[1]);
    assert!(times[1] < times[0] * 20 + Duration::from_millis(1), "{times:?}");
    let _: IpAddr = ip("10.0.0.1");
}

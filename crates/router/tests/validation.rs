//! Source validation, martians, directed broadcasts and redirects: each on the express way and by the regular nodes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod common;

use common::*;
use linerate_pipeline::{DropReason, IpPolicy, SourceValidation};
use linerate_router::testbed::{ICMP_LIMIT, Live};
use linerate_router::{Path, RouteAction, RouterConfig, Source};
use linerate_wire::Header;
use linerate_wire::checksum::Sum;
use linerate_wire::icmp::IcmpHeader;
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::Ip6Header;

/// 0 is the inside, 1 and 2 are ways out, all in this VRF.
fn config(vrf: u16, policy: IpPolicy) -> RouterConfig {
    let mut interfaces = vec![
        interface(0, vrf, &["10.0.0.1/24", "2001:db8::1/64"]),
        interface(1, vrf, &["10.0.1.1/24", "2001:db8:1::1/64"]),
        interface(2, vrf, &["10.0.2.1/24", "2001:db8:2::1/64"]),
    ];
    interfaces.iter_mut().for_each(|(_, i)| i.policy = policy);
    let stations = ["10.0.0.9", "2001:db8::9"].map(|a| (0, a));
    let out1 = ["10.0.1.9", "2001:db8:1::9"].map(|a| (1, a));
    let out2 = ["10.0.2.9", "2001:db8:2::9"].map(|a| (2, a));
    let shared = [via("10.0.1.9"), via("10.0.2.9")];
    let shared6 = [via("2001:db8:1::9"), via("2001:db8:2::9")];
    let mut routes = vec![
        route("198.51.100.0/24", &[via("10.0.1.9")]),
        route("203.0.113.0/24", &shared),
        route("0.0.0.0/0", &[via("10.0.1.9")]),
        route("2001:db8:51::/48", &[via("2001:db8:1::9")]),
        route("2001:db8:52::/48", &shared6),
        route("::/0", &[via("2001:db8:1::9")]),
        route("192.88.99.0/25", &[via("10.0.2.9")]),
    ];
    routes.push(("172.16.0.0/12".parse().unwrap(), RouteAction::Blackhole.into()));
    routes.push(("2001:db8:dead::/48".parse().unwrap(), RouteAction::Blackhole.into()));
    let mut config = RouterConfig {
        interfaces,
        neighbors: neighbors(&[stations, out1, out2].concat()),
        ..RouterConfig::default()
    };
    match vrf {
        0 => config.routes = routes,
        vrf => config.vrfs = vec![linerate_router::VrfConfig { vrf, name: "red".into(), routes }],
    }
    config
}

fn policy(source_validation: SourceValidation) -> IpPolicy {
    IpPolicy { source_validation, ..IpPolicy::default() }
}

/// What a packet came to: where it left, or why not.
fn fate(bed: &mut Live, port: u16, from: &str, to: &str) -> Result<u16, DropReason> {
    let (sent, drops) = both(bed, port, &udp(port, from, to));
    match (only(&sent), &drops[..]) {
        (Some((port, _)), []) => Ok(port),
        (None, [(reason, 1)]) => Err(*reason),
        other => panic!("{from} to {to}: {other:?}"),
    }
}

#[test]
fn strict_wants_the_way_back_by_the_same_interface() {
    use DropReason::{Ip4SourceInvalid as Bad4, Ip6SourceInvalid as Bad6};
    for vrf in [0, 7] {
        let mut bed = live(config(vrf, policy(SourceValidation::Strict)));
        let mut check = |port, from: &str, wanted| {
            let to = if from.contains(':') { "2001:db8::9" } else { "10.0.0.9" };
            assert_eq!(fate(&mut bed, port, from, to), wanted, "{from} by {port}");
        };
        for (port, from) in
            [(1, "198.51.100.7"), (1, "8.8.8.8"), (1, "10.0.1.9"), (2, "10.0.2.44"), (2, "192.88.99.1")]
        {
            check(port, from, Ok(0));
        }
        for (port, from) in
            [(2, "198.51.100.7"), (2, "8.8.8.8"), (2, "10.0.1.9"), (1, "10.0.0.9"), (1, "172.16.0.1")]
        {
            check(port, from, Err(Bad4));
        }
        // Any path of a multipath route counts.
        for flow in 1..20 {
            check(1, &format!("203.0.113.{flow}"), Ok(0));
            check(2, &format!("203.0.113.{flow}"), Ok(0));
        }
        for (port, from) in [
            (1, "2001:db8:51::7"),
            (1, "2400::1"),
            (1, "2001:db8:1::44"),
            (1, "2001:db8:52::1"),
            (2, "2001:db8:52::1"),
        ] {
            check(port, from, Ok(0));
        }
        for (port, from) in
            [(2, "2001:db8:51::7"), (2, "2400::1"), (2, "2001:db8::9"), (1, "2001:db8:dead::1")]
        {
            check(port, from, Err(Bad6));
        }
    }
}

#[test]
fn loose_wants_any_route_but_default_and_discarding_ones() {
    use DropReason::{Ip4SourceInvalid as Bad4, Ip6SourceInvalid as Bad6};
    for vrf in [0, 7] {
        let mut bed = live(config(vrf, policy(SourceValidation::Loose)));
        let mut check = |from: &str, wanted| {
            let to = if from.contains(':') { "2001:db8::9" } else { "10.0.0.9" };
            assert_eq!(fate(&mut bed, 2, from, to), wanted, "{from}");
        };
        for from in [
            "198.51.100.7",
            "10.0.1.9",
            "203.0.113.1",
            "10.0.0.44",
            "192.88.99.1",
            "2001:db8:51::7",
            "2001:db8:1::44",
        ] {
            check(from, Ok(0));
        }
        for from in ["8.8.8.8", "192.88.99.200", "172.16.0.1"] {
            check(from, Err(Bad4));
        }
        for from in ["2400::1", "2001:db8:dead::1"] {
            check(from, Err(Bad6));
        }
    }
}

/// The gateway that the default route names as well as others do counts as itself, and so do the others.
#[test]
fn a_gateway_shared_with_the_default_route_counts() {
    let mut bed = live(config(0, policy(SourceValidation::Loose)));
    assert_eq!(fate(&mut bed, 2, "10.0.1.9", "10.0.0.9"), Ok(0));
    let now = bed.now;
    bed.router.withdraw(now, 0, Source::Static, "198.51.100.0/24".parse().unwrap()).unwrap();
    assert_eq!(fate(&mut bed, 2, "198.51.100.7", "10.0.0.9"), Err(DropReason::Ip4SourceInvalid));
    assert_eq!(fate(&mut bed, 2, "10.0.1.9", "10.0.0.9"), Ok(0));
}

/// A station that was given up speaks again: strict validation must not keep it away.
#[test]
fn a_silent_station_may_come_back() {
    let mut bed = live(RouterConfig { routes: vec![], ..config(0, policy(SourceValidation::Strict)) });
    bed.frame(0, &udp(0, "10.0.0.9", "10.0.1.50"));
    bed.run(4 * SECOND, |_| None);
    let state = bed.router.neighbors().find(|n| n.address == ip("10.0.1.50")).unwrap().state;
    assert_eq!(state, linerate_router::neighbor::NeighborState::Failed);
    bed.drops();
    assert_eq!(fate(&mut bed, 1, "10.0.1.50", "10.0.0.9"), Ok(0));
}

#[test]
fn sources_in_another_vrf_count_where_routes_lead_there() {
    let mut config = config(7, policy(SourceValidation::Strict));
    config.interfaces[1].1.vrf = 0;
    config.routes =
        vec![route("198.51.100.0/24", &[via("10.0.1.9")]), route("10.0.0.0/24", &[Path::table(7)])];
    config.vrfs[0].routes.retain(|(net, _)| net.prefix_len() > 0);
    let mut bed = live(config);
    // 198.51.100.7 goes by interface 1 of the default VRF; 10.0.0.9 is known there by the other table.
    assert_eq!(fate(&mut bed, 1, "198.51.100.7", "10.0.0.9"), Ok(0));
    assert_eq!(fate(&mut bed, 1, "10.0.0.44", "10.0.0.9"), Err(DropReason::Ip4SourceInvalid));
}

/// What never may be forwarded, whatever the interface asks for (RFC 1812 5.3.7, RFC 3927, RFC 4291).
#[test]
fn martians_are_dropped_under_their_names() {
    use DropReason::*;
    for source_validation in [SourceValidation::Off, SourceValidation::Strict] {
        let mut bed = live(config(0, policy(source_validation)));
        let mut check = |from: &str, to: &str, why| {
            assert_eq!(fate(&mut bed, 0, from, to), Err(why), "{from} to {to}");
        };
        for from in ["0.1.2.3", "0.0.0.0", "127.0.0.1", "240.0.0.1", "255.255.255.255", "224.0.0.5"] {
            check(from, "198.51.100.7", Ip4BadSource);
        }
        // Of a network of the router's: broadcast and network address.
        for from in ["10.0.0.255", "10.0.2.0"] {
            check(from, "198.51.100.7", Ip4BadSource);
        }
        for from in ["10.0.0.1", "10.0.2.1"] {
            check(from, "198.51.100.7", Ip4OwnSource);
        }
        for to in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "240.0.0.1"] {
            check("10.0.0.9", to, Ip4BadDestination);
        }
        check("169.254.7.7", "198.51.100.7", Ip4LinkLocalScope);
        check("10.0.0.9", "169.254.7.7", Ip4LinkLocalScope);
        for from in ["::", "::1", "::a00:9", "::ffff:10.0.0.9", "ff02::1"] {
            check(from, "2001:db8:51::7", Ip6BadSource);
        }
        for from in ["2001:db8::1", "2001:db8:2::1"] {
            check(from, "2001:db8:51::7", Ip6OwnSource);
        }
        for to in ["::", "::1", "::a00:9", "::ffff:10.0.0.9", "ff01::1"] {
            check("2001:db8::9", to, Ip6BadDestination);
        }
        for (from, to) in [("fe80::9", "2001:db8:51::7"), ("2001:db8::9", "fe80::9")] {
            check(from, to, Ip6LinkLocalScope);
        }
    }
}

/// Hosts without an address of their own, and link-local ones, reach the router itself.
#[test]
fn link_local_sources_reach_the_router_itself() {
    let mut config = config(0, policy(SourceValidation::Strict));
    config.interfaces[0] = interface(0, 0, &["169.254.0.1/16", "2001:db8::1/64"]);
    config.interfaces[0].1.policy = policy(SourceValidation::Strict);
    config.neighbors = neighbors(&[(0, "169.254.7.9")]);
    let mut bed = live(config);
    let (sent, _) = both(&mut bed, 0, &ping(0, "169.254.7.9", "169.254.0.1"));
    assert_eq!(read(&sent[0]), (ip("169.254.0.1"), ip("169.254.7.9"), Some(0)));
    let own = bed.router.interfaces().get(0).unwrap().link_local.to_string();
    let (sent, _) = both(&mut bed, 0, &ping(0, "fe80::9", &own));
    assert_eq!(read(&sent[0]), (ip(&own), ip("fe80::9"), Some(129)));
    // DHCP: from nobody to everybody is no fault of the source's.
    let mut dhcp = udp(0, "0.0.0.0", "255.255.255.255");
    dhcp[..6].fill(0xff);
    assert_eq!(both(&mut bed, 0, &dhcp), (vec![], vec![(DropReason::Ip4Broadcast, 1)]));
}

#[test]
fn directed_broadcasts_are_sent_only_where_that_is_wanted() {
    let mut bed = live(config(0, IpPolicy::default()));
    for to in ["10.0.1.255", "10.0.1.0"] {
        assert_eq!(fate(&mut bed, 0, "10.0.0.9", to), Err(DropReason::Ip4Broadcast));
    }
    let mut config = config(0, IpPolicy::default());
    config.interfaces[1].1.policy.directed_broadcast = true;
    let mut bed = live(config);
    let (sent, drops) = both(&mut bed, 0, &udp(0, "10.0.0.9", "10.0.1.255"));
    assert_eq!((only(&sent), drops), (Some((1, [0xff; 6])), vec![]));
    let h = *Ip4Header::view_at(&sent[0].frame, 14).unwrap();
    assert_eq!((h.ttl, Ip4Header::new(0, 0, 0, 0, 0).version_ihl), (63, h.version_ihl));
    assert!(Sum::new().over(&sent[0].frame[14..34]).is_valid());
    // Not on the others, not with the last hop used up, and nobody is told of the latter.
    assert_eq!(fate(&mut bed, 0, "10.0.0.9", "10.0.2.255"), Err(DropReason::Ip4Broadcast));
    let dying = packet(0, "10.0.0.9", "10.0.1.255", 17, 1, &[0; 8]);
    assert_eq!(both(&mut bed, 0, &dying), (vec![], vec![(DropReason::Ip4Broadcast, 1)]));
    // From its own link it is a broadcast there already.
    assert_eq!(fate(&mut bed, 1, "10.0.1.9", "10.0.1.255"), Err(DropReason::LocalUnhandled));
}

#[test]
fn redirects_tell_of_a_better_first_hop_and_the_packet_goes_on() {
    let redirects = IpPolicy { redirects: true, ..IpPolicy::default() };
    let mut with = config(0, redirects);
    with.routes.push(route("192.88.99.0/24", &[via("10.0.0.9")]));
    with.routes.push(route("2001:db8:99::/48", &[Path { interface: Some(0), ..via("fe80::9") }]));
    with.routes.push(route("2001:db8:98::/48", &[via("2001:db8::9")]));
    with.neighbors.extend(neighbors(&[(0, "fe80::9"), (0, "2001:db8::8"), (0, "10.0.0.8")]));
    let mut without = with.clone();
    without.interfaces.iter_mut().for_each(|(_, i)| i.policy = IpPolicy::default());

    let mut bed = live(without);
    assert_eq!(only(&both(&mut bed, 0, &udp(0, "10.0.0.8", "192.88.99.200")).0), Some((0, station(0, 9))));

    let mut bed = live(with);
    let frame = udp(0, "10.0.0.8", "192.88.99.200");
    for (to, gateway) in [("192.88.99.200", "10.0.0.9"), ("10.0.0.9", "10.0.0.9")] {
        let (sent, drops) = both(&mut bed, 0, &udp(0, "10.0.0.8", to));
        assert!(drops.is_empty());
        let (told, passed): (Vec<_>, Vec<_>) = sent.into_iter().partition(|s| read(s).2.is_some());
        assert_eq!(only(&passed), Some((0, station(0, 9))), "the packet itself");
        assert_eq!(only(&told), Some((0, station(0, 77))), "to who sent the frame");
        assert_eq!(read(&told[0]), (ip("10.0.0.1"), ip("10.0.0.8"), Some(5)));
        let f = &told[0].frame[34..];
        let message = IcmpHeader::view(f).unwrap();
        let len = usize::from(Ip4Header::view_at(&told[0].frame, 14).unwrap().total_len.get()) - 20;
        assert!(message.code == 1 && Sum::new().over(&f[..len]).is_valid());
        assert_eq!(std::net::IpAddr::from(message.rest), ip(gateway));
        assert_eq!(f[8..12], frame[14..18], "the header as it was received");
    }
    for (to, target) in [("2001:db8:99::1", "fe80::9"), ("2001:db8::9", "2001:db8::9")] {
        let (sent, _) = both(&mut bed, 0, &udp(0, "2001:db8::8", to));
        let told: Vec<_> = sent.into_iter().filter(|s| read(s).2.is_some()).collect();
        let own = bed.router.interfaces().get(0).unwrap().link_local.into();
        assert_eq!(read(&told[0]), (own, ip("2001:db8::8"), Some(137)));
        let f = &told[0].frame;
        let h = Ip6Header::view_at(f, 14).unwrap();
        let len = usize::from(h.payload_len.get());
        assert!(
            h.hop_limit == 255
                && Sum::pseudo6(&h.src, &h.dst, 58, len as u32).over(&f[54..54 + len]).is_valid()
        );
        let address = |at: usize| std::net::IpAddr::from(<[u8; 16]>::try_from(&f[at..at + 16]).unwrap());
        assert_eq!((address(62), address(78)), (ip(target), ip(to)));
        assert_eq!((f[94], usize::from(f[95]) * 8), (4, len - 40), "the redirected header ends the message");
    }
    // About a router that is known by a global address alone hosts cannot be told; nor is anybody who is not on the link,
    // nor where the packet leaves by another interface.
    for (from, to) in
        [("2001:db8::8", "2001:db8:98::1"), ("198.51.100.7", "192.88.99.200"), ("10.0.0.8", "198.51.100.7")]
    {
        let (sent, drops) = both(&mut bed, 0, &udp(0, from, to));
        assert_eq!((sent.len(), drops.len()), (1, 0), "{from} to {to}");
    }
    // All of them together keep to the limit of ICMP errors.
    bed.now += 10 * SECOND;
    let frames = (0..300).map(|_| linerate_pipeline::HeapPacket::new(&frame));
    let sent = bed.receive(0, 0, frames);
    assert_eq!(sent.iter().filter(|s| read(s).2 == Some(5)).count() as u32, ICMP_LIMIT);
    assert_eq!(sent.iter().filter(|s| read(s).2.is_none()).count(), 300);
}

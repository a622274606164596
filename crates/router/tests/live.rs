//! Control and workers together: the real router over real graphs, with a peer on the wire that answers or does not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::{DropReason, HeapPacket, Interface, PortId};
use linerate_router::neighbor::NeighborState;
use linerate_router::testbed::{Live, Sent};
use linerate_router::{Path, RouteAction, RouterConfig, StaticNeighbor};
use linerate_wire::arp::{self, ArpPacket};
use linerate_wire::eth::{self, EthHeader};
use linerate_wire::icmp::IcmpHeader;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::nd::{self, NeighborMessage, NeighborMessageWithMac};
use linerate_wire::{Header, icmpv6};
use zerocopy::IntoBytes;

const SECOND: u64 = 1_000_000_000;

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

fn router_mac(port: PortId) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

/// The station at `address`, whatever port it is on.
fn station(address: IpAddr) -> [u8; 6] {
    let last = match address {
        IpAddr::V4(a) => a.octets()[3],
        IpAddr::V6(a) => a.octets()[15],
    };
    [2, 0, 0, 0, 9, last]
}

/// An interface per port; MTU 1500.
fn config(addresses: &[&[&str]], routes: &[(&str, &[Path])]) -> RouterConfig {
    let interface = |port: usize| {
        let nets: Vec<IpNet> = addresses[port].iter().map(|a| a.parse().unwrap()).collect();
        let (name, at) = (format!("if{port}"), port as PortId);
        (at, Interface::new(&name, at, router_mac(at), 1500, &nets))
    };
    RouterConfig {
        interfaces: (0..addresses.len()).map(interface).collect(),
        routes: routes
            .iter()
            .map(|(p, paths)| (p.parse().unwrap(), Arc::new(RouteAction::Forward(paths.to_vec()))))
            .collect(),
        neighbors: Vec::new(),
        vrfs: Vec::new(),
    }
}

fn by(interface: u16) -> Path {
    Path { gateway: None, interface: Some(interface), weight: 1, vrf: None }
}

fn ethernet(port: PortId, ethertype: u16) -> EthHeader {
    EthHeader { dst: router_mac(port), src: [2, 0, 0, 0, 7, 7], ethertype: ethertype.into() }
}

fn packet(port: PortId, from: &str, to: &str, hops: u8, payload: usize) -> HeapPacket {
    let bytes = vec![0; payload];
    HeapPacket::new(&match (ip(from), ip(to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let h = Ip4Header::new(from.to_bits(), to.to_bits(), ip4::UDP, hops, payload);
            [ethernet(port, eth::ETHERTYPE_IP4).as_bytes(), h.as_bytes(), &bytes].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let h = Ip6Header::new(from.octets(), to.octets(), ip4::UDP, hops, payload);
            [ethernet(port, eth::ETHERTYPE_IP6).as_bytes(), h.as_bytes(), &bytes].concat()
        }
        _ => unreachable!("two addresses of one family"),
    })
}

/// Who is asked for, in an ARP request or a solicitation.
fn asked_for(s: &Sent) -> Option<IpAddr> {
    match s.frame[12..14] {
        [8, 6] => {
            let a = ArpPacket::view_at(&s.frame, 14)?;
            (a.operation.get() == arp::REQUEST).then(|| Ipv4Addr::from_bits(a.target_ip.get()).into())
        }
        [0x86, 0xdd] if s.frame[20] == ip6::ICMPV6 && s.frame[54] == icmpv6::NEIGHBOR_SOLICITATION => {
            Some(Ipv6Addr::from(NeighborMessage::view_at(&s.frame, 54)?.target).into())
        }
        _ => None,
    }
}

/// The answer of the station that is asked for, where it is one of these on these ports.
fn answer(s: &Sent, stations: &[(PortId, &str)]) -> Option<Vec<u8>> {
    let asked = asked_for(s)?;
    stations.iter().find(|(port, a)| *port == s.port && ip(a) == asked)?;
    let mac = station(asked);
    let header =
        |ethertype: u16| EthHeader { dst: router_mac(s.port), src: mac, ethertype: ethertype.into() };
    Some(match asked {
        IpAddr::V4(a) => {
            let request = ArpPacket::view_at(&s.frame, 14)?;
            let asker = (request.sender_mac, request.sender_ip.get());
            let reply = ArpPacket::new(arp::REPLY, (mac, a.to_bits()), asker);
            [header(eth::ETHERTYPE_ARP).as_bytes(), reply.as_bytes(), &[0; 18]].concat()
        }
        IpAddr::V6(a) => {
            let to = Ip6Header::view_at(&s.frame, 14)?.src;
            let (from, flags) = (a.octets(), nd::FLAG_SOLICITED | nd::FLAG_OVERRIDE);
            let m = NeighborMessageWithMac::new(136, flags, from, nd::OPTION_TARGET_LLA, mac, &from, &to);
            let h = Ip6Header::new(from, to, ip6::ICMPV6, 255, NeighborMessageWithMac::LEN);
            [header(eth::ETHERTYPE_IP6).as_bytes(), h.as_bytes(), m.as_bytes()].concat()
        }
    })
}

/// Frames that are no questions.
fn packets(sent: Vec<Sent>) -> Vec<Sent> {
    sent.into_iter().filter(|s| asked_for(s).is_none()).collect()
}

/// A packet to `to` reaches the station on that port: the first waits for it, the second finds the way.
fn assert_reaches(live: &mut Live, to: &str, port: PortId, stations: &[(PortId, &str)]) {
    let from = if ip(to).is_ipv4() { "10.0.0.9" } else { "2001:db8::9" };
    let mut sent = live.receive(0, 0, [packet(0, from, to, 64, 26)]);
    let answers: Vec<_> = sent.iter().filter_map(|s| Some((s.port, answer(s, stations)?))).collect();
    for (port, frame) in answers {
        sent.extend(live.frame(port, &frame));
    }
    sent.extend(live.run(SECOND / 100, |s| answer(s, stations)));
    sent.extend(live.receive(0, 0, [packet(0, from, to, 64, 26)]));
    let got: Vec<_> = packets(sent).iter().map(|s| (s.port, s.frame[..6].to_vec())).collect();
    let wanted = (port, station(ip(to)).to_vec());
    assert_eq!(got, [wanted.clone(), wanted], "to {to}; held {}, drops {:?}", live.held(), live.drops());
}

const LAN: &[&str] = &["10.0.0.1/24", "2001:db8::1/64"];
const WAN: &[&str] = &["10.0.1.1/24", "2001:db8:1::1/64"];

#[test]
fn a_route_by_an_interface_alone_reaches_hosts_on_that_link() {
    let routes: &[(&str, &[Path])] = &[
        ("198.51.100.0/24", &[by(1)]),
        ("10.0.1.128/25", &[by(1)]),
        ("203.0.113.7/32", &[by(1)]),
        ("2001:db8:77::/48", &[by(1)]),
        ("2001:db8:78::7/128", &[by(1)]),
    ];
    let hosts = ["198.51.100.7", "10.0.1.200", "203.0.113.7", "2001:db8:77::7", "2001:db8:78::7", "10.0.1.5"];
    let stations = hosts.map(|h| (1, h));
    let mut live = Live::new(config(&[LAN, WAN], routes), 1).unwrap();
    for host in hosts {
        assert_reaches(&mut live, host, 1, &stations);
    }
    // What the route no longer covers is no neighbour any more.
    let now = live.now;
    live.router
        .withdraw(now, 0, linerate_router::Source::Static, "198.51.100.0/24".parse().unwrap())
        .unwrap();
    let sent = live.receive(0, 0, [packet(0, "10.0.0.9", "198.51.100.7", 64, 26)]);
    let asked: Vec<_> = sent.iter().filter_map(asked_for).collect();
    assert_eq!(asked, [ip("10.0.0.9")], "for the sender, who is to be told that there is no route");
}

#[test]
fn a_default_route_by_an_interface_alone_and_a_more_specific_one_elsewhere() {
    let gateway = Path { gateway: Some(ip("10.0.0.99")), interface: None, weight: 1, vrf: None };
    let routes: &[(&str, &[Path])] = &[("0.0.0.0/0", &[by(1)])];
    let stations = [(1, "8.8.8.8"), (0, "10.0.0.99")];
    let mut live = Live::new(config(&[LAN, WAN], routes), 1).unwrap();
    assert_reaches(&mut live, "8.8.8.8", 1, &stations);
    // A shorter prefix than any connected network's comes between the neighbour and the route that it was found by.
    let now = live.now;
    let action = RouteAction::Forward(vec![gateway]);
    live.router
        .insert(now, 0, linerate_router::Source::Static, "8.0.0.0/7".parse().unwrap(), &action)
        .unwrap();
    live.run(SECOND / 100, |s| answer(s, &stations));
    let sent = live.receive(0, 0, [packet(0, "10.0.0.9", "8.8.8.8", 64, 26)]);
    assert_eq!((sent.len(), sent[0].port, &sent[0].frame[..6]), (1, 0, &station(ip("10.0.0.99"))[..]));
}

#[test]
fn a_static_neighbour_on_such_a_link_is_used() {
    let mut config = config(&[LAN, WAN], &[("198.51.100.0/24", &[by(1)])]);
    let mac = [2, 0, 0, 0, 9, 9];
    config.neighbors = vec![StaticNeighbor { interface: 1, address: ip("198.51.100.7"), mac }];
    let mut live = Live::new(config, 1).unwrap();
    let sent = live.receive(0, 0, [packet(0, "10.0.0.9", "198.51.100.7", 64, 26)]);
    assert_eq!((sent.len(), &sent[0].frame[..6]), (1, &mac[..]));
}

#[test]
fn a_destination_on_one_of_several_links_is_found_where_it_answers() {
    let third: &[&str] = &["10.0.2.1/24"];
    let routes: &[(&str, &[Path])] = &[("198.51.100.0/24", &[by(1), by(2)])];
    let hosts =
        ["198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "198.51.100.6", "198.51.100.7"];
    for port in [1, 2] {
        let stations = hosts.map(|h| (port, h));
        let mut live = Live::new(config(&[LAN, WAN, third], routes), 1).unwrap();
        for host in hosts {
            assert_reaches(&mut live, host, port, &stations);
        }
        // The link that it does not answer on is given up there, which changes nothing.
        live.run(5 * SECOND, |s| answer(s, &stations));
        for host in hosts {
            let sent = live.receive(0, 0, [packet(0, "10.0.0.9", host, 64, 26)]);
            assert_eq!((sent.len(), sent[0].port), (1, port));
        }
    }
}

#[test]
fn a_silent_neighbour_is_asked_for_once_a_second_by_all_workers_together() {
    let on_link: (&str, &[(&str, &[Path])]) = ("10.0.1.77", &[]);
    let gateway = Path { gateway: Some(ip("10.0.1.77")), interface: None, weight: 1, vrf: None };
    let behind: (&str, &[(&str, &[Path])]) = ("100.65.0.1", &[("100.65.0.0/16", &[gateway])]);
    for (to, routes) in [on_link, behind] {
        let mut live = Live::new(config(&[LAN, WAN], routes), 3).unwrap();
        let mut asked = Vec::new();
        let question = |s: &&Sent| asked_for(s) == Some(ip("10.0.1.77"));
        for ms in 0..2500 {
            // Each worker has a packet for it, and more of them all the time.
            let mut sent = live.receive(ms % 3, 0, [packet(0, "10.0.0.9", to, 64, 26)]);
            sent.extend(live.run(SECOND / 1000, |_| None));
            asked.extend(sent.iter().filter(question).map(|_| live.now));
        }
        assert_eq!(asked.len(), 3, "{to}: {asked:?}");
        // Control's first question may wait for the first round.
        assert!(asked.windows(2).all(|w| w[1] - w[0] >= SECOND - 3_000_000), "{asked:?}");
    }
}

#[test]
fn a_gateway_on_an_unnumbered_interface_stays() {
    let gateway = |interface| Path { gateway: Some(ip("10.9.9.2")), interface, weight: 1, vrf: None };
    let bare: &[&str] = &[];
    // Speaking with an address of another interface, and with none at all.
    for lan in [LAN, &["2001:db8::1/64"][..]] {
        let mut live =
            Live::new(config(&[lan, bare], &[("198.51.100.0/24", &[gateway(Some(1))])]), 1).unwrap();
        let stations = [(1, "10.9.9.2")];
        live.run(SECOND / 10, |s| answer(s, &stations));
        for second in 0..200 {
            live.run(SECOND, |s| answer(s, &stations));
            let sent = live.receive(0, 0, [packet(0, "10.0.0.9", "198.51.100.7", 64, 26)]);
            assert_eq!((sent.len(), sent[0].port), (1, 1), "after {second} s");
        }
        let failed = live.router.stats().neighbor_events;
        assert_eq!((failed.resolved, failed.failed), (1, 0));
    }
}

#[test]
fn an_unnumbered_interface_answers_for_the_address_it_speaks_with() {
    let bare: &[&str] = &[];
    let mut live = Live::new(config(&[LAN, bare], &[]), 1).unwrap();
    let ask = |to: u32| {
        let sender = ([2, 0, 0, 0, 9, 2], 0x0a09_0902);
        let a = ArpPacket::new(arp::REQUEST, sender, ([0; 6], to));
        let e = EthHeader { dst: eth::BROADCAST, src: sender.0, ethertype: eth::ETHERTYPE_ARP.into() };
        [e.as_bytes(), a.as_bytes(), &[0; 18]].concat()
    };
    let sent = live.frame(1, &ask(0x0a00_0001));
    let reply = ArpPacket::view_at(&sent[0].frame, 14).unwrap();
    assert_eq!(
        (reply.operation.get(), reply.sender_ip.get(), reply.sender_mac),
        (arp::REPLY, 0x0a00_0001, router_mac(1))
    );
    assert_eq!(live.frame(1, &ask(0x0a00_0002)), []);
    live.control();
    assert_eq!(live.router.neighbors().count(), 0, "no route puts it on this link");
}

/// RFC 4291 2.5.6: nothing with a link-local source may leave its link.
#[test]
fn icmp_errors_about_far_packets_come_from_an_address_that_reaches_as_far() {
    let bare: &[&str] = &[];
    let route = Path { gateway: Some(ip("fe80::2")), interface: Some(1), weight: 1, vrf: None };
    let routes: &[(&str, &[Path])] = &[("2001:db8:aa::/48", &[route])];
    let stations = [(1, "fe80::2")];
    for (first, source) in [(LAN, Some("2001:db8::1")), (&["10.0.0.1/24"][..], None)] {
        let mut live = Live::new(config(&[first, bare], routes), 1).unwrap();
        live.run(SECOND / 100, |s| answer(s, &stations));
        live.drops();
        // Hop limit, no route, and to all nodes: a ping from afar.
        let far = "2001:db8:aa::1";
        let mut sent = live.receive(0, 1, [packet(1, far, "2001:db8:aa::7", 1, 26)]);
        sent.extend(live.receive(0, 1, [packet(1, far, "2001:db9::7", 9, 26)]));
        let ping = {
            let (src, dst) = (ip6("2001:db8:aa::1"), ip6("ff02::1"));
            let mut m = IcmpHeader { kind: icmpv6::ECHO_REQUEST, code: 0, checksum: 0.into(), rest: [0; 4] };
            m.checksum.set(
                linerate_wire::checksum::Sum::pseudo6(&src, &dst, ip6::ICMPV6, 8)
                    .over(m.as_bytes())
                    .checksum(),
            );
            let e = EthHeader { dst: eth::ip6_multicast(dst), ..ethernet(1, eth::ETHERTYPE_IP6) };
            let h = Ip6Header::new(src, dst, ip6::ICMPV6, 9, 8);
            [e.as_bytes(), h.as_bytes(), m.as_bytes()].concat()
        };
        sent.extend(live.frame(1, &ping));
        let sources: Vec<_> =
            sent.iter().map(|s| Ipv6Addr::from(Ip6Header::view_at(&s.frame, 14).unwrap().src)).collect();
        match source {
            Some(source) => assert_eq!(sources, [source.parse::<Ipv6Addr>().unwrap(); 3]),
            None => assert_eq!((sources, live.drops()), (vec![], vec![(DropReason::IcmpUnsendable, 3)])),
        }
    }
}

fn ip6(s: &str) -> [u8; 16] {
    s.parse::<Ipv6Addr>().unwrap().octets()
}

#[test]
fn a_ping_to_a_link_local_address_is_answered_on_the_link() {
    let mut live = Live::new(config(&[LAN, WAN], &[]), 1).unwrap();
    let us: Ipv6Addr = live.router.interfaces().get(1).unwrap().link_local;
    // The way back to the sender's address leads elsewhere.
    let (src, dst) = (ip6("2001:db8::9"), us.octets());
    let mut m = IcmpHeader { kind: icmpv6::ECHO_REQUEST, code: 0, checksum: 0.into(), rest: [0; 4] };
    m.checksum
        .set(linerate_wire::checksum::Sum::pseudo6(&src, &dst, ip6::ICMPV6, 8).over(m.as_bytes()).checksum());
    let h = Ip6Header::new(src, dst, ip6::ICMPV6, 9, 8);
    let frame = [ethernet(1, eth::ETHERTYPE_IP6).as_bytes(), h.as_bytes(), m.as_bytes()].concat();
    let sent = live.frame(1, &frame);
    assert_eq!((sent.len(), sent[0].port, &sent[0].frame[..6]), (1, 1, &frame[6..12]));
}

/// RFC 8200 5: such a link carries no IPv6 packet of the size that every IPv6 link must, and no error can say so.
#[test]
fn a_link_too_small_for_ipv6_drops_large_packets_and_says_nothing() {
    let mut config = config(&[LAN, WAN], &[]);
    config.interfaces[1].1.mtu = 1000;
    config.neighbors = vec![StaticNeighbor { interface: 1, address: ip("2001:db8:1::9"), mac: [2; 6] }];
    let mut live = Live::new(config, 1).unwrap();
    let to = |payload| packet(0, "2001:db8::9", "2001:db8:1::9", 64, payload);
    assert_eq!(live.receive(0, 0, [to(960)]).len(), 1);
    assert_eq!(live.receive(0, 0, [to(961)]), []);
    assert_eq!(live.drops(), [(DropReason::MtuExceeded, 1)]);
}

#[test]
fn an_address_of_ours_that_another_station_claims_is_counted() {
    let mut live = Live::new(config(&[LAN, WAN], &[]), 1).unwrap();
    let sender = ([2, 0, 0, 0, 9, 2], 0x0a00_0001);
    let a = ArpPacket::new(arp::REQUEST, sender, ([0; 6], 0x0a00_0001));
    let e = EthHeader { dst: eth::BROADCAST, src: sender.0, ethertype: eth::ETHERTYPE_ARP.into() };
    live.frame(0, &[e.as_bytes(), a.as_bytes(), &[0; 18]].concat());
    live.control();
    assert_eq!(live.router.stats().neighbor_events.duplicates, 1);
    assert!(live.router.neighbors().all(|n| n.state != NeighborState::Reachable));
}

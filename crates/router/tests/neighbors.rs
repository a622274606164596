//! Packets that wait for neighbours, ICMP's rate limit, multipath: what takes several packets or time to see.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashSet;
use std::net::IpAddr;

use linerate_pipeline::{DropReason, HeapPacket};
use linerate_router::event::{ArpKind, NdKind, RouterEvent};
use linerate_router::nodes::resolve::{PER_NEIGHBOR, RETRY, TRIES};
use linerate_router::testbed::{ICMP_LIMIT, Testbed};
use linerate_wire::arp::{self, ArpPacket};
use linerate_wire::eth::{self, EthHeader};
use linerate_wire::icmp::IcmpHeader;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::nd::NeighborMessage;
use linerate_wire::udp::UdpHeader;
use linerate_wire::{Header, Mac};
use zerocopy::IntoBytes;

const LAN_HOST: Mac = [2, 0, 0, 0, 9, 0];

fn ethernet(port: u8, ethertype: u16) -> EthHeader {
    EthHeader { dst: [2, 0, 0, 0, 0, port], src: LAN_HOST, ethertype: ethertype.into() }
}

/// A UDP packet from 10.0.0.9; `n` is its source port.
fn udp4(dst: &str, n: u16) -> HeapPacket {
    let dst = dst.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
    let h = Ip4Header::new(0x0a00_0009, dst, ip4::UDP, 64, 26);
    let u = UdpHeader { src_port: n.into(), dst_port: 53.into(), len: 26.into(), checksum: 0.into() };
    HeapPacket::new(
        &[ethernet(0, eth::ETHERTYPE_IP4).as_bytes(), h.as_bytes(), u.as_bytes(), &[0; 18]].concat(),
    )
}

fn udp6(dst: &str, n: u16) -> HeapPacket {
    let ip = |s: &str| s.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let h = Ip6Header::new(ip("2001:db8::9"), ip(dst), ip4::UDP, 64, 8);
    let u = UdpHeader { src_port: n.into(), dst_port: 53.into(), len: 8.into(), checksum: 1.into() };
    HeapPacket::new(&[ethernet(0, eth::ETHERTYPE_IP6).as_bytes(), h.as_bytes(), u.as_bytes()].concat())
}

fn source_ports4(frames: &[linerate_router::testbed::Sent]) -> Vec<u16> {
    frames.iter().map(|s| UdpHeader::view_at(&s.frame, 34).unwrap().src_port.get()).collect()
}

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

#[test]
fn packets_for_an_unknown_gateway_wait_and_leave_in_order() {
    let mut bed = Testbed::new().unwrap();
    let sent = bed.receive(0, (0..3).map(|n| udp4("100.65.1.1", n)));
    assert_eq!((sent.len(), bed.held()), (0, 3), "control knows this gateway and asks for it");
    let address = ip("10.0.1.77");
    assert_eq!(bed.events(), [RouterEvent::Unresolved { interface: 1, address, asked: false }]);

    assert_eq!(bed.receive(0, [udp4("100.65.2.2", 3)]), [], "asked for already");
    assert_eq!(bed.tick(1000), [], "nothing has changed");
    bed.resolved("100.65.0.0/16", 1, ip("10.0.1.77"), Some([2, 0, 0, 0, 0, 0x77])).unwrap();
    let sent = bed.tick(1000);
    assert_eq!(source_ports4(&sent), [0, 1, 2, 3]);
    assert!(sent.iter().all(|s| s.frame[..6] == [2, 0, 0, 0, 0, 0x77] && s.frame[22] == 63));
    assert_eq!((bed.held(), bed.drops()), (0, vec![]));
    assert_eq!(source_ports4(&bed.receive(0, [udp4("100.65.2.2", 4)])), [4]);
}

#[test]
fn a_neighbour_on_the_link_is_asked_for_itself_ipv6_too() {
    let mut bed = Testbed::new().unwrap();
    let sent = bed.receive(0, [udp6("2001:db8:7::42", 1), udp6("2001:db8:7::42", 2)]);
    assert_eq!((sent.len(), bed.held()), (1, 2));
    let f = &sent[0].frame;
    assert_eq!(
        f[..18],
        [0x33, 0x33, 0xff, 0, 0, 0x42, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 0x86, 0xdd],
        "on VLAN 7"
    );
    let h = Ip6Header::view_at(f, 18).unwrap();
    assert_eq!((h.dst, h.hop_limit), (ip6::solicited_node(h_target(f)), 255));
    assert_eq!(IpAddr::from(h_target(f)), ip("2001:db8:7::42"));
    let address = ip("2001:db8:7::42");
    assert_eq!(bed.events(), [RouterEvent::Unresolved { interface: 2, address, asked: true }]);
    bed.resolved("2001:db8:7::42", 2, ip("2001:db8:7::42"), Some([2, 0, 0, 0, 0, 0x42])).unwrap();
    let sent = bed.tick(1);
    assert_eq!((sent.len(), bed.held(), bed.drops()), (2, 0, vec![]));
    assert_eq!(sent[0].frame[12..16], [0x81, 0, 0, 7]);
}

fn h_target(frame: &[u8]) -> [u8; 16] {
    NeighborMessage::view_at(frame, 18 + 40).unwrap().target
}

#[test]
fn an_announced_change_elsewhere_releases_nothing() {
    let mut bed = Testbed::new().unwrap();
    bed.receive(0, [udp4("100.65.1.1", 1), udp4("10.0.1.50", 2)]);
    bed.resolved("10.0.1.50", 1, ip("10.0.1.50"), Some([2, 0, 0, 0, 0, 0x50])).unwrap();
    assert_eq!(source_ports4(&bed.tick(1)), [2]);
    assert_eq!(bed.held(), 1);
}

#[test]
fn a_neighbour_on_the_link_is_asked_for_at_once_and_control_reminded_until_it_is_given_up() {
    let mut bed = Testbed::new().unwrap();
    let sent = bed.receive(0, [udp4("10.0.1.50", 1), udp4("10.0.1.50", 2)]);
    assert_eq!((sent.len(), sent[0].port), (1, 1), "one request goes out");
    let request = ArpPacket::view_at(&sent[0].frame, 14).unwrap();
    assert_eq!(EthHeader::view(&sent[0].frame).unwrap().dst, eth::BROADCAST);
    assert_eq!((request.operation.get(), request.sender_ip.get()), (arp::REQUEST, 0x0a00_0101));
    assert_eq!((request.target_ip.get(), sent[0].frame.len()), (0x0a00_0132, 60));
    let address = ip("10.0.1.50");
    assert_eq!(bed.events(), [RouterEvent::Unresolved { interface: 1, address, asked: true }]);
    for _ in 1..TRIES {
        bed.tick(RETRY - 1);
        assert_eq!(bed.events(), []);
        assert_eq!(bed.tick(1), [], "further questions are control's");
        assert_eq!(bed.events(), [RouterEvent::Unresolved { interface: 1, address, asked: false }]);
    }
    let sent = bed.tick(RETRY);
    assert_eq!((sent.len(), bed.held(), bed.drops()), (2, 0, vec![]));
    for s in &sent {
        let i = IcmpHeader::view_at(&s.frame, 34).unwrap();
        assert_eq!((s.port, i.kind, i.code), (0, 3, 1), "host unreachable, to the sender");
    }
    let sent = bed.receive(0, [udp4("10.0.1.50", 3)]);
    assert_eq!((sent.len(), bed.held()), (1, 1), "a new packet starts again");

    bed.receive(0, [udp6("2001:db8:1::50", 1)]);
    let sent: Vec<_> = (0..TRIES).flat_map(|_| bed.tick(RETRY)).filter(|s| s.port == 0).collect();
    let errors: Vec<_> = sent.iter().filter(|s| s.frame[12] == 0x86).collect();
    assert_eq!((errors.len(), errors[0].frame[54..56].to_vec()), (1, vec![1, 3]), "address unreachable");
}

#[test]
fn a_neighbour_given_up_by_control_answers_at_once() {
    let mut bed = Testbed::new().unwrap();
    bed.receive(0, [udp4("100.65.1.1", 1)]);
    bed.resolved("100.65.0.0/16", 1, ip("10.0.1.77"), None).unwrap();
    let sent = bed.tick(1);
    assert_eq!((sent.len(), sent[0].frame[34..36].to_vec(), bed.held()), (1, vec![3, 1], 0));
}

#[test]
fn waiting_space_is_bounded_and_the_first_packets_are_kept() {
    let mut bed = Testbed::new().unwrap();
    bed.receive(0, (0..40).map(|n| udp4("10.0.1.50", n)));
    assert_eq!(bed.drops(), [(DropReason::NeighborQueueFull, 40 - PER_NEIGHBOR as u64)]);
    // The testbed has room for four neighbours.
    bed.receive(0, ["10.0.1.51", "10.0.1.52", "10.0.1.53", "10.0.1.54"].map(|a| udp4(a, 1)));
    assert_eq!(bed.drops(), [(DropReason::NeighborTableFull, 1)]);
    // And for 100 packets.
    // The oldest that only one packet waited for has made room.
    for a in ["10.0.1.52", "10.0.1.53", "10.0.1.54"] {
        bed.receive(0, (0..31).map(|n| udp4(a, n)));
    }
    assert_eq!((bed.held(), bed.drops()), (100, vec![(DropReason::NeighborTableFull, 32 + 3 * 32 - 100)]));
    bed.resolved("10.0.1.50", 1, ip("10.0.1.50"), Some([2, 0, 0, 0, 0, 0x50])).unwrap();
    assert_eq!(source_ports4(&bed.tick(1)), (0..PER_NEIGHBOR as u16).collect::<Vec<_>>());
    bed.stop();
    assert_eq!((bed.held(), bed.drops()), (0, vec![(DropReason::Shutdown, 68)]));
}

#[test]
fn a_pool_that_is_empty_leaves_the_question_to_control() {
    let mut bed = Testbed::new().unwrap();
    bed.limit_pool(0);
    assert_eq!(bed.receive(0, [udp4("10.0.1.50", 1)]), []);
    assert_eq!((bed.held(), bed.drops()), (1, vec![]));
    let address = ip("10.0.1.50");
    assert_eq!(bed.events(), [RouterEvent::Unresolved { interface: 1, address, asked: false }]);
}

/// Packets that have waited leave before those that come in after them, also where they are more than one burst.
#[test]
fn packets_that_waited_are_not_overtaken() {
    let mut bed = Testbed::new().unwrap();
    bed.receive(
        0,
        ["10.0.1.50", "10.0.1.51", "10.0.1.52"]
            .into_iter()
            .flat_map(|a| (0..PER_NEIGHBOR as u16).map(move |n| udp4(a, n))),
    );
    for (a, n) in [("10.0.1.50", 0x50), ("10.0.1.51", 0x51), ("10.0.1.52", 0x52)] {
        bed.resolved(a, 1, ip(a), Some([2, 0, 0, 0, 0, n])).unwrap();
    }
    bed.now += 1_000_000;
    let next = PER_NEIGHBOR as u16;
    let sent = bed.receive(0, ["10.0.1.50", "10.0.1.51", "10.0.1.52"].map(|a| udp4(a, next)));
    for n in [0x50, 0x51, 0x52] {
        let of: Vec<_> = sent.iter().filter(|s| s.frame[5] == n).cloned().collect();
        assert_eq!(source_ports4(&of), (0..=next).collect::<Vec<_>>(), "to host {n:x}");
    }
    assert_eq!((bed.held(), bed.drops()), (0, vec![]));
}

#[test]
fn exactly_the_limit_of_icmp_errors_is_sent_for_both_families_together() {
    let mut bed = Testbed::new().unwrap();
    let n = ICMP_LIMIT as usize;
    let sent = bed.receive(0, (0..60).map(|n| udp4("203.0.113.250", n)));
    assert_eq!(sent.len(), 60);
    let sent = bed.receive(0, (0..60).map(|n| udp6("2001:db8:ffff::1", n)));
    assert_eq!(sent.len(), n - 60);
    assert_eq!(bed.drops(), [(DropReason::NoRoute, 120 - n as u64)]);
    bed.tick(1_000_000_000);
    assert_eq!(bed.receive(0, (0..200).map(|n| udp4("203.0.113.250", n))).len(), n);
}

#[test]
fn multipath_spreads_flows_and_keeps_each_on_its_path() {
    let mut bed = Testbed::new().unwrap();
    for v6 in [false, true] {
        let packet = |n: u16| if v6 { udp6("2001:db8:19::1", n) } else { udp4("198.19.0.1", n) };
        let first: Vec<_> = (0..600).map(|n| bed.receive(0, [packet(n)]).remove(0)).collect();
        let again: Vec<_> = (0..600).map(|n| bed.receive(0, [packet(n)]).remove(0)).collect();
        assert_eq!(first, again, "a flow stays on its path");
        for mac in [[2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2], [2, 0, 0, 0, 9, 6]] {
            let n = first.iter().filter(|s| s.frame[..6] == mac).count();
            assert!((140..260).contains(&n), "{n} of 600 by {mac:x?}");
        }
    }
    // Fragments of one datagram go one way: ports play no part.
    let fragment = |n: u16| {
        let mut p = udp4("198.19.0.1", n);
        let h = Ip4Header::view_at_mut(linerate_pipeline::Packet::head_mut(&mut p), 14).unwrap();
        h.fragment.set(ip4::MF);
        h.set_checksum();
        p
    };
    let ways: HashSet<_> = (0..50).map(|n| bed.receive(0, [fragment(n)])[0].frame[..6].to_vec()).collect();
    assert_eq!(ways.len(), 1);
    assert_eq!(bed.drops(), []);
}

fn arp_frame(port: u8, op: u16, sender: (Mac, &str), target: &str) -> Vec<u8> {
    let bits = |s: &str| s.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
    let e = EthHeader { dst: eth::BROADCAST, src: sender.0, ethertype: eth::ETHERTYPE_ARP.into() };
    let a = ArpPacket::new(op, (sender.0, bits(sender.1)), ([2, 0, 0, 0, 0, port], bits(target)));
    [e.as_bytes(), a.as_bytes(), &[0; 18]].concat()
}

#[test]
fn arp_tells_control_what_it_hears() {
    let mac = [2, 0, 0, 0, 0, 0x55];
    let cases = [
        (arp::REQUEST, "10.0.0.55", "10.0.0.1", Some(ArpKind::RequestForUs), None),
        (arp::REQUEST, "10.0.0.55", "10.0.0.9", Some(ArpKind::Other), Some(DropReason::ArpConsumed)),
        (arp::REQUEST, "10.0.0.55", "10.0.0.55", Some(ArpKind::Gratuitous), Some(DropReason::ArpConsumed)),
        (arp::REPLY, "10.0.0.55", "10.0.0.1", Some(ArpKind::Reply), Some(DropReason::ArpConsumed)),
        // Whether it can be a neighbour, control decides: routes may say so.
        (arp::REQUEST, "8.8.8.8", "10.0.0.1", Some(ArpKind::RequestForUs), None),
        (arp::REQUEST, "0.0.0.0", "10.0.0.1", None, None),
        (arp::REQUEST, "0.0.0.0", "10.0.0.9", None, Some(DropReason::ArpIgnored)),
        // Our own address, claimed by somebody else: control counts it.
        (arp::REPLY, "10.0.0.1", "10.0.0.9", Some(ArpKind::Other), Some(DropReason::ArpConsumed)),
        (arp::REQUEST, "10.0.0.1", "10.0.0.1", Some(ArpKind::Other), Some(DropReason::ArpConsumed)),
        // An address of this router, but of another interface: not from here.
        (arp::REQUEST, "10.0.0.55", "10.0.7.1", Some(ArpKind::Other), Some(DropReason::ArpConsumed)),
        (arp::REQUEST, "10.0.0.255", "10.0.0.9", None, Some(DropReason::ArpIgnored)),
        (arp::REQUEST, "224.0.0.1", "10.0.0.1", None, Some(DropReason::ArpMalformed)),
        (3, "10.0.0.55", "10.0.0.1", None, Some(DropReason::ArpMalformed)),
    ];
    for (op, sender, target, kind, drop) in cases {
        let mut bed = Testbed::new().unwrap();
        let sent = bed.frame(0, &arp_frame(0, op, (mac, sender), target));
        assert_eq!(sent.len(), usize::from(drop.is_none()), "{op} {sender} {target}");
        assert_eq!(
            bed.drops(),
            drop.map(|d| (d, 1)).into_iter().collect::<Vec<_>>(),
            "{op} {sender} {target}"
        );
        let address = sender.parse().unwrap();
        let wanted = kind.map(|kind| RouterEvent::ArpSeen { interface: 0, address, mac, kind });
        assert_eq!(bed.events(), wanted.into_iter().collect::<Vec<_>>(), "{op} {sender} {target}");
    }
    let mut bed = Testbed::new().unwrap();
    let frame = arp_frame(1, arp::REQUEST, (mac, "10.0.7.55"), "10.0.1.1");
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    assert_eq!(bed.frame(1, &tagged), [], "on VLAN 7, for the address of the untagged interface");
}

/// A neighbour-discovery message; `spoil` may break it before the checksum is computed.
fn nd_frame(
    kind: u8,
    src: &str,
    dst: &str,
    target: &str,
    options: &[u8],
    hop_limit: u8,
    flags: u32,
) -> Vec<u8> {
    let ip = |s: &str| s.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mut m =
        NeighborMessage { kind, code: 0, checksum: 0.into(), flags: flags.into(), target: ip(target) };
    let len = 24 + options.len();
    let sum = linerate_wire::checksum::Sum::pseudo6(&ip(src), &ip(dst), ip6::ICMPV6, len as u32);
    m.checksum = sum.over(m.as_bytes()).over(options).checksum().into();
    let h = Ip6Header::new(ip(src), ip(dst), ip6::ICMPV6, hop_limit, len);
    let mac = if dst.starts_with("ff") { eth::ip6_multicast(ip(dst)) } else { [2, 0, 0, 0, 0, 0] };
    let e = EthHeader { dst: mac, src: [2, 0, 0, 0, 0, 0x55], ethertype: eth::ETHERTYPE_IP6.into() };
    [e.as_bytes(), h.as_bytes(), m.as_bytes(), options].concat()
}

#[test]
fn neighbour_discovery_is_validated_and_tells_control() {
    const NS: u8 = 135;
    const NA: u8 = 136;
    let group = "ff02::1:ff00:1";
    let slla: &[u8] = &[1, 1, 2, 0, 0, 0, 0, 0x55];
    let tlla: &[u8] = &[2, 1, 2, 0, 0, 0, 0, 0x66];
    let (us, peer) = ("2001:db8::1", "2001:db8::55");
    let (s, o) = (1 << 30, 1 << 29);
    type Row<'a> = (u8, &'a str, &'a str, &'a str, &'a [u8], u8, u32, Result<usize, DropReason>, usize);
    let rows: [Row; 21] = [
        (NS, peer, group, us, slla, 255, 0, Ok(1), 1),
        (NS, peer, us, us, &[], 255, 0, Ok(1), 0),
        (NS, "::", group, us, &[], 255, 0, Ok(1), 0),
        // Whether it can be a neighbour, control decides: routes may say so.
        (NS, "2001:dead::1", group, us, slla, 255, 0, Ok(1), 1),
        (NS, peer, group, us, slla, 254, 0, Err(DropReason::NdMalformed), 0),
        (NS, peer, group, "ff02::1", slla, 255, 0, Err(DropReason::NdMalformed), 0),
        (NS, "::", group, us, slla, 255, 0, Err(DropReason::NdMalformed), 0),
        (NS, "::", us, us, &[], 255, 0, Err(DropReason::Ip6BadSource), 0),
        (NS, peer, group, us, &[1, 0, 0, 0, 0, 0, 0, 0], 255, 0, Err(DropReason::NdMalformed), 0),
        (NS, peer, group, us, &[1, 2, 0, 0, 0, 0, 0, 0], 255, 0, Err(DropReason::NdMalformed), 0),
        (NS, peer, group, us, &[1, 1, 3, 0, 0, 0, 0, 1], 255, 0, Err(DropReason::NdMalformed), 0),
        (NS, peer, group, "2001:db8::abcd", slla, 255, 0, Err(DropReason::NdIgnored), 0),
        (NA, peer, us, peer, tlla, 255, s | o, Err(DropReason::NdConsumed), 1),
        (NA, peer, "ff02::1", peer, tlla, 255, o, Err(DropReason::NdConsumed), 1),
        (NA, peer, "ff02::1", peer, tlla, 255, s, Err(DropReason::NdMalformed), 0),
        // The subnet-router anycast address; not that of another network.
        (NS, peer, "ff02::1:ff00:0", "2001:db8::", slla, 255, 0, Ok(1), 1),
        (NS, peer, "ff02::1:ff00:0", "2001:db8:1::", slla, 255, 0, Err(DropReason::NdIgnored), 0),
        (NA, peer, us, us, tlla, 255, s, Err(DropReason::NdConsumed), 1),
        (NA, peer, us, "2001:dead::1", tlla, 255, s, Err(DropReason::NdConsumed), 1),
        (NA, peer, us, peer, &[], 255, s, Err(DropReason::NdConsumed), 1),
        (133, peer, "ff02::2", "::", &[], 255, 0, Err(DropReason::NdIgnored), 0),
    ];
    for (kind, src, dst, target, options, hops, flags, wanted, events) in rows {
        let mut bed = Testbed::new().unwrap();
        let sent = bed.frame(0, &nd_frame(kind, src, dst, target, options, hops, flags));
        let what = format!("{kind} {src} {dst} {target} {options:?}");
        let heard = bed.events();
        assert_eq!(heard.len(), events, "{what}: {heard:?}");
        let drops = bed.drops();
        match wanted {
            Ok(n) => {
                assert_eq!((sent.len(), drops), (n, vec![]), "{what}");
                let m = NeighborMessage::view_at(&sent[0].frame, 54).unwrap();
                let overrides = m.flags.get() & (1 << 29) != 0;
                assert_eq!(overrides, target == us, "RFC 4861 7.2.7: an anycast address overrides nothing");
            }
            Err(reason) => assert_eq!((sent.len(), drops), (0, vec![(reason, 1)]), "{what}"),
        }
        let (address, mac, nd) = match (kind, options.is_empty()) {
            (NS, _) => (src, Some([2, 0, 0, 0, 0, 0x55]), NdKind::Solicitation),
            (_, without) => {
                // Without the option nothing is told of the address: the frame may come from another station.
                let mac = (!without).then_some([2, 0, 0, 0, 0, 0x66]);
                (target, mac, NdKind::Advertisement { solicited: flags & s != 0, overrides: flags & o != 0 })
            }
        };
        if let Some(event) = heard.first() {
            let address = address.parse().unwrap();
            assert_eq!(*event, RouterEvent::NdSeen { interface: 0, address, mac, kind: nd }, "{what}");
        }
    }
}

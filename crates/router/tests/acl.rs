//! Access lists in the whole router: what passes, what is dropped under which name, what is answered, what is counted; and the
//! same on the express way and the regular one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use linerate_pipeline::{DropReason, HeapPacket};
use linerate_router::RouterEvent;
use linerate_router::acl::{Acl, AclAction, AclBinding, AclView, Direction, parse_rules};
use linerate_router::testbed::{Sent, Testbed};
use linerate_wire::checksum::Sum;
use linerate_wire::eth::{ETHERTYPE_IP4, ETHERTYPE_IP6, EthHeader};
use linerate_wire::icmp::IcmpHeader;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Mac, icmpv6};
use zerocopy::IntoBytes;

const HOST: Mac = [2, 0, 0, 0, 9, 0];
const US: Mac = [2, 0, 0, 0, 0, 0];
const LAN: u16 = 0;
const WAN: u16 = 1;

fn a4(s: &str) -> u32 {
    s.parse::<std::net::Ipv4Addr>().unwrap().to_bits()
}

fn a6(s: &str) -> [u8; 16] {
    s.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

/// IPv4 from 10.0.0.9; header as `change` leaves it.
fn ip4(dst: &str, protocol: u8, payload: &[u8], change: impl Fn(&mut Ip4Header)) -> Vec<u8> {
    let mut h = Ip4Header::new(a4("10.0.0.9"), a4(dst), protocol, 64, payload.len());
    change(&mut h);
    h.set_checksum();
    let e = EthHeader { dst: US, src: HOST, ethertype: ETHERTYPE_IP4.into() };
    [e.as_bytes(), h.as_bytes(), payload].concat()
}

/// IPv6 from 2001:db8::9.
fn ip6(dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let h = Ip6Header::new(a6("2001:db8::9"), a6(dst), next, 64, payload.len());
    let e = EthHeader { dst: US, src: HOST, ethertype: ETHERTYPE_IP6.into() };
    [e.as_bytes(), h.as_bytes(), payload].concat()
}

fn ports(src: u16, dst: u16, rest: &[u8]) -> Vec<u8> {
    [&src.to_be_bytes()[..], &dst.to_be_bytes(), rest].concat()
}

fn tcp(src: u16, dst: u16, flags: u8) -> Vec<u8> {
    ports(src, dst, &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0])
}

fn udp(dst: u16) -> Vec<u8> {
    ports(4000, dst, &[0, 8, 0, 0])
}

fn acl(name: &str, text: &str, default: AclAction) -> Acl {
    Acl { name: name.into(), rules: parse_rules(text).unwrap(), default }
}

fn bind(interface: u16, input: Option<&str>, output: Option<&str>) -> AclBinding {
    AclBinding { interface, input: input.map(Into::into), output: output.map(Into::into) }
}

/// A router with these rules for what comes in by `lan`.
fn inbound(text: &str, regular: bool) -> Testbed {
    filtered(vec![acl("in", text, AclAction::Deny)], &[bind(LAN, Some("in"), None)], regular)
}

fn filtered(acls: Vec<Acl>, bindings: &[AclBinding], regular: bool) -> Testbed {
    let mut bed = Testbed::new().unwrap();
    bed.acls().replace(acls, bindings).unwrap();
    if regular {
        // Traced packets take the regular way.
        bed.with_graph(|graph, _| graph.tracer().arm(u32::MAX, None));
    }
    bed
}

fn hits(bed: &mut Testbed) -> Vec<u64> {
    bed.acls().views()[0].rules.iter().map(|r| r.packets).collect()
}

/// What became of a frame under these rules, the same both ways: whether it left, and the drops.
fn fate(rules: &str, frame: &[u8]) -> (bool, Vec<(DropReason, u64)>) {
    let all: Vec<_> = [false, true]
        .map(|regular| {
            let mut bed = inbound(rules, regular);
            let sent = bed.frame(0, frame);
            (sent.len(), bed.drops(), hits(&mut bed))
        })
        .into();
    assert_eq!(all[0], all[1], "{rules}");
    // In segments it is the same packet.
    for cut in [14, 20, 34, 36, 40, 54, 60].into_iter().filter(|c| *c < frame.len()) {
        let mut bed = inbound(rules, false);
        let sent = bed.receive(0, [HeapPacket::with_segments(&[&frame[..cut], &frame[cut..]])]);
        assert_eq!((sent.len(), bed.drops(), hits(&mut bed)), all[0], "{rules}, cut at {cut}");
    }
    (all[0].0 == 1, all[0].1.clone())
}

fn passes(rules: &str, frame: &[u8]) {
    assert_eq!(fate(rules, frame), (true, vec![]), "{rules}");
}

fn denied(rules: &str, frame: &[u8]) {
    assert_eq!(fate(rules, frame), (false, vec![(DropReason::AclInDenied, 1)]), "{rules}");
}

#[test]
fn the_first_rule_that_matches_decides_and_the_end_denies() {
    let web = ip4("198.18.0.1", ip4::TCP, &tcp(4000, 443, 2), |_| {});
    let dns = ip4("198.18.0.1", ip4::UDP, &udp(53), |_| {});
    let rules = "permit tcp 10.0.0.0/24 any eq 443\ndeny ip any host 198.18.0.1\npermit ip any any";
    passes(rules, &web);
    denied(rules, &dns);
    denied("permit udp any any eq 53", &web);
    passes("permit udp any any eq 53", &dns);
    denied("permit ip 10.0.0.8/32 any", &web);
    denied("permit ip any any dscp ef", &web);
    passes("permit ip any any dscp ef", &ip4("198.18.0.1", 47, &[0; 8], |h| h.tos = 46 << 2));
    denied("permit ip any any vlan 7", &web);
    passes("permit ip any any vlan untagged", &web);
    denied("permit ipv6 any any", &web);
    passes("permit ipv6 any any", &ip6("2001:db8:18::1", 17, &udp(53)));
    denied("permit ipv4 any any", &ip6("2001:db8:18::1", 17, &udp(53)));
    let mut bed = inbound(rules, false);
    for frame in [&web, &dns, &dns] {
        bed.frame(0, frame);
    }
    let view = &bed.acls().views()[0];
    let seen: Vec<_> = view.rules.iter().map(|r| (r.packets, r.bytes)).collect();
    assert_eq!(seen, [(1, 54), (2, 84), (0, 0), (0, 0), (0, 0)]);
    assert_eq!((view.inputs.as_slice(), view.outputs.as_slice()), (&[LAN][..], &[][..]));
}

#[test]
fn tcp_flags_and_icmp_types_count() {
    let segment = |flags| ip4("198.18.0.1", ip4::TCP, &tcp(443, 4000, flags), |_| {});
    let rules = "permit tcp any any established";
    denied(rules, &segment(0x02));
    passes(rules, &segment(0x12));
    passes(rules, &segment(0x04));
    denied("permit tcp any any match-all +syn -ack", &segment(0x12));
    passes("permit tcp any any match-any -syn", &segment(0x10));
    let icmp = |kind, code| ip4("198.18.0.1", ip4::ICMP, &[kind, code, 0, 0, 0, 0, 0, 0], |_| {});
    passes("permit icmp any any echo", &icmp(8, 0));
    denied("permit icmp any any echo", &icmp(0, 0));
    passes("permit icmp any any 3 4", &icmp(3, 4));
    denied("permit icmp any any 3 4", &icmp(3, 3));
    let icmp6 = |kind| ip6("2001:db8:18::1", ip6::ICMPV6, &[kind, 0, 0, 0, 0, 0, 0, 0]);
    passes("permit icmp6 any any echo-request", &icmp6(128));
    denied("permit icmp6 any any echo-request", &icmp6(129));
}

#[test]
fn fragments_have_ports_only_at_the_start() {
    let fragment = |field: u16, protocol, payload: &[u8]| {
        ip4("198.18.0.1", protocol, payload, |h| h.fragment.set(field))
    };
    let first = fragment(ip4::MF, ip4::UDP, &udp(53));
    let later = fragment(4, ip4::UDP, &udp(53));
    let rules = "permit udp any any eq 53";
    passes(rules, &first);
    denied(rules, &later);
    passes("permit ip any any fragments", &later);
    denied("permit ip any any fragments", &first);
    passes("deny udp any any eq 53\npermit ip any any", &later);
    // RFC 3128: what splits a TCP header hides its flags.
    let hidden = |frame: &[u8]| {
        let got = fate("permit ip any any", frame);
        assert_eq!(got, (false, vec![(DropReason::AclUndetermined, 1)]));
    };
    hidden(&fragment(ip4::MF, ip4::TCP, &tcp(1, 2, 2)[..8]));
    hidden(&fragment(1, ip4::TCP, &tcp(1, 2, 2)));
    passes("permit ip any any", &fragment(2, ip4::TCP, &tcp(1, 2, 2)));
    // A whole packet with less than a transport header has no ports, and matches rules without.
    let short = ip4("198.18.0.1", ip4::TCP, &tcp(1, 80, 2)[..4], |_| {});
    denied("permit tcp any any eq 80", &short);
    passes("permit tcp any any", &short);
    let short = ip4("198.18.0.1", ip4::UDP, &udp(53)[..3], |_| {});
    denied("permit udp any any eq 53", &short);
}

#[test]
fn extension_headers_are_followed_so_far() {
    let options = |next: u8| [&[next, 0, 1, 4][..], &[0; 4]].concat();
    let behind = |n: usize| {
        let mut bytes: Vec<u8> = (1..n).flat_map(|_| options(ip6::DEST_OPTIONS)).collect();
        bytes.extend(options(ip4::UDP));
        bytes.extend(udp(53));
        ip6("2001:db8:18::1", ip6::DEST_OPTIONS, &bytes)
    };
    let rules = "permit udp any any eq 53";
    passes(rules, &behind(1));
    passes(rules, &behind(4));
    let hidden = |frame: &[u8]| {
        assert_eq!(fate("permit ip any any", frame), (false, vec![(DropReason::AclUndetermined, 1)]));
    };
    hidden(&behind(40));
    hidden(&ip6("2001:db8:18::1", ip6::DEST_OPTIONS, &[17, 9, 0, 0, 0, 0, 0, 0]));
    let fragment = |field: u16, payload: &[u8]| {
        let [hi, lo] = field.to_be_bytes();
        ip6("2001:db8:18::1", ip6::FRAGMENT, &[&[ip4::UDP, 0, hi, lo, 0, 0, 0, 1], payload].concat())
    };
    passes(rules, &fragment(1, &udp(53)));
    denied(rules, &fragment(8 << 3, &udp(53)));
    passes("permit ipv6 any any fragments", &fragment(8 << 3, &udp(53)));
    denied("permit ipv6 any any fragments", &fragment(1, &udp(53)));
}

#[test]
fn rejected_packets_are_answered_from_the_interface_they_came_in_by() {
    for regular in [false, true] {
        let mut bed = inbound("reject ip any any", regular);
        let frame = ip4("198.18.0.1", ip4::UDP, &udp(53), |_| {});
        let Sent { port, frame: answer } = bed.frame(0, &frame).remove(0);
        assert_eq!((port, answer[34], answer[35]), (0, 3, 13));
        assert_eq!((&answer[26..30], &answer[30..34]), (&[10, 0, 0, 1][..], &[10, 0, 0, 9][..]));
        assert_eq!(&answer[42..42 + 28], &frame[14..42], "the packet as it came");
        let frame = ip6("2001:db8:18::1", ip4::UDP, &udp(53));
        let answer = bed.frame(0, &frame).remove(0).frame;
        assert_eq!((answer[54], answer[55]), (icmpv6::UNREACHABLE, icmpv6::unreachable::PROHIBITED));
        assert_eq!(&answer[22..38], &a6("2001:db8::1"));
        assert_eq!(bed.drops(), []);
        // None about what no error may be sent about: it is dropped under its name.
        bed.frame(0, &ip4("198.18.0.1", ip4::UDP, &udp(53), |h| h.fragment.set(9)));
        assert_eq!(bed.drops(), [(DropReason::AclRejected, 1)]);
    }
}

#[test]
fn outgoing_lists_filter_what_is_forwarded_and_not_what_the_router_says() {
    let lists = || {
        vec![acl(
            "out",
            "deny udp any any eq 53\nreject udp any any eq 54\npermit udp any any",
            AclAction::Deny,
        )]
    };
    for regular in [false, true] {
        let mut bed =
            filtered(lists(), &[bind(WAN, None, Some("out")), bind(LAN, None, Some("out"))], regular);
        let to_wan = |port| ip4("198.18.0.1", ip4::UDP, &udp(port), |_| {});
        assert_eq!(bed.frame(0, &to_wan(55)).len(), 1);
        assert_eq!(bed.frame(0, &to_wan(53)), []);
        assert_eq!(bed.drops(), [(DropReason::AclOutDenied, 1)]);
        let answer = bed.frame(0, &to_wan(54)).remove(0);
        assert_eq!(
            (answer.port, answer.frame[34], answer.frame[35]),
            (0, 3, 13),
            "though ICMP may not leave by lan"
        );
        // To jumbo, which has no list.
        assert_eq!(bed.frame(0, &ip4("100.64.6.1", 47, &[0; 8], |_| {})).len(), 1);
        let ping = |dst: &str| {
            let mut m = IcmpHeader { kind: 8, code: 0, checksum: 0.into(), rest: [0; 4] };
            m.checksum.set(Sum::new().over(m.as_bytes()).checksum());
            ip4(dst, ip4::ICMP, m.as_bytes(), |_| {})
        };
        assert_eq!(bed.frame(0, &ping("10.0.0.1")).len(), 1, "answers are not filtered");
        assert_eq!(bed.frame(0, &ping("198.18.0.1")), [], "transit is");
        assert_eq!(bed.drops(), [(DropReason::AclOutDenied, 1)]);
        assert_eq!(hits(&mut bed), [1, 1, 1, 0, 1]);
    }
}

#[test]
fn packets_for_the_router_pass_the_incoming_list_and_arp_and_nd_are_not_cut_off() {
    let mut bed = inbound("permit tcp any any", false);
    let mut m = IcmpHeader { kind: 8, code: 0, checksum: 0.into(), rest: [0; 4] };
    m.checksum.set(Sum::new().over(m.as_bytes()).checksum());
    let ping = ip4("10.0.0.1", ip4::ICMP, m.as_bytes(), |_| {});
    assert_eq!(bed.frame(0, &ping), []);
    assert_eq!(bed.drops(), [(DropReason::AclInDenied, 1)]);
    let multicast = ip4("224.0.0.5", 89, &[0; 8], |_| {});
    bed.frame(0, &multicast);
    assert_eq!(bed.drops(), [(DropReason::AclInDenied, 1)], "OSPF was not permitted");
    let solicitation = |rules: &str| {
        let us = a6("2001:db8::1");
        let mut body = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &us].concat();
        body.extend([1, 1, 2, 0, 0, 0, 9, 0]);
        let sum =
            Sum::pseudo6(&a6("2001:db8::9"), &us, ip6::ICMPV6, body.len() as u32).over(&body).checksum();
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = ip6("2001:db8::1", ip6::ICMPV6, &body);
        frame[21] = 255;
        let mut bed = inbound(rules, false);
        let sent = bed.frame(0, &frame).len();
        (sent, bed.drops())
    };
    assert_eq!(solicitation("permit tcp any any"), (1, vec![]));
    assert_eq!(solicitation("deny ipv6 any any"), (0, vec![(DropReason::AclInDenied, 1)]), "as in IOS");
    let mut arp = [&[0xff; 6][..], &HOST, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &HOST, &[10, 0, 0, 9]].concat();
    arp.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    assert_eq!(bed.frame(0, &arp).len(), 1);
}

#[test]
fn tagged_frames_have_lists_of_their_own_interface() {
    let lists = vec![
        acl("a", "permit ip any any vlan 7", AclAction::Deny),
        acl("b", "deny ip any any", AclAction::Deny),
    ];
    let mut bed = filtered(lists, &[bind(2, Some("a"), None), bind(WAN, Some("b"), None)], false);
    let mut plain = ip4("10.0.0.9", ip4::UDP, &udp(53), |_| {});
    plain[5] = 1;
    let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
    let sent = bed.receive(1, [HeapPacket::new(&plain), HeapPacket::new(&tagged), HeapPacket::new(&plain)]);
    assert_eq!((sent.len(), bed.drops()), (1, vec![(DropReason::AclInDenied, 2)]));
}

#[test]
fn samples_of_logged_rules_are_bounded_and_tell_what_came() {
    let mut bed = inbound("deny udp any any eq 53 log\npermit ip any any", false);
    let frame = ip4("198.18.0.1", ip4::UDP, &udp(53), |_| {});
    bed.receive(0, (0..500).map(|_| HeapPacket::new(&frame)));
    let events = bed.events();
    assert_eq!((events.len(), hits(&mut bed)[0]), (10, 500));
    let RouterEvent::AclHit(hit) = events[0] else { panic!("{events:?}") };
    assert_eq!((hit.list, hit.rule, hit.action, hit.direction), (0, 0, AclAction::Deny, Direction::In));
    assert_eq!((hit.src.to_string(), hit.dst.to_string()), ("10.0.0.9".into(), "198.18.0.1".into()));
    assert_eq!((hit.protocol, hit.ports, hit.bytes), (17, Some((4000, 53)), 42));
    bed.tick(2_000_000_000);
    bed.receive(0, (0..500).map(|_| HeapPacket::new(&frame)));
    assert_eq!(bed.events().len(), 10);
}

/// A list is replaced between any two packets; what was permitted before is denied from then on, and the other way round.
#[test]
fn lists_are_replaced_at_once() {
    let mut bed = inbound("permit ip any any", false);
    let frame = ip4("198.18.0.1", ip4::UDP, &udp(53), |_| {});
    for round in 0..50 {
        let (text, sent) = if round % 2 == 0 { ("deny ip any any", 0) } else { ("permit ip any any", 64) };
        let list = acl("in", text, AclAction::Deny);
        bed.acls().replace(vec![list], &[bind(LAN, Some("in"), None)]).unwrap();
        let out = bed.receive(0, (0..64).map(|_| HeapPacket::new(&frame)));
        assert_eq!(out.len(), sent);
        bed.drops();
    }
    bed.acls().replace(vec![], &[]).unwrap();
    assert_eq!(bed.receive(0, [HeapPacket::new(&frame)]).len(), 1);
    assert_eq!(bed.acls().views(), Vec::<AclView>::new());
}

/// A rule with many ports on both sides and `match-any` is thousands of combinations: too many are refused before any is made.
#[test]
fn rules_that_stand_for_too_much_are_refused_at_once() {
    let ports: Vec<String> = (1..=16).map(|p| (2 * p).to_string()).collect();
    let ports = ports.join(" ");
    let rule = format!("permit tcp any eq {ports} any eq {ports} match-any +syn +ack +fin +rst +psh +urg");
    let rules = vec![rule.as_str(); 1000].join("\n");
    let mut bed = Testbed::new().unwrap();
    let refused =
        bed.acls().replace(vec![acl("wide", &rules, AclAction::Deny)], &[]).unwrap_err().to_string();
    assert!(refused.contains("\"wide\"") && refused.contains("1536000 combinations"), "{refused}");
    assert!(bed.acls().replace(vec![acl("wide", &rule, AclAction::Deny)], &[]).is_ok());
}

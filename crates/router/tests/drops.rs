//! Malformed and unwanted packets, each dropped under its own name and nothing else moved; and the ICMP errors that
//! must not be sent.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use linerate_pipeline::{DropReason, HeapPacket, PortId};
use linerate_router::testbed::Testbed;
use linerate_wire::Mac;
use linerate_wire::checksum::Sum;
use linerate_wire::eth::{ETHERTYPE_IP4, ETHERTYPE_IP6, EthHeader};
use linerate_wire::icmp::IcmpHeader;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use zerocopy::IntoBytes;

const HOST: Mac = [2, 0, 0, 0, 9, 0];
const US: Mac = [2, 0, 0, 0, 0, 0];

fn a4(s: &str) -> u32 {
    s.parse::<std::net::Ipv4Addr>().unwrap().to_bits()
}

fn a6(s: &str) -> [u8; 16] {
    s.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

fn ethernet(dst: Mac, ethertype: u16) -> EthHeader {
    EthHeader { dst, src: HOST, ethertype: ethertype.into() }
}

/// An IPv4 frame for the router, header as `change` leaves it, checksum right.
fn ip4(change: impl Fn(&mut Ip4Header), payload: &[u8]) -> Vec<u8> {
    ip4_to(US, change, payload)
}

fn ip4_to(dst: Mac, change: impl Fn(&mut Ip4Header), payload: &[u8]) -> Vec<u8> {
    let mut h = Ip4Header::new(a4("10.0.0.9"), a4("198.18.0.1"), ip4::UDP, 64, payload.len());
    change(&mut h);
    h.set_checksum();
    [ethernet(dst, ETHERTYPE_IP4).as_bytes(), h.as_bytes(), payload].concat()
}

fn ip6(change: impl Fn(&mut Ip6Header), payload: &[u8]) -> Vec<u8> {
    ip6_to(US, change, payload)
}

fn ip6_to(dst: Mac, change: impl Fn(&mut Ip6Header), payload: &[u8]) -> Vec<u8> {
    let mut h = Ip6Header::new(a6("2001:db8::9"), a6("2001:db8:18::1"), ip4::UDP, 64, payload.len());
    change(&mut h);
    [ethernet(dst, ETHERTYPE_IP6).as_bytes(), h.as_bytes(), payload].concat()
}

/// An ICMP message with a right checksum.
fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut m = IcmpHeader { kind, code, checksum: 0.into(), rest: [0; 4] };
    m.checksum.set(Sum::new().over(m.as_bytes()).over(rest).checksum());
    [m.as_bytes(), rest].concat()
}

fn icmp6(src: &str, dst: &str, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut m = IcmpHeader { kind, code, checksum: 0.into(), rest: [0; 4] };
    let sum = Sum::pseudo6(&a6(src), &a6(dst), ip6::ICMPV6, 8 + rest.len() as u32);
    m.checksum.set(sum.over(m.as_bytes()).over(rest).checksum());
    [m.as_bytes(), rest].concat()
}

/// Nothing leaves, and exactly this drop is counted, whole and in segments.
fn assert_drop_at(port: PortId, what: &str, frame: &[u8], reason: DropReason) {
    for cut in [frame.len(), 1, 14, 20, 34, 50].into_iter().filter(|c| *c <= frame.len()) {
        let mut bed = Testbed::new().unwrap();
        let (a, b) = frame.split_at(cut);
        let sent = bed.receive(port, [HeapPacket::with_segments(&[a, b])]);
        assert_eq!(bed.drops(), [(reason, 1)], "{what}, cut at {cut}");
        assert_eq!(sent, [], "{what}, cut at {cut}");
        assert_eq!(bed.held(), 0, "{what}");
    }
}

fn assert_drop(what: &str, frame: &[u8], reason: DropReason) {
    assert_drop_at(0, what, frame, reason);
}

#[test]
fn ethernet_frames() {
    let ip = ip4(|_| (), &[0; 26]);
    let with = |at: usize, bytes: &[u8]| {
        let mut f = ip.clone();
        f[at..at + bytes.len()].copy_from_slice(bytes);
        f
    };
    assert_drop("short", &ip[..13], DropReason::EthTooShort);
    assert_drop("not for us", &with(0, &[2, 0, 0, 0, 0, 1]), DropReason::EthNotForUs);
    assert_drop("from a group", &with(6, &[1]), DropReason::EthSourceMulticast);
    assert_drop("LLDP", &with(12, &[0x88, 0xcc]), DropReason::EthertypeUnknown);
    assert_drop("802.3 length", &with(12, &[0, 0x26]), DropReason::EthertypeUnknown);
    assert_drop("tag cut off", &with(12, &[0x81, 0])[..17], DropReason::VlanTooShort);
    assert_drop("VLAN 69 unknown", &with(12, &[0x81, 0]), DropReason::VlanUnknown);
    assert_drop_at(3, "interface down", &with(5, &[3]), DropReason::InterfaceDown);
}

#[test]
fn ip4_headers() {
    let header = |change: fn(&mut Ip4Header), reason| {
        assert_drop(&format!("{reason:?}"), &ip4(change, &[0; 26]), reason);
    };
    header(|h| h.version_ihl = 0x55, DropReason::Ip4BadVersion);
    header(|h| h.version_ihl = 0x65, DropReason::Ip4BadVersion);
    header(|h| h.version_ihl = 0x56, DropReason::Ip4BadVersion);
    header(|h| h.version_ihl = 0x43, DropReason::Ip4BadHeaderLength);
    header(|h| h.version_ihl = 0x4f, DropReason::Ip4BadHeaderLength);
    header(|h| h.total_len.set(19), DropReason::Ip4BadTotalLength);
    header(|h| h.total_len.set(0), DropReason::Ip4BadTotalLength);
    header(|h| h.total_len.set(47), DropReason::Ip4BadTotalLength);
    for src in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"] {
        assert_drop(src, &ip4(|h| h.src.set(a4(src)), &[0; 26]), DropReason::Ip4BadSource);
    }
    for dst in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "240.0.0.1", "255.255.255.254"] {
        assert_drop(dst, &ip4(|h| h.dst.set(a4(dst)), &[0; 26]), DropReason::Ip4BadDestination);
    }
    header(|h| h.dst.set(0xe000_0005), DropReason::LocalUnhandled);
    header(|h| h.dst.set(0xef01_0105), DropReason::Ip4MulticastUnrouted);
    header(|h| h.dst.set(u32::MAX), DropReason::Ip4Broadcast);
    header(|h| (h.src, h.dst) = (0.into(), u32::MAX.into()), DropReason::Ip4Broadcast);
    header(|h| (h.src, h.dst) = (0x7f00_0001.into(), u32::MAX.into()), DropReason::Ip4BadSource);
    header(|h| (h.src, h.dst) = (0x7f00_0001.into(), 0xe000_0005.into()), DropReason::Ip4BadSource);
    assert_drop("10 bytes", &ip4(|_| (), &[])[..24], DropReason::Ip4TooShort);
    assert_drop("19 bytes", &ip4(|_| (), &[])[..33], DropReason::Ip4TooShort);
    for at in 14..34 {
        let mut f = ip4(|_| (), &[0; 26]);
        f[at] ^= 0x10;
        let mut bed = Testbed::new().unwrap();
        assert_eq!(bed.frame(0, &f), [], "a flipped bit at {at} never passes");
        assert_eq!(bed.drops().len(), 1);
    }
    let mut f = ip4(|_| (), &[0; 26]);
    f[24] ^= 1;
    assert_drop("checksum", &f, DropReason::Ip4BadChecksum);
    let mut f = ip4(|h| h.version_ihl = 0x46, &[1, 1, 1, 1, 0, 0, 0, 0]);
    assert_drop("checksum over 20 bytes only", &f, DropReason::Ip4BadChecksum);
    f[24..26].fill(0);
    let sum = Sum::new().over(&f[14..38]).checksum();
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(Testbed::new().unwrap().frame(0, &f).len(), 1, "the same with the right checksum passes");
    let options = |options: &[u8]| {
        let mut f = ip4(|h| h.version_ihl = 0x45 + (options.len() / 4) as u8, &[options, &[0; 22]].concat());
        f[24..26].fill(0);
        let sum = Sum::new().over(&f[14..34 + options.len()]).checksum();
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        f
    };
    for bad in [
        &[0x44, 0, 0, 0][..],
        &[0x83, 0xff, 4, 0],
        &[0x94, 1, 0, 0],
        &[1, 1, 1, 7],
        &[7, 3, 3, 0],
        &[0x44, 4, 4, 0],
    ] {
        assert_drop(&format!("{bad:?}"), &options(bad), DropReason::Ip4BadOptions);
    }
    for route in [&[0x83, 7, 4, 10, 0, 0, 1, 0][..], &[1, 0x89, 3, 4]] {
        assert_drop(&format!("{route:?}"), &options(route), DropReason::Ip4SourceRoute);
    }
    for good in
        [&[7, 7, 4, 0, 0, 0, 0, 0][..], &[0x94, 4, 0, 0], &[0x44, 8, 5, 0, 0, 0, 0, 0], &[0, 0x83, 0xff, 9]]
    {
        assert_eq!(Testbed::new().unwrap().frame(0, &options(good)).len(), 1, "{good:?} passes");
    }
    assert_drop("broadcast frame", &ip4_to([0xff; 6], |_| (), &[0; 26]), DropReason::L2BroadcastUnicastIp);
    assert_drop("DHCP", &ip4_to([0xff; 6], |h| h.dst.set(u32::MAX), &[0; 26]), DropReason::Ip4Broadcast);
    let net = |to: &str| ip4_to([0xff; 6], |h| h.dst.set(a4(to)), &[0; 26]);
    assert_drop("broadcast of this network", &net("10.0.0.255"), DropReason::Ip4Broadcast);
    assert_drop("broadcast of another network", &net("10.0.1.255"), DropReason::L2BroadcastUnicastIp);
}

#[test]
fn ip6_headers() {
    let check = |what: &str, change: &dyn Fn(&mut Ip6Header), reason| {
        assert_drop(what, &ip6(change, &[0; 26]), reason);
    };
    check("version 4", &|h| h.version_flow.set(4 << 28), DropReason::Ip6BadVersion);
    check("version 7", &|h| h.version_flow.set(7 << 28), DropReason::Ip6BadVersion);
    check("payload beyond", &|h| h.payload_len.set(27), DropReason::Ip6BadPayloadLength);
    for src in ["ff02::1", "::1", "::", "ff0e::1"] {
        check(src, &|h| h.src = a6(src), DropReason::Ip6BadSource);
    }
    for dst in ["::", "::1", "ff01::1", "ff00::1"] {
        check(dst, &|h| h.dst = a6(dst), DropReason::Ip6BadDestination);
    }
    check("routing protocol", &|h| h.dst = a6("ff02::5"), DropReason::LocalUnhandled);
    check("global group", &|h| h.dst = a6("ff0e::1:2"), DropReason::Ip6MulticastUnrouted);
    check("another's link-local", &|h| h.dst = a6("fe80::1234"), DropReason::Ip6LinkLocalScope);
    check("link-local in transit", &|h| h.src = a6("fe80::9"), DropReason::Ip6LinkLocalScope);
    assert_drop("39 bytes", &ip6(|_| (), &[])[..53], DropReason::Ip6TooShort);
    assert_drop("one byte", &ip6(|_| (), &[])[..15], DropReason::Ip6TooShort);
    let group = [0x33, 0x33, 0, 0, 0, 1];
    assert_drop("group frame", &ip6_to(group, |_| (), &[0; 26]), DropReason::L2BroadcastUnicastIp);
    let cut = |h: &mut Ip6Header| (h.dst, h.next_header) = (a6("2001:db8::1"), 0);
    let through = |h: &mut Ip6Header| h.next_header = 0;
    for (what, payload) in [
        ("beyond the packet", &[17, 9, 0, 0][..]),
        ("one byte too long", &[17, 1, 1, 4, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0]),
        ("cut mid-header", &[17]),
        ("that is not there", &[]),
    ] {
        assert_drop(
            &format!("hop-by-hop {what}, in transit"),
            &ip6(through, payload),
            DropReason::Ip6BadExtension,
        );
        assert_drop(&format!("hop-by-hop {what}"), &ip6(cut, payload), DropReason::Ip6BadExtension);
    }
    assert_drop("two of them", &ip6(cut, &[0; 16]), DropReason::Ip6BadExtension);
    let endless = |h: &mut Ip6Header| (h.dst, h.next_header) = (a6("2001:db8::1"), 60);
    assert_drop("no end", &ip6(endless, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(20)), DropReason::Ip6BadExtension);
}

#[test]
fn routes_that_discard() {
    assert_drop("v4", &ip4(|h| h.dst.set(a4("203.0.113.1")), &[0; 26]), DropReason::RouteBlackhole);
    assert_drop("v6", &ip6(|h| h.dst = a6("2001:db8:113:1::1"), &[0; 26]), DropReason::RouteBlackhole);
}

#[test]
fn adjacencies_that_are_gone() {
    for (to, frame) in [
        ("203.0.113.192/26", ip4(|h| h.dst.set(a4("203.0.113.200")), &[0; 26])),
        ("2001:db8:113:9::/64", ip6(|h| h.dst = a6("2001:db8:113:9::1"), &[0; 26])),
    ] {
        for held in [false, true] {
            let mut bed = Testbed::new().unwrap();
            bed.gone(to, held).unwrap();
            assert_eq!(bed.frame(0, &frame), []);
            assert_eq!(bed.drops(), [(DropReason::AdjacencyGone, 1)], "{to} {held}");
        }
    }
}

#[test]
fn for_the_router_itself() {
    let to = |dst: &'static str, protocol: u8, payload: &[u8]| {
        ip4(move |h| (h.dst, h.protocol) = (a4(dst).into(), protocol), payload)
    };
    assert_drop("TCP", &to("10.0.0.1", 6, &[0; 20]), DropReason::LocalUnhandled);
    assert_drop("directed broadcast", &to("10.0.0.255", 17, &[0; 20]), DropReason::LocalUnhandled);
    assert_drop("ping to it", &to("10.0.0.255", 1, &icmp(8, 0, &[0; 8])), DropReason::LocalUnhandled);
    assert_drop("on another link", &to("10.0.1.255", 1, &icmp(8, 0, &[0; 8])), DropReason::Ip4Broadcast);
    assert_drop("all-zeros broadcast", &to("10.0.0.0", 17, &[0; 20]), DropReason::LocalUnhandled);
    let first = ip4(|h| (h.dst, h.fragment) = (a4("10.0.0.1").into(), ip4::MF.into()), &[0; 24]);
    assert_drop("fragment", &first, DropReason::LocalUnhandled);
    let mut options = ip4(|h| (h.dst, h.version_ihl) = (a4("10.0.0.1").into(), 0x46), &[1; 24]);
    options[24..26].fill(0);
    let sum = Sum::new().over(&options[14..38]).checksum();
    options[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_drop("options", &options, DropReason::LocalUnhandled);
    assert_drop("echo reply", &to("10.0.0.1", 1, &icmp(0, 0, &[0; 8])), DropReason::IcmpIgnored);
    assert_drop("echo with a code", &to("10.0.0.1", 1, &icmp(8, 1, &[0; 8])), DropReason::IcmpIgnored);
    assert_drop("timestamp", &to("10.0.0.1", 1, &icmp(13, 0, &[0; 12])), DropReason::IcmpIgnored);
    assert_drop("short ICMP", &to("10.0.0.1", 1, &icmp(8, 0, &[])[..7]), DropReason::IcmpMalformed);
    let mut bad = icmp(8, 0, &[0; 9]);
    bad[16] ^= 1;
    assert_drop("ICMP checksum", &to("10.0.0.1", 1, &bad), DropReason::IcmpMalformed);

    let us = "2001:db8::1";
    let to = |next: u8, payload: &[u8]| ip6(move |h| (h.dst, h.next_header) = (a6(us), next), payload);
    assert_drop("TCP", &to(6, &[0; 20]), DropReason::LocalUnhandled);
    assert_drop("no next header", &to(59, &[]), DropReason::LocalUnhandled);
    assert_drop("fragment", &to(44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]), DropReason::LocalUnhandled);
    assert_drop("destination options", &to(60, &[17, 0, 0, 0, 0, 0, 0, 0, 0]), DropReason::LocalUnhandled);
    let long = [&[60, 31][..], &[0; 254], &[17, 31], &[0; 254]].concat();
    assert_drop("more headers than are looked at", &to(60, &long), DropReason::LocalUnhandled);
    let from = "2001:db8::9";
    assert_drop("echo reply", &to(58, &icmp6(from, us, 129, 0, &[0; 8])), DropReason::IcmpIgnored);
    assert_drop("short", &to(58, &[128, 0, 0]), DropReason::IcmpMalformed);
    assert_drop("checksum", &to(58, &icmp6(us, us, 129, 0, &[0; 8])), DropReason::IcmpMalformed);
    assert_drop("UDP to all nodes", &ip6(|h| h.dst = a6("ff02::1"), &[0; 26]), DropReason::LocalUnhandled);
}

/// RFC 1812 4.3.2.7 and RFC 4443 2.4 e: the reason for the drop stays, no error leaves.
#[test]
fn errors_that_must_not_be_sent() {
    let nowhere = |h: &mut Ip4Header| h.dst.set(a4("203.0.113.200"));
    let icmp_nowhere = |h: &mut Ip4Header| (h.dst, h.protocol) = (a4("203.0.113.200").into(), 1);
    for kind in [3, 4, 5, 11, 12] {
        let what = format!("about ICMP type {kind}");
        assert_drop(&what, &ip4(icmp_nowhere, &icmp(kind, 0, &[0; 28])), DropReason::NoRoute);
    }
    assert_drop("about ICMP without type", &ip4(icmp_nowhere, &[]), DropReason::NoRoute);
    let later = |h: &mut Ip4Header| {
        nowhere(h);
        h.fragment.set(5);
    };
    assert_drop("about a later fragment", &ip4(later, &[0; 26]), DropReason::NoRoute);
    let broadcast = |h: &mut Ip4Header| {
        nowhere(h);
        h.src.set(a4("10.0.0.255"));
    };
    assert_drop("to a broadcast address", &ip4(broadcast, &[0; 26]), DropReason::Ip4BadSource);
    let expiring = |dst: &'static str| move |h: &mut Ip4Header| (h.dst, h.ttl) = (a4(dst).into(), 1);
    let error_expiring = |h: &mut Ip4Header| (h.ttl, h.protocol) = (1, 1);
    assert_drop("TTL of an error", &ip4(error_expiring, &icmp(11, 0, &[0; 28])), DropReason::TtlExpired);
    assert_eq!(Testbed::new().unwrap().frame(0, &ip4(expiring("198.18.0.1"), &[0; 26])).len(), 1);
    let prohibited = |h: &mut Ip4Header| (h.dst, h.protocol) = (a4("203.0.113.70").into(), 1);
    assert_drop("prohibited error", &ip4(prohibited, &icmp(3, 3, &[0; 28])), DropReason::RouteProhibit);
    let unreachable = |h: &mut Ip4Header| (h.dst, h.protocol) = (a4("203.0.113.130").into(), 1);
    assert_drop("unreachable error", &ip4(unreachable, &icmp(3, 3, &[0; 28])), DropReason::Unreachable);
    let large = |h: &mut Ip4Header| {
        (h.dst, h.src, h.protocol, h.fragment) =
            (a4("100.64.4.1").into(), a4("10.0.6.9").into(), 1, ip4::DF.into());
    };
    let mut frame = ip4(large, &icmp(3, 3, &[0; 1400]));
    frame[5] = 4;
    assert_drop_at(4, "large error", &frame, DropReason::MtuExceeded);
    // The sender itself cannot be reached: the answer to a ping, and the error about it, end here.
    let ping = |h: &mut Ip4Header| {
        (h.src, h.dst, h.protocol) = (a4("203.0.113.200").into(), a4("10.0.0.1").into(), 1);
    };
    assert_drop("no way back", &ip4(ping, &icmp(8, 0, &[0; 8])), DropReason::NoRoute);

    let nowhere = a6("2001:db8:ffff::1");
    let icmp_nowhere = move |h: &mut Ip6Header| (h.dst, h.next_header) = (nowhere, 58);
    for kind in [1, 2, 3, 4, 100, 127, 137] {
        let what = format!("about ICMPv6 type {kind}");
        assert_drop(&what, &ip6(icmp_nowhere, &[kind, 0, 0, 0, 0, 0, 0, 0]), DropReason::NoRoute);
    }
    let behind = move |h: &mut Ip6Header| (h.dst, h.next_header) = (nowhere, 60);
    assert_drop("behind options", &ip6(behind, &[58, 0, 0, 0, 0, 0, 0, 0, 1, 0]), DropReason::NoRoute);
    assert_drop("without type", &ip6(icmp_nowhere, &[]), DropReason::NoRoute);
    let expiring = |h: &mut Ip6Header| (h.hop_limit, h.next_header) = (1, 58);
    assert_drop("hop limit of an error", &ip6(expiring, &[3, 0, 0, 0]), DropReason::TtlExpired);
    let prohibited = |h: &mut Ip6Header| (h.dst, h.next_header) = (a6("2001:db8:113:2::1"), 58);
    assert_drop("prohibited error", &ip6(prohibited, &[3, 0, 0, 0]), DropReason::RouteProhibit);
    let unreachable = |h: &mut Ip6Header| (h.dst, h.next_header) = (a6("2001:db8:113:3::1"), 58);
    assert_drop("unreachable error", &ip6(unreachable, &[3, 0, 0, 0]), DropReason::Unreachable);
    let large =
        |h: &mut Ip6Header| (h.dst, h.src, h.next_header) = (a6("2001:db8:64:4::1"), a6("2001:db8:6::9"), 58);
    let mut frame = ip6(large, &[&[1][..], &[0; 1300]].concat());
    frame[5] = 4;
    assert_drop_at(4, "large error", &frame, DropReason::MtuExceeded);
}

#[test]
fn buffers_without_room() {
    // An error needs headroom; a longer Ethernet header does too.
    let tight = |frame: &[u8]| HeapPacket::new(frame).tight();
    let cases = [
        (ip4(|h| h.ttl = 1, &[0; 26]), DropReason::IcmpUnsendable),
        (ip6(|h| h.hop_limit = 1, &[0; 26]), DropReason::IcmpUnsendable),
        (ip4(|h| h.dst.set(a4("100.64.7.1")), &[0; 26]), DropReason::NoHeadroom),
        (ip6(|h| h.dst = a6("2001:db8:64:7::1"), &[0; 26]), DropReason::NoHeadroom),
    ];
    for (frame, reason) in cases {
        let mut bed = Testbed::new().unwrap();
        assert_eq!(bed.receive(0, [tight(&frame)]), []);
        assert_eq!(bed.drops(), [(reason, 1)]);
    }
    for cut in [5, 20] {
        for frame in [ip4(|_| (), &[0; 26]), ip6(|_| (), &[0; 26])] {
            let mut bed = Testbed::new().unwrap();
            let p = HeapPacket::with_segments(&[&frame[..cut], &frame[cut..]]).tight();
            assert_eq!(bed.receive(0, [p]), []);
            assert_eq!(bed.drops(), [(DropReason::HeaderNotContiguous, 1)]);
        }
    }
}

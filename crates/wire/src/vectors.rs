//! The views and builders against independent encoders: frames written by scapy (`vectors.txt`: name and hex, one a
//! line) and by etherparse, and random bytes decoded by etherparse.

use etherparse::{IpNumber, PacketBuilder};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::arp::{self, ArpPacket};
use crate::checksum::{self, Sum};
use crate::eth::{self, EthHeader};
use crate::icmp::IcmpHeader;
use crate::ip4::{self, Ip4Header};
use crate::ip6::{self, Ip6Header};
use crate::nd::{self, NeighborMessage, NeighborMessageWithMac};
use crate::tcp::TcpHeader;
use crate::udp::UdpHeader;
use crate::vlan::{self, VlanTag};
use crate::{Header, icmpv6};

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

fn frame(name: &str) -> Vec<u8> {
    let line = include_str!("vectors.txt").lines().find(|l| l.split(' ').next() == Some(name)).unwrap();
    let hex = line.split(' ').nth(1).unwrap();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn ip6(s: &str) -> [u8; 16] {
    s.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

#[test]
fn scapy_udp_over_ipv4() {
    let f = frame("udp4");
    let e = EthHeader::view(&f).unwrap();
    assert_eq!((e.dst, e.src, e.ethertype.get()), (B, A, eth::ETHERTYPE_IP4));
    let h = Ip4Header::view_at(&f, 14).unwrap();
    assert_eq!((h.version(), h.header_len(), h.tos, h.total_len.get()), (4, 20, 0xb8, 33));
    assert_eq!((h.id.get(), h.ttl, h.protocol, h.dont_fragment()), (0x1234, 33, ip4::UDP, false));
    assert_eq!((h.src.get(), h.dst.get()), (0x0a01_0203, 0xac10_0506));
    let mut ours = Ip4Header::new(0x0a01_0203, 0xac10_0506, ip4::UDP, 33, 13);
    (ours.tos, ours.id) = (0xb8, 0x1234.into());
    ours.set_checksum();
    assert_eq!(&ours, h);
    let u = UdpHeader::view_at(&f, 34).unwrap();
    assert_eq!((u.src_port.get(), u.dst_port.get(), u.len.get()), (1000, 2000, 13));
    assert!(Sum::pseudo4(h.src.get(), h.dst.get(), ip4::UDP, 13).add(&f[34..]).is_valid());
}

#[test]
fn scapy_tcp_with_ip_options() {
    let f = frame("tcp4_options");
    let h = Ip4Header::view_at(&f, 14).unwrap();
    assert_eq!((h.header_len(), h.dont_fragment()), (24, true));
    assert!(Sum::new().add(&f[14..38]).is_valid());
    let mut kept = [0; ip4::MAX_OPTIONS];
    assert_eq!(ip4::copied_options(&f[34..38], &mut kept), 4, "router alert is copied into fragments");
    let t = TcpHeader::view_at(&f, 38).unwrap();
    assert_eq!((t.src_port.get(), t.dst_port.get(), t.flags, t.header_len()), (80, 40000, 0x12, 24));
    assert_eq!((t.seq.get(), t.ack.get(), t.window.get()), (0x0102_0304, 0x0506_0708, 512));
}

#[test]
fn scapy_qinq_and_odd_icmp() {
    let f = frame("qinq");
    assert_eq!(EthHeader::view(&f).unwrap().ethertype.get(), eth::ETHERTYPE_QINQ);
    let (outer, inner) = (VlanTag::view_at(&f, 14).unwrap(), VlanTag::view_at(&f, 18).unwrap());
    assert_eq!((vlan::pcp(outer.tci.get()), vlan::vid(outer.tci.get())), (5, 100));
    assert_eq!((inner.tci.get(), inner.ethertype.get()), (1 << 13 | 1 << 12 | 200, eth::ETHERTYPE_IP4));
    let i = IcmpHeader::view_at(&f, 42).unwrap();
    assert_eq!((i.kind, i.code, i.rest), (crate::icmp::ECHO_REQUEST, 0, [0, 7, 0, 9]));
    assert!(Sum::new().add(&f[42..]).is_valid());
}

#[test]
fn scapy_arp() {
    let f = frame("arp");
    let ours = ArpPacket::new(arp::REQUEST, (A, 0x0a00_0001), ([0; 6], 0x0a00_0002));
    assert_eq!(ArpPacket::view_at(&f, 14), Some(&ours));
    assert!(ours.is_well_formed());
    let e = EthHeader { dst: eth::BROADCAST, src: A, ethertype: eth::ETHERTYPE_ARP.into() };
    assert_eq!(f, [e.as_bytes(), ours.as_bytes()].concat());
}

#[test]
fn scapy_udp_over_ipv6() {
    let f = frame("udp6");
    let h = Ip6Header::view_at(&f, 14).unwrap();
    let mut ours = Ip6Header::new(ip6("2001:db8::1"), ip6("2001:db8:1::2"), ip4::UDP, 61, 11);
    ours.version_flow.set(6 << 28 | 0x20 << 20 | 0x12345);
    assert_eq!(h, &ours);
    assert_eq!(h.version(), 6);
    assert!(Sum::pseudo6(&h.src, &h.dst, ip4::UDP, 11).add(&f[54..]).is_valid());
}

#[test]
fn scapy_extension_headers() {
    let f = frame("ext6");
    let h = Ip6Header::view_at(&f, 14).unwrap();
    let upper = ip6::walk(h.next_header, &f[54..]).unwrap();
    assert_eq!(upper, ip6::Upper { protocol: ip4::UDP, offset: 16, fragment: Some((0, true)) });
}

#[test]
fn scapy_neighbour_discovery() {
    let f = frame("ns");
    let h = Ip6Header::view_at(&f, 14).unwrap();
    assert_eq!((h.src, h.dst), (ip6::link_local(A), ip6::solicited_node(ip6("2001:db8::2"))));
    assert_eq!(EthHeader::view(&f).unwrap().dst, eth::ip6_multicast(h.dst));
    let ours = NeighborMessageWithMac::new(
        icmpv6::NEIGHBOR_SOLICITATION,
        0,
        ip6("2001:db8::2"),
        nd::OPTION_SOURCE_LLA,
        A,
        &h.src,
        &h.dst,
    );
    assert_eq!(f[54..], *ours.as_bytes());

    let f = frame("na");
    let h = Ip6Header::view_at(&f, 14).unwrap();
    let flags = nd::FLAG_ROUTER | nd::FLAG_SOLICITED | nd::FLAG_OVERRIDE;
    let ours = NeighborMessageWithMac::new(
        icmpv6::NEIGHBOR_ADVERTISEMENT,
        flags,
        ip6("2001:db8::2"),
        nd::OPTION_TARGET_LLA,
        A,
        &h.src,
        &h.dst,
    );
    assert_eq!(f[54..], *ours.as_bytes());
    assert_eq!(NeighborMessage::view_at(&f, 54), Some(&ours.message));
    assert_eq!(nd::link_layer_address(&f[78..], nd::OPTION_TARGET_LLA), Ok(Some(A)));
}

#[test]
fn scapy_fragmentation_needed() {
    let f = frame("frag_needed");
    let i = IcmpHeader::view_at(&f, 34).unwrap();
    assert_eq!((i.kind, i.code, i.rest), (3, crate::icmp::unreachable::FRAGMENTATION_NEEDED, [0, 0, 5, 120]));
    assert!(crate::icmp::is_error(i.kind) && Sum::new().add(&f[34..]).is_valid());
}

proptest! {
    /// What etherparse writes, we read and would write alike.
    #[test]
    fn etherparse_frames_read_back(
        src: [u8; 4], dst: [u8; 4], ttl: u8, sport: u16, dport: u16, vid in 0u16..4096,
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut f = Vec::new();
        PacketBuilder::ethernet2(A, B).single_vlan(vid.try_into().unwrap()).ipv4(src, dst, ttl).udp(sport, dport)
            .write(&mut f, &payload).unwrap();
        let tag = VlanTag::view_at(&f, 14).unwrap();
        prop_assert_eq!((vlan::vid(tag.tci.get()), tag.ethertype.get()), (vid, eth::ETHERTYPE_IP4));
        let h = Ip4Header::view_at(&f, 18).unwrap();
        prop_assert_eq!(h.src.get().to_be_bytes(), src);
        prop_assert_eq!(usize::from(h.total_len.get()), 28 + payload.len());
        prop_assert!(checksum::ip4_header_valid(f[18..].first_chunk().unwrap()));
        let u = UdpHeader::view_at(&f, 38).unwrap();
        prop_assert_eq!((u.src_port.get(), u.dst_port.get()), (sport, dport));
        let sum = Sum::pseudo4(h.src.get(), h.dst.get(), ip4::UDP, u.len.get()).add(&f[38..]);
        prop_assert!(sum.is_valid());

        // One hop on: the incremental update agrees with etherparse's fresh checksum.
        if ttl > 0 {
            let mut next = Vec::new();
            PacketBuilder::ethernet2(A, B).single_vlan(vid.try_into().unwrap()).ipv4(src, dst, ttl - 1)
                .udp(sport, dport).write(&mut next, &payload).unwrap();
            let theirs = Ip4Header::view_at(&next, 18).unwrap();
            prop_assert_eq!(checksum::decrement_ttl(h.checksum.get()), theirs.checksum.get());
        }
    }

    #[test]
    fn etherparse_ipv6_checksums_agree(
        src: [u8; 16], dst: [u8; 16], id: u16, seq: u16, payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut f = Vec::new();
        PacketBuilder::ipv6(src, dst, 9).icmpv6_echo_request(id, seq).write(&mut f, &payload).unwrap();
        let h = Ip6Header::view(&f).unwrap();
        prop_assert_eq!((h.next_header, h.hop_limit, h.payload_len.get()), (ip6::ICMPV6, 9, 8 + payload.len() as u16));
        prop_assert!(Sum::pseudo6(&src, &dst, ip6::ICMPV6, 8 + payload.len() as u32).add(&f[40..]).is_valid());
    }

    /// On any bytes our walk of extension headers ends where etherparse's does, or both refuse.
    #[test]
    fn extension_walks_agree_with_etherparse(
        headers in prop::collection::vec((prop::sample::select(vec![0u8, 43, 44, 51, 60]), 0u8..3), 0..5),
        cut in 0usize..200, last in prop::sample::select(vec![6u8, 17, 58, 59]),
    ) {
        let mut bytes = Vec::new();
        let mut kinds: Vec<u8> = headers.iter().map(|h| h.0).collect();
        kinds.push(last);
        for (i, (kind, units)) in headers.iter().enumerate() {
            let len = match kind { 44 => 8, 51 => (usize::from(*units) + 3) * 4, _ => (usize::from(*units) + 1) * 8 };
            let mut h = vec![0u8; len];
            h[0] = kinds[i + 1];
            match kind { 44 => {} 51 => h[1] = units + 1, _ => h[1] = *units }
            bytes.extend(h);
        }
        bytes.truncate(cut);
        let theirs = etherparse::Ipv6ExtensionsSlice::from_slice(IpNumber(kinds[0]), &bytes);
        match (ip6::walk(kinds[0], &bytes), theirs) {
            (Ok(u), Ok((_, protocol, rest))) => {
                prop_assert_eq!((u.protocol, u.offset), (protocol.0, bytes.len() - rest.len()));
            }
            (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "{:?} against {:?}", ours, theirs),
        }
    }

    #[test]
    fn no_bytes_make_a_view_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), offset in 0usize..130) {
        if let Some(h) = Ip4Header::view_at(&bytes, offset) {
            let _ = (h.header_len(), h.version(), h.is_later_fragment());
        }
        let mut out = [0; ip4::MAX_OPTIONS];
        prop_assert!(ip4::copied_options(&bytes, &mut out) <= ip4::MAX_OPTIONS);
        let _ = nd::link_layer_address(&bytes, 1);
        let _ = ip6::walk(*bytes.first().unwrap_or(&0), &bytes);
        let _ = crate::flow::hash_frame(&bytes, 1);
        let _ = ArpPacket::view_at(&bytes, offset).map(ArpPacket::is_well_formed);
    }
}

//! IPv4 fragmentation: whatever the datagram, options, segments and MTU, the fragments put together again are the
//! datagram.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use linerate_pipeline::{DropReason, HeapPacket};
use linerate_router::testbed::{Sent, Testbed};
use linerate_wire::Header;
use linerate_wire::checksum::Sum;
use linerate_wire::eth::{ETHERTYPE_IP4, EthHeader};
use linerate_wire::ip4::{self, Ip4Header};
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// The smallest MTU on the way: interface `small`.
const MTU: usize = 1280;

/// A frame from the jumbo network through `small`.
fn datagram(options: &[u8], payload: &[u8], fragment: u16) -> Vec<u8> {
    let mut h = Ip4Header::new(0x0a00_0609, 0x6440_0401, ip4::UDP, 9, options.len() + payload.len());
    h.version_ihl = 0x45 + (options.len() / 4) as u8;
    (h.id, h.fragment, h.tos, h.checksum) = (777.into(), fragment.into(), 0x48, 0.into());
    h.checksum.set(Sum::new().over(h.as_bytes()).over(options).checksum());
    let e = EthHeader { dst: [2, 0, 0, 0, 0, 4], src: [2, 0, 0, 0, 9, 6], ethertype: ETHERTYPE_IP4.into() };
    [e.as_bytes(), h.as_bytes(), options, payload].concat()
}

/// Checks each fragment and puts the payload together; returns it with offset and "more fragments" of the whole.
fn reassemble(sent: &[Sent], options: &[u8]) -> (Vec<u8>, u16, bool) {
    let mut payload = Vec::new();
    let mut base = None;
    let mut more = true;
    let mut copied = [0; ip4::MAX_OPTIONS];
    let n = ip4::copied_options(options, &mut copied);
    for (i, s) in sent.iter().enumerate() {
        let h = Ip4Header::view_at(&s.frame, 14).unwrap();
        let header = &s.frame[14..14 + h.header_len()];
        assert!(Sum::new().over(header).is_valid());
        assert_eq!((s.port, h.ttl, h.tos, h.id.get()), (2, 8, 0x48, 777));
        assert_eq!(s.frame[..12], [2, 0, 0, 0, 9, 4, 2, 0, 0, 0, 0, 2]);
        assert_eq!(usize::from(h.total_len.get()), s.frame.len() - 14);
        assert!(s.frame.len() - 14 <= MTU);
        assert_eq!(header[20..], if i == 0 { options } else { &copied[..n] }[..]);
        let base = *base.get_or_insert(h.fragment.get() & ip4::OFFSET);
        assert_eq!(usize::from(h.fragment.get() & ip4::OFFSET), usize::from(base) + payload.len() / 8);
        more = h.fragment.get() & ip4::MF != 0;
        assert!(more || i + 1 == sent.len());
        payload.extend(&s.frame[14 + header.len()..]);
        assert!(i + 1 == sent.len() || payload.len() % 8 == 0);
    }
    (payload, base.unwrap(), more)
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 % 255) as u8).collect()
}

proptest! {
    #[test]
    fn fragments_add_up_to_the_datagram(
        size in 0usize..9100, option_words in 0usize..=10, base in 0u16..1000, more: bool, cuts in 1usize..6,
    ) {
        let options: Vec<u8> = [0x94u8, 4, 0, 0, 7, 4, 4, 0, 1, 0x86, 3, 9].into_iter().cycle()
            .take(option_words * 4).collect();
        let payload = pattern(size);
        let frame = datagram(&options, &payload, base | if more { ip4::MF } else { 0 });
        let pieces: Vec<&[u8]> = frame.chunks(frame.len().div_ceil(cuts)).collect();
        let mut bed = Testbed::new().unwrap();
        let sent = bed.receive(4, [HeapPacket::with_segments(&pieces)]);
        prop_assert_eq!(bed.drops(), vec![]);
        let (got, got_base, got_more) = reassemble(&sent, &options);
        prop_assert!(got == payload);
        prop_assert_eq!((got_base, got_more), (base, more));
        let least = (size + 20 + options.len()).div_ceil(MTU);
        prop_assert!(sent.len() >= least && sent.len() <= least + 1);
    }
}

#[test]
fn a_whole_burst_keeps_its_order() {
    let mut bed = Testbed::new().unwrap();
    let frames: Vec<_> = (0..64).map(|i| datagram(&[], &pattern(8000 + i), 0)).collect();
    let sent = bed.receive(4, frames.iter().map(|f| HeapPacket::new(f)));
    assert_eq!((sent.len(), bed.drops()), (64 * 7, vec![]));
    for (i, fragments) in sent.chunks(7).enumerate() {
        assert_eq!(reassemble(fragments, &[]).0, pattern(8000 + i));
    }
}

/// Small packets and large ones of one flow, by the express way and by the regular nodes alone (where traced bursts go): they
/// leave in the order they came.
#[test]
fn packets_that_fit_neither_overtake_fragments_nor_are_overtaken() {
    for traced in [0, u32::MAX] {
        keeps_order(traced);
    }
}

fn keeps_order(traced: u32) {
    let mut bed = Testbed::new().unwrap();
    bed.with_graph(|graph, _| graph.tracer().arm(traced, None));
    let size = |i: usize| if i % 3 == 1 || i % 7 == 2 { 3000 + i } else { 100 + i };
    let sent = bed.receive(4, (0..64).map(|i| HeapPacket::new(&datagram(&[], &pattern(size(i)), 0))));
    assert_eq!(bed.drops(), []);
    let mut left = &sent[..];
    for i in 0..64 {
        let n = (size(i) + 20).div_ceil(MTU);
        let (these, rest) = left.split_at(n);
        assert_eq!(reassemble(these, &[]).0, pattern(size(i)), "packet {i}");
        left = rest;
    }
    assert_eq!(left, []);
}

/// Offsets have 13 bits: parts of a fragment that ends beyond them would begin at the datagram's start again.
#[test]
fn a_fragment_that_ends_beyond_any_datagram_is_not_cut() {
    let size = 4000;
    let last = (65_535 - 20 - size as u16) / 8;
    let mut bed = Testbed::new().unwrap();
    let sent = bed.receive(4, [HeapPacket::new(&datagram(&[], &pattern(size), last))]);
    assert_eq!(reassemble(&sent, &[]), (pattern(size), last, false));
    for base in [last + 1, last + 200, ip4::OFFSET] {
        let sent = bed.receive(4, [HeapPacket::new(&datagram(&[], &pattern(size), base))]);
        assert_eq!((sent, bed.drops()), (vec![], vec![(DropReason::MtuExceeded, 1)]));
    }
}

#[test]
fn an_empty_pool_drops_the_datagram_and_sends_no_part_of_it() {
    let mut bed = Testbed::new().unwrap();
    bed.limit_pool(5);
    assert_eq!(bed.frame(4, &datagram(&[], &pattern(8000), 0)), []);
    assert_eq!(bed.drops(), [(DropReason::PoolExhausted, 1)]);
}

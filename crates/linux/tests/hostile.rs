//! What FRR and the kernel said, damaged: nothing may panic, hang or be lost without being counted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use linerate_linux::route::{Decoder, Event, Fault, Unsupported, fuzz};
use netlink_packet_core::NetlinkBuffer;
use proptest::prelude::*;

const FILES: [&str; 6] =
    ["static.fpm", "static-again.fpm", "static-no-nhg.fpm", "bgp.fpm", "bgp-no-nhg.fpm", "kernel.netlink"];

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// Bytes to be changed, bytes to be cut from the front and the end.
#[derive(Clone, Debug)]
struct Damage {
    bytes: Vec<(prop::sample::Index, u8)>,
    cut: Option<(prop::sample::Index, prop::sample::Index)>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), 0..8u8];
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), byte), 0..20);
    (bytes, prop::option::of(any::<(prop::sample::Index, prop::sample::Index)>()))
        .prop_map(|(bytes, cut)| Damage { bytes, cut })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn damaged_streams_are_survived(name in prop::sample::select(&FILES[..]), damage in damage()) {
        let mut bytes = file(name);
        for (at, byte) in &damage.bytes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Some((a, b)) = damage.cut {
            let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
            bytes = bytes[a.min(b)..a.max(b)].to_vec();
        }
        fuzz(&bytes);
    }
}

/// The messages of the kernel's listings.
fn messages() -> Vec<Vec<u8>> {
    let bytes = file("kernel.netlink");
    let (mut rest, mut messages) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let length = NetlinkBuffer::new_checked(rest).unwrap().length() as usize;
        messages.push(rest[..length].to_vec());
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    messages
}

fn decode(bytes: &[u8]) -> (Vec<Event>, Decoder) {
    let mut decoder = Decoder::new("test");
    let mut events = Vec::new();
    decoder.decode(bytes, |e| events.push(e));
    (events, decoder)
}

#[test]
fn every_message_is_an_event_or_counted() {
    let (events, decoder) = decode(&file("kernel.netlink"));
    let skipped: Vec<_> = decoder.faults.iter().collect();
    // Rules (32) and the ends of listings (3) are none of the decoder's business.
    assert!(skipped.iter().all(|(f, _)| matches!(f, Fault::MessageType(3 | 32))), "{skipped:?}");
    assert_eq!(events.len() as u64 + decoder.faults.total(), decoder.messages());
    assert!(events.len() > 40, "{}", events.len());
    let unsupported: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            Event::Route(_, r) => r.unsupported().map(|u| (r.prefix.to_string(), u)),
            _ => None,
        })
        .collect();
    assert!(
        matches!(&unsupported[0], (p, Unsupported::Encapsulation(e)) if p == "10.4.0.0/16" && e.to_string() == "ip")
    );
    assert!(unsupported.len() < 3);
}

#[test]
fn a_message_cut_anywhere_is_counted() {
    for message in messages() {
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        if matches!(kind, 3 | 32) {
            continue;
        }
        for length in 16..message.len() {
            let mut cut = message[..length].to_vec();
            cut[..4].copy_from_slice(&(length as u32).to_ne_bytes());
            let (events, decoder) = decode(&cut);
            assert!(events.len() <= 1);
            // Cut between attributes it is a shorter message; cut within one it is none.
            assert!(events.len() as u64 + decoder.faults.total() >= 1, "type {kind} cut to {length}");
        }
    }
}

#[test]
fn attributes_of_a_later_kernel_are_ignored_and_counted() {
    let mut known = 0;
    for message in messages() {
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        let (before, _) = decode(&message);
        if before.is_empty() {
            continue;
        }
        let mut longer = message.clone();
        longer.resize(longer.len().next_multiple_of(4), 0);
        longer.extend([9, 0, 0xe8, 0x03, 1, 2, 3, 4, 5, 0, 0, 0]);
        let length = longer.len() as u32;
        longer[..4].copy_from_slice(&length.to_ne_bytes());
        let (after, decoder) = decode(&longer);
        assert_eq!(after, before);
        let expected = Fault::UnknownAttribute { message: kind, attribute: 1000 };
        assert_eq!(decoder.faults.iter().collect::<Vec<_>>(), [(expected, 1)]);
        known += 1;
    }
    assert!(known > 40, "{known}");
}

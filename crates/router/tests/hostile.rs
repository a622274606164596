//! Random and mutated frames through the whole graph: nothing panics, every packet is accounted for.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use linerate_router::fuzz;
use proptest::prelude::*;

/// The frames that scapy wrote, with their ports.
fn seeds() -> Vec<(u8, Vec<u8>)> {
    include_str!("frames/frames.txt")
        .lines()
        .filter_map(|line| {
            let [_, way, port, hex] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
            (way == "in").then(|| (port.parse().unwrap(), bytes.collect()))
        })
        .collect()
}

fn record(port: u8, cuts: u8, frame: &[u8]) -> Vec<u8> {
    let len = (frame.len() as u16).to_le_bytes();
    [&[port, cuts, len[0], len[1]][..], frame].concat()
}

/// A real frame with a few bytes changed, perhaps cut or grown.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let seeds = seeds();
    let change = (0usize..90, any::<u8>(), prop::sample::select(vec![0u8, 1, 2]));
    (
        0..seeds.len(),
        any::<u8>(),
        prop::collection::vec(change, 0..4),
        prop::option::of(0usize..200),
        prop::option::weighted(0.2, 0u8..5),
    )
        .prop_map(move |(seed, cuts, changes, cut, other_port)| {
            let (port, mut frame) = seeds[seed].clone();
            for (at, value, how) in changes {
                let at = at % frame.len();
                frame[at] = match how {
                    0 => value,
                    1 => frame[at] ^ (1 << (value % 8)),
                    _ => frame[at].wrapping_add(1),
                };
            }
            if let Some(cut) = cut {
                frame.resize(cut.min(frame.len() + 20), 0xaa);
            }
            record(other_port.unwrap_or(port), cuts, &frame)
        })
}

fn pause() -> impl Strategy<Value = Vec<u8>> {
    any::<u16>().prop_map(|ms| [0xff, 0, ms as u8, (ms >> 8) as u8].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn mutated_frames(records in prop::collection::vec(prop_oneof![9 => mutated(), 1 => pause()], 1..60)) {
        fuzz::graph(&records.concat());
    }

    #[test]
    fn random_bytes(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz::graph(&data);
    }

    /// The Ethernet header right, the rest random: gets further than random bytes do.
    #[test]
    fn random_payloads(
        payloads in prop::collection::vec((0u8..5, 0usize..3, prop::collection::vec(any::<u8>(), 0..120)), 1..40),
    ) {
        let data: Vec<u8> = payloads
            .into_iter()
            .flat_map(|(port, kind, payload)| {
                let (ethertype, first) = [([8, 0], 0x45), ([0x86, 0xdd], 0x60), ([8, 6], 0)][kind];
                let frame = [&[2, 0, 0, 0, 0, port, 2, 0, 0, 0, 9, 9][..], &ethertype, &[first], &payload].concat();
                record(port, 0, &frame)
            })
            .collect();
        fuzz::graph(&data);
    }
}

/// The fuzzer's first inputs, to which those that once broke something are added.
#[test]
fn the_inputs_of_the_fuzzer_are_accounted_for() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/packets");
    let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(inputs.len() >= 6);
    for input in inputs {
        fuzz::graph(&std::fs::read(input).unwrap());
    }
}

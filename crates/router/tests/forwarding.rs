//! The whole graph on heap packets against frames that scapy encoded (`frames/make.py`), in one segment and cut into
//! several at every place that matters.

use std::collections::BTreeMap;

use linerate_pipeline::{DropReason, HeapPacket, PortId};
use linerate_router::testbed::{Sent, Testbed};

#[derive(Default)]
struct Case {
    input: (PortId, Vec<u8>),
    output: Vec<Sent>,
}

fn cases() -> BTreeMap<&'static str, Case> {
    let mut cases = BTreeMap::<_, Case>::new();
    for line in include_str!("frames/frames.txt").lines() {
        let [name, way, port, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let port = port.parse().unwrap();
        let frame: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let case = cases.entry(name).or_default();
        match way {
            "in" => case.input = (port, frame),
            _ => case.output.push(Sent { port, frame }),
        }
    }
    cases
}

/// Trailing padding of answers built in longer frames (ARP) is no difference.
fn assert_sent(name: &str, got: &[Sent], wanted: &[Sent]) {
    assert_eq!(got.len(), wanted.len(), "{name}: {got:x?}");
    for (got, wanted) in got.iter().zip(wanted) {
        assert_eq!(got.port, wanted.port, "{name}");
        assert_eq!(hex(&got.frame), hex(&wanted.frame), "{name}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What a case may drop besides: ARP and ND answers use the request up.
#[test]
fn every_frame_comes_out_as_scapy_says() {
    for (name, case) in cases() {
        let mut bed = Testbed::new().unwrap();
        let got = bed.frame(case.input.0, &case.input.1);
        assert_sent(name, &got, &case.output);
        assert_eq!(bed.drops(), [], "{name}");
    }
}

#[test]
fn segments_make_no_difference() {
    for (name, case) in cases() {
        let (port, frame) = &case.input;
        for cut in [1, 5, 13, 14, 15, 18, 20, 33, 34, 35, 40, 41, 42, 50, 54, 60, 61, 100, 1000] {
            if cut >= frame.len() {
                continue;
            }
            let mut bed = Testbed::new().unwrap();
            let (a, b) = frame.split_at(cut);
            let (b, c) = b.split_at(b.len() / 2);
            assert_sent(name, &bed.receive(*port, [HeapPacket::with_segments(&[a, b, c])]), &case.output);
            assert_eq!(bed.drops(), [], "{name} cut at {cut}");
        }
    }
}

#[test]
fn a_burst_of_all_cases_gives_all_answers_and_balances() {
    let mut bed = Testbed::new().unwrap();
    let mut wanted = Vec::new();
    for port in 0..5 {
        let of_port: Vec<_> = cases().into_values().filter(|c| c.input.0 == port).collect();
        let mut got = bed.receive(port, of_port.iter().map(|c| HeapPacket::new(&c.input.1)));
        wanted.extend(of_port.into_iter().flat_map(|c| c.output));
        let mut expected = std::mem::take(&mut wanted);
        let key = |s: &Sent| (s.port, s.frame.clone());
        got.sort_by_key(key);
        expected.sort_by_key(key);
        assert_sent("burst", &got, &expected);
    }
    assert_eq!(bed.drops(), []);
}

#[test]
fn frames_cut_short_anywhere_are_dropped_with_a_header_reason() {
    for (name, case) in cases() {
        let (port, frame) = &case.input;
        for len in 0..frame.len().min(100) {
            let mut bed = Testbed::new().unwrap();
            let sent = bed.frame(*port, &frame[..len]);
            let drops = bed.drops();
            let padding_only = sent.len() == case.output.len() && drops.is_empty();
            assert!(padding_only || (sent.is_empty() && drops.len() == 1), "{name} cut to {len}: {drops:?}");
            assert!(
                padding_only
                    || matches!(
                        drops[0].0,
                        DropReason::EthTooShort
                            | DropReason::VlanTooShort
                            | DropReason::Ip4TooShort
                            | DropReason::Ip4BadHeaderLength
                            | DropReason::Ip4BadTotalLength
                            | DropReason::Ip6TooShort
                            | DropReason::Ip6BadPayloadLength
                            | DropReason::ArpMalformed
                    ),
                "{name} cut to {len}: {drops:?}"
            );
        }
    }
}

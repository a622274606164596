//! The express way against the regular nodes: the same packets through both, byte for byte and counter for counter.
//!
//! Traced bursts enter the graph behind the express node, so a router that traces everything is the regular one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use linerate_pipeline::{DropReason, HeapPacket, PortId};
use linerate_router::acl::{Acl, AclAction, AclBinding, parse_rules};
use linerate_router::testbed::{Sent, Testbed};
use linerate_wire::checksum;
use proptest::prelude::*;

const IP4: [u8; 2] = [0x08, 0x00];

/// What a burst came to, with frames in an order that does not depend on the way they went.
type Outcome = (Vec<(PortId, Vec<u8>)>, Vec<(DropReason, u64)>);

fn run(bed: &mut Testbed, port: PortId, frames: &[Vec<u8>], cut: usize) -> Outcome {
    let packets = frames.iter().map(|f| {
        let (head, tail) = f.split_at(cut.min(f.len()));
        if cut == 0 || tail.is_empty() {
            HeapPacket::new(f)
        } else {
            HeapPacket::with_segments(&[head, tail])
        }
    });
    let mut sent: Vec<_> =
        bed.receive(port, packets).into_iter().map(|Sent { port, frame }| (port, frame)).collect();
    sent.sort();
    (sent, bed.drops())
}

fn regular() -> Testbed {
    let mut bed = Testbed::new().unwrap();
    bed.with_graph(|graph, _| graph.tracer().arm(u32::MAX, None));
    bed
}

/// Packets that entered the first node, and those that went on from it.
fn counted(bed: &mut Testbed) -> (u64, u64) {
    let mut counts = (0, 0);
    bed.with_graph(|graph, _| {
        let c = graph.counters();
        counts = (c[0].packets.get(), c[1].packets.get());
    });
    counts
}

fn seeds() -> Vec<(PortId, Vec<u8>)> {
    include_str!("frames/frames.txt")
        .lines()
        .filter_map(|line| {
            let [_, way, port, hex] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
            (way == "in").then(|| (port.parse().unwrap(), bytes.collect()))
        })
        .collect()
}

/// Makes the header checksum right again, so that a changed field is what decides.
fn repair(frame: &mut [u8]) {
    if frame.get(12..14) == Some(&IP4)
        && let Some(header) = frame.get_mut(14..34)
    {
        let header: &mut [u8; 20] = header.try_into().unwrap();
        let sum = checksum::ip4_header(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<_> = seeds().into_iter().filter(|(port, _)| *port == 0).map(|(_, f)| f).collect();
    let change = (0usize..60, prop_oneof![any::<u8>(), prop::sample::select(vec![0u8, 1, 2, 64, 0x45, 255])]);
    (
        prop::sample::select(seeds),
        prop::collection::vec(change, 0..3),
        prop::bool::weighted(0.9),
        prop::option::weighted(0.3, 0usize..40),
        prop::option::weighted(0.1, 0usize..100),
    )
        .prop_map(|(mut frame, changes, right, padding, cut)| {
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            if right {
                repair(&mut frame);
            }
            frame.resize(frame.len() + padding.unwrap_or(0), 0);
            frame.truncate(cut.unwrap_or(frame.len()));
            frame
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_agree(frames in prop::collection::vec(frame(), 1..64), cut in prop::sample::select(vec![0usize, 0, 0, 20, 40])) {
        let (mut express, mut regular) = (Testbed::new().unwrap(), regular());
        let (a, b) = (run(&mut express, 0, &frames, cut), run(&mut regular, 0, &frames, cut));
        prop_assert_eq!(a, b);
        prop_assert_eq!(express.held(), regular.held());
        prop_assert_eq!(express.events(), regular.events());
        prop_assert_eq!(counted(&mut regular).0, 0);
    }
}

/// Lists for what comes in by `lan` and leaves by `wan` and `jumbo`, made of such rules.
fn with_lists(bed: &mut Testbed, rules: &[Vec<&str>; 2]) {
    let list = |(name, rules): (&str, &Vec<&str>)| Acl {
        name: name.into(),
        rules: parse_rules(&rules.join("\n")).unwrap(),
        default: AclAction::Reject,
    };
    let acls = ["in", "out"].into_iter().zip(rules).map(list).collect();
    let bind = |interface, input: Option<&str>, output: Option<&str>| AclBinding {
        interface,
        input: input.map(Into::into),
        output: output.map(Into::into),
    };
    let bindings =
        [bind(0, Some("in"), Some("in")), bind(1, None, Some("out")), bind(6, Some("out"), Some("in"))];
    bed.acls().replace(acls, &bindings).unwrap();
}

const RULES: [&str; 14] = [
    "permit ip any any",
    "permit ip any any",
    "permit udp any any",
    "permit ip any 198.18.0.0/16",
    "permit ip any 198.19.0.0/17 log",
    "deny udp any any range 0 4000",
    "deny ip any host 198.18.0.1",
    "reject udp any any eq 53",
    "permit icmp any any echo",
    "permit icmp6 any any",
    "permit ip any any fragments",
    "deny ip any 2001:db8:19::/48",
    "deny ip any any dscp ef",
    "permit tcp any any established",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_agree_about_access_lists(
        frames in prop::collection::vec(frame(), 1..64),
        cut in prop::sample::select(vec![0usize, 0, 0, 20, 36, 40, 56]),
        input in prop::collection::vec(prop::sample::select(RULES.to_vec()), 0..6),
        output in prop::collection::vec(prop::sample::select(RULES.to_vec()), 0..6),
    ) {
        let (mut express, mut regular) = (Testbed::new().unwrap(), regular());
        let rules = [input, output];
        with_lists(&mut express, &rules);
        with_lists(&mut regular, &rules);
        let (a, b) = (run(&mut express, 0, &frames, cut), run(&mut regular, 0, &frames, cut));
        prop_assert_eq!(a, b);
        prop_assert_eq!(express.acls().views(), regular.acls().views());
        prop_assert_eq!((express.held(), express.events().len()), (regular.held(), regular.events().len()));
        prop_assert_eq!(counted(&mut regular).0, 0);
    }
}

/// What lists plainly permit stays on the express way, also where they are asked on both sides.
#[test]
fn permitted_packets_stay_on_the_express_way() {
    for (input, output, regular) in [
        ("permit ip any any", "permit ip any any", 0),
        ("permit ip any any log", "permit ip any any", 64),
        ("permit ip any any", "deny ip any any", 64),
    ] {
        let mut bed = Testbed::new().unwrap();
        with_lists(&mut bed, &[vec![input], vec![output]]);
        let (_, frame) =
            seeds().into_iter().find(|(port, f)| *port == 0 && f.get(12..14) == Some(&IP4)).unwrap();
        let frames = vec![frame; 64];
        run(&mut bed, 0, &frames, 0);
        assert_eq!(counted(&mut bed).1, regular, "{input}, {output}");
        let views = bed.acls().views();
        assert_eq!((views[0].rules[0].packets, views[1].rules[0].packets), (64, 64));
    }
}

/// Which of scapy's frames need the regular nodes: the express way must not lose its purpose unnoticed. (`ip6_extensions` begins
/// with hop-by-hop options, whose length must be checked.)
#[test]
fn plain_packets_take_the_express_way_and_only_they() {
    let plain = |name: &str, frame: &[u8]| {
        let mut bed = Testbed::new().unwrap();
        bed.frame(0, frame);
        let (all, regular) = counted(&mut bed);
        assert_eq!(all, 1, "{name}");
        regular == 0
    };
    let mut express = Vec::new();
    for line in include_str!("frames/frames.txt").lines() {
        let [name, way, port, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let frame: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        if way == "in" && port == "0" && plain(name, &frame) {
            express.push(name);
        }
    }
    let plain = [
        "ip4",
        "ip4_1518",
        "ip4_padding",
        "ip4_fragment_transit",
        "ip4_max_payload_protocol",
        "ip6",
        "ip6_padding",
    ];
    assert_eq!(express, plain);
}

/// Every bucket of a group is reached, and each flow by the same member both ways.
#[test]
fn groups_choose_the_same_member_both_ways() {
    let (mut express, mut regular) = (Testbed::new().unwrap(), regular());
    let seed =
        seeds().into_iter().find(|(port, f)| *port == 0 && f.get(12..14) == Some(&IP4) && f.len() > 42);
    let (_, seed) = seed.unwrap();
    for flow in 0..200u8 {
        let mut frame = seed.clone();
        // 198.19.0.0/16 is the testbed's group.
        frame[30..34].copy_from_slice(&[198, 19, 0, flow]);
        repair(&mut frame);
        let frames = [frame];
        assert_eq!(run(&mut express, 0, &frames, 0), run(&mut regular, 0, &frames, 0));
    }
}

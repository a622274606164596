//! Multicast against a naive model, with random routes and packets; random frames through the nodes; the life of routes
//! under control.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod multicast_frames;

use std::collections::BTreeMap;

use linerate_pipeline::{DropReason, HeapPacket, IfIndex, Interface};
use linerate_router::testbed::{Live, Sent, Testbed};
use linerate_router::{Mroute, MrouteKey, MrouteOrigin, MrouteOutput, RouterConfig};
use multicast_frames::{OUT, copy, frame, key, l3, sorted, to, udp};
use proptest::prelude::*;

const SOURCES: [[&str; 3]; 2] =
    [["10.0.0.9", "10.0.1.9", "0.0.0.0"], ["2001:db8::9", "2001:db8:1::9", "fe80::9"]];
const GROUPS: [[&str; 3]; 2] = [["239.1.1.1", "232.1.1.1", "224.0.0.9"], ["ff3e::1", "ff05::1", "ff02::9"]];

/// A packet: family, source, group, TTL, length of payload, whether it may be fragmented, interface.
type Shot = (usize, usize, usize, u8, usize, bool, IfIndex);

fn shot() -> impl Strategy<Value = Shot> {
    let ttl = prop_oneof![Just(1u8), Just(2), Just(16), Just(17), Just(64)];
    let len = prop_oneof![Just(0usize), Just(100), Just(1260), Just(1400)];
    (0usize..2, 0usize..3, 0usize..3, ttl, len, any::<bool>(), prop_oneof![4 => Just(0u16), 1 => Just(6u16)])
}

fn route() -> impl Strategy<Value = (usize, Option<usize>, usize, Mroute)> {
    let threshold = prop_oneof![3 => Just(0u8), 1 => Just(1), 1 => Just(16), 1 => Just(255)];
    let output =
        (0u16..7, threshold).prop_map(|(interface, threshold)| MrouteOutput { interface, threshold });
    let route = (prop_oneof![4 => Just(0u16), 1 => Just(6u16)], prop::collection::vec(output, 0..6))
        .prop_map(|(input, outputs)| Mroute { input, outputs, to_host: false });
    (0usize..2, prop::option::of(0usize..2), 0usize..2, route)
}

fn bytes((family, source, group, ttl, len, may_cut, _): Shot) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|i| (i * 5) as u8).collect();
    let mut l3 = l3(SOURCES[family][source], GROUPS[family][group], ttl, 17, &payload);
    if family == 0 && !may_cut {
        l3[6] = 0x40;
        let sum = u32::from(!u16::from_be_bytes([l3[10], l3[11]])) + 0x4000;
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        l3[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    l3
}

/// What the model says of a packet: whole copies, how many outputs get it in pieces, how many errors go back, and drops.
#[derive(Debug, Default, PartialEq)]
struct Verdict {
    whole: Vec<Sent>,
    in_pieces: Vec<IfIndex>,
    errors: usize,
    drops: Vec<DropReason>,
}

fn judge(routes: &BTreeMap<MrouteKey, Mroute>, shot: Shot) -> Verdict {
    use DropReason::{
        Ip4BadSource, Ip4MulticastUnrouted, Ip6LinkLocalScope, Ip6MulticastUnrouted, LocalUnhandled,
        MtuExceeded, MulticastNoOutput, MulticastWrongInterface, TtlExpired,
    };
    let (family, source, group, ttl, len, may_cut, rx) = shot;
    let dropped = |why| Verdict { drops: vec![why], ..Verdict::default() };
    if group == 2 {
        return dropped(LocalUnhandled);
    }
    if source == 2 {
        return dropped([Ip4BadSource, Ip6LinkLocalScope][family]);
    }
    let own = routes.get(&key(SOURCES[family][source], GROUPS[family][group]));
    let Some(route) = own.or_else(|| routes.get(&key("*", GROUPS[family][group]))) else {
        return dropped([Ip4MulticastUnrouted, Ip6MulticastUnrouted][family]);
    };
    if route.input != rx {
        return dropped(MulticastWrongInterface);
    }
    // The lowest threshold counts where an output is named twice; interface 5 is down.
    let mut outputs: BTreeMap<IfIndex, u8> = BTreeMap::new();
    for o in route.outputs.iter().filter(|o| o.interface != rx && o.interface != 5) {
        let least = outputs.entry(o.interface).or_insert(o.threshold);
        *least = o.threshold.min(*least);
    }
    if outputs.is_empty() {
        return dropped(MulticastNoOutput);
    }
    outputs.retain(|_, threshold| ttl > (*threshold).max(1));
    if outputs.is_empty() {
        return dropped(TtlExpired);
    }
    let l3 = bytes(shot);
    let mut verdict = Verdict::default();
    let header = [20, 40][family];
    for out in outputs.keys() {
        match (header + len <= OUT[usize::from(*out)].2, family, may_cut) {
            (true, ..) => verdict.whole.push(copy(&l3, *out, 0)),
            (_, 0, true) => verdict.in_pieces.push(*out),
            (_, 0, false) => verdict.drops.push(MtuExceeded),
            (_, _, _) if verdict.errors == 0 => verdict.errors = 1,
            _ => verdict.drops.push(MtuExceeded),
        }
    }
    verdict
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn routes_and_packets_against_the_model(
        routes in prop::collection::vec(route(), 0..8),
        shots in prop::collection::vec(prop_oneof![3 => shot().prop_map(|s| vec![s]), 1 => (shot(), 2usize..20).prop_map(|(s, n)| vec![s; n])], 1..8),
    ) {
        let mut bed = Testbed::new().unwrap();
        let mut model = BTreeMap::new();
        for (family, source, group, route) in routes {
            let key = key(source.map_or("*", |s| SOURCES[family][s]), GROUPS[family][group]);
            bed.multicast.set(key, MrouteOrigin::Static, Some(route.clone()));
            model.insert(key, route);
        }
        for shots in shots {
            let verdict = judge(&model, shots[0]);
            let l3 = bytes(shots[0]);
            let rx = OUT[usize::from(shots[0].6)].0;
            let n = shots.len();
            let sent = bed.receive(rx, shots.iter().map(|_| HeapPacket::new(&frame(&[], &l3))));
            let back = |s: &&Sent| s.frame[..5] == [2, 0, 0, 0, 9];
            prop_assert_eq!(sent.iter().filter(back).count(), verdict.errors * n, "{:?}", verdict);
            let pieces = |s: &&Sent| s.frame[0] & 1 != 0 && {
                let at = s.frame.windows(2).position(|w| w == [8, 0]).map_or(14, |at| at + 2);
                l3[0] >> 4 == 4 && s.frame.len() >= at + 8 && (s.frame[at + 6] & 0x3f != 0 || s.frame[at + 7] != 0)
            };
            prop_assert_eq!(sent.iter().filter(pieces).count(), 2 * n * verdict.in_pieces.len());
            let whole = sorted(sent.iter().filter(|s| !back(s) && !pieces(s)).cloned().collect());
            let expected = sorted(verdict.whole.iter().flat_map(|s| vec![s.clone(); n]).collect());
            prop_assert_eq!(whole, expected);
            let mut drops: Vec<(DropReason, u64)> = Vec::new();
            for reason in verdict.drops {
                match drops.iter_mut().find(|d| d.0 == reason) {
                    Some(d) => d.1 += n as u64,
                    None => drops.push((reason, n as u64)),
                }
            }
            // `drops` of the bed also asserts that every port balances.
            prop_assert_eq!(bed.drops(), drops);
            // So that errors are not limited.
            bed.tick(1_000_000_000);
        }
    }

    /// The addresses right, the rest random: nothing panics, everything is accounted for.
    #[test]
    fn random_frames_to_groups(
        frames in prop::collection::vec((0usize..2, 0usize..3, prop::collection::vec(any::<u8>(), 0..140), 0usize..90), 1..40),
    ) {
        let mut bed = Testbed::new().unwrap();
        for groups in &GROUPS {
            for (group, out) in groups.iter().zip([&[1, 2, 4][..], &[6], &[1]]) {
                bed.multicast.set(key("*", group), MrouteOrigin::Learned, Some(Mroute { to_host: out.len() == 1, ..to(out) }));
            }
        }
        let packets = frames.into_iter().map(|(family, group, noise, cut)| {
            let mut whole = frame(&[], &udp(SOURCES[family][0], GROUPS[family][group], 64, 60));
            // Noise everywhere but in what leads to the nodes.
            for (at, value) in noise.iter().enumerate().filter(|(_, v)| *v % 3 == 0) {
                let keep = if family == 0 { (14..16).contains(&at) || (24..34).contains(&at) } else { (14..15).contains(&at) || (38..54).contains(&at) };
                if at >= 14 && at < whole.len() && !keep {
                    whole[at] ^= value;
                }
            }
            let cut = cut.min(whole.len());
            HeapPacket::with_segments(&[&whole[..cut], &whole[cut..]])
        });
        bed.receive(0, packets);
        bed.drops();
    }
}

#[test]
fn routes_come_change_and_go_with_their_interfaces() {
    let interface = |i: IfIndex, name: &str, up| {
        let net = format!("10.0.{i}.1/24").parse().unwrap();
        (i, Interface { up, ..Interface::new(name, i, [2, 0, 0, 0, 0, i as u8], 1500, &[net]) })
    };
    let all = |up| vec![interface(0, "a", true), interface(1, "b", true), interface(2, "c", up)];
    let config = RouterConfig { interfaces: all(true), ..RouterConfig::default() };
    let mut live = Live::new(config, 1).unwrap();
    let stream = key("10.0.0.9", "239.1.1.1");
    let packet = frame(&[], &udp("10.0.0.9", "239.1.1.1", 64, 8));
    assert_eq!(live.frame(0, &packet), []);
    live.router.set_mroute(1, stream, to(&[1, 2])).unwrap();
    assert_eq!(live.frame(0, &packet).len(), 2);
    // Another tree for the same stream: the counters go on.
    live.router.set_mroute(1, stream, to(&[1])).unwrap();
    assert_eq!(live.frame(0, &packet).len(), 1);
    let view = live.router.mroutes().next().unwrap();
    assert_eq!((view.packets, view.bytes, view.origin), (2, 2 * 28, MrouteOrigin::Learned));
    // The configuration wins, and what was learned comes back after it.
    live.router.set_static_mroutes(1, vec![(stream, to(&[1, 2])), (key("*", "ff3e::1"), to(&[1]))]).unwrap();
    assert_eq!(live.frame(0, &packet).len(), 2);
    live.router.set_static_mroutes(1, vec![(key("*", "ff3e::1"), to(&[1]))]).unwrap();
    assert_eq!((live.frame(0, &packet).len(), live.router.mroutes().count()), (1, 2));
    // Refused, and nothing changes.
    assert!(live.router.set_mroute(1, key("*", "224.0.0.1"), to(&[1])).is_err());
    let error = live.router.set_static_mroutes(1, vec![(stream, to(&[9]))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "multicast route (10.0.0.9, 239.1.1.1) names interface number 9, which does not exist"
    );
    assert_eq!(live.router.mroutes().count(), 2);
    // A link goes down and comes back; an interface goes, its index is another's then.
    live.router.set_mroute(1, stream, to(&[1, 2])).unwrap();
    live.router.set_interfaces(2, all(false)).unwrap();
    assert_eq!(live.frame(0, &packet).len(), 1);
    live.router.set_interfaces(2, all(true)).unwrap();
    assert_eq!(live.frame(0, &packet).len(), 2);
    let other = vec![interface(0, "a", true), interface(1, "b", true), interface(2, "d", true)];
    live.router.set_interfaces(3, other).unwrap();
    assert_eq!(live.frame(0, &packet).len(), 1);
    live.router.set_interfaces(4, vec![interface(1, "b", true)]).unwrap();
    assert_eq!(live.router.mroutes().count(), 0, "their input is gone");
    live.router.set_interfaces(5, all(true)).unwrap();
    live.router.set_mroute(6, stream, to(&[1])).unwrap();
    assert!(live.router.remove_mroute(7, stream) && !live.router.remove_mroute(7, stream));
    assert_eq!(live.frame(0, &packet), []);
    live.drops();
}

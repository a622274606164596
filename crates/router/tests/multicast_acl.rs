//! Outgoing access lists and multicast: each interface's list decides about the copies that would leave by it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod multicast_frames;

use linerate_pipeline::{DropReason, HeapPacket, IfIndex};
use linerate_router::acl::{Acl, AclAction, AclBinding, parse_rules};
use linerate_router::testbed::{Sent, Testbed};
use linerate_router::{Mroute, MrouteOrigin, MrouteOutput, RouterEvent};
use linerate_wire::ip4;
use multicast_frames::{bed, copy, frame, key, l3, sorted, to};

const STREAMS: [(&str, &str); 2] = [("10.0.0.9", "239.1.2.3"), ("2001:db8::9", "ff3e::1")];

/// A datagram of a stream to a port.
fn udp(stream: (&str, &str), ttl: u8, port: u16, len: usize) -> Vec<u8> {
    let header = [&4000u16.to_be_bytes()[..], &port.to_be_bytes(), &(8 + len as u16).to_be_bytes(), &[0, 0]];
    l3(stream.0, stream.1, ttl, ip4::UDP, &[&header.concat()[..], &vec![7; len]].concat())
}

/// A router with a route to these outputs, and lists on some interfaces.
fn filtered(stream: (&str, &str), outputs: &[IfIndex], lists: &[(IfIndex, &str)]) -> Testbed {
    let mut bed = bed(&[(key(stream.0, stream.1), to(outputs))]);
    bind(&mut bed, lists);
    bed
}

fn bind(bed: &mut Testbed, lists: &[(IfIndex, &str)]) {
    let acl = |(i, text): &(IfIndex, &str)| Acl {
        name: format!("out{i}"),
        rules: parse_rules(text).unwrap(),
        default: AclAction::Deny,
    };
    let binding =
        |(i, _): &(IfIndex, &str)| AclBinding { interface: *i, input: None, output: Some(format!("out{i}")) };
    let bindings: Vec<AclBinding> = lists.iter().map(binding).collect();
    bed.acls().replace(lists.iter().map(acl).collect(), &bindings).unwrap();
}

/// Packets and bytes by list and rule, the implicit ones at the end included.
fn hits(bed: &mut Testbed) -> Vec<Vec<(u64, u64)>> {
    bed.acls().views().iter().map(|l| l.rules.iter().map(|r| (r.packets, r.bytes)).collect()).collect()
}

fn copies(l3: &[u8], outputs: &[IfIndex]) -> Vec<Sent> {
    sorted(outputs.iter().map(|out| copy(l3, *out, 0)).collect())
}

#[test]
fn each_interfaces_list_decides_about_its_copies() {
    for stream in STREAMS {
        let rules = "permit udp any any eq 5000";
        let mut bed = filtered(stream, &[1, 2, 3, 6], &[(1, rules), (3, rules), (4, "deny ip any any")]);
        let (wanted, other) = (udp(stream, 9, 5000, 60), udp(stream, 9, 5001, 60));
        let bytes = frame(&[], &wanted).len() as u64;
        // Permitted: each list is asked once per copy; that of an interface that gets none is not.
        let run = |l3: &Vec<u8>| (0..20).map(|_| HeapPacket::new(&frame(&[], l3))).collect::<Vec<_>>();
        let sent = bed.receive(0, run(&wanted));
        let expected = (0..20).flat_map(|_| copies(&wanted, &[1, 2, 3, 6])).collect();
        assert_eq!((sorted(sent), bed.drops()), (sorted(expected), vec![]));
        let all = hits(&mut bed);
        assert_eq!((all[0][0], all[1][0]), ((20, 20 * bytes), (20, 20 * bytes)), "{stream:?}");
        assert!(all[2].iter().all(|hits| *hits == (0, 0)), "{all:?}");
        // Denied by two of four outputs: the others get their copies.
        let sent = bed.receive(0, run(&other));
        let expected = (0..20).flat_map(|_| copies(&other, &[2, 6])).collect();
        assert_eq!((sorted(sent), bed.drops()), (sorted(expected), vec![(DropReason::AclOutDenied, 40)]));
        let all = hits(&mut bed);
        assert_eq!((all[0][0].0, all[0].last().unwrap().0, all[1].last().unwrap().0), (20, 20, 20));
        // A run in which the list says different things of different packets.
        let mixed = [&wanted, &other, &wanted].map(|l3| HeapPacket::new(&frame(&[], l3)));
        let expected =
            [copies(&wanted, &[1, 2, 3, 6]), copies(&other, &[2, 6]), copies(&wanted, &[1, 2, 3, 6])];
        assert_eq!(sorted(bed.receive(0, mixed)), sorted(expected.concat()));
        assert_eq!(bed.drops(), [(DropReason::AclOutDenied, 2)]);
    }
}

#[test]
fn what_no_output_may_have_is_counted_once_per_copy() {
    for stream in STREAMS {
        let lists = [(1, "deny udp any any"), (2, "reject udp any any"), (6, "deny udp any any log")];
        let packet = udp(stream, 9, 5000, 60);
        for (outputs, drops) in [
            (&[1][..], vec![(DropReason::AclOutDenied, 1)]),
            (&[2], vec![(DropReason::AclRejected, 1)]),
            (&[1, 6], vec![(DropReason::AclOutDenied, 2)]),
            (&[1, 2, 5, 6], vec![(DropReason::AclOutDenied, 2), (DropReason::AclRejected, 1)]),
        ] {
            let mut bed = filtered(stream, outputs, &lists);
            // Nothing comes back either: nobody is told of multicasts that are rejected. `drops` sees to the balance.
            let sent = bed.frame(0, &frame(&[], &packet));
            let mut counted = bed.drops();
            counted.sort_by_key(|d| drops.iter().position(|e| e.0 == d.0));
            assert_eq!((sent, counted), (vec![], drops), "{stream:?} {outputs:?}");
            let logged = bed
                .events()
                .iter()
                .filter(|e| matches!(e, RouterEvent::AclHit(h) if h.interface == 6))
                .count();
            assert_eq!(logged, usize::from(outputs.contains(&6)));
        }
        // One output: the packet itself is what goes, or goes not.
        let mut bed = filtered(stream, &[1], &[(1, "permit udp any any")]);
        bed.limit_pool(0);
        assert_eq!((bed.frame(0, &frame(&[], &packet)), bed.drops()), (vec![copy(&packet, 1, 0)], vec![]));
        // Two, of which one is left.
        let mut bed = filtered(stream, &[1, 3], &[(3, "deny udp any any")]);
        bed.limit_pool(0);
        let sent = bed.frame(0, &frame(&[], &packet));
        assert_eq!((sent, bed.drops()), (vec![copy(&packet, 1, 0)], vec![(DropReason::AclOutDenied, 1)]));
    }
}

#[test]
fn lists_come_after_hops_and_before_the_size() {
    for stream in STREAMS {
        let mut bed = multicast_frames::bed(&[]);
        let output = |(interface, threshold)| MrouteOutput { interface, threshold };
        let outputs = [(1, 0), (4, 0), (6, 64)].map(output).to_vec();
        bed.multicast.set(key(stream.0, stream.1), MrouteOrigin::Static, Some(Mroute { outputs, ..to(&[]) }));
        bind(&mut bed, &[(4, "deny udp any any"), (6, "deny udp any any")]);
        // Too long for 4, without the hops for 6: neither an error nor a fragment, and 6 is not asked.
        let long = udp(stream, 64, 5000, 1300);
        let sent = bed.frame(0, &frame(&[], &long));
        assert_eq!((sent, bed.drops()), (copies(&long, &[1]), vec![(DropReason::AclOutDenied, 1)]));
        assert_eq!(hits(&mut bed)[1][0], (0, 0));
        let last = udp(stream, 1, 5000, 60);
        assert_eq!(bed.frame(0, &frame(&[], &last)), []);
        assert_eq!(bed.drops(), [(DropReason::TtlExpired, 1)]);
    }
}

#[test]
fn what_a_list_cannot_see_is_not_copied_and_the_host_still_gets_its_packets() {
    // The second fragment of a datagram has no ports, and one of TCP may hide flags (RFC 3128).
    let stream = STREAMS[0];
    let mut hidden = l3(stream.0, stream.1, 9, ip4::TCP, &[0; 40]);
    hidden[7] = 1;
    let sum: u32 = hidden[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>()
        - u32::from(u16::from_be_bytes([hidden[10], hidden[11]]));
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    hidden[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut bed = filtered(stream, &[1, 6], &[(1, "permit ip any any")]);
    assert_eq!(bed.frame(0, &frame(&[], &hidden)), copies(&hidden, &[6]));
    assert_eq!(bed.drops(), [(DropReason::AclUndetermined, 1)]);
    // Samples and packets for the router itself do not leave: no list is asked about them.
    for stream in STREAMS {
        let packet = udp(stream, 9, 5000, 60);
        for (to_host, outputs) in [(false, &[1][..]), (true, &[1]), (true, &[1, 6])] {
            let mut bed = multicast_frames::bed(&[]);
            bind(&mut bed, &[(1, "deny ip any any")]);
            let route = Mroute { to_host, ..to(outputs) };
            bed.multicast.set(key(stream.0, stream.1), MrouteOrigin::Learned, Some(route));
            let sent = bed.frame(0, &frame(&[], &packet));
            assert_eq!(sent, copies(&packet, &outputs[1..]));
            let mut drops = bed.drops();
            drops.sort_by_key(|d| d.0 == DropReason::LocalUnhandled);
            assert_eq!(drops, [(DropReason::AclOutDenied, 1), (DropReason::LocalUnhandled, 1)]);
        }
    }
}

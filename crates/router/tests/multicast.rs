//! Multicast through the whole graph: who gets copies, what is in them, what becomes of the rest.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod multicast_frames;

use std::net::IpAddr;

use linerate_pipeline::{DropReason, HeapPacket, IfIndex, Packet};
use linerate_router::testbed::{Sent, Testbed};
use linerate_router::{Mroute, MrouteOrigin, MrouteOutput};
use linerate_wire::ip4::Ip4Header;
use multicast_frames::{OUT, bed, copy, frame, key, l3, sorted, to, udp};
use zerocopy::IntoBytes;

#[test]
fn each_output_gets_its_copy_with_its_own_header() {
    for (source, group) in [("10.0.0.9", "239.129.2.3"), ("2001:db8::9", "ff3e::8000:1")] {
        let mut bed = bed(&[(key(source, group), to(&[1, 2, 3, 4, 5, 6]))]);
        for len in [0, 8, 600] {
            let l3 = udp(source, group, 9, len);
            let sent = bed.frame(0, &frame(&[], &l3));
            let all = [1, 2, 3, 4, 6].map(|out| copy(&l3, out, 0)).to_vec();
            assert_eq!(sorted(sent), sorted(all), "{group}: interface 5 is down");
        }
        // Padded, in pieces, and with a tag whose priority goes over.
        let l3 = udp(source, group, 2, 8);
        let padded = [frame(&[], &l3), vec![0; 30]].concat();
        for cut in [20, 30, 50] {
            let packet = HeapPacket::with_segments(&[&padded[..cut], &padded[cut..]]);
            assert_eq!(bed.receive(0, [packet]).len(), 5);
        }
        let tagged = bed.frame(0, &frame(&[0x81, 0, 0xa0, 0], &l3));
        assert_eq!(sorted(tagged), sorted([1, 2, 3, 4, 6].map(|out| copy(&l3, out, 0xa0)).to_vec()));
        assert_eq!(bed.drops(), []);
    }
}

#[test]
fn one_output_sends_the_packet_itself() {
    for (source, group) in [("10.0.0.9", "239.1.2.3"), ("2001:db8::9", "ff3e::1")] {
        for out in [1, 3] {
            let mut bed = bed(&[(key(source, group), to(&[out, 5, 0]))]);
            bed.limit_pool(0);
            let l3 = udp(source, group, 2, 100);
            assert_eq!(bed.frame(0, &frame(&[], &l3)), [copy(&l3, out, 0)]);
            let tight = HeapPacket::new(&frame(&[], &l3)).tight();
            let sent = bed.receive(0, [tight]);
            if out == 3 {
                assert_eq!((sent.len(), bed.drops()), (0, vec![(DropReason::NoHeadroom, 1)]));
            } else {
                assert_eq!((sent, bed.drops()), (vec![copy(&l3, out, 0)], vec![]));
            }
        }
    }
}

#[test]
fn order_is_kept_and_streams_do_not_mix() {
    let streams = [("10.0.0.9", "239.1.1.1"), ("10.0.0.8", "239.1.1.1"), ("2001:db8::9", "ff3e::1")];
    let outputs: [&[IfIndex]; 3] = [&[1, 6], &[6], &[1, 2, 3]];
    let routes: Vec<_> =
        streams.iter().zip(outputs).map(|((s, g), outputs)| (key(s, g), to(outputs))).collect();
    let mut bed = bed(&routes);
    // Runs of every length, singles included.
    let order = (0..200).map(|i| if i < 100 { (i / 40) % 3 } else { (i * i + i / 3) % 3 });
    let packets: Vec<(usize, Vec<u8>)> = order
        .enumerate()
        .map(|(i, s)| (s, l3(streams[s].0, streams[s].1, 64, 17, &(i as u64).to_be_bytes())))
        .collect();
    let sent = bed.receive(0, packets.iter().map(|(_, l3)| HeapPacket::new(&frame(&[], l3))));
    for out in [1u16, 2, 3, 6] {
        let to_out = packets.iter().filter(|(s, _)| outputs[*s].contains(&out));
        let expected: Vec<Sent> = to_out.map(|(_, l3)| copy(l3, out, 0)).collect();
        let (port, tags, _) = OUT[usize::from(out)];
        let there = |s: &&Sent| {
            let tagged = s.frame[12..].starts_with(&[0x81, 0]);
            s.port == port && (port == 2 || tagged != tags.is_empty())
        };
        let got: Vec<Sent> = sent.iter().filter(there).cloned().collect();
        assert_eq!(got.len(), expected.len(), "interface {out}");
        // Within a stream nothing overtakes; streams may.
        for (source, _) in streams {
            let of = |all: &[Sent]| -> Vec<Vec<u8>> {
                let from = source.parse::<IpAddr>().unwrap();
                let address = match from {
                    IpAddr::V4(a) => a.octets().to_vec(),
                    IpAddr::V6(a) => a.octets().to_vec(),
                };
                let has = |s: &&Sent| s.frame.windows(address.len()).any(|w| w == address);
                all.iter().filter(has).map(|s| s.frame.clone()).collect()
            };
            assert_eq!(of(&got), of(&expected), "interface {out}, {source}");
        }
    }
    assert_eq!(bed.drops(), []);
}

#[test]
fn what_comes_in_elsewhere_is_counted_and_shown_now_and_then() {
    let l3 = udp("10.0.0.9", "239.1.1.1", 64, 8);
    let mut bed = bed(&[(key("10.0.0.9", "239.1.1.1"), to(&[1, 6]))]);
    for _ in 0..3 {
        assert_eq!(bed.frame(1, &frame(&[], &l3)), []);
        assert_eq!(bed.receive(4, (0..5).map(|_| HeapPacket::new(&frame(&[], &l3)))), []);
        let drops = bed.drops();
        assert_eq!(drops, [(DropReason::MulticastWrongInterface, 6)], "without a host system nobody looks");
        bed.tick(1_000_000_000);
    }
    assert_eq!(bed.frame(0, &frame(&[], &l3)).len(), 2);
}

#[test]
fn a_route_for_all_sources_serves_those_without_their_own() {
    for (own, other, group) in
        [("10.0.0.9", "10.0.0.8", "239.1.1.1"), ("2001:db8::9", "2001:db8::8", "ff08::77")]
    {
        let mut bed = bed(&[(key("*", group), to(&[1, 6])), (key(own, group), to(&[2]))]);
        let (a, b) = (udp(own, group, 64, 8), udp(other, group, 64, 8));
        assert_eq!(bed.frame(0, &frame(&[], &a)), [copy(&a, 2, 0)]);
        assert_eq!(bed.frame(0, &frame(&[], &b)).len(), 2);
        bed.multicast.set(key(own, group), MrouteOrigin::Static, None);
        assert_eq!(bed.frame(0, &frame(&[], &a)).len(), 2);
        bed.multicast.set(key(own, group), MrouteOrigin::Static, Some(to(&[])));
        assert_eq!(bed.frame(0, &frame(&[], &a)), []);
        assert_eq!(bed.drops(), [(DropReason::MulticastNoOutput, 1)], "a route without outputs says no");
    }
}

#[test]
fn hops_decide_who_gets_a_copy() {
    for (source, group) in [("10.0.0.9", "239.1.1.1"), ("2001:db8::9", "ff08::77")] {
        let output = |(interface, threshold)| MrouteOutput { interface, threshold };
        let outputs = [(1, 1), (2, 15), (6, 63), (3, 255)].map(output).to_vec();
        let mut bed = bed(&[(key(source, group), Mroute { outputs, ..to(&[]) })]);
        for (ttl, out) in [(0, 0), (1, 0), (2, 1), (15, 1), (16, 2), (63, 2), (64, 3), (255, 3)] {
            let l3 = udp(source, group, ttl, 8);
            let expected: Vec<Sent> = [1, 2, 6].iter().take(out).map(|out| copy(&l3, *out, 0)).collect();
            assert_eq!(sorted(bed.frame(0, &frame(&[], &l3))), sorted(expected), "{ttl}");
            let drops = if out == 0 { vec![(DropReason::TtlExpired, 1)] } else { vec![] };
            assert_eq!(bed.drops(), drops);
        }
    }
}

#[test]
fn ip4_that_is_too_long_is_cut_or_dropped_without_a_word() {
    let payload: Vec<u8> = (0..1400).map(|i| (i * 7) as u8).collect();
    let whole = l3("10.0.0.9", "239.1.1.1", 64, 17, &payload);
    let mut dont = whole.clone();
    dont[6] = 0x40;
    let mut h = Ip4Header::new(0x0a00_0009, 0xef01_0101, 17, 64, payload.len());
    h.fragment.set(0x4000);
    h.set_checksum();
    dont[..20].copy_from_slice(h.as_bytes());
    for outputs in [&[1, 4, 6][..], &[4], &[4, 6]] {
        let mut bed = bed(&[(key("10.0.0.9", "239.1.1.1"), to(outputs))]);
        let sent = bed.frame(0, &frame(&[], &whole));
        let (cut, rest): (Vec<Sent>, Vec<Sent>) = sent.into_iter().partition(|s| s.port == 2);
        let expected: Vec<Sent> = outputs.iter().filter(|o| **o != 4).map(|o| copy(&whole, *o, 0)).collect();
        assert_eq!(sorted(rest), sorted(expected));
        let [first, second] = &cut[..] else { panic!("{} fragments", cut.len()) };
        assert_eq!(&first.frame[..14], &copy(&whole, 4, 0).frame[..14]);
        assert_eq!([&first.frame[34..], &second.frame[34..]].concat(), payload);
        assert_eq!((first.frame[22], second.frame[22], first.frame.len()), (63, 63, 14 + 1276));
        assert_eq!(bed.drops(), []);

        let sent = bed.frame(0, &frame(&[], &dont));
        let expected: Vec<Sent> = outputs.iter().filter(|o| **o != 4).map(|o| copy(&dont, *o, 0)).collect();
        assert_eq!((sorted(sent), bed.drops()), (sorted(expected), vec![(DropReason::MtuExceeded, 1)]));
    }
}

#[test]
fn ip6_that_is_too_long_is_told_to_the_sender_once() {
    let whole = udp("2001:db8::9", "ff3e::1", 64, 1400);
    for outputs in [&[1, 4, 6][..], &[4], &[4, 6]] {
        let mut bed = bed(&[(key("2001:db8::9", "ff3e::1"), to(outputs))]);
        let sent = bed.frame(0, &frame(&[], &whole));
        let (errors, rest): (Vec<Sent>, Vec<Sent>) = sent.into_iter().partition(|s| s.port == 0);
        let expected: Vec<Sent> = outputs.iter().filter(|o| **o != 4).map(|o| copy(&whole, *o, 0)).collect();
        assert_eq!(sorted(rest), sorted(expected));
        let [error] = &errors[..] else { panic!("{} errors", errors.len()) };
        let e = &error.frame;
        assert_eq!(
            (&e[..6], &e[22..38]),
            (&[2, 0, 0, 0, 9, 0][..], &"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets()[..])
        );
        assert_eq!((&e[54..56], &e[58..62], e.len()), (&[2, 0][..], &1280u32.to_be_bytes()[..], 14 + 1280));
        assert_eq!(&e[62..], &whole[..1280 - 48], "as it came in");
        assert_eq!(bed.drops(), []);
    }
}

#[test]
fn control_traffic_is_for_the_host_system() {
    let all4 = (key("*", "239.1.1.1"), to(&[1, 6]));
    let all6 = (key("*", "ff3e::1"), to(&[1, 6]));
    let mut bed = bed(&[all4, all6]);
    let alert4 = {
        let mut l3 = udp("10.0.0.9", "239.1.1.1", 64, 8);
        l3.splice(20..20, [0x94, 4, 0, 0]);
        let mut h = Ip4Header::new(0x0a00_0009, 0xef01_0101, 17, 64, 12);
        h.version_ihl = 0x46;
        h.set_checksum();
        // The option's bytes belong to the sum as well.
        let sum = u32::from(!h.checksum.get()) + 0x9404;
        h.checksum.set(!((sum & 0xffff) + (sum >> 16)) as u16);
        l3[..20].copy_from_slice(h.as_bytes());
        l3
    };
    let hop_by_hop = |next: u8, option: [u8; 6], rest: &[u8]| [&[next, 0][..], &option, rest].concat();
    let alert = [5, 2, 0, 0, 1, 0];
    for l3 in [
        l3("10.0.0.9", "224.0.0.5", 1, 89, &[0; 24]),
        l3("10.0.0.9", "224.0.0.251", 255, 17, &[0; 8]),
        l3("10.0.0.9", "239.1.1.1", 1, 2, &[0x16, 0, 0, 0, 239, 1, 1, 1]),
        l3("0.0.0.0", "224.0.0.22", 1, 2, &[0x22; 8]),
        l3("10.0.0.9", "224.0.0.13", 1, 103, &[0x20; 8]),
        alert4,
        l3("fe80::9", "ff02::5", 1, 89, &[0; 24]),
        l3("fe80::9", "ff02::d", 1, 103, &[0x20; 8]),
        l3("fe80::9", "ff02::16", 1, 0, &hop_by_hop(58, alert, &[143, 0, 0, 0, 0, 0, 0, 0])),
        l3("fe80::9", "ff3e::1", 1, 0, &hop_by_hop(58, alert, &[131, 0, 0, 0])),
        l3("fe80::9", "ff3e::1", 1, 0, &hop_by_hop(58, [1, 4, 0, 0, 0, 0], &[131, 0, 0, 0])),
        l3("2001:db8::9", "ff3e::1", 64, 0, &hop_by_hop(17, alert, &[0; 8])),
        l3("2001:db8::9", "ff3e::1", 64, 58, &[132, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(bed.frame(0, &frame(&[], &l3)), [], "{l3:x?}");
        assert_eq!(bed.drops(), [(DropReason::LocalUnhandled, 1)], "{l3:x?}");
    }
    for (l3, reason) in [
        (udp("0.0.0.0", "239.1.1.1", 64, 8), DropReason::Ip4BadSource),
        (udp("::", "ff3e::1", 64, 8), DropReason::Ip6BadSource),
        (udp("fe80::9", "ff3e::1", 64, 8), DropReason::Ip6LinkLocalScope),
        (udp("10.0.0.9", "239.9.9.9", 64, 8), DropReason::Ip4MulticastUnrouted),
        (udp("2001:db8::9", "ff3e::99", 64, 8), DropReason::Ip6MulticastUnrouted),
    ] {
        assert_eq!(bed.frame(0, &frame(&[], &l3)), []);
        assert_eq!(bed.drops(), [(reason, 1)]);
    }
    let plain = l3("2001:db8::9", "ff3e::1", 64, 0, &hop_by_hop(17, [1, 4, 0, 0, 0, 0], &[0; 8]));
    assert_eq!(bed.frame(0, &frame(&[], &plain)).len(), 2, "other options are nobody's business");
}

#[test]
fn the_host_system_sees_what_it_must() {
    let l3 = udp("10.0.0.9", "239.1.1.1", 2, 8);
    let mut bed = bed(&[]);
    let learned = |bed: &mut Testbed, route: Mroute| {
        bed.multicast.set(key("10.0.0.9", "239.1.1.1"), MrouteOrigin::Learned, Some(route));
    };
    // One a second of what is forwarded.
    learned(&mut bed, to(&[1, 6]));
    for _ in 0..3 {
        let sent = bed.receive(0, (0..70).map(|_| HeapPacket::new(&frame(&[], &l3))));
        assert_eq!((sent.len(), bed.drops()), (140, vec![(DropReason::LocalUnhandled, 1)]));
        bed.tick(1_000_000_000);
    }
    // All of what it is a member of, whatever their hops.
    learned(&mut bed, Mroute { to_host: true, ..to(&[1, 6]) });
    assert_eq!(bed.receive(0, (0..10).map(|_| HeapPacket::new(&frame(&[], &l3)))).len(), 20);
    assert_eq!(bed.drops(), [(DropReason::LocalUnhandled, 10)]);
    let last = udp("10.0.0.9", "239.1.1.1", 1, 8);
    assert_eq!(bed.frame(0, &frame(&[], &last)), []);
    learned(&mut bed, Mroute { to_host: true, ..to(&[]) });
    assert_eq!(bed.frame(0, &frame(&[], &l3)), []);
    assert_eq!(bed.drops(), [(DropReason::LocalUnhandled, 2)]);
    // But only so many.
    let flood = bed.receive(0, (0..30_000).map(|_| HeapPacket::new(&frame(&[], &l3))));
    let drops = bed.drops();
    assert_eq!((flood.len(), drops.iter().map(|d| d.1).sum::<u64>()), (0, 30_000));
    assert!(drops.iter().any(|d| d.0 == DropReason::MulticastMemberLimit && d.1 > 9_000), "{drops:?}");
}

#[test]
fn an_empty_pool_is_a_drop_per_copy() {
    let l3 = udp("10.0.0.9", "239.1.1.1", 64, 8);
    let mut bed = bed(&[(key("10.0.0.9", "239.1.1.1"), to(&[1, 2, 6]))]);
    bed.limit_pool(25);
    let sent = bed.receive(0, (0..10).map(|_| HeapPacket::new(&frame(&[], &l3))));
    assert_eq!((sent.len(), bed.drops()), (20, vec![(DropReason::PoolExhausted, 10)]));
}

#[test]
fn copies_share_the_payload() {
    let l3 = udp("2001:db8::9", "ff3e::1", 64, 9000);
    let whole = frame(&[], &l3);
    let mut bed = bed(&[(key("2001:db8::9", "ff3e::1"), to(&[6]))]);
    // Jumbo, in pieces, to several outputs.
    bed.multicast.set(key("2001:db8::9", "ff3e::1"), MrouteOrigin::Static, Some(to(&[6, 1])));
    let packet = HeapPacket::with_segments(&whole.chunks(2048).collect::<Vec<_>>());
    assert_eq!(packet.segments(), 5);
    let sent = bed.receive(0, [packet]);
    let jumbo: Vec<&Sent> = sent.iter().filter(|s| s.port == 4).collect();
    assert_eq!(jumbo, [&copy(&l3, 6, 0)]);
    assert_eq!(sent.len(), 2, "and an error: the other one takes 1500 bytes");
}

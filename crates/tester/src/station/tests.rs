//! Stations against frames made by another encoder (`etherparse`) where it has them, and by hand where not.

use std::net::Ipv6Addr;

use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 0x55];
const DUT: Mac = [2, 0, 0, 0, 0, 0xd1];
const GHZ: u64 = 1_000_000_000;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn stations(vlans: &[u16]) -> Stations {
    let station = Station {
        mac: MAC,
        vlans: vlans.to_vec(),
        addresses: vec!["198.18.1.0/24".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()],
        asks: vec![(ip("198.18.1.1"), ip("198.18.1.2")), (ip("2001:db8:1::1"), ip("2001:db8:1::2"))],
    };
    Stations::new(vec![station], GHZ)
}

/// Tags as bytes between the addresses and the ethertype.
fn tagged(dst: Mac, src: Mac, tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&dst[..], &src[..]].concat();
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn arp_bytes(operation: u8, sender: (Mac, [u8; 4]), target: (Mac, [u8; 4])) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, operation];
    for (mac, ip) in [sender, target] {
        bytes.extend(mac);
        bytes.extend(ip);
    }
    bytes
}

#[test]
fn arp_is_answered_under_every_kind_of_tags_with_the_tags_it_came_with() {
    type Tags = &'static [(u16, u16)];
    let cases: [(Tags, &[u16]); 4] = [
        (&[], &[]),
        (&[(0x8100, 0xa064)], &[100]),
        (&[(0x88a8, 0x00c8), (0x8100, 0x6064)], &[200, 100]),
        (&[(0x8100, 0x00c8), (0x8100, 0x0064)], &[200, 100]),
    ];
    for (tags, vlans) in cases {
        let mut s = stations(vlans);
        let ask = arp_bytes(1, (DUT, [198, 18, 1, 1]), ([0; 6], [198, 18, 1, 77]));
        let mut answers = Vec::new();
        assert!(s.hear(&tagged([0xff; 6], DUT, tags, 0x0806, &ask), 0, &mut answers));
        let reply = arp_bytes(2, (MAC, [198, 18, 1, 77]), (DUT, [198, 18, 1, 1]));
        assert_eq!(answers, [tagged(DUT, MAC, tags, 0x0806, &reply)]);
        // Another VLAN's question is nobody's, and so is one for another address.
        answers.clear();
        assert!(!s.hear(&tagged([0xff; 6], DUT, &[(0x8100, 5)], 0x0806, &ask), 0, &mut answers));
        let other = arp_bytes(1, (DUT, [198, 18, 1, 1]), ([0; 6], [198, 18, 2, 77]));
        assert!(!s.hear(&tagged([0xff; 6], DUT, tags, 0x0806, &other), 0, &mut answers));
        assert!(answers.is_empty());
    }
}

#[test]
fn pings_are_answered_with_right_checksums() {
    for tags in [&[][..], &[(0x8100, 7)]] {
        let mut s = stations(if tags.is_empty() { &[] } else { &[7] });
        let data: Vec<u8> = (0..56).collect();
        let mut packet = Vec::new();
        etherparse::PacketBuilder::ipv4([198, 18, 1, 1], [198, 18, 1, 9], 64)
            .icmpv4_echo_request(0x1234, 7)
            .write(&mut packet, &data)
            .unwrap();
        let mut answers = Vec::new();
        // Padding behind the packet is no part of the answer.
        packet.extend([0xaa; 4]);
        assert!(s.hear(&tagged(MAC, DUT, tags, 0x0800, &packet), 0, &mut answers));
        let mut wanted = Vec::new();
        etherparse::PacketBuilder::ipv4([198, 18, 1, 9], [198, 18, 1, 1], 64)
            .icmpv4_echo_reply(0x1234, 7)
            .write(&mut wanted, &data)
            .unwrap();
        let transport =
            |packet: &[u8]| format!("{:?}", etherparse::SlicedPacket::from_ip(packet).unwrap().transport);
        assert_eq!(transport(&answers[0][14 + 4 * tags.len()..]), transport(&wanted));
        assert_eq!(answers[0][..14 + 4 * tags.len()], tagged(DUT, MAC, tags, 0x0800, &[]));

        let (us, them) =
            ("2001:db8:1::9".parse::<Ipv6Addr>().unwrap(), "2001:db8:1::1".parse::<Ipv6Addr>().unwrap());
        let (mut packet, mut wanted) = (Vec::new(), Vec::new());
        etherparse::PacketBuilder::ipv6(them.octets(), us.octets(), 64)
            .icmpv6_echo_request(1, 2)
            .write(&mut packet, &data)
            .unwrap();
        etherparse::PacketBuilder::ipv6(us.octets(), them.octets(), 64)
            .icmpv6_echo_reply(1, 2)
            .write(&mut wanted, &data)
            .unwrap();
        answers.clear();
        assert!(s.hear(&tagged(MAC, DUT, tags, 0x86dd, &packet), 0, &mut answers));
        assert_eq!(answers, [tagged(DUT, MAC, tags, 0x86dd, &wanted)]);
    }
}

/// A neighbour message as another encoder makes it.
fn neighbour(from: &str, to: &str, kind: u8, flags: u32, target: &str, option: Option<(u8, Mac)>) -> Vec<u8> {
    let (from, to, target) = (
        from.parse::<Ipv6Addr>().unwrap(),
        to.parse::<Ipv6Addr>().unwrap(),
        target.parse::<Ipv6Addr>().unwrap(),
    );
    let mut body = target.octets().to_vec();
    if let Some((option, mac)) = option {
        body.extend([option, 1]);
        body.extend(mac);
    }
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv6(from.octets(), to.octets(), 255)
        .icmpv6_raw(kind, 0, flags.to_be_bytes())
        .write(&mut packet, &body)
        .unwrap();
    packet
}

#[test]
fn solicitations_are_answered_and_broken_ones_are_not() {
    let mut s = stations(&[]);
    let mut answers = Vec::new();
    let group = "ff02::1:ff00:9";
    let ask = neighbour("2001:db8:1::1", group, 135, 0, "2001:db8:1::9", Some((1, DUT)));
    assert!(s.hear(&tagged([0x33, 0x33, 0xff, 0, 0, 9], DUT, &[], 0x86dd, &ask), 0, &mut answers));
    let reply =
        neighbour("2001:db8:1::9", "2001:db8:1::1", 136, 0x6000_0000, "2001:db8:1::9", Some((2, MAC)));
    assert_eq!(answers, [tagged(DUT, MAC, &[], 0x86dd, &reply)]);

    // A probe for duplicates (RFC 4862) is answered to everybody.
    answers.clear();
    let probe = neighbour("::", group, 135, 0, "2001:db8:1::9", None);
    assert!(s.hear(&tagged([0x33, 0x33, 0xff, 0, 0, 9], DUT, &[], 0x86dd, &probe), 0, &mut answers));
    let reply = neighbour("2001:db8:1::9", "ff02::1", 136, 0x2000_0000, "2001:db8:1::9", Some((2, MAC)));
    assert_eq!(answers, [tagged([0x33, 0x33, 0, 0, 0, 1], MAC, &[], 0x86dd, &reply)]);

    answers.clear();
    for spoil in [7usize, 42, 60] {
        // Hop limit, checksum, target: none of these is from this link and whole.
        let mut bad = ask.clone();
        bad[spoil] ^= 1;
        assert!(
            !s.hear(&tagged([0x33, 0x33, 0xff, 0, 0, 9], DUT, &[], 0x86dd, &bad), 0, &mut answers),
            "{spoil}"
        );
    }
    for cut in 0..ask.len() {
        s.hear(&tagged(MAC, DUT, &[], 0x86dd, &ask[..cut]), 0, &mut answers);
    }
    assert!(answers.is_empty());
}

#[test]
fn the_device_is_asked_once_a_second_until_it_answers_and_then_kept_fresh() {
    let mut s = stations(&[30]);
    let learned = s.learned();
    let mut asked = Vec::new();
    let tags = [(0x8100, 30)];
    let ask4 = tagged(
        [0xff; 6],
        MAC,
        &tags,
        0x0806,
        &arp_bytes(1, (MAC, [198, 18, 1, 2]), ([0; 6], [198, 18, 1, 1])),
    );
    let ask6 = tagged(
        [0x33, 0x33, 0xff, 0, 0, 1],
        MAC,
        &tags,
        0x86dd,
        &neighbour("2001:db8:1::2", "ff02::1:ff00:1", 135, 0, "2001:db8:1::1", Some((1, MAC))),
    );
    for ms in (0..3000).step_by(5) {
        s.due(ms * 1_000_000, &mut asked);
    }
    assert_eq!(asked, [ask4.clone(), ask6.clone(), ask4.clone(), ask6.clone(), ask4, ask6]);
    assert_eq!(learned.mac(0, ip("198.18.1.1")), None);

    let (mut none, now) = (Vec::new(), 3_000_000_000);
    let reply = arp_bytes(2, (DUT, [198, 18, 1, 1]), (MAC, [198, 18, 1, 2]));
    assert!(s.hear(&tagged(MAC, DUT, &tags, 0x0806, &reply), now, &mut none));
    let reply =
        neighbour("2001:db8:1::1", "2001:db8:1::2", 136, 0xe000_0000, "2001:db8:1::1", Some((2, DUT)));
    assert!(s.hear(&tagged(MAC, DUT, &tags, 0x86dd, &reply), now, &mut none));
    assert_eq!([learned.mac(0, ip("198.18.1.1")), learned.mac(0, ip("2001:db8:1::1"))], [Some(DUT); 2]);
    // An answer that nobody asked for is a stranger's.
    let other = arp_bytes(2, (DUT, [198, 18, 1, 3]), (MAC, [198, 18, 1, 2]));
    assert!(!s.hear(&tagged(MAC, DUT, &tags, 0x0806, &other), now, &mut none));

    asked.clear();
    for ms in (3000..12_900).step_by(5) {
        s.due(ms * 1_000_000, &mut asked);
    }
    assert!(asked.is_empty(), "nothing is asked while it is fresh");
    s.due(13_100_000_000, &mut asked);
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|frame| frame.starts_with(&DUT)), "then the device alone is asked");
    assert!(none.is_empty());
}

//! Tests of the readers: text by hand, MRT from hand-encoded records and from files that other programs wrote.

use std::io::Write as _;

use proptest::prelude::*;

use super::*;

fn nets(rib: &Rib) -> Vec<String> {
    rib.routes.iter().map(|(p, n)| format!("{p} {}", rib.next_hops[*n as usize].0)).collect()
}

fn fails(data: impl AsRef<[u8]>) -> Vec<String> {
    read(data.as_ref(), Select::First).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn text_takes_ids_and_addresses_comments_and_any_white_space() {
    let text = "# a table\n\n10.0.0.0/8 1\r\n  2001:db8::/32\t2001:db8:f::1 # here\n0.0.0.0/0 4294967295\n10.1.0.0/16 1";
    let rib = read(text.as_bytes(), Select::First).unwrap();
    assert_eq!(
        nets(&rib),
        ["10.0.0.0/8 1", "2001:db8::/32 2001:db8:f::1", "0.0.0.0/0 4294967295", "10.1.0.0/16 1"]
    );
    assert_eq!(rib.next_hops.len(), 3);
    assert_eq!(rib.next_hops[1].1, Place::Line(4));
}

#[test]
fn text_errors_name_the_line_what_was_found_and_what_was_expected() {
    let cases = [
        (
            "10.0.0.0/8",
            "line 1: found only `10.0.0.0/8`: expected `prefix nexthop`, and there is no next hop",
        ),
        ("\n10.0.0.1/8 1", "line 2: 10.0.0.1/8 has host bits set: expected 10.0.0.0/8"),
        ("2001:db8::1/32 1", "line 1: 2001:db8::1/32 has host bits set: expected 2001:db8::/32"),
        (
            "10.0.0.0 1",
            "line 1: found `10.0.0.0`: expected a prefix such as 198.51.100.0/24 or 2001:db8::/32",
        ),
        (
            "010.0.0.0/8 1",
            "line 1: found `010.0.0.0/8`: expected a prefix such as 198.51.100.0/24 or 2001:db8::/32",
        ),
        ("10.0.0.0/33 1", "line 1: found `10.0.0.0/33`: expected a prefix length from 0 to 32"),
        ("2001:db8::/129 1", "line 1: found `2001:db8::/129`: expected a prefix length from 0 to 128"),
        (
            "10.0.0.0/8 one",
            "line 1: found `one`: expected a next hop, a number from 0 to 4294967295 or an address",
        ),
        ("10.0.0.0/8 1 2", "line 1: found `2` after the next hop: expected the end of the line"),
        (
            "10.0.0.0/8 4294967296",
            "line 1: found `4294967296`: expected a next hop, a number from 0 to 4294967295 or an address",
        ),
        (
            "\u{1}\u{ff} 1",
            "line 1: found `\\x01\\xc3\\xbf`: expected a prefix such as 198.51.100.0/24 or 2001:db8::/32",
        ),
        (
            "# nothing\n",
            "the file holds no route: expected lines of `prefix nexthop`, or MRT TABLE_DUMP_V2 records",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(fails(text), [message], "{text}");
    }
    assert_eq!(fails("x 1\n10.0.0.0/8 1\ny 1\n").len(), 2, "all errors at once");
    assert_eq!(fails("x 1\n".repeat(100)).len(), MAX_ERRORS);
    assert_eq!(
        fails(vec![b'1'; 5000]),
        ["line 1: the line is over 1,023 bytes long: expected `prefix nexthop`"]
    );
}

#[test]
fn the_first_route_to_a_prefix_counts() {
    let rib = read(&b"10.0.0.0/8 1\n11.0.0.0/8 2\n10.0.0.0/8 3\n11.0.0.0/8 1\n"[..], Select::First).unwrap();
    assert_eq!(nets(&rib), ["10.0.0.0/8 1", "11.0.0.0/8 2"]);
    assert_eq!(rib.duplicates, 2);
}

#[test]
fn compressed_files_are_told_by_their_first_bytes() {
    let text = b"10.0.0.0/8 1\n";
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text).unwrap();
    let gz = gz.finish().unwrap();
    let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz.write_all(text).unwrap();
    let bz = bz.finish().unwrap();
    for packed in [&gz, &bz] {
        assert_eq!(nets(&read(&packed[..], Select::First).unwrap()), ["10.0.0.0/8 1"]);
        let cut = fails(&packed[..packed.len() - 4]);
        assert!(cut[0].starts_with("cannot read on after"), "{cut:?}");
    }
    let twice = [gz.clone(), gz].concat();
    assert_eq!(read(&twice[..], Select::First).unwrap().duplicates, 1, "several gzip members in one file");
}

/// Writes MRT records byte by byte from RFC 6396, sharing nothing with the reader.
mod encode {
    pub(super) fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
        let mut r = vec![0x65, 0x92, 0x00, 0x80]; // timestamp
        r.extend(kind.to_be_bytes());
        r.extend(subtype.to_be_bytes());
        r.extend((body.len() as u32).to_be_bytes());
        r.extend(body);
        r
    }

    /// Peer 0: 203.0.113.1, AS 64500 in two octets. Peer 1: 2001:db8::9, AS 4200000000 in four octets.
    pub(super) fn peers() -> Vec<u8> {
        let mut b = vec![198, 51, 100, 1, 0, 4];
        b.extend(b"view");
        b.extend([0, 2]);
        b.extend([0x00, 203, 0, 113, 1, 203, 0, 113, 1, 0xfb, 0xf4]);
        b.extend([0x03, 203, 0, 113, 2]);
        b.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        b.extend([0xfa, 0x56, 0xea, 0x00]);
        record(13, 1, &b)
    }

    /// ORIGIN IGP, then an AS_PATH with extended length, then NEXT_HOP.
    pub(super) fn attributes4(next_hop: [u8; 4]) -> Vec<u8> {
        let mut a = vec![0x40, 1, 1, 0, 0x50, 2, 0, 6, 2, 1, 0, 0, 0xfb, 0xf4, 0x40, 3, 4];
        a.extend(next_hop);
        a
    }

    pub(super) fn entry(peer: u16, path: Option<u32>, attributes: &[u8]) -> Vec<u8> {
        let mut e = peer.to_be_bytes().to_vec();
        e.extend([0x65, 0x92, 0, 0]);
        path.iter().for_each(|p| e.extend(p.to_be_bytes()));
        e.extend((attributes.len() as u16).to_be_bytes());
        e.extend(attributes);
        e
    }

    pub(super) fn rib(subtype: u16, prefix: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
        let mut b = vec![0, 0, 0, 7];
        b.extend(prefix);
        b.extend((entries.len() as u16).to_be_bytes());
        b.extend(entries.concat());
        record(13, subtype, &b)
    }
}

fn sample() -> Vec<u8> {
    use encode::*;
    let global = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x31];
    let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x31];
    let abbreviated = [&[0x80, 14, 33, 32][..], &global, &local].concat();
    let whole = [&[0x80, 14, 21, 0, 2, 1, 16][..], &global, &[0]].concat();
    [
        peers(),
        rib(
            2,
            &[24, 198, 51, 100],
            &[entry(0, None, &attributes4([203, 0, 113, 1])), entry(1, None, &attributes4([203, 0, 113, 2]))],
        ),
        // 20 bits: the last octet's low half is irrelevant and set here.
        rib(2, &[20, 10, 1, 0x2f], &[entry(1, None, &attributes4([203, 0, 113, 2]))]),
        rib(4, &[32, 0x20, 0x01, 0x0d, 0xb8], &[entry(1, None, &abbreviated)]),
        rib(4, &[0], &[entry(0, None, &whole)]),
        rib(8, &[8, 11], &[entry(0, Some(1), &attributes4([203, 0, 113, 5]))]),
        rib(10, &[16, 0x20, 0x02], &[entry(1, Some(9), &abbreviated)]),
        // Multicast: valid, not ours.
        rib(3, &[8, 224], &[]),
        // No entry with a next hop.
        rib(2, &[8, 12], &[entry(0, None, &[0x40, 1, 1, 0])]),
    ]
    .concat()
}

#[test]
fn mrt_records_are_read_as_the_rfc_lays_them_out() {
    let rib = read(&sample()[..], Select::First).unwrap();
    assert_eq!(
        nets(&rib),
        [
            "198.51.100.0/24 203.0.113.1",
            "10.1.32.0/20 203.0.113.2",
            "2001:db8::/32 2001:db8::31",
            "::/0 2001:db8::31",
            "11.0.0.0/8 203.0.113.5",
            "2002::/16 2001:db8::31",
        ]
    );
    assert_eq!((rib.format, rib.skipped), (Format::Mrt, 1));
}

#[test]
fn mrt_entries_can_be_chosen_by_peer() {
    for select in [Select::Peer("2001:db8::9".parse().unwrap()), Select::PeerIndex(1)] {
        let rib = read(&sample()[..], select).unwrap();
        assert_eq!(rib.skipped, 3);
        assert_eq!(nets(&rib)[0], "198.51.100.0/24 203.0.113.2");
    }
    use encode::*;
    let nobody = [peers(), rib(2, &[8, 10], &[entry(7, None, &attributes4([203, 0, 113, 9]))])].concat();
    assert_eq!(nets(&read(&nobody[..], Select::First).unwrap()), ["10.0.0.0/8 203.0.113.9"]);
    assert_eq!(read(&nobody[..], Select::PeerIndex(1)).unwrap().skipped, 1);
    let e = read(&sample()[..], Select::Peer("203.0.113.77".parse().unwrap())).unwrap_err();
    assert!(e[0].to_string().contains("no peer 203.0.113.77: expected one of its 2 peers"), "{e:?}");
    let e = read(&sample()[..], Select::PeerIndex(2)).unwrap_err();
    assert!(e[0].to_string().contains("expected an index below 2"), "{e:?}");
}

#[test]
fn mrt_errors_name_the_offset_what_was_found_and_what_was_expected() {
    use encode::*;
    let first = peers().len();
    let cases: Vec<(Vec<u8>, String)> = vec![
        (
            record(16, 4, &[0; 20]),
            "byte 0: found an MRT record of type 16: expected 13 (TABLE_DUMP_V2)".into(),
        ),
        (rib(2, &[8, 10], &[]), "byte 0: a RIB record before the peer index table".into()),
        (
            [peers(), rib(2, &[33, 1, 2, 3, 4, 5], &[])].concat(),
            format!("byte {}: prefix length 33: expected at most 32", first + 16),
        ),
        (
            [peers(), record(13, 2, &[0, 0, 0, 1, 24, 10])].concat(),
            format!("byte {}: the prefix is cut off: expected 3 bytes, found 1", first + 17),
        ),
        (
            [peers(), rib(2, &[8, 10], &[entry(0, None, &[0x40, 3, 200, 1])])].concat(),
            "an attribute is cut off: expected 200 bytes, found 1".into(),
        ),
        (
            [peers(), rib(4, &[8, 0x20], &[entry(0, None, &[0x80, 14, 2, 5, 1])])].concat(),
            "a next hop of 5 bytes in MP_REACH_NLRI: expected 4, 16 or 32".into(),
        ),
        // A record that claims far more than there is.
        (
            [0u8, 0, 0, 0, 0, 13, 0, 2, 0x01, 0xff, 0xff, 0xff, 1, 2].to_vec(),
            "byte 0: the file ends inside a record: expected 33554431 bytes, found 2".into(),
        ),
        (
            [0u8, 0, 0, 0, 0, 13, 0, 2, 0xff, 0xff, 0xff, 0xff].to_vec(),
            "byte 0: the record claims 4294967295 bytes".into(),
        ),
        (peers()[..7].to_vec(), "byte 6: the record's subtype is cut off: expected 2 bytes, found 1".into()),
    ];
    for (data, message) in cases {
        let found = fails(&data);
        assert!(found[0].contains(&message), "{found:?} has not {message}");
    }
}

/// Files that BIRD 2.0.12 and GoBGP 3.10 wrote (see `tests/data/README.md`), against the routes they were given.
#[test]
fn mrt_files_of_other_programs() {
    let expect = [
        "10.1.0.0/16 198.18.0.2",
        "10.2.4.0/22 198.18.0.3",
        "10.3.3.128/25 198.18.0.2",
        "2001:db8:1::/48 2001:db8:f::2",
        "2001:db8:2::/47 2001:db8:f::3",
    ];
    let files: [(&str, &[u8]); 2] = [
        ("bird", include_bytes!("../../tests/data/bird.mrt")),
        ("gobgp", include_bytes!("../../tests/data/gobgp.mrt")),
    ];
    for (name, data) in files {
        let rib = read(data, Select::First).unwrap();
        let mut found = nets(&rib);
        found.sort();
        assert_eq!(found, expect, "{name}");
        assert_eq!(rib.skipped, 0, "{name}");
    }
}

/// The real table, when it is there: every line is a route, in order.
#[test]
fn the_real_tables() {
    let dir = std::env::var("LINERATE_ROUTES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into());
    for (file, routes) in [("bgp-ipv4.txt.gz", 901_899), ("bgp-ipv6.txt.gz", 160_147)] {
        let path = std::path::Path::new(&dir).join(file);
        let Ok(f) = std::fs::File::open(&path) else {
            eprintln!("SKIPPED: {} is not there; set LINERATE_ROUTES", path.display());
            continue;
        };
        let rib = read(f, Select::First).unwrap();
        assert_eq!((rib.routes.len(), rib.next_hops.len(), rib.duplicates), (routes, 64, 0));
    }
}

proptest! {
    /// Whatever is written is read back, whatever the order.
    #[test]
    fn text_round_trip(routes in prop::collection::hash_map((any::<u32>(), 0u8..=32), any::<u32>(), 1..50)) {
        let mut lines = std::collections::BTreeMap::new();
        for ((address, length), id) in routes {
            let net = ipnet::Ipv4Net::new(address.into(), length).unwrap().trunc();
            lines.insert(net, id);
        }
        let text: String = lines.iter().rev().map(|(p, id)| format!("{p} {id}\n")).collect();
        let rib = read(text.as_bytes(), Select::First).unwrap();
        prop_assert_eq!(nets(&rib), lines.iter().rev().map(|(p, id)| format!("{p} {id}")).collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_are_survived(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&data);
    }

    /// Sample files with bytes changed or cut off: an answer or an error, never a panic.
    #[test]
    fn damaged_mrt_is_survived(at in 0usize..700, byte in any::<u8>(), cut in 0usize..700) {
        let mut data = sample();
        let at = at % data.len();
        data[at] = byte;
        fuzz(&data);
        data.truncate(cut);
        fuzz(&data);
    }
}

/// The fuzzer's first inputs, to which those that once broke something are added.
#[test]
fn the_inputs_of_the_fuzzer_do_no_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/rib");
    let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(inputs.len() >= 6);
    for input in inputs {
        fuzz(&std::fs::read(input).unwrap());
    }
}

//! What FRR 8.4.4 sent, byte for byte (`data/capture.py` recorded it), decoded and checked against another decoder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may panic"
)]

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use linerate_linux::fpm::FrameDecoder;
use linerate_linux::route::{Change, Event, NextHop, NexthopAction, Protocol, Route, RouteKind};
use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteVia};

const STREAMS: [&str; 5] = ["static", "static-again", "static-no-nhg", "bgp", "bgp-no-nhg"];

fn stream(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.fpm"))).unwrap()
}

fn events(name: &str) -> Vec<Event> {
    let bytes = stream(name);
    let mut decoder = FrameDecoder::new();
    let mut events = Vec::new();
    // Reads that end anywhere.
    for piece in bytes.chunks(37) {
        decoder.space()[..piece.len()].copy_from_slice(piece);
        decoder.decode(piece.len(), |e| events.push(e)).unwrap();
    }
    assert_eq!(decoder.faults().total(), 0, "{:?}", decoder.faults());
    events
}

fn hop(h: &NextHop) -> String {
    let mut text = h.gateway.map_or("connected".to_owned(), |g| format!("via {g}"));
    write!(text, " if {}", h.interface.unwrap_or(0)).unwrap();
    if h.onlink {
        text += " onlink";
    }
    text
}

fn line(event: &Event) -> String {
    match event {
        Event::Route(change, r) => {
            let hops: Vec<_> = r.next_hops.iter().map(hop).collect();
            let nexthop = r.nexthop.map(|id| format!(" nexthop {id}")).unwrap_or_default();
            format!("{change:?} {} {} {:?}{nexthop} {}", r.protocol, r.prefix, r.kind, hops.join(", "))
        }
        Event::Nexthop(change, n) => {
            let action = match &n.action {
                None => String::new(),
                Some(NexthopAction::Forward(h)) => hop(h),
                Some(NexthopAction::Group(g)) => format!("group {:?}", g.members),
                Some(other) => format!("{other:?}"),
            };
            format!("{change:?} nexthop {} {action}", n.id)
        }
        other => format!("{other:?}"),
    }
    .trim_end()
    .to_owned()
}

#[test]
fn streams_read_as_frr_shows_its_routes() {
    for name in STREAMS {
        let text: Vec<_> = events(name).iter().map(line).collect();
        insta::assert_snapshot!(name, text.join("\n"));
    }
}

/// The routes at the end of a stream: prefix to next hops, objects resolved.
fn routes(name: &str) -> Vec<(String, Vec<NextHop>)> {
    use std::collections::BTreeMap;
    let mut objects = BTreeMap::new();
    let mut routes: BTreeMap<String, Route> = BTreeMap::new();
    for event in events(name) {
        match event {
            Event::Route(_, r) if r.protocol == Protocol::KERNEL => {}
            Event::Route(Change::Delete, r) => drop(routes.remove(&r.prefix.to_string())),
            Event::Route(_, r) => drop(routes.insert(r.prefix.to_string(), r)),
            Event::Nexthop(_, n) => drop(objects.insert(n.id, n.action)),
            other => panic!("{other:?}"),
        }
    }
    let resolve = |id: u32| match &objects[&id] {
        Some(NexthopAction::Forward(h)) => vec![h.clone()],
        Some(NexthopAction::Group(g)) => g
            .members
            .iter()
            .map(|(id, weight)| match &objects[id] {
                Some(NexthopAction::Forward(h)) => NextHop { weight: *weight, ..h.clone() },
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    };
    routes.into_iter().map(|(p, r)| (p, r.nexthop.map_or(r.next_hops, resolve))).collect()
}

#[test]
fn with_and_without_next_hop_groups_routes_are_the_same() {
    assert_eq!(routes("static"), routes("static-no-nhg"));
}

#[test]
fn a_new_session_tells_what_the_last_one_came_to() {
    assert_eq!(routes("static-again"), routes("static"));
}

#[test]
fn ipv4_by_ipv6_link_local_keeps_the_whole_address() {
    let by: Vec<_> =
        routes("bgp").into_iter().filter(|(p, _)| p.starts_with("10.")).flat_map(|(_, h)| h).collect();
    assert_eq!(by.len(), 3);
    assert!(
        by.iter().all(|h| matches!(h.gateway, Some(IpAddr::V6(a)) if a.is_unicast_link_local())),
        "{by:?}"
    );
    // What FRR writes where it sends no objects.
    let by: Vec<_> =
        routes("bgp-no-nhg").into_iter().filter(|(p, _)| p.starts_with("10.")).flat_map(|(_, h)| h).collect();
    assert!(by.iter().all(|h| h.gateway == Some(IpAddr::from([169, 254, 0, 1])) && h.onlink), "{by:?}");
}

#[test]
fn a_changed_route_is_never_gone() {
    for name in STREAMS {
        let events = events(name);
        for pair in events.windows(2) {
            if let [Event::Route(Change::Delete, old), Event::Route(_, new)] = pair {
                assert_ne!(old.prefix, new.prefix, "{name}");
            }
        }
        assert!(events.iter().any(|e| matches!(e, Event::Route(Change::Replace, _))), "{name}");
    }
}

/// The route messages of a stream as `netlink-packet-route` decodes them.
fn other_decoder(bytes: &[u8]) -> Vec<(bool, RouteMessage)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let [_, _, high, low, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let mut frame = &rest[4..length];
        while !frame.is_empty() {
            let length = NetlinkBuffer::new_checked(frame).unwrap().length() as usize;
            // The crate knows no next-hop objects.
            if !matches!(frame[4], 104..=106) {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&frame[..length]).unwrap();
                match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(m)) => found.push((true, m)),
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(m)) => found.push((false, m)),
                    other => panic!("{other:?}"),
                }
            }
            frame = &frame[length.next_multiple_of(4).min(frame.len())..];
        }
        rest = &rest[length..];
    }
    found
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|a| match a {
        RouteAttribute::Gateway(RouteAddress::Inet(a)) => Some(IpAddr::V4(*a)),
        RouteAttribute::Gateway(RouteAddress::Inet6(a)) => Some(IpAddr::V6(*a)),
        RouteAttribute::Via(RouteVia::Inet6(a)) => Some(IpAddr::V6(*a)),
        _ => None,
    })
}

#[test]
fn another_decoder_reads_the_same_routes() {
    for name in STREAMS {
        let mut ours = events(name).into_iter().filter_map(|e| match e {
            Event::Route(change, route) => Some((change, route)),
            _ => None,
        });
        let mut theirs = other_decoder(&stream(name)).into_iter().peekable();
        let mut seen = 0;
        while let Some((new, message)) = theirs.next() {
            let destination = |m: &RouteMessage| {
                m.attributes.iter().find_map(|a| match a {
                    RouteAttribute::Destination(d) => Some(d.clone()),
                    _ => None,
                })
            };
            if !new && theirs.peek().is_some_and(|(n, m)| *n && destination(m) == destination(&message)) {
                continue; // the delete before a replacement
            }
            let (change, route) = ours.next().unwrap();
            assert_eq!(change == Change::Delete, !new);
            assert_eq!(route.prefix.prefix_len(), message.header.destination_prefix_length);
            assert_eq!(destination(&message), Some(RouteAddress::from(route.prefix.addr())));
            assert_eq!(route.protocol.0, u8::from(message.header.protocol));
            let has = |a: &RouteAttribute| message.attributes.contains(a);
            assert!(has(&RouteAttribute::Priority(route.metric)));
            assert_eq!(route.table, u32::from(message.header.table));
            assert!(route.nexthop.is_none_or(|id| has(&RouteAttribute::NhId(id))));
            let multipath = message.attributes.iter().find_map(|a| match a {
                RouteAttribute::MultiPath(hops) => Some(hops),
                _ => None,
            });
            match (multipath, &route.next_hops[..]) {
                (Some(theirs), ours) => {
                    assert_eq!(theirs.len(), ours.len());
                    for (t, o) in theirs.iter().zip(ours) {
                        assert_eq!(Some(t.interface_index), o.interface);
                        assert_eq!(u32::from(t.hops) + 1, o.weight);
                        assert_eq!(gateway(&t.attributes), o.gateway);
                    }
                }
                (None, [one]) => {
                    assert_eq!(gateway(&message.attributes), one.gateway);
                    assert!(has(&RouteAttribute::Oif(one.interface.unwrap())));
                }
                (None, hops) => assert!(hops.is_empty() && gateway(&message.attributes).is_none()),
            }
            let drops = matches!(route.kind, RouteKind::Blackhole | RouteKind::Unreachable);
            assert_eq!(drops, matches!(u8::from(message.header.kind), 6 | 7));
            seen += 1;
        }
        assert!(ours.next().is_none() && seen > 8, "{name}: {seen}");
    }
}

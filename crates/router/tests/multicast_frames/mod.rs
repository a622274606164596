//! What the tests of multicast share: streams, frames, and the copies that must come out.

#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests; each file uses a part")]

use std::net::IpAddr;

use linerate_pipeline::{IfIndex, PortId};
use linerate_router::testbed::{Sent, Testbed};
use linerate_router::{Mroute, MrouteKey, MrouteOrigin, MrouteOutput};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::Ip6Header;
use zerocopy::IntoBytes;

/// Interfaces of the testbed: port, tags, MTU.
pub(crate) const OUT: [(PortId, &[u8], usize); 7] = [
    (0, &[], 1500),
    (1, &[], 1500),
    (1, &[0x81, 0, 0, 7], 1500),
    (2, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9], 1500),
    (2, &[], 1280),
    (3, &[], 0),
    (4, &[], 9216),
];

pub(crate) fn key(source: &str, group: &str) -> MrouteKey {
    let source = (source != "*").then(|| source.parse().unwrap());
    MrouteKey { vrf: 0, group: group.parse().unwrap(), source }
}

pub(crate) fn to(outputs: &[IfIndex]) -> Mroute {
    let output = |i: &IfIndex| MrouteOutput { interface: *i, threshold: 0 };
    Mroute { input: 0, outputs: outputs.iter().map(output).collect(), to_host: false }
}

pub(crate) fn bed(routes: &[(MrouteKey, Mroute)]) -> Testbed {
    let mut bed = Testbed::new().unwrap();
    for (key, route) in routes {
        bed.multicast.set(*key, MrouteOrigin::Static, Some(route.clone()));
    }
    bed
}

/// The link-layer address of a group, by the books (RFC 1112 6.4, RFC 2464 7).
pub(crate) fn group_mac(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(g) => {
            let [_, b, c, d] = g.octets();
            [1, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(g) => {
            let o = g.octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
    }
}

/// A layer-3 packet to a group. `first` is the protocol or next header.
pub(crate) fn l3(source: &str, group: &str, ttl: u8, first: u8, payload: &[u8]) -> Vec<u8> {
    match (source.parse().unwrap(), group.parse().unwrap()) {
        (IpAddr::V4(s), IpAddr::V4(g)) => {
            let mut h = Ip4Header::new(s.to_bits(), g.to_bits(), first, ttl, payload.len());
            h.set_checksum();
            [h.as_bytes(), payload].concat()
        }
        (IpAddr::V6(s), IpAddr::V6(g)) => {
            let h = Ip6Header::new(s.octets(), g.octets(), first, ttl, payload.len());
            [h.as_bytes(), payload].concat()
        }
        _ => unreachable!("two families"),
    }
}

pub(crate) fn udp(source: &str, group: &str, ttl: u8, len: usize) -> Vec<u8> {
    l3(source, group, ttl, ip4::UDP, &(0..len).map(|i| i as u8).collect::<Vec<_>>())
}

pub(crate) fn group_of(l3: &[u8]) -> IpAddr {
    match l3[0] >> 4 {
        4 => IpAddr::from(<[u8; 4]>::try_from(&l3[16..20]).unwrap()),
        _ => IpAddr::from(<[u8; 16]>::try_from(&l3[24..40]).unwrap()),
    }
}

pub(crate) fn ethertype(l3: &[u8]) -> [u8; 2] {
    if l3[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] }
}

/// The frame that a packet came in.
pub(crate) fn frame(tags: &[u8], l3: &[u8]) -> Vec<u8> {
    [&group_mac(group_of(l3))[..], &[2, 0, 0, 0, 9, 0], tags, &ethertype(l3), l3].concat()
}

/// The frame that a packet leaves in by an interface, with one hop less.
pub(crate) fn copy(l3: &[u8], out: IfIndex, priority: u8) -> Sent {
    let (port, tags, _) = OUT[usize::from(out)];
    let mut tags = tags.to_vec();
    if let Some(tag) = tags.get_mut(2) {
        *tag |= priority;
    }
    let mut l3 = l3.to_vec();
    if l3[0] >> 4 == 4 {
        l3[8] -= 1;
        l3[10..12].fill(0);
        let header = &l3[..usize::from(l3[0] & 15) * 4];
        let sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        l3[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        l3[7] -= 1;
    }
    let frame =
        [&group_mac(group_of(&l3))[..], &[2, 0, 0, 0, 0, port as u8], &tags, &ethertype(&l3), &l3].concat();
    Sent { port, frame }
}

pub(crate) fn sorted(mut sent: Vec<Sent>) -> Vec<Sent> {
    sent.sort_by(|a, b| (a.port, &a.frame).cmp(&(b.port, &b.frame)));
    sent
}

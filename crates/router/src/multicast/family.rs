//! What differs between IPv4 and IPv6 when multicast packets are forwarded.

use std::fmt;

use linerate_pipeline::Packet;
use linerate_tables::snapshot_map::{MapKey, MapReader};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, Mac, checksum, eth, icmpv6};

use super::node::MulticastExit;
use super::table::{Entry, Multicast, Stream4, Stream6, stream4, stream6};
use crate::acl::{ListOf, PacketKey, Source};
use crate::nodes::{ip4_input, ip6_input};

/// IGMP (RFC 3376).
const IGMP: u8 = 2;
/// PIM (RFC 7761).
const PIM: u8 = 103;
/// The IPv4 router alert option (RFC 2113).
const ROUTER_ALERT: u8 = 148;
/// The IPv6 router alert option (RFC 2711).
const ROUTER_ALERT6: u8 = 5;
/// How far hop-by-hop options are looked at.
const LOOK: usize = 256;

/// An address family.
pub(crate) trait Family: Copy + Send + 'static {
    /// VRF, source and group.
    type Key: MapKey + Send;
    /// What access lists of the family ask about.
    type Address: ListOf + PacketKey + Into<Source> + Send;
    /// Its ethertype.
    const ETHERTYPE: u16;

    /// What a packet is part of, in the VRF that it came in by, or by which exit it leaves because it is not one to forward. Its header is valid.
    fn judge<P: Packet>(packet: &P) -> Result<Stream<Self::Key>, MulticastExit>;
    /// The key of the route for all sources of a group.
    fn any_source(key: Self::Key) -> Self::Key;
    /// The link-layer address of a group (RFC 1112 6.4, RFC 2464 7).
    fn mac(key: Self::Key) -> Mac;
    /// Takes one off the TTL or hop limit of the packet whose header is at `l3`.
    fn age(head: &mut [u8], l3: usize);
    /// Whether routers may cut the packet into fragments.
    fn may_cut(head: &[u8], l3: usize) -> bool;
    /// Says in a few words what a packet is.
    fn write<P: Packet>(packet: &P, f: &mut dyn fmt::Write) -> fmt::Result;
    /// The family's routes.
    fn routes(tables: &Multicast) -> &MapReader<Self::Key, Entry>;
}

/// What a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream<K> {
    /// VRF, source and group.
    pub(crate) key: K,
    /// TTL or hop limit that it came in with.
    pub(crate) ttl: u8,
}

/// IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip4;

/// IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip6;

impl Family for Ip4 {
    type Key = Stream4;
    type Address = u32;
    const ETHERTYPE: u16 = eth::ETHERTYPE_IP4;

    #[inline(always)]
    fn judge<P: Packet>(packet: &P) -> Result<Stream<Stream4>, MulticastExit> {
        let l3 = usize::from(packet.meta().l3);
        let head = packet.head();
        let h = Ip4Header::view_at(head, l3).ok_or(MulticastExit::Control)?;
        let (source, group) = (h.src.get(), h.dst.get());
        let options = head.get(l3 + Ip4Header::LEN..l3 + h.header_len()).unwrap_or_default();
        // IGMP goes to the group that it is about, so the protocol decides.
        let is_control = group >> 8 == 0xe0_0000
            || h.protocol == IGMP
            || h.protocol == PIM
            || (!options.is_empty() && has_option(options, ROUTER_ALERT));
        if is_control {
            return Err(MulticastExit::Control);
        }
        if ip4::is_martian_source(source) {
            return Err(MulticastExit::BadSource);
        }
        Ok(Stream { key: stream4(packet.meta().vrf, source, group), ttl: h.ttl })
    }

    fn any_source([vrf, stream]: Stream4) -> Stream4 {
        [vrf, stream & 0xffff_ffff]
    }

    fn mac([_, stream]: Stream4) -> Mac {
        eth::ip4_multicast(stream as u32)
    }

    #[inline(always)]
    fn age(head: &mut [u8], l3: usize) {
        if let Some(h) = Ip4Header::view_at_mut(head, l3) {
            h.ttl = h.ttl.saturating_sub(1);
            h.checksum.set(checksum::decrement_ttl(h.checksum.get()));
        }
    }

    fn may_cut(head: &[u8], l3: usize) -> bool {
        Ip4Header::view_at(head, l3).is_some_and(|h| !h.dont_fragment())
    }

    fn write<P: Packet>(packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip4_input::write_ip4(packet, f)
    }

    fn routes(tables: &Multicast) -> &MapReader<Stream4, Entry> {
        &tables.ip4
    }
}

impl Family for Ip6 {
    type Key = Stream6;
    type Address = u128;
    const ETHERTYPE: u16 = eth::ETHERTYPE_IP6;

    #[inline(always)]
    fn judge<P: Packet>(packet: &P) -> Result<Stream<Stream6>, MulticastExit> {
        let l3 = usize::from(packet.meta().l3);
        let h = Ip6Header::view_at(packet.head(), l3).ok_or(MulticastExit::Control)?;
        if ip6::multicast_scope(&h.dst) <= 2 || h.next_header == PIM {
            return Err(MulticastExit::Control);
        }
        if matches!(h.next_header, ip6::HOP_BY_HOP | ip6::ICMPV6) && is_control6(packet, l3, h.next_header) {
            return Err(MulticastExit::Control);
        }
        if ip6::is_link_local(&h.src) {
            return Err(MulticastExit::LinkLocalSource);
        }
        if ip6::is_unspecified(&h.src) {
            return Err(MulticastExit::BadSource);
        }
        let (source, group) = (u128::from_be_bytes(h.src), u128::from_be_bytes(h.dst));
        let key = stream6(packet.meta().vrf, source, group);
        Ok(Stream { key, ttl: h.hop_limit })
    }

    fn any_source([vrf, _, _, high, low]: Stream6) -> Stream6 {
        [vrf, 0, 0, high, low]
    }

    fn mac([_, _, _, high, low]: Stream6) -> Mac {
        let group = u128::from(high) << 64 | u128::from(low);
        eth::ip6_multicast(group.to_be_bytes())
    }

    #[inline(always)]
    fn age(head: &mut [u8], l3: usize) {
        if let Some(h) = Ip6Header::view_at_mut(head, l3) {
            h.hop_limit = h.hop_limit.saturating_sub(1);
        }
    }

    fn may_cut(_: &[u8], _: usize) -> bool {
        false
    }

    fn write<P: Packet>(packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip6_input::write_ip6(packet, f)
    }

    fn routes(tables: &Multicast) -> &MapReader<Stream6, Entry> {
        &tables.ip6
    }
}

/// Whether an IPv4 header has an option.
#[inline(never)]
fn has_option(mut options: &[u8], wanted: u8) -> bool {
    while let Some((&kind, behind)) = options.split_first() {
        let len = match kind {
            0 => return false,
            1 => 1,
            _ => usize::from(behind.first().copied().unwrap_or(0)).max(2),
        };
        if kind == wanted {
            return true;
        }
        options = options.get(len..).unwrap_or_default();
    }
    false
}

/// Whether a packet is multicast listener discovery, or says that every router should look at it. MLD goes to the group
/// that it is about, with a hop limit of one and a router alert (RFC 3810 5).
#[inline(never)]
fn is_control6<P: Packet>(packet: &P, l3: usize, first: u8) -> bool {
    let mut bytes = [0; LOOK];
    let n = packet.copy_out(l3 + Ip6Header::LEN, &mut bytes);
    let bytes = bytes.get(..n).unwrap_or_default();
    if first == ip6::HOP_BY_HOP && has_option6(bytes) {
        return true;
    }
    match ip6::walk(first, bytes) {
        Ok(upper) if upper.fragment.is_none_or(|(offset, _)| offset == 0) => match upper.protocol {
            ip6::ICMPV6 => bytes.get(upper.offset).is_some_and(|kind| icmpv6::is_listener_discovery(*kind)),
            protocol => protocol == PIM,
        },
        _ => false,
    }
}

/// Whether a hop-by-hop header has a router alert.
fn has_option6(header: &[u8]) -> bool {
    let len = header.get(1).map_or(0, |n| (usize::from(*n) + 1) * 8).min(header.len());
    let mut options = header.get(2..len).unwrap_or_default();
    while let Some((&kind, behind)) = options.split_first() {
        if kind == ROUTER_ALERT6 {
            return true;
        }
        // Pad1 has no length.
        let len = if kind == 0 { 1 } else { 2 + usize::from(behind.first().copied().unwrap_or(0)) };
        options = options.get(len..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn router_alerts_are_found_and_nothing_runs_past_the_end() {
        assert!(has_option(&[148, 4, 0, 0], ROUTER_ALERT) && has_option(&[1, 7, 3, 4, 148], ROUTER_ALERT));
        for options in [&[][..], &[0, 148, 4, 0], &[7, 4, 148, 4], &[7, 0, 7, 200], &[7]] {
            assert!(!has_option(options, ROUTER_ALERT), "{options:?}");
        }
        assert!(has_option6(&[58, 0, 5, 2, 0, 0, 1, 0]) && has_option6(&[58, 0, 0, 1, 0, 5, 2, 0]));
        for header in [
            &[][..],
            &[58],
            &[58, 0],
            &[58, 0, 1, 4, 5, 2, 0, 0, 5, 2],
            &[58, 0, 0, 0, 0, 0, 0, 9],
            &[58, 9, 1, 255, 5],
        ] {
            assert!(!has_option6(header), "{header:?}");
        }
    }

    #[test]
    fn groups_have_their_link_layer_addresses() {
        assert_eq!(
            Ip4::mac(stream4(3, 1, 0xe881_0203)),
            [1, 0, 0x5e, 1, 2, 3],
            "the 24th bit is not among them"
        );
        assert_eq!(
            Ip6::mac(stream6(3, 1, 0xff3e << 112 | 0x8899_aabb)),
            [0x33, 0x33, 0x88, 0x99, 0xaa, 0xbb]
        );
        assert_eq!(Ip4::any_source(stream4(3, 9, 7)), stream4(3, 0, 7));
        assert_eq!(Ip6::any_source(stream6(3, 9 << 70, 7 << 65 | 1)), stream6(3, 0, 7 << 65 | 1));
    }
}

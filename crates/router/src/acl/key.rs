//! From packets to the keys that lists are asked with.

use linerate_pipeline::meta::flags;
use linerate_pipeline::{Meta, Packet};
use linerate_tables::classifier::Key;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, vlan};

use super::rule::PORT_PROTOCOLS;

/// Bytes of the transport header that rules can ask about: TCP's up to its flags.
pub(crate) const TRANSPORT: usize = 14;

/// Bytes behind the fixed IPv6 header that are looked at where extension headers follow: as far as those are followed, and a
/// transport header.
pub(crate) const CHAIN: usize = 256 + TRANSPORT;

/// The packet hides what rules ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undetermined;

/// Part of a datagram that a packet holds.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    First,
    /// A later one, at this offset in units of 8 bytes.
    Later(u16),
}

/// The key of an IPv4 packet. `l4`: what follows the header; of its first [`TRANSPORT`] bytes all that the packet has.
#[inline(always)]
pub(crate) fn key4(h: &Ip4Header, l4: &[u8]) -> Result<Key<u32>, Undetermined> {
    let key = Key::new(h.src.get(), h.dst.get(), h.protocol).with_dscp(h.tos >> 2);
    let fragment = h.fragment.get() & (ip4::MF | ip4::OFFSET);
    let part = match fragment {
        0 => Part::Whole,
        ip4::MF => Part::First,
        other => Part::Later(other & ip4::OFFSET),
    };
    transport(key, h.protocol, ip4::ICMP, part, l4)
}

/// The key of an IPv6 packet. `rest`: what follows the fixed header, as far as extension headers are followed.
#[inline(always)]
pub(crate) fn key6(h: &Ip6Header, rest: &[u8]) -> Result<Key<u128>, Undetermined> {
    let (src, dst) = (u128::from_be_bytes(h.src), u128::from_be_bytes(h.dst));
    let dscp = h.traffic_class() >> 2;
    let (upper, part, l4) = match h.next_header {
        ip4::TCP | ip4::UDP | ip6::ICMPV6 => (h.next_header, Part::Whole, rest),
        first => {
            let upper = ip6::walk(first, rest).map_err(|_| Undetermined)?;
            let part = match upper.fragment {
                None | Some((0, false)) => Part::Whole,
                Some((0, true)) => Part::First,
                Some((offset, _)) => Part::Later(offset),
            };
            (upper.protocol, part, rest.get(upper.offset..).unwrap_or_default())
        }
    };
    transport(Key::new(src, dst, upper).with_dscp(dscp), upper, ip6::ICMPV6, part, l4)
}

/// Adds what the transport header tells.
#[inline(always)]
fn transport<A: linerate_tables::classifier::Shape>(
    key: Key<A>,
    protocol: u8,
    icmp: u8,
    part: Part,
    l4: &[u8],
) -> Result<Key<A>, Undetermined> {
    let key = match part {
        Part::Whole => key,
        Part::First => key.with_fragment(true),
        // A TCP header may go on in the second fragment, flags and all (RFC 3128).
        Part::Later(1) if protocol == ip4::TCP => return Err(Undetermined),
        Part::Later(_) => return Ok(key.with_fragment(false)),
    };
    if protocol == icmp {
        return Ok(match l4.first_chunk::<2>() {
            Some(&[kind, code]) => key.with_icmp(kind, code),
            None => key,
        });
    }
    if protocol == ip4::TCP {
        return match l4.first_chunk::<TRANSPORT>() {
            Some(&[a, b, c, d, .., flags]) => Ok(key
                .with_ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
                .with_tcp_flags(flags)),
            // What is too short to be TCP has no ports; where the rest may follow, it hides them.
            None if matches!(part, Part::First) => Err(Undetermined),
            None => Ok(key),
        };
    }
    Ok(match l4.first_chunk::<4>() {
        Some(&[a, b, c, d]) if PORT_PROTOCOLS.contains(&protocol) => {
            key.with_ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => key,
    })
}

/// The key of a packet on the regular way: its header has been validated, its metadata is filled in.
pub(crate) trait PacketKey: Sized + linerate_tables::classifier::Shape {
    fn key<P: Packet>(packet: &P) -> Result<Key<Self>, Undetermined>;
}

impl PacketKey for u32 {
    fn key<P: Packet>(packet: &P) -> Result<Key<u32>, Undetermined> {
        let meta = packet.meta();
        let h = Ip4Header::view_at(packet.head(), usize::from(meta.l3)).ok_or(Undetermined)?;
        let mut l4 = [0; TRANSPORT];
        let n = packet.copy_out(usize::from(meta.l3) + h.header_len(), &mut l4);
        Ok(tagged(key4(h, l4.get(..n).unwrap_or_default())?, meta))
    }
}

impl PacketKey for u128 {
    fn key<P: Packet>(packet: &P) -> Result<Key<u128>, Undetermined> {
        let meta = packet.meta();
        let l3 = usize::from(meta.l3);
        let h = Ip6Header::view_at(packet.head(), l3).ok_or(Undetermined)?;
        let mut rest = [0; CHAIN];
        let want = if is_plain(h.next_header) { TRANSPORT } else { rest.len() };
        let n = packet.copy_out(l3 + Ip6Header::LEN, rest.get_mut(..want).unwrap_or_default());
        Ok(tagged(key6(h, rest.get(..n).unwrap_or_default())?, meta))
    }
}

/// Whether the transport header of such an IPv6 packet follows at once, so that no extension headers need be followed.
#[inline(always)]
pub(crate) fn is_plain(next_header: u8) -> bool {
    matches!(next_header, ip4::TCP | ip4::UDP | ip6::ICMPV6)
}

/// With the outer tag that the packet came in with.
fn tagged<A: linerate_tables::classifier::Shape>(key: Key<A>, meta: &Meta) -> Key<A> {
    if meta.flags & flags::VLAN != 0 { key.with_vlan(vlan::vid(meta.vlan_tci)) } else { key }
}

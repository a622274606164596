//! ICMPv6 errors (RFC 4443), built in place from the packet they are about.

use std::fmt;

use linerate_pipeline::interface::Interfaces;
use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, Meta, Node, Packet};
use linerate_wire::checksum::Sum;
use linerate_wire::icmp::IcmpHeader;
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, U16, icmpv6};
use zerocopy::IntoBytes;

use super::{ErrorLimit, l2, payload};

linerate_pipeline::exits! {
    /// Where packets go from `icmp6_error`.
    pub enum Icmp6ErrorExit {
        /// The packet has become the error message: route it.
        Send,
        /// The packet has become an error message for a neighbour's link-local address: it goes back as it came.
        SendOnLink,
        /// No room in the buffer, no address to send it from, or the interface it came in by is gone.
        Unsendable,
        // No error may be sent about this packet, or the rate limit is used up; the exit says what the error would have
        // told.
        /// The hop limit ran out.
        HopLimitExceeded,
        /// No route.
        NoRoute,
        /// The next hop is unreachable.
        Unreachable,
        /// The route prohibits it.
        Prohibited,
        /// An access list rejects it.
        Filtered,
        /// Larger than the MTU.
        TooBig,
        /// Nothing here listens.
        NotLocal,
    }
}

/// The longest error message, IPv6 header included (RFC 4443 2.4 c).
const MAX_LEN: usize = ip6::MIN_MTU as usize;
/// Hop limit of what this router sends.
const HOP_LIMIT: u8 = 64;
/// IP and ICMP header in front of the quoted packet.
const HEADERS: usize = Ip6Header::LEN + IcmpHeader::LEN;
/// How far extension headers are followed to see whether a packet is an error itself.
pub(super) const WALK: usize = 256;

/// Turns packets into the ICMPv6 errors that `Meta::icmp` (and `Meta::mtu`: MTU, or pointer of a parameter problem)
/// ask for.
#[derive(Clone, Debug)]
pub struct Icmp6Error {
    interfaces: Interfaces,
    limit: ErrorLimit,
}

impl Icmp6Error {
    /// A node that takes its source addresses from this table and obeys this limit.
    pub fn new(interfaces: Interfaces, limit: ErrorLimit) -> Self {
        Icmp6Error { interfaces, limit }
    }
}

impl<P: Packet> Node<P> for Icmp6Error {
    type Exit = Icmp6ErrorExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Icmp6ErrorExit>) {
        for (i, packet) in batch.iter_mut().enumerate() {
            out.set(i, self.build(packet, cx.now));
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "type {} code {}", packet.meta().icmp >> 8, packet.meta().icmp & 0xff)
    }
}

impl Icmp6Error {
    fn build<P: Packet>(&mut self, packet: &mut P, now: u64) -> Icmp6ErrorExit {
        let meta = *packet.meta();
        let l3 = usize::from(meta.l3);
        let Some(&offender) = Ip6Header::view_at(packet.head(), l3) else {
            return silent(packet.meta());
        };
        let table = self.interfaces.get();
        let Some(interface) = table.get(meta.rx_if) else { return Icmp6ErrorExit::Unsendable };
        let [kind, code] = meta.icmp.to_be_bytes();
        // RFC 4443 2.4 e: path MTU discovery works for multicast too.
        let to_group = meta.flags & flags::L2_MULTICAST != 0 || ip6::is_multicast(&offender.dst);
        if meta.flags & flags::GENERATED != 0
            || (to_group && kind != icmpv6::PACKET_TOO_BIG)
            || ip6::is_multicast(&offender.src)
            || ip6::is_unspecified(&offender.src)
            || is_icmp_error(packet, &offender, l3)
        {
            return silent(&meta);
        }
        let Some(from) = table.source_ip6(interface, offender.src.into()).map(|a| a.octets()) else {
            return Icmp6ErrorExit::Unsendable;
        };
        if !self.limit.allow(now) {
            return silent(&meta);
        }

        // Quote as much as fits; IP and ICMP go between it and the Ethernet header, which the rewrite replaces.
        packet.truncate(l3 + MAX_LEN - HEADERS);
        let quote = packet.len() - l3;
        let Some(head) = packet.prepend(HEADERS) else { return Icmp6ErrorExit::Unsendable };
        if head.len() < HEADERS + l3 {
            return Icmp6ErrorExit::Unsendable;
        }
        head.copy_within(HEADERS..HEADERS + l3, 0);
        let rest = match kind {
            icmpv6::PACKET_TOO_BIG | icmpv6::PARAMETER_PROBLEM => u32::from(meta.mtu).to_be_bytes(),
            _ => [0; 4],
        };
        let mut message = IcmpHeader { kind, code, checksum: U16::new(0), rest };
        let len = IcmpHeader::LEN + quote;
        let sum = Sum::pseudo6(&from, &offender.src, ip6::ICMPV6, len as u32).over(message.as_bytes());
        message.checksum = U16::new(payload::sum(packet, sum, l3 + HEADERS, quote).checksum());
        let header = Ip6Header::new(from, offender.src, ip6::ICMPV6, HOP_LIMIT, len);
        let (head, meta) = packet.split_mut();
        let Some(front) = head.get_mut(l3..).and_then(|h| h.first_chunk_mut::<HEADERS>()) else {
            return Icmp6ErrorExit::Unsendable;
        };
        front[..Ip6Header::LEN].copy_from_slice(header.as_bytes());
        front[Ip6Header::LEN..].copy_from_slice(message.as_bytes());
        meta.l4 = meta.l3 + Ip6Header::LEN as u16;
        meta.flags = meta.flags & !flags::HASH | flags::GENERATED;
        if !ip6::is_link_local(&offender.src) {
            return Icmp6ErrorExit::Send;
        }
        let rx_if = meta.rx_if;
        if l2::turn(packet, rx_if, interface) {
            Icmp6ErrorExit::SendOnLink
        } else {
            Icmp6ErrorExit::Unsendable
        }
    }
}

/// The exit of a packet about which no error is sent, by the error that was due.
fn silent(meta: &Meta) -> Icmp6ErrorExit {
    use icmpv6::unreachable::{NO_ROUTE, PORT, PROHIBITED};
    let [kind, code] = meta.icmp.to_be_bytes();
    match (kind, code) {
        _ if meta.flags & flags::FILTERED != 0 => Icmp6ErrorExit::Filtered,
        (icmpv6::TIME_EXCEEDED, _) => Icmp6ErrorExit::HopLimitExceeded,
        (icmpv6::PACKET_TOO_BIG, _) => Icmp6ErrorExit::TooBig,
        (icmpv6::PARAMETER_PROBLEM, _) | (_, PORT) => Icmp6ErrorExit::NotLocal,
        (_, NO_ROUTE) => Icmp6ErrorExit::NoRoute,
        (_, PROHIBITED) => Icmp6ErrorExit::Prohibited,
        _ => Icmp6ErrorExit::Unreachable,
    }
}

/// Whether the packet is itself an ICMPv6 error or a redirect.
fn is_icmp_error<P: Packet>(packet: &P, header: &Ip6Header, l3: usize) -> bool {
    let mut bytes = [0; WALK];
    let n = packet.copy_out(l3 + Ip6Header::LEN, &mut bytes);
    is_error(header.next_header, bytes.get(..n).unwrap_or_default())
}

/// The same of what follows an IPv6 header, as far as it is there.
pub(super) fn is_error(next_header: u8, bytes: &[u8]) -> bool {
    match ip6::walk(next_header, bytes) {
        Ok(upper)
            if upper.protocol == ip6::ICMPV6 && upper.fragment.is_none_or(|(offset, _)| offset == 0) =>
        {
            // A message cut off before its type counts as an error: better silent than a loop.
            bytes.get(upper.offset).is_none_or(|kind| icmpv6::is_error(*kind))
        }
        _ => false,
    }
}

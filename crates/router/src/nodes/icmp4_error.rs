//! ICMP errors (RFC 792, RFC 1812 4.3.2), built in place from the packet they are about.

use std::fmt;
use std::net::Ipv4Addr;

use linerate_pipeline::interface::Interfaces;
use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, Meta, Node, Packet};
use linerate_wire::checksum::Sum;
use linerate_wire::icmp::{self, IcmpHeader};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::{Header, U16};
use zerocopy::IntoBytes;

use super::ErrorLimit;
use super::payload;

linerate_pipeline::exits! {
    /// Where packets go from `icmp4_error`.
    pub enum Icmp4ErrorExit {
        /// The packet has become the error message: route it.
        Send,
        /// There is no address to send from, or no room in the buffer.
        Unsendable,
        // No error may be sent about this packet, or the rate limit is used up; the exit says what the error would have
        // told.
        /// The TTL ran out.
        TtlExpired,
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

/// The longest error message, IPv4 header included (RFC 1812 4.3.2.3).
const MAX_LEN: usize = 576;
/// TTL of what this router sends.
const TTL: u8 = 64;
/// Internetwork control (RFC 1812 4.3.2.5).
const TOS: u8 = 0xc0;

/// IP and ICMP header in front of the quoted packet.
const HEADERS: usize = Ip4Header::LEN + IcmpHeader::LEN;

/// Turns packets into the ICMP errors that `Meta::icmp` (and `Meta::mtu`) ask for.
#[derive(Clone, Debug)]
pub struct Icmp4Error {
    interfaces: Interfaces,
    limit: ErrorLimit,
}

impl Icmp4Error {
    /// A node that takes its source addresses from this table and obeys this limit.
    pub fn new(interfaces: Interfaces, limit: ErrorLimit) -> Self {
        Icmp4Error { interfaces, limit }
    }
}

impl<P: Packet> Node<P> for Icmp4Error {
    type Exit = Icmp4ErrorExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Icmp4ErrorExit>) {
        for (i, packet) in batch.iter_mut().enumerate() {
            out.set(i, self.build(packet, cx.now));
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "type {} code {}", packet.meta().icmp >> 8, packet.meta().icmp & 0xff)
    }
}

impl Icmp4Error {
    fn build<P: Packet>(&mut self, packet: &mut P, now: u64) -> Icmp4ErrorExit {
        let meta = *packet.meta();
        let l3 = usize::from(meta.l3);
        let Some(&offender) = Ip4Header::view_at(packet.head(), l3) else {
            return silent(packet.meta());
        };
        let table = self.interfaces.get();
        let Some(interface) = table.get(meta.rx_if) else { return Icmp4ErrorExit::Unsendable };
        let is_broadcast = |a: u32| table.is_broadcast_ip4(meta.vrf, Ipv4Addr::from_bits(a));
        let (src, dst) = (offender.src.get(), offender.dst.get());
        // RFC 1812 4.3.2.7.
        if meta.flags & (flags::L2_MULTICAST | flags::GENERATED) != 0
            || offender.is_later_fragment()
            || ip4::is_martian_source(src)
            || is_broadcast(src)
            || dst >> 28 >= 0xe
            || is_broadcast(dst)
            || is_icmp_error(packet, &offender, l3)
        {
            return silent(&meta);
        }
        let Some(from) = table.source_ip4(interface, Ipv4Addr::from_bits(src)) else {
            return Icmp4ErrorExit::Unsendable;
        };
        if !self.limit.allow(now) {
            return silent(&meta);
        }

        // Quote as much as fits, also into the link that the packet came by, for most likely the error leaves by it and it must
        // not be fragmented. IP and ICMP go between the quote and the Ethernet header, which the rewrite replaces.
        packet.truncate(l3 + MAX_LEN.min(usize::from(interface.mtu)).saturating_sub(HEADERS));
        let quote = packet.len() - l3;
        let Some(head) = packet.prepend(HEADERS) else { return Icmp4ErrorExit::Unsendable };
        if head.len() < HEADERS + l3 {
            return Icmp4ErrorExit::Unsendable;
        }
        head.copy_within(HEADERS..HEADERS + l3, 0);
        let [kind, code] = meta.icmp.to_be_bytes();
        let mut rest = [0; 4];
        if (kind, code) == (icmp::UNREACHABLE, icmp::unreachable::FRAGMENTATION_NEEDED) {
            let [hi, lo] = meta.mtu.to_be_bytes();
            rest = [0, 0, hi, lo];
        }
        let mut message = IcmpHeader { kind, code, checksum: U16::new(0), rest };
        let sum = payload::sum(packet, Sum::new().over(message.as_bytes()), l3 + HEADERS, quote);
        message.checksum = U16::new(sum.checksum());
        let mut header = Ip4Header::new(from.to_bits(), src, ip4::ICMP, TTL, IcmpHeader::LEN + quote);
        header.tos = TOS;
        // Never fragmented, so that the identification need not be unique (RFC 6864 4.1).
        header.fragment.set(ip4::DF);
        header.set_checksum();
        let (head, meta) = packet.split_mut();
        let Some(front) = head.get_mut(l3..).and_then(|h| h.first_chunk_mut::<HEADERS>()) else {
            return Icmp4ErrorExit::Unsendable;
        };
        front[..Ip4Header::LEN].copy_from_slice(header.as_bytes());
        front[Ip4Header::LEN..].copy_from_slice(message.as_bytes());
        meta.l4 = meta.l3 + Ip4Header::LEN as u16;
        meta.flags = meta.flags & !flags::HASH | flags::GENERATED;
        Icmp4ErrorExit::Send
    }
}

/// The exit of a packet about which no error is sent, by the error that was due.
fn silent(meta: &Meta) -> Icmp4ErrorExit {
    use icmp::unreachable::{FRAGMENTATION_NEEDED, NET, PORT, PROHIBITED, PROTOCOL};
    let [kind, code] = meta.icmp.to_be_bytes();
    match (kind, code) {
        _ if meta.flags & flags::FILTERED != 0 => Icmp4ErrorExit::Filtered,
        (icmp::TIME_EXCEEDED, _) => Icmp4ErrorExit::TtlExpired,
        (_, NET) => Icmp4ErrorExit::NoRoute,
        (_, PROHIBITED) => Icmp4ErrorExit::Prohibited,
        (_, FRAGMENTATION_NEEDED) => Icmp4ErrorExit::TooBig,
        (_, PORT | PROTOCOL) => Icmp4ErrorExit::NotLocal,
        _ => Icmp4ErrorExit::Unreachable,
    }
}

/// Whether the packet is itself an ICMP error.
fn is_icmp_error<P: Packet>(packet: &P, header: &Ip4Header, l3: usize) -> bool {
    let mut kind = [icmp::UNREACHABLE];
    header.protocol == ip4::ICMP && {
        // A message cut off before its type counts as an error: better silent than a loop.
        packet.copy_out(l3 + header.header_len(), &mut kind);
        icmp::is_error(kind[0])
    }
}

//! Packets for this router itself: answers pings, says what is due about the rest.

use std::fmt;

use linerate_pipeline::interface::{InterfaceTable, Interfaces};
use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, IfIndex, Interface, Node, Packet};
use linerate_wire::checksum::{Sum, update16};
use linerate_wire::icmp::{self, IcmpHeader};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, eth, icmpv6};

use super::icmp6_error::WALK;
use super::ip4_rewrite::{self, Ip4RewriteExit};
use super::lookup::icmp_error;
use super::{ip4_input, ip6_input, l2, payload};
use crate::plane::Adjacency;

linerate_pipeline::exits! {
    /// Where packets go from `local`.
    pub enum LocalExit {
        /// An IPv4 answer: route it.
        Reply4,
        /// An IPv6 answer: route it.
        Reply6,
        /// An answer to, or from, a link-local address: it goes back as it came.
        ReplyOnLink,
        /// Neighbour discovery with a right checksum.
        Nd,
        /// Nothing here listens (IPv4): `Meta::icmp` says what error is due.
        Unreachable4,
        /// Nothing here listens (IPv6): `Meta::icmp` says what error is due.
        Unreachable6,
        /// To the broadcast address of another interface's network, and as a broadcast there: ready to leave.
        Broadcast,
        /// To such an address, and not to be sent there.
        NoBroadcast,
        /// To such an address, and longer than the MTU there.
        BroadcastTooLong,
        /// For the host system: TCP, fragments, packets with options or extension headers, broadcasts.
        Punt,
        /// An ICMP message that asks for no answer.
        IcmpOther,
        /// An ICMP message that is cut off or has a wrong checksum.
        IcmpMalformed,
        /// Extension headers that are malformed.
        BadExtension,
        /// A ping to a group from farther than any address of this router reaches.
        Unsendable,
    }
}

/// TTL and hop limit of answers.
const TTL: u8 = 64;

/// Answers echo requests to any of this router's addresses in place, after checking the checksum over all segments.
#[derive(Clone, Debug)]
pub struct Local {
    interfaces: Interfaces,
    /// There is a host system behind the exit [`LocalExit::Punt`]: it has sockets, and says what is due where it has none.
    host: bool,
}

impl Local {
    /// A node that answers for this table. `host`: what is no ping goes to the host system, which has sockets and
    /// answers for ports that nothing listens to; otherwise this node says what is due.
    pub fn new(interfaces: Interfaces, host: bool) -> Self {
        Local { interfaces, host }
    }
}

impl<P: Packet> Node<P> for Local {
    type Exit = LocalExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, LocalExit>) {
        let table = self.interfaces.get();
        for (i, packet) in batch.iter_mut().enumerate() {
            let exit = match packet.meta().ethertype {
                eth::ETHERTYPE_IP4 => local4(packet, table),
                _ => local6(packet, table),
            };
            out.set(i, if self.host { for_host(exit) } else { exit });
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        match packet.meta().ethertype {
            eth::ETHERTYPE_IP4 => ip4_input::write_ip4(packet, f),
            _ => ip6_input::write_ip6(packet, f),
        }
    }
}

/// What goes to a host system of what would end here without one.
fn for_host(exit: LocalExit) -> LocalExit {
    match exit {
        LocalExit::Unreachable4 | LocalExit::Unreachable6 | LocalExit::IcmpOther => LocalExit::Punt,
        other => other,
    }
}

fn local4<P: Packet>(packet: &mut P, table: &InterfaceTable) -> LocalExit {
    let l3 = usize::from(packet.meta().l3);
    let Some(&h) = Ip4Header::view_at(packet.head(), l3) else { return LocalExit::Punt };
    // What is not one of our addresses is the broadcast address of one of our networks.
    let to_us = table.owns_ip4(packet.meta().found_in, h.dst.get().into());
    if !to_us
        && let Some((index, interface)) =
            table.broadcast_interface(packet.meta().found_in, h.dst.get().into())
        && index != packet.meta().rx_if
    {
        return directed_broadcast(packet, index, interface);
    }
    if !to_us || h.is_fragment() || h.header_len() != Ip4Header::LEN {
        return LocalExit::Punt;
    }
    match h.protocol {
        ip4::ICMP => {}
        ip4::TCP => return LocalExit::Punt,
        ip4::UDP => return unreachable4(packet, icmp::unreachable::PORT),
        _ => return unreachable4(packet, icmp::unreachable::PROTOCOL),
    }
    let l4 = l3 + Ip4Header::LEN;
    let len = packet.len() - l4;
    if len < IcmpHeader::LEN
        || !payload::sum(packet, Sum::new(), l4, len).is_valid()
        || packet.pull(l4 + IcmpHeader::LEN).is_none()
    {
        return LocalExit::IcmpMalformed;
    }
    let (head, meta) = packet.split_mut();
    let Some(message) = IcmpHeader::view_at_mut(head, l4) else { return LocalExit::IcmpMalformed };
    if (message.kind, message.code) != (icmp::ECHO_REQUEST, 0) {
        return LocalExit::IcmpOther;
    }
    become_reply(message, icmp::ECHO_REPLY);
    if let Some(to) = Ip4Header::view_at_mut(head, l3) {
        (to.src, to.dst) = (h.dst, h.src);
        to.ttl = TTL;
        to.fragment.set(0);
        to.set_checksum();
    }
    meta.flags = meta.flags & !flags::HASH | flags::GENERATED;
    LocalExit::Reply4
}

/// Sends what came in elsewhere for all stations of a network on there, where the operator wants that (RFC 1812 5.3.5.2,
/// RFC 2644).
fn directed_broadcast<P: Packet>(packet: &mut P, index: IfIndex, interface: &Interface) -> LocalExit {
    let policy = interface.policy;
    if !policy.directed_broadcast || !interface.up || packet.meta().flags & flags::GENERATED != 0 {
        return LocalExit::NoBroadcast;
    }
    let all = Adjacency::new(index, interface, Some(eth::BROADCAST));
    match ip4_rewrite::rewrite(packet, &all) {
        Ip4RewriteExit::Output => LocalExit::Broadcast,
        Ip4RewriteExit::Fragment | Ip4RewriteExit::FragmentationNeeded => LocalExit::BroadcastTooLong,
        _ => LocalExit::NoBroadcast,
    }
}

fn unreachable4<P: Packet>(packet: &mut P, code: u8) -> LocalExit {
    packet.meta_mut().icmp = icmp_error(icmp::UNREACHABLE, code);
    LocalExit::Unreachable4
}

fn local6<P: Packet>(packet: &mut P, table: &InterfaceTable) -> LocalExit {
    let l3 = usize::from(packet.meta().l3);
    let rx_if = packet.meta().rx_if;
    let Some(&h) = Ip6Header::view_at(packet.head(), l3) else { return LocalExit::Punt };
    let l4 = l3 + Ip6Header::LEN;
    let mut bytes = [0; WALK];
    let n = packet.copy_out(l4, &mut bytes);
    let upper = match ip6::walk(h.next_header, bytes.get(..n).unwrap_or_default()) {
        Ok(upper) => upper,
        // Longer than what was looked at is unusual, not malformed.
        Err(ip6::WalkError::CutOff) if n == WALK => return LocalExit::Punt,
        Err(_) => return LocalExit::BadExtension,
    };
    if upper.offset != 0 {
        return LocalExit::Punt;
    }
    let to_group = ip6::is_multicast(&h.dst);
    match upper.protocol {
        ip6::ICMPV6 => {}
        ip4::TCP | ip6::NO_NEXT => return LocalExit::Punt,
        _ if to_group => return LocalExit::Punt,
        ip4::UDP => return unreachable6(packet, icmpv6::UNREACHABLE, icmpv6::unreachable::PORT),
        _ => {
            // The pointer: the next-header field of the fixed header.
            packet.meta_mut().mtu = 6;
            return unreachable6(packet, icmpv6::PARAMETER_PROBLEM, icmpv6::UNKNOWN_NEXT_HEADER);
        }
    }
    let len = packet.len() - l4;
    let sum = Sum::pseudo6(&h.src, &h.dst, ip6::ICMPV6, len as u32);
    if len < IcmpHeader::LEN
        || !payload::sum(packet, sum, l4, len).is_valid()
        || packet.pull(l4 + IcmpHeader::LEN).is_none()
    {
        return LocalExit::IcmpMalformed;
    }
    let interface = table.get(rx_if);
    let (head, meta) = packet.split_mut();
    let Some(message) = IcmpHeader::view_at_mut(head, l4) else { return LocalExit::IcmpMalformed };
    match (message.kind, message.code) {
        (icmpv6::ROUTER_SOLICITATION..=icmpv6::REDIRECT, _) => return LocalExit::Nd,
        (icmpv6::ECHO_REQUEST, 0) if !ip6::is_unspecified(&h.src) => {}
        _ => return LocalExit::IcmpOther,
    }
    let Some(interface) = interface else { return LocalExit::Punt };
    let mut from = h.dst;
    if to_group {
        // From an address of the interface (RFC 4443 4.2): the pseudo-header changes.
        let Some(own) = table.source_ip6(interface, h.src.into()) else { return LocalExit::Unsendable };
        from = own.octets();
        let words = |a: &[u8; 16], i: usize| u16::from_be_bytes([a[2 * i], a[2 * i + 1]]);
        let sum = (0..8).fold(message.checksum.get(), |c, i| update16(c, words(&h.dst, i), words(&from, i)));
        message.checksum.set(sum);
    }
    become_reply(message, icmpv6::ECHO_REPLY);
    if let Some(to) = Ip6Header::view_at_mut(head, l3) {
        (to.src, to.dst) = (from, h.src);
        to.hop_limit = TTL;
    }
    meta.flags = meta.flags & !flags::HASH | flags::GENERATED;
    // What has a link-local address on either end stays on the link (RFC 4291 2.5.6).
    if !ip6::is_link_local(&h.src) && !ip6::is_link_local(&from) {
        return LocalExit::Reply6;
    }
    if l2::turn(packet, rx_if, interface) { LocalExit::ReplyOnLink } else { LocalExit::Punt }
}

fn unreachable6<P: Packet>(packet: &mut P, kind: u8, code: u8) -> LocalExit {
    packet.meta_mut().icmp = icmp_error(kind, code);
    LocalExit::Unreachable6
}

/// Turns a request into the reply; the checksum follows, so that damage to the payload on the way stays visible.
fn become_reply(message: &mut IcmpHeader, reply: u8) {
    let word = |kind: u8| u16::from_be_bytes([kind, 0]);
    message.checksum.set(update16(message.checksum.get(), word(message.kind), word(reply)));
    message.kind = reply;
}

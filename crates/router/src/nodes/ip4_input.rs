//! IPv4 input: validates the header as RFC 1812 5.2.2 asks and tells unicast from the rest.

use std::fmt;
use std::net::Ipv4Addr;

use linerate_pipeline::interface::{InterfaceTable, Interfaces, OwnFilter};
use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, Meta, Node, Packet};
use linerate_wire::checksum::{self, Sum};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::{Header, flow, icmp};

use super::lookup::icmp_error;
use crate::acl::{AclLog, Acls, Direction, Filter, Refused};

linerate_pipeline::exits! {
    /// Where packets go from `ip4_input`.
    pub enum Ip4InputExit {
        /// Sound, to a unicast address.
        Unicast,
        /// The same, and the interface wants the source validated first.
        CheckSource,
        /// Sound, to a multicast group.
        Multicast,
        /// Sound, to 255.255.255.255; or, in a frame for all stations, to the broadcast address of its interface's network.
        Broadcast,
        /// Shorter than an IPv4 header.
        TooShort,
        /// The version is not 4.
        BadVersion,
        /// The header length is below 20 or beyond the packet.
        BadHeaderLength,
        /// The total length is below the header length or beyond the frame.
        BadTotalLength,
        /// The header checksum is wrong.
        BadChecksum,
        /// An option has an impossible length or pointer, or runs past the header.
        BadOptions,
        /// The sender wants to choose the way (RFC 7126 4.3, 4.4).
        SourceRoute,
        /// The source address can never be a sender.
        BadSource,
        /// The source address is one of this router's own.
        OwnSource,
        /// A link-local address is about to leave its link (RFC 3927 2.7).
        LinkLocalScope,
        /// The destination may not be forwarded.
        BadDestination,
        /// A unicast packet in a link-layer broadcast or multicast frame.
        L2Broadcast,
        /// The header lies across segments and cannot be made contiguous.
        NotContiguous,
        /// Sound; the access list of its interface denies it.
        AclDenied,
        /// Sound; the access list of its interface rejects it, and `Meta::icmp` says what error is due.
        AclRejected,
        /// Sound, but it hides what the access list of its interface asks about.
        AclUndetermined,
    }
}

/// Validates IPv4 headers; sets `l4`, and cuts off padding behind the total length. Options that are sound pass
/// untouched, except source routes, which do not pass.
///
/// Version and header length, lengths, checksum and both addresses of the common packet (no options, unicast) are
/// checked without a branch between them; a packet that fails any takes the long way, which finds the reason.
///
/// Sound packets then meet the access list of the interface they came in by.
pub struct Ip4Input {
    interfaces: Interfaces,
    filter: Filter<u32>,
}

impl Ip4Input {
    /// A node that finds the router's own addresses in this table and asks these lists.
    pub(crate) fn new(interfaces: Interfaces, acls: Acls, log: AclLog) -> Self {
        Ip4Input { interfaces, filter: Filter::new(acls, log) }
    }
}

impl<P: Packet> Node<P> for Ip4Input {
    type Exit = Ip4InputExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip4InputExit>) {
        let table = self.interfaces.get();
        let own = table.own_filter();
        out.set_all(Ip4InputExit::Unicast);
        for (i, packet) in batch.iter_mut().enumerate() {
            let len = packet.len();
            let (head, meta) = packet.split_mut();
            if is_common(head, meta, len, own) {
                meta.l4 = meta.l3 + Ip4Header::LEN as u16;
            } else {
                let exit = inspect(packet, table);
                let check = exit == Ip4InputExit::Unicast && packet.meta().flags & flags::CHECK_SOURCE != 0;
                out.set(i, if check { Ip4InputExit::CheckSource } else { exit });
            }
        }
        if self.filter.is_on(Direction::In) {
            self.filter(cx.now, batch, out);
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write_ip4(packet, f)
    }
}

impl Ip4Input {
    /// Asks the incoming lists about all packets that would go on.
    fn filter<P: Packet>(&mut self, now: u64, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip4InputExit>) {
        use Ip4InputExit::{
            AclDenied, AclRejected, AclUndetermined, Broadcast, CheckSource, Multicast, Unicast,
        };
        let goes_on = |i: &usize| matches!(out.get(*i), Some(Unicast | CheckSource | Multicast | Broadcast));
        let wanted = (0..batch.len()).filter(goes_on).fold(0, |bits, i| bits | 1 << i);
        let prohibited = icmp_error(icmp::UNREACHABLE, icmp::unreachable::PROHIBITED);
        let refused = self.filter.ask(now, Direction::In, batch, wanted, |p| p.meta().rx_if, prohibited);
        Refused::each(refused.denied, |i| out.set(i, AclDenied));
        Refused::each(refused.rejected, |i| out.set(i, AclRejected));
        Refused::each(refused.undetermined, |i| out.set(i, AclUndetermined));
    }
}

/// Addresses, protocol, TTL and length of a packet, for traces.
pub(crate) fn write_ip4<P: Packet>(packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
    let Some(h) = Ip4Header::view_at(packet.head(), usize::from(packet.meta().l3)) else {
        return f.write_str("no IPv4 header");
    };
    let (src, dst) = (Ipv4Addr::from_bits(h.src.get()), Ipv4Addr::from_bits(h.dst.get()));
    write!(f, "{src} > {dst} proto {} ttl {} len {}", h.protocol, h.ttl, h.total_len.get())
}

#[inline(always)]
fn is_common(head: &[u8], meta: &Meta, len: usize, own: OwnFilter<'_>) -> bool {
    let Some(h) = Ip4Header::view_at(head, usize::from(meta.l3)) else { return false };
    (h.version_ihl == 0x45)
        & (usize::from(h.total_len.get()) + usize::from(meta.l3) == len)
        & checksum::ip4_header_valid(zerocopy::transmute_ref!(h))
        & !ip4::is_suspect(h.src.get())
        // What may not be a source may not be a unicast destination either: 0/8, 127/8, 224/4, 240/4.
        & !ip4::is_suspect(h.dst.get())
        & !own.owns4(h.src.get())
        & (meta.flags & (flags::L2_MULTICAST | flags::CHECK_SOURCE) == 0)
}

/// The long way: any packet.
#[inline(never)]
fn inspect<P: Packet>(packet: &mut P, table: &InterfaceTable) -> Ip4InputExit {
    let l3 = usize::from(packet.meta().l3);
    let len = packet.len();
    let available = len.saturating_sub(l3);
    if available < Ip4Header::LEN {
        // A wrong version is more telling than a short header, where that byte is there at all.
        let mut first = [0x40];
        packet.copy_out(l3, &mut first);
        return if first[0] >> 4 == 4 { Ip4InputExit::TooShort } else { Ip4InputExit::BadVersion };
    }
    let want = l3 + available.min(Ip4Header::LEN + ip4::MAX_OPTIONS);
    if packet.head().len() < want {
        // Only as much as this header needs: its length is in its first byte.
        let mut first = [0];
        packet.copy_out(l3, &mut first);
        let header = usize::from(first[0] & 0xf) * 4;
        if packet.pull((l3 + header.max(Ip4Header::LEN)).min(len)).is_none() {
            return Ip4InputExit::NotContiguous;
        }
    }
    let (head, meta) = packet.split_mut();
    let Some(h) = Ip4Header::view_at(head, l3) else { return Ip4InputExit::TooShort };
    if h.version() != 4 {
        return Ip4InputExit::BadVersion;
    }
    let header_len = h.header_len();
    let Some(header) = head.get(l3..l3 + header_len).filter(|h| h.len() >= Ip4Header::LEN) else {
        return Ip4InputExit::BadHeaderLength;
    };
    let total = usize::from(h.total_len.get());
    if total < header_len || total > available {
        return Ip4InputExit::BadTotalLength;
    }
    if !Sum::new().over(header).is_valid() {
        return Ip4InputExit::BadChecksum;
    }
    match ip4::check_options(header.get(Ip4Header::LEN..).unwrap_or_default()) {
        Err(ip4::BadOptions) => return Ip4InputExit::BadOptions,
        Ok(options) if options.source_route => return Ip4InputExit::SourceRoute,
        Ok(_) => {}
    }
    let (src, dst) = (h.src.get(), h.dst.get());
    meta.l4 = (l3 + header_len) as u16;
    let (is_group, vrf, rx_if) = (meta.flags & flags::L2_MULTICAST != 0, meta.vrf, meta.rx_if);
    if total < available {
        packet.truncate(l3 + total);
    }
    if dst == u32::MAX {
        // A host without address may send from 0.0.0.0 (DHCP).
        return if src != 0 && ip4::is_martian_source(src) {
            Ip4InputExit::BadSource
        } else {
            Ip4InputExit::Broadcast
        };
    }
    if ip4::is_multicast(dst) {
        // IGMP queriers may send from 0.0.0.0 (RFC 4541 2.1.1).
        return if src != 0 && ip4::is_martian_source(src) {
            Ip4InputExit::BadSource
        } else {
            Ip4InputExit::Multicast
        };
    }
    if ip4::is_martian_source(src) {
        return Ip4InputExit::BadSource;
    }
    if ip4::is_martian_source(dst) {
        return Ip4InputExit::BadDestination;
    }
    // For all stations of the interface's own network: that is how such frames come.
    let broadcast = is_group && table.get(rx_if).is_some_and(|i| i.is_broadcast_ip4(dst.into()));
    if is_group && !broadcast {
        return Ip4InputExit::L2Broadcast;
    }
    if table.owns_ip4(vrf, src.into()) {
        return Ip4InputExit::OwnSource;
    }
    if table.is_broadcast_ip4(vrf, src.into()) {
        return Ip4InputExit::BadSource;
    }
    if broadcast {
        return Ip4InputExit::Broadcast;
    }
    // To this router itself it stays on the link.
    let leaves = ip4::is_link_local(src) || ip4::is_link_local(dst);
    if leaves && !table.owns_ip4(vrf, dst.into()) {
        return Ip4InputExit::LinkLocalScope;
    }
    Ip4InputExit::Unicast
}

/// The flow hash of a packet with an IPv4 header at `l3`; 0 where there is none.
#[inline]
pub(super) fn flow_hash<P: Packet>(packet: &P, seed: u64) -> u32 {
    let (head, meta) = (packet.head(), packet.meta());
    let l4 = head.get(usize::from(meta.l4)..).unwrap_or_default();
    Ip4Header::view_at(head, usize::from(meta.l3)).map_or(0, |h| flow::hash4(h, l4, seed))
}

//! IPv6 input: validates the header (RFC 8200 3, RFC 4291 2) and tells unicast from the rest.

use std::fmt;
use std::net::Ipv6Addr;

use linerate_pipeline::interface::{InterfaceTable, Interfaces, OwnFilter};
use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, Meta, Node, Packet};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, flow, icmpv6};

use super::lookup::icmp_error;
use crate::acl::{AclLog, Acls, Direction, Filter, Refused};

linerate_pipeline::exits! {
    /// Where packets go from `ip6_input`.
    pub enum Ip6InputExit {
        /// Sound, to a unicast address of global scope.
        Unicast,
        /// The same, and the interface wants the source validated first.
        CheckSource,
        /// To the link-local address of the interface it came in by, or to a group that every node on the link belongs
        /// to: for this router itself.
        Local,
        /// Sound, to any other multicast group.
        Multicast,
        /// Shorter than an IPv6 header.
        TooShort,
        /// The version is not 6.
        BadVersion,
        /// The payload length exceeds the frame.
        BadPayloadLength,
        /// The hop-by-hop header ends beyond the packet.
        BadExtension,
        /// The source address can never be a sender.
        BadSource,
        /// The source address is one of this router's own.
        OwnSource,
        /// The destination may not be forwarded.
        BadDestination,
        /// A link-local destination on another node, or a link-local source that would leave its link: no router
        /// forwards those.
        LinkLocalScope,
        /// A unicast packet in a link-layer multicast frame.
        L2Multicast,
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

/// Validates IPv6 headers; sets `l4` to what follows the fixed header, and cuts off padding behind the payload length.
/// Extension headers pass untouched; hop-by-hop options are not acted on, as RFC 8200 4.3 allows, but their header, the only
/// one that concerns routers, must lie within the packet.
///
/// Sound packets then meet the access list of the interface they came in by.
pub struct Ip6Input {
    interfaces: Interfaces,
    filter: Filter<u128>,
}

impl Ip6Input {
    /// A node that finds link-local addresses in this table and asks these lists.
    pub(crate) fn new(interfaces: Interfaces, acls: Acls, log: AclLog) -> Self {
        Ip6Input { interfaces, filter: Filter::new(acls, log) }
    }

    /// Asks the incoming lists about all packets that would go on.
    fn filter<P: Packet>(&mut self, now: u64, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip6InputExit>) {
        use Ip6InputExit::{AclDenied, AclRejected, AclUndetermined, CheckSource, Local, Multicast, Unicast};
        let goes_on = |i: &usize| matches!(out.get(*i), Some(Unicast | CheckSource | Local | Multicast));
        let wanted = (0..batch.len()).filter(goes_on).fold(0, |bits, i| bits | 1 << i);
        let prohibited = icmp_error(icmpv6::UNREACHABLE, icmpv6::unreachable::PROHIBITED);
        let refused = self.filter.ask(now, Direction::In, batch, wanted, |p| p.meta().rx_if, prohibited);
        Refused::each(refused.denied, |i| out.set(i, AclDenied));
        Refused::each(refused.rejected, |i| out.set(i, AclRejected));
        Refused::each(refused.undetermined, |i| out.set(i, AclUndetermined));
    }
}

impl<P: Packet> Node<P> for Ip6Input {
    type Exit = Ip6InputExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip6InputExit>) {
        let table = self.interfaces.get();
        let own = table.own_filter();
        out.set_all(Ip6InputExit::Unicast);
        for (i, packet) in batch.iter_mut().enumerate() {
            let len = packet.len();
            let (head, meta) = packet.split_mut();
            if is_common(head, meta, len, own) {
                meta.l4 = meta.l3 + Ip6Header::LEN as u16;
            } else {
                let exit = inspect(packet, table);
                let check = exit == Ip6InputExit::Unicast && packet.meta().flags & flags::CHECK_SOURCE != 0;
                out.set(i, if check { Ip6InputExit::CheckSource } else { exit });
            }
        }
        if self.filter.is_on(Direction::In) {
            self.filter(cx.now, batch, out);
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write_ip6(packet, f)
    }
}

/// Addresses, next header, hop limit and length of a packet, for traces.
pub(crate) fn write_ip6<P: Packet>(packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
    let Some(h) = Ip6Header::view_at(packet.head(), usize::from(packet.meta().l3)) else {
        return f.write_str("no IPv6 header");
    };
    let (src, dst) = (Ipv6Addr::from(h.src), Ipv6Addr::from(h.dst));
    write!(f, "{src} > {dst} next {} hops {} len {}", h.next_header, h.hop_limit, h.payload_len.get())
}

/// Whether a packet is sound and both its addresses are global unicast: 2000::/3, where all of them are today.
/// Anything else, unique local addresses included, takes the long way.
#[inline(always)]
fn is_common(head: &[u8], meta: &Meta, len: usize, own: OwnFilter<'_>) -> bool {
    let Some(h) = Ip6Header::view_at(head, usize::from(meta.l3)) else { return false };
    (h.version() == 6)
        & (usize::from(h.payload_len.get()) + Ip6Header::LEN + usize::from(meta.l3) == len)
        & (h.src[0] >> 5 == 1)
        & (h.dst[0] >> 5 == 1)
        & (h.next_header != ip6::HOP_BY_HOP)
        & !own.owns6(u128::from_be_bytes(h.src))
        & (meta.flags & (flags::L2_MULTICAST | flags::CHECK_SOURCE) == 0)
}

/// The long way: any packet.
#[inline(never)]
fn inspect<P: Packet>(packet: &mut P, table: &InterfaceTable) -> Ip6InputExit {
    let l3 = usize::from(packet.meta().l3);
    let available = packet.len().saturating_sub(l3);
    if available < Ip6Header::LEN {
        let mut first = [0x60];
        packet.copy_out(l3, &mut first);
        return if first[0] >> 4 == 6 { Ip6InputExit::TooShort } else { Ip6InputExit::BadVersion };
    }
    let want = l3 + Ip6Header::LEN;
    if packet.head().len() < want && packet.pull(want).is_none() {
        return Ip6InputExit::NotContiguous;
    }
    let (head, meta) = packet.split_mut();
    let Some(h) = Ip6Header::view_at(head, l3) else { return Ip6InputExit::TooShort };
    if h.version() != 6 {
        return Ip6InputExit::BadVersion;
    }
    let total = usize::from(h.payload_len.get()) + Ip6Header::LEN;
    if total > available {
        return Ip6InputExit::BadPayloadLength;
    }
    meta.l4 = want as u16;
    let hop_by_hop = h.next_header == ip6::HOP_BY_HOP;
    let exit = judge(h, meta, table);
    if total < available {
        packet.truncate(l3 + total);
    }
    if hop_by_hop && !holds_options(packet, want) { Ip6InputExit::BadExtension } else { exit }
}

/// Whether the packet is as long as the hop-by-hop header at `at` says that this is.
fn holds_options<P: Packet>(packet: &P, at: usize) -> bool {
    let mut start = [0; 2];
    packet.copy_out(at, &mut start) == start.len() && at + (usize::from(start[1]) + 1) * 8 <= packet.len()
}

/// Decides by the addresses.
fn judge(h: &Ip6Header, meta: &Meta, table: &InterfaceTable) -> Ip6InputExit {
    let unspecified = ip6::is_unspecified(&h.src);
    if ip6::is_multicast(&h.src) || !unspecified && ip6::is_ip4_in_ip6(&h.src) {
        return Ip6InputExit::BadSource;
    }
    if ip6::is_ip4_in_ip6(&h.dst) {
        return Ip6InputExit::BadDestination;
    }
    if ip6::is_multicast(&h.dst) {
        return match ip6::multicast_scope(&h.dst) {
            // Reserved and interface-local: never on a wire (RFC 4291 2.7).
            0 | 1 => Ip6InputExit::BadDestination,
            2 if is_ours(&h.dst) => Ip6InputExit::Local,
            _ => Ip6InputExit::Multicast,
        };
    }
    if unspecified {
        return Ip6InputExit::BadSource;
    }
    // IPv6 has no broadcast: a unicast packet in a group frame came by mistake or worse.
    if meta.flags & flags::L2_MULTICAST != 0 {
        return Ip6InputExit::L2Multicast;
    }
    let interface = table.get(meta.rx_if);
    if ip6::is_link_local(&h.dst) {
        let ours = interface.is_some_and(|i| i.owns_ip6(h.dst.into()));
        return if ours { Ip6InputExit::Local } else { Ip6InputExit::LinkLocalScope };
    }
    if ip6::is_link_local(&h.src) {
        // To a global address of this interface it stays on the link.
        let ours = interface.is_some_and(|i| i.owns_ip6(h.dst.into()));
        return if ours { Ip6InputExit::Local } else { Ip6InputExit::LinkLocalScope };
    }
    if table.owns_ip6(meta.vrf, h.src.into()) {
        return Ip6InputExit::OwnSource;
    }
    Ip6InputExit::Unicast
}

/// Groups this router listens to on every interface: all nodes, all routers, and the range of solicited-node groups.
fn is_ours(group: &[u8; 16]) -> bool {
    *group == ip6::ALL_NODES || *group == ip6::ALL_ROUTERS || ip6::solicited_node(*group) == *group
}

/// The flow hash of a packet with an IPv6 header at `l3`; 0 where there is none.
#[inline]
pub(super) fn flow_hash<P: Packet>(packet: &P, seed: u64) -> u32 {
    let head = packet.head();
    let Some(l3) = head.get(usize::from(packet.meta().l3)..) else { return 0 };
    Ip6Header::view(l3).map_or(0, |h| flow::hash6(h, &l3[Ip6Header::LEN..], seed))
}

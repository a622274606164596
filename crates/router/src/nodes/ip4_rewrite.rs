//! IPv4 rewrite: TTL, checksum, MTU and the neighbour's Ethernet header.

use std::fmt;

use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, Node, Packet};
use linerate_wire::ip4::Ip4Header;
use linerate_wire::{Header, checksum, eth, icmp};

use super::{ip4_input, l2, lookup::icmp_error};
use crate::plane::{Adjacency, NextHops};

linerate_pipeline::exits! {
    /// Where packets go from `ip4_rewrite`.
    pub enum Ip4RewriteExit {
        /// Ready to leave by `Meta::tx_port`.
        Output,
        /// The TTL ran out; `Meta::icmp` says so. The packet is as it was received.
        TtlExpired,
        /// Too large and may not be fragmented; `Meta::icmp` and `Meta::mtu` say so. The packet is as it was received.
        FragmentationNeeded,
        /// Too large and may be fragmented.
        Fragment,
        /// No headroom for the outgoing Ethernet header.
        NoHeadroom,
        /// The adjacency is no longer there.
        AdjacencyGone,
    }
}

/// Takes one off the TTL (RFC 1812 5.3.1), updates the checksum incrementally (RFC 1624), checks the MTU and writes the
/// Ethernet header of the adjacency that the lookup chose.
#[derive(Clone, Debug)]
pub struct Ip4Rewrite {
    next_hops: NextHops,
}

impl Ip4Rewrite {
    /// A node that reads these adjacencies.
    pub fn new(next_hops: NextHops) -> Self {
        Ip4Rewrite { next_hops }
    }
}

/// Untagged Ethernet and IPv4 header: what the common packet has, in and out.
const PLAIN: usize = eth_len() + Ip4Header::LEN;

const fn eth_len() -> usize {
    size_of::<eth::EthHeader>()
}

impl<P: Packet> Node<P> for Ip4Rewrite {
    type Exit = Ip4RewriteExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip4RewriteExit>) {
        out.set_all(Ip4RewriteExit::Output);
        for (i, packet) in batch.iter_mut().enumerate() {
            let (head, meta) = packet.split_mut();
            let adjacency = self.next_hops.adjacency(meta.adjacency);
            if let Some(head) = head.first_chunk_mut::<PLAIN>()
                && usize::from(meta.l3) == eth_len()
                && usize::from(adjacency.header_len) == eth_len()
                && let Some(h) = Ip4Header::view_at_mut(head, eth_len())
                && (h.ttl > 1)
                    & (h.total_len.get() <= adjacency.mtu)
                    & (meta.flags & (flags::GENERATED | flags::VLAN) == 0)
                    & adjacency.complete
            {
                h.ttl -= 1;
                h.checksum.set(checksum::decrement_ttl(h.checksum.get()));
                adjacency.write(head, eth::ETHERTYPE_IP4);
                (meta.tx_if, meta.tx_port) = (adjacency.interface, adjacency.port);
            } else {
                let exit = rewrite(packet, &adjacency);
                out.set(i, exit);
            }
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip4_input::write_ip4(packet, f)?;
        write!(f, " interface {}", packet.meta().tx_if)
    }
}

/// The long way: any packet.
#[inline(never)]
pub(super) fn rewrite<P: Packet>(packet: &mut P, adjacency: &Adjacency) -> Ip4RewriteExit {
    if !adjacency.complete {
        return Ip4RewriteExit::AdjacencyGone;
    }
    let l3 = usize::from(packet.meta().l3);
    let (head, meta) = packet.split_mut();
    let Some(h) = Ip4Header::view_at_mut(head, l3) else { return Ip4RewriteExit::AdjacencyGone };
    let transit = meta.flags & flags::GENERATED == 0;
    if transit && h.ttl <= 1 {
        meta.icmp = icmp_error(icmp::TIME_EXCEEDED, 0);
        return Ip4RewriteExit::TtlExpired;
    }
    if h.total_len.get() > adjacency.mtu {
        if h.dont_fragment() {
            meta.icmp = icmp_error(icmp::UNREACHABLE, icmp::unreachable::FRAGMENTATION_NEEDED);
            meta.mtu = adjacency.mtu;
            return Ip4RewriteExit::FragmentationNeeded;
        }
        return Ip4RewriteExit::Fragment;
    }
    if !l2::write(packet, adjacency, eth::ETHERTYPE_IP4) {
        return Ip4RewriteExit::NoHeadroom;
    }
    let l3 = usize::from(packet.meta().l3);
    if transit && let Some(h) = Ip4Header::view_at_mut(packet.head_mut(), l3) {
        h.ttl = h.ttl.saturating_sub(1);
        h.checksum.set(checksum::decrement_ttl(h.checksum.get()));
    }
    Ip4RewriteExit::Output
}

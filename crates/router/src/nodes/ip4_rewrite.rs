//! IPv4 rewrite: TTL, checksum, MTU and the neighbour's Ethernet header.

use std::fmt;

use linerate_pipeline::meta::flags;
use linerate_pipeline::{BURST, Batch, Cx, Exits, Node, Packet};
use linerate_wire::ip4::Ip4Header;
use linerate_wire::{Header, checksum, eth, icmp};

use super::redirect::Redirect;
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
        /// Too large and may be fragmented; or ready to leave, and behind such a packet of the same batch, which it must
        /// not overtake.
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
    redirect: Redirect,
}

impl Ip4Rewrite {
    /// A node that reads these adjacencies and sends redirects where they are due.
    pub fn new(next_hops: NextHops, redirect: Redirect) -> Self {
        Ip4Rewrite { next_hops, redirect }
    }
}

/// Untagged Ethernet and IPv4 header: what the common packet has, in and out.
const PLAIN: usize = ETH + Ip4Header::LEN;

const ETH: usize = size_of::<eth::EthHeader>();

impl<P: Packet> Node<P> for Ip4Rewrite {
    type Exit = Ip4RewriteExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip4RewriteExit>) {
        out.set_all(Ip4RewriteExit::Output);
        // The first packet to be fragmented, and a bit per packet that does not leave as it is.
        let (mut fragmented, mut others) = (None, 0u64);
        for (i, packet) in batch.iter_mut().enumerate() {
            let (head, meta) = packet.split_mut();
            if let Some(plain) = self.next_hops.plain(meta.adjacency)
                && let Some(head) = head.first_chunk_mut::<PLAIN>()
                && let Some((l2, rest)) = head.split_first_chunk_mut::<12>()
                && let Some((ethertype, l3)) = rest.split_first_chunk_mut::<2>()
                && let Some(h) = Ip4Header::view_mut(l3)
                && (usize::from(meta.l3) == ETH)
                    & (h.ttl > 1)
                    & (h.total_len.get() <= plain.mtu())
                    & (meta.flags & (flags::GENERATED | flags::REDIRECTS) == 0)
            {
                h.ttl -= 1;
                h.checksum.set(checksum::decrement_ttl(h.checksum.get()));
                plain.write(l2);
                *ethertype = eth::ETHERTYPE_IP4.to_be_bytes();
                (meta.tx_if, meta.tx_port) = (plain.interface(), plain.port());
            } else {
                let exit = self.any(cx, packet);
                if exit == Ip4RewriteExit::Fragment {
                    fragmented.get_or_insert(i);
                }
                if exit != Ip4RewriteExit::Output {
                    others |= 1 << (i % BURST);
                    out.set(i, exit);
                }
            }
        }
        if let Some(first) = fragmented {
            let ready = (first..batch.len()).filter(|i| others >> (i % BURST) & 1 == 0);
            ready.for_each(|i| out.set(i, Ip4RewriteExit::Fragment));
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip4_input::write_ip4(packet, f)?;
        write!(f, " interface {}", packet.meta().tx_if)
    }
}

impl Ip4Rewrite {
    /// The long way. Loads the adjacency itself, so that the common way need not keep it in memory.
    #[inline(never)]
    fn any<P: Packet>(&mut self, cx: &mut Cx<'_, P>, packet: &mut P) -> Ip4RewriteExit {
        let index = packet.meta().adjacency;
        let adjacency = self.next_hops.adjacency(index);
        let notice = self.redirect.notice(packet, &adjacency);
        let exit = rewrite(packet, &adjacency);
        if exit == Ip4RewriteExit::Output {
            self.next_hops.mark_used(index);
            if let Some(notice) = notice {
                self.redirect.send(cx, adjacency.interface, &notice);
            }
        }
        exit
    }
}

/// Rewrites any packet.
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

//! IPv6 rewrite: hop limit, MTU and the neighbour's Ethernet header.

use std::fmt;

use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, Exits, Node, Packet};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, eth, icmpv6};

use super::redirect::Redirect;
use super::{ip6_input, l2, lookup::icmp_error};
use crate::plane::{Adjacency, NextHops};

linerate_pipeline::exits! {
    /// Where packets go from `ip6_rewrite`.
    pub enum Ip6RewriteExit {
        /// Ready to leave by `Meta::tx_port`.
        Output,
        /// The hop limit ran out; `Meta::icmp` says so. The packet is as it was received.
        HopLimitExceeded,
        /// Larger than the MTU; `Meta::icmp` and `Meta::mtu` say so. The packet is as it was received.
        PacketTooBig,
        /// Too large for a link whose MTU is below what IPv6 needs (1280): no error could help the sender.
        LinkTooSmall,
        /// No headroom for the outgoing Ethernet header.
        NoHeadroom,
        /// The adjacency is no longer there.
        AdjacencyGone,
    }
}

/// Takes one off the hop limit, checks the MTU (routers never fragment IPv6) and writes the Ethernet header of the
/// adjacency that the lookup chose.
#[derive(Clone, Debug)]
pub struct Ip6Rewrite {
    next_hops: NextHops,
    redirect: Redirect,
}

impl Ip6Rewrite {
    /// A node that reads these adjacencies and sends redirects where they are due.
    pub fn new(next_hops: NextHops, redirect: Redirect) -> Self {
        Ip6Rewrite { next_hops, redirect }
    }
}

const ETH: usize = size_of::<eth::EthHeader>();

/// Untagged Ethernet and IPv6 header: what the common packet has, in and out.
const PLAIN: usize = ETH + Ip6Header::LEN;

impl<P: Packet> Node<P> for Ip6Rewrite {
    type Exit = Ip6RewriteExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip6RewriteExit>) {
        out.set_all(Ip6RewriteExit::Output);
        for (i, packet) in batch.iter_mut().enumerate() {
            let (head, meta) = packet.split_mut();
            if let Some(plain) = self.next_hops.plain(meta.adjacency)
                && let Some(head) = head.first_chunk_mut::<PLAIN>()
                && let Some((l2, rest)) = head.split_first_chunk_mut::<12>()
                && let Some((ethertype, l3)) = rest.split_first_chunk_mut::<2>()
                && let Some(h) = Ip6Header::view_mut(l3)
                && (usize::from(meta.l3) == ETH)
                    & (h.hop_limit > 1)
                    & (usize::from(h.payload_len.get()) + Ip6Header::LEN <= usize::from(plain.mtu()))
                    & (meta.flags & (flags::GENERATED | flags::REDIRECTS) == 0)
            {
                h.hop_limit -= 1;
                plain.write(l2);
                *ethertype = eth::ETHERTYPE_IP6.to_be_bytes();
                (meta.tx_if, meta.tx_port) = (plain.interface(), plain.port());
            } else {
                out.set(i, self.any(cx, packet));
            }
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip6_input::write_ip6(packet, f)?;
        write!(f, " interface {}", packet.meta().tx_if)
    }
}

impl Ip6Rewrite {
    /// The long way. Loads the adjacency itself, so that the common way need not keep it in memory.
    #[inline(never)]
    fn any<P: Packet>(&mut self, cx: &mut Cx<'_, P>, packet: &mut P) -> Ip6RewriteExit {
        let index = packet.meta().adjacency;
        let adjacency = self.next_hops.adjacency(index);
        let notice = self.redirect.notice(packet, &adjacency);
        let exit = rewrite(packet, &adjacency);
        if exit == Ip6RewriteExit::Output {
            self.next_hops.mark_used(index);
            if let Some(notice) = notice {
                self.redirect.send(cx, adjacency.interface, &notice);
            }
        }
        exit
    }
}

/// Rewrites any packet.
fn rewrite<P: Packet>(packet: &mut P, adjacency: &Adjacency) -> Ip6RewriteExit {
    if !adjacency.complete {
        return Ip6RewriteExit::AdjacencyGone;
    }
    let l3 = usize::from(packet.meta().l3);
    let (head, meta) = packet.split_mut();
    let Some(h) = Ip6Header::view_at_mut(head, l3) else { return Ip6RewriteExit::AdjacencyGone };
    let transit = meta.flags & flags::GENERATED == 0;
    if transit && h.hop_limit <= 1 {
        meta.icmp = icmp_error(icmpv6::TIME_EXCEEDED, 0);
        return Ip6RewriteExit::HopLimitExceeded;
    }
    // Below the least MTU of IPv6 a sender would not believe the error (RFC 8201 4), and the link may not carry IPv6 at
    // all (RFC 8200 5).
    let too_large = usize::from(h.payload_len.get()) + Ip6Header::LEN > usize::from(adjacency.mtu);
    if too_large && adjacency.mtu < ip6::MIN_MTU {
        return Ip6RewriteExit::LinkTooSmall;
    }
    if too_large {
        meta.icmp = icmp_error(icmpv6::PACKET_TOO_BIG, 0);
        meta.mtu = adjacency.mtu;
        return Ip6RewriteExit::PacketTooBig;
    }
    if !l2::write(packet, adjacency, eth::ETHERTYPE_IP6) {
        return Ip6RewriteExit::NoHeadroom;
    }
    let l3 = usize::from(packet.meta().l3);
    if transit && let Some(h) = Ip6Header::view_at_mut(packet.head_mut(), l3) {
        h.hop_limit = h.hop_limit.saturating_sub(1);
    }
    Ip6RewriteExit::Output
}

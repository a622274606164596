//! Lookup: destination to next hop, a batch at a time. One node for IPv4, one for IPv6.

use std::fmt;

use linerate_pipeline::{BURST, Batch, Cx, Exits, Meta, Node, Packet};
use linerate_tables::fib::{Lookup, NO_ROUTE, NextHopId};
use linerate_wire::Header;
use linerate_wire::icmp;
use linerate_wire::icmpv6;
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::Ip6Header;

use super::{ip4_input, ip6_input};
use crate::plane::{NextHop, NextHops, Plane};

linerate_pipeline::exits! {
    /// Where packets go from `ip4_lookup` and `ip6_lookup`.
    pub enum LookupExit {
        /// The adjacency is in [`Meta::adjacency`].
        Forward,
        /// For this router itself.
        Local,
        /// The neighbour's MAC address is not known: [`Meta::adjacency`] is the incomplete adjacency, or
        /// [`NO_ADJACENCY`] where the destination itself is the neighbour, on [`Meta::tx_if`].
        Resolve,
        /// No route; [`Meta::icmp`] says what error is due.
        NoRoute,
        /// The route or the neighbour is unreachable; [`Meta::icmp`] says what error is due.
        Unreachable,
        /// The route prohibits it; [`Meta::icmp`] says what error is due.
        Prohibit,
        /// The route discards it.
        Blackhole,
    }
}

/// In [`Meta::adjacency`]: none, ask for the destination itself.
pub const NO_ADJACENCY: u32 = u32::MAX;

/// What [`Meta::icmp`] holds: type and code.
pub(crate) const fn icmp_error(kind: u8, code: u8) -> u16 {
    (kind as u16) << 8 | code as u16
}

/// Looks up IPv4 destinations; ECMP groups are resolved with the flow hash.
#[derive(Clone, Debug)]
pub struct Ip4Lookup<R4> {
    fib: R4,
    next_hops: NextHops,
    seed: u64,
}

impl<R4: Clone> Ip4Lookup<R4> {
    /// A node that reads these tables. `seed` of the flow hash: the same on all workers, different between routers.
    pub fn new<R6>(plane: &Plane<R4, R6>, seed: u64) -> Self {
        Ip4Lookup { fib: plane.fib4.clone(), next_hops: plane.next_hops.clone(), seed }
    }
}

impl<P: Packet, R4: Lookup<u32> + 'static> Node<P> for Ip4Lookup<R4> {
    type Exit = LookupExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, LookupExit>) {
        let mut addresses = [0; BURST];
        for (packet, address) in batch.iter().zip(&mut addresses) {
            let l3 = usize::from(packet.meta().l3);
            *address = Ip4Header::view_at(packet.head(), l3).map_or(0, |h| h.dst.get());
        }
        let n = batch.len().min(BURST);
        let mut ids = [NO_ROUTE; BURST];
        self.fib.lookup_batch(&addresses[..n], &mut ids[..n]);
        let hash = |p: &P| ip4_input::flow_hash(p, self.seed);
        apply(&self.next_hops, &ids[..n], hash, batch, out, |reason| {
            use icmp::unreachable::{HOST, NET, PROHIBITED};
            let code = match reason {
                LookupExit::NoRoute => NET,
                LookupExit::Prohibit => PROHIBITED,
                _ => HOST,
            };
            icmp_error(icmp::UNREACHABLE, code)
        });
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write_next_hop(&self.next_hops, packet.meta(), f)
    }
}

/// Looks up IPv6 destinations; ECMP groups are resolved with the flow hash.
#[derive(Clone, Debug)]
pub struct Ip6Lookup<R6> {
    fib: R6,
    next_hops: NextHops,
    seed: u64,
}

impl<R6: Clone> Ip6Lookup<R6> {
    /// A node that reads these tables. `seed` of the flow hash: the same on all workers, different between routers.
    pub fn new<R4>(plane: &Plane<R4, R6>, seed: u64) -> Self {
        Ip6Lookup { fib: plane.fib6.clone(), next_hops: plane.next_hops.clone(), seed }
    }
}

impl<P: Packet, R6: Lookup<u128> + 'static> Node<P> for Ip6Lookup<R6> {
    type Exit = LookupExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, LookupExit>) {
        let mut addresses = [0; BURST];
        for (packet, address) in batch.iter().zip(&mut addresses) {
            let l3 = usize::from(packet.meta().l3);
            *address = Ip6Header::view_at(packet.head(), l3).map_or(0, |h| u128::from_be_bytes(h.dst));
        }
        let n = batch.len().min(BURST);
        let mut ids = [NO_ROUTE; BURST];
        self.fib.lookup_batch(&addresses[..n], &mut ids[..n]);
        let hash = |p: &P| ip6_input::flow_hash(p, self.seed);
        apply(&self.next_hops, &ids[..n], hash, batch, out, |reason| {
            use icmpv6::unreachable::{ADDRESS, NO_ROUTE, PROHIBITED};
            let code = match reason {
                LookupExit::NoRoute => NO_ROUTE,
                LookupExit::Prohibit => PROHIBITED,
                _ => ADDRESS,
            };
            icmp_error(icmpv6::UNREACHABLE, code)
        });
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write_next_hop(&self.next_hops, packet.meta(), f)
    }
}

/// Turns what the FIB said into exits and metadata.
#[inline(always)]
fn apply<P: Packet>(
    next_hops: &NextHops,
    ids: &[NextHopId],
    hash: impl Fn(&P) -> u32,
    batch: &mut Batch<P>,
    out: &mut Exits<'_, P, LookupExit>,
    error: impl Fn(LookupExit) -> u16,
) {
    out.set_all(LookupExit::Forward);
    for (i, (packet, id)) in batch.iter_mut().zip(ids).enumerate() {
        if let Some(adjacency) = next_hops.forward(*id) {
            packet.meta_mut().adjacency = adjacency;
            continue;
        }
        let next = next_hops.resolve_with(*id, || hash(packet));
        if let NextHop::Forward(adjacency) = next {
            packet.meta_mut().adjacency = adjacency;
            continue;
        }
        let exit = place(packet.meta_mut(), next);
        if matches!(exit, LookupExit::NoRoute | LookupExit::Unreachable | LookupExit::Prohibit) {
            packet.meta_mut().icmp = error(exit);
        }
        out.set(i, exit);
    }
}

fn place(meta: &mut Meta, next: NextHop) -> LookupExit {
    match next {
        NextHop::Forward(adjacency) => {
            meta.adjacency = adjacency;
            LookupExit::Forward
        }
        NextHop::Resolve(adjacency) => {
            meta.adjacency = adjacency;
            LookupExit::Resolve
        }
        NextHop::Glean(interface) => {
            (meta.adjacency, meta.tx_if) = (NO_ADJACENCY, interface);
            LookupExit::Resolve
        }
        NextHop::Local => LookupExit::Local,
        NextHop::None => LookupExit::NoRoute,
        NextHop::Unreachable => LookupExit::Unreachable,
        NextHop::Prohibit => LookupExit::Prohibit,
        NextHop::Blackhole => LookupExit::Blackhole,
    }
}

fn write_next_hop(next_hops: &NextHops, meta: &Meta, f: &mut dyn fmt::Write) -> fmt::Result {
    if meta.adjacency == NO_ADJACENCY {
        return write!(f, "on link, interface {}", meta.tx_if);
    }
    match next_hops.next_hop_ip(meta.adjacency) {
        Some(ip) => write!(f, "next hop {ip} adjacency {}", meta.adjacency),
        None => write!(f, "adjacency {}", meta.adjacency),
    }
}

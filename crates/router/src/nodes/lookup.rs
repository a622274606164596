//! Lookup: destination to next hop, a batch at a time. One node for IPv4, one for IPv6.

use std::fmt;

use arrayvec::ArrayVec;
use linerate_pipeline::meta::flags;
use linerate_pipeline::{BURST, Batch, Cx, Exits, Meta, Node, Packet, VRF_DEFAULT, VrfId};
use linerate_tables::fib::{Lookup, NO_ROUTE, NextHopId};
use linerate_tables::prefix::Address;
use linerate_wire::Header;
use linerate_wire::icmp;
use linerate_wire::icmpv6;
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::Ip6Header;

use super::{ip4_input, ip6_input};
use crate::acl::{AclLog, Direction, Filter, ListOf, PacketKey, Refused, Source};
use crate::plane::{FibSet, NextHop, NextHops, Plane, VrfFibs};

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
        /// The access list of the interface it would leave by denies it.
        AclDenied,
        /// The access list of the interface it would leave by rejects it; [`Meta::icmp`] says what error is due.
        AclRejected,
        /// It hides what the access list of the interface it would leave by asks about.
        AclUndetermined,
    }
}

/// In [`Meta::adjacency`]: none, ask for the destination itself.
pub const NO_ADJACENCY: u32 = u32::MAX;

/// What [`Meta::icmp`] holds: type and code.
pub(crate) const fn icmp_error(kind: u8, code: u8) -> u16 {
    (kind as u16) << 8 | code as u16
}

/// Looks up IPv4 destinations; ECMP groups are resolved with the flow hash.
pub struct Ip4Lookup<R4> {
    fib: R4,
    vrfs: VrfFibs<R4>,
    next_hops: NextHops,
    seed: u64,
    filter: Filter<u32>,
}

impl<R4: Clone> Ip4Lookup<R4> {
    /// A node that reads these tables. `seed` of the flow hash: the same on all workers, different between routers.
    pub(crate) fn new<R6>(plane: &Plane<R4, R6>, seed: u64, log: AclLog) -> Self {
        let filter = Filter::new(plane.acls.clone(), log);
        let (fib, vrfs) = (plane.fib4.clone(), plane.vrfs4.clone());
        Ip4Lookup { fib, vrfs, next_hops: plane.next_hops.clone(), seed, filter }
    }
}

impl<P: Packet, R4: Lookup<u32> + 'static> Node<P> for Ip4Lookup<R4> {
    type Exit = LookupExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, LookupExit>) {
        let mut addresses = [0; BURST];
        for (packet, address) in batch.iter().zip(&mut addresses) {
            let l3 = usize::from(packet.meta().l3);
            *address = Ip4Header::view_at(packet.head(), l3).map_or(0, |h| h.dst.get());
        }
        let n = batch.len().min(BURST);
        let mut ids = [NO_ROUTE; BURST];
        look_up(&self.fib, &mut self.vrfs, batch, &addresses[..n], &mut ids[..n]);
        let hash = |p: &P| ip4_input::flow_hash(p, self.seed);
        let tables = Tables { vrfs: self.vrfs.get(), next_hops: &self.next_hops };
        apply(tables, &ids[..n], &addresses, hash, batch, out, |reason| {
            use icmp::unreachable::{HOST, NET, PROHIBITED};
            let code = match reason {
                LookupExit::NoRoute => NET,
                LookupExit::Prohibit => PROHIBITED,
                _ => HOST,
            };
            icmp_error(icmp::UNREACHABLE, code)
        });
        if self.filter.is_on(Direction::Out) {
            let prohibited = icmp_error(icmp::UNREACHABLE, icmp::unreachable::PROHIBITED);
            filter(&mut self.filter, &self.next_hops, cx.now, batch, out, prohibited);
        }
    }

    fn tick(&mut self, _: &mut Cx<'_, P>, _: &mut Exits<'_, P, LookupExit>) {
        self.vrfs.get();
    }

    fn wants_tick(&self) -> bool {
        true
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write_next_hop(&self.next_hops, packet.meta(), f)
    }
}

/// Looks up IPv6 destinations; ECMP groups are resolved with the flow hash.
pub struct Ip6Lookup<R6> {
    fib: R6,
    vrfs: VrfFibs<R6>,
    next_hops: NextHops,
    seed: u64,
    filter: Filter<u128>,
}

impl<R6: Clone> Ip6Lookup<R6> {
    /// A node that reads these tables. `seed` of the flow hash: the same on all workers, different between routers.
    pub(crate) fn new<R4>(plane: &Plane<R4, R6>, seed: u64, log: AclLog) -> Self {
        let filter = Filter::new(plane.acls.clone(), log);
        let (fib, vrfs) = (plane.fib6.clone(), plane.vrfs6.clone());
        Ip6Lookup { fib, vrfs, next_hops: plane.next_hops.clone(), seed, filter }
    }
}

impl<P: Packet, R6: Lookup<u128> + 'static> Node<P> for Ip6Lookup<R6> {
    type Exit = LookupExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, LookupExit>) {
        let mut addresses = [0; BURST];
        for (packet, address) in batch.iter().zip(&mut addresses) {
            let l3 = usize::from(packet.meta().l3);
            *address = Ip6Header::view_at(packet.head(), l3).map_or(0, |h| u128::from_be_bytes(h.dst));
        }
        let n = batch.len().min(BURST);
        let mut ids = [NO_ROUTE; BURST];
        look_up(&self.fib, &mut self.vrfs, batch, &addresses[..n], &mut ids[..n]);
        let hash = |p: &P| ip6_input::flow_hash(p, self.seed);
        let tables = Tables { vrfs: self.vrfs.get(), next_hops: &self.next_hops };
        apply(tables, &ids[..n], &addresses, hash, batch, out, |reason| {
            use icmpv6::unreachable::{ADDRESS, NO_ROUTE, PROHIBITED};
            let code = match reason {
                LookupExit::NoRoute => NO_ROUTE,
                LookupExit::Prohibit => PROHIBITED,
                _ => ADDRESS,
            };
            icmp_error(icmpv6::UNREACHABLE, code)
        });
        if self.filter.is_on(Direction::Out) {
            let prohibited = icmp_error(icmpv6::UNREACHABLE, icmpv6::unreachable::PROHIBITED);
            filter(&mut self.filter, &self.next_hops, cx.now, batch, out, prohibited);
        }
    }

    fn tick(&mut self, _: &mut Cx<'_, P>, _: &mut Exits<'_, P, LookupExit>) {
        self.vrfs.get();
    }

    fn wants_tick(&self) -> bool {
        true
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write_next_hop(&self.next_hops, packet.meta(), f)
    }
}

/// Most tables that a packet is sent on to, one from the other; where routes lead in circles it ends as unreachable.
pub(super) const MAX_TABLES: usize = 4;

/// Looks up a batch's destinations, each in the table of its packet's VRF.
#[inline(always)]
pub(super) fn look_up<P: Packet, A: Address, R: Lookup<A>>(
    default: &R,
    vrfs: &mut VrfFibs<R>,
    batch: &Batch<P>,
    addresses: &[A],
    ids: &mut [NextHopId],
) {
    let others = batch.iter().fold(VRF_DEFAULT, |all, packet| all | packet.meta().vrf);
    if others == VRF_DEFAULT {
        default.lookup_batch(addresses, ids);
    } else {
        by_vrf(vrfs.get(), batch, addresses, ids);
    }
}

/// Where some are not in the default VRF: those of each VRF together.
#[inline(never)]
fn by_vrf<P: Packet, A: Address, R: Lookup<A>>(
    vrfs: &FibSet<R>,
    batch: &Batch<P>,
    addresses: &[A],
    ids: &mut [NextHopId],
) {
    let mut missing: ArrayVec<usize, BURST> = (0..addresses.len().min(BURST)).collect();
    while let Some(vrf) = missing.first().and_then(|i| batch.get(*i)).map(|p| p.meta().vrf) {
        let (mut at, mut to) = (ArrayVec::<usize, BURST>::new(), ArrayVec::<A, BURST>::new());
        missing.retain(|i| {
            let same = batch.get(*i).is_none_or(|p| p.meta().vrf == vrf);
            if same && let Some(address) = addresses.get(*i) {
                at.push(*i);
                to.push(*address);
            }
            !same
        });
        let mut found = [NO_ROUTE; BURST];
        if let (Some(fib), Some(found)) = (vrfs.get(vrf), found.get_mut(..to.len())) {
            fib.lookup_batch(&to, found);
        }
        for (i, id) in at.into_iter().zip(found) {
            if let Some(to) = ids.get_mut(i) {
                *to = id;
            }
        }
    }
}

/// Where routes that lead from one table to another are followed.
pub(super) struct Tables<'a, R> {
    pub(super) vrfs: &'a FibSet<R>,
    pub(super) next_hops: &'a NextHops,
}

impl<R> Clone for Tables<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Tables<'_, R> {}

impl<R> Tables<'_, R> {
    /// What the table of a VRF says, and those that it leads to; also in which of them that was found.
    #[inline(never)]
    pub(super) fn follow<A: Address>(&self, vrf: VrfId, address: A, hash: u32) -> (NextHop, VrfId)
    where
        R: Lookup<A>,
    {
        let mut vrf = vrf;
        for _ in 0..MAX_TABLES {
            let id = self.vrfs.get(vrf).map_or(NO_ROUTE, |fib| fib.lookup(address));
            match self.next_hops.resolve_one(id, hash) {
                NextHop::Table(next) => vrf = next,
                found => return (found, vrf),
            }
        }
        (NextHop::Unreachable, vrf)
    }
}

/// Turns what the FIB said into exits and metadata.
#[inline(always)]
fn apply<P: Packet, A: Address, R: Lookup<A>>(
    tables: Tables<'_, R>,
    ids: &[NextHopId],
    addresses: &[A],
    hash: impl Fn(&P) -> u32,
    batch: &mut Batch<P>,
    out: &mut Exits<'_, P, LookupExit>,
    error: impl Fn(LookupExit) -> u16,
) {
    out.set_all(LookupExit::Forward);
    for (i, ((packet, id), address)) in batch.iter_mut().zip(ids).zip(addresses).enumerate() {
        if let Some(adjacency) = tables.next_hops.forward(*id) {
            packet.meta_mut().adjacency = adjacency;
            continue;
        }
        let mut next = tables.next_hops.resolve_with(*id, || hash(packet));
        if let NextHop::Forward(adjacency) = next {
            packet.meta_mut().adjacency = adjacency;
            continue;
        }
        packet.meta_mut().found_in = packet.meta().vrf;
        if let NextHop::Table(vrf) = next {
            (next, packet.meta_mut().found_in) = tables.follow(vrf, *address, hash(packet));
        }
        let exit = place(packet.meta_mut(), next);
        if matches!(exit, LookupExit::NoRoute | LookupExit::Unreachable | LookupExit::Prohibit) {
            packet.meta_mut().icmp = error(exit);
        }
        out.set(i, exit);
    }
}

/// Asks the outgoing lists about packets that would be forwarded; not about what this router itself says.
fn filter<A: ListOf + PacketKey + Into<Source>, P: Packet>(
    filter: &mut Filter<A>,
    next_hops: &NextHops,
    now: u64,
    batch: &mut Batch<P>,
    out: &mut Exits<'_, P, LookupExit>,
    prohibited: u16,
) {
    let asked = |(i, packet): &(usize, &P)| {
        packet.meta().flags & flags::GENERATED == 0 && out.get(*i) == Some(LookupExit::Forward)
    };
    let wanted = batch.iter().enumerate().filter(asked).fold(0, |bits, (i, _)| bits | 1 << i);
    let interface = |packet: &P| next_hops.adjacency(packet.meta().adjacency).interface;
    let refused = filter.ask(now, Direction::Out, batch, wanted, interface, prohibited);
    Refused::each(refused.denied, |i| out.set(i, LookupExit::AclDenied));
    Refused::each(refused.rejected, |i| out.set(i, LookupExit::AclRejected));
    Refused::each(refused.undetermined, |i| out.set(i, LookupExit::AclUndetermined));
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
        NextHop::Unreachable | NextHop::Table(_) => LookupExit::Unreachable,
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

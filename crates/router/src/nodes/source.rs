//! Source validation (RFC 3704): packets whose source address nothing speaks for are dropped where an interface asks for
//! that. Behind the input nodes, which send only packets of such interfaces here.

use std::fmt;
use std::net::IpAddr;

use linerate_pipeline::interface::Interfaces;
use linerate_pipeline::{BURST, Batch, Cx, Exits, IfIndex, Interface, Node, Packet, SourceValidation, VrfId};
use linerate_tables::fib::{Lookup, NO_ROUTE, NextHopId};
use linerate_tables::prefix::Address;
use linerate_wire::Header;
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::Ip6Header;

use super::lookup::{MAX_TABLES, Tables, look_up};
use super::{ip4_input, ip6_input};
use crate::plane::{Backing, NextHops, Plane, VrfFibs};

linerate_pipeline::exits! {
    /// Where packets go from `ip4_source` and `ip6_source`.
    pub enum SourceExit {
        /// A route speaks for the source.
        Valid,
        /// None does.
        Invalid,
    }
}

/// Validates IPv4 sources.
#[derive(Clone, Debug)]
pub struct Ip4Source<R4> {
    interfaces: Interfaces,
    fib: R4,
    vrfs: VrfFibs<R4>,
    next_hops: NextHops,
}

impl<R4: Clone> Ip4Source<R4> {
    /// A node that reads these tables.
    pub fn new<R6>(plane: &Plane<R4, R6>) -> Self {
        let Plane { interfaces, fib4, vrfs4, next_hops, .. } = plane;
        let (interfaces, fib, vrfs) = (interfaces.clone(), fib4.clone(), vrfs4.clone());
        Ip4Source { interfaces, fib, vrfs, next_hops: next_hops.clone() }
    }
}

impl<P: Packet, R4: Lookup<u32> + 'static> Node<P> for Ip4Source<R4> {
    type Exit = SourceExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, SourceExit>) {
        let mut sources = [0; BURST];
        for (packet, source) in batch.iter().zip(&mut sources) {
            let l3 = usize::from(packet.meta().l3);
            *source = Ip4Header::view_at(packet.head(), l3).map_or(0, |h| h.src.get());
        }
        let n = batch.len().min(BURST);
        let mut ids = [NO_ROUTE; BURST];
        look_up(&self.fib, &mut self.vrfs, batch, &sources[..n], &mut ids[..n]);
        let tables = Tables { vrfs: self.vrfs.get(), next_hops: &self.next_hops };
        judge(tables, &mut self.interfaces, batch, &sources, &ids, out);
    }

    fn tick(&mut self, _: &mut Cx<'_, P>, _: &mut Exits<'_, P, SourceExit>) {
        self.vrfs.get();
    }

    fn wants_tick(&self) -> bool {
        true
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip4_input::write_ip4(packet, f)
    }
}

/// Validates IPv6 sources.
#[derive(Clone, Debug)]
pub struct Ip6Source<R6> {
    interfaces: Interfaces,
    fib: R6,
    vrfs: VrfFibs<R6>,
    next_hops: NextHops,
}

impl<R6: Clone> Ip6Source<R6> {
    /// A node that reads these tables.
    pub fn new<R4>(plane: &Plane<R4, R6>) -> Self {
        let Plane { interfaces, fib6, vrfs6, next_hops, .. } = plane;
        let (interfaces, fib, vrfs) = (interfaces.clone(), fib6.clone(), vrfs6.clone());
        Ip6Source { interfaces, fib, vrfs, next_hops: next_hops.clone() }
    }
}

impl<P: Packet, R6: Lookup<u128> + 'static> Node<P> for Ip6Source<R6> {
    type Exit = SourceExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, SourceExit>) {
        let mut sources = [0; BURST];
        for (packet, source) in batch.iter().zip(&mut sources) {
            let l3 = usize::from(packet.meta().l3);
            *source = Ip6Header::view_at(packet.head(), l3).map_or(0, |h| u128::from_be_bytes(h.src));
        }
        let n = batch.len().min(BURST);
        let mut ids = [NO_ROUTE; BURST];
        look_up(&self.fib, &mut self.vrfs, batch, &sources[..n], &mut ids[..n]);
        let tables = Tables { vrfs: self.vrfs.get(), next_hops: &self.next_hops };
        judge(tables, &mut self.interfaces, batch, &sources, &ids, out);
    }

    fn tick(&mut self, _: &mut Cx<'_, P>, _: &mut Exits<'_, P, SourceExit>) {
        self.vrfs.get();
    }

    fn wants_tick(&self) -> bool {
        true
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        ip6_input::write_ip6(packet, f)
    }
}

fn judge<P: Packet, A: Address, R: Lookup<A>>(
    tables: Tables<'_, R>,
    interfaces: &mut Interfaces,
    batch: &Batch<P>,
    sources: &[A],
    ids: &[NextHopId],
    out: &mut Exits<'_, P, SourceExit>,
) {
    let table = interfaces.get();
    for (i, ((packet, source), id)) in batch.iter().zip(sources).zip(ids).enumerate() {
        let index = packet.meta().rx_if;
        let valid = table.get(index).is_none_or(|f| is_valid(tables, index, f, *source, *id));
        out.set(i, if valid { SourceExit::Valid } else { SourceExit::Invalid });
    }
}

/// Whether a packet from `source`, for which the interface's table said `id`, may come in by an interface.
pub(super) fn is_valid<A: Address, R: Lookup<A>>(
    tables: Tables<'_, R>,
    index: IfIndex,
    interface: &Interface,
    source: A,
    id: NextHopId,
) -> bool {
    let by = match interface.policy.source_validation {
        SourceValidation::Off => return true,
        SourceValidation::Loose => None,
        SourceValidation::Strict => Some(index),
    };
    let mut answer = tables.next_hops.backs(id, by);
    for _ in 0..MAX_TABLES {
        let Backing::Table(vrf) = answer else { break };
        answer = tables.next_hops.backs(in_table(tables, vrf, source), by);
    }
    // A station of the interface's own networks that did not answer for a while has no way back until it does.
    answer == Backing::Yes || answer == Backing::Dead && is_on_link(interface, source)
}

fn in_table<A: Address, R: Lookup<A>>(tables: Tables<'_, R>, vrf: VrfId, source: A) -> NextHopId {
    tables.vrfs.get(vrf).map_or(NO_ROUTE, |fib| fib.lookup(source))
}

fn is_on_link<A: Address>(interface: &Interface, source: A) -> bool {
    match source.to_ip() {
        IpAddr::V4(a) => interface.on_link_ip4(a),
        IpAddr::V6(a) => interface.on_link_ip6(a),
    }
}

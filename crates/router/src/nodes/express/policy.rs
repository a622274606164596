//! What interfaces may ask for besides forwarding: validation of sources, and redirects. Only batches of such interfaces
//! come here.

use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::{BURST, Batch, Packet, SourceValidation};
use linerate_tables::fib::{Lookup, NO_ROUTE, NextHopId};
use linerate_tables::prefix::Address;

use super::super::lookup::Tables;
use super::super::source::is_valid;
use super::{Destinations, Express, Family, Picked, plain4, plain6};
use crate::plane::{FibSet, NextHops};

impl<R4: Lookup<u32>, R6: Lookup<u128>> Express<R4, R6> {
    /// Leaves those to the regular nodes that something has to be done about: their lookup finds nothing.
    #[inline(never)]
    pub(super) fn heed<P: Packet>(&mut self, batch: &Batch<P>, to_us: ToUs) {
        let Picked { families, ip4, ip6, .. } = &mut *self.picked;
        if to_us.policy().redirects {
            stay(&self.next_hops, ip4, to_us);
            stay(&self.next_hops, ip6, to_us);
        }
        let index = to_us.interface();
        let Some(interface) = self.interfaces.get().get(index) else { return };
        if to_us.policy().source_validation == SourceValidation::Off {
            return;
        }
        let of = |family| batch.iter().zip(&*families).filter(move |(_, f)| **f == family).map(|(p, _)| p);
        let (vrf, next_hops) = (to_us.vrf(), &self.next_hops);
        let tables4 = Tables { vrfs: self.vrfs4.get(), next_hops };
        let valid4 = |source, id| is_valid(tables4, index, interface, source, id);
        validate(tables4.vrfs, vrf, of(Family::Ip4).map(plain4::source), ip4, valid4);
        let tables6 = Tables { vrfs: self.vrfs6.get(), next_hops };
        let valid6 = |source, id| is_valid(tables6, index, interface, source, id);
        validate(tables6.vrfs, vrf, of(Family::Ip6).map(plain6::source), ip6, valid6);
    }
}

/// A second lookup, of the sources.
fn validate<A: Address, R: Lookup<A>>(
    vrfs: &FibSet<R>,
    vrf: linerate_pipeline::VrfId,
    sources: impl Iterator<Item = A>,
    picked: &mut Destinations<A>,
    is_valid: impl Fn(A, NextHopId) -> bool,
) {
    let (mut from, mut ids, mut n) = ([picked.to[0]; BURST], [NO_ROUTE; BURST], 0);
    for (to, source) in from.iter_mut().zip(sources) {
        *to = source;
        n += 1;
    }
    if let (Some(fib), Some(from @ [_, ..]), Some(ids)) = (vrfs.get(vrf), from.get(..n), ids.get_mut(..n)) {
        fib.lookup_batch(from, ids);
    }
    for ((source, id), out) in from.iter().zip(ids).zip(&mut picked.ids).take(n) {
        if !is_valid(*source, id) {
            *out = NO_ROUTE;
        }
    }
}

/// Leaves what may go out where it came in; of groups it is not known before the flow is hashed.
fn stay<A>(next_hops: &NextHops, picked: &mut Destinations<A>, to_us: ToUs) {
    for id in picked.ids.iter_mut().take(picked.n) {
        let elsewhere = |a| next_hops.adjacency(a).interface != to_us.interface();
        if !next_hops.forward(*id).is_some_and(elsewhere) {
            *id = NO_ROUTE;
        }
    }
}

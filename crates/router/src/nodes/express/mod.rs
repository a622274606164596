//! The express way: what nearly every packet of a loaded router needs, in one node.
//!
//! A packet that is plainly to be forwarded (untagged, to this port's own MAC address, a sound IPv4 header without options
//! or a sound IPv6 header, between global unicast addresses, with hops left, to a resolved neighbour behind an untagged
//! interface, within the MTU) is validated, looked up, rewritten and sent here, with one look at its header before the
//! lookup and one after it. Every other packet goes on to the regular nodes as it came in (at most its Ethernet padding is
//! gone, which they would cut off first); they decide what it is and say why it is dropped. So nothing here may decide
//! anything that they would decide differently: `tests/express.rs` sends the same packets both ways and compares
//! every byte.
//!
//! Access lists are asked about whole batches (`filter.rs`); where none is bound, that costs one comparison a batch.
//!
//! Bursts that packets are traced of do not come this way, so that a trace shows each step.

mod filter;
mod plain;
mod plain4;
mod plain6;
mod policy;

use std::fmt;

use linerate_pipeline::interface::{Interfaces, OwnFilter};
use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::tx::Ways;
use linerate_pipeline::{BURST, Batch, Cx, Exits, Node, Packet, PortId, SourceValidation, VRF_DEFAULT};
use linerate_tables::fib::{Lookup, NO_ROUTE, NextHopId};
use linerate_tables::prefix::Address;

use crate::acl::Acls;
use crate::plane::{Arrays, NextHops, Plane, VrfFibs};
use filter::{Lists, Met, filtered};

linerate_pipeline::exits! {
    /// Where packets go from `express`.
    pub enum ExpressExit {
        /// Not for here: as it was received.
        Regular,
    }
}

/// Forwards plain packets.
pub struct Express<R4, R6> {
    interfaces: Interfaces,
    next_hops: NextHops,
    fib4: R4,
    fib6: R6,
    vrfs4: VrfFibs<R4>,
    vrfs6: VrfFibs<R6>,
    seed: u64,
    acls: Acls,
    picked: Box<Picked>,
    lists: Box<(Lists<u32>, Lists<u128>)>,
    ways: Box<Ways>,
}

/// What is known of a batch between validation and rewrite.
struct Picked {
    families: [Family; BURST],
    ip4: Destinations<u32>,
    ip6: Destinations<u128>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Ip4,
    Ip6,
    Other,
}

/// Destinations of one family, in the order of the batch.
struct Destinations<A> {
    to: [A; BURST],
    ids: [NextHopId; BURST],
    n: usize,
}

impl<R4: Clone, R6: Clone> Express<R4, R6> {
    /// A node that reads these tables. `seed` of the flow hash: the same as that of the lookup nodes.
    pub fn new(plane: &Plane<R4, R6>, seed: u64) -> Self {
        Express {
            interfaces: plane.interfaces.clone(),
            next_hops: plane.next_hops.clone(),
            fib4: plane.fib4.clone(),
            fib6: plane.fib6.clone(),
            vrfs4: plane.vrfs4.clone(),
            vrfs6: plane.vrfs6.clone(),
            seed,
            acls: plane.acls.clone(),
            lists: Box::new((Lists::new(), Lists::new())),
            ways: Box::default(),
            picked: Box::new(Picked {
                families: [Family::Other; BURST],
                ip4: Destinations::new(0),
                ip6: Destinations::new(0),
            }),
        }
    }
}

impl<P, R4, R6> Node<P> for Express<R4, R6>
where
    P: Packet,
    R4: Lookup<u32> + 'static,
    R6: Lookup<u128> + 'static,
{
    type Exit = ExpressExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, ExpressExit>) {
        out.set_all(ExpressExit::Regular);
        let Some(rx_port) = batch.first().map(Packet::rx_port) else { return };
        let picked = &mut *self.picked;
        let table = self.interfaces.get();
        let to_us = ToUs::new(table, rx_port);
        let (fib4, fib6) = if to_us.vrf() == VRF_DEFAULT {
            (&self.fib4, &self.fib6)
        } else {
            let (vrfs4, vrfs6) = (self.vrfs4.get(), self.vrfs6.get());
            let (Some(fib4), Some(fib6)) = (vrfs4.get(to_us.vrf()), vrfs6.get(to_us.vrf())) else { return };
            (fib4, fib6)
        };
        let is_filtered = Met::new(self.acls.get(), to_us.interface()).is_some();
        if is_filtered {
            filter::pick(picked, &mut self.lists, batch, to_us, table.own_filter(), fib4);
        } else {
            picked.pick(batch, to_us, table.own_filter(), fib4, |_, _| {}, |_, _| {});
        }
        picked.ip4.look_up(fib4);
        picked.ip6.look_up(fib6);
        let policy = to_us.policy();
        if policy.source_validation != SourceValidation::Off || policy.redirects {
            self.heed(batch, to_us);
        }
        let picked = &*self.picked;
        let way = Way { arrays: self.next_hops.arrays(), next_hops: &self.next_hops, seed: self.seed };
        let ways = &mut *self.ways;
        ways.clear();
        // Lists that have come in the meantime are for the next batch: there are no keys for them.
        let met = is_filtered.then(|| Met::new(self.acls.get(), to_us.interface())).flatten();
        match met {
            None => forward_all(ways, batch, picked, &way),
            Some(met) => filtered(ways, batch, picked, &mut self.lists, met, &way),
        }
        cx.tx.send_by(rx_port, batch, ways, cx.counters);
    }

    fn tick(&mut self, _: &mut Cx<'_, P>, _: &mut Exits<'_, P, ExpressExit>) {
        self.vrfs4.get();
        self.vrfs6.get();
    }

    fn wants_tick(&self) -> bool {
        true
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "{} bytes", packet.len())
    }
}

/// Makes ready what is fine, and says where it goes. One loop per family: it keeps all it needs in registers.
fn forward_all<P: Packet>(ways: &mut Ways, batch: &mut Batch<P>, picked: &Picked, way: &Way<'_>) {
    let Picked { families, ip4, ip6, .. } = picked;
    if ip4.n == batch.len() {
        forward_ip4(ways, batch, &ip4.ids, way);
    } else if ip6.n == batch.len() {
        forward_ip6(ways, batch, &ip6.ids, way);
    } else {
        let (mut ids4, mut ids6) = (ip4.ids.iter(), ip6.ids.iter());
        forward(ways, batch.iter_mut().zip(families), |(packet, family)| match family {
            Family::Ip4 => plain4::rewrite(packet, next(&mut ids4), way),
            Family::Ip6 => plain6::rewrite(packet, next(&mut ids6), way),
            Family::Other => Err(Left::Other),
        });
    }
}

#[inline(never)]
fn forward_ip4<P: Packet>(ways: &mut Ways, batch: &mut Batch<P>, ids: &[NextHopId; BURST], way: &Way<'_>) {
    forward(ways, batch.iter_mut().zip(ids), |(packet, id)| plain4::rewrite(packet, *id, way));
}

#[inline(never)]
fn forward_ip6<P: Packet>(ways: &mut Ways, batch: &mut Batch<P>, ids: &[NextHopId; BURST], way: &Way<'_>) {
    forward(ways, batch.iter_mut().zip(ids), |(packet, id)| plain6::rewrite(packet, *id, way));
}

impl Picked {
    /// Sorts a batch: destinations of plain packets by family. Traffic comes in runs of one family, and a loop that knows
    /// one family only keeps all it needs in registers. `note4` and `note6` see each packet with its number in the family.
    #[inline(always)]
    fn pick<P: Packet>(
        &mut self,
        batch: &mut Batch<P>,
        to_us: ToUs,
        own: OwnFilter<'_>,
        fib4: &impl Lookup<u32>,
        mut note4: impl FnMut(usize, &P),
        mut note6: impl FnMut(usize, &P),
    ) {
        (self.ip4.n, self.ip6.n) = (0, 0);
        let (mut rest, mut families) = (&mut batch[..], &mut self.families[..]);
        loop {
            let n = self.ip4.take(|first, to| {
                plain4::run(rest, to, to_us, own, fib4, |j, packet| note4(first + j, packet))
            });
            (rest, families) = skip(rest, families, n, Family::Ip4);
            if rest.is_empty() {
                return;
            }
            let n = self
                .ip6
                .take(|first, to| plain6::run(rest, to, to_us, own, |j, packet| note6(first + j, packet)));
            (rest, families) = skip(rest, families, n, Family::Ip6);
            let Some(packet) = rest.first_mut() else { return };
            let family = if let Some(to) = plain4::destination(packet, to_us, own) {
                note4(self.ip4.n, packet);
                self.ip4.push(to);
                Family::Ip4
            } else if let Some(to) = plain6::destination(packet, to_us, own) {
                note6(self.ip6.n, packet);
                self.ip6.push(to);
                Family::Ip6
            } else {
                Family::Other
            };
            (rest, families) = skip(rest, families, 1, family);
        }
    }
}

/// Notes the family of the first `n` packets; what follows them.
#[inline(always)]
fn skip<'a, P>(
    packets: &'a mut [P],
    families: &'a mut [Family],
    n: usize,
    family: Family,
) -> (&'a mut [P], &'a mut [Family]) {
    let (these, others) = families.split_at_mut(n.min(families.len()));
    these.fill(family);
    (packets.get_mut(n..).unwrap_or_default(), others)
}

impl<A: Address> Destinations<A> {
    fn new(fill: A) -> Self {
        Destinations { to: [fill; BURST], ids: [NO_ROUTE; BURST], n: 0 }
    }

    #[inline(always)]
    fn look_up(&mut self, fib: &impl Lookup<A>) {
        if let (Some(to @ [_, ..]), Some(ids)) = (self.to.get(..self.n), self.ids.get_mut(..self.n)) {
            fib.lookup_batch(to, ids);
        }
    }

    /// Has the places that are free filled from the first one on, whose number `fill` is told; how many were.
    #[inline(always)]
    fn take(&mut self, fill: impl FnOnce(usize, &mut [A]) -> usize) -> usize {
        let n = fill(self.n, self.to.get_mut(self.n..).unwrap_or_default());
        self.n += n;
        n
    }

    fn push(&mut self, to: A) {
        if let Some(place) = self.to.get_mut(self.n) {
            *place = to;
            self.n += 1;
        }
    }
}

/// The next of the ids that the FIB gave.
#[inline(always)]
fn next(ids: &mut std::slice::Iter<'_, NextHopId>) -> NextHopId {
    ids.next().copied().unwrap_or(NO_ROUTE)
}

/// What a rewrite needs besides the packet.
#[derive(Clone, Copy)]
struct Way<'a> {
    arrays: Arrays<'a>,
    next_hops: &'a NextHops,
    seed: u64,
}

/// Why a packet is left to the regular nodes after its lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Anything but what follows.
    Other,
    /// It is longer than the MTU and may become fragments: what came after it must not overtake them.
    TooLong,
}

/// Asks about each packet where it goes.
#[inline(always)]
fn forward<T>(
    ways: &mut Ways,
    packets: impl Iterator<Item = T>,
    mut rewrite: impl FnMut(T) -> Result<PortId, Left>,
) {
    for (i, packet) in packets.enumerate() {
        match rewrite(packet) {
            Ok(port) => ways.leave(i, port),
            Err(Left::Other) => ways.stay(i),
            Err(Left::TooLong) => {
                ways.stay_from(i);
                break;
            }
        }
    }
}

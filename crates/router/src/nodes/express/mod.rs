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
mod plain4;
mod plain6;
mod policy;

use std::fmt;

use linerate_pipeline::interface::{Interfaces, OwnFilter};
use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::tx::Sender;
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
        let is_filtered = Met::new(self.acls.get(), to_us.interface()).is_some();
        if is_filtered {
            filter::pick(picked, &mut self.lists, batch, to_us, table.own_filter());
        } else {
            picked.pick(batch, to_us, table.own_filter(), |_, _| {}, |_, _| {});
        }
        if to_us.vrf() == VRF_DEFAULT {
            picked.ip4.look_up(&self.fib4);
            picked.ip6.look_up(&self.fib6);
        } else {
            let (vrfs4, vrfs6) = (self.vrfs4.get(), self.vrfs6.get());
            let (Some(fib4), Some(fib6)) = (vrfs4.get(to_us.vrf()), vrfs6.get(to_us.vrf())) else { return };
            picked.ip4.look_up(fib4);
            picked.ip6.look_up(fib6);
        }
        let policy = to_us.policy();
        if policy.source_validation != SourceValidation::Off || policy.redirects {
            self.heed(batch, to_us);
        }
        let picked = &*self.picked;
        let way = Way { arrays: self.next_hops.arrays(), next_hops: &self.next_hops, seed: self.seed };
        let mut sender = cx.tx.sender(rx_port, cx.counters);
        // Lists that have come in the meantime are for the next batch: there are no keys for them.
        if is_filtered && let Some(met) = Met::new(self.acls.get(), to_us.interface()) {
            return filtered(&mut sender, batch, picked, &mut self.lists, met, way);
        }
        let Picked { families, ip4, ip6 } = picked;
        if ip4.n == batch.len() {
            let mut ids = ip4.ids.iter();
            forward(&mut sender, batch, |packet| plain4::rewrite(packet, next(&mut ids), way));
        } else if ip6.n == batch.len() {
            let mut ids = ip6.ids.iter();
            forward(&mut sender, batch, |packet| plain6::rewrite(packet, next(&mut ids), way));
        } else if ip4.n + ip6.n > 0 {
            let (mut ids4, mut ids6, mut families) = (ip4.ids.iter(), ip6.ids.iter(), families.iter());
            forward(&mut sender, batch, |packet| match families.next() {
                Some(Family::Ip4) => plain4::rewrite(packet, next(&mut ids4), way),
                Some(Family::Ip6) => plain6::rewrite(packet, next(&mut ids6), way),
                _ => Err(Left::Other),
            });
        }
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

impl Picked {
    /// Sorts a batch: destinations of plain packets by family. Traffic comes in runs of one family, and a loop that knows
    /// one family only keeps all it needs in registers. `note4` and `note6` see each packet with its number in the family.
    #[inline(always)]
    fn pick<P: Packet>(
        &mut self,
        batch: &mut Batch<P>,
        to_us: ToUs,
        own: OwnFilter<'_>,
        mut note4: impl FnMut(usize, &P),
        mut note6: impl FnMut(usize, &P),
    ) {
        (self.ip4.n, self.ip6.n) = (0, 0);
        let (mut rest, mut families) = (&mut batch[..], &mut self.families[..]);
        while !rest.is_empty() {
            let n = self.ip4.take(rest, |packet| plain4::destination(packet, to_us, own), &mut note4);
            (rest, families) = skip(rest, families, n, Family::Ip4);
            let m = self.ip6.take(rest, |packet| plain6::destination(packet, to_us, own), &mut note6);
            (rest, families) = skip(rest, families, m, Family::Ip6);
            if n + m == 0 {
                (rest, families) = skip(rest, families, 1, Family::Other);
            }
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

    /// Takes the destinations of the packets at the front as long as they are of this family; how many.
    #[inline(always)]
    fn take<P>(
        &mut self,
        packets: &mut [P],
        destination: impl Fn(&mut P) -> Option<A>,
        note: &mut impl FnMut(usize, &P),
    ) -> usize {
        let first = self.n;
        let free = self.to.get_mut(first..).unwrap_or_default();
        let mut n = 0;
        for (packet, to) in packets.iter_mut().zip(free) {
            let Some(destination) = destination(packet) else { break };
            *to = destination;
            note(first + n, packet);
            n += 1;
        }
        self.n += n;
        n
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

/// Sends the packets that `rewrite` gives a port for; the others stay in the batch.
#[inline(always)]
fn forward<P: Packet>(
    sender: &mut Sender<'_, P>,
    batch: &mut Batch<P>,
    mut rewrite: impl FnMut(&mut P) -> Result<PortId, Left>,
) {
    let mut rest = Batch::new();
    let mut packets = batch.drain(..);
    while let Some(mut packet) = packets.next() {
        match rewrite(&mut packet) {
            Ok(port) => sender.send(port, packet),
            Err(left) => {
                rest.push(packet);
                if left == Left::TooLong {
                    packets.by_ref().for_each(|packet| rest.push(packet));
                }
            }
        }
    }
    drop(packets);
    if !rest.is_empty() {
        *batch = rest;
    }
}

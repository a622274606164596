//! The express way: what nearly every packet of a loaded router needs, in one node.
//!
//! A packet that is plainly to be forwarded (untagged, to this port's own MAC address, a sound IPv4 header without options
//! or a sound IPv6 header, between global unicast addresses, with hops left, to a resolved neighbour behind an untagged
//! interface, within the MTU) is validated, looked up, rewritten and sent here, with one look at its header before the
//! lookup and one after it. Every other packet goes on to the regular nodes as it came in (at most its Ethernet padding is
//! gone, which they would cut off first); they decide what it is and say why it is dropped. So nothing here may decide
//! anything that they would decide differently: the tests beside this node send the same packets both ways and compare
//! every byte.
//!
//! Bursts that packets are traced of do not come this way, so that a trace shows each step.

mod plain4;
mod plain6;
#[cfg(test)]
mod tests;

use std::fmt;

use linerate_pipeline::interface::Interfaces;
use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::{BURST, Batch, Cx, Exits, Node, Packet, PortId};
use linerate_tables::fib::{Lookup, NO_ROUTE, NextHopId};
use linerate_tables::prefix::Address;

use crate::plane::{Arrays, NextHops, Plain, Plane};

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
    seed: u64,
    picked: Box<Picked>,
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
            seed,
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
        picked.pick(batch, &ToUs::new(self.interfaces.get(), rx_port));
        let Picked { families, ip4, ip6 } = picked;
        ip4.look_up(&self.fib4);
        ip6.look_up(&self.fib6);
        let way = Way { arrays: self.next_hops.arrays(), next_hops: &self.next_hops, seed: self.seed };
        if ip4.n == batch.len() {
            forward(cx, rx_port, batch, |packet, i| plain4::rewrite(packet, ip4.id(i), &way));
        } else if ip6.n == batch.len() {
            forward(cx, rx_port, batch, |packet, i| plain6::rewrite(packet, ip6.id(i), &way));
        } else if ip4.n + ip6.n > 0 {
            let (mut next4, mut next6) = (0.., 0..);
            forward(cx, rx_port, batch, |packet, i| match families[i % BURST] {
                Family::Ip4 => plain4::rewrite(packet, ip4.id(next4.next()?), &way),
                Family::Ip6 => plain6::rewrite(packet, ip6.id(next6.next()?), &way),
                Family::Other => None,
            });
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "{} bytes", packet.len())
    }
}

impl Picked {
    /// Sorts a batch: destinations of plain packets by family.
    #[inline(always)]
    fn pick<P: Packet>(&mut self, batch: &mut Batch<P>, to_us: &ToUs) {
        let (mut n4, mut n6) = (0, 0);
        for (packet, family) in batch.iter_mut().zip(&mut self.families) {
            *family = if let Some(to) = plain4::destination(packet, to_us) {
                self.ip4.to[n4 % BURST] = to;
                n4 += 1;
                Family::Ip4
            } else if let Some(to) = plain6::destination(packet, to_us) {
                self.ip6.to[n6 % BURST] = to;
                n6 += 1;
                Family::Ip6
            } else {
                Family::Other
            };
        }
        (self.ip4.n, self.ip6.n) = (n4, n6);
    }
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

    /// What the FIB said of destination `i`.
    #[inline(always)]
    fn id(&self, i: usize) -> NextHopId {
        self.ids[i % BURST]
    }
}

/// What a rewrite needs besides the packet.
struct Way<'a> {
    arrays: Arrays<'a>,
    next_hops: &'a NextHops,
    seed: u64,
}

impl Way<'_> {
    /// The adjacency of a next hop; for a group, that of the member which the flow of `hash` goes by. `None` for anything
    /// that is not simply to be sent.
    #[inline(always)]
    fn adjacency(&self, id: NextHopId, hash: impl FnOnce() -> Option<u32>) -> Option<Plain> {
        let index = match self.arrays.forward(id) {
            Some(index) => index,
            None => self.next_hops.forward_member(id, hash)?,
        };
        self.arrays.plain(index)
    }
}

/// Sends the packets that `rewrite` gives a port for; the others stay in the batch.
#[inline(always)]
fn forward<P: Packet>(
    cx: &mut Cx<'_, P>,
    rx_port: PortId,
    batch: &mut Batch<P>,
    mut rewrite: impl FnMut(&mut P, usize) -> Option<PortId>,
) {
    let origin = cx.counters.port(rx_port);
    let mut rest = Batch::new();
    for (i, mut packet) in batch.drain(..).enumerate() {
        match rewrite(&mut packet, i) {
            Some(port) => cx.tx.send_from(origin, port, packet, cx.counters),
            None => rest.push(packet),
        }
    }
    if !rest.is_empty() {
        *batch = rest;
    }
}

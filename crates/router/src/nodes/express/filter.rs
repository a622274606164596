//! Access lists on the express way: whole batches are asked about.
//!
//! A packet that the lists plainly permit stays; it is counted when it is sent. Every other packet is left to the regular
//! nodes, which ask again, count it, and know what to do.

use linerate_pipeline::interface::OwnFilter;
use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::tx::Ways;
use linerate_pipeline::{BURST, Batch, IfIndex, Packet, PortId};
use linerate_tables::classifier::{ActionId, Key, Workspace};
use linerate_tables::fib::{Lookup, NextHopId};
use linerate_tables::prefix::Prefix;

use super::{Family, Left, Picked, Way, forward, plain4, plain6};
use crate::acl::{AclTable, Decision, Direction, ListOf, Row, Worker};
use crate::plane::Plain;

/// A family's plain packets.
pub(super) trait PlainFamily: ListOf {
    /// As the sorting of a batch names it.
    const FAMILY: Family;
    /// What lists are asked with; `None` leaves the packet to the regular nodes.
    fn key<P: Packet>(packet: &P) -> Option<Key<Self>>;
    /// The adjacency that a packet leaves by.
    fn way_out<P: Packet>(packet: &P, id: NextHopId, way: &Way<'_>) -> Option<Plain>;
    /// Makes a packet ready to leave.
    fn rewrite<P: Packet>(packet: &mut P, id: NextHopId, way: &Way<'_>) -> Result<PortId, Left>;
    /// Makes a packet ready to leave by an adjacency that is known.
    fn apply<P: Packet>(packet: &mut P, plain: Plain) -> Result<PortId, Left>;
}

impl PlainFamily for u32 {
    const FAMILY: Family = Family::Ip4;
    #[inline(always)]
    fn key<P: Packet>(packet: &P) -> Option<Key<u32>> {
        plain4::key(packet)
    }
    #[inline(always)]
    fn way_out<P: Packet>(packet: &P, id: NextHopId, way: &Way<'_>) -> Option<Plain> {
        plain4::way_out(packet, id, way)
    }
    #[inline(always)]
    fn rewrite<P: Packet>(packet: &mut P, id: NextHopId, way: &Way<'_>) -> Result<PortId, Left> {
        plain4::rewrite(packet, id, way)
    }
    #[inline(always)]
    fn apply<P: Packet>(packet: &mut P, plain: Plain) -> Result<PortId, Left> {
        plain4::apply(packet, plain)
    }
}

impl PlainFamily for u128 {
    const FAMILY: Family = Family::Ip6;
    #[inline(always)]
    fn key<P: Packet>(packet: &P) -> Option<Key<u128>> {
        plain6::key(packet)
    }
    #[inline(always)]
    fn way_out<P: Packet>(packet: &P, id: NextHopId, way: &Way<'_>) -> Option<Plain> {
        plain6::way_out(packet, id, way)
    }
    #[inline(always)]
    fn rewrite<P: Packet>(packet: &mut P, id: NextHopId, way: &Way<'_>) -> Result<PortId, Left> {
        plain6::rewrite(packet, id, way)
    }
    #[inline(always)]
    fn apply<P: Packet>(packet: &mut P, plain: Plain) -> Result<PortId, Left> {
        plain6::apply(packet, plain)
    }
}

/// What lists say about the plain packets of one family, which are numbered in the order of the batch.
pub(super) struct Lists<A: ListOf> {
    workspace: Workspace<A>,
    keys: Box<[Key<A>; BURST]>,
    /// Bit per packet that is left to the regular nodes.
    left: u64,
    /// What the incoming list says.
    input: [ActionId; BURST],
    /// Number of the outgoing list, and what it says.
    output: [(Option<u16>, ActionId); BURST],
    /// Where outgoing lists are asked: what each packet leaves by. The list of its interface has been asked, so it goes by no
    /// other one, whatever control changes meanwhile.
    leave_by: [Option<Plain>; BURST],
    /// Lengths of the packets.
    lengths: [u32; BURST],
}

/// The lists as they are for one batch.
#[derive(Clone, Copy)]
pub(super) struct Met<'a> {
    pub(super) table: &'a AclTable,
    pub(super) worker: Worker,
    /// Number of the list of the interface that the batch came in by.
    pub(super) input: Option<u16>,
    /// Its counters; none where there is no list.
    row: Row<'a>,
    /// Whether outgoing lists are asked.
    output: bool,
}

impl<'a> Met<'a> {
    /// The lists that packets which came in by an interface may meet; `None` where there is none.
    #[inline(always)]
    pub(super) fn new((table, worker): (&'a AclTable, Worker), interface: IfIndex) -> Option<Self> {
        let input = table.bound(Direction::In, interface);
        let output = table.filters_output();
        if input.is_none() && !output {
            return None;
        }
        let row = input.and_then(|number| table.list(number)).map(|list| list.row(worker));
        Some(Met { table, worker, input, row: row.unwrap_or_default(), output })
    }
}

/// Sorts a batch as [`Picked::pick`] does and takes the packets' keys, as their headers are at hand.
#[inline(never)]
pub(super) fn pick<P: Packet>(
    picked: &mut Picked,
    (lists4, lists6): &mut (Lists<u32>, Lists<u128>),
    batch: &mut Batch<P>,
    to_us: ToUs,
    own: OwnFilter<'_>,
    fib4: &impl Lookup<u32>,
) {
    (lists4.left, lists6.left) = (0, 0);
    picked.pick(
        batch,
        to_us,
        own,
        fib4,
        |j, packet| lists4.take_key(j, packet),
        |j, packet| lists6.take_key(j, packet),
    );
}

/// Asks the lists about a batch whose keys have been taken, and makes ready what they permit.
#[inline(never)]
pub(super) fn filtered<P: Packet>(
    ways: &mut Ways,
    batch: &mut Batch<P>,
    picked: &Picked,
    (lists4, lists6): &mut (Lists<u32>, Lists<u128>),
    met: Met<'_>,
    way: &Way<'_>,
) {
    let Picked { families, ip4, ip6, .. } = picked;
    let (ids4, ids6) = (ip4.ids.get(..ip4.n).unwrap_or_default(), ip6.ids.get(..ip6.n).unwrap_or_default());
    if !ids4.is_empty() {
        lists4.ask(met, batch, families, ids4, way);
    }
    if !ids6.is_empty() {
        lists6.ask(met, batch, families, ids6, way);
    }
    // Nearly always a batch is of one family and all of it is permitted.
    if ids4.len() == batch.len() && lists4.left == 0 {
        lists4.forward_all(ways, batch, ids4, met, way);
    } else if ids6.len() == batch.len() && lists6.left == 0 {
        lists6.forward_all(ways, batch, ids6, met, way);
    } else {
        let (mut ids4, mut ids6) = (ids4.iter().enumerate(), ids6.iter().enumerate());
        let (mut sent4, mut sent6) = (0, 0);
        forward(ways, batch.iter_mut().zip(families), |(packet, family)| match family {
            Family::Ip4 => lists4.forward_one(ids4.next(), met, packet, &mut sent4, way),
            Family::Ip6 => lists6.forward_one(ids6.next(), met, packet, &mut sent6, way),
            Family::Other => Err(Left::Other),
        });
        lists4.count(met, sent4);
        lists6.count(met, sent6);
    }
}

impl<A: PlainFamily> Lists<A> {
    pub(super) fn new() -> Self {
        let zero = Prefix::<A>::all().first();
        Lists {
            workspace: Workspace::default(),
            keys: Box::new([Key::new(zero, zero, 0); BURST]),
            left: 0,
            input: [0; BURST],
            output: [(None, 0); BURST],
            leave_by: [None; BURST],
            lengths: [0; BURST],
        }
    }

    /// Asks both lists about the packets of this family. `ids`: what the FIB said about each.
    #[inline(always)]
    fn ask<P: Packet>(
        &mut self,
        met: Met<'_>,
        batch: &Batch<P>,
        families: &[Family; BURST],
        ids: &[NextHopId],
        way: &Way<'_>,
    ) {
        let n = ids.len().min(BURST);
        if let Some(list) = met.input.and_then(|number| met.table.list(number)) {
            let (Some(keys), Some(input)) = (self.keys.get(..n), self.input.get_mut(..n)) else { return };
            self.workspace.lookup_batch(A::of(list), keys, input);
            self.left |= not_plain(input);
        }
        if met.output {
            let packets = of_family::<A, P>(batch, families).zip(ids);
            let mut wanted = 0;
            for (j, (((packet, id), output), leave_by)) in
                packets.zip(&mut self.output).zip(&mut self.leave_by).enumerate()
            {
                *leave_by = A::way_out(packet, *id, way);
                let number = leave_by.and_then(|by| met.table.bound(Direction::Out, by.interface()));
                *output = (number, 0);
                wanted |= u64::from(number.is_some()) << j;
            }
            self.ask_output(met, wanted);
        }
    }

    /// Takes the key and the length of packet `j` of the family.
    #[inline(always)]
    fn take_key<P: Packet>(&mut self, j: usize, packet: &P) {
        self.lengths[j % BURST] = packet.len() as u32;
        match A::key(packet) {
            Some(key) => self.keys[j % BURST] = key,
            None => self.left |= 1 << (j % BURST),
        }
    }

    /// Asks the outgoing lists about the packets whose bits are set, one list after the other.
    #[inline(never)]
    fn ask_output(&mut self, met: Met<'_>, mut wanted: u64) {
        while wanted != 0 {
            let first = wanted.trailing_zeros() as usize % BURST;
            let number = self.output[first].0;
            let of_list = |j: usize| u64::from(self.output[j].0 == number) << j;
            let these = (0..BURST).fold(0, |bits, j| bits | of_list(j)) & wanted;
            wanted &= !these;
            let Some(list) = number.and_then(|number| met.table.list(number)) else { continue };
            let (mut keys, mut n) = ([self.keys[first]; BURST], 0);
            each(these, |j| {
                keys[n % BURST] = self.keys[j % BURST];
                n += 1;
            });
            let mut found = [0; BURST];
            self.workspace.lookup_batch(A::of(list), &keys[..n], &mut found[..n]);
            let mut found = found.into_iter();
            each(these, |j| {
                let action = found.next().unwrap_or_default();
                self.output[j % BURST].1 = action;
                self.left |= u64::from(!Decision::of(action).is_plain()) << j;
            });
        }
    }

    /// Forwards a batch of this family alone, all of which is permitted, as if there were no lists, and counts it.
    #[inline(always)]
    fn forward_all<P: Packet>(
        &self,
        ways: &mut Ways,
        batch: &mut Batch<P>,
        ids: &[NextHopId],
        met: Met<'_>,
        way: &Way<'_>,
    ) {
        let mut left = 0;
        forward(ways, batch.iter_mut().zip(ids).enumerate(), |(j, (packet, id))| {
            self.rewrite(met, j, packet, *id, way).inspect_err(|why| left |= not_sent(j, *why))
        });
        let all = u64::MAX >> (BURST - ids.len().clamp(1, BURST));
        self.count(met, all & !left);
    }

    /// Makes packet `j` of the family ready to leave.
    #[inline(always)]
    fn rewrite<P: Packet>(
        &self,
        met: Met<'_>,
        j: usize,
        packet: &mut P,
        id: NextHopId,
        way: &Way<'_>,
    ) -> Result<PortId, Left> {
        if met.output {
            A::apply(packet, self.leave_by[j % BURST].ok_or(Left::Other)?)
        } else {
            A::rewrite(packet, id, way)
        }
    }

    /// Makes a packet of the family ready to leave, where the lists permit it, and notes that in `sent`. `next`: its number
    /// and what the FIB said about it.
    #[inline(always)]
    fn forward_one<P: Packet>(
        &self,
        next: Option<(usize, &NextHopId)>,
        met: Met<'_>,
        packet: &mut P,
        sent: &mut u64,
        way: &Way<'_>,
    ) -> Result<PortId, Left> {
        let (j, id) = next.ok_or(Left::Other)?;
        if self.left >> (j % BURST) & 1 != 0 {
            return Err(Left::Other);
        }
        let port = self.rewrite(met, j, packet, *id, way)?;
        *sent |= 1 << (j % BURST);
        Ok(port)
    }

    /// Counts what has been sent, a bit each: all at once, so that the counters' cache lines come at the same time.
    #[inline(always)]
    fn count(&self, met: Met<'_>, sent: u64) {
        if met.input.is_some() {
            each(sent, |j| {
                met.row.add(Decision::of(self.input[j % BURST]), self.lengths[j % BURST] as usize)
            });
        }
        if met.output {
            let (mut number, mut row) = (None, Row::default());
            each(sent, |j| {
                let (of, action) = self.output[j % BURST];
                if of != number {
                    number = of;
                    let list = number.and_then(|number| met.table.list(number));
                    row = list.map(|list| list.row(met.worker)).unwrap_or_default();
                }
                row.add(Decision::of(action), self.lengths[j % BURST] as usize);
            });
        }
    }
}

/// Which packets are not sent because number `j` was left: itself, or all from it on.
#[cold]
fn not_sent(j: usize, why: Left) -> u64 {
    let it = 1 << (j % BURST);
    match why {
        Left::Other => it,
        Left::TooLong => !(it - 1),
    }
}

/// The packets of a family.
#[inline(always)]
fn of_family<'p, A: PlainFamily, P: Packet>(
    batch: &'p Batch<P>,
    families: &'p [Family; BURST],
) -> impl Iterator<Item = &'p P> {
    batch.iter().zip(families).filter(|(_, family)| **family == A::FAMILY).map(|(packet, _)| packet)
}

/// A bit for each action that does not plainly permit. Nearly always there is none.
#[inline(always)]
fn not_plain(actions: &[ActionId]) -> u64 {
    let any = actions.iter().fold(0, |any, action| any | action);
    if Decision::of(any).is_plain() {
        return 0;
    }
    actions.iter().rev().fold(0, |bits, action| bits << 1 | u64::from(!Decision::of(*action).is_plain()))
}

/// Calls `f` with the number of each bit that is set.
#[inline(always)]
fn each(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

//! Access lists on the express way: whole batches are asked about.
//!
//! A packet that the lists plainly permit stays; it is counted when it is sent. Every other packet is left to the regular
//! nodes, which ask again, count it, and know what to do.

use linerate_pipeline::{BURST, Batch, IfIndex, Packet, PortId};
use linerate_tables::classifier::{ActionId, Key, Workspace};
use linerate_tables::fib::NextHopId;
use linerate_tables::prefix::Prefix;

use super::{Family, Left, Way, plain4, plain6};
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

impl<A: PlainFamily> Lists<A> {
    pub(super) fn new() -> Self {
        let zero = Prefix::<A>::all().first();
        Lists {
            workspace: Workspace::default(),
            keys: Box::new([Key::new(zero, zero, 0); BURST]),
            left: 0,
            input: [0; BURST],
            output: [(None, 0); BURST],
        }
    }

    /// Asks both lists about the packets of this family. `ids`: what the FIB said about each.
    #[inline(always)]
    pub(super) fn ask<P: Packet>(
        &mut self,
        met: Met<'_>,
        batch: &Batch<P>,
        families: &[Family; BURST],
        ids: &[NextHopId],
        way: &Way<'_>,
    ) {
        self.left = 0;
        let packets =
            || batch.iter().zip(families).filter(|(_, f)| **f == A::FAMILY).map(|(packet, _)| packet);
        for (j, (packet, key)) in packets().zip(self.keys.iter_mut()).enumerate() {
            match A::key(packet) {
                Some(found) => *key = found,
                None => self.left |= 1 << j,
            }
        }
        let n = ids.len().min(BURST);
        if let Some(list) = met.input.and_then(|number| met.table.list(number)) {
            self.workspace.lookup_batch(A::of(list), &self.keys[..n], &mut self.input[..n]);
            for (j, action) in self.input.iter().enumerate().take(n) {
                self.left |= u64::from(!Decision::of(*action).is_plain()) << j;
            }
        }
        if met.output {
            let numbers = packets().zip(ids).map(|(packet, id)| {
                let interface = A::way_out(packet, *id, way).map(Plain::interface);
                interface.and_then(|interface| met.table.bound(Direction::Out, interface))
            });
            let mut wanted = 0;
            for (j, (number, output)) in numbers.zip(&mut self.output).enumerate() {
                *output = (number, 0);
                wanted |= u64::from(number.is_some()) << j;
            }
            self.ask_output(met, wanted);
        }
    }

    /// Asks the outgoing lists about the packets whose bits are set, one list after the other.
    #[inline(never)]
    fn ask_output(&mut self, met: Met<'_>, mut wanted: u64) {
        while wanted != 0 {
            let first = wanted.trailing_zeros() as usize % BURST;
            let number = self.output[first].0;
            let same = |j: usize| wanted >> j & 1 != 0 && self.output[j].0 == number;
            let these = (0..BURST).filter(|j| same(*j)).fold(0u64, |bits, j| bits | 1 << j);
            wanted &= !these;
            let Some(list) = number.and_then(|number| met.table.list(number)) else { continue };
            let positions = || (0..BURST).filter(|j| these >> j & 1 != 0);
            let mut keys = [self.keys[first]; BURST];
            keys.iter_mut().zip(positions()).for_each(|(key, j)| *key = self.keys[j]);
            let (n, mut found) = (these.count_ones() as usize, [0; BURST]);
            self.workspace.lookup_batch(A::of(list), &keys[..n], &mut found[..n]);
            for (j, action) in positions().zip(found) {
                self.output[j].1 = action;
                self.left |= u64::from(!Decision::of(action).is_plain()) << j;
            }
        }
    }

    /// Makes packet `j` of the family ready to leave and counts it, where the lists permit it.
    #[inline(always)]
    pub(super) fn rewrite<P: Packet>(
        &self,
        met: Met<'_>,
        j: usize,
        packet: &mut P,
        id: NextHopId,
        way: &Way<'_>,
    ) -> Result<PortId, Left> {
        if self.left >> (j % BURST) & 1 != 0 {
            return Err(Left::Other);
        }
        let port = A::rewrite(packet, id, way)?;
        met.row.add(Decision::of(self.input[j % BURST]), packet.len());
        if met.output {
            let (number, action) = self.output[j % BURST];
            if let Some(list) = number.and_then(|number| met.table.list(number)) {
                list.row(met.worker).add(Decision::of(action), packet.len());
            }
        }
        Ok(port)
    }
}

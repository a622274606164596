//! Poptrie: the population-counting trie of Asai and Ohara ("Poptrie: A Compressed Trie with Population Count for Fast
//! and Scalable Software IP Routing Table Lookup", SIGCOMM 2015), written from the paper.
//!
//! It is the yardstick the other structures are measured against, not what the router uses. A patent on its lookup
//! is claimed (see `docs/fib.md`); the cargo feature `poptrie` leaves it out of a build.
//!
//! ```text
//!   direct table, 2^18 entries      0 │ leaf (16 bits)      1 │ word index of a node
//!   node, three 64-bit words        vector │ leafvec │ base0 (leaves), base1 (nodes)
//! ```
//!
//! Bit `v` of `vector` says that cell `v` of the node's 64 leads to another node: the nodes below are contiguous from
//! `base1`, and counting bits finds the one. Otherwise the answer is a leaf: bit `v` of `leafvec` says that a new run
//! of equal leaves starts at cell `v` (cells that lead to nodes are passed over), and counting finds the leaf from
//! `base0`. Leaves are 16-bit labels of next-hop ids.
//!
//! An update writes new leaves or nodes beside the old ones and publishes them with one store: of the bases, where the
//! node's two vectors stay as they were, else of the bases or the direct entry above.

mod encoding;

#[cfg(all(test, not(loom)))]
mod tests;

use super::{
    Change, Fib, FibError, FibMemory, Lookup, NextHopId, Refused, labels::LabelTable, strided::Writer,
};
use crate::{
    prefix::{Address, Prefix},
    qsbr::Domain,
};
use encoding::{DIRECT_BITS, NODE, Nodes};
use std::{
    marker::PhantomData,
    ops::{Shl, Shr},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Addresses a Poptrie can be built over.
pub trait Bits: Address + Shl<u32, Output = Self> + Shr<u32, Output = Self> {
    /// The lowest 64 bits.
    fn low(self) -> u64;
    /// Moved to the top of 128 bits.
    fn left_aligned(self) -> u128;
}

impl Bits for u32 {
    fn low(self) -> u64 {
        self.into()
    }
    fn left_aligned(self) -> u128 {
        u128::from(self) << 96
    }
}

impl Bits for u128 {
    fn low(self) -> u64 {
        self as u64
    }
    fn left_aligned(self) -> u128 {
        self
    }
}

/// A Poptrie's writing side.
pub struct Poptrie<A> {
    writer: Writer<Nodes>,
    family: PhantomData<fn() -> A>,
}

/// A Poptrie's reading side: one address after the other, as in the paper.
pub struct PoptrieReader<A> {
    shared: Arc<Shared>,
    family: PhantomData<fn() -> A>,
}

/// What readers touch.
pub(crate) struct Shared {
    direct: Box<[AtomicU32]>,
    words: Arc<super::arena::Words>,
    /// Label 0 stands for the default route's next hop.
    labels: LabelTable,
}

impl<A: Bits> Poptrie<A> {
    /// An empty table whose replaced memory waits for the readers of `domain`.
    pub fn new(domain: &Domain) -> Result<Self, FibError> {
        Ok(Poptrie { writer: Writer::new(Nodes::new(domain.clone())?), family: PhantomData })
    }
}

impl<A: Bits> Fib<A> for Poptrie<A> {
    type Reader = PoptrieReader<A>;

    fn reader(&self) -> PoptrieReader<A> {
        PoptrieReader { shared: Arc::clone(&self.writer.encoding.shared), family: PhantomData }
    }

    fn insert(&mut self, prefix: Prefix<A>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        self.writer.insert(key(prefix), nh)
    }

    fn withdraw(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.writer.withdraw(key(prefix))
    }

    fn apply(&mut self, changes: &[Change<A>]) -> Result<(), Refused> {
        self.writer.apply(changes, key)
    }

    fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.writer.get(key(prefix))
    }

    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Result<(), FibError> {
        self.writer.load(routes.into_iter().map(|(prefix, nh)| (key(prefix), nh)).collect())
    }

    fn len(&self) -> usize {
        self.writer.len()
    }

    fn memory(&self) -> FibMemory {
        let mut memory = self.writer.encoding.memory(self.writer.len() > 0);
        memory.control += self.writer.control_bytes();
        memory
    }
}

impl<A> Clone for PoptrieReader<A> {
    fn clone(&self) -> Self {
        PoptrieReader { shared: Arc::clone(&self.shared), family: PhantomData }
    }
}

impl<A: Bits> Lookup<A> for PoptrieReader<A> {
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let shared = &*self.shared;
        for (&addr, out) in addrs.iter().zip(out) {
            let slot = (addr >> (u32::from(A::BITS) - DIRECT_BITS)).low() as usize;
            let entry = shared.direct.get(slot).map_or(0, |entry| entry.load(Ordering::Acquire));
            let label = if entry & NODE == 0 {
                entry as u16
            } else {
                descend(shared.words.view(), entry & !NODE, addr << DIRECT_BITS)
            };
            *out = shared.labels.get(usize::from(label)).map_or(0, |id| id.load(Ordering::Relaxed));
        }
    }
}

/// Follows nodes to a leaf. `key` is the address with the bits already decided shifted out.
#[inline(always)]
fn descend<A: Bits>(view: &[AtomicU64], mut node: u32, mut key: A) -> u16 {
    // No address has more strides than this.
    for _ in 0..A::BITS {
        let v = (key >> (u32::from(A::BITS) - 6)).low() as u32 & 63;
        let vector = word(view, node);
        let bases = word(view, node.wrapping_add(2));
        // Everything up to and including cell v.
        let upto = u64::MAX >> (63 - v);
        if vector >> v & 1 == 0 {
            let leaf = (word(view, node.wrapping_add(1)) & upto).count_ones().wrapping_sub(1);
            return (word(view, (bases as u32).wrapping_add(leaf / 4)) >> (leaf % 4 * 16)) as u16;
        }
        let below = (vector & upto).count_ones() - 1;
        node = ((bases >> 32) as u32).wrapping_add(below * 3);
        key = key << 6;
    }
    0
}

#[inline(always)]
fn word(view: &[AtomicU64], at: u32) -> u64 {
    view.get(at as usize).map_or(0, |word| word.load(Ordering::Acquire))
}

fn key<A: Bits>(prefix: Prefix<A>) -> (u128, u8) {
    (prefix.first().left_aligned(), prefix.len())
}

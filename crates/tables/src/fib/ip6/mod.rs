//! The IPv6 FIB "T6": a direct table and, below it, records of six address bits each.
//!
//! ```text
//!   001 xxxxxxxxxxxxxxxxx │ 6 bits │ 6 bits │ ... │ 6 bits │ the rest
//!   direct table (2^17)    depth 20    26             62      skipping records, only where routes longer than /68 are
//!
//!   root      [ item of cell 0 | item of cell 1 ] ... [ 62 | 63 ]        the record right below a slot
//!   record    [ change word, 64 bits ][ item 0 | item 1 ][ item 2 | item 3 ] ...        64-bit words
//!   skipping  [ miss item | depth ][ low address half, masked ] and then as a record
//!   item      0 │ next hop (31 bits): a leaf      1 0 │ word index of a record      1 1 │ of a skipping record
//! ```
//!
//! Bit `c` of the change word says that cell `c` of the record's 64 differs from the cell before it, so the item of a
//! cell is found by counting bits; equal neighbours share an item. Global unicast space, `2000::/3`, enters through
//! the large direct table, so that a /32 ends exactly on a border between records; everything else (unique
//! local, link-local, multicast, what is not assigned yet) enters through 256 slots of eight bits and goes on
//! through the same records. From depth 62 on, address bits that all routes of a subtree share are skipped: a
//! host route costs one record, not ten.
//!
//! A leaf of 0 means "nothing but the default route", which is one word, so changing the default route is one store.
//! Leaves hold the next-hop id itself; only ids of 2^31 − 2^16 and above take a detour through a table of labels.
//!
//! Every update writes new records beside the old ones and publishes them with one store into the item (or direct
//! slot) above; what it replaced is reused after a grace period. A route shorter than the direct table's slots
//! changes each slot it covers with a store of its own.

mod encoding;
mod kernel;
mod portable;
mod record;
mod slots;

#[cfg(all(test, not(loom)))]
mod tests;

use super::{
    Change, Discard, Fib, FibError, FibMemory, Lookup, NextHopId, Refused, labels::LabelTable,
    strided::Writer,
};
use crate::{prefix::Prefix, qsbr::Domain};
use std::sync::{Arc, atomic::AtomicU32};

pub use kernel::Kernel;
pub(crate) use portable::{finish, lookup as lookup_portable};
pub(crate) use record::{PLAIN_LEVELS, RECORD, SKIPPING};

/// The IPv6 table's writing side.
pub struct Ip6Fib {
    writer: Writer<encoding::Records>,
    kernel: Kernel,
}

/// The IPv6 table's reading side. A thread that looks up must be a registered, online reader of the table's QSBR domain
/// and report quiescent points; one that does not may get wrong answers after updates (never worse).
#[derive(Clone)]
pub struct Ip6Reader {
    shared: Arc<Shared>,
    kernel: Kernel,
}

/// What readers touch.
pub(crate) struct Shared {
    /// 2^17 slots of global unicast space, then 256 of everything else.
    pub(crate) direct: Box<[AtomicU32]>,
    pub(crate) words: Arc<super::arena::Words>,
    pub(crate) labels: LabelTable,
    /// Next hop of `::/0`.
    pub(crate) default: AtomicU32,
}

impl Ip6Fib {
    /// An empty table whose replaced memory waits for the readers of `domain`. It costs next to nothing until it has
    /// routes: its direct table is committed page by page.
    pub fn new(domain: &Domain) -> Result<Self, FibError> {
        Ok(Ip6Fib { writer: Writer::new(encoding::Records::new(domain.clone())?), kernel: Kernel::best() })
    }

    /// The kernel that readers of this table use unless told otherwise.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// Makes replaced records whose readers have moved on available again. Updates do it by themselves when they need
    /// memory; this is for looking at [`memory`](Fib::memory) afterwards.
    pub fn reclaim(&mut self) {
        self.writer.encoding.reclaim();
    }
}

impl Ip6Reader {
    /// The kernel that does the lookups.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// The same table through another kernel; the portable one where the CPU cannot run it.
    pub fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = if kernel.is_available() { kernel } else { Kernel::Portable };
        self
    }
}

impl Fib<u128> for Ip6Fib {
    type Reader = Ip6Reader;

    fn reader(&self) -> Ip6Reader {
        Ip6Reader { shared: Arc::clone(&self.writer.encoding.shared), kernel: self.kernel }
    }

    fn insert(&mut self, prefix: Prefix<u128>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        self.writer.insert((prefix.first(), prefix.len()), nh)
    }

    fn withdraw(&mut self, prefix: Prefix<u128>) -> Option<NextHopId> {
        self.writer.withdraw((prefix.first(), prefix.len()))
    }

    fn apply(&mut self, changes: &[Change<u128>]) -> Result<(), Refused> {
        self.writer.apply(changes, |prefix| (prefix.first(), prefix.len()))
    }

    fn get(&self, prefix: Prefix<u128>) -> Option<NextHopId> {
        self.writer.get((prefix.first(), prefix.len()))
    }

    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<u128>, NextHopId)>) -> Result<(), FibError> {
        self.writer.load(routes.into_iter().map(|(p, nh)| ((p.first(), p.len()), nh)).collect())
    }

    fn len(&self) -> usize {
        self.writer.len()
    }

    fn memory(&self) -> FibMemory {
        let mut memory = self.writer.encoding.memory(self.writer.len() > 0);
        memory.control += self.writer.control_bytes();
        memory
    }

    fn compact(&mut self, discard: Discard) {
        self.writer.compact();
        self.writer.encoding.compact(discard);
    }
}

impl Lookup<u128> for Ip6Reader {
    fn lookup_batch(&self, addrs: &[u128], out: &mut [NextHopId]) {
        self.kernel.run(&self.shared, addrs, out);
    }
}

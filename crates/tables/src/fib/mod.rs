//! The forwarding information base: longest-prefix match behind one contract.
//!
//! A structure is split into a **writer** ([`Fib`], one owner, on a control thread) and any number of **readers**
//! ([`Lookup`], shared with workers, wait-free). The structure can change without its users noticing: the router is
//! written against these two traits only.

mod apply;
mod arena;
pub mod ip4;
pub mod ip6;
mod labels;
mod lists;
mod next_hops;
pub mod oracle;
#[cfg(feature = "poptrie")]
pub mod poptrie;
mod simd;
mod strided;
#[cfg(all(test, not(loom)))]
mod testing;
mod tree;

pub use apply::{Change, Refused};
pub use next_hops::MAX_NEXT_HOPS;

use crate::prefix::{Address, Prefix};

/// Index into the next-hop table that lives outside the FIB. [`NO_ROUTE`] (0) means "no route covers the address".
pub type NextHopId = u32;

/// What a lookup returns where no route, not even a default route, covers the address.
pub const NO_ROUTE: NextHopId = 0;

/// The reading half: what workers hold. Wait-free, never sees a half-made update: every answer is what the table
/// said at some moment during the call.
pub trait Lookup<A: Address>: Send + Sync {
    /// Looks up `addrs[i]` into `out[i]`; any length, both slices of the same length (the shorter one counts).
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]);

    /// Asks for the memory that the lookup of this address will begin with, without waiting for it: for whoever comes across
    /// addresses while it has something else to do before their lookup. A hint: may do nothing.
    #[inline(always)]
    fn prefetch(&self, addr: A) {
        let _ = addr;
    }

    /// Looks up one address. For control and tests: the batch form is several times faster per address.
    fn lookup(&self, addr: A) -> NextHopId {
        let mut out = [NO_ROUTE];
        self.lookup_batch(&[addr], &mut out);
        out[0]
    }
}

/// The writing half: one owner, incremental.
///
/// Updates take effect for readers at once (a single atomic store publishes each change); memory they replace is
/// reused only after every worker has passed a quiescent point (see [`crate::qsbr`]).
pub trait Fib<A: Address>: Sized {
    /// The matching reader. Cheap to clone, stays valid as long as any clone lives.
    type Reader: Lookup<A> + Clone + 'static;

    /// A reader of this table.
    fn reader(&self) -> Self::Reader;

    /// Adds a route or replaces its next hop. Returns the next hop it had. `nh` must not be [`NO_ROUTE`].
    fn insert(&mut self, prefix: Prefix<A>, nh: NextHopId) -> Result<Option<NextHopId>, FibError>;

    /// Removes a route. Returns its next hop, or `None` where the table did not have it.
    fn withdraw(&mut self, prefix: Prefix<A>) -> Option<NextHopId>;

    /// Makes changes in order: the same as [`insert`](Self::insert) and [`withdraw`](Self::withdraw) one by one, but
    /// without waiting for memory between them, so that it takes about the same time whatever the order. Batches of 64 and
    /// more are worth it; longer than some thousand gain nothing more. All changes are in effect when it returns. The
    /// first one that is refused ends the batch: those before it are made, it and those behind it are not.
    fn apply(&mut self, changes: &[Change<A>]) -> Result<(), Refused> {
        apply::one_by_one(self, changes)
    }

    /// The next hop of exactly this prefix.
    fn get(&self, prefix: Prefix<A>) -> Option<NextHopId>;

    /// Loads many routes at once, in any order, in about the time that sorting them takes. A later entry for the
    /// same prefix replaces an earlier one. On an error nothing is changed.
    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Result<(), FibError>;

    /// Number of routes.
    fn len(&self) -> usize;

    /// Whether there is no route at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in use.
    fn memory(&self) -> FibMemory;

    /// Gives back the memory of a table that once had far more routes. What it costs depends on what it had once, a millisecond
    /// or two per megabyte, so it is for quiet moments; readers notice nothing. What still waits for readers stays until the
    /// next time. A structure that has nothing to give does nothing.
    fn compact(&mut self, discard: Discard) {
        let _ = discard;
    }
}

/// Gives memory back to the kernel: whole pages among these words are zero from now on. Words are handed over that nobody reads
/// any more for what they say.
pub type Discard = fn(&[std::sync::atomic::AtomicU64]);

/// Bytes a FIB occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibMemory {
    /// What readers touch: the figure to compare with a cache size.
    pub lookup: usize,
    /// What only the writer needs (the routes themselves, free lists).
    pub control: usize,
    /// Replaced but not yet reusable: waiting for workers to pass a quiescent point.
    pub retired: usize,
}

/// Why a FIB refused a change. The table is as it was before the call.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FibError {
    /// The id 0 is reserved for "no route".
    #[error("next hop 0 is reserved for \"no route\" and cannot be installed")]
    ReservedNextHop,
    /// More distinct next hops than one table can tell apart.
    #[error("the table already uses {0} distinct next hops, the most one FIB can hold")]
    TooManyNextHops(usize),
    /// The index space of the structure is used up.
    #[error("the FIB cannot grow past {0} bytes of lookup memory")]
    Full(usize),
}

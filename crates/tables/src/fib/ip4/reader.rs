//! The readers' half: what lookups touch, and which kernel does them.

use super::{layout::SLOTS, portable};
use crate::fib::{
    FibError, Lookup, NextHopId,
    arena::{Words, zeroed},
    next_hops::Ids,
};
use std::sync::{Arc, atomic::AtomicU32};

/// Everything a lookup touches.
#[derive(Debug)]
pub(crate) struct Shared {
    direct: Box<[AtomicU32]>,
    words: Arc<Words>,
    ids: Arc<Ids>,
}

impl Shared {
    pub(crate) fn new(words: Arc<Words>, ids: Arc<Ids>) -> Result<Self, FibError> {
        Ok(Shared { direct: zeroed(SLOTS)?, words, ids })
    }

    /// One entry per /18, exactly [`SLOTS`] of them.
    #[inline]
    pub(crate) fn direct(&self) -> &[AtomicU32] {
        &self.direct
    }

    #[inline]
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    #[inline]
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }
}

/// A reader of an [`Ip4Fib`](super::Ip4Fib). A thread that looks up must be a registered, online reader of the table's
/// QSBR domain and report quiescent points; one that does not may get wrong answers after updates (never worse).
#[derive(Clone, Debug)]
pub struct Ip4Reader {
    shared: Arc<Shared>,
    kernel: Kernel,
}

/// A way to look up a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Stages of 32 scalar lookups; runs everywhere.
    Portable,
}

impl Kernel {
    /// Every kernel this CPU can run.
    pub fn available() -> Vec<Kernel> {
        vec![Kernel::Portable]
    }

    /// The fastest of [`available`](Self::available) on this CPU.
    pub fn best() -> Kernel {
        Kernel::Portable
    }

    /// As printed by `show fib` and the benchmarks.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
        }
    }
}

impl Ip4Reader {
    pub(crate) fn new(shared: Arc<Shared>, kernel: Kernel) -> Self {
        Ip4Reader { shared, kernel }
    }

    /// The kernel that does the lookups.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// The same table through another kernel; the portable one where the CPU cannot run it.
    pub fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = if Kernel::available().contains(&kernel) { kernel } else { Kernel::Portable };
        self
    }
}

impl Lookup<u32> for Ip4Reader {
    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let n = addrs.len().min(out.len());
        let (addrs, out) = (&addrs[..n], &mut out[..n]);
        match self.kernel {
            Kernel::Portable => portable::lookup(&self.shared, addrs, out),
        }
    }
}

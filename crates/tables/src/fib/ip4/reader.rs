//! The readers' half: what lookups touch, and which kernel does them.

use super::{
    batch::{self, Group, Pointers, View},
    layout::SLOTS,
    portable,
};
#[cfg(target_arch = "x86_64")]
use crate::fib::simd;
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
    /// Stages of scalar lookups in safe Rust; runs everywhere.
    Portable,
    /// Scalar loads with AVX2 arithmetic (x86-64-v3).
    Avx2,
    /// Scalar loads with AVX-512 arithmetic (needs VPOPCNTDQ): for CPUs with slow gathers.
    Avx512Loads,
    /// AVX-512 gathers and arithmetic (needs VPOPCNTDQ).
    Avx512Gather,
}

impl Kernel {
    /// Every kernel this CPU can run.
    pub fn available() -> Vec<Kernel> {
        let all = [Kernel::Portable, Kernel::Avx2, Kernel::Avx512Loads, Kernel::Avx512Gather];
        all.into_iter().filter(|kernel| kernel.is_supported()).collect()
    }

    /// The one for this CPU, from its features and its maker.
    pub fn best() -> Kernel {
        #[cfg(target_arch = "x86_64")]
        {
            if simd::ip4::has_avx512() {
                return if simd::gathers_are_fast() { Kernel::Avx512Gather } else { Kernel::Avx512Loads };
            }
            if simd::ip4::has_avx2() {
                return Kernel::Avx2;
            }
        }
        Kernel::Portable
    }

    /// As printed by `show fib` and the benchmarks.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
            Kernel::Avx2 => "avx2",
            Kernel::Avx512Loads => "avx512-loads",
            Kernel::Avx512Gather => "avx512-gather",
        }
    }

    fn is_supported(self) -> bool {
        match self {
            Kernel::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => simd::ip4::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Loads | Kernel::Avx512Gather => simd::ip4::has_avx512(),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Looks up groups of addresses, at most [`GROUPS`](super::batch::GROUPS). With `DEEP`, `found` holds the entries to
    /// start from. Says in `pointers` which lanes of `found` hold pointers now, and returns whether any does.
    #[inline(always)]
    pub(super) fn run<const DEEP: bool>(
        self,
        view: View<'_>,
        addrs: &[Group],
        found: &mut [Group],
        pointers: &mut Pointers,
    ) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => simd::ip4::loads256::<DEEP>(view, addrs, found, pointers),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Loads => simd::ip4::loads512::<DEEP>(view, addrs, found, pointers),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Gather => simd::ip4::gather512::<DEEP>(view, addrs, found, pointers),
            _ => portable::lookup::<DEEP>(view, addrs, found, pointers),
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
        self.kernel = if kernel.is_supported() { kernel } else { Kernel::Portable };
        self
    }
}

impl Lookup<u32> for Ip4Reader {
    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        let n = addrs.len().min(out.len());
        batch::lookup(&self.shared, self.kernel, &addrs[..n], &mut out[..n]);
    }

    #[inline(always)]
    fn prefetch(&self, addr: u32) {
        if let Some(entry) = self.shared.direct().get((addr >> 14) as usize) {
            simd::prefetch(entry);
        }
    }
}

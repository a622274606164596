//! Which lookup code runs on this CPU.

use super::{Shared, portable};
use crate::fib::{NextHopId, simd};

/// The lookup codes. All give the same answers; tests run each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Any CPU.
    Portable,
    /// AVX-512 with VPOPCNTDQ.
    Avx512,
}

impl Kernel {
    /// Every kernel this CPU can run.
    pub fn available() -> Vec<Kernel> {
        [Kernel::Portable, Kernel::Avx512].into_iter().filter(|kernel| kernel.is_available()).collect()
    }

    /// The fastest of [`available`](Self::available) on this CPU.
    pub fn best() -> Kernel {
        if Kernel::Avx512.is_available() { Kernel::Avx512 } else { Kernel::Portable }
    }

    pub(super) fn is_available(self) -> bool {
        match self {
            Kernel::Portable => true,
            Kernel::Avx512 => simd::ip6::is_available(),
        }
    }

    /// As printed by `show fib` and the benchmarks.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
            Kernel::Avx512 => "avx512",
        }
    }

    pub(super) fn run(self, shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
        match self {
            Kernel::Portable => portable::lookup(shared, addrs, out),
            Kernel::Avx512 => simd::ip6::lookup(shared, addrs, out),
        }
    }
}

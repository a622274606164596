//! Which lookup code runs on this CPU.

use super::{Shared, portable};
use crate::fib::{NextHopId, simd};

/// The lookup codes. All give the same answers; tests run each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Any CPU.
    Portable,
    /// AVX-512, gathers all the way: for CPUs whose gathers are fast.
    Gather512,
    /// AVX-512 for the levels most addresses need, then one by one: for CPUs whose gathers are slow.
    Mixed512,
}

impl Kernel {
    /// Every kernel this CPU can run.
    pub fn available() -> Vec<Kernel> {
        let all = [Kernel::Portable, Kernel::Gather512, Kernel::Mixed512];
        all.into_iter().filter(|kernel| kernel.is_available()).collect()
    }

    /// The fastest of [`available`](Self::available) on this CPU.
    pub fn best() -> Kernel {
        match simd::ip6::is_available() {
            true if simd::ip6::has_slow_gathers() => Kernel::Mixed512,
            true => Kernel::Gather512,
            false => Kernel::Portable,
        }
    }

    pub(super) fn is_available(self) -> bool {
        self == Kernel::Portable || simd::ip6::is_available()
    }

    /// As printed by `show fib` and the benchmarks.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
            Kernel::Gather512 => "gather512",
            Kernel::Mixed512 => "mixed512",
        }
    }

    pub(super) fn run(self, shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
        match self {
            Kernel::Portable => portable::lookup(shared, addrs, out),
            Kernel::Gather512 => simd::ip6::lookup::<true>(shared, addrs, out),
            Kernel::Mixed512 => simd::ip6::lookup::<false>(shared, addrs, out),
        }
    }
}

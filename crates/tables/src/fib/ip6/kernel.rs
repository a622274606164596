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
    /// All of them.
    pub const ALL: [Kernel; 2] = [Kernel::Portable, Kernel::Avx512];

    /// The fastest one this CPU runs.
    pub fn best() -> Self {
        if Kernel::Avx512.is_available() { Kernel::Avx512 } else { Kernel::Portable }
    }

    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        match self {
            Kernel::Portable => true,
            Kernel::Avx512 => simd::ip6::is_available(),
        }
    }

    /// Its name in figures.
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

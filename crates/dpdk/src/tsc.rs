//! The processor's time-stamp counter.

use crate::ffi;
use crate::life;

/// Cycles of the time-stamp counter since some moment in the past. Invariant on every CPU that DPDK supports.
#[inline(always)]
#[must_use]
pub fn tsc() -> u64 {
    // SAFETY: RDTSC reads a counter; every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Cycles of [`tsc`] per second, as DPDK measured it at start; 0 while DPDK is not running.
#[must_use]
pub fn tsc_hz() -> u64 {
    // SAFETY: reads a variable.
    life::running().map_or(0, |_running| unsafe { ffi::rte_get_tsc_hz() })
}

//! Vector kernels: the one place of this crate with unsafe code.
//!
//! # Why these loads are sound
//!
//! **In bounds.** Every address a kernel loads from is computed from an index clamped to the slice it was given, with
//! [`GUARD`](super::arena::GUARD) words of slack behind it, whatever the words contain. A reader that ignores QSBR gets
//! wrong answers from a reused block, never a load outside.
//!
//! **Races.** The writer publishes with atomic stores (of 32-bit entries, or of 64-bit words) while kernels load the same
//! memory with vector gathers. The language's memory model knows no atomic vector load, so the guarantee here is the
//! hardware's, and it is why this code is confined to x86-64 and to `std::arch` intrinsics, whose loads are the machine's:
//!
//! * An aligned load of 4 or 8 bytes inside a gather is performed as a single access: Intel SDM vol. 3A, 9.1.1
//!   ("guaranteed atomic operations") and AMD APM vol. 2, 7.3.2 give this for aligned accesses up to a quadword, and a
//!   gather is architecturally a sequence of element loads. All our elements are naturally aligned, so an element
//!   is never torn: it is a value some store wrote.
//! * A loaded element is only ever followed by loads whose address depends on it. x86-64 keeps loads in order with
//!   respect to each other as seen by stores of other cores; a gather's elements may be loaded in any order among each other,
//!   which no answer depends on (each lane is its own lookup).
//! * The compiler can neither assume such an intrinsic's result stable nor repeat the load: an intrinsic call is evaluated
//!   once, and between the pass over the entries and the pass over the records stands an acquire fence, which also orders
//!   the view of the arena after the entries.
//! * Words that are replaced in place (entries of quads) are reached only through a record published earlier; everything
//!   else is immutable from publication until its grace period has passed.
//!
//! Kernels are property-tested against the portable one, which uses nothing but atomics, and concurrently with a writer.

#![allow(unsafe_code, reason = "vector kernels on table memory")]

#[cfg(target_arch = "x86_64")]
pub(crate) mod ip4;
pub(crate) mod ip6;

/// Whether gathers beat single loads on this CPU: Intel's do; those of AMD up to Zen 4 are taken apart into many
/// operations (docs/fib.md has the figures).
#[cfg(target_arch = "x86_64")]
pub(crate) fn gathers_are_fast() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    (vendor.ebx, vendor.edx, vendor.ecx) == (0x756e_6547, 0x4965_6e69, 0x6c65_746e) // "GenuineIntel"
}

/// Asks for the cache line that holds `at`, without waiting for it: for a writer that will need several lines which are
/// far apart and whose places it knows early. Does nothing where the CPU has no such instruction.
#[inline(always)]
pub(crate) fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, not an access; the address is that of a live reference anyway. SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

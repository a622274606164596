//! IPv6 lookup with AVX-512: eight groups of eight lanes descend together.

use crate::fib::{NextHopId, ip6::Shared, ip6::lookup_portable};

#[cfg(target_arch = "x86_64")]
use crate::fib::{
    arena::GUARD,
    ip6::{INDEX, PLAIN_LEVELS, RECORD, SKIPPING, finish},
};
#[cfg(target_arch = "x86_64")]
use std::{arch::x86_64::*, sync::atomic::AtomicU64};

/// Whether this CPU has what [`lookup`] needs.
pub(crate) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vpopcntdq")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Looks up `addrs[i]` into `out[i]`.
pub(crate) fn lookup(shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
    let n = addrs.len().min(out.len());
    #[cfg(target_arch = "x86_64")]
    let done = if is_available() {
        let whole = n - n % LANES;
        for (addrs, out) in addrs[..whole].chunks_exact(LANES).zip(out[..whole].chunks_exact_mut(LANES)) {
            // SAFETY: the CPU has the features (checked above); both slices hold LANES elements.
            unsafe { lookup_64(shared, addrs, out) };
        }
        whole
    } else {
        0
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    lookup_portable(shared, &addrs[done..n], &mut out[done..n]);
}

#[cfg(target_arch = "x86_64")]
const LANES: usize = 64;

#[cfg(target_arch = "x86_64")]
const GROUPS: usize = LANES / 8;

/// Looks up 64 addresses.
///
/// # Safety
/// The CPU has the features named; `addrs` and `out` hold at least 64 elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512vpopcntdq")]
unsafe fn lookup_64(shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
    let mut keys = [_mm512_setzero_si512(); GROUPS];
    let mut items = [_mm512_setzero_si512(); GROUPS];
    let evens = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    let odds = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
    for g in 0..GROUPS {
        // SAFETY: group g reads addresses 8g..8g+8 of at least 64; every slot number is within the direct table:
        // below 2^17, or 2^17 plus a byte.
        unsafe {
            let from = addrs.as_ptr().add(8 * g).cast::<__m512i>();
            let (a, b) = (_mm512_loadu_si512(from), _mm512_loadu_si512(from.add(1)));
            let low = _mm512_permutex2var_epi64(a, evens, b);
            let high = _mm512_permutex2var_epi64(a, odds, b);
            let global = _mm512_cmpeq_epi64_mask(_mm512_srli_epi64(high, 61), _mm512_set1_epi64(1));
            let wide = _mm512_and_si512(_mm512_srli_epi64(high, 44), _mm512_set1_epi64((1 << 17) - 1));
            let narrow = _mm512_add_epi64(_mm512_srli_epi64(high, 56), _mm512_set1_epi64(1 << 17));
            let slot = _mm512_mask_blend_epi64(global, narrow, wide);
            let depth = _mm512_mask_blend_epi64(global, _mm512_set1_epi64(8), _mm512_set1_epi64(20));
            let up = _mm512_sllv_epi64(high, depth);
            let down = _mm512_srlv_epi64(low, _mm512_sub_epi64(_mm512_set1_epi64(64), depth));
            keys[g] = _mm512_or_si512(up, down);
            items[g] =
                _mm512_cvtepu32_epi64(_mm512_i64gather_epi32::<4>(slot, shared.direct.as_ptr().cast()));
        }
    }
    let view = shared.words.view();
    // SAFETY: the CPU has the features.
    unsafe { descend(view, &mut keys, &mut items) };
    let mut leaves = [0u32; LANES];
    for g in 0..GROUPS {
        let group = _mm512_cvtepi64_epi32(items[g]);
        // SAFETY: group g writes leaves 8g..8g+8.
        unsafe { _mm256_storeu_si256(leaves.as_mut_ptr().add(8 * g).cast(), group) };
    }
    finish(shared, view, addrs, &leaves, out);
}

/// Follows plain records until every lane has something else.
///
/// # Safety
/// The CPU has the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512vpopcntdq")]
unsafe fn descend(view: &[AtomicU64], keys: &mut [__m512i; GROUPS], items: &mut [__m512i; GROUPS]) {
    let base = view.as_ptr();
    let kind = _mm512_set1_epi64((RECORD | SKIPPING).into());
    let plain = _mm512_set1_epi64(RECORD.into());
    let index = _mm512_set1_epi64(INDEX.into());
    let limit = _mm512_set1_epi64(view.len().saturating_sub(GUARD) as i64);
    for _ in 0..PLAIN_LEVELS {
        let mut any = 0u8;
        for g in 0..GROUPS {
            let active = _mm512_cmpeq_epi64_mask(_mm512_and_si512(items[g], kind), plain);
            any |= active;
            if active == 0 {
                continue;
            }
            let at = _mm512_min_epu64(_mm512_and_si512(items[g], index), limit);
            let cell = _mm512_srli_epi64(keys[g], 58);
            keys[g] = _mm512_slli_epi64(keys[g], 6);
            // SAFETY: `at` is at most `limit`, whatever the table says (a reader that ignores grace periods may see
            // anything), so both reads end before `limit + 34`, and the view is GUARD words longer than `limit`.
            unsafe {
                let change =
                    _mm512_mask_i64gather_epi64::<8>(_mm512_setzero_si512(), active, at, base.cast::<i64>());
                let upto = _mm512_sllv_epi64(change, _mm512_xor_si512(cell, _mm512_set1_epi64(63)));
                let rank = _mm512_popcnt_epi64(upto);
                // In halves of words: the change word takes two, items count from 1.
                let half =
                    _mm512_add_epi64(_mm512_add_epi64(_mm512_add_epi64(at, at), rank), _mm512_set1_epi64(1));
                let old = _mm512_cvtepi64_epi32(items[g]);
                let next = _mm512_mask_i64gather_epi32::<4>(old, active, half, base.cast::<i32>());
                items[g] = _mm512_cvtepu32_epi64(next);
            }
        }
        if any == 0 {
            return;
        }
    }
}

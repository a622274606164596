//! IPv6 lookup with AVX-512: eight groups of eight lanes descend together.

#![allow(clippy::needless_range_loop, reason = "a group is the same place in several arrays and in a mask")]

use crate::fib::{NO_ROUTE, NextHopId, ip6::Shared, ip6::lookup_portable};

#[cfg(target_arch = "x86_64")]
use crate::fib::{
    arena::index_mask,
    ip6::{PLAIN_LEVELS, RECORD, SKIPPING, finish},
};
#[cfg(target_arch = "x86_64")]
use std::{
    arch::x86_64::*,
    sync::atomic::{AtomicU64, Ordering},
};

/// Addresses that descend together.
const LANES: usize = 64;

/// From so many addresses on, a descent of all lanes with the rest of them idle (they repeat the first address, whose way
/// is in the cache) is faster than the portable code.
#[cfg(target_arch = "x86_64")]
const WORTHWHILE: usize = 12;

/// Vectors of them.
#[cfg(target_arch = "x86_64")]
const GROUPS: usize = LANES / 8;

/// Whether this CPU has what [`lookup`] needs.
pub(crate) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vpopcntdq")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether single loads beat gathers on this CPU.
pub(crate) fn has_slow_gathers() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        !super::gathers_are_fast()
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Looks up `addrs[i]` into `out[i]`. Where `GATHER_ALL`, gathers lead to the leaf; otherwise they only look at the direct
/// table, single loads feed the vectors for the levels that most lanes need, and the rest go on one by one: for CPUs
/// whose gathers cost as much for one lane as for eight.
pub(crate) fn lookup<const GATHER_ALL: bool>(shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
    let n = addrs.len().min(out.len());
    let whole = if is_available() { n - n % LANES } else { 0 };
    #[cfg(target_arch = "x86_64")]
    for (addrs, out) in addrs[..whole].chunks_exact(LANES).zip(out[..whole].chunks_exact_mut(LANES)) {
        // SAFETY: the CPU has the features (checked above); both slices hold LANES elements.
        unsafe { lookup_64::<GATHER_ALL>(shared, addrs, out) };
    }
    let (addrs, out) = (&addrs[whole..n], &mut out[whole..n]);
    #[cfg(target_arch = "x86_64")]
    if out.len() >= WORTHWHILE && is_available() {
        let mut padded = ([addrs[0]; LANES], [NO_ROUTE; LANES]);
        padded.0[..addrs.len()].copy_from_slice(addrs);
        // SAFETY: as above.
        unsafe { lookup_64::<GATHER_ALL>(shared, &padded.0, &mut padded.1) };
        out.copy_from_slice(&padded.1[..out.len()]);
        return;
    }
    lookup_portable(shared, addrs, out);
}

/// Lanes of items and of the address bits they have not used yet.
#[cfg(target_arch = "x86_64")]
struct Lanes {
    keys: [__m512i; GROUPS],
    items: [__m512i; GROUPS],
}

/// Looks up 64 addresses.
///
/// # Safety
/// The CPU has the features named; `addrs` and `out` hold at least 64 elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512vpopcntdq,popcnt,bmi1,bmi2")]
unsafe fn lookup_64<const GATHER_ALL: bool>(shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
    // SAFETY: as promised by the caller.
    let mut lanes = unsafe { enter(shared, addrs) };
    let view = shared.words.view();
    let mut leaves = [0u32; LANES];
    // SAFETY: the CPU has the features.
    unsafe {
        let mut active = root_level::<GATHER_ALL>(view, &mut lanes);
        let levels = if GATHER_ALL { PLAIN_LEVELS } else { 1 };
        for _ in 0..levels {
            if active == 0 {
                break;
            }
            active = level::<GATHER_ALL>(view, &mut lanes, active);
        }
        for (g, &items) in lanes.items.iter().enumerate() {
            // Group g is leaves 8g..8g+8.
            _mm256_storeu_si256(leaves.as_mut_ptr().add(8 * g).cast(), _mm512_cvtepi64_epi32(items));
        }
        if active != 0 {
            one_by_one(view, &lanes.keys, &mut leaves, active);
        }
    }
    finish(shared, view, addrs, &leaves, out);
}

/// The direct table.
///
/// # Safety
/// The CPU has the features named; `addrs` holds at least 64 elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn enter(shared: &Shared, addrs: &[u128]) -> Lanes {
    let mut lanes = Lanes { keys: [_mm512_setzero_si512(); GROUPS], items: [_mm512_setzero_si512(); GROUPS] };
    let evens = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    let odds = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
    let mut slots = [_mm512_setzero_si512(); GROUPS];
    for g in 0..GROUPS {
        // SAFETY: group g reads addresses 8g..8g+8 of at least 64.
        unsafe {
            let from = addrs.as_ptr().add(8 * g).cast::<__m512i>();
            let (a, b) = (_mm512_loadu_si512(from), _mm512_loadu_si512(from.add(1)));
            let low = _mm512_permutex2var_epi64(a, evens, b);
            let high = _mm512_permutex2var_epi64(a, odds, b);
            let global = _mm512_cmpeq_epi64_mask(_mm512_srli_epi64(high, 61), _mm512_set1_epi64(1));
            let wide = _mm512_and_si512(_mm512_srli_epi64(high, 44), _mm512_set1_epi64((1 << 17) - 1));
            let narrow = _mm512_add_epi64(_mm512_srli_epi64(high, 56), _mm512_set1_epi64(1 << 17));
            slots[g] = _mm512_mask_blend_epi64(global, narrow, wide);
            let depth = _mm512_mask_blend_epi64(global, _mm512_set1_epi64(8), _mm512_set1_epi64(20));
            let up = _mm512_sllv_epi64(high, depth);
            let down = _mm512_srlv_epi64(low, _mm512_sub_epi64(_mm512_set1_epi64(64), depth));
            lanes.keys[g] = _mm512_or_si512(up, down);
        }
    }
    // SAFETY: every slot number is within the direct table: below 2^17, or 2^17 plus a byte.
    unsafe { load_halves::<true>(shared.direct.as_ptr().cast(), &slots, u64::MAX, &mut lanes.items) };
    std::sync::atomic::fence(Ordering::Acquire);
    lanes
}

/// Lanes of a group whose items name plain records.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn plain(items: __m512i) -> u8 {
    let kind = _mm512_and_si512(items, _mm512_set1_epi64((RECORD | SKIPPING).into()));
    _mm512_cmpeq_epi64_mask(kind, _mm512_set1_epi64(RECORD.into()))
}

/// Where records of a group are, masked so that [`GUARD`](crate::fib::arena::GUARD) words follow.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn places(view: &[AtomicU64], items: __m512i) -> __m512i {
    _mm512_and_si512(items, _mm512_set1_epi64(index_mask(view).into()))
}

/// Loads `base[at]` for the lanes of `mask` into `found`; the others keep what they have.
///
/// # Safety
/// The CPU has the features named, and `base[at]` is readable for every lane of `mask`, and `base[0]`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn load_halves<const GATHER: bool>(
    base: *const u32,
    at: &[__m512i; GROUPS],
    mask: u64,
    found: &mut [__m512i; GROUPS],
) {
    let lane_mask = |g: usize| (mask >> (8 * g)) as u8;
    if GATHER {
        for g in 0..GROUPS {
            if lane_mask(g) != 0 {
                let old = _mm512_cvtepi64_epi32(found[g]);
                // SAFETY: as promised by the caller.
                let next = unsafe { _mm512_mask_i64gather_epi32::<4>(old, lane_mask(g), at[g], base.cast()) };
                found[g] = _mm512_cvtepu32_epi64(next);
            }
        }
        return;
    }
    let mut index = [0u64; LANES];
    let mut loaded = [0u32; LANES];
    // SAFETY: group g is elements 8g..8g+8; lanes outside the mask read `base[0]`. Volatile, or the compiler makes these
    // loads the gathers they are here to avoid.
    unsafe {
        for g in 0..GROUPS {
            let kept = _mm512_maskz_mov_epi64(lane_mask(g), at[g]);
            _mm512_storeu_si512(index.as_mut_ptr().add(8 * g).cast(), kept);
        }
        for (loaded, &index) in loaded.iter_mut().zip(&index) {
            *loaded = base.add(index as usize).read_volatile();
        }
        for g in 0..GROUPS {
            let next = _mm512_cvtepu32_epi64(_mm256_loadu_si256(loaded.as_ptr().add(8 * g).cast()));
            found[g] = _mm512_mask_mov_epi64(found[g], lane_mask(g), next);
        }
    }
}

/// [`load_halves`] for 64-bit words.
///
/// # Safety
/// As there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn load_words<const GATHER: bool>(
    base: *const u64,
    at: &[__m512i; GROUPS],
    mask: u64,
    found: &mut [__m512i; GROUPS],
) {
    let lane_mask = |g: usize| (mask >> (8 * g)) as u8;
    if GATHER {
        for g in 0..GROUPS {
            if lane_mask(g) != 0 {
                // SAFETY: as promised by the caller.
                found[g] =
                    unsafe { _mm512_mask_i64gather_epi64::<8>(found[g], lane_mask(g), at[g], base.cast()) };
            }
        }
        return;
    }
    let mut index = [0u64; LANES];
    let mut loaded = [0u64; LANES];
    // SAFETY: as in `load_halves`.
    unsafe {
        for g in 0..GROUPS {
            let kept = _mm512_maskz_mov_epi64(lane_mask(g), at[g]);
            _mm512_storeu_si512(index.as_mut_ptr().add(8 * g).cast(), kept);
        }
        for (loaded, &index) in loaded.iter_mut().zip(&index) {
            *loaded = base.add(index as usize).read_volatile();
        }
        for g in 0..GROUPS {
            found[g] = _mm512_loadu_si512(loaded.as_ptr().add(8 * g).cast());
        }
    }
}

/// Follows root records; returns the lanes that are at plain records then.
///
/// # Safety
/// The CPU has the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
unsafe fn root_level<const GATHER: bool>(view: &[AtomicU64], lanes: &mut Lanes) -> u64 {
    let mut active = 0;
    let mut half = [_mm512_setzero_si512(); GROUPS];
    for g in 0..GROUPS {
        active |= u64::from(plain(lanes.items[g])) << (8 * g);
        let at = places(view, lanes.items[g]);
        half[g] = _mm512_add_epi64(_mm512_add_epi64(at, at), _mm512_srli_epi64(lanes.keys[g], 58));
        lanes.keys[g] = _mm512_slli_epi64(lanes.keys[g], 6);
    }
    // SAFETY: a root record is 32 words, fewer than GUARD, from where `places` says at most.
    unsafe { load_halves::<GATHER>(view.as_ptr().cast(), &half, active, &mut lanes.items) };
    still_plain(lanes, active)
}

/// Follows one record in every active lane; returns the lanes that are at plain records then.
///
/// # Safety
/// The CPU has the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512vpopcntdq")]
unsafe fn level<const GATHER: bool>(view: &[AtomicU64], lanes: &mut Lanes, active: u64) -> u64 {
    let mut at = [_mm512_setzero_si512(); GROUPS];
    let mut change = [_mm512_setzero_si512(); GROUPS];
    for g in 0..GROUPS {
        at[g] = places(view, lanes.items[g]);
    }
    // SAFETY: the change word of a record is where `places` says at most.
    unsafe { load_words::<GATHER>(view.as_ptr().cast(), &at, active, &mut change) };
    for g in 0..GROUPS {
        let cell = _mm512_srli_epi64(lanes.keys[g], 58);
        lanes.keys[g] = _mm512_slli_epi64(lanes.keys[g], 6);
        let upto = _mm512_sllv_epi64(change[g], _mm512_xor_si512(cell, _mm512_set1_epi64(63)));
        // In halves of words: the change word takes two, items count from 1.
        let item = _mm512_add_epi64(_mm512_popcnt_epi64(upto), _mm512_set1_epi64(1));
        at[g] = _mm512_add_epi64(_mm512_add_epi64(at[g], at[g]), item);
    }
    // SAFETY: a record is 33 words at most, fewer than GUARD, from where `places` says at most; the number of bits
    // counted is 64 at most, whatever the word says.
    unsafe { load_halves::<GATHER>(view.as_ptr().cast(), &at, active, &mut lanes.items) };
    still_plain(lanes, active)
}

/// Those of the active lanes that are at plain records.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn still_plain(lanes: &Lanes, active: u64) -> u64 {
    let mut left = 0;
    for (g, &items) in lanes.items.iter().enumerate() {
        left |= u64::from(plain(items)) << (8 * g);
    }
    left & active
}

/// The remaining levels of the active lanes, without gathers.
///
/// # Safety
/// The CPU has the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt,bmi1,bmi2")]
unsafe fn one_by_one(view: &[AtomicU64], keys: &[__m512i; GROUPS], items: &mut [u32; LANES], active: u64) {
    let mut rest = [0u64; LANES];
    for (g, &keys) in keys.iter().enumerate() {
        // SAFETY: group g is keys 8g..8g+8.
        unsafe { _mm512_storeu_si512(rest.as_mut_ptr().add(8 * g).cast(), keys) };
    }
    let base = view.as_ptr().cast::<u64>();
    let mask = index_mask(view);
    let mut now = active;
    // All lanes are at the same level: no key needs to be shifted and stored, the place of the cell's bits moves.
    for level in 0..PLAIN_LEVELS as u32 {
        let shift = 58u32.saturating_sub(6 * level);
        // A set of bits, not a list that is written as lanes end: where the next store goes must not depend on what the
        // last load brings, or lanes wait for each other.
        let mut then = 0;
        while now != 0 {
            let lane = now.trailing_zeros();
            now &= now - 1;
            let i = lane as usize % LANES;
            let at = (items[i] & mask) as usize;
            let cell = rest[i] >> shift;
            // SAFETY: as in `level`. Loads of words and half words that the writer stores atomically: plain aligned
            // loads are atomic on this CPU, and what is loaded second is found through what is loaded first.
            let next = unsafe {
                let change = base.add(at).read_volatile();
                let rank = (change << (!cell & 63)).count_ones() as usize;
                base.add(at).cast::<u32>().add(rank + 1).read_volatile()
            };
            items[i] = next;
            // A plain record's item: the top bits are 10, which no other signed number is as small as.
            then |= u64::from((next as i32) < (RECORD | SKIPPING) as i32) << lane;
        }
        if then == 0 {
            return;
        }
        now = then;
    }
}

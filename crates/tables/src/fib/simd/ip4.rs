//! IPv4 kernels: the stages of the portable one with vector arithmetic.
//!
//! All follow the same contract: `addrs` and `found` are groups of sixteen, at most [`GROUPS`] are looked at; `DEEP` says
//! that `found` holds entries of quads to start from (and the address's last six bits choose), otherwise the direct table is
//! looked at first. Results are next-hop indices with 0 replaced by the default; a pointer among them makes the
//! result `true` and is marked in `pointers`.

use crate::fib::ip4::{
    batch::{GROUPS, Group, LANES, Pointers, View},
    layout::Entry,
};
use std::{
    arch::{asm, x86_64::*},
    mem::MaybeUninit,
    sync::atomic::{AtomicU64, Ordering},
};

/// Masks by the upper four bits of an entry: of its low two, 1, 2 or 4 bytes.
const ITEM_MASKS: [u32; 16] = {
    let mut masks = [u32::MAX; 16];
    let mut i = 0;
    while i < 16 {
        masks[i] = 0xff;
        masks[i + 1] = 0xffff;
        i += 4;
    }
    masks
};

/// Whether the CPU can run [`loads512`] and [`gather512`].
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vpopcntdq")
        && has_avx2()
}

/// Whether the CPU can run [`loads256`].
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

/// Scalar loads, AVX-512 arithmetic: for CPUs whose gathers are slow.
pub(crate) fn loads512<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    debug_assert!(has_avx512());
    // SAFETY: the reader chooses this kernel only where `has_avx512` says so.
    unsafe { loads512_inner::<DEEP>(view, addrs, found, pointers) }
}

/// Gathers and AVX-512 arithmetic.
pub(crate) fn gather512<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    debug_assert!(has_avx512());
    // SAFETY: the reader chooses this kernel only where `has_avx512` says so.
    unsafe { gather512_inner::<DEEP>(view, addrs, found, pointers) }
}

/// Scalar loads and population counts, AVX2 for the rest.
pub(crate) fn loads256<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    debug_assert!(has_avx2());
    // SAFETY: the reader chooses this kernel only where `has_avx2` says so.
    unsafe { loads256_inner::<DEEP>(view, addrs, found, pointers) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,bmi1,bmi2,popcnt")]
fn loads512_inner<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    let n = addrs.len().min(found.len()).min(GROUPS);
    let mut scratch = Scratch::new();
    let mut at = [0u32; LANES];
    let default = _mm512_set1_epi32(view.default as i32);
    let mut any = 0;
    for step in 0..n + 3 {
        if step < n {
            scratch.entries::<DEEP>(view, step, &addrs[step], &found[step]);
        }
        if let Some(g) = step.checked_sub(1).filter(|&g| g < n) {
            scratch.first_words(view, g);
        }
        if let Some(g) = step.checked_sub(2).filter(|&g| g < n) {
            let entries = load(scratch.entry(g));
            let positions = positions::<DEEP>(&addrs[g]);
            let first = scratch.first(g);
            // SAFETY: `first` is sixteen initialised words: two vectors of eight.
            let (low, high) =
                unsafe { (_mm512_loadu_si512(first.cast()), _mm512_loadu_si512(first.add(8).cast())) };
            let cells = cells(entries, positions, low, high);
            let base = _mm512_slli_epi32::<3>(_mm512_and_si512(entries, _mm512_set1_epi32(view.mask as i32)));
            let bytes = _mm512_add_epi32(base, item_bytes(entries, cells));
            // SAFETY: `at` is sixteen 32-bit words.
            unsafe { _mm512_storeu_si512(at.as_mut_ptr().cast(), bytes) };
            for (item, &at) in found[g].iter_mut().zip(&at) {
                // SAFETY: `at` is 8 * (an index masked with `view.mask`) + 8 + at most 64 << 3, inside the guard.
                *item = unsafe { load_u32(view, at as usize) };
            }
        }
        if let Some(g) = step.checked_sub(3) {
            let (results, some) = finish512(load(scratch.entry(g)), load(&found[g]), default);
            store(&mut found[g], results);
            pointers[g] = some;
            any |= some;
        }
    }
    any != 0
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq")]
fn gather512_inner<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    let n = addrs.len().min(found.len()).min(GROUPS);
    let default = _mm512_set1_epi32(view.default as i32);
    if !DEEP {
        for (found, addrs) in found.iter_mut().zip(addrs).take(n) {
            // SAFETY: 18-bit indices into a table of 2^18 entries.
            let entries = unsafe {
                _mm512_i32gather_epi32::<4>(_mm512_srli_epi32::<14>(load(addrs)), view.direct.as_ptr().cast())
            };
            store(found, entries);
        }
    }
    let mut any = 0;
    for ((found, addrs), pointers) in found.iter_mut().zip(addrs).zip(pointers).take(n) {
        let entries = load(found);
        let base = _mm512_and_si512(entries, _mm512_set1_epi32(view.mask as i32));
        let (low, high) = (_mm512_castsi512_si256(base), _mm512_extracti64x4_epi64::<1>(base));
        let used = _mm512_movepi32_mask(entries);
        let zero = _mm512_setzero_si512();
        let words = view.words.as_ptr();
        // SAFETY: indices masked with `view.mask` lie inside `view.words`.
        let (low, high) = unsafe {
            (
                _mm512_mask_i32gather_epi64::<8>(zero, used as u8, low, words.cast()),
                _mm512_mask_i32gather_epi64::<8>(zero, (used >> 8) as u8, high, words.cast()),
            )
        };
        let bytes = item_bytes(entries, cells(entries, positions::<DEEP>(addrs), low, high));
        // Aligned 32-bit words, then the item's bytes shifted down: an item lies inside one.
        let at = _mm512_add_epi32(_mm512_slli_epi32::<1>(base), _mm512_srli_epi32::<2>(bytes));
        // SAFETY: at most 8 * (masked index) + 8 + (64 << 3) bytes from the start, inside the guard.
        let items = unsafe { _mm512_mask_i32gather_epi32::<4>(zero, used, at, words.cast()) };
        let shift = _mm512_slli_epi32::<3>(_mm512_and_si512(bytes, _mm512_set1_epi32(3)));
        let (results, some) = finish512(entries, _mm512_srlv_epi32(items, shift), default);
        store(found, results);
        *pointers = some;
        any |= some;
    }
    any != 0
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn loads256_inner<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    let n = addrs.len().min(found.len()).min(GROUPS);
    let mut scratch = Scratch::new();
    let mut any = 0;
    for step in 0..n + 3 {
        if step < n {
            scratch.entries::<DEEP>(view, step, &addrs[step], &found[step]);
        }
        if let Some(g) = step.checked_sub(1).filter(|&g| g < n) {
            for ((item, &entry), &addr) in found[g].iter_mut().zip(scratch.entry(g)).zip(&addrs[g]) {
                let base = (entry & view.mask) as usize;
                // SAFETY: a masked index lies inside `view.words`.
                let first = unsafe { view.words.get_unchecked(base) }.load(Ordering::Relaxed);
                let position = if DEEP { addr } else { addr >> 8 };
                let run = (first << (!position & 63)).count_ones();
                let plain = ((entry << 1) as i32 >> 31) as u32;
                let cell = run & !plain | position & 63 & plain;
                let byte = (cell << (entry >> Entry::SIZE_SHIFT & 3)) + (8 & !plain);
                // SAFETY: at most 8 * (masked index) + 8 + (64 << 3) bytes from the start, inside the guard.
                *item = unsafe { load_u32(view, base * 8 + byte as usize) };
            }
        }
        if let Some(g) = step.checked_sub(3) {
            pointers[g] = finish256(scratch.entry(g), view.default, &mut found[g]);
            any |= pointers[g];
        }
    }
    any != 0
}

/// Results of the stages of one block; a group's part is written before it is read.
struct Scratch {
    entries: [Group; GROUPS],
    first: [MaybeUninit<[u64; LANES]>; GROUPS],
}

impl Scratch {
    #[inline(always)]
    fn new() -> Self {
        Scratch { entries: [[0; LANES]; GROUPS], first: [const { MaybeUninit::uninit() }; GROUPS] }
    }

    /// First stage of group `g`.
    #[inline(always)]
    fn entries<const DEEP: bool>(&mut self, view: View<'_>, g: usize, addrs: &Group, given: &Group) {
        if DEEP {
            self.entries[g] = *given;
            return;
        }
        for (entry, addr) in self.entries[g].iter_mut().zip(addrs) {
            *entry = view.direct[(addr >> 14) as usize].load(Ordering::Acquire);
        }
    }

    /// Second stage: the first word of every record. Leaves load some word that nobody looks at.
    #[inline(always)]
    fn first_words(&mut self, view: View<'_>, g: usize) {
        let first = self.first[g].as_mut_ptr().cast::<u64>();
        for (i, entry) in self.entries[g].iter().enumerate() {
            // SAFETY: a masked index lies inside `view.words`; `first` has room for sixteen words.
            unsafe {
                let word: &AtomicU64 = view.words.get_unchecked((entry & view.mask) as usize);
                first.add(i).write(word.load(Ordering::Relaxed));
            }
        }
    }

    #[inline(always)]
    fn entry(&self, g: usize) -> &Group {
        &self.entries[g]
    }

    #[inline(always)]
    fn first(&self, g: usize) -> *const u64 {
        self.first[g].as_ptr().cast()
    }
}

/// Which item of its record each lane wants.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq")]
fn cells(entries: __m512i, positions: __m512i, low: __m512i, high: __m512i) -> __m512i {
    let shift = _mm512_andnot_si512(positions, _mm512_set1_epi32(63));
    let shift_low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(shift));
    let shift_high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(shift));
    let low = _mm512_cvtepi64_epi32(_mm512_popcnt_epi64(_mm512_sllv_epi64(low, shift_low)));
    let high = _mm512_cvtepi64_epi32(_mm512_popcnt_epi64(_mm512_sllv_epi64(high, shift_high)));
    let runs = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
    let plain = _mm512_test_epi32_mask(entries, _mm512_set1_epi32(Entry::PLAIN as i32));
    _mm512_mask_and_epi32(runs, plain, positions, _mm512_set1_epi32(63))
}

/// Where the item starts, in bytes from the record's first word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn item_bytes(entries: __m512i, cells: __m512i) -> __m512i {
    let size = _mm512_and_si512(_mm512_srli_epi32::<{ Entry::SIZE_SHIFT }>(entries), _mm512_set1_epi32(3));
    let bytes = _mm512_sllv_epi32(cells, size);
    let runs = _mm512_testn_epi32_mask(entries, _mm512_set1_epi32(Entry::PLAIN as i32));
    _mm512_mask_add_epi32(bytes, runs, bytes, _mm512_set1_epi32(8))
}

/// Cuts items to their size, keeps leaves, puts the default route in; and which lanes are pointers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn finish512(entries: __m512i, items: __m512i, default: __m512i) -> (__m512i, __mmask16) {
    let mask =
        _mm512_permutexvar_epi32(_mm512_srli_epi32::<{ Entry::SIZE_SHIFT }>(entries), load(&ITEM_MASKS));
    let index = _mm512_mask_and_epi32(entries, _mm512_movepi32_mask(entries), items, mask);
    let none = _mm512_testn_epi32_mask(index, index);
    (_mm512_mask_mov_epi32(index, none, default), _mm512_movepi32_mask(index))
}

/// [`finish512`] in two halves, results back into `found`.
#[inline]
#[target_feature(enable = "avx2")]
fn finish256(entries: &Group, default: u32, found: &mut Group) -> u16 {
    let default = _mm256_set1_epi32(default as i32);
    let mut pointers = 0;
    for half in [0, 8] {
        // SAFETY: eight lanes from `half` on lie inside the sixteen.
        let (entries, items, masks) = unsafe {
            (
                _mm256_loadu_si256(entries.as_ptr().add(half).cast()),
                _mm256_loadu_si256(found.as_ptr().add(half).cast()),
                _mm256_loadu_si256(ITEM_MASKS.as_ptr().cast()),
            )
        };
        // The permutation looks at three bits only: the upper half of the table repeats the lower.
        let mask =
            _mm256_permutevar8x32_epi32(masks, _mm256_srli_epi32::<{ Entry::SIZE_SHIFT as i32 }>(entries));
        let items = _mm256_and_si256(items, mask);
        let index = _mm256_blendv_epi8(entries, items, _mm256_srai_epi32::<31>(entries));
        pointers |= (_mm256_movemask_ps(_mm256_castsi256_ps(index)) as u16) << half;
        let none = _mm256_cmpeq_epi32(index, _mm256_setzero_si256());
        let results = _mm256_blendv_epi8(index, default, none);
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(found.as_mut_ptr().add(half).cast(), results) };
    }
    pointers
}

/// The six bits that choose a cell, in the low end (others above them).
#[inline]
#[target_feature(enable = "avx512f")]
fn positions<const DEEP: bool>(addrs: &Group) -> __m512i {
    if DEEP { load(addrs) } else { _mm512_srli_epi32::<8>(load(addrs)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(group: &Group) -> __m512i {
    // SAFETY: a group is sixteen 32-bit words.
    unsafe { _mm512_loadu_si512(group.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(group: &mut Group, lanes: __m512i) {
    // SAFETY: a group is sixteen 32-bit words.
    unsafe { _mm512_storeu_si512(group.as_mut_ptr().cast(), lanes) }
}

/// Four bytes at any byte offset of the arena, in one instruction: an item of one or two bytes and what follows it.
///
/// # Safety
/// `at + 4` bytes lie inside `view.words`.
#[inline(always)]
unsafe fn load_u32(view: View<'_>, at: usize) -> u32 {
    let value: u32;
    // SAFETY: inside, says the caller; the instruction only reads. Written out because the offset is not aligned, so no
    // atomic type fits, and because the compiler must not merge these loads into slow vector inserts.
    unsafe {
        asm!(
            "mov {0:e}, dword ptr [{1} + {2}]",
            out(reg) value,
            in(reg) view.words.as_ptr(),
            in(reg) at,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    value
}

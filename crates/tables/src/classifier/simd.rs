//! Vector kernels: the one place of the classifier with unsafe code.
//!
//! Tables are immutable, so there are no races to argue about. **In bounds**: a cell's number is clamped to the cells there are;
//! all else is loads from arrays of fixed size behind references. **Features**: the values [`Avx2`] and [`Avx512`] are made only
//! by functions that have looked whether the CPU has them.

#![allow(unsafe_code, reason = "vector kernels")]

use super::{
    kernel::{Cells, Portable, Steps},
    key::{Key, Shape},
    lanes::Lanes,
    lookup::{self, Column, LANES, Scratch, Sinks},
    rule::ActionId,
    table::{GROUPS, Node, Record, Table},
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Whether this CPU has what [`lookup_avx2`] needs.
pub(super) fn has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether this CPU has what [`lookup_avx512`] needs.
pub(super) fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        has_avx2()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// [`lookup::lookup`] with AVX2.
pub(super) fn lookup_avx2<A: Shape>(
    table: &Table<A>,
    scratch: &mut Scratch,
    keys: &[Key<A>],
    out: &mut [ActionId],
) {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has the features.
        return unsafe { with_avx2(table, scratch, keys, out) };
    }
    lookup::lookup(Portable, table, scratch, keys, out);
}

/// [`lookup::lookup`] with AVX-512.
pub(super) fn lookup_avx512<A: Shape>(
    table: &Table<A>,
    scratch: &mut Scratch,
    keys: &[Key<A>],
    out: &mut [ActionId],
) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the CPU has the features.
        return unsafe { with_avx512(table, scratch, keys, out) };
    }
    lookup::lookup(Portable, table, scratch, keys, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1")]
fn with_avx2<A: Shape>(table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>], out: &mut [ActionId]) {
    lookup::lookup(Avx2(()), table, scratch, keys, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,avx512f,avx512dq,avx512vl,avx512bw")]
fn with_avx512<A: Shape>(table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>], out: &mut [ActionId]) {
    lookup::lookup(Avx512(()), table, scratch, keys, out);
}

/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2(());

/// The CPU has AVX-512 F, DQ, VL and BW.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Steps for Avx2 {
    #[inline(always)]
    fn matches<L: Lanes>(self, key: &L, record: &Record<L>) -> bool {
        // SAFETY: an `Avx2` is made only where the CPU has it.
        unsafe { matches(key, record) }
    }

    #[inline(always)]
    fn visit(self, node: &Node, cells: Cells<'_>, columns: &[Column; 6], wanted: u64, to: &mut Sinks<'_>) {
        Portable.visit(node, cells, columns, wanted, to);
    }

    #[inline(always)]
    fn above(self, numbers: &[u32; LANES], than: u32) -> u64 {
        Portable.above(numbers, than)
    }
}

#[cfg(target_arch = "x86_64")]
impl Steps for Avx512 {
    #[inline(always)]
    fn matches<L: Lanes>(self, key: &L, record: &Record<L>) -> bool {
        // SAFETY: an `Avx512` is made only where the CPU has AVX2 too.
        unsafe { matches(key, record) }
    }

    #[inline(always)]
    fn visit(self, node: &Node, cells: Cells<'_>, columns: &[Column; 6], wanted: u64, to: &mut Sinks<'_>) {
        // SAFETY: an `Avx512` is made only where the CPU has it.
        unsafe { visit(node, cells, columns, wanted, to) }
    }

    #[inline(always)]
    fn above(self, numbers: &[u32; LANES], than: u32) -> u64 {
        // SAFETY: an `Avx512` is made only where the CPU has it.
        unsafe { above(numbers, than) }
    }
}

/// Bits: `(key & mask) - value` is 0. Ports: `key - first` is at most the length.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn matches<L: Lanes>(key: &L, record: &Record<L>) -> bool {
    let (key, mask, value) = (key.words(), record.mask.words(), record.value.words());
    let all_ports = L::PORTS;
    let mut outside = _mm256_setzero_si256();
    let vectors = key.chunks_exact(4).zip(mask.chunks_exact(4));
    let others = value.chunks_exact(4).zip(all_ports.words().chunks_exact(4));
    for ((key, mask), (value, ports)) in vectors.zip(others) {
        // SAFETY: each chunk is four words, 32 bytes.
        let [key, mask, value, ports] =
            unsafe { [key, mask, value, ports].map(|words| _mm256_loadu_si256(words.as_ptr().cast())) };
        let bits = _mm256_and_si256(key, _mm256_or_si256(mask, ports));
        let off = _mm256_sub_epi16(bits, value);
        outside = _mm256_or_si256(outside, _mm256_subs_epu16(off, _mm256_and_si256(mask, ports)));
    }
    _mm256_testz_si256(outside, outside) == 1
}

/// Eight elements, one by one.
///
/// # Safety
///
/// Each number is below the length.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
unsafe fn load_each(from: &[u32], numbers: __m256i) -> __m256i {
    let mut at = [0u32; 8];
    // SAFETY: eight elements.
    unsafe { _mm256_storeu_si256(at.as_mut_ptr().cast(), numbers) };
    // SAFETY: the caller keeps numbers below the length. Volatile, or the compiler makes these loads gathers, which are slow
    // on many CPUs and no faster on the others.
    let [a, b, c, d, e, f, g, h] =
        at.map(|at| unsafe { from.as_ptr().add(at as usize).read_volatile() } as i32);
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

/// The lanes with a number above this one.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
fn above(numbers: &[u32; LANES], than: u32) -> u64 {
    let than = _mm512_set1_epi32(than as i32);
    let mut bits = 0;
    for i in (0..LANES).step_by(16) {
        // SAFETY: 16 of 64 elements from a multiple of 16 on.
        let numbers = unsafe { _mm512_loadu_si512(numbers.as_ptr().add(i).cast()) };
        bits |= u64::from(_mm512_cmpgt_epu32_mask(numbers, than)) << i;
    }
    bits
}

/// A node for all keys: products, cells and comparisons of tags in vectors, then one store for each kind of hit.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
fn visit(node: &Node, cells: Cells<'_>, columns: &[Column; 6], wanted: u64, to: &mut Sinks<'_>) {
    let Cells { cells, displacements } = cells;
    let (Some(a), Some(b)) =
        (columns.get(usize::from(node.words[0])), columns.get(usize::from(node.words[1])))
    else {
        return;
    };
    if cells.is_empty() {
        return;
    }
    let [mask_a, mask_b] = node.mask.map(|m| _mm512_set1_epi64(m as i64));
    let [times_a, times_b] = node.multiplier.map(|m| _mm512_set1_epi64(m as i64));
    let shift = _mm_cvtsi32_si128(node.shift as i32);
    let to_tag = _mm_cvtsi32_si128(node.shift as i32 - 6);
    let limit = _mm256_set1_epi32(cells.len() as i32 - 1);
    let base = _mm256_set1_epi32(node.base as i32);
    let displaced = node.group_shift != 0 && !displacements.is_empty();
    let to_group = _mm_cvtsi32_si128(node.group_shift as i32);
    let groups = _mm256_set1_epi32(node.groups as i32);
    let last_group = _mm256_set1_epi32(displacements.len() as i32 - 1);
    let (mut at, mut tags, mut found) = ([0u32; LANES], [0u32; LANES], [0u32; LANES]);
    for i in (0..LANES).step_by(8) {
        if wanted >> i & 0xff == 0 {
            continue;
        }
        // SAFETY: eight of 64 elements from a multiple of eight on.
        unsafe {
            let a = _mm512_loadu_si512(a.as_ptr().add(i).cast());
            let mut product = _mm512_mullo_epi64(_mm512_and_si512(a, mask_a), times_a);
            if node.mask[1] != 0 {
                let b = _mm512_loadu_si512(b.as_ptr().add(i).cast());
                let more = _mm512_mullo_epi64(_mm512_and_si512(b, mask_b), times_b);
                product = _mm512_add_epi64(product, more);
            }
            let mut cell = _mm512_cvtepi64_epi32(_mm512_srl_epi64(product, shift));
            if displaced {
                let mixed = _mm512_xor_si512(product, _mm512_srli_epi64(product, 32));
                let mixed = _mm512_mullo_epi64(mixed, _mm512_set1_epi64(GROUPS as i64));
                let group = _mm512_cvtepi64_epi32(_mm512_srl_epi64(mixed, to_group));
                let group = _mm256_min_epu32(_mm256_add_epi32(group, groups), last_group);
                cell = _mm256_xor_si256(cell, load_each(displacements, group));
            }
            let cell = _mm256_min_epu32(_mm256_add_epi32(cell, base), limit);
            let tag = _mm512_cvtepi64_epi32(_mm512_srl_epi64(product, to_tag));
            let tag = _mm256_min_epu32(_mm256_and_si256(tag, _mm256_set1_epi32(63)), _mm256_set1_epi32(62));
            _mm256_storeu_si256(at.as_mut_ptr().add(i).cast(), cell);
            _mm256_storeu_si256(tags.as_mut_ptr().add(i).cast(), _mm256_slli_epi32(tag, 24));
        }
    }
    for (i, (found, at)) in found.as_chunks_mut::<8>().0.iter_mut().zip(at.as_chunks::<8>().0).enumerate() {
        if wanted >> (8 * i) & 0xff == 0 {
            continue;
        }
        for (found, &at) in found.iter_mut().zip(at) {
            // SAFETY: clamped to the last cell above, or 0. Volatile, or the compiler makes these loads gathers, which are
            // slow on many CPUs and no faster on the others.
            *found = unsafe { cells.as_ptr().add(at as usize).read_volatile() };
        }
    }
    let field = _mm512_set1_epi32(63 << 24);
    let mut lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for i in (0..LANES).step_by(16) {
        // SAFETY: 16 of 64 elements from a multiple of 16 on.
        let (cell, tag) = unsafe {
            (
                _mm512_loadu_si512(found.as_ptr().add(i).cast()),
                _mm512_loadu_si512(tags.as_ptr().add(i).cast()),
            )
        };
        let of = _mm512_and_si512(cell, field);
        let admitted = _mm512_cmpeq_epi32_mask(of, tag) | _mm512_cmpeq_epi32_mask(of, field);
        let hits = admitted & _mm512_test_epi32_mask(cell, cell) & (wanted >> i) as u16;
        let kind = _mm512_srli_epi32(cell, 30);
        for (which, list) in
            [&mut to.bits, &mut to.rules, &mut to.lists, &mut to.nodes].into_iter().enumerate()
        {
            let these = _mm512_mask_cmpeq_epi32_mask(hits, kind, _mm512_set1_epi32(which as i32));
            if these != 0 {
                let cells = _mm512_maskz_compress_epi32(these, cell);
                let lanes = _mm512_maskz_compress_epi32(these, lane);
                let (mut to_cells, mut to_lanes) = ([0u32; 16], [0u32; 16]);
                // SAFETY: arrays of 16 elements.
                unsafe {
                    _mm512_storeu_si512(to_cells.as_mut_ptr().cast(), cells);
                    _mm512_storeu_si512(to_lanes.as_mut_ptr().cast(), lanes);
                }
                list.append(&to_cells, &to_lanes, these.count_ones() as usize);
            }
        }
        lane = _mm512_add_epi32(lane, _mm512_set1_epi32(16));
    }
}

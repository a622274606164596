//! The lookup in safe Rust, without vector instructions of our own.
//!
//! Stages of sixteen addresses, each stage one group behind the one before: loads of different groups overlap, no stage
//! waits for the loads it depends on, and nothing branches on what an address hits.

use super::{
    batch::{GROUPS, Group, LANES, Pointers, View},
    layout::Entry,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// See [`Kernel::run`](super::Kernel).
pub(super) fn lookup<const DEEP: bool>(
    view: View<'_>,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &mut Pointers,
) -> bool {
    let mut entries = [[0u32; LANES]; GROUPS];
    let mut first = [[0u64; LANES]; GROUPS];
    let n = addrs.len().min(found.len()).min(GROUPS);
    let mut any = 0;
    for step in 0..n + 3 {
        if step < n {
            if DEEP {
                entries[step] = found[step];
            } else {
                for (entry, addr) in entries[step].iter_mut().zip(&addrs[step]) {
                    *entry = view.direct[(addr >> 14) as usize].load(Ordering::Acquire);
                }
            }
        }
        if let Some(g) = step.checked_sub(1).filter(|&g| g < n) {
            for (first, entry) in first[g].iter_mut().zip(&entries[g]) {
                *first = word(view.words, entry & Entry::AT_MASK);
            }
        }
        if let Some(g) = step.checked_sub(2).filter(|&g| g < n) {
            items::<DEEP>(view.words, &entries[g], &first[g], &addrs[g], &mut found[g]);
        }
        if let Some(g) = step.checked_sub(3) {
            let all = finish(&entries[g], view.default, &mut found[g]);
            any |= all;
            if Entry(all).is_pointer() {
                let bit = |(lane, &found): (usize, &u32)| u16::from(Entry(found).is_pointer()) << lane;
                pointers[g] = found[g].iter().enumerate().map(bit).fold(0, |a, b| a | b);
            }
        }
    }
    Entry(any).is_pointer()
}

/// Which item of its record each address has, and the four bytes that start with it.
#[inline(always)]
fn items<const DEEP: bool>(
    words: &[AtomicU64],
    entries: &Group,
    first: &[u64; LANES],
    addrs: &Group,
    items: &mut Group,
) {
    for (((item, &first), &entry), &addr) in items.iter_mut().zip(first).zip(entries).zip(addrs) {
        let position = if DEEP { addr } else { addr >> 8 };
        let run = (first << (!position & 63)).count_ones();
        // All ones for a plain array, which is indexed by position and has no change word to skip.
        let plain = ((entry << 1) as i32 >> 31) as u32;
        let cell = run & !plain | position & 63 & plain;
        let byte = cell << (entry >> Entry::SIZE_SHIFT & 3);
        let at = (entry & Entry::AT_MASK).wrapping_add(1).wrapping_add(plain) + (byte >> 3);
        *item = (word(words, at) >> (byte << 3 & 63)) as u32;
    }
}

/// Cuts items to their size, keeps leaves, puts the default route in. Returns all results or'ed.
#[inline(always)]
fn finish(entries: &Group, default: u32, found: &mut Group) -> u32 {
    let mut all = 0;
    for (found, &entry) in found.iter_mut().zip(entries) {
        let pointer = (entry as i32 >> 31) as u32;
        let bits = 8u32 << (entry >> Entry::SIZE_SHIFT & 3);
        let item = *found & (u32::MAX >> (32u32.wrapping_sub(bits) & 31));
        let index = item & pointer | entry & !pointer;
        all |= index;
        *found = if index == 0 { default } else { index };
    }
    all
}

#[inline(always)]
fn word(words: &[AtomicU64], at: u32) -> u64 {
    words.get(at as usize).map_or(0, |word| word.load(Ordering::Relaxed))
}

//! The lookup without vector instructions: the same stages, 32 addresses at a time.
//!
//! Each stage is a loop of independent loads, so the processor keeps many of them in flight; the next stage finds them
//! in cache. There is no branch on what an address hits except for /24s with longer routes, which are collected and go
//! through the same stages once more.

use super::{
    layout::{Entry, SLOTS},
    reader::Shared,
};
use crate::fib::{NO_ROUTE, NextHopId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Addresses in flight. 16 and 64 are slower on the hosts measured (docs/fib.md).
const FLIGHT: usize = 32;

/// Looks up as many addresses as both slices have.
pub(super) fn lookup(table: &Shared, addrs: &[u32], out: &mut [NextHopId]) {
    let Ok(direct) = <&[AtomicU32; SLOTS]>::try_from(table.direct()) else { return };
    for (addrs, out) in addrs.chunks(FLIGHT).zip(out.chunks_mut(FLIGHT)) {
        let mut entries = [0u32; FLIGHT];
        for (entry, addr) in entries.iter_mut().zip(addrs) {
            *entry = direct[(addr >> 14) as usize].load(Ordering::Acquire);
        }
        // After the entries: so the view has every block they point at.
        let words = table.words().view();
        let mut found = [0u32; FLIGHT];
        records(words, &entries, addrs, 8, &mut found);
        let n = addrs.len().min(FLIGHT);
        if found[..n].iter().any(|&f| Entry(f).is_pointer()) {
            deep(words, addrs, &mut found);
        }
        resolve(table, &found, out);
    }
}

/// Follows every entry that points at a record, by bits `shift..shift + 6` of its address; leaves stay.
#[inline(always)]
fn records(
    words: &[AtomicU64],
    entries: &[u32; FLIGHT],
    addrs: &[u32],
    shift: u32,
    found: &mut [u32; FLIGHT],
) {
    let word = |at: usize| words.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
    let mut first = [0u64; FLIGHT];
    for (first, &entry) in first.iter_mut().zip(entries).take(addrs.len()) {
        *first = word(record_at(entry));
    }
    for (((found, &first), &entry), &addr) in found.iter_mut().zip(&first).zip(entries).zip(addrs) {
        let position = addr >> shift & 63;
        let run = (first << (63 - position)).count_ones();
        let plain = entry & Entry::PLAIN != 0;
        let log2_size = entry >> Entry::SIZE_SHIFT & 3;
        let byte = if plain { position } else { run } << log2_size;
        let items = record_at(entry) + usize::from(!plain);
        let item = word(items + (byte >> 3) as usize) >> ((byte & 7) * 8);
        let item = (item & !(u64::MAX << (8 << log2_size))) as u32;
        *found = if Entry(entry).is_pointer() { item } else { entry };
    }
}

/// The second round: quads and records of the /24s that have longer routes.
#[inline(never)]
fn deep(words: &[AtomicU64], addrs: &[u32], found: &mut [u32; FLIGHT]) {
    let mut lanes = [0u8; FLIGHT];
    let mut n = 0;
    for (lane, &entry) in found.iter().enumerate().take(addrs.len()) {
        lanes[n.min(FLIGHT - 1)] = lane as u8;
        n += usize::from(Entry(entry).is_pointer());
    }
    let lanes = &lanes[..n.min(FLIGHT)];
    let mut inside = [0u32; FLIGHT];
    let mut entries = [0u32; FLIGHT];
    for ((inside, entry), &lane) in inside.iter_mut().zip(&mut entries).zip(lanes) {
        let lane = usize::from(lane);
        let (Some(&addr), Some(&quad)) = (addrs.get(lane), found.get(lane)) else { continue };
        *inside = addr;
        let at = Entry(quad).at() as usize + (addr >> 7 & 1) as usize;
        // Acquire: this entry is replaced in place, and leads to a record.
        let pair = words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        *entry = (pair >> (addr >> 6 & 1) * 32) as u32;
    }
    let mut ends = [0u32; FLIGHT];
    records(words, &entries, &inside[..lanes.len()], 0, &mut ends);
    for (&lane, &end) in lanes.iter().zip(&ends) {
        if let Some(found) = found.get_mut(usize::from(lane)) {
            *found = end;
        }
    }
}

/// From next-hop indices to ids.
#[inline(always)]
fn resolve(table: &Shared, found: &[u32; FLIGHT], out: &mut [NextHopId]) {
    if table.ids().translated() {
        let ids = table.ids().table();
        for (out, &index) in out.iter_mut().zip(found) {
            *out = ids.get(index as usize).map_or(NO_ROUTE, |id| id.load(Ordering::Relaxed));
        }
    } else {
        let default = table.ids().default();
        for (out, &index) in out.iter_mut().zip(found) {
            *out = if index == 0 { default } else { index };
        }
    }
}

/// First word of the record an entry points at; word 0, which is never used, for a leaf.
#[inline(always)]
fn record_at(entry: u32) -> usize {
    let is_pointer = ((entry as i32) >> 31) as u32;
    (entry & is_pointer & Entry::AT_MASK) as usize
}

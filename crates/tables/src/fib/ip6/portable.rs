//! Lookup without special instructions: 64 addresses descend together, level by level, so that their cache misses
//! overlap.

use super::{
    Shared,
    record::{INDEX, LABELLED, PLAIN_LEVELS, RECORD, SKIPPING, skip_down, step},
    slots::slot_of,
};
use crate::fib::NextHopId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Addresses in flight.
pub(super) const LANES: usize = 64;

/// Looks up `addrs[i]` into `out[i]`.
pub(crate) fn lookup(shared: &Shared, addrs: &[u128], out: &mut [NextHopId]) {
    for (addrs, out) in addrs.chunks(LANES).zip(out.chunks_mut(LANES)) {
        let mut items = [0u32; LANES];
        let mut keys = [0u64; LANES];
        let mut active = [0u8; LANES];
        let mut n = 0;
        for (i, &addr) in addrs.iter().enumerate().take(LANES) {
            let high = (addr >> 64) as u64;
            let (slot, depth) = slot_of(high);
            items[i] = shared.direct.get(slot).map_or(0, |item| item.load(Ordering::Acquire));
            // The 64 bits after the slot's: enough for all plain records.
            keys[i] = high << depth | (addr as u64) >> (64 - depth);
            active[n] = i as u8;
            n += usize::from(is_plain(items[i]));
        }
        let view = shared.words.view();
        descend(view, &mut items, &mut keys, &mut active, n);
        finish(shared, view, addrs, &items, out);
    }
}

/// Follows plain records until every lane has something else.
#[inline]
fn descend(
    view: &[AtomicU64],
    items: &mut [u32; LANES],
    keys: &mut [u64; LANES],
    active: &mut [u8; LANES],
    mut n: usize,
) {
    for _ in 0..PLAIN_LEVELS {
        if n == 0 {
            return;
        }
        let mut left = 0;
        for k in 0..n {
            let lane = active[k];
            let i = usize::from(lane) % LANES;
            let next = step(view, items[i] & INDEX, (keys[i] >> 58) as u32);
            keys[i] <<= 6;
            items[i] = next;
            active[left] = lane;
            left += usize::from(is_plain(next));
        }
        n = left;
    }
}

/// From items to next hops: skipping records for the few that have them, the default route, labels.
#[inline]
pub(crate) fn finish(
    shared: &Shared,
    view: &[AtomicU64],
    addrs: &[u128],
    items: &[u32],
    out: &mut [NextHopId],
) {
    let default = shared.default.load(Ordering::Relaxed);
    let mut unusual = false;
    for (&item, out) in items.iter().zip(out.iter_mut()) {
        unusual |= item >= LABELLED;
        *out = if item == 0 { default } else { item };
    }
    if unusual {
        for ((&item, &addr), out) in items.iter().zip(addrs).zip(out.iter_mut()) {
            if item >= LABELLED {
                *out = unusual_leaf(shared, skip_down(view, item, addr as u64), default);
            }
        }
    }
}

/// What a leaf means.
#[cold]
fn unusual_leaf(shared: &Shared, leaf: u32, default: NextHopId) -> NextHopId {
    match leaf & !RECORD {
        0 => default,
        leaf if leaf < LABELLED => leaf,
        leaf => {
            let label = (leaf - LABELLED) as usize;
            shared.labels.get(label).map_or(0, |id| id.load(Ordering::Relaxed))
        }
    }
}

/// Whether an item names a plain record.
#[inline(always)]
fn is_plain(item: u32) -> bool {
    item & (RECORD | SKIPPING) == RECORD
}

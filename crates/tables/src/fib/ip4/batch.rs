//! What all kernels share: cutting a batch into groups, the second round for /25 and longer, and ids for indices.

use super::{
    layout::{Entry, SLOTS},
    reader::{Kernel, Shared},
};
use crate::fib::{NO_ROUTE, NextHopId, arena::index_mask};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Addresses a kernel treats as one unit: a vector of 32-bit lanes.
pub(crate) const LANES: usize = 16;

/// Groups a kernel is given at most, so that its stages' results stay in the first-level cache.
pub(crate) const GROUPS: usize = 16;

/// Addresses of a group, or what has been found for them.
pub(crate) type Group = [u32; LANES];

/// For each group, the lanes (bits) whose result is a pointer to a quad.
pub(crate) type Pointers = [u16; GROUPS];

/// What a kernel reads.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) direct: &'a [AtomicU32; SLOTS],
    pub(crate) words: &'a [AtomicU64],
    /// For the index part of an entry: [`index_mask`] of `words`.
    pub(crate) mask: u32,
    /// What index 0 is replaced with.
    pub(crate) default: NextHopId,
}

/// Looks up `addrs[i]` into `out[i]`; both of the same length.
pub(super) fn lookup(table: &Shared, kernel: Kernel, addrs: &[u32], out: &mut [NextHopId]) {
    let Ok(direct) = <&[AtomicU32; SLOTS]>::try_from(table.direct()) else { return };
    for (addrs, out) in addrs.chunks(GROUPS * LANES).zip(out.chunks_mut(GROUPS * LANES)) {
        loop {
            let words = table.words().view();
            let translated = table.ids().translated();
            let default = if translated { 0 } else { table.ids().default() };
            let view = View { direct, words, mask: index_mask(words), default };
            let (groups, rest) = addrs.as_chunks();
            let (found, found_rest) = out.as_chunks_mut();
            block(view, kernel, groups, found);
            if !rest.is_empty() {
                let (mut group, mut found) = ([[0; LANES]], [[0; LANES]]);
                group.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
                block(view, kernel, &group, &mut found);
                found_rest.copy_from_slice(&found.as_flattened()[..found_rest.len()]);
            }
            // The entries were loaded after the view and may point at blocks, and hold indices, that came later. Both
            // happen a few times in a table's life.
            fence(Ordering::Acquire);
            if table.words().is_current(words) && table.ids().translated() == translated {
                if translated {
                    translate(table, out);
                }
                break;
            }
        }
    }
}

/// Up to [`GROUPS`] groups: addresses to indices (0 already replaced by the default).
#[inline(always)]
fn block(view: View<'_>, kernel: Kernel, addrs: &[Group], found: &mut [Group]) {
    let mut pointers = [0; GROUPS];
    if kernel.run::<false>(view, addrs, found, &mut pointers) {
        match pointers.iter().map(|lanes| lanes.count_ones()).sum::<u32>() as usize {
            0..=LANES => deep::<1>(view, kernel, addrs, found, &pointers),
            _ => deep::<GROUPS>(view, kernel, addrs, found, &pointers),
        }
    }
}

/// The second round, for at most `16 * N` addresses whose /24 has longer routes: through the quad, then as before.
#[inline(never)]
fn deep<const N: usize>(
    view: View<'_>,
    kernel: Kernel,
    addrs: &[Group],
    found: &mut [Group],
    pointers: &Pointers,
) {
    let (addrs, found) = (addrs.as_flattened(), found.as_flattened_mut());
    let mut below = [[0; LANES]; N];
    let mut ends = [[0; LANES]; N];
    let mut to = below.as_flattened_mut().iter_mut().zip(ends.as_flattened_mut());
    let mut n = 0usize;
    for lane in lanes(pointers) {
        let (Some(&addr), Some(&quad), Some((below, end))) = (addrs.get(lane), found.get(lane), to.next())
        else {
            break;
        };
        *below = addr;
        // Acquire: this word is replaced in place, and leads to records.
        let at = Entry(quad).at() as usize + (addr >> 7 & 1) as usize;
        let pair = view.words.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        *end = (pair >> (addr >> 1 & 32)) as u32;
        n += 1;
    }
    let groups = n.div_ceil(LANES).min(N);
    kernel.run::<true>(view, &below[..groups], &mut ends[..groups], &mut [0; GROUPS]);
    for (lane, &end) in lanes(pointers).zip(ends.as_flattened()) {
        if let Some(found) = found.get_mut(lane) {
            *found = end;
        }
    }
}

/// Positions of the set bits, ascending.
#[inline(always)]
fn lanes(pointers: &Pointers) -> impl Iterator<Item = usize> {
    pointers.iter().enumerate().flat_map(|(group, &lanes)| {
        let mut left = lanes;
        std::iter::from_fn(move || {
            let lane = (left != 0).then(|| group * LANES + left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            lane
        })
    })
}

/// Indices to ids, the default route's being that of index 0.
fn translate(table: &Shared, found: &mut [u32]) {
    let ids = table.ids().table();
    for found in found {
        *found = ids.get(*found as usize).map_or(NO_ROUTE, |id| id.load(Ordering::Relaxed));
    }
}

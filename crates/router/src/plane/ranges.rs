//! Ranges of a table, given out and taken back: a buddy allocator.
//!
//! Ranges are powers of two long and begin at a multiple of their length. A request splits the smallest free range that
//! holds it into halves; a range that comes back is joined with its other half (its *buddy*) as far up as those are free. So
//! whatever sizes were in use before, a table that is empty again is one range, and none overlap (Knuth, TAOCP 1, 2.5).

use std::collections::BTreeSet;

/// Which parts of a table are free.
#[derive(Debug)]
pub(super) struct Ranges {
    /// First elements of free ranges, by log2 of their length.
    free: Vec<BTreeSet<u32>>,
    used: usize,
}

impl Ranges {
    /// A table of `1 << log2` elements, all free; `log2` up to 31.
    pub(super) fn new(log2: u8) -> Self {
        let mut free = vec![BTreeSet::new(); usize::from(log2) + 1];
        if let Some(whole) = free.last_mut() {
            whole.insert(0);
        }
        Ranges { free, used: 0 }
    }

    /// Elements given out.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The first of `1 << log2` elements that nobody has; `None`: there is no such range.
    pub(super) fn take(&mut self, log2: u8) -> Option<u32> {
        let wanted = usize::from(log2);
        // The lowest of those that fit best: what is in use stays together.
        let (found, first) = self
            .free
            .iter_mut()
            .enumerate()
            .skip(wanted)
            .find_map(|(at, list)| Some((at, list.pop_first()?)))?;
        for (at, list) in self.free.iter_mut().enumerate().take(found).skip(wanted) {
            list.insert(first + (1 << at));
        }
        self.used += 1 << log2;
        Some(first)
    }

    /// Takes back a range that was given out.
    pub(super) fn give(&mut self, mut first: u32, log2: u8) {
        self.used = self.used.saturating_sub(1 << log2);
        let last = self.free.len().saturating_sub(1);
        for (at, list) in self.free.iter_mut().enumerate().skip(log2.into()) {
            let buddy = first ^ (1 << at);
            if at == last || !list.remove(&buddy) {
                list.insert(first);
                return;
            }
            first = first.min(buddy);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether an aligned range of that length is free in a table of booleans.
    fn has_room(used: &[bool], log2: u8) -> bool {
        used.chunks(1 << log2).any(|range| range.iter().all(|used| !used))
    }

    proptest! {
        /// Against one flag an element: ranges lie in the table and never overlap, one is refused only where none is free, and
        /// when all have come back the table is whole.
        #[test]
        fn agrees_with_a_flag_for_each_element(
            steps in prop::collection::vec((any::<bool>(), 0u8..7, any::<prop::sample::Index>()), 1..300),
        ) {
            let mut ranges = Ranges::new(8);
            let mut used = vec![false; 256];
            let mut held: Vec<(u32, u8)> = Vec::new();
            for (take, log2, which) in steps {
                if take || held.is_empty() {
                    let room = has_room(&used, log2);
                    let got = ranges.take(log2);
                    prop_assert_eq!(got.is_some(), room);
                    let Some(first) = got else { continue };
                    let range = &mut used[first as usize..first as usize + (1 << log2)];
                    prop_assert!(range.iter().all(|used| !used));
                    range.fill(true);
                    held.push((first, log2));
                } else {
                    let (first, log2) = held.swap_remove(which.index(held.len()));
                    used[first as usize..first as usize + (1 << log2)].fill(false);
                    ranges.give(first, log2);
                }
                prop_assert_eq!(ranges.used(), used.iter().filter(|used| **used).count());
            }
            for (first, log2) in held {
                ranges.give(first, log2);
            }
            prop_assert_eq!(ranges.take(8), Some(0));
            prop_assert_eq!(ranges.used(), 256);
            prop_assert_eq!(ranges.take(0), None);
        }
    }
}

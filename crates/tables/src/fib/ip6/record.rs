//! Items and records: how the tree's nodes look to readers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a root record.
pub(crate) const ROOT_WORDS: usize = 32;

/// Set in items that name a record.
pub(crate) const RECORD: u32 = 1 << 31;

/// Set, besides [`RECORD`], in items that name a skipping record.
pub(crate) const SKIPPING: u32 = 1 << 30;

/// The word index in an item.
pub(crate) const INDEX: u32 = SKIPPING - 1;

/// Leaves from here on are labels: `LABELLED + label`.
pub(crate) const LABELLED: u32 = RECORD - (1 << 16);

/// Words before the change word of a skipping record.
pub(crate) const SKIP_HEADER: u32 = 2;

/// Records an address can pass after a root record, from the shortest slot (8 bits) to the last plain one: no reader loops
/// longer.
pub(crate) const PLAIN_LEVELS: usize = 9;

/// Skipping records an address can pass after that.
pub(crate) const SKIP_LEVELS: usize = 10;

/// Nodes up to this depth have plain records; a plain record ends at bit 68.
pub(crate) const DENSE_TO: u8 = 62;

/// The change word and the items it stands for.
pub(crate) struct Encoded {
    pub(crate) change: u64,
    pub(crate) items: [u32; 64],
    pub(crate) len: usize,
}

impl Encoded {
    /// Merges equal neighbours of the 64 cells.
    pub(crate) fn new(cells: &[u32; 64]) -> Self {
        // All comparisons first: a branch per cell is one nobody can foresee.
        let mut change = 1u64;
        for (c, pair) in cells.windows(2).enumerate() {
            change |= u64::from(pair[0] != pair[1]) << (c + 1);
        }
        let mut out = Encoded { change, items: [0; 64], len: change.count_ones() as usize };
        for item in &mut out.items[..change.count_ones() as usize] {
            *item = cells[change.trailing_zeros() as usize & 63];
            change &= change - 1;
        }
        out
    }

    /// The words of a root record: the items of all cells.
    pub(crate) fn root(cells: &[u32; 64]) -> impl Iterator<Item = u64> + '_ {
        cells.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32)
    }

    /// The leaf that all cells agree on, if they do.
    pub(crate) fn single_leaf(&self) -> Option<u32> {
        (self.len == 1 && self.items[0] & RECORD == 0).then_some(self.items[0])
    }

    /// Words of the record, without the header of a skipping one.
    pub(crate) fn words(&self) -> usize {
        1 + self.len.div_ceil(2)
    }

    /// The words in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let pairs = self.items[..self.len.next_multiple_of(2).min(64)].chunks_exact(2);
        std::iter::once(self.change).chain(pairs.map(|p| u64::from(p[0]) | u64::from(p[1]) << 32))
    }
}

/// How many items up to and including that of cell `c`; at least 1.
#[inline(always)]
pub(crate) fn rank(change: u64, c: u32) -> u32 {
    (change << (63 - c)).count_ones()
}

/// Follows the root record at `at`.
#[inline(always)]
pub(crate) fn root_step(view: &[AtomicU64], at: u32, c: u32) -> u32 {
    (word(view, at + c / 2) >> (c % 2 * 32)) as u32
}

/// Follows one record whose change word is at `at`.
#[inline(always)]
pub(crate) fn step(view: &[AtomicU64], at: u32, c: u32) -> u32 {
    let r = rank(word(view, at), c);
    // Items are numbered from 1 here, two a word: odd ones are low halves.
    let pair = word(view, at + r.div_ceil(2));
    (pair >> ((!r & 1) * 32)) as u32
}

/// Follows skipping records to a leaf. Each decides at least six bits.
#[inline]
pub(crate) fn skip_down(view: &[AtomicU64], mut item: u32, low: u64) -> u32 {
    for _ in 0..SKIP_LEVELS {
        if item & RECORD == 0 {
            return item;
        }
        let at = item & INDEX;
        let head = word(view, at);
        let depth = (head >> 32) as u32;
        if (word(view, at + 1) ^ low) & !(u64::MAX >> (depth & 63)) != 0 {
            return head as u32;
        }
        item = step(view, at + SKIP_HEADER, ((low << (depth & 63)) >> 58) as u32);
    }
    item & INDEX
}

/// Acquire: what a record names was written before the record.
#[inline(always)]
pub(crate) fn word(view: &[AtomicU64], at: u32) -> u64 {
    view.get(at as usize).map_or(0, |word| word.load(Ordering::Acquire))
}

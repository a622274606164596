//! The routes below each slot, packed into one allocation.
//!
//! A change in a full table finds nothing of its slot in a near cache. What it costs is decided by how many lines it has
//! to wait for one after the other, so the routes of a slot are one step from the slot: a block whose first word says how
//! many there are, without a vector's pointer, length and capacity in between.

use super::rib::Packed;
use std::ops::Range;

/// Words of a cache line. Blocks up to that size do not straddle one; larger ones start on one.
const LINE: usize = 16;

/// Words of a block of each class. The largest holds the 126 routes there can be below a slot.
const SIZES: [usize; 8] = [4, 8, 16, 32, 48, 64, 96, 128];

/// The first word that is handed out, so that 0 can mean "no block". Large allocations begin 16 bytes into a page.
const FIRST: usize = LINE - 16 / 4;

/// Where a slot's block is: the index of its header. 0 is no block.
pub(super) type At = u32;

/// All blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    words: Vec<Packed>,
    free: [Vec<At>; SIZES.len()],
}

/// A block's first word: routes (7 bits), size class (3 bits), number of the slot's deep list + 1 (19 bits; 0 = none).
#[derive(Clone, Copy)]
pub(super) struct Header(u32);

impl Header {
    const DEEP_SHIFT: u32 = 10;

    fn new(len: usize, class: usize, deep: u32) -> Self {
        Header(len as u32 | (class as u32) << 7 | deep << Self::DEEP_SHIFT)
    }

    fn len(self) -> usize {
        (self.0 & 127) as usize
    }

    fn class(self) -> usize {
        (self.0 >> 7 & 7) as usize
    }

    /// Number of the slot's deep list + 1, 0 without one.
    pub(super) fn deep(self) -> u32 {
        self.0 >> Self::DEEP_SHIFT
    }
}

impl Blocks {
    pub(super) fn new() -> Self {
        Blocks { words: Vec::new(), free: Default::default() }
    }

    /// The routes in a block; none where there is no block.
    #[inline]
    pub(super) fn routes(&self, at: At) -> &[Packed] {
        self.words.get(self.range(at)).unwrap_or_default()
    }

    /// The header of a block, all zero where there is no block.
    #[inline]
    pub(super) fn header(&self, at: At) -> Header {
        Header(self.words.get(at as usize).map_or(0, |word| word.0))
    }

    /// Puts a route into its place; returns the one it replaces. The block moves when it is full.
    pub(super) fn put(&mut self, at: &mut At, new: Packed) -> Option<Packed> {
        let routes = self.range(*at);
        let i = super::rib::position(self.routes(*at), new);
        let header = self.header(*at);
        if let Some(old) =
            self.words.get_mut(routes.start + i).filter(|old| i < routes.len() && old.key() == new.key())
        {
            return Some(std::mem::replace(old, new));
        }
        let len = routes.len() + 1;
        if *at == 0 || len >= SIZES[header.class()] {
            self.move_to_larger(at, len);
        }
        let (first, class) = (*at as usize + 1, self.header(*at).class());
        if let Some(routes) = self.words.get_mut(first..first + len) {
            routes.copy_within(i..len - 1, i + 1);
            routes[i] = new;
        }
        self.set_header(*at, Header::new(len, class, header.deep()));
        None
    }

    /// Takes a route out.
    pub(super) fn take(&mut self, at: At, key: u32) -> Option<Packed> {
        let (range, header) = (self.range(at), self.header(at));
        let routes = self.words.get_mut(range)?;
        let i = super::rib::find(routes, key)?;
        let old = routes[i];
        routes.copy_within(i + 1.., i);
        self.set_header(at, Header::new(header.len() - 1, header.class(), header.deep()));
        Some(old)
    }

    /// Names the slot's deep list in its block, which is made where there is none.
    pub(super) fn set_deep(&mut self, at: &mut At, deep: u32) {
        if *at == 0 {
            self.move_to_larger(at, 0);
        }
        let header = self.header(*at);
        self.set_header(*at, Header::new(header.len(), header.class(), deep));
    }

    /// Gives a block back.
    pub(super) fn free(&mut self, at: At) {
        let class = self.header(at).class();
        self.free[class].push(at);
    }

    /// Makes a block as one of others is.
    pub(super) fn adopt(&mut self, others: &Blocks, at: At) -> At {
        let header = others.header(at);
        let new = self.alloc(header.class());
        let first = new as usize + 1;
        if let Some(routes) = self.words.get_mut(first..first + header.len()) {
            routes.copy_from_slice(others.routes(at));
        }
        self.set_header(new, header);
        new
    }

    pub(super) fn bytes(&self) -> usize {
        (self.words.capacity() + self.free.iter().map(Vec::capacity).sum::<usize>()) * size_of::<u32>()
    }

    /// Asks for the cache lines of a block's first routes.
    #[inline]
    pub(super) fn prefetch(&self, at: At) {
        let at = at as usize;
        for word in [at, at + LINE].iter().filter_map(|&at| self.words.get(at)) {
            crate::fib::simd::prefetch(word);
        }
    }

    fn range(&self, at: At) -> Range<usize> {
        let first = at as usize + 1;
        first..first + self.header(at).len()
    }

    fn set_header(&mut self, at: At, header: Header) {
        if let Some(word) = self.words.get_mut(at as usize) {
            *word = Packed(header.0);
        }
    }

    /// Moves a block to the smallest size that holds `len` routes.
    fn move_to_larger(&mut self, at: &mut At, len: usize) {
        let class = SIZES.iter().position(|&size| len < size).unwrap_or(SIZES.len() - 1);
        let new = self.alloc(class);
        let (old, header) = (self.range(*at), self.header(*at));
        let count = old.len();
        if *at != 0 {
            self.words.copy_within(old, new as usize + 1);
            self.free[header.class()].push(*at);
        }
        *at = new;
        self.set_header(new, Header::new(count, class, header.deep()));
    }

    fn alloc(&mut self, class: usize) -> At {
        if let Some(at) = self.free[class].pop() {
            return at;
        }
        if SIZES[class] >= LINE {
            return self.extend(SIZES[class]);
        }
        // Half of a block twice the size; the other half is for the next.
        let at = self.alloc(class + 1);
        self.free[class].push(at + SIZES[class] as u32);
        at
    }

    fn extend(&mut self, words: usize) -> At {
        let at = self.words.len().max(FIRST);
        self.words.resize(at + words, Packed(0));
        at as At
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every route there can be below a slot: two /19s to 64 /24s.
    fn all() -> Vec<Packed> {
        (0..6u8).flat_map(|len| (0..2u32 << len).map(move |i| Packed::new(i << (5 - len), len, 7))).collect()
    }

    #[test]
    fn a_full_slot_in_any_order_is_sorted_and_empties_again() {
        for stride in [1, 5, 125] {
            let routes = all();
            let order = || (0..routes.len()).map(|i| routes[i * stride % routes.len()]);
            let (mut blocks, mut at, mut model) = (Blocks::new(), 0, BTreeMap::new());
            for (i, route) in order().enumerate() {
                assert!(blocks.put(&mut at, route).is_none());
                model.insert(route.key(), route.0);
                if i == 40 {
                    blocks.set_deep(&mut at, 1 << 18);
                }
                assert!(blocks.routes(at).iter().map(|r| r.0).eq(model.values().copied()), "after {i}");
            }
            assert_eq!((blocks.routes(at).len(), blocks.header(at).deep()), (126, 1 << 18));
            let again = Packed::new(0, 0, 9);
            assert_eq!(blocks.put(&mut at, again).map(Packed::index), Some(7));
            for route in order() {
                let want = if route.key() == again.key() { 9 } else { 7 };
                assert_eq!(blocks.take(at, route.key()).map(Packed::index), Some(want));
                assert!(blocks.take(at, route.key()).is_none());
            }
            assert_eq!((blocks.routes(at).len(), blocks.header(at).deep()), (0, 1 << 18));
        }
    }

    #[test]
    fn blocks_come_back_and_do_not_straddle_cache_lines() {
        let mut blocks = Blocks::new();
        let build = |blocks: &mut Blocks, n: usize| {
            let mut at = 0;
            for &route in &all()[..n] {
                blocks.put(&mut at, route);
            }
            at
        };
        let first: Vec<At> = [3, 7, 15, 20, 126].map(|n| build(&mut blocks, n)).into();
        for (&at, size) in first.iter().zip([4, 8, 16, 32, 128]) {
            let from_line = (at as usize + LINE - FIRST) % LINE;
            assert!(at != 0 && (from_line + size <= LINE || from_line == 0), "{size} words at {at}");
        }
        let bytes = blocks.words.len();
        for _ in 0..10 {
            for at in [3, 7, 15, 20, 126].map(|n| build(&mut blocks, n)) {
                blocks.free(at);
            }
        }
        for at in first {
            blocks.free(at);
        }
        assert!(blocks.words.len() <= 2 * bytes);
    }
}

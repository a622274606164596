//! Memory of the lookup structures: 64-bit words addressed by index, one writer, readers without locks.
//!
//! **Blocks.** The writer takes blocks of so many words and fills them before it publishes their index. Freed blocks go
//! to a list per size (exact to 64 words, then four sizes per power of two), so a table under churn returns to the
//! same size; there are no pools of fixed size to run out of.
//!
//! **Reuse.** A block readers may still see is [retired](Arena::retire), not freed; it comes back after a grace period
//! of the [QSBR domain](crate::qsbr).
//!
//! **Growth.** Words live in one allocation that the kernel hands out zeroed and commits page by page, sixteen times
//! larger than the one before: 64 KiB, 1 MiB, 16 MiB, 256 MiB, 2 GiB. An empty table so costs nothing, a full one is
//! contiguous. Moving up copies the words in use and publishes the larger allocation with one store. Readers that
//! are in the old one finish there: it is never written again and stays until memory is given back or the table goes (a
//! sixteenth of the whole at most). Growing happens at most four times in a table's life.
//!
//! A reader must load the entry first and [`Words::view`] after it (acquire): then the view contains the block.

use super::{Discard, FibError, simd::prefetch};
use crate::qsbr::{Domain, Epoch};
use std::{
    collections::VecDeque,
    mem,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use zerocopy::FromZeros;

/// Words of each allocation, smallest first: powers of two, so that masking an index keeps it inside. The guard is extra.
const GENERATIONS: [usize; 5] = [1 << 13, 1 << 17, 1 << 21, 1 << 25, 1 << 28];

/// Zero words behind each allocation: what a vector kernel reads behind a masked index, whatever the words contain
/// (they may contain anything for a reader that ignores QSBR), still lies inside.
pub(crate) const GUARD: usize = 80;

/// Words of a cache line.
const LINE: usize = 8;

/// Largest block of an exact size, in words.
const EXACT: usize = 64;

/// Words that can be [set apart](Arena::set_apart).
pub(crate) const HEADROOM: usize = 1 << 12;

/// Number of size classes: the exact ones, then four a power of two up to 2^28 words.
const CLASSES: usize = EXACT + 4 * 22 + 1;

/// The readers' side of an arena.
#[derive(Debug)]
pub(crate) struct Words {
    generations: [OnceLock<Allocation>; GENERATIONS.len()],
    current: AtomicUsize,
}

/// The writer's side of an arena.
#[derive(Debug)]
pub(crate) struct Arena {
    words: Arc<Words>,
    domain: Domain,
    /// First word never handed out.
    fresh: usize,
    free: Vec<Vec<u32>>,
    /// Retired since the last epoch was opened.
    pending: Vec<Block>,
    /// Retired and waiting for its epoch to pass, oldest first.
    waiting: VecDeque<(Epoch, Vec<Block>)>,
    live: usize,
    retired: usize,
    /// When the allocations before the current one have no reader any more; `None`: they hold nothing.
    grown: Option<Epoch>,
    /// Words behind those in use that are not to be had at present.
    apart: usize,
    /// Words there can be; less than the largest allocation in tests only.
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    at: u32,
    class: u8,
}

/// Words whose first one lies at the start of a cache line, so that what [`Arena::alloc_fresh`] places on few lines does lie on
/// few.
#[derive(Debug)]
struct Allocation {
    words: Box<[AtomicU64]>,
    /// Words in front of the first whole line: the allocator aligns large blocks to 16 bytes only, and asking it for more
    /// would make it touch every page.
    skip: usize,
}

impl Allocation {
    fn zeroed(len: usize) -> Result<Self, FibError> {
        let words: Box<[AtomicU64]> = zeroed(len + LINE)?;
        let skip = (words.as_ptr() as usize).wrapping_neg() % (LINE * 8) / 8;
        Ok(Allocation { words, skip })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.words.get(self.skip..).unwrap_or_default()
    }
}

/// A boxed slice of zeros, committed by the kernel as it is touched.
pub(crate) fn zeroed<T: FromZeros>(len: usize) -> Result<Box<[T]>, FibError> {
    <[T]>::new_box_zeroed_with_elems(len).map_err(|_| FibError::Full(len * mem::size_of::<T>()))
}

impl Words {
    /// All words of the current allocation. Load the index to look at before calling this, not after.
    #[inline]
    pub(crate) fn view(&self) -> &[AtomicU64] {
        let current = self.current.load(Ordering::Acquire);
        self.generations.get(current).and_then(OnceLock::get).map_or(&[], Allocation::words)
    }

    /// Whether `view` is still the newest allocation, that is, whether it holds every block that entries loaded before
    /// this call point at.
    #[inline]
    pub(crate) fn is_current(&self, view: &[AtomicU64]) -> bool {
        std::ptr::eq(self.view(), view)
    }
}

/// The position in `words` that a block's index may be masked to: whatever comes out, [`GUARD`] words follow it.
#[inline]
pub(crate) fn index_mask(words: &[AtomicU64]) -> u32 {
    let most = words.len().saturating_sub(GUARD).min(1 << 28);
    most.checked_ilog2().map_or(0, |log2| (1 << log2) - 1)
}

impl Arena {
    /// Retired blocks that make the writer look for a passed grace period although it could do without.
    const RECLAIM_AT: usize = 256;

    /// An empty arena whose blocks are reclaimed through `domain`. Word 0 is never handed out.
    pub(crate) fn new(domain: Domain) -> Result<Self, FibError> {
        let words = Words {
            generations: [const { OnceLock::new() }; GENERATIONS.len()],
            current: AtomicUsize::new(0),
        };
        let _ = words.generations[0].set(Allocation::zeroed(GENERATIONS[0] + GUARD)?);
        Ok(Arena {
            words: Arc::new(words),
            domain,
            fresh: 1,
            free: vec![Vec::new(); CLASSES],
            pending: Vec::new(),
            waiting: VecDeque::new(),
            live: 0,
            retired: 0,
            grown: None,
            apart: 0,
            most: GENERATIONS[GENERATIONS.len() - 1],
        })
    }

    /// What readers hold.
    pub(crate) fn words(&self) -> &Arc<Words> {
        &self.words
    }

    /// From now on [`alloc`](Self::alloc) leaves [`HEADROOM`] words never used before, or does not.
    pub(crate) fn set_apart(&mut self, apart: bool) {
        self.apart = if apart { HEADROOM } else { 0 };
    }

    /// No more than so many words from now on.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn limit(&mut self, words: usize) {
        self.most = words.min(GENERATIONS[GENERATIONS.len() - 1]);
    }

    /// Makes room for `words` more words at once, so that a bulk load grows once.
    pub(crate) fn reserve(&mut self, words: usize) -> Result<(), FibError> {
        self.grow_to(self.fresh.saturating_add(words))
    }

    /// A block of at least `words` words; its content is whatever was there before.
    pub(crate) fn alloc(&mut self, words: usize) -> Result<u32, FibError> {
        let class = class_of(words);
        if self.free[class].is_empty() && self.retired > 0 {
            self.reclaim();
        }
        let at = match self.free[class].pop() {
            Some(at) => at,
            None => self.alloc_fresh(size_of_class(class))?,
        };
        self.live += size_of_class(class);
        Ok(at)
    }

    /// A block never used before, placed on as few cache lines as it can lie on; the gap before it goes to the free list
    /// of its size.
    fn alloc_fresh(&mut self, size: usize) -> Result<u32, FibError> {
        let gap = match LINE - self.fresh % LINE {
            left if left == LINE || left >= size => 0,
            left => left,
        };
        self.grow_to(self.fresh + gap + size + self.apart)?;
        if gap > 0 {
            self.free[class_of(gap)].push(self.fresh as u32);
        }
        let at = self.fresh + gap;
        self.fresh = at + size;
        Ok(at as u32)
    }

    /// Gives back a block that has been unlinked but that readers may still see.
    pub(crate) fn retire(&mut self, at: u32, words: usize) {
        let class = class_of(words);
        self.pending.push(Block { at, class: class as u8 });
        self.live -= size_of_class(class);
        self.retired += size_of_class(class);
        if self.pending.len() >= Self::RECLAIM_AT {
            self.reclaim();
        }
    }

    /// Moves what has passed its grace period to the free lists. Called from `alloc` and `retire` as needed.
    pub(crate) fn reclaim(&mut self) {
        if !self.pending.is_empty() {
            let epoch = self.domain.advance();
            self.waiting.push_back((epoch, mem::take(&mut self.pending)));
        }
        let passed = self.domain.passed();
        while let Some((epoch, blocks)) = self.waiting.pop_front() {
            if epoch > passed {
                self.waiting.push_front((epoch, blocks));
                return;
            }
            for Block { at, class } in blocks {
                self.retired -= size_of_class(class.into());
                self.free[usize::from(class)].push(at);
            }
        }
    }

    /// Gives back what no block in use lies in: memory behind the last of them, and whole pages between them.
    pub(crate) fn compact(&mut self, discard: Discard) {
        self.reclaim();
        let mut blocks: Vec<(u32, usize)> = Vec::with_capacity(self.free.iter().map(Vec::len).sum());
        for (class, list) in self.free.iter().enumerate() {
            blocks.extend(list.iter().map(|at| (*at, size_of_class(class))));
        }
        blocks.sort_unstable();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, size) in blocks {
            let (at, end) = (at as usize, at as usize + size);
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = end,
                _ => runs.push(at..end),
            }
        }
        let words = self.words.view();
        for run in &runs {
            discard(words.get(run.clone()).unwrap_or_default());
        }
        if let Some(last) = runs.pop().filter(|run| run.end == self.fresh) {
            self.fresh = last.start;
            for list in &mut self.free {
                list.retain(|at| (*at as usize) < last.start);
                list.shrink_to_fit();
            }
        }
        self.pending.shrink_to_fit();
        self.waiting.shrink_to_fit();
        if self.grown.take_if(|epoch| *epoch <= self.domain.passed()).is_some() {
            let current = self.words.current.load(Ordering::Relaxed);
            let old = self.words.generations.iter().take(current).filter_map(OnceLock::get);
            old.for_each(|allocation| discard(allocation.words()));
        }
    }

    /// Writes one word of a block. Publishing its index afterwards with a release store makes it visible.
    #[inline]
    pub(crate) fn set(&self, at: u32, value: u64) {
        if let Some(word) = self.words.view().get(at as usize) {
            word.store(value, Ordering::Release);
        }
    }

    /// Reads back one word.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> u64 {
        self.words.view().get(at as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Asks for the cache line of a word the writer is about to read.
    #[inline]
    pub(crate) fn prefetch(&self, at: u32) {
        if let Some(word) = self.words.view().get(at as usize) {
            prefetch(word);
        }
    }

    /// Bytes in blocks that are in use.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live * 8
    }

    /// Bytes in blocks that wait for readers.
    pub(crate) fn retired_bytes(&self) -> usize {
        self.retired * 8
    }

    /// Bytes of the writer's own lists.
    pub(crate) fn control_bytes(&self) -> usize {
        let free: usize = self.free.iter().map(|list| list.capacity() * mem::size_of::<u32>()).sum();
        let blocks = self.pending.capacity() + self.waiting.iter().map(|(_, b)| b.capacity()).sum::<usize>();
        free + blocks * mem::size_of::<Block>() + CLASSES * mem::size_of::<Vec<u32>>()
    }

    /// Switches to an allocation that holds `end` words.
    fn grow_to(&mut self, end: usize) -> Result<(), FibError> {
        let current = self.words.current.load(Ordering::Relaxed);
        if end > self.most {
            return Err(FibError::Full(self.most * 8));
        }
        if end <= GENERATIONS[current] {
            return Ok(());
        }
        let next = GENERATIONS.iter().position(|&len| end <= len).ok_or(FibError::Full(self.most * 8))?;
        let larger = Allocation::zeroed(GENERATIONS[next] + GUARD)?;
        for (to, from) in larger.words().iter().zip(self.words.view()).take(self.fresh) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // One writer, and `next > current`: the cell is empty.
        let _ = self.words.generations[next].set(larger);
        self.words.current.store(next, Ordering::Release);
        self.grown = Some(self.domain.advance());
        Ok(())
    }
}

/// The size class that holds `words` words.
fn class_of(words: usize) -> usize {
    if words <= EXACT {
        return words;
    }
    let octave = (words - 1).ilog2() as usize; // 6 for 65..=128
    let step = 1usize << (octave - 2);
    let quarter = (words - 1 - (1 << octave)) / step;
    EXACT + 1 + (octave - 6) * 4 + quarter
}

/// Words in a block of this class.
fn size_of_class(class: usize) -> usize {
    if class <= EXACT {
        return class;
    }
    let (octave, quarter) = ((class - EXACT - 1) / 4 + 6, (class - EXACT - 1) % 4);
    (1 << octave) + (quarter + 1) * (1 << (octave - 2))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_is_asked_and_waste_a_quarter_at_most() {
        for words in 1..5_000 {
            let size = size_of_class(class_of(words));
            assert!(size >= words && size <= words + words / 4, "{words} words in a block of {size}");
        }
        assert!(class_of(1 << 28) < CLASSES);
    }

    #[test]
    fn a_retired_block_waits_for_its_readers() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let mut arena = Arena::new(domain).unwrap();
        let a = arena.alloc(5).unwrap();
        arena.retire(a, 5);
        assert_ne!(arena.alloc(5).unwrap(), a);
        assert_eq!((arena.live_bytes(), arena.retired_bytes()), (40, 40));
        reader.quiescent();
        assert_eq!(arena.alloc(5).unwrap(), a);
        assert_eq!((arena.live_bytes(), arena.retired_bytes()), (80, 0));
    }

    #[test]
    fn growing_keeps_every_word_and_the_old_view() {
        let mut arena = Arena::new(Domain::new()).unwrap();
        let words = Arc::clone(arena.words());
        let first = arena.alloc(1).unwrap();
        arena.set(first, 77);
        let old = words.view();
        let mut blocks = Vec::new();
        for i in 0..30_000u64 {
            let at = arena.alloc(7).unwrap();
            arena.set(at + 6, i);
            blocks.push(at);
        }
        assert_eq!(old[first as usize].load(Ordering::Relaxed), 77);
        assert!(words.view().len() > old.len());
        assert_eq!(arena.get(first), 77);
        let line = |at: u32| words.view()[at as usize..].as_ptr() as usize / 64;
        for (i, at) in blocks.iter().enumerate() {
            assert_eq!(line(*at), line(*at + 6), "a block of seven words on two lines");
            assert_eq!(words.view()[*at as usize + 6].load(Ordering::Relaxed), i as u64);
        }
    }

    #[test]
    fn what_is_free_is_given_back_and_can_be_had_again() {
        fn zero(words: &[AtomicU64]) {
            words.iter().for_each(|w| w.store(0, Ordering::Relaxed));
        }
        let domain = Domain::new();
        let mut reader = domain.register();
        let mut arena = Arena::new(domain).unwrap();
        let blocks: Vec<(u32, usize)> =
            (0..50_000).map(|i| (arena.alloc(1 + i % 40).unwrap(), 1 + i % 40)).collect();
        let mark = |arena: &Arena, (at, size): (u32, usize)| {
            (at..at + size as u32).for_each(|w| arena.set(w, u64::from(at)))
        };
        blocks.iter().for_each(|block| mark(&arena, *block));
        let (kept, gone): (Vec<_>, Vec<_>) =
            blocks.iter().enumerate().partition(|(i, _)| *i < 20 || *i == 30_000);
        gone.iter().for_each(|(_, (at, size))| arena.retire(*at, *size));
        arena.reclaim();
        reader.quiescent();
        arena.reclaim();
        let (bytes, lists) = (arena.live_bytes(), arena.control_bytes());
        arena.compact(zero);
        assert_eq!((arena.live_bytes(), arena.retired_bytes()), (bytes, 0));
        assert!(arena.control_bytes() < lists * 3 / 4, "{} of {lists}", arena.control_bytes());
        for (_, (at, size)) in &kept {
            assert!((*at..*at + *size as u32).all(|w| arena.get(w) == u64::from(*at)));
        }
        // All that is handed out from now on lies apart from what is in use.
        let mut all: Vec<(u32, usize)> = kept.iter().map(|(_, b)| **b).collect();
        all.extend((0..50_000).map(|i| (arena.alloc(1 + i % 40).unwrap(), 1 + i % 40)));
        all.sort_unstable();
        assert!(all.windows(2).all(|w| w[0].0 as usize + w[0].1 <= w[1].0 as usize));
    }

    #[test]
    fn more_than_the_last_generation_is_refused_and_nothing_changes() {
        let mut arena = Arena::new(Domain::new()).unwrap();
        assert_eq!(arena.reserve(1 << 28), Err(FibError::Full(8 << 28)));
        assert_eq!(arena.live_bytes(), 0);
        assert!(arena.alloc(3).is_ok());
    }
}

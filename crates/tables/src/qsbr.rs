//! Quiescent-state based reclamation: when may memory that readers could still be looking at be used again?
//!
//! Readers pay one load and one plain store per loop, no read-modify-write and no fence. A worker [registers] once and
//! calls [`Reader::quiescent`] once per loop, at a point where it holds nothing it has read from a table. A writer
//! first unlinks a block (so that no new lookup can reach it), then calls [`Domain::advance`] and keeps the epoch it
//! gets with the block. Once [`Domain::passed`] has reached that epoch every online reader has been quiescent since,
//! and the block may be written again.
//!
//! ```text
//!   writer   store entry -> new block │ advance() = 7 │ ... passed() = 6: wait ... │ passed() = 7: reuse old block
//!   worker A ──── lookups ────┤ quiescent: saw 7 ├──────── lookups ─────────
//!   worker B ──────────── lookups ───────────────────────┤ quiescent: saw 7 ├─────
//! ```
//!
//! A worker about to sleep or to leave goes [`offline`]: it then holds up nobody. One domain serves any number
//! of tables and writers. Literature: Hart, McKenney, Demke Brown, Walpole, "Performance of memory reclamation for
//! lockless synchronization", J. Parallel Distrib. Comput. 67(12), 2007.
//!
//! The orderings are checked with loom: `RUSTFLAGS="--cfg loom" cargo test -p linerate-tables --release qsbr`.
//!
//! [registers]: Domain::register
//! [`offline`]: Reader::offline

use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};

/// A point in a domain's history; later epochs compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// The set of readers whose quiescent points decide about reuse. Clones are the same domain.
#[derive(Clone, Debug)]
pub struct Domain(Arc<Shared>);

/// One registered worker thread. Online from the start; leaves the domain when dropped.
#[derive(Debug)]
pub struct Reader {
    domain: Domain,
    slot: Arc<Slot>,
    last_report: Option<u64>,
}

#[derive(Debug)]
struct Shared {
    epoch: AtomicU64,
    readers: Mutex<Vec<Arc<Slot>>>,
}

/// What a worker writes and the writer reads; two cache lines apart from any other (adjacent-line prefetch).
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    seen: AtomicU64,
    longest_gap: AtomicU64,
}

/// `Slot::seen` of a reader that looks at nothing: later than every epoch.
const OFFLINE: u64 = u64::MAX;

impl Domain {
    /// A domain without readers: everything unlinked may be reused at once.
    pub fn new() -> Self {
        Domain(Arc::new(Shared { epoch: AtomicU64::new(0), readers: Mutex::new(Vec::new()) }))
    }

    /// Adds the calling worker. Takes a lock: do it once per thread.
    pub fn register(&self) -> Reader {
        let slot = Arc::new(Slot { seen: AtomicU64::new(OFFLINE), longest_gap: AtomicU64::new(0) });
        self.readers().push(Arc::clone(&slot));
        let mut reader = Reader { domain: self.clone(), slot, last_report: None };
        reader.online();
        reader
    }

    /// Opens a new epoch, to be called after unlinking. What was unlinked before this call may be reused when
    /// [`passed`](Self::passed) returns at least the result. One call can cover many blocks.
    pub fn advance(&self) -> Epoch {
        // Release: a reader that sees this epoch sees the unlinking too. As a read-modify-write it also continues the
        // release sequences of other writers, so a reader that sees a later epoch sees our unlinking all the same.
        Epoch(self.0.epoch.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// The newest epoch that every online reader has seen at a quiescent point. Takes a lock: for writers only.
    pub fn passed(&self) -> Epoch {
        let now = self.0.epoch.load(Ordering::Acquire);
        // Pairs with the fence in `online`: either we see that the reader is online, or it sees our unlinking.
        fence(Ordering::SeqCst);
        let oldest = self.readers().iter().map(|slot| slot.seen.load(Ordering::Acquire)).min();
        Epoch(oldest.map_or(now, |seen| seen.min(now)))
    }

    /// Number of registered readers, online or not.
    pub fn reader_count(&self) -> usize {
        self.readers().len()
    }

    /// The longest time any registered reader has left between two reports, in the unit of the time it passes to
    /// [`Reader::quiescent_at`].
    pub fn longest_gap(&self) -> u64 {
        self.readers().iter().map(|slot| slot.longest_gap.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        // No code that runs under this lock can leave the list half-made.
        self.0.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Reports that this thread holds nothing read from any table of the domain. Once per worker loop.
    #[inline]
    pub fn quiescent(&mut self) {
        // Acquire: later lookups see what was unlinked up to this epoch.
        let now = self.domain.0.epoch.load(Ordering::Acquire);
        // Release: our earlier lookups are over before the writer can see this.
        self.slot.seen.store(now, Ordering::Release);
    }

    /// [`quiescent`](Self::quiescent), and keeps the longest time between two reports. `now` is any monotonic clock
    /// in any unit, the same for all readers.
    #[inline]
    pub fn quiescent_at(&mut self, now: u64) {
        self.quiescent();
        if let Some(last) = self.last_report.replace(now) {
            let gap = now.saturating_sub(last);
            if gap > self.slot.longest_gap.load(Ordering::Relaxed) {
                self.slot.longest_gap.store(gap, Ordering::Relaxed);
            }
        }
    }

    /// Leaves the game for a while (before sleeping): this reader must not look anything up until
    /// [`online`](Self::online).
    pub fn offline(&mut self) {
        self.last_report = None;
        self.slot.seen.store(OFFLINE, Ordering::Release);
    }

    /// Comes back from [`offline`](Self::offline). Costs a fence.
    pub fn online(&mut self) {
        let now = self.domain.0.epoch.load(Ordering::Acquire);
        self.slot.seen.store(now, Ordering::Release);
        // The store must be visible before the first lookup's loads: only a full fence orders a store before loads.
        fence(Ordering::SeqCst);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.slot.seen.store(OFFLINE, Ordering::Release);
        self.domain.readers().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_readers_everything_has_passed() {
        let domain = Domain::new();
        let e = domain.advance();
        assert_eq!(domain.passed(), e);
    }

    #[test]
    fn the_slowest_online_reader_decides() {
        let domain = Domain::new();
        let (mut a, mut b) = (domain.register(), domain.register());
        let e = domain.advance();
        assert!(domain.passed() < e);
        a.quiescent();
        assert!(domain.passed() < e);
        b.offline();
        assert_eq!(domain.passed(), e);
        b.online();
        let later = domain.advance();
        a.quiescent();
        assert!(domain.passed() < later);
        assert!(domain.passed() >= e);
        drop(b);
        assert_eq!((domain.passed(), domain.reader_count()), (later, 1));
    }

    #[test]
    fn the_longest_gap_ignores_time_spent_offline() {
        let domain = Domain::new();
        let mut r = domain.register();
        r.quiescent_at(100);
        r.quiescent_at(130);
        r.quiescent_at(140);
        r.offline();
        r.online();
        r.quiescent_at(9_000);
        r.quiescent_at(9_001);
        assert_eq!(domain.longest_gap(), 30);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{sync::atomic::AtomicUsize, thread};

    const STALE: u64 = 999;

    /// Two blocks and the entry that points at one of them; a reused block reads `STALE`.
    struct Table {
        entry: AtomicUsize,
        blocks: [AtomicU64; 2],
    }

    impl Table {
        fn new() -> Self {
            Table { entry: AtomicUsize::new(0), blocks: [AtomicU64::new(1), AtomicU64::new(0)] }
        }

        /// As lookups do it: relaxed loads, an acquire on the entry.
        fn lookup(&self) -> u64 {
            self.blocks[self.entry.load(Ordering::Acquire)].load(Ordering::Relaxed)
        }

        fn replace(&self, domain: &Domain) {
            self.blocks[1].store(2, Ordering::Relaxed);
            self.entry.store(1, Ordering::Release);
            let unlinked = domain.advance();
            if domain.passed() >= unlinked {
                self.blocks[0].store(STALE, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn an_online_reader_never_sees_a_reused_block() {
        loom::model(|| {
            let (domain, table) = (Domain::new(), Arc::new(Table::new()));
            let mut reader = domain.register();
            let worker = thread::spawn({
                let table = Arc::clone(&table);
                move || {
                    for _ in 0..2 {
                        assert_ne!(table.lookup(), STALE);
                        reader.quiescent();
                    }
                    assert_ne!(table.lookup(), STALE);
                }
            });
            table.replace(&domain);
            worker.join().unwrap();
        });
    }

    #[test]
    fn coming_back_online_never_sees_a_reused_block() {
        loom::model(|| {
            let (domain, table) = (Domain::new(), Arc::new(Table::new()));
            let mut reader = domain.register();
            reader.offline();
            let worker = thread::spawn({
                let table = Arc::clone(&table);
                move || {
                    reader.online();
                    assert_ne!(table.lookup(), STALE);
                    reader.quiescent();
                    assert_ne!(table.lookup(), STALE);
                    reader.offline();
                }
            });
            table.replace(&domain);
            worker.join().unwrap();
        });
    }

    #[test]
    fn registering_late_never_sees_a_reused_block() {
        loom::model(|| {
            let (domain, table) = (Domain::new(), Arc::new(Table::new()));
            let worker = thread::spawn({
                let (domain, table) = (domain.clone(), Arc::clone(&table));
                move || {
                    let _reader = domain.register();
                    assert_ne!(table.lookup(), STALE);
                }
            });
            table.replace(&domain);
            worker.join().unwrap();
        });
    }

    #[test]
    fn two_writers_share_one_domain() {
        // Three threads have too many interleavings for all of them; three preemptions find every bug of this kind.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (domain, tables) = (Domain::new(), Arc::new([Table::new(), Table::new()]));
            let mut reader = domain.register();
            let other = thread::spawn({
                let (domain, tables) = (domain.clone(), Arc::clone(&tables));
                move || tables[1].replace(&domain)
            });
            let worker = thread::spawn({
                let tables = Arc::clone(&tables);
                move || {
                    assert_ne!(tables[1].lookup(), STALE);
                    reader.quiescent();
                    assert_ne!(tables[1].lookup(), STALE);
                }
            });
            tables[0].replace(&domain);
            worker.join().unwrap();
            other.join().unwrap();
        });
    }
}

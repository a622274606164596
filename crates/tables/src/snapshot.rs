//! Small immutable values that control replaces as a whole and workers read once per batch.
//!
//! For values that change rarely and are small enough to be built anew (the interfaces, say). Reading costs one load
//! and one comparison while nothing changes. A worker never frees a value: the publisher holds on to each old one
//! until no reader has it any more, and drops it itself.

use std::sync::Arc;

use arc_swap::{ArcSwap, cache::Cache};

/// The writing side: one owner, on a control thread.
#[derive(Debug)]
pub struct Publisher<T> {
    cell: Arc<ArcSwap<T>>,
    current: Arc<T>,
    /// Replaced values that a reader may still hold.
    old: Vec<Arc<T>>,
}

impl<T> Publisher<T> {
    /// Publishes a first value.
    pub fn new(value: T) -> Self {
        let current = Arc::new(value);
        Publisher { cell: Arc::new(ArcSwap::new(Arc::clone(&current))), current, old: Vec::new() }
    }

    /// The value published last.
    pub fn current(&self) -> &T {
        &self.current
    }

    /// Replaces the value; readers see it from their next [`Snapshot::get`] on. Old values that no reader holds any
    /// more are dropped here.
    pub fn publish(&mut self, value: T) {
        let value = Arc::new(value);
        self.cell.store(Arc::clone(&value));
        self.old.push(std::mem::replace(&mut self.current, value));
        self.collect();
    }

    /// Drops the old values that no reader holds any more; returns how many remain. A worker that never reads again
    /// keeps one value alive, not more.
    pub fn collect(&mut self) -> usize {
        self.old.retain(|value| Arc::strong_count(value) > 1);
        self.old.len()
    }

    /// A reader.
    pub fn reader(&self) -> Snapshot<T> {
        Snapshot(Cache::new(Arc::clone(&self.cell)))
    }
}

/// The reading side: one per worker and node, cheap to clone.
#[derive(Clone)]
pub struct Snapshot<T>(Cache<Arc<ArcSwap<T>>, Arc<T>>);

impl<T> Snapshot<T> {
    /// The current value. Call it once per batch and use the reference throughout, so that all packets of a batch
    /// meet the same state.
    #[inline]
    pub fn get(&mut self) -> &T {
        self.0.load()
    }
}

impl<T> std::fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    struct Dropped(Arc<AtomicUsize>, u64);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn readers_follow_and_the_publisher_alone_drops() {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut publisher = Publisher::new(Dropped(drops.clone(), 1));
        let mut reader = publisher.reader();
        assert_eq!(reader.get().1, 1);
        publisher.publish(Dropped(drops.clone(), 2));
        assert_eq!(
            (drops.load(Relaxed), publisher.collect()),
            (0, 1),
            "the reader still holds the first value"
        );
        assert_eq!(reader.get().1, 2);
        assert_eq!(drops.load(Relaxed), 0, "moving on drops nothing on the reader's side");
        assert_eq!((publisher.collect(), drops.load(Relaxed)), (0, 1));
        assert_eq!(publisher.current().1, 2);
    }

    #[test]
    fn a_sleeping_reader_keeps_one_value_only() {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut publisher = Publisher::new(Dropped(drops.clone(), 0));
        let mut reader = publisher.reader();
        for i in 1..=1000 {
            publisher.publish(Dropped(drops.clone(), i));
        }
        assert_eq!((publisher.collect(), drops.load(Relaxed)), (1, 999));
        assert_eq!(reader.get().1, 1000);
        assert_eq!(publisher.collect(), 0);
    }

    #[test]
    fn values_never_go_backwards_under_concurrent_publication() {
        let mut publisher = Publisher::new(0u64);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let mut reader = publisher.reader();
                std::thread::spawn(move || {
                    let mut last = 0;
                    while last < 20_000 {
                        let now = *reader.get();
                        assert!(now >= last);
                        last = now;
                    }
                })
            })
            .collect();
        for i in 1..=20_000 {
            publisher.publish(i);
        }
        readers.into_iter().for_each(|r| r.join().unwrap());
        assert!(publisher.collect() <= 2);
    }
}

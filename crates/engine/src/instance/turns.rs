//! A mutex whose holder can let others have their turn.
//!
//! The standard one is unfair: who lets go of it and takes it again at once gets it before those that wait have woken up,
//! and so keeps it as long as there is work. Long work is done in pieces, with [`Turns::give_way`] in between.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long those that wait are given to wake up and take the lock.
const PATIENCE: Duration = Duration::from_millis(10);
/// Between two looks at whether they have.
const LOOK: Duration = Duration::from_micros(50);

/// What threads take turns at.
#[derive(Debug, Default)]
pub(crate) struct Turns<T> {
    value: Mutex<T>,
    waiting: AtomicUsize,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        Turns { value: Mutex::new(value), waiting: AtomicUsize::new(0) }
    }

    /// Waits for the turn, which lasts as long as the guard does.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // The count is a hint only: it guards nothing.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Lets those that wait have their turn. Costs nothing if nobody does, and ends in any case: where others come all
    /// the time, work goes on between them. The caller must not hold the lock.
    pub(crate) fn give_way(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let begin = Instant::now();
        while self.waiting.load(Ordering::Relaxed) > 0 && begin.elapsed() < PATIENCE {
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn who_works_in_pieces_lets_others_in_between() {
        let turns = Turns::new(0u32);
        let (working, over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut pieces = turns.lock();
                    working.store(true, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                    *pieces += 1;
                    drop(pieces);
                    turns.give_way();
                }
                over.store(true, Ordering::Relaxed);
            });
            while !working.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            for _ in 0..5 {
                let before = *turns.lock();
                let after = *turns.lock();
                assert!(after - before <= 40, "{} pieces until it was another's turn", after - before);
            }
            assert!(!over.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn nobody_waits_for_ever() {
        let turns = Turns::new(());
        turns.waiting.store(1, Ordering::Relaxed);
        let begin = Instant::now();
        turns.give_way();
        assert!(begin.elapsed() >= PATIENCE);
    }
}

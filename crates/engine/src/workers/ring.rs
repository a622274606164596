//! Hand-over rings: how one worker gives packets to another.
//!
//! One producer, one consumer, in order, no locks. Besides the packets a ring tells how far the taking worker has
//! *finished* them (processed and flushed to devices): a queue may move to another worker only when everything its old
//! worker gave away has been finished, else packets of one flow could overtake each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_pipeline::io::TxQueue;
use linerate_pipeline::{Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};

/// How far one side of a ring has come. Alone on its cache lines: each side writes one of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Progress(AtomicU64);

/// The giving end.
#[derive(Debug)]
pub struct Giver<P> {
    ring: Producer<P>,
    given: Arc<Progress>,
}

/// The taking end.
#[derive(Debug)]
pub struct Taker<P> {
    ring: Consumer<P>,
    taken: u64,
    finished: u64,
    progress: Arc<Progress>,
}

/// Lets the giving worker ask how far its ring has been finished, wherever the giver itself is.
#[derive(Clone, Debug)]
pub struct Watch {
    given: Arc<Progress>,
    finished: Arc<Progress>,
}

/// A place in a ring.
#[derive(Clone, Debug)]
pub struct Mark {
    finished: Arc<Progress>,
    place: u64,
}

/// A ring with room for `capacity` packets.
pub fn ring<P>(capacity: usize) -> (Giver<P>, Taker<P>, Watch) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let (given, finished) = (Arc::<Progress>::default(), Arc::<Progress>::default());
    let giver = Giver { ring: producer, given: given.clone() };
    let taker = Taker { ring: consumer, taken: 0, finished: 0, progress: finished.clone() };
    (giver, taker, Watch { given, finished })
}

impl<P> Giver<P> {
    /// Gives packets from the front of `batch`; those that find no room stay, in order. Returns how many were given.
    #[inline]
    pub fn give(&mut self, batch: &mut Batch<P>) -> usize {
        let n = match self.ring.cached_slots() {
            known if known >= batch.len() => batch.len(),
            _ => batch.len().min(self.ring.slots()),
        };
        let Ok(chunk) = self.ring.write_chunk_uninit(n) else { return 0 };
        let n = chunk.fill_from_iter(batch.drain(..n));
        let given = &self.given.0;
        given.store(given.load(Ordering::Relaxed) + n as u64, Ordering::Relaxed);
        n
    }
}

impl<P> Taker<P> {
    /// Appends packets to `batch` while it has room; returns how many.
    #[inline]
    pub fn take(&mut self, batch: &mut Batch<P>) -> usize {
        let room = batch.remaining_capacity();
        let n = match self.ring.cached_slots() {
            known if known >= room => room,
            _ => room.min(self.ring.slots()),
        };
        if n == 0 {
            return 0;
        }
        let Ok(chunk) = self.ring.read_chunk(n) else { return 0 };
        batch.extend(chunk);
        self.taken += n as u64;
        n
    }

    /// Says that everything taken so far has been processed and flushed. Once per loop.
    #[inline]
    pub fn finish(&mut self) {
        if self.finished != self.taken {
            self.finished = self.taken;
            // Release: who sees this also sees what became of the packets (their place in a device's queue).
            self.progress.0.store(self.taken, Ordering::Release);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

impl Watch {
    /// The place behind the last packet given. Only the giving worker may ask.
    pub fn mark(&self) -> Mark {
        Mark { finished: self.finished.clone(), place: self.given.0.load(Ordering::Relaxed) }
    }
}

impl Mark {
    /// Whether the taking worker has finished everything before this place.
    pub fn passed(&self) -> bool {
        self.finished.0.load(Ordering::Acquire) >= self.place
    }
}

/// A transmit queue that is another worker's: what is sent goes through a ring to the worker that has the device's.
impl<P: Packet> TxQueue<P> for Giver<P> {
    fn tx(&mut self, batch: &mut Batch<P>) -> usize {
        self.give(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_stays_in_order_and_marks_pass_when_finished() {
        let (mut giver, mut taker, watch) = ring::<u32>(100);
        let mut batch: Batch<u32> = (0..64).collect();
        assert!(watch.mark().passed());
        assert_eq!(giver.give(&mut batch), 64);
        let first = watch.mark();
        batch.extend(64..128);
        assert_eq!((giver.give(&mut batch), batch.len(), batch[0]), (36, 28, 100));
        assert_eq!(giver.give(&mut batch), 0);
        let second = watch.mark();
        let mut out = Batch::new();
        out.push(7);
        assert_eq!(taker.take(&mut out), 63);
        taker.finish();
        assert!(!first.passed());
        out.clear();
        assert_eq!((taker.take(&mut out), out[0]), (37, 63));
        assert!(!first.passed(), "taken is not finished");
        taker.finish();
        assert!(first.passed() && second.passed() && taker.is_empty());
    }

    #[test]
    fn two_threads_pass_everything_once_and_in_order() {
        const N: u32 = 200_000;
        let (mut giver, mut taker, watch) = ring::<u32>(256);
        let giving = std::thread::spawn(move || {
            let mut batch = Batch::new();
            let mut next = 0;
            while next < N || !batch.is_empty() {
                while next < N && batch.try_push(next).is_ok() {
                    next += 1;
                }
                if giver.give(&mut batch) == 0 {
                    std::thread::yield_now();
                }
            }
            watch.mark()
        });
        let (mut out, mut expected) = (Batch::new(), 0);
        while expected < N {
            if taker.take(&mut out) == 0 {
                std::thread::yield_now();
            }
            out.drain(..).for_each(|v| {
                assert_eq!(v, expected);
                expected += 1;
            });
            taker.finish();
        }
        assert!(giving.join().unwrap().passed());
    }
}

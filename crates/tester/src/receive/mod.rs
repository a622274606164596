//! What the receiving side knows of the frames that came back.
//!
//! Every frame with a signature of this run is counted under its stream: order and duplicates ([`crate::sequence`]), forwarding
//! delay and its variation ([`delay`]), bytes. Everything else is foreign and counted apart. One [`Receiver`] belongs to one
//! receiving thread; what several of them saw is joined afterwards ([`Received::join`]).

pub mod delay;

use crate::sequence::Sequence;

use self::delay::{Delay, DelaySummary};

/// What a frame's signature says, as the receiver needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the stream in this run.
    pub stream: u32,
    /// Number of the frame in its stream, modulo 2³².
    pub sequence: u32,
    /// When it was handed to the device, in ticks.
    pub sent_at: u64,
}

/// One receiving thread's books.
#[derive(Debug)]
pub struct Receiver {
    streams: Vec<Stream>,
    foreign: Foreign,
    /// Ticks that sending and receiving take by themselves, subtracted from every delay.
    own_delay: u64,
}

/// Frames that are none of this run's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Frames without a signature of this run.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Frames of this run that name a stream which does not exist.
    pub unknown_stream: u64,
}

#[derive(Debug, Default)]
struct Stream {
    sequence: Sequence,
    bytes: u64,
    delay: Delay,
    first: Option<u64>,
    last: u64,
}

impl Receiver {
    /// Books for streams `0..streams`. `own_delay`: what a frame takes from this tester to itself, in ticks, as measured with
    /// nothing in between.
    pub fn new(streams: usize, own_delay: u64) -> Self {
        Receiver {
            streams: (0..streams).map(|_| Stream::default()).collect(),
            foreign: Foreign::default(),
            own_delay,
        }
    }

    /// A frame of this run has come, of `bytes` without FCS, at tick `now`.
    #[inline]
    pub fn arrived(&mut self, now: u64, bytes: usize, arrival: Arrival) {
        let Some(stream) = self.streams.get_mut(arrival.stream as usize) else {
            self.foreign.unknown_stream += 1;
            return;
        };
        stream.bytes += bytes as u64;
        stream.last = now;
        stream.first.get_or_insert(now);
        let in_step = stream.sequence.expected() == arrival.sequence;
        stream.sequence.arrived(arrival.sequence);
        stream.delay.arrived(now.wrapping_sub(arrival.sent_at), self.own_delay, in_step);
    }

    /// A frame has come that is none of this run's.
    #[inline]
    pub fn foreign(&mut self, bytes: usize) {
        self.foreign.frames += 1;
        self.foreign.bytes += bytes as u64;
    }

    /// Frames of all streams so far, duplicates not counted.
    pub fn frames(&self) -> u64 {
        self.streams.iter().map(|s| s.sequence.received).sum()
    }

    /// The books, closed.
    pub fn finish(self) -> Received {
        let close = |s: Stream| StreamReceived {
            frames: s.sequence.received,
            duplicates: s.sequence.duplicates,
            reordered: s.sequence.reordered,
            bytes: s.bytes,
            delay: s.delay,
            first: s.first,
            last: s.last,
        };
        Received { streams: self.streams.into_iter().map(close).collect(), foreign: self.foreign }
    }
}

/// What came of a trial.
#[derive(Debug, Default)]
pub struct Received {
    /// By stream.
    pub streams: Vec<StreamReceived>,
    /// None of ours.
    pub foreign: Foreign,
}

/// What came of a stream.
#[derive(Debug, Default)]
pub struct StreamReceived {
    /// Frames, duplicates not counted.
    pub frames: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames whose number is lower than that of one before them (RFC 4689 3.3.4).
    pub reordered: u64,
    /// Bytes without FCS, duplicates counted.
    pub bytes: u64,
    /// Forwarding delay.
    pub delay: Delay,
    /// When the first and the last came, in ticks.
    pub first: Option<u64>,
    /// See `first`; 0: none came.
    pub last: u64,
}

impl Received {
    /// Adds what another thread saw of the same streams. A frame that each of two threads received once is then counted twice: devices
    /// deal out flows, not frames.
    pub fn join(&mut self, other: Received) {
        self.streams.resize_with(self.streams.len().max(other.streams.len()), StreamReceived::default);
        for (mine, theirs) in self.streams.iter_mut().zip(other.streams) {
            mine.frames += theirs.frames;
            mine.duplicates += theirs.duplicates;
            mine.reordered += theirs.reordered;
            mine.bytes += theirs.bytes;
            mine.delay.join(&theirs.delay);
            mine.first = match (mine.first, theirs.first) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            mine.last = mine.last.max(theirs.last);
        }
        self.foreign.frames += other.foreign.frames;
        self.foreign.bytes += other.foreign.bytes;
        self.foreign.unknown_stream += other.foreign.unknown_stream;
    }

    /// Delay over all streams.
    pub fn delay(&self, hz: u64) -> Option<DelaySummary> {
        let mut all = Delay::default();
        self.streams.iter().for_each(|s| all.join(&s.delay));
        all.summary(hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stream: u32, sequence: u32, sent_at: u64) -> Arrival {
        Arrival { stream, sequence, sent_at }
    }

    #[test]
    fn streams_are_kept_apart_and_strangers_too() {
        let mut r = Receiver::new(2, 0);
        (0..10u32).for_each(|i| r.arrived(1000 + u64::from(i), 60, at(0, i, 900 + u64::from(i))));
        [0, 1, 1, 3, 2].iter().for_each(|i| r.arrived(2000, 1514, at(1, *i, 1500)));
        r.arrived(2000, 60, at(2, 0, 0));
        r.foreign(342);
        assert_eq!(r.frames(), 14);
        let done = r.finish();
        let [a, b] = &done.streams[..] else { panic!() };
        assert_eq!(
            (a.frames, a.duplicates, a.reordered, a.bytes, a.first, a.last),
            (10, 0, 0, 600, Some(1000), 1009)
        );
        assert_eq!((b.frames, b.duplicates, b.reordered, b.bytes), (4, 1, 1, 5 * 1514));
        assert_eq!(done.foreign, Foreign { frames: 1, bytes: 342, unknown_stream: 1 });
        let delay = done.delay(1_000_000_000).unwrap();
        assert_eq!((delay.count, delay.min, delay.max), (15, 100, 500));
    }

    #[test]
    fn what_two_threads_saw_is_one_whole() {
        let (mut a, mut b) = (Receiver::new(1, 0), Receiver::new(1, 0));
        (0..100u32).for_each(|i| {
            if i % 2 == 0 { &mut a } else { &mut b }.arrived(u64::from(i) + 50, 60, at(0, i, 0))
        });
        let mut all = a.finish();
        all.join(b.finish());
        assert_eq!((all.streams[0].frames, all.streams[0].reordered, all.streams[0].bytes), (100, 0, 6000));
        assert_eq!((all.streams[0].first, all.streams[0].last), (Some(50), 149));
        assert_eq!(all.delay(1_000_000_000).unwrap().count, 100);
    }

    #[test]
    fn numbers_beyond_32_bits_go_on_counting() {
        let mut r = Receiver::new(1, 0);
        r.streams[0].sequence = Sequence::starting_at(u32::MAX - 1);
        r.streams[0].bytes = u64::from(u32::MAX) - 30;
        (0..5u32).for_each(|i| r.arrived(10, 60, at(0, (u32::MAX - 1).wrapping_add(i), 0)));
        let done = r.finish();
        assert_eq!((done.streams[0].frames, done.streams[0].reordered), (5, 0));
        assert_eq!(done.streams[0].bytes, u64::from(u32::MAX) - 30 + 300);
    }
}

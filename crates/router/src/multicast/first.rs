//! Packets of streams that nobody has a route for: daemons want to see some of each.

use linerate_tables::snapshot_map::MapKey;

use crate::nodes::ErrorLimit;

/// Nanoseconds in which one packet of an unknown stream is enough.
const AGAIN: u64 = 250_000_000;

/// Streams remembered; more than these replace each other.
const STREAMS: usize = 1024;

/// Decides which packets of unknown streams the host system gets to see: one per stream and quarter of a second, and a
/// bounded number per second in all, so that a flood of made-up streams does not bury the real ones.
#[derive(Clone, Debug)]
pub(super) struct FirstPackets {
    limit: ErrorLimit,
    /// Hash of a stream, and until when it has been seen enough of.
    seen: Box<[(u64, u64)]>,
}

impl FirstPackets {
    pub(super) fn new(per_second: u32) -> Self {
        FirstPackets { limit: ErrorLimit::new(per_second), seen: vec![(0, 0); STREAMS].into() }
    }

    pub(super) fn allow(&mut self, stream: &impl MapKey, now: u64) -> bool {
        let hash = stream.hash(0);
        let Some(slot) = self.seen.get_mut(hash as usize % STREAMS) else { return false };
        if slot.0 == hash && now < slot.1 {
            return false;
        }
        let allowed = self.limit.allow(now);
        if allowed {
            *slot = (hash, now.saturating_add(AGAIN));
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_stream_and_so_many_in_all() {
        let mut first = FirstPackets::new(10);
        let mut seen = |stream: u64, now| first.allow(&stream, now);
        assert_eq!([0, 1, AGAIN - 1, AGAIN].map(|now| seen(1, 5 + now)), [true, false, false, true]);
        let count = (100..200).filter(|s| seen(*s, 10 * AGAIN)).count();
        assert_eq!(count, 10);
        assert!(seen(300, 11 * AGAIN));
    }
}

//! How long a worker's loops take: a histogram that costs one addition a loop.

use crate::counters::Counter;

/// Parts of a power of two: what is told of a time is at most an eighth too much.
const PARTS: u32 = 8;
/// Times from `2^(OCTAVES + 3)` cycles on share the last part: more than ten seconds.
const OCTAVES: u32 = 32;
/// Parts in all.
const LEN: usize = (PARTS * OCTAVES) as usize;

/// Loops that found packets, by their length in TSC cycles. One writer, like every [`Counter`].
#[derive(Debug)]
pub struct LoopTimes([Counter; LEN]);

/// What a [`LoopTimes`] counted, at one moment or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopCounts(Vec<u64>);

impl Default for LoopTimes {
    fn default() -> Self {
        LoopTimes(std::array::from_fn(|_| Counter::default()))
    }
}

impl LoopTimes {
    /// Counts a loop. Only the owning worker may call this.
    #[inline]
    pub fn note(&self, cycles: u64) {
        self.0[part(cycles)].add(1);
    }

    /// What was counted so far.
    pub fn read(&self) -> LoopCounts {
        LoopCounts(self.0.iter().map(Counter::get).collect())
    }
}

impl LoopCounts {
    /// What was counted since `before`.
    pub fn since(&self, before: &LoopCounts) -> LoopCounts {
        LoopCounts(self.0.iter().zip(&before.0).map(|(a, b)| a.wrapping_sub(*b)).collect())
    }

    /// Loops.
    pub fn loops(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Upper bound of the longest loop in cycles, at most an eighth too much; 0 without loops.
    pub fn longest(&self) -> u64 {
        self.0.iter().rposition(|n| *n > 0).map_or(0, end)
    }

    /// Loops of `cycles` or more. Those within an eighth of the limit may count to either side.
    pub fn from(&self, cycles: u64) -> u64 {
        self.0[part(cycles)..].iter().sum()
    }

    /// The length in cycles that a share (0 to 1) of all loops stays below, at most an eighth too much.
    pub fn quantile(&self, share: f64) -> u64 {
        let loops = self.loops();
        if loops == 0 {
            return 0;
        }
        let mut left = (loops as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let reached = |n: &u64| {
            left = left.saturating_sub(*n);
            left == 0
        };
        self.0.iter().position(reached).map_or(0, end)
    }

    /// Adds other loops.
    pub fn add(&mut self, other: &LoopCounts) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
    }
}

#[inline]
fn part(cycles: u64) -> usize {
    // The first part also takes what is shorter than it.
    let octave = (cycles | u64::from(PARTS)).ilog2() - PARTS.ilog2();
    ((octave * PARTS) as usize + ((cycles >> octave) % u64::from(PARTS)) as usize).min(LEN - 1)
}

/// The first cycle count behind a part.
fn end(part: usize) -> u64 {
    let (octave, at) = (part as u64 / u64::from(PARTS), part as u64 % u64::from(PARTS));
    (u64::from(PARTS) + at + 1) << octave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_lies_below_the_end_of_its_part_by_an_eighth_at_most() {
        for cycles in (8..4000).chain((12..35).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + 1])) {
            let end = end(part(cycles));
            assert!(cycles < end && end <= cycles + cycles / 8 + 1, "{cycles}: {end}");
        }
        assert_eq!(part(u64::MAX), LEN - 1);
        assert!((0..9).all(|short| part(short) < 16));
    }

    #[test]
    fn what_happened_between_two_readings_is_told() {
        let times = LoopTimes::default();
        times.note(1_000_000);
        let before = times.read();
        for cycles in [100, 100, 100, 5000] {
            times.note(cycles);
        }
        let counts = times.read().since(&before);
        assert_eq!((counts.loops(), counts.from(5000), counts.from(100)), (4, 1, 4));
        assert!((5000..5700).contains(&counts.longest()), "{}", counts.longest());
        assert!((100..115).contains(&counts.quantile(0.75)), "{}", counts.quantile(0.75));
        assert_eq!(counts.quantile(1.0), counts.longest());
        let none = before.since(&before);
        assert_eq!((none.longest(), none.loops(), none.quantile(0.5)), (0, 0, 0));
    }
}

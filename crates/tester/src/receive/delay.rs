//! Forwarding delay and its variation.
//!
//! The delay of a frame is from the moment its burst is handed to the sending device to the moment its burst is taken from the
//! receiving one, by one clock: first to last in terms of RFC 1242, with the tester's own share ([`crate::receive::Receiver::new`])
//! taken off. Variation is told in the two ways of RFC 8219 7.3: PDV, the 99.9th percentile less the minimum, and IPDV, the
//! difference of consecutive frames. For the latter only pairs count of which nothing between was lost or reordered, so that it
//! does not depend on loss (RFC 4689 3.2.3 asks that of jitter).

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longer delays count as this one, in ticks: some minutes on every clock there is.
const LONGEST: u64 = 1 << 40;
/// Digits that percentiles are good for.
const DIGITS: u8 = 3;

/// Delays of a stream, in ticks.
#[derive(Debug, Default)]
pub struct Delay {
    /// Made with the first frame: a stream that nothing arrives of takes no memory.
    delays: Option<Box<Histogram<u64>>>,
    sum: u128,
    /// Frames that left after they arrived, by their stamps.
    negative: u64,
    last: Option<u64>,
    variation: Variation,
}

/// Differences of consecutive delays, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Variation {
    count: u64,
    sum: u64,
    max: u64,
}

impl Delay {
    /// A frame took `ticks`, of which `own` are the tester's. `in_step`: it is the one after the one before.
    #[inline]
    pub(crate) fn arrived(&mut self, ticks: u64, own: u64, in_step: bool) {
        if ticks > i64::MAX as u64 {
            self.negative += 1;
            self.last = None;
            return;
        }
        let ticks = ticks.saturating_sub(own);
        if self.delays.is_none() {
            self.delays = empty();
        }
        if let Some(delays) = &mut self.delays {
            delays.saturating_record(ticks);
        }
        self.sum += u128::from(ticks);
        if let (Some(last), true) = (self.last, in_step) {
            let difference = last.abs_diff(ticks);
            self.variation.count += 1;
            self.variation.sum += difference;
            self.variation.max = self.variation.max.max(difference);
        }
        self.last = Some(ticks);
    }

    /// Adds those of another part of the stream.
    pub fn join(&mut self, other: &Delay) {
        if let Some(theirs) = &other.delays {
            match &mut self.delays {
                // Both have the same bounds: nothing is out of range.
                Some(mine) => drop(mine.add(&**theirs)),
                None => self.delays = Some(theirs.clone()),
            }
        }
        self.sum += other.sum;
        self.negative += other.negative;
        self.variation.count += other.variation.count;
        self.variation.sum += other.variation.sum;
        self.variation.max = self.variation.max.max(other.variation.max);
    }

    /// What there is to say, in nanoseconds by a clock of `hz` ticks per second; `None` where no frame has a delay.
    pub fn summary(&self, hz: u64) -> Option<DelaySummary> {
        let delays = self.delays.as_deref().filter(|d| !d.is_empty())?;
        let ns = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1))) as u64;
        let at = |quantile: f64| ns(delays.value_at_quantile(quantile));
        let mean = |sum: u128, n: u64| sum as f64 / n.max(1) as f64 * 1e9 / hz.max(1) as f64;
        Some(DelaySummary {
            count: delays.len(),
            min: ns(delays.min()),
            mean: mean(self.sum, delays.len()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: ns(delays.max()),
            pdv: at(0.999).saturating_sub(ns(delays.min())),
            ipdv_mean: mean(self.variation.sum.into(), self.variation.count),
            ipdv_max: ns(self.variation.max),
            negative: self.negative,
            curve: curve(delays, ns),
        })
    }
}

/// Points of the percentile curve: percentile and nanoseconds, ever closer to 100 %.
fn curve(delays: &Histogram<u64>, ns: impl Fn(u64) -> u64) -> Vec<(f64, u64)> {
    let mut points: Vec<(f64, u64)> = Vec::new();
    for step in delays.iter_quantiles(5) {
        let point = (step.quantile_iterated_to() * 100.0, ns(step.value_iterated_to()));
        // Beyond this fewer than one of a million frames is told of.
        if point.0 > 99.9999 || points.last().is_some_and(|last| *last == point) {
            continue;
        }
        points.push(point);
    }
    points
}

/// Delays of a stream or of all, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelaySummary {
    /// Frames with a delay.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median, which RFC 8219 calls typical latency.
    pub p50: u64,
    /// 90 % took no longer.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %, which RFC 8219 calls worst-case latency.
    pub p99_9: u64,
    /// 99.99 %.
    pub p99_99: u64,
    /// Longest.
    pub max: u64,
    /// Packet delay variation: `p99_9` less `min` (RFC 8219 7.3.1).
    pub pdv: u64,
    /// Mean of the absolute differences of consecutive frames.
    pub ipdv_mean: f64,
    /// Largest of them.
    pub ipdv_max: u64,
    /// Frames whose stamp is later than their arrival: not counted in anything above.
    pub negative: u64,
    /// Percentile curve: percent, nanoseconds.
    pub curve: Vec<(f64, u64)>,
}

/// A histogram of delays.
#[cold]
fn empty() -> Option<Box<Histogram<u64>>> {
    // The bounds are those of a legal histogram; without one delays would not be told of, and nothing else.
    Histogram::new_with_bounds(1, LONGEST, DIGITS).ok().map(Box::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ: u64 = 1_000_000_000;

    #[test]
    fn percentiles_mean_and_variation_are_right() {
        let mut d = Delay::default();
        (1..=10_000u64).for_each(|i| d.arrived(i * 10 + 7, 7, i > 1));
        let s = d.summary(GHZ).unwrap();
        let near = |value: u64, wanted: f64| (value as f64 / wanted - 1.0).abs() < 0.002;
        assert_eq!((s.count, s.min, s.max, s.negative), (10_000, 10, s.max, 0));
        assert!((s.mean - 50_005.0).abs() < 1e-6);
        assert!(near(s.p50, 50_000.0) && near(s.p90, 90_000.0) && near(s.p99, 99_000.0), "{s:?}");
        assert!(near(s.p99_9, 99_900.0) && near(s.p99_99, 99_990.0) && near(s.max, 100_000.0), "{s:?}");
        assert_eq!((s.pdv, s.ipdv_mean, s.ipdv_max), (s.p99_9 - 10, 10.0, 10));
        assert!(s.curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1) && s.curve.len() > 20);
    }

    #[test]
    fn ticks_become_nanoseconds_by_the_clock() {
        let mut d = Delay::default();
        d.arrived(2_600_000, 0, false);
        let s = d.summary(2_600_000_000).unwrap();
        assert!(s.max.abs_diff(1_000_000) < 1000 && (s.mean - 1e6).abs() < 1.0, "{s:?}");
    }

    #[test]
    fn stamps_from_the_future_and_own_delay_do_no_harm() {
        let mut d = Delay::default();
        d.arrived(5u64.wrapping_sub(10), 0, true);
        d.arrived(3, 7, true);
        d.arrived(u64::MAX / 4, 0, true);
        let s = d.summary(GHZ).unwrap();
        assert_eq!((s.count, s.negative, s.min), (2, 1, 0));
        assert!(Delay::default().summary(GHZ).is_none());
    }

    #[test]
    fn variation_does_not_depend_on_loss() {
        let mut d = Delay::default();
        for (ticks, in_step) in [(100, true), (110, true), (500, false), (510, true)] {
            d.arrived(ticks, 0, in_step);
        }
        let s = d.summary(GHZ).unwrap();
        assert_eq!((s.ipdv_mean, s.ipdv_max), (10.0, 10));
    }
}

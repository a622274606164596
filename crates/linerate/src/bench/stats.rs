//! Clocks and order statistics.

use nix::time::{ClockId, clock_gettime};

/// CPU time of this thread in nanoseconds: what other processes do to the clock on a shared host stays out of it.
pub(super) fn cpu_ns() -> f64 {
    match clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
        Ok(t) => t.tv_sec() as f64 * 1e9 + t.tv_nsec() as f64,
        Err(_) => f64::NAN,
    }
}

/// CPU nanoseconds that `work` takes, and its result.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = cpu_ns();
    let result = work();
    (cpu_ns() - start, result)
}

/// The value below which a share of the samples lies; the samples need not be sorted. NaN without samples.
pub(super) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => sorted[((n - 1) as f64 * share).round() as usize],
    }
}

/// Middle value.
pub(super) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// SplitMix64: the same keys on every run.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_samples() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!((quantile(&[5.0], 0.99), quantile(&[1.0, 2.0], 1.0)), (5.0, 2.0));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_cpu_clock_moves_with_work() {
        let (ns, sum) = timed(|| (0..5_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 1)));
        assert!(ns > 0.0 && sum != 1);
    }
}

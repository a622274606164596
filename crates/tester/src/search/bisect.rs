//! Bisection over whole numbers.

/// Narrows the gap between what passes and what fails.
///
/// It starts at the highest, keeps the highest that passed and the lowest that failed, and ends when they are `resolution` or less apart.
#[derive(Clone, Debug)]
pub struct Bisect {
    min: u64,
    max: u64,
    resolution: u64,
    low: Option<u64>,
    high: Option<u64>,
}

impl Bisect {
    /// From `min` to `max`, both included; a resolution of 0 is 1.
    pub fn new(min: u64, max: u64, resolution: u64) -> Self {
        Bisect { min, max: max.max(min), resolution: resolution.max(1), low: None, high: None }
    }

    /// What is to be tried next; `None`: all is known.
    pub fn next_try(&self) -> Option<u64> {
        match (self.low, self.high) {
            (None, None) => Some(self.max),
            (Some(_), None) => None,
            (None, Some(high)) if high <= self.min => None,
            (None, Some(high)) if high - self.min <= self.resolution => Some(self.min),
            (None, Some(high)) => Some(self.min + (high - self.min) / 2),
            (Some(low), Some(high)) if high - low <= self.resolution => None,
            (Some(low), Some(high)) => Some(low + (high - low) / 2),
        }
    }

    /// What came of trying `at`.
    pub fn tried(&mut self, at: u64, passed: bool) {
        if passed {
            self.low = self.low.max(Some(at));
        } else {
            self.high = Some(self.high.map_or(at, |h| h.min(at)));
            self.low = self.low.filter(|low| *low < at);
        }
    }

    /// The highest that passed.
    pub fn passed(&self) -> Option<u64> {
        self.low
    }

    /// The lowest that failed.
    pub fn failed(&self) -> Option<u64> {
        self.high
    }

    /// Tries that are left by estimate.
    pub fn left(&self) -> u32 {
        let gap =
            self.high.unwrap_or(self.max) - self.low.unwrap_or(self.min).min(self.high.unwrap_or(self.max));
        (gap / self.resolution).checked_ilog2().map_or(0, |log| log + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(min: u64, max: u64, resolution: u64, passes: impl Fn(u64) -> bool) -> (Bisect, u32) {
        let mut b = Bisect::new(min, max, resolution);
        let mut tries = 0;
        while let Some(at) = b.next_try() {
            assert!((min..=max).contains(&at));
            b.tried(at, passes(at));
            tries += 1;
            assert!(tries < 200);
        }
        (b, tries)
    }

    #[test]
    fn the_edge_is_found() {
        for edge in [0, 1, 2, 500, 998, 999, 1000] {
            let (b, tries) = search(0, 1000, 1, |at| at <= edge);
            assert_eq!(b.passed(), Some(edge));
            assert_eq!(b.failed(), (edge < 1000).then_some(edge + 1));
            assert!(tries <= 12);
        }
        let (b, _) = search(1, 1000, 1, |_| false);
        assert_eq!((b.passed(), b.failed()), (None, Some(1)));
        let (b, _) = search(0, u64::MAX, 1 << 20, |at| at < 1 << 40);
        assert!(b.failed().unwrap() - b.passed().unwrap() <= 1 << 20);
    }

    #[test]
    fn a_failure_below_what_passed_takes_that_back() {
        let mut b = Bisect::new(0, 100, 1);
        b.tried(80, true);
        b.tried(50, false);
        assert_eq!((b.passed(), b.failed(), b.next_try()), (None, Some(50), Some(25)));
    }
}

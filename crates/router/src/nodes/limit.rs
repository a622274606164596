//! The rate limit of ICMP errors (RFC 1812 4.3.2.8, RFC 4443 2.4 f).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A token bucket as one number: the time at which it will be full again. Holds one second's worth of tokens.
///
/// Clones share the bucket: the ICMP nodes of one worker draw from the same one. Workers have one each, so a clone
/// must not leave its worker (it would still be memory-safe, but the limit would no longer be exact).
#[derive(Clone, Debug)]
pub struct ErrorLimit {
    /// Nanoseconds per token; `None`: nothing is ever allowed.
    interval: Option<u64>,
    per_second: u64,
    full_at: Arc<AtomicU64>,
}

impl ErrorLimit {
    /// Allows `per_second` errors at once and that many each second from then on.
    pub fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        let interval = 1_000_000_000u64.checked_div(per_second).map(|i| i.max(1));
        ErrorLimit { interval, per_second, full_at: Arc::default() }
    }

    /// Takes a token, where there is one at this time (nanoseconds).
    pub fn allow(&self, now: u64) -> bool {
        let Some(interval) = self.interval else { return false };
        let full_at = self.full_at.load(Relaxed).max(now);
        // Every token taken moves the time by one interval; beyond a whole bucket there is none.
        if full_at - now > interval.saturating_mul(self.per_second - 1) {
            return false;
        }
        self.full_at.store(full_at.saturating_add(interval), Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_n_are_allowed_and_n_more_each_second() {
        for n in [1u32, 3, 7, 100, 1000, 100_000] {
            let limit = ErrorLimit::new(n);
            let count = |at: u64| (0..2 * n + 2).filter(|_| limit.allow(at)).count();
            assert_eq!(count(5), n as usize);
            assert_eq!(count(5), 0);
            assert_eq!(count(5 + 2_000_000_000), n as usize);
        }
        let limit = ErrorLimit::new(10);
        let over_time = (0..10_000u64).filter(|ms| limit.allow(ms * 1_000_000)).count();
        assert!((109..=110).contains(&over_time), "{over_time}");
        assert!(!ErrorLimit::new(0).allow(1));
    }

    #[test]
    fn clones_draw_from_one_bucket() {
        let a = ErrorLimit::new(2);
        let b = a.clone();
        assert!(a.allow(0) && b.allow(0) && !a.allow(0) && !b.allow(0));
    }
}

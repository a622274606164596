//! The clock of the data path: a cycle counter and what it means in nanoseconds.

use std::sync::OnceLock;
use std::time::Instant;

/// A cycle counter of known frequency. All workers and the control side of an instance use the same one, so that
/// times they tell each other are comparable.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    read: fn() -> u64,
    hz: u64,
    /// Nanoseconds per cycle, times 2³².
    scale: u64,
}

impl Clock {
    /// A counter that `read` reads (invariant and the same on all CPUs) and that counts `hz` times per second.
    pub fn new(read: fn() -> u64, hz: u64) -> Self {
        let hz = hz.max(1);
        Clock { read, hz, scale: ((1_000_000_000u128 << 32) / u128::from(hz)) as u64 }
    }

    /// The operating system's monotonic clock, one cycle per nanosecond: slower to read than a CPU's counter, but
    /// there on every machine.
    pub fn system() -> Self {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now);
        Clock::new(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64, 1_000_000_000)
    }

    /// The counter now.
    #[inline]
    pub fn cycles(&self) -> u64 {
        (self.read)()
    }

    /// The function that reads the counter.
    pub fn reader(&self) -> fn() -> u64 {
        self.read
    }

    /// Cycles per second.
    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// A number of cycles in nanoseconds.
    #[inline]
    pub fn nanoseconds(&self, cycles: u64) -> u64 {
        ((u128::from(cycles) * u128::from(self.scale)) >> 32) as u64
    }

    /// A number of nanoseconds in cycles.
    pub fn cycles_of(&self, nanoseconds: u64) -> u64 {
        (u128::from(nanoseconds) * u128::from(self.hz) / 1_000_000_000) as u64
    }

    /// The time now in nanoseconds since the counter's zero.
    #[inline]
    pub fn now(&self) -> u64 {
        self.nanoseconds(self.cycles())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_and_nanoseconds_convert_without_overflow_for_a_century() {
        let clock = Clock::new(|| 0, 2_596_123_000);
        let century = 100 * 365 * 86_400;
        let ns = clock.nanoseconds(century * clock.hz());
        assert!(ns.abs_diff(century * 1_000_000_000) < century * 10, "{ns}");
        assert_eq!(clock.cycles_of(1_000_000_000), clock.hz());
        assert_eq!(Clock::new(|| 7, 0).cycles(), 7);
    }

    #[test]
    fn the_system_clock_goes_forward_in_nanoseconds() {
        let clock = Clock::system();
        let (a, start) = (clock.now(), Instant::now());
        while start.elapsed().as_micros() < 200 {}
        assert!((200_000..1_000_000_000).contains(&(clock.now() - a)));
    }
}

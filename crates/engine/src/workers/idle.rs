//! What a worker does when no packets wait: spin, then pause, then sleep for growing times.
//!
//! The first packet after a sleep waits at most for the rest of it; from then on the worker polls without pause again.

use std::time::Duration;

use crate::desired::IdleSpec;

/// Empty loops before the first pause: bridges the gaps between bursts of a loaded port.
const SPINS: u32 = 256;
/// Empty loops with a pause each, before the first sleep.
const PAUSES: u32 = 1024;
/// Length of a pause in spin-loop hints (some tens of nanoseconds each).
const HINTS: u32 = 4;
/// Empty loops before the CPU is given to others, where the worker has no CPU to itself.
const SPINS_SHARED: u32 = 4;
/// Sleeps of one length before the next longer one.
const SLEEPS: u32 = 4;
/// The first sleep. The kernel adds a few microseconds of its own.
const FIRST_SLEEP: Duration = Duration::from_micros(1);

/// What to do after a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Poll again at once.
    Spin,
    /// Let the sibling hyper-thread have the core for a moment.
    Pause,
    /// Let another thread have the CPU.
    Yield,
    /// Sleep this long, or until woken by a command.
    Sleep(Duration),
}

/// The idle state of one worker.
#[derive(Debug)]
pub struct Idle {
    longest: Option<Duration>,
    shared_cpu: bool,
    empty: u32,
    sleep: Duration,
    sleeps: u32,
}

impl Idle {
    /// `shared_cpu`: other threads that must make progress run on the worker's CPU too (a machine with one CPU), so
    /// it yields instead of spinning.
    pub fn new(spec: IdleSpec, shared_cpu: bool) -> Self {
        let longest = match spec {
            IdleSpec::Sleep { max_microseconds: us @ 1.. } => Some(Duration::from_micros(us.into())),
            IdleSpec::Sleep { max_microseconds: 0 } | IdleSpec::Spin => None,
        };
        Idle { longest, shared_cpu, empty: 0, sleep: FIRST_SLEEP, sleeps: 0 }
    }

    /// The last loop found packets.
    #[inline]
    pub fn busy(&mut self) {
        self.empty = 0;
        self.sleeps = 0;
        self.sleep = FIRST_SLEEP;
    }

    /// The last loop found nothing: what to do before the next one. Where the worker must `stay_awake` it never
    /// sleeps.
    #[inline]
    pub fn empty(&mut self, stay_awake: bool) -> Rest {
        self.empty = self.empty.saturating_add(1);
        if self.empty < if self.shared_cpu { SPINS_SHARED } else { SPINS } {
            return Rest::Spin;
        }
        match self.longest {
            Some(longest) if self.empty >= SPINS + PAUSES && !stay_awake => {
                self.sleeps += 1;
                if self.sleeps > SLEEPS {
                    self.sleeps = 1;
                    self.sleep *= 2;
                }
                self.sleep = self.sleep.min(longest);
                Rest::Sleep(self.sleep)
            }
            _ if self.shared_cpu => Rest::Yield,
            Some(_) => Rest::Pause,
            None => Rest::Spin,
        }
    }
}

/// One pause.
#[inline]
pub fn pause() {
    (0..HINTS).for_each(|_| std::hint::spin_loop());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_sleep(idle: &mut Idle) -> Vec<Rest> {
        (0..5000).map(|_| idle.empty(false)).take_while(|r| !matches!(r, Rest::Sleep(_))).collect()
    }

    #[test]
    fn spins_then_pauses_then_sleeps_longer_and_longer_up_to_the_limit() {
        let mut idle = Idle::new(IdleSpec::Sleep { max_microseconds: 50 }, false);
        let before = until_sleep(&mut idle);
        assert_eq!(before.iter().filter(|r| **r == Rest::Spin).count(), SPINS as usize - 1);
        assert_eq!(before.iter().filter(|r| **r == Rest::Pause).count(), PAUSES as usize);
        let sleeps: Vec<_> = (0..100).map(|_| idle.empty(false)).collect();
        assert_eq!(sleeps[2], Rest::Sleep(Duration::from_micros(1)));
        assert_eq!(sleeps[3], Rest::Sleep(Duration::from_micros(2)));
        assert_eq!(sleeps[99], Rest::Sleep(Duration::from_micros(50)));
        assert_eq!(idle.empty(true), Rest::Pause);
        idle.busy();
        assert_eq!(idle.empty(false), Rest::Spin);
        assert_eq!(until_sleep(&mut idle).len(), before.len() - 1);
    }

    #[test]
    fn spinning_workers_never_sleep_and_shared_cpus_are_yielded() {
        let mut spin = Idle::new(IdleSpec::Spin, false);
        assert!((0..100_000).all(|_| spin.empty(false) == Rest::Spin));
        let mut shared = Idle::new(IdleSpec::Spin, true);
        assert!(
            (0..100_000)
                .skip(SPINS_SHARED as usize)
                .all(|_| matches!(shared.empty(false), Rest::Spin | Rest::Yield))
        );
        assert_eq!(shared.empty(false), Rest::Yield);
        let mut polite = Idle::new(IdleSpec::Sleep { max_microseconds: 10 }, true);
        assert!(until_sleep(&mut polite).contains(&Rest::Yield));
        assert!(matches!(polite.empty(false), Rest::Sleep(_)));
    }
}

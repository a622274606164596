//! When routes are gone of a source that tells everything anew and has no word for "that was all": FRR over FPM.
//!
//! Until then all of it stays in use: FRR may restart without an interruption of traffic. A hold time alone is no safe rule
//! where it is short: zebra takes some seconds before it connects at all, and a full table some more until it is told. So
//! two things have to be true besides: a source that is away has had [`AWAY`] to come back, and one that is back has not
//! told anything again that it had told before for [`QUIET`].

use std::time::{Duration, Instant};

/// A source is given so long to come back, however short the hold time: zebra starts in one to two seconds, tries to connect
/// three seconds after that, and again every three.
pub const AWAY: Duration = Duration::from_secs(10);

/// A source that has told nothing again for so long has told everything: between two messages of a table there are
/// milliseconds. Routes that change all the time do not count, as they are told again once.
pub const QUIET: Duration = Duration::from_secs(3);

/// Knows when what a source has not told again is gone.
#[derive(Clone, Debug)]
pub struct Sweep {
    hold: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What is known is what the session says.
    Synced,
    /// No session since; what the last one said still holds.
    Away { until: Instant },
    /// A session tells everything, and told something again at last then.
    Telling { until: Instant, last: Instant },
}

impl Sweep {
    /// A sweep `hold` after a session has ended for good or begun. It has to be longer than the source needs to learn its
    /// routes again: for BGP a minute or more.
    pub fn new(hold: Duration) -> Self {
        Sweep { hold, state: State::Synced }
    }

    /// A session has begun: everything will be told.
    pub fn connected(&mut self, now: Instant) {
        self.state = State::Telling { until: now + self.hold, last: now };
    }

    /// The session has ended. What it told so far is no reason to drop the rest.
    pub fn disconnected(&mut self, now: Instant) {
        self.state = State::Away { until: now + self.hold.max(AWAY) };
    }

    /// The session has told something that an earlier one had told.
    pub fn told_again(&mut self, now: Instant) {
        if let State::Telling { last, .. } = &mut self.state {
            *last = now;
        }
    }

    /// Whether there will be a sweep.
    pub fn waits(&self) -> bool {
        self.state != State::Synced
    }

    /// Whether it is time to remove what has not been told again (`Some(false)`), or all there is (`Some(true)`); once for
    /// each session.
    pub fn is_due(&mut self, now: Instant) -> Option<bool> {
        let (due, all) = match self.state {
            State::Synced => return None,
            State::Away { until } => (until, true),
            State::Telling { until, last } => (until.max(last + QUIET), false),
        };
        if now < due {
            return None;
        }
        self.state = State::Synced;
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(60);

    fn at(start: Instant, tenths: u64) -> Instant {
        start + Duration::from_millis(100 * tenths)
    }

    #[test]
    fn what_a_new_session_does_not_tell_is_gone_after_the_hold_time() {
        let start = Instant::now();
        let mut sweep = Sweep::new(HOLD);
        assert_eq!((sweep.waits(), sweep.is_due(start)), (false, None));
        sweep.connected(start);
        assert_eq!(sweep.is_due(at(start, 599)), None);
        assert_eq!(sweep.is_due(at(start, 600)), Some(false));
        assert_eq!((sweep.waits(), sweep.is_due(at(start, 601))), (false, None), "once");
        sweep.disconnected(at(start, 1000));
        sweep.connected(at(start, 1200));
        assert_eq!(sweep.is_due(at(start, 1799)), None);
        assert_eq!(sweep.is_due(at(start, 1800)), Some(false));
    }

    #[test]
    fn a_source_that_does_not_come_back_has_nothing_left() {
        let start = Instant::now();
        let mut sweep = Sweep::new(HOLD);
        sweep.connected(start);
        // It dies again before it has told all: what it told is no more than what it did not.
        sweep.disconnected(at(start, 300));
        assert_eq!(sweep.is_due(at(start, 600)), None);
        assert_eq!(sweep.is_due(at(start, 900)), Some(true));
    }

    #[test]
    fn a_hold_time_shorter_than_a_restart_sweeps_nothing_that_is_still_told() {
        let start = Instant::now();
        let mut sweep = Sweep::new(Duration::from_secs(1));
        sweep.disconnected(start);
        assert_eq!(sweep.is_due(at(start, 50)), None, "zebra is back after five seconds");
        sweep.connected(at(start, 50));
        // Eight seconds of a full table.
        for tenth in 51..=130 {
            sweep.told_again(at(start, tenth));
            assert_eq!(sweep.is_due(at(start, tenth)), None);
        }
        assert_eq!(sweep.is_due(at(start, 159)), None);
        assert_eq!(sweep.is_due(at(start, 160)), Some(false));
        sweep.disconnected(at(start, 200));
        assert_eq!((sweep.is_due(at(start, 299)), sweep.is_due(at(start, 300))), (None, Some(true)));
    }
}

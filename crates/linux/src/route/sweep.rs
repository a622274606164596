//! Mark and sweep over a source that tells everything anew and has no word for "that was all", such as FRR over FPM.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Knows what a new session has told, and when what it has not told is gone. Until then all of it stays in use: FRR may
/// restart without an interruption of traffic. `K` is a route's identity (table and prefix) or a next-hop object's number.
#[derive(Clone, Debug)]
pub struct Sweep<K> {
    hold: Duration,
    state: State<K>,
}

#[derive(Clone, Debug)]
enum State<K> {
    /// What is known is what the session says.
    Synced,
    /// No session since; what the last one said still holds.
    Away { until: Instant },
    /// A session tells everything.
    Telling { until: Instant, told: HashSet<K> },
}

/// What is left after a hold time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept<K: Eq + Hash>(HashSet<K>);

impl<K: Eq + Hash> Swept<K> {
    /// Whether this was not told, and has to be removed.
    pub fn gone(&self, key: &K) -> bool {
        !self.0.contains(key)
    }
}

impl<K: Eq + Hash> Sweep<K> {
    /// A sweep `hold` after a session has ended for good or begun. It has to be longer than the source needs to learn its
    /// routes again: for BGP a minute or more.
    pub fn new(hold: Duration) -> Self {
        Sweep { hold, state: State::Synced }
    }

    /// A session has begun: everything will be told.
    pub fn connected(&mut self, now: Instant) {
        self.state = State::Telling { until: now + self.hold, told: HashSet::new() };
    }

    /// The session has ended. What it told so far is no reason to drop the rest.
    pub fn disconnected(&mut self, now: Instant) {
        self.state = State::Away { until: now + self.hold };
    }

    /// The session has told this.
    pub fn told(&mut self, key: K) {
        if let State::Telling { told, .. } = &mut self.state {
            told.insert(key);
        }
    }

    /// The session has taken this back.
    pub fn deleted(&mut self, key: &K) {
        if let State::Telling { told, .. } = &mut self.state {
            told.remove(key);
        }
    }

    /// When to call [`sweep`](Self::sweep); `None`: there is nothing to wait for.
    pub fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Synced => None,
            State::Away { until } | State::Telling { until, .. } => Some(*until),
        }
    }

    /// Once the hold time is over: what stays. Everything else that this source ever told has to be removed.
    pub fn sweep(&mut self, now: Instant) -> Option<Swept<K>> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Synced) {
            State::Telling { told, .. } => Some(Swept(told)),
            State::Synced | State::Away { .. } => Some(Swept(HashSet::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(60);

    #[test]
    fn what_a_new_session_does_not_tell_is_gone_after_the_hold_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut sweep = Sweep::new(HOLD);
        assert_eq!((sweep.due(), sweep.sweep(at(0))), (None, None));
        sweep.connected(at(0));
        sweep.told("a");
        assert!(!sweep.sweep(at(60)).unwrap().gone(&"a"));
        assert_eq!((sweep.due(), sweep.sweep(at(61))), (None, None), "once");
        sweep.told("b");

        sweep.disconnected(at(100));
        sweep.connected(at(120));
        sweep.told("b");
        sweep.told("c");
        sweep.deleted(&"c");
        assert_eq!((sweep.due(), sweep.sweep(at(179))), (Some(at(180)), None));
        let swept = sweep.sweep(at(180)).unwrap();
        assert!(swept.gone(&"a") && !swept.gone(&"b") && swept.gone(&"c"));
    }

    #[test]
    fn a_source_that_does_not_come_back_has_nothing_left() {
        let start = Instant::now();
        let mut sweep = Sweep::new(HOLD);
        sweep.connected(start);
        sweep.told(1);
        // It dies again before it has told all: what it told is no more than what it did not.
        sweep.disconnected(start + HOLD / 2);
        assert_eq!(sweep.sweep(start + HOLD), None);
        assert!(sweep.sweep(start + HOLD / 2 + HOLD).unwrap().gone(&1));
    }
}

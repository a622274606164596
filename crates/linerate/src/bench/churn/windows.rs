//! The tester's thread: traffic without a pause, seen in windows, with and without changes in turn.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use linerate_dpdk::{Mbuf, RxQueue, TxQueue};
use linerate_pipeline::loop_times::LoopCounts;
use linerate_tester::closed_loop::{ClosedLoop, Trial};
use linerate_tester::ip::Ip;

use super::updates::Switch;
use crate::demo::measure::{Ends, Meter, drain, turn_until};
use crate::demo::outcome::Window;
use crate::demo::station::Frames;

/// After changes began or ended, before windows count.
const SETTLE: Duration = Duration::from_millis(50);

/// Share of a window for which the worker's loops must account.
const PRESENT: f64 = 0.9;

/// How long it all takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// One window.
    pub(super) window: Duration,
    /// Windows with changes in each round.
    pub(super) with: usize,
    /// Windows without.
    pub(super) without: usize,
    /// Rounds.
    pub(super) rounds: usize,
}

/// One window.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) window: Window,
    /// Loops of the worker.
    pub(super) loops: LoopCounts,
    /// The worker's CPU was not taken from it, in this window and the one before, as far as this system knows. What the worker
    /// gives up by itself, waiting for something, is its own fault: such windows count.
    pub(super) undisturbed: bool,
}

/// The windows of one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) with: Vec<Seen>,
    pub(super) without: Vec<Seen>,
}

/// The traffic of a run.
pub(super) struct Traffic<A, R, T> {
    pub(super) tester: ClosedLoop<A, Mbuf>,
    pub(super) ends: Ends<R, T>,
    pub(super) frames: Frames,
    pub(super) meter: Meter,
    /// The worker shares this thread's CPU.
    pub(super) yielding: bool,
    pub(super) presence: Presence,
}

/// Whether the worker's CPU was taken from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presence {
    /// How often so far; `None`: the system does not say.
    taken: Option<u64>,
    /// It was in the last window, or has not been given back since.
    away: bool,
}

impl Presence {
    /// Nothing is known of what was before.
    pub(super) fn new() -> Self {
        Presence { taken: None, away: true }
    }

    /// A window is over: it ran for so much of the time, and its CPU was taken from it so often by now. Whether that, and the
    /// window before, was undisturbed.
    fn window(&mut self, taken: Option<u64>, ran: f64) -> bool {
        let lost = taken.is_none() || taken != self.taken;
        // The switch is counted when the CPU goes: where it does not come back within the window, there is none in the next.
        let away = lost || self.away && ran < PRESENT;
        self.taken = taken;
        let before = std::mem::replace(&mut self.away, away);
        !away && !before
    }
}

impl<A: Ip> Traffic<A, RxQueue, TxQueue> {
    /// Runs all rounds, then waits for what is under way.
    pub(super) fn run(mut self, timing: Timing, switch: &Switch) -> (Vec<Round>, Trial) {
        let mut rounds = Vec::new();
        self.turn(Duration::from_millis(200));
        for _ in 0..timing.rounds {
            let mut round = Round::default();
            self.set(switch, false);
            (0..timing.without).for_each(|_| round.without.push(self.window(timing.window)));
            self.set(switch, true);
            (0..timing.with).for_each(|_| round.with.push(self.window(timing.window)));
            rounds.push(round);
        }
        switch.end.store(true, Relaxed);
        let trial = drain(&mut self.tester, &mut self.ends, self.meter.clock, self.yielding);
        (rounds, trial)
    }

    fn turn(&mut self, time: Duration) {
        let until = self.meter.clock.now() + time.as_nanos() as u64;
        turn_until(
            until,
            &mut self.tester,
            &mut self.ends,
            &mut self.frames,
            self.meter.clock,
            self.yielding,
        );
    }

    /// Lets changes begin or end, and waits until they have; traffic goes on.
    fn set(&mut self, switch: &Switch, on: bool) {
        switch.on.store(on, Relaxed);
        while switch.active.load(Relaxed) != on && !switch.end.load(Relaxed) {
            self.turn(Duration::from_millis(1));
        }
        self.turn(SETTLE);
    }

    fn window(&mut self, time: Duration) -> Seen {
        let (meter, good) = (&self.meter, self.tester.good());
        self.presence.taken = involuntary_switches(meter.thread);
        let (loops, cycles) = (meter.counters.loop_times.read(), meter.counters.cycles.get());
        let before = meter.read(good);
        self.turn(time);
        let meter = &self.meter;
        let after = meter.read(self.tester.good());
        let loops = meter.counters.loop_times.read().since(&loops);
        let ran =
            meter.clock.nanoseconds(meter.counters.cycles.get() - cycles) as f64 / time.as_nanos() as f64;
        let undisturbed = self.presence.window(involuntary_switches(meter.thread), ran);
        let window = meter.window(before, after);
        Seen { window, loops, undisturbed }
    }
}

/// How often a thread's CPU was given to another without its asking for that (`/proc/PID/task/TID/status`).
fn involuntary_switches(thread: u32) -> Option<u64> {
    involuntary_in(&std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?)
}

fn involuntary_in(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_windows_in_which_the_cpu_was_taken_are_disturbed() {
        let mut p = Presence::new();
        assert!(!p.window(Some(5), 1.0), "nothing is known yet");
        assert!(!p.window(Some(5), 1.0), "nor of the window before");
        assert!(p.window(Some(5), 1.0));
        // It waited for something by itself, for half a window or all of it: that is what is looked for.
        assert!(p.window(Some(5), 0.5));
        assert!(p.window(Some(5), 0.0));
        // Another program has the CPU, in the end for longer than a window.
        assert!(!p.window(Some(6), 0.3));
        assert!(!p.window(Some(6), 0.0));
        assert!(!p.window(Some(6), 0.1));
        assert!(!p.window(Some(6), 1.0), "the loop that ends here began before");
        assert!(p.window(Some(6), 1.0));
        assert!(!p.window(None, 1.0), "the system does not say");
    }

    #[test]
    fn what_linux_says_of_a_thread() {
        let text = "Name:\tworker-0\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(involuntary_in(text), Some(4));
        assert_eq!(involuntary_in("Name:\tworker-0\n"), None);
        let sleeping = std::thread::spawn(|| {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let own = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let before = involuntary_switches(own).unwrap();
            (0..200).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
            involuntary_switches(own).unwrap() - before
        });
        assert!(sleeping.join().unwrap() < 100, "it slept 200 times, which nobody made it do");
    }
}

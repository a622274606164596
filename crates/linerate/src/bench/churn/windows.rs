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
    /// The worker's thread was not taken off its CPU, in this window and the one before, as far as this system knows.
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
    /// The worker's thread lost its CPU in the last window.
    pub(super) disturbed: bool,
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
        let (had, loops, cycles) =
            (turns(meter.thread), meter.counters.loop_times.read(), meter.counters.cycles.get());
        let before = meter.read(good);
        self.turn(time);
        let meter = &self.meter;
        let after = meter.read(self.tester.good());
        let loops = meter.counters.loop_times.read().since(&loops);
        // A thread that had no CPU at all was not given one either.
        let ran = meter.clock.nanoseconds(meter.counters.cycles.get() - cycles) as f64;
        let kept = ran >= PRESENT * time.as_nanos() as f64 && had.is_some() && had == turns(meter.thread);
        let undisturbed = kept && !self.disturbed;
        let window = meter.window(before, after);
        self.disturbed = !kept;
        Seen { window, loops, undisturbed }
    }
}

/// How often a thread was given a CPU so far: one that spins is given it again only after it was taken away.
fn turns(thread: u32) -> Option<u64> {
    let path = format!("/proc/self/task/{thread}/schedstat");
    std::fs::read_to_string(path).ok()?.split_whitespace().nth(2)?.parse().ok()
}

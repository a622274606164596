//! One trial: warm up, measure windows, drain, and only then count what was lost.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linerate_engine::clock::Clock;
use linerate_pipeline::io::{RxQueue, TxQueue};
use linerate_pipeline::{BURST, Packet, PortId, WorkerCounters};
use linerate_tester::closed_loop::{ClosedLoop, FrameAlloc, Trial, Wire};
use linerate_tester::ip::Ip;

use super::outcome::{Side, Window};

/// Nothing has come back for so long: what is under way is lost. Far longer than any ring takes to empty, short enough
/// that a router that loses packets does not stop the show.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long one trial takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Before measuring: caches and branch predictors settle.
    pub(crate) warm_up: Duration,
    /// One window.
    pub(crate) window: Duration,
    /// Windows per trial.
    pub(crate) windows: usize,
}

/// The tester's ends of the ports of one device under test.
pub(crate) struct Ends<R, T> {
    /// By port of the router: what leaves it.
    pub(crate) rx: Vec<(PortId, R)>,
    /// What the router receives on its port `in`.
    pub(crate) tx: T,
}

/// What the worker under test says about itself.
pub(crate) struct Meter {
    /// Its counters.
    pub(crate) counters: Arc<WorkerCounters>,
    /// Its thread, as Linux numbers it.
    pub(crate) thread: u32,
    /// The clock of all.
    pub(crate) clock: Clock,
}

/// One reading of the meter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    time: u64,
    good: u64,
    received: u64,
    busy_cycles: u64,
    cpu: u64,
}

impl Meter {
    /// Reads it; `good` packets have come back right so far.
    pub(crate) fn read(&self, good: u64) -> Reading {
        Reading {
            time: self.clock.now(),
            good,
            received: self.counters.ports.iter().map(|p| p.received.get()).sum(),
            busy_cycles: self.counters.busy_cycles.get(),
            cpu: linerate_linux::thread::cpu_time(Path::new("/proc"), self.thread).unwrap_or(0),
        }
    }

    /// What happened between two readings.
    pub(crate) fn window(&self, a: Reading, b: Reading) -> Window {
        let time = b.time.saturating_sub(a.time).max(1) as f64;
        let busy = self.clock.nanoseconds(b.busy_cycles - a.busy_cycles) as f64;
        Window {
            rate: (b.good - a.good) as f64 * 1e3 / time,
            capacity: if busy > 0.0 { (b.received - a.received) as f64 * 1e3 / busy } else { 0.0 },
            busy: (busy / time).min(1.0),
            cpu: (b.cpu.saturating_sub(a.cpu) as f64 / time).min(1.0),
        }
    }
}

/// Runs one trial and adds it to `side`. `yielding`: the worker shares this thread's CPU.
pub(crate) fn trial<A: Ip, P: Packet, R: RxQueue<P>, T: TxQueue<P>>(
    mut tester: ClosedLoop<A, P>,
    ends: &mut Ends<R, T>,
    pool: &mut impl FrameAlloc<P>,
    meter: &Meter,
    timing: Timing,
    yielding: bool,
    side: &mut Side,
) -> usize {
    let clock = meter.clock;
    let until = clock.now() + timing.warm_up.as_nanos() as u64;
    turn_until(until, &mut tester, ends, pool, clock, yielding);
    let mut before = meter.read(tester.good());
    for _ in 0..timing.windows {
        turn_until(before.time + timing.window.as_nanos() as u64, &mut tester, ends, pool, clock, yielding);
        let after = meter.read(tester.good());
        side.windows.push(meter.window(before, after));
        before = after;
    }
    side.trial.add(&drain(&mut tester, ends, clock, yielding));
    tester.position()
}

/// Stops sending, waits for what is under way and says what the trial came to.
pub(crate) fn drain<A: Ip, P: Packet, R: RxQueue<P>, T>(
    tester: &mut ClosedLoop<A, P>,
    ends: &mut Ends<R, T>,
    clock: Clock,
    yielding: bool,
) -> Trial {
    drain_for(tester, ends, clock, yielding, PATIENCE)
}

/// The same where what is under way counts as lost only after `patience` without any packet.
pub(crate) fn drain_for<A: Ip, P: Packet, R: RxQueue<P>, T>(
    tester: &mut ClosedLoop<A, P>,
    ends: &mut Ends<R, T>,
    clock: Clock,
    yielding: bool,
    patience: Duration,
) -> Trial {
    tester.stop();
    let mut quiet_since = clock.now();
    loop {
        let now = clock.now();
        if receive(tester, ends, now) > 0 {
            quiet_since = now;
        } else if yielding {
            std::thread::yield_now();
        }
        // When all has come back, wait a little for what should not be there: a packet sent twice.
        let wait = if tester.under_way() == 0 { PATIENCE / 100 } else { patience };
        if now.saturating_sub(quiet_since) > wait.as_nanos() as u64 {
            return tester.result();
        }
    }
}

/// What the tester can do on its own: million packets per second sent, received and checked over a piece of wire.
pub(crate) fn ceiling<A: Ip, P: Packet>(
    mut tester: ClosedLoop<A, P>,
    port: PortId,
    pool: &mut impl FrameAlloc<P>,
    clock: Clock,
    time: Duration,
) -> f64 {
    let mut wire = Wire::new(4 * BURST);
    let (mut good, mut start) = (0, clock.now());
    // The first half warms up.
    for half in 1..=2 {
        let until = start + time.as_nanos() as u64 / 2;
        while clock.now() < until {
            let now = clock.now();
            tester.send(&mut wire, pool, now);
            tester.receive(port, &mut wire, now);
        }
        if half == 1 {
            (good, start) = (tester.good(), clock.now());
        }
    }
    (tester.good() - good) as f64 * 1e3 / clock.now().saturating_sub(start).max(1) as f64
}

/// Sends, receives and checks until a moment.
pub(crate) fn turn_until<A: Ip, P: Packet, R: RxQueue<P>, T: TxQueue<P>>(
    until: u64,
    tester: &mut ClosedLoop<A, P>,
    ends: &mut Ends<R, T>,
    pool: &mut impl FrameAlloc<P>,
    clock: Clock,
    yielding: bool,
) {
    loop {
        let now = clock.now();
        if now >= until {
            return;
        }
        let received = receive(tester, ends, now);
        let sent = tester.send(&mut ends.tx, pool, now);
        if received == 0 && sent == 0 {
            tester.give_up(now, PATIENCE.as_nanos() as u64);
            if yielding {
                std::thread::yield_now();
            }
        }
    }
}

fn receive<A: Ip, P: Packet, R: RxQueue<P>, T>(
    tester: &mut ClosedLoop<A, P>,
    ends: &mut Ends<R, T>,
    now: u64,
) -> usize {
    ends.rx.iter_mut().map(|(port, queue)| tester.receive(*port, queue, now)).sum()
}

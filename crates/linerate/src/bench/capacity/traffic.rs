//! The tester's thread: both families in turn, every packet checked.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_dpdk::{Mbuf, RxQueue, TxQueue};
use linerate_engine::clock::Clock;
use linerate_pipeline::Batch;
use linerate_pipeline::io::RxQueue as _;
use linerate_tester::closed_loop::{ClosedLoop, Trial};
use linerate_tester::flow::Flows;
use linerate_tester::frame::{FrameSpec, Template};
use linerate_tester::ip::Ip;
use linerate_tester::sink::Expect;

use crate::demo::measure::{Ends, drain_for, turn_until};
use crate::demo::plan::{IN, TESTER_MAC, router_mac};
use crate::demo::station::{Frames, WINDOW};

/// Bytes of a frame, FCS included.
const SIZE: u16 = 128;

/// For so long packets of one family flow before it is the other's turn.
const SLICE: Duration = Duration::from_millis(10);

/// Then the CPU is left to the threads that routes come by, which may have no other.
const PAUSE: Duration = Duration::from_millis(10);

/// Nothing has come back for so long: what is under way is lost. While others have the worker's CPU, packets wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells this program's frames from anything else.
const KEY: u64 = 0x6c69_6e65_6361_7061;

/// Destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// None.
    Idle = 0,
    /// By the routes that are there all the time.
    Kept = 1,
    /// By all.
    Whole = 2,
}

/// What the thread is to do, and what it does.
#[derive(Debug, Default)]
pub(super) struct Switch {
    wanted: AtomicU8,
    current: AtomicU8,
    end: AtomicBool,
}

impl Switch {
    /// Switches and waits until nothing of the mode before is under way.
    pub(super) fn set(&self, mode: Mode) {
        self.wanted.store(mode as u8, Relaxed);
        while self.current.load(Relaxed) != mode as u8 && !self.end.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.end.store(true, Relaxed);
    }
}

/// One family's destinations.
pub(super) struct Family<A> {
    pub(super) source: A,
    pub(super) kept: Flows<A>,
    pub(super) whole: Flows<A>,
    at: [usize; 2],
}

impl<A: Ip> Family<A> {
    pub(super) fn new(source: A, kept: Flows<A>, whole: Flows<A>) -> Self {
        Family { source, kept, whole, at: [0; 2] }
    }
}

/// The traffic of a run.
pub(super) struct Traffic {
    pub(super) ends: Ends<RxQueue, TxQueue>,
    pub(super) frames: Frames,
    pub(super) clock: Clock,
    pub(super) ip4: Family<u32>,
    pub(super) ip6: Family<u128>,
}

impl Traffic {
    /// Sends as the switch says until it ends; returns what came back, by family.
    pub(super) fn run(mut self, switch: &Switch) -> Result<[Trial; 2]> {
        let mut trials = [Trial::default(), Trial::default()];
        while !switch.end.load(Relaxed) {
            let wanted = switch.wanted.load(Relaxed);
            switch.current.store(wanted, Relaxed);
            let whole = match wanted {
                w if w == Mode::Idle as u8 => {
                    self.discard();
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                w => w == Mode::Whole as u8,
            };
            let Traffic { ends, frames, clock, ip4, ip6 } = &mut self;
            trials[0].add(&slice(ip4, whole, ends, frames, *clock)?);
            trials[1].add(&slice(ip6, whole, ends, frames, *clock)?);
            std::thread::sleep(PAUSE);
        }
        Ok(trials)
    }

    /// Packets while none are under way are Linux's own, from the taps.
    fn discard(&mut self) {
        let mut batch = Batch::<Mbuf>::new();
        for (_, queue) in &mut self.ends.rx {
            while queue.rx(&mut batch) > 0 {
                batch.drain(..);
            }
        }
    }
}

fn slice<A: Ip>(
    family: &mut Family<A>,
    whole: bool,
    ends: &mut Ends<RxQueue, TxQueue>,
    frames: &mut Frames,
    clock: Clock,
) -> Result<Trial> {
    let spec = FrameSpec::new::<A>(SIZE).context("frame size")?;
    let template = Template::new(spec, TESTER_MAC, router_mac(IN), family.source, KEY);
    let flows = if whole { &family.whole } else { &family.kept };
    let at = &mut family.at[usize::from(whole)];
    let mut tester = ClosedLoop::new(template, flows.clone(), Expect::Routed, WINDOW, *at);
    turn_until(clock.now() + SLICE.as_nanos() as u64, &mut tester, ends, frames, clock, true);
    let trial = drain_for(&mut tester, ends, clock, true, PATIENCE);
    *at = tester.position();
    Ok(trial)
}

//! The tester's thread: all sizes of all families, floor and router in turn.

use std::time::Duration;

use anyhow::{Context, Result};
use linerate_dpdk::{Mbuf, Pool, RxQueue, TxQueue};
use linerate_pipeline::Packet;
use linerate_tester::closed_loop::{ClosedLoop, FrameAlloc};
use linerate_tester::flow::Flows;
use linerate_tester::frame::{FrameSpec, Template};
use linerate_tester::ip::Ip;
use linerate_tester::sink::Expect;

use super::breaker::Breaker;
use super::floor::OUT;
use super::measure::{Ends, Meter, Timing, ceiling, trial};
use super::outcome::{Case, Side};
use super::plan::{IN, TESTER_MAC, router_mac};

/// Packets under way at most: enough to keep both ends at work, few enough to stay in a core's L2 cache.
pub(crate) const WINDOW: u32 = 512;

/// Tells this program's test frames from anything else.
const KEY: u64 = 0x6c69_6e65_7261_7465;

/// How long the tester is measured on its own, per size.
const CEILING: Duration = Duration::from_millis(30);

/// Frames from a DPDK pool, in as many buffers as their length takes.
pub(crate) struct Frames(pub(crate) &'static Pool);

impl FrameAlloc<Mbuf> for Frames {
    fn frame(&mut self, len: usize) -> Option<Mbuf> {
        let piece = |left: usize| {
            let mut m = self.0.alloc()?;
            let n = left.min(self.0.data_room());
            m.append(n)?;
            Some((m, n))
        };
        let (mut frame, mut have) = piece(len)?;
        while have < len {
            let (more, n) = piece(len - have)?;
            frame.chain(more).ok()?;
            have += n;
        }
        Some(frame)
    }
}

/// What is measured, and how.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// Frame sizes.
    pub(crate) sizes: Vec<u16>,
    /// How often floor and router take turns per size.
    pub(crate) rounds: usize,
    /// Each turn.
    pub(crate) timing: Timing,
    /// Tester and worker share a CPU.
    pub(crate) one_cpu: bool,
}

/// The tester's side of everything.
pub(crate) struct Station {
    pub(crate) frames: Frames,
    pub(crate) router: (Ends<Breaker<RxQueue>, TxQueue>, Meter),
    pub(crate) floor: (Ends<RxQueue, TxQueue>, Meter),
    pub(crate) schedule: Schedule,
}

impl Station {
    /// Measures all sizes of one family; hands each case over as it is done.
    pub(crate) fn family<A: Ip>(
        &mut self,
        flows: &Flows<A>,
        source: A,
        mut done: impl FnMut(Case),
    ) -> Result<()> {
        let mut at = 0;
        for size in self.schedule.sizes.clone() {
            let frame = FrameSpec::new::<A>(size).context("frame sizes")?;
            let template = Template::new(frame, TESTER_MAC, router_mac(IN), source, KEY);
            let tester = |expect, at| ClosedLoop::new(template.clone(), flows.clone(), expect, WINDOW, at);
            let ceiling = ceiling(
                tester(Expect::Unchanged(OUT), at),
                OUT,
                &mut self.frames,
                self.router.1.clock,
                CEILING,
            );
            let (mut router, mut floor) = (Side::default(), Side::default());
            let (timing, one_cpu) = (self.schedule.timing, self.schedule.one_cpu);
            for _ in 0..self.schedule.rounds {
                let (ends, meter) = &mut self.floor;
                let t = tester(Expect::Unchanged(OUT), at);
                trial(t, ends, &mut self.frames, meter, timing, one_cpu, &mut floor);
                let (ends, meter) = &mut self.router;
                let t = tester(Expect::Routed, at);
                at = trial(t, ends, &mut self.frames, meter, timing, one_cpu, &mut router);
            }
            done(Case { family: A::NAME, id: A::ID, asked: size, frame, router, floor, ceiling });
        }
        Ok(())
    }
}

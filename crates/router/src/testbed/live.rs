//! A whole router, control and workers: the real [`Router`] and real graphs in one place, joined as an engine joins
//! them, with time under the test's control.

use std::error::Error;

use linerate_pipeline::{DropReason, HeapPacket, PortId};
use linerate_tables::qsbr::Domain;

use super::Sent;
use super::rig::Rig;
use crate::event::RouterEvent;
use crate::model::RouterConfig;
use crate::naive::NaiveFib;
use crate::neighbor::NeighborOptions;
use crate::nodes::resolve::HoldLimits;
use crate::nodes::solicit;
use crate::router::Router;

/// Nanoseconds between two ticks of a worker.
const TICK: u64 = 1_000_000;

/// Ticks of workers between two rounds of control.
const ROUND: u64 = 3;

/// The router and its workers.
pub struct Live {
    /// Control.
    pub router: Router<NaiveFib<u32>, NaiveFib<u128>>,
    /// Its workers, all of which send by ports of their own here.
    pub workers: Vec<Rig>,
    /// Time in nanoseconds.
    pub now: u64,
    next_prober: usize,
}

impl Live {
    /// A router in this state with `workers` workers.
    pub fn new(config: RouterConfig, workers: usize) -> Result<Self, Box<dyn Error>> {
        let (fib4, fib6) = (NaiveFib::default(), NaiveFib::default());
        let router = Router::new(Domain::new(), fib4, fib6, NeighborOptions::default())?;
        let make = || Ok((NaiveFib::default(), NaiveFib::default()));
        let mut router = router.with_vrfs(make);
        router.apply(1, config)?;
        let hold = HoldLimits::default();
        let workers = (0..workers).map(|_| Rig::new(router.plane(), hold)).collect::<Result<_, _>>()?;
        Ok(Live { router, workers, now: 1, next_prober: 0 })
    }

    /// Lets packets arrive at a worker; returns what it sent.
    pub fn receive(
        &mut self,
        worker: usize,
        port: PortId,
        packets: impl IntoIterator<Item = HeapPacket>,
    ) -> Vec<Sent> {
        let now = self.now;
        self.workers.get_mut(worker).map(|w| w.receive(now, port, packets)).unwrap_or_default()
    }

    /// Lets a frame arrive at the first worker.
    pub fn frame(&mut self, port: PortId, frame: &[u8]) -> Vec<Sent> {
        self.receive(0, port, [HeapPacket::new(frame)])
    }

    /// One round of control: events in, timers, probes out. Returns what workers sent of it.
    pub fn control(&mut self) -> Vec<Sent> {
        let now = self.now;
        let events: Vec<RouterEvent> = self.workers.iter_mut().flat_map(Rig::events).collect();
        events.into_iter().for_each(|event| self.router.event(now, event));
        self.router.tick(now);
        let probes: Vec<_> = self.router.probes().collect();
        for probe in probes {
            let at = self.next_prober % self.workers.len().max(1);
            self.next_prober = at + 1;
            let plane = self.router.plane();
            let mut interfaces = plane.interfaces;
            if let Some(worker) = self.workers.get_mut(at) {
                worker.with_graph(now, |_, cx| {
                    solicit::send(cx, interfaces.get(), &plane.next_hops, &probe);
                });
            }
        }
        self.workers.iter_mut().flat_map(Rig::sent).collect()
    }

    /// Lets time pass, workers' and control's timers running as often as in an engine; hands each frame that leaves to
    /// `peer`, which answers with frames that arrive at the first worker. Returns what left.
    pub fn run(&mut self, nanoseconds: u64, mut peer: impl FnMut(&Sent) -> Option<Vec<u8>>) -> Vec<Sent> {
        let (end, mut all) = (self.now + nanoseconds, Vec::new());
        while self.now < end {
            self.now = (self.now + TICK).min(end);
            let now = self.now;
            let mut sent: Vec<Sent> = self.workers.iter_mut().flat_map(|w| w.tick(now)).collect();
            if (self.now / TICK).is_multiple_of(ROUND) {
                sent.extend(self.control());
            }
            for frame in &sent {
                if let Some(answer) = peer(frame) {
                    all.extend(self.frame(frame.port, &answer));
                }
            }
            all.extend(sent);
        }
        all
    }

    /// The drops of all workers since the last call. Every port must balance.
    pub fn drops(&mut self) -> Vec<(DropReason, u64)> {
        self.workers.iter_mut().flat_map(Rig::drops).collect()
    }

    /// Packets that wait for neighbours.
    pub fn held(&self) -> u64 {
        self.workers.iter().map(Rig::held).sum()
    }
}

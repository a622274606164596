//! Rates: counters sampled once a second, and the difference of the last two samples.

use std::time::Duration;

use linerate_pipeline::{DropReason, WorkerCounters};

use crate::dataplane::Dataplane;

/// Counters at one moment.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    at: Duration,
    /// By port: rx packets, rx bytes, tx packets, tx bytes.
    ports: Vec<[u64; 4]>,
    /// By worker: packets, busy cycles, cycles.
    workers: Vec<[u64; 3]>,
    /// By port, queue: packets.
    queues: Vec<((u16, u16), u64)>,
    /// By drop reason.
    drops: Vec<u64>,
}

/// The last two samples.
#[derive(Debug, Default)]
pub(super) struct Rates {
    before: Option<Sample>,
    last: Option<Sample>,
}

impl Rates {
    /// Takes a sample; `at` is the time on any steady clock.
    pub(super) fn sample(&mut self, plane: &dyn Dataplane, at: Duration) {
        let workers = plane.workers();
        let sum = |f: &dyn Fn(&WorkerCounters) -> u64| workers.iter().map(|w| f(&w.counters)).sum::<u64>();
        let port = |p: usize| {
            let p = p as u16;
            [
                sum(&|c| c.port(p).received.get()),
                sum(&|c| c.port(p).rx_bytes.get()),
                sum(&|c| c.port(p).tx_packets.get()),
                sum(&|c| c.port(p).tx_bytes.get()),
            ]
        };
        let sample = Sample {
            at,
            ports: (0..plane.ports().len()).map(port).collect(),
            workers: workers
                .iter()
                .map(|w| [packets(&w.counters), w.counters.busy_cycles.get(), w.counters.cycles.get()])
                .collect(),
            queues: plane.queues().iter().map(|q| ((q.port, q.queue), q.packets)).collect(),
            drops: DropReason::ALL.iter().map(|r| sum(&|c| c.drops(*r))).collect(),
        };
        self.before = self.last.replace(sample);
    }

    /// Per second: rx packets, rx bytes, tx packets, tx bytes of a port.
    pub(super) fn port(&self, port: usize) -> [Option<f64>; 4] {
        std::array::from_fn(|i| self.rate(|s| s.ports.get(port).map(|p| p[i])))
    }

    /// Packets per second of a worker.
    pub(super) fn worker(&self, worker: usize) -> Option<f64> {
        self.rate(|s| s.workers.get(worker).map(|w| w[0]))
    }

    /// Busy share of a worker.
    pub(super) fn busy(&self, worker: usize) -> Option<f64> {
        let of = |i: usize| self.rate(|s| s.workers.get(worker).map(|w| w[i]));
        let (busy, all) = (of(1)?, of(2)?);
        (all > 0.0).then(|| (busy / all).min(1.0))
    }

    /// Packets per second of a queue.
    pub(super) fn queue(&self, port: u16, queue: u16) -> Option<f64> {
        self.rate(|s| s.queues.iter().find(|q| q.0 == (port, queue)).map(|q| q.1))
    }

    /// Drops per second for a reason.
    pub(super) fn drops(&self, reason: DropReason) -> Option<f64> {
        self.rate(|s| s.drops.get(usize::from(reason.code())).copied())
    }

    fn rate(&self, of: impl Fn(&Sample) -> Option<u64>) -> Option<f64> {
        let (before, last) = (self.before.as_ref()?, self.last.as_ref()?);
        let seconds = last.at.checked_sub(before.at)?.as_secs_f64();
        (seconds > 0.0).then_some(of(last)?.saturating_sub(of(before)?) as f64 / seconds)
    }
}

/// Packets a worker received or took over from others.
pub(super) fn packets(c: &WorkerCounters) -> u64 {
    c.ports.iter().map(|p| p.received.get() + p.handed_in.get()).sum()
}

//! Counters of one worker: written by that worker alone with plain stores, read by anyone at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::loop_times::LoopTimes;
use crate::{DropReason, PortId};

/// The most ports a process can have (Debian's DPDK is built with 32 devices).
pub const MAX_PORTS: usize = 32;

/// A counter with one writer: no read-modify-write instruction, so it costs what a plain addition costs.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning worker may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes `n` back from what was added too early. Only the owning worker may call this.
    #[inline]
    pub fn take_back(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).saturating_sub(n), Relaxed);
    }

    /// Sets the value (gauges). Only the owning worker may call this.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What one worker did with the packets that came in by one port. The accounting identity holds per port:
/// `received + generated + handed_in = sent + handed_over + Σ drops + held`.
#[derive(Debug)]
pub struct PortCounters {
    /// Packets received from this port's queues.
    pub received: Counter,
    /// Packets made by nodes in answer to this port's packets.
    pub generated: Counter,
    /// Packets that came in by this port and were given to any device for transmission (or wait for it until the end
    /// of the loop).
    pub sent: Counter,
    /// Packets given to another worker.
    pub handed_over: Counter,
    /// Packets taken over from another worker.
    pub handed_in: Counter,
    /// Packets inside nodes now (waiting for a neighbour): a gauge.
    pub held: Counter,
    /// Packets dropped, by [`DropReason::code`].
    pub drops: [Counter; DropReason::COUNT],
    /// Packets that left by this port (whatever port they came in by).
    pub tx_packets: Counter,
    /// Bytes that left by this port, without FCS.
    pub tx_bytes: Counter,
    /// Bytes received, without FCS.
    pub rx_bytes: Counter,
}

impl Default for PortCounters {
    fn default() -> Self {
        PortCounters {
            received: Counter::default(),
            generated: Counter::default(),
            sent: Counter::default(),
            handed_over: Counter::default(),
            handed_in: Counter::default(),
            held: Counter::default(),
            drops: std::array::from_fn(|_| Counter::default()),
            tx_packets: Counter::default(),
            tx_bytes: Counter::default(),
            rx_bytes: Counter::default(),
        }
    }
}

impl PortCounters {
    /// Sum over all drop reasons.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }

    /// How far the accounting identity is off: 0 when every packet is accounted for. Exact while the worker is at
    /// rest; read under load it may be off by the packets of the burst in hand.
    pub fn imbalance(&self) -> i64 {
        let came = self.received.get() + self.generated.get() + self.handed_in.get();
        let went = self.sent.get() + self.handed_over.get() + self.dropped() + self.held.get();
        came.wrapping_sub(went) as i64
    }
}

/// All counters of one worker.
#[derive(Debug)]
pub struct WorkerCounters {
    /// By [`PortId`] of the port that packets came in by.
    pub ports: [PortCounters; MAX_PORTS],
    /// Loop iterations.
    pub loops: Counter,
    /// Iterations that found packets.
    pub busy_loops: Counter,
    /// TSC cycles of all iterations.
    pub cycles: Counter,
    /// TSC cycles of iterations that found packets.
    pub busy_cycles: Counter,
    /// Lengths of iterations that found packets.
    pub loop_times: LoopTimes,
    /// Longest time between two quiescent points in TSC cycles: how long the worker was held up at most.
    pub longest_loop: Counter,
    /// Hops of traced packets that were lost because nobody took them in time.
    pub trace_lost: Counter,
}

impl WorkerCounters {
    /// Fresh counters, shared between the worker and its readers.
    pub fn new() -> Arc<Self> {
        Arc::new(WorkerCounters {
            ports: std::array::from_fn(|_| PortCounters::default()),
            loops: Counter::default(),
            busy_loops: Counter::default(),
            cycles: Counter::default(),
            busy_cycles: Counter::default(),
            loop_times: LoopTimes::default(),
            longest_loop: Counter::default(),
            trace_lost: Counter::default(),
        })
    }

    /// The counters of a port; port ids beyond the table share the last row.
    #[inline]
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[usize::from(port).min(MAX_PORTS - 1)]
    }

    /// Counts `n` drops of packets that came in by `port`.
    #[inline]
    pub fn dropped(&self, port: PortId, reason: DropReason, n: u64) {
        self.port(port).drops[usize::from(reason.code())].add(n);
    }

    /// Drops for one reason over all ports.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.ports.iter().map(|p| p.drops[usize::from(reason.code())].get()).sum()
    }
}

/// Counters of one node in one worker's graph.
#[derive(Debug, Default)]
pub struct NodeCounters {
    /// Packets processed.
    pub packets: Counter,
    /// Batches processed.
    pub batches: Counter,
    /// TSC cycles spent: measured in some passes and scaled to all.
    pub cycles: Counter,
}

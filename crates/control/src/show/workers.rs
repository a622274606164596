//! `show workers`: polling threads, how busy they are.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, microseconds, or_dash, percent, rate, thousands};

/// All workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    /// By id.
    pub workers: Vec<Worker>,
}

/// A worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Position in the configuration, counted from 0.
    pub id: usize,
    /// The CPU it is pinned to.
    pub cpu: Option<usize>,
    /// Its thread id in Linux.
    pub thread: u32,
    /// Receive queues it polls, as `port:queue`.
    pub queues: Vec<String>,
    /// Share of its cycles spent in loops that found packets, over the last interval.
    pub busy: Option<f64>,
    /// The same since it started.
    pub busy_ever: f64,
    /// Packets received or taken over from other workers.
    pub packets: u64,
    /// The same per second.
    pub pps: Option<f64>,
    /// Packets handed over to other workers.
    pub handed_over: u64,
    /// TSC cycles of busy loops per packet since it started; absent before the first packet.
    pub cycles_per_packet: Option<f64>,
    /// Longest time between two quiescent points, in nanoseconds: how long the worker was held up at most.
    pub longest_loop_ns: u64,
}

impl Text for Workers {
    fn text(&self) -> String {
        let mut t = Table::new(&[
            "worker", "cpu", "busy", "busy ever", "packets", "pps", "handed over", "cycles/packet", "longest loop µs",
            "<queues",
        ]);
        for w in &self.workers {
            t.row([
                w.id.to_string(),
                or_dash(w.cpu),
                percent(w.busy),
                percent(Some(w.busy_ever)),
                thousands(w.packets),
                rate(w.pps),
                thousands(w.handed_over),
                w.cycles_per_packet.map_or("-".into(), |c| format!("{c:.0}")),
                microseconds(w.longest_loop_ns),
                w.queues.join(" "),
            ]);
        }
        t.finish("there is no worker")
    }
}

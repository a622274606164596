//! `show queues` and `queue move`: which worker polls which receive queue.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, microseconds, rate, thousands};

/// All receive queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queues {
    /// By port and number.
    pub queues: Vec<Queue>,
    /// Longest time a moved queue was not polled, in nanoseconds; 0 where none was moved.
    pub longest_gap_ns: u64,
}

/// A receive queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Name of its port.
    pub port: String,
    /// Its number on the port.
    pub queue: u16,
    /// The worker that polls it.
    pub worker: usize,
    /// Packets received by it.
    pub packets: u64,
    /// The same per second.
    pub pps: Option<f64>,
}

/// Asks for a queue to be moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveQueue {
    /// Name of the port.
    pub port: String,
    /// Number of the queue on the port.
    pub queue: u16,
    /// The worker that shall poll it.
    pub worker: usize,
}

/// A queue has been moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueMoved {
    /// Name of the port.
    pub port: String,
    /// Number of the queue.
    pub queue: u16,
    /// The worker that polled it before.
    pub from: usize,
    /// The worker that polls it now.
    pub to: usize,
    /// How long nobody polled it, in nanoseconds.
    pub gap_ns: u64,
}

impl Text for Queues {
    fn text(&self) -> String {
        let mut t = Table::new(&["<port", "queue", "worker", "packets", "pps"]);
        for q in &self.queues {
            t.row([
                q.port.clone(),
                q.queue.to_string(),
                q.worker.to_string(),
                thousands(q.packets),
                rate(q.pps),
            ]);
        }
        let mut out = t.finish("there is no receive queue");
        if self.longest_gap_ns > 0 {
            out += &format!("longest pause of a moved queue: {} µs\n", microseconds(self.longest_gap_ns));
        }
        out
    }
}

impl Text for QueueMoved {
    fn text(&self) -> String {
        if self.from == self.to {
            return format!("queue {} of {} was on worker {} already\n", self.queue, self.port, self.to);
        }
        let (port, queue) = (&self.port, self.queue);
        let gap = microseconds(self.gap_ns);
        format!("queue {queue} of {port} moved from worker {} to worker {}, paused for {gap} µs\n", self.from, self.to)
    }
}

//! All workers of an instance, as control sees them: start, queue moves, counters, trace, stop.
//!
//! Generic over the packet: the same code runs on DPDK's mbufs and, in tests, on heap packets over in-memory devices.
//! Read [`worker`] for the loop itself, [`ring`] for how workers hand packets to each other, [`command`] for what
//! control can ask of a worker.
//!
//! # Moving a queue
//!
//! ```text
//!   control      Expect ──────────────┐            Give ──┐
//!   new worker   ............. stays awake .............................│all marks passed: polls│
//!   old worker   ── polls ───────────────────────│between two loops: queue + marks ─┘
//! ```
//!
//! The old worker gives the queue directly to the new one, between two loops: everything it received is processed and
//! flushed then, or lies in a ring to a third worker; marks say how far those rings must be finished before the new
//! worker polls for the first time. So nothing is lost, doubled or overtaken, and the queue waits a few microseconds.
//! The order is that in which packets are given to the transmitting device. Where old and new worker have device queues
//! of their own, a device with a backlog may still send what the second was given before what waits in the first.

mod build;
pub mod command;
pub mod idle;
pub mod ring;
mod worker;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_pipeline::counters::NodeCounters;
use linerate_pipeline::graph::GraphDescription;
use linerate_pipeline::io::TxQueue;
use linerate_pipeline::trace::Hop;
use linerate_pipeline::{Cx, Graph, Packet, PacketAlloc, PortId, WorkerCounters};
use linerate_tables::qsbr::Domain;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::clock::Clock;
use crate::desired::IdleSpec;
use command::{Command, Report, Stop};
use ring::Mark;
pub use worker::{QueueCounters, RxSlot};

/// How long control waits for a worker's answer. Workers answer within a loop, or within their longest sleep; on an
/// overloaded machine the scheduler may add a lot.
const PATIENCE: Duration = Duration::from_secs(10);

/// One worker before it starts.
pub struct WorkerSetup<P: Packet> {
    /// The CPU it is pinned to; `None`: wherever the scheduler puts it.
    pub cpu: Option<usize>,
    /// What it does when its queues are empty.
    pub idle: IdleSpec,
    /// Its graph.
    pub graph: Graph<P>,
    /// Where its new packets come from.
    pub alloc: Box<dyn PacketAlloc<P> + Send>,
    /// What it does on each tick (about every millisecond) besides its nodes' timers; `None`: nothing. As nodes, it must
    /// not block or allocate.
    pub on_tick: Option<OnTick<P>>,
    /// Its receive queues.
    pub rx: Vec<RxSlot<P>>,
    /// Its own transmit queues. For ports that other workers have a queue of, but this one has not, packets are
    /// handed over through a ring.
    pub tx: Vec<(PortId, Box<dyn TxQueue<P>>)>,
}

/// What a worker does on each tick, for instance send packets that control asks for.
pub type OnTick<P> = Box<dyn FnMut(&mut Cx<'_, P>) + Send>;

/// What happens on a worker's thread before and after its loop (registration with DPDK): the result is dropped on the
/// same thread when the worker has ended. The argument is the worker's id.
pub type OnThread = dyn Fn(usize) -> Result<Box<dyn Any>, String> + Send + Sync;

/// What all workers have in common.
#[derive(Clone)]
pub struct Common {
    /// The clock.
    pub clock: Clock,
    /// Domain of all tables that graphs read.
    pub domain: Domain,
    /// Packets that each ring between two workers holds.
    pub ring_capacity: usize,
    /// Workers share their CPU with threads that must make progress too: yield instead of spinning.
    pub shared_cpu: bool,
    /// There are rings from outside the workers into each port ([`Workers::take_host_rings`]).
    pub host_rings: bool,
    /// Called on each worker's thread.
    pub on_thread: Arc<OnThread>,
}

/// Why workers could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No thread.
    #[error("the thread of worker {worker} cannot be started: {source}")]
    Spawn {
        /// The worker.
        worker: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread started but could not get ready.
    #[error("worker {worker} cannot start: {reason}")]
    Prepare {
        /// The worker.
        worker: usize,
        /// Why.
        reason: String,
    },
    /// A queue is spread over a worker that does not exist.
    #[error(
        "port {port} is spread over worker {worker}, but there are only {workers} workers, counted from 0"
    )]
    SpreadUnknown {
        /// The port's id.
        port: PortId,
        /// The missing worker.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
}

/// Why a queue was not moved. It stays where it was, except where the worker it is on its way to does not answer
/// ([`MoveError::Silent`]).
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MoveError {
    /// No such queue.
    #[error("port {port} has no receive queue {queue}")]
    NoQueue {
        /// The port's id.
        port: PortId,
        /// The queue's number.
        queue: u16,
    },
    /// No such worker.
    #[error("there is no worker {0}: workers are counted from 0 to {last}", last = .1.saturating_sub(1))]
    NoWorker(usize, usize),
    /// A worker does not answer.
    #[error("worker {0} does not answer")]
    Silent(usize),
    /// The workers have been stopped.
    #[error("the workers have been stopped")]
    Stopped,
}

/// What a queue move took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Worker the queue came from.
    pub from: usize,
    /// Worker it went to.
    pub to: usize,
    /// Nanoseconds in which nobody polled it.
    pub gap: u64,
}

/// A receive queue and where it is.
#[derive(Clone, Debug)]
pub struct QueuePlace {
    /// The port's id.
    pub port: PortId,
    /// Its number on the port.
    pub queue: u16,
    /// The worker that polls it.
    pub worker: usize,
    /// Its counters.
    pub counters: Arc<QueueCounters>,
}

/// What remains of a worker that has ended.
pub struct Remains<P> {
    /// Its receive queues.
    pub rx: Vec<RxSlot<P>>,
}

/// What control keeps of a worker.
pub struct WorkerView {
    /// Its CPU.
    pub cpu: Option<usize>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Counters of its graph's nodes, in the order of the description.
    pub nodes: Arc<[NodeCounters]>,
    /// What its graph consists of.
    pub description: Arc<GraphDescription>,
    /// Its thread, as Linux numbers it.
    pub thread: u32,
}

/// Running workers.
pub struct Workers<P: Packet> {
    views: Vec<WorkerView>,
    clock: Clock,
    ends: Mutex<Ends<P>>,
    hops: Mutex<Vec<Consumer<Hop>>>,
    longest_gap: AtomicU64,
    /// Rings into each port from outside, until they are taken.
    host: Mutex<Vec<Option<ring::Giver<P>>>>,
}

/// What only one control thread at a time may use.
struct Ends<P: Packet> {
    lines: Vec<Line<P>>,
    places: Vec<QueuePlace>,
    stopped: bool,
}

/// The line to one worker.
struct Line<P: Packet> {
    commands: Producer<Command<P>>,
    reports: Consumer<Report<P>>,
    /// Rings that lead out of the worker: as many marks a queue move may need.
    rings_out: usize,
    thread: Option<JoinHandle<Vec<RxSlot<P>>>>,
}

impl<P: Packet> Workers<P> {
    /// Starts one thread per setup and returns when all of them poll. On an error those that had started are ended.
    pub fn start(setups: Vec<WorkerSetup<P>>, common: &Common) -> Result<Self, StartError> {
        build::start(setups, common)
    }

    /// What control keeps of each worker.
    pub fn views(&self) -> &[WorkerView] {
        &self.views
    }

    /// The clock of the workers.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Where each receive queue is.
    pub fn places(&self) -> Vec<QueuePlace> {
        self.ends().places.clone()
    }

    /// The longest time in nanoseconds that a moved queue was not polled.
    pub fn longest_gap(&self) -> u64 {
        self.longest_gap.load(Ordering::Relaxed)
    }

    /// Moves a receive queue to another worker while packets flow: none is lost, doubled, or overtaken by a later one
    /// of its flow. Returns when the new worker polls it. Moving a queue to where it is does nothing.
    pub fn move_queue(&self, port: PortId, queue: u16, to: usize) -> Result<Moved, MoveError> {
        let mut ends = self.ends();
        let ends = &mut *ends;
        if ends.stopped {
            return Err(MoveError::Stopped);
        }
        let workers = ends.lines.len();
        let place = ends.places.iter_mut().find(|p| p.port == port && p.queue == queue);
        let place = place.ok_or(MoveError::NoQueue { port, queue })?;
        if to >= workers {
            return Err(MoveError::NoWorker(to, workers));
        }
        let from = place.worker;
        if from == to {
            return Ok(Moved { from, to, gap: 0 });
        }
        let (sender, receiver) = RingBuffer::new(1);
        let marks = Vec::<Mark>::with_capacity(ends.lines[from].rings_out);
        ends.lines[to].command(to, Command::Expect(receiver))?;
        // Where this fails, dropping the command abandons the ring, and the new worker stops to expect the queue.
        ends.lines[from].command(from, Command::Give { port, queue, to: sender, marks })?;
        match ends.lines[from].answer(from)? {
            Report::Given(_) => {}
            _ => {
                let _ = ends.lines[to].answer(to);
                return Err(MoveError::NoQueue { port, queue });
            }
        }
        place.worker = to;
        let Report::Arrived { gap, .. } = ends.lines[to].answer(to)? else {
            return Err(MoveError::Silent(to));
        };
        let gap = self.clock.nanoseconds(gap);
        self.longest_gap.fetch_max(gap, Ordering::Relaxed);
        Ok(Moved { from, to, gap })
    }

    /// Rings for packets that the host system sends, by port; once. Whoever has them must be done with them before the
    /// workers are stopped.
    pub fn take_host_rings(&self) -> Vec<Option<ring::Giver<P>>> {
        std::mem::take(&mut *self.host.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells all workers whether a port's link is up.
    pub fn set_port_up(&self, port: PortId, up: bool) -> Result<(), MoveError> {
        self.tell_all(|| Command::PortUp(port, up))
    }

    /// Lets every worker trace the next `packets` it receives, on one port or on any.
    pub fn trace(&self, packets: u32, port: Option<PortId>) -> Result<(), MoveError> {
        self.tell_all(|| Command::Trace(packets, port))
    }

    /// Takes the trace recorded so far: each hop with its worker, in order per worker.
    pub fn take_trace(&self) -> Vec<(usize, Hop)> {
        let mut hops = self.hops.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(worker, ring): (usize, &mut Consumer<Hop>)| {
            std::iter::from_fn(|| ring.pop().ok()).map(|hop| (worker, hop)).collect::<Vec<_>>()
        };
        hops.iter_mut().enumerate().flat_map(of).collect()
    }

    /// How far the accounting identity is off, over all workers and ports, each by itself: every entry is a worker, a
    /// port and the difference. Empty when every packet is accounted for, which is exact when nothing moves. Packets
    /// inside rings between workers have left one worker and not reached the other, so they are in neither.
    pub fn imbalance(&self) -> Vec<(usize, PortId, i64)> {
        let of = |(worker, view): (usize, &WorkerView)| {
            let ports = view.counters.ports.iter().enumerate();
            ports.map(|(port, c)| (worker, port as PortId, c.imbalance())).collect::<Vec<_>>()
        };
        self.views.iter().enumerate().flat_map(of).filter(|(_, _, off)| *off != 0).collect()
    }

    /// Ends all workers: first none receives any more, then what lies between workers is finished, then they end.
    /// Returns what they leave, or the worker that does not answer. Stopping twice returns nothing.
    pub fn stop(&self) -> Result<Vec<Remains<P>>, MoveError> {
        let mut ends = self.ends();
        if std::mem::replace(&mut ends.stopped, true) {
            return Ok(Vec::new());
        }
        let ends = &mut *ends;
        for step in [Stop::Receiving, Stop::Processing, Stop::Sending] {
            for (w, line) in ends.lines.iter_mut().enumerate() {
                line.command(w, Command::Stop(step))?;
            }
            for (w, line) in ends.lines.iter_mut().enumerate() {
                while !matches!(line.answer(w)?, Report::Stopped(s) if s == step) {}
            }
        }
        let join = |(w, line): (usize, &mut Line<P>)| {
            let rx = line.thread.take().map(JoinHandle::join);
            rx.map(|rx| rx.map(|rx| Remains { rx }).map_err(|_| MoveError::Silent(w)))
        };
        ends.lines.iter_mut().enumerate().filter_map(join).collect()
    }

    fn tell_all(&self, command: impl Fn() -> Command<P>) -> Result<(), MoveError> {
        let mut ends = self.ends();
        if ends.stopped {
            return Err(MoveError::Stopped);
        }
        ends.lines.iter_mut().enumerate().try_for_each(|(w, line)| line.command(w, command()))
    }

    fn ends(&self) -> MutexGuard<'_, Ends<P>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Packet> Drop for Workers<P> {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

impl<P: Packet> Line<P> {
    /// Gives the worker a command and wakes it.
    fn command(&mut self, worker: usize, mut command: Command<P>) -> Result<(), MoveError> {
        let start = Instant::now();
        while let Err(rtrb::PushError::Full(back)) = self.commands.push(command) {
            command = back;
            self.wait(worker, start)?;
        }
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        Ok(())
    }

    /// Waits for the worker's next report.
    fn answer(&mut self, worker: usize) -> Result<Report<P>, MoveError> {
        let start = Instant::now();
        loop {
            match self.reports.pop() {
                Ok(report) => return Ok(report),
                Err(_) => self.wait(worker, start)?,
            }
        }
    }

    fn wait(&self, worker: usize, since: Instant) -> Result<(), MoveError> {
        if self.commands.is_abandoned() || since.elapsed() > PATIENCE {
            return Err(MoveError::Silent(worker));
        }
        std::thread::sleep(Duration::from_micros(20));
        Ok(())
    }
}

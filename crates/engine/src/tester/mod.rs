//! The tester's runtime: threads that send and receive on ports, and trials run on them.
//!
//! A [`Tester`] owns queues of ports (DPDK's, or any that implement the pipeline's traits) dealt to worker threads. A trial is
//! [prepared](Plan), sent, stopped, left to drain, and only then counted: what is under way when the last frame leaves is no loss.
//! What the tester itself did wrong (frames that left late or not at all, threads whose CPU was taken) is part of the result, so that
//! it is never taken for the device's.
//!
//! Read [`worker`](self) for the loop; `outlet.rs` for what is sent when; the books of what arrives are
//! [`linerate_tester::receive`].

mod outlet;
mod trial;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_linux::cpus::CpuList;
use linerate_linux::thread as linux_thread;
use linerate_pipeline::io::{RxQueue, TxQueue};
use linerate_pipeline::{Packet, PacketAlloc};
use linerate_tester::receive::{Received, Receiver};
use linerate_tester::source::{FrameReader, Responder};

use crate::clock::Clock;
use outlet::Outlet;
use trial::{Begin, Order};
pub use trial::{Job, Second, Sent, Stalls};
use worker::{Inlet, Live, Worker};

/// Answers that wait to be sent by a port, at most.
const ANSWERS: usize = 256;
/// Between an order to begin and the first frame: every worker has it by then.
const LEAD: Duration = Duration::from_millis(20);

/// A port of the tester, with its queues.
pub struct TesterPort<P> {
    /// Its receive queues, each with the worker that polls it.
    pub rx: Vec<(usize, Box<dyn RxQueue<P>>)>,
    /// Its transmit queues, each with the worker that sends by it.
    pub tx: Vec<(usize, Box<dyn TxQueue<P>>)>,
    /// The stations on it.
    pub responder: Option<Box<dyn Responder<P>>>,
}

/// A worker thread to be.
pub struct TesterWorker<P> {
    /// The CPU it is pinned to; `None`: any.
    pub cpu: Option<usize>,
    /// Where its packets come from.
    pub alloc: Box<dyn PacketAlloc<P> + Send>,
}

/// Called on each new thread before anything else; what it returns is dropped on that thread at its end.
pub type OnThread = Arc<dyn Fn() -> Result<Box<dyn std::any::Any>, String> + Send + Sync>;

/// Why a tester does not start, or a trial does not run.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// A queue for a worker that there is not.
    #[error("port {port} gives a queue to worker {worker}, but there are {workers} workers")]
    NoWorker {
        /// The port.
        port: usize,
        /// The worker.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// A thread.
    #[error("tester thread {worker} cannot start: {reason}")]
    Thread {
        /// The worker.
        worker: usize,
        /// Why.
        reason: String,
    },
    /// Traffic for a port that nothing can be sent by.
    #[error("stream {stream} leaves by port {port}, which has no transmit queue on any worker")]
    NoOutlet {
        /// The stream.
        stream: usize,
        /// The port.
        port: usize,
    },
    /// A thread that has gone.
    #[error("tester thread {0} has ended: the trial is lost")]
    Gone(usize),
}

/// What is to be sent in a trial.
pub struct Plan<P> {
    /// Number of streams; jobs and frames name them by `0..streams`.
    pub streams: usize,
    /// When the first frame is due, in ticks; see [`Tester::begin_at`].
    pub start: u64,
    /// When the last is due, in ticks.
    pub end: u64,
    /// By port and transmit queue: what leaves there.
    pub jobs: Vec<(usize, usize, Job<P>)>,
    /// Knows the frames again.
    pub reader: Arc<dyn FrameReader<P>>,
    /// What a frame takes from the tester to itself, in ticks.
    pub own_delay: u64,
    /// How long to wait for what is under way after the last frame.
    pub drain: Duration,
}

/// What came of a trial.
#[derive(Debug, Default)]
pub struct Outcome {
    /// By job.
    pub sent: Vec<Sent>,
    /// By port: what arrived there.
    pub received: Vec<Received>,
    /// By second from the start, until the trial was collected.
    pub seconds: Vec<Second>,
    /// When threads were away.
    pub stalls: Stalls,
    /// Whether the trial was ended before its time.
    pub interrupted: bool,
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Ticks since the start; 0 before it.
    pub elapsed: u64,
    /// Frames that have left.
    pub sent: u64,
    /// Frames of the run that have arrived.
    pub received: u64,
}

/// Running threads.
pub struct Tester<P: Packet> {
    clock: Clock,
    workers: Vec<Handle<P>>,
    /// By port and transmit queue: worker, and which of its outlets.
    outlets: Vec<Vec<(usize, usize)>>,
}

struct Handle<P> {
    orders: Sender<Order<P>>,
    live: Arc<Live>,
    /// Ports of its inlets.
    inlets: Vec<usize>,
    outlets: usize,
    thread: Option<JoinHandle<()>>,
}

impl<P: Packet> Tester<P> {
    /// Starts the threads. `yielding`: they share their CPUs with what they test.
    pub fn start(
        clock: Clock,
        ports: Vec<TesterPort<P>>,
        workers: Vec<TesterWorker<P>>,
        yielding: bool,
        on_thread: &OnThread,
    ) -> Result<Self, TesterError> {
        let count = workers.len();
        let mut inlets: Vec<Vec<Inlet<P>>> = (0..count).map(|_| Vec::new()).collect();
        let mut own: Vec<Vec<Outlet<P>>> = (0..count).map(|_| Vec::new()).collect();
        let mut places = Vec::new();
        let check = |port, worker| match worker < count {
            true => Ok(()),
            false => Err(TesterError::NoWorker { port, worker, workers: count }),
        };
        for (number, port) in ports.into_iter().enumerate() {
            let mut responder = port.responder;
            let mut asides = Vec::new();
            for (worker, queue) in port.rx {
                check(number, worker)?;
                // Devices hand what has no ports to hash to the first queue.
                let responder = responder.take();
                let answers = responder.is_some().then(|| {
                    let (giver, taker) = rtrb::RingBuffer::new(ANSWERS);
                    asides.push(taker);
                    giver
                });
                inlets[worker].push(Inlet { port: number, queue, responder, answers });
            }
            let mut of_port = Vec::new();
            for (worker, queue) in port.tx {
                check(number, worker)?;
                of_port.push((worker, own[worker].len()));
                own[worker].push(Outlet::new(number, queue, std::mem::take(&mut asides)));
            }
            places.push(of_port);
        }
        let mut handles = Vec::new();
        for (number, ((worker, inlets), outlets)) in workers.into_iter().zip(inlets).zip(own).enumerate() {
            handles.push(spawn(clock, number, worker, inlets, outlets, yielding, on_thread)?);
        }
        Ok(Tester { clock, workers: handles, outlets: places })
    }

    /// The clock of the threads.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// A tick soon enough to wait for and late enough for all threads to be ready: where a trial planned now begins.
    pub fn begin_at(&self) -> u64 {
        self.clock.cycles() + self.clock.cycles_of(LEAD.as_nanos() as u64)
    }

    /// Number of transmit queues of a port.
    pub fn tx_queues(&self, port: usize) -> usize {
        self.outlets.get(port).map_or(0, Vec::len)
    }

    /// Runs a trial: send, stop, drain, collect. `watch` is called every 100 ms or so; where it answers `false` the trial is ended early.
    pub fn run(
        &mut self,
        plan: Plan<P>,
        mut watch: impl FnMut(Progress) -> bool,
    ) -> Result<Outcome, TesterError> {
        let (start, end, drain) = (plan.start, plan.end, plan.drain);
        self.begin(plan)?;
        let mut going = true;
        while going && self.clock.cycles() < end {
            going = self.wait(end, start, &mut watch);
        }
        for (i, worker) in self.workers.iter().enumerate() {
            worker.orders.send(Order::Stop).map_err(|_| TesterError::Gone(i))?;
        }
        self.drain(start, drain, &mut watch);
        let mut outcome = self.collect()?;
        outcome.interrupted = !going;
        Ok(outcome)
    }

    fn begin(&mut self, plan: Plan<P>) -> Result<(), TesterError> {
        let mut jobs: Vec<Vec<Vec<Job<P>>>> =
            (self.workers.iter()).map(|w| (0..w.outlets).map(|_| Vec::new()).collect()).collect();
        for (port, queue, job) in plan.jobs {
            let place = self.outlets.get(port).and_then(|o| o.get(queue));
            let Some(&(worker, outlet)) = place else {
                return Err(TesterError::NoOutlet { stream: job.stream, port });
            };
            jobs[worker][outlet].push(job);
        }
        let lasting = self.clock.nanoseconds(plan.end.saturating_sub(plan.start)) / 1_000_000_000;
        let seconds = lasting + plan.drain.as_secs() + 2;
        for (i, (worker, jobs)) in self.workers.iter().zip(jobs).enumerate() {
            let begin = Begin {
                jobs,
                receivers: worker
                    .inlets
                    .iter()
                    .map(|_| Receiver::new(plan.streams, plan.own_delay))
                    .collect(),
                reader: plan.reader.clone(),
                start: plan.start,
                seconds: vec![Second::default(); seconds as usize],
            };
            worker.live.sent.store(0, Ordering::Relaxed);
            worker.live.received.store(0, Ordering::Relaxed);
            worker.orders.send(Order::Begin(Box::new(begin))).map_err(|_| TesterError::Gone(i))?;
        }
        Ok(())
    }

    /// Sleeps a little, no longer than until `end`.
    fn wait(&self, end: u64, start: u64, watch: &mut impl FnMut(Progress) -> bool) -> bool {
        let left = self.clock.nanoseconds(end.saturating_sub(self.clock.cycles()));
        std::thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(100)));
        watch(self.progress(start))
    }

    /// Waits until nothing has arrived for `quiet`, at least that long and at most five times as long.
    fn drain(&self, start: u64, quiet: Duration, watch: &mut impl FnMut(Progress) -> bool) {
        let step = quiet.min(Duration::from_millis(50)).max(Duration::from_millis(1));
        let (mut known, mut still, mut waited) = (self.progress(start), Duration::ZERO, Duration::ZERO);
        while still < quiet && waited < quiet * 5 {
            std::thread::sleep(step);
            waited += step;
            let now = self.progress(start);
            still =
                if (now.received, now.sent) == (known.received, known.sent) { still + step } else { step };
            known = now;
            watch(now);
        }
    }

    fn progress(&self, start: u64) -> Progress {
        let sum = |of: fn(&Live) -> u64| self.workers.iter().map(|w| of(&w.live)).sum();
        Progress {
            elapsed: self.clock.cycles().saturating_sub(start),
            sent: sum(|l| l.sent.load(Ordering::Relaxed)),
            received: sum(|l| l.received.load(Ordering::Relaxed)),
        }
    }

    fn collect(&mut self) -> Result<Outcome, TesterError> {
        let mut outcome = Outcome::default();
        outcome.received.resize_with(self.outlets.len(), Received::default);
        for (i, worker) in self.workers.iter().enumerate() {
            let (to, from) = mpsc::channel();
            worker.orders.send(Order::Collect(to)).map_err(|_| TesterError::Gone(i))?;
            let report = from.recv().map_err(|_| TesterError::Gone(i))?;
            outcome.sent.extend(report.sent);
            for (port, received) in report.received {
                outcome.received[port].join(received);
            }
            let seconds = outcome.seconds.len().max(report.seconds.len());
            outcome.seconds.resize(seconds, Second::default());
            for (mine, theirs) in outcome.seconds.iter_mut().zip(&report.seconds) {
                mine.join(theirs);
            }
            outcome.stalls.join(report.stalls);
        }
        Ok(outcome)
    }
}

impl<P: Packet> Drop for Tester<P> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // A thread that has gone needs no order.
            let _ = worker.orders.send(Order::Quit);
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn spawn<P: Packet>(
    clock: Clock,
    number: usize,
    worker: TesterWorker<P>,
    inlets: Vec<Inlet<P>>,
    outlets: Vec<Outlet<P>>,
    yielding: bool,
    on_thread: &OnThread,
) -> Result<Handle<P>, TesterError> {
    let (orders, taken) = mpsc::channel();
    let (ready, started) = mpsc::channel::<Result<(), String>>();
    let live = Arc::new(Live::default());
    let of = (inlets.iter().map(|i| i.port).collect(), outlets.len());
    let (on_thread, shared) = (on_thread.clone(), live.clone());
    let cpu = worker.cpu;
    let loop_ = Worker { clock, alloc: worker.alloc, inlets, outlets, orders: taken, live: shared, yielding };
    let failed = |reason: String| TesterError::Thread { worker: number, reason };
    let thread = std::thread::Builder::new()
        .name(format!("tester-{number}"))
        .spawn(move || {
            let pinned = cpu.map_or(Ok(()), |cpu| linux_thread::pin(&CpuList::from_iter([cpu])));
            let guard = pinned.map_err(|e| e.to_string()).and_then(|()| on_thread());
            match guard {
                Ok(_guard) => {
                    let _ = ready.send(Ok(()));
                    loop_.run();
                }
                Err(reason) => drop(ready.send(Err(reason))),
            }
        })
        .map_err(|e| failed(e.to_string()))?;
    match started.recv() {
        Ok(Ok(())) => Ok(Handle { orders, live, inlets: of.0, outlets: of.1, thread: Some(thread) }),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed("it ended at once".into())),
    }
}

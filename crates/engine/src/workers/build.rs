//! How workers are put together: rings between them, threads, start.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, mpsc};
use std::thread;

use linerate_linux::thread as os;
use linerate_pipeline::counters::MAX_PORTS;
use linerate_pipeline::trace::MAX_HOPS;
use linerate_pipeline::tx::TxBuffers;
use linerate_pipeline::{Packet, PortId, WorkerCounters};
use rtrb::RingBuffer;

use super::command::{Arrivals, MAX_ARRIVALS, Stop};
use super::idle::Idle;
use super::ring::{Giver, Taker, Watch, ring};
use super::worker::{Outbound, Pass, State, Worker};
use super::{Command, Common, Ends, Line, QueuePlace, StartError, WorkerSetup, WorkerView, Workers};

/// Packets of the host system that may wait for a worker.
const HOST_RING: usize = 1024;
/// Commands that may wait for one worker.
const COMMANDS: usize = 16;
/// Reports that can be outstanding: one per command, and one per queue expected.
const REPORTS: usize = COMMANDS + MAX_ARRIVALS;

/// The rings that end at, or start from, one worker.
struct Rings<P: Packet> {
    spread: Vec<Option<Outbound<P>>>,
    handed_in: Vec<Taker<P>>,
    to_send: Vec<(PortId, Taker<P>)>,
    watches: Vec<Watch>,
}

pub(super) fn start<P: Packet>(
    mut setups: Vec<WorkerSetup<P>>,
    common: &Common,
) -> Result<Workers<P>, StartError> {
    let mut rings: Vec<Rings<P>> = setups.iter().map(|_| Rings::new(setups.len())).collect();
    let mut buffers: Vec<TxBuffers<P>> = setups.iter().map(|_| TxBuffers::new()).collect();
    let owners = join_transmit(&mut setups, &mut buffers, &mut rings, common.ring_capacity);
    let host = if common.host_rings { join_host(&owners, &mut rings) } else { Vec::new() };
    join_spread(&setups, &mut rings, common.ring_capacity)?;
    let queues = setups.iter().map(|s| s.rx.len()).sum();
    let mut lines = Vec::new();
    let mut views = Vec::new();
    let mut places = Vec::new();
    let mut hops = Vec::new();
    let (ready, ready_rx) = mpsc::channel();
    let mut failed = None;
    let workers = setups.len();
    for (id, ((setup, rings), tx)) in setups.into_iter().zip(rings).zip(buffers).enumerate() {
        let (commands, commands_rx) = RingBuffer::new(COMMANDS);
        let (reports_tx, reports) = RingBuffer::new(REPORTS);
        let (hops_tx, hops_rx) = RingBuffer::new(2 * MAX_HOPS);
        hops.push(hops_rx);
        let counters = WorkerCounters::new();
        views.push(WorkerView {
            cpu: setup.cpu,
            counters: counters.clone(),
            nodes: setup.graph.counters(),
            description: setup.graph.describe(),
            thread: 0,
        });
        places.extend(setup.rx.iter().map(|s| QueuePlace {
            port: s.port,
            queue: s.queue,
            worker: id,
            counters: s.counters.clone(),
        }));
        let rings_out = rings.watches.len();
        // Room for every queue there is: a worker that takes one over must not allocate.
        let mut rx = Vec::with_capacity(queues);
        rx.extend(setup.rx);
        let worker = Worker {
            id,
            clock: common.clock,
            pass: Pass {
                graph: setup.graph,
                alloc: setup.alloc,
                tx,
                counters,
                cycles: common.clock.reader(),
            },
            on_tick: setup.on_tick,
            rx,
            arrivals: Arrivals::new(),
            spread: rings.spread,
            handed_in: rings.handed_in,
            to_send: rings.to_send,
            watches: rings.watches,
            commands: commands_rx,
            reports: reports_tx,
            hops: hops_tx,
            idle: Idle::new(setup.idle, common.shared_cpu),
            state: State::default(),
        };
        let (ready, common) = (ready.clone(), common.clone());
        let spawned = thread::Builder::new().name(format!("worker-{id}")).spawn(move || {
            let prepared = prepare(id, setup.cpu, &common);
            let _ = ready.send((id, prepared.as_ref().map(|_| os::id()).map_err(Clone::clone)));
            drop(ready);
            match prepared {
                Ok(_guard) => {
                    let reader = common.domain.register();
                    worker.run(reader)
                }
                Err(_) => worker.rx,
            }
        });
        match spawned {
            Ok(thread) => lines.push(Line { commands, reports, rings_out, thread: Some(thread) }),
            Err(source) => {
                failed = Some(StartError::Spawn { worker: id, source });
                break;
            }
        }
    }
    drop(ready);
    for (worker, result) in ready_rx.iter().take(lines.len().min(workers)) {
        match result {
            Ok(thread) => views[worker].thread = thread,
            Err(reason) => failed = failed.or(Some(StartError::Prepare { worker, reason })),
        }
    }
    match failed {
        Some(error) => {
            end_all(lines);
            Err(error)
        }
        None => Ok(Workers {
            views,
            clock: common.clock,
            ends: Mutex::new(Ends { lines, places, stopped: false }),
            hops: Mutex::new(hops),
            longest_gap: AtomicU64::new(0),
            host: Mutex::new(host),
        }),
    }
}

/// Ends the threads that run after a failed start: no packet has been received in earnest, so one step does.
fn end_all<P: Packet>(mut lines: Vec<Line<P>>) {
    for (id, line) in lines.iter_mut().enumerate() {
        let _ = line.command(id, Command::Stop(Stop::Sending));
    }
    for line in &mut lines {
        let _ = line.thread.take().map(thread::JoinHandle::join);
    }
}

/// What a thread does before it polls.
fn prepare(id: usize, cpu: Option<usize>, common: &Common) -> Result<Box<dyn std::any::Any>, String> {
    if let Some(cpu) = cpu {
        os::pin(&[cpu].into_iter().collect()).map_err(|e| e.to_string())?;
    }
    os::precise_sleeps().map_err(|e| e.to_string())?;
    (common.on_thread)(id)
}

impl<P: Packet> Rings<P> {
    fn new(workers: usize) -> Self {
        Rings {
            spread: (0..workers).map(|_| None).collect(),
            handed_in: Vec::new(),
            to_send: Vec::new(),
            watches: Vec::new(),
        }
    }
}

/// Gives each worker its own transmit queues, and a ring to a worker that has one for every port where it has none.
fn join_transmit<P: Packet>(
    setups: &mut [WorkerSetup<P>],
    buffers: &mut [TxBuffers<P>],
    rings: &mut [Rings<P>],
    capacity: usize,
) -> Vec<Vec<usize>> {
    let mut owners: Vec<Vec<usize>> = vec![Vec::new(); MAX_PORTS];
    for (id, setup) in setups.iter_mut().enumerate() {
        for (port, queue) in setup.tx.drain(..) {
            if let Some(owners) = owners.get_mut(usize::from(port)) {
                owners.push(id);
                buffers[id].attach(port, queue);
            }
        }
    }
    for (port, owners) in owners.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
        let port = port as PortId;
        for id in (0..buffers.len()).filter(|id| !owners.contains(id)) {
            let (giver, taker, watch) = ring(capacity);
            buffers[id].attach_handover(port, Box::new(giver));
            rings[id].watches.push(watch);
            rings[owners[id % owners.len()]].to_send.push((port, taker));
        }
    }
    owners
}

/// A ring into each port from outside the workers: what the host system sends. It ends at the first worker with a transmit
/// queue of the port.
fn join_host<P: Packet>(owners: &[Vec<usize>], rings: &mut [Rings<P>]) -> Vec<Option<Giver<P>>> {
    let of = |(port, owners): (usize, &Vec<usize>)| {
        let (giver, taker, _) = ring(HOST_RING);
        rings[*owners.first()?].to_send.push((port as PortId, taker));
        Some(giver)
    };
    owners.iter().enumerate().map(of).collect()
}

/// Joins every worker with every worker that some port is spread over: a queue can move to any of them.
fn join_spread<P: Packet>(
    setups: &[WorkerSetup<P>],
    rings: &mut [Rings<P>],
    capacity: usize,
) -> Result<(), StartError> {
    let workers = setups.len();
    let mut targets: Vec<usize> = Vec::new();
    for slot in setups.iter().flat_map(|s| &s.rx) {
        if let Some(worker) = slot.spread.iter().copied().find(|w| *w >= workers) {
            return Err(StartError::SpreadUnknown { port: slot.port, worker, workers });
        }
        targets.extend(slot.spread.iter());
    }
    targets.sort_unstable();
    targets.dedup();
    for to in targets {
        for from in (0..workers).filter(|from| *from != to) {
            let (giver, taker, watch) = ring(capacity);
            rings[from].spread[to] = Some(Outbound { giver, staged: Box::default() });
            rings[from].watches.push(watch);
            rings[to].handed_in.push(taker);
        }
    }
    Ok(())
}

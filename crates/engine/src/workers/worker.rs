//! The worker: one thread that polls its receive queues and takes every packet through the graph to transmission.
//!
//! One loop is: commands → for each receive queue a burst (spread, graph, transmit) → what other workers handed over →
//! transmit flush → quiescent point → timers (about every millisecond) → rest, if nothing came. Between two loops a worker
//! holds no packet except those that nodes keep on purpose.

use std::sync::Arc;
use std::thread;

use linerate_pipeline::counters::{Counter, WorkerCounters};
use linerate_pipeline::io::{Received, RxQueue};
use linerate_pipeline::trace::Hop;
use linerate_pipeline::tx::TxBuffers;
use linerate_pipeline::{Batch, Cx, DropReason, Graph, Packet, PacketAlloc, PortId};
use linerate_tables::qsbr;
use linerate_wire::flow;
use rtrb::{Consumer, Producer};

use super::OnTick;
use super::command::{Arrival, Arrivals, Command, Report, Stop, Transfer};
use super::idle::{self, Idle, Rest};
use super::ring::{Giver, Taker, Watch};
use crate::clock::Clock;

/// Time between two rounds of timers, in nanoseconds.
const TICK: u64 = 1_000_000;

/// Seed of the hash that spreads packets over workers. Differs from the one that chooses between equal-cost paths: with
/// the same, each worker would see only some of the paths.
const SPREAD_SEED: u64 = 0x51ab_37c1_0d95_e2f7;

/// Counters of one receive queue. They move with it from worker to worker.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets received.
    pub packets: Counter,
    /// Bytes received, without FCS.
    pub bytes: Counter,
    /// Bursts that were not empty.
    pub bursts: Counter,
}

/// A receive queue with what the worker must know about it.
pub struct RxSlot<P> {
    /// The port it belongs to.
    pub port: PortId,
    /// Its number on the port.
    pub queue: u16,
    /// The device's queue.
    pub device: Box<dyn RxQueue<P>>,
    /// Workers that its packets are spread over by flow hash; empty: they stay where they were received.
    pub spread: Arc<[usize]>,
    /// Its counters.
    pub counters: Arc<QueueCounters>,
}

/// The way to another worker for packets that flow hash gives to it.
pub(super) struct Outbound<P> {
    pub(super) giver: Giver<P>,
    pub(super) staged: Box<Batch<P>>,
}

/// What takes packets through the graph.
pub(super) struct Pass<P: Packet> {
    pub(super) graph: Graph<P>,
    pub(super) alloc: Box<dyn PacketAlloc<P> + Send>,
    pub(super) tx: TxBuffers<P>,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) cycles: fn() -> u64,
}

/// Everything a worker's thread owns.
pub(super) struct Worker<P: Packet> {
    pub(super) id: usize,
    pub(super) clock: Clock,
    pub(super) pass: Pass<P>,
    pub(super) on_tick: Option<OnTick<P>>,
    pub(super) rx: Vec<RxSlot<P>>,
    pub(super) arrivals: Arrivals<P>,
    /// By worker: rings out for packets that are to be processed there.
    pub(super) spread: Vec<Option<Outbound<P>>>,
    /// Packets from other workers, to be processed here.
    pub(super) handed_in: Vec<Taker<P>>,
    /// Packets from other workers, to be sent by this worker's queue of a port.
    pub(super) to_send: Vec<(PortId, Taker<P>)>,
    /// All rings that lead out of this worker.
    pub(super) watches: Vec<Watch>,
    pub(super) commands: Consumer<Command<P>>,
    pub(super) reports: Producer<Report<P>>,
    pub(super) hops: Producer<Hop>,
    pub(super) idle: Idle,
    pub(super) state: State<P>,
}

/// What the loop keeps for itself.
pub(super) struct State<P> {
    batch: Box<Batch<P>>,
    local: Box<Batch<P>>,
    next_tick: u64,
    last: u64,
    stop: Option<Stop>,
    receiving: bool,
    /// Nodes may still make packets, and let go of those that they hold.
    producing: bool,
    ended: bool,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        State {
            batch: Box::default(),
            local: Box::default(),
            next_tick: 0,
            last: 0,
            stop: None,
            receiving: true,
            producing: true,
            ended: false,
        }
    }
}

impl<P: Packet> Pass<P> {
    /// Takes a burst through the graph and sends what came of it at once: the next burst then finds the same buffers free
    /// again, still in the first-level cache.
    #[inline]
    fn run(&mut self, now: u64, batch: &mut Box<Batch<P>>) {
        let mut cx = Cx {
            now,
            cycles: self.cycles,
            counters: &self.counters,
            alloc: &mut *self.alloc,
            tx: &mut self.tx,
        };
        self.graph.run(&mut cx, batch);
        self.tx.flush(&self.counters);
    }

    /// Takes the nodes out of service: what they hold is dropped by name.
    fn stop(&mut self, now: u64) {
        let mut cx = Cx {
            now,
            cycles: self.cycles,
            counters: &self.counters,
            alloc: &mut *self.alloc,
            tx: &mut self.tx,
        };
        self.graph.stop(&mut cx);
        self.tx.flush(&self.counters);
    }

    fn tick(&mut self, now: u64, also: Option<&mut OnTick<P>>) {
        let mut cx = Cx {
            now,
            cycles: self.cycles,
            counters: &self.counters,
            alloc: &mut *self.alloc,
            tx: &mut self.tx,
        };
        self.graph.tick(&mut cx);
        if let Some(also) = also {
            also(&mut cx);
        }
        self.tx.flush(&self.counters);
    }
}

impl<P: Packet> Worker<P> {
    /// Runs until told to stop; gives back the receive queues. `reader` is this thread's in the domain of all tables
    /// that the graph reads.
    pub(super) fn run(mut self, mut reader: qsbr::Reader) -> Vec<RxSlot<P>> {
        self.state.last = self.clock.cycles();
        while !self.state.ended {
            if !self.commands.is_empty() {
                self.obey();
            }
            let now = self.clock.nanoseconds(self.state.last);
            let mut found = if self.state.receiving { self.receive(now) } else { 0 };
            found += self.take_handed_in(now);
            found += self.send_for_others();
            self.pass.tx.flush(&self.pass.counters);
            self.handed_in.iter_mut().for_each(Taker::finish);
            self.to_send.iter_mut().for_each(|(_, taker)| taker.finish());
            reader.quiescent();
            if now >= self.state.next_tick {
                self.state.next_tick = now + TICK;
                if self.state.producing {
                    self.pass.tick(now, self.on_tick.as_mut());
                }
                self.collect_losses();
                self.collect_trace();
            }
            if !self.arrivals.is_empty() {
                self.look_for_arrivals();
            }
            if self.state.stop.is_some() {
                self.stop();
            }
            self.account(found, &mut reader);
        }
        self.end()
    }

    /// A burst from each receive queue.
    #[inline]
    fn receive(&mut self, now: u64) -> usize {
        let mut found = 0;
        for slot in &mut self.rx {
            let batch = &mut self.state.batch;
            let Received { packets: n, bytes } = slot.device.rx_counted(batch);
            if n == 0 {
                continue;
            }
            found += n;
            let port = self.pass.counters.port(slot.port);
            port.received.add(n as u64);
            port.rx_bytes.add(bytes);
            slot.counters.packets.add(n as u64);
            slot.counters.bytes.add(bytes);
            slot.counters.bursts.add(1);
            if !slot.spread.is_empty() {
                spread(self.id, slot, batch, &mut self.state.local, &mut self.spread, &self.pass.counters);
                std::mem::swap(batch, &mut self.state.local);
            }
            if !batch.is_empty() {
                self.pass.run(now, batch);
            }
        }
        found
    }

    /// A burst from each ring of packets that other workers received and this one is to process.
    #[inline]
    fn take_handed_in(&mut self, now: u64) -> usize {
        let mut found = 0;
        for taker in &mut self.handed_in {
            let batch = &mut self.state.batch;
            let n = taker.take(batch);
            if n > 0 {
                found += n;
                count_handed_in(batch, &self.pass.counters);
                self.pass.run(now, batch);
            }
        }
        found
    }

    /// A burst from each ring of packets that other workers want sent by a queue of this one.
    #[inline]
    fn send_for_others(&mut self) -> usize {
        let mut found = 0;
        for (port, taker) in &mut self.to_send {
            let batch = &mut self.state.batch;
            let n = taker.take(batch);
            if n > 0 {
                found += n;
                count_handed_in(batch, &self.pass.counters);
                self.pass.tx.send_batch(*port, batch, &self.pass.counters);
            }
        }
        found
    }

    /// Closes the loop: counts it, and rests where nothing was found.
    #[inline]
    fn account(&mut self, found: usize, reader: &mut qsbr::Reader) {
        let end = self.clock.cycles();
        let spent = end.saturating_sub(self.state.last);
        let c = &self.pass.counters;
        c.loops.add(1);
        c.cycles.add(spent);
        if spent > c.longest_loop.get() {
            c.longest_loop.set(spent);
        }
        self.state.last = end;
        if found > 0 {
            c.busy_loops.add(1);
            c.busy_cycles.add(spent);
            c.loop_times.note(spent);
            return self.idle.busy();
        }
        if self.state.ended {
            return;
        }
        let stay_awake = !self.arrivals.is_empty() || self.state.stop.is_some();
        match self.idle.empty(stay_awake) {
            Rest::Spin => {}
            Rest::Pause => idle::pause(),
            Rest::Yield => self.away(reader, thread::yield_now),
            Rest::Sleep(time) => self.away(reader, || thread::park_timeout(time)),
        }
    }

    /// Gives the CPU away. Whoever updates tables need not wait for this worker meanwhile, and the time counts as
    /// idle, not as held up.
    fn away(&mut self, reader: &mut qsbr::Reader, rest: impl FnOnce()) {
        reader.offline();
        rest();
        reader.online();
        let end = self.clock.cycles();
        self.pass.counters.cycles.add(end.saturating_sub(self.state.last));
        self.state.last = end;
    }

    #[cold]
    fn obey(&mut self) {
        while let Ok(command) = self.commands.pop() {
            match command {
                Command::Expect(from) => {
                    if let Err(full) = self.arrivals.try_push(Arrival::Expected(from))
                        && let Arrival::Expected(from) = full.element()
                    {
                        self.report(Report::NothingArrived(from));
                    }
                }
                Command::Give { port, queue, to, marks } => self.give(port, queue, to, marks),
                Command::PortUp(port, up) => self.pass.tx.set_up(port, up),
                Command::Trace(packets, port) => self.pass.graph.tracer().arm(packets, port),
                Command::Stop(step) => {
                    self.state.receiving = false;
                    self.state.stop = Some(step);
                }
            }
        }
    }

    /// Gives a receive queue away. Nothing of it is in hand here: the last loop has flushed. What is still in rings
    /// to other workers is marked.
    fn give(&mut self, port: PortId, queue: u16, mut to: Producer<Transfer<P>>, mut marks: Vec<super::Mark>) {
        let Some(at) = self.rx.iter().position(|s| s.port == port && s.queue == queue) else {
            return self.report(Report::NotHere(to, marks));
        };
        let room = marks.capacity();
        marks.extend(self.watches.iter().map(Watch::mark).filter(|m| !m.passed()).take(room));
        let transfer = Transfer { slot: self.rx.swap_remove(at), marks, stopped: self.state.last };
        match to.push(transfer) {
            Ok(()) => self.report(Report::Given(to)),
            Err(rtrb::PushError::Full(t)) => {
                self.rx.push(t.slot);
                self.report(Report::NotHere(to, t.marks));
            }
        }
    }

    /// Starts to poll queues that have arrived, once nothing received from them earlier is still on its way.
    #[cold]
    fn look_for_arrivals(&mut self) {
        let mut i = 0;
        while i < self.arrivals.len() {
            match self.arrivals.swap_remove(i) {
                Arrival::Expected(mut from) => match from.pop() {
                    Ok(transfer) => self.arrivals.push(Arrival::Waiting(transfer, from)),
                    Err(_) if from.is_abandoned() && from.is_empty() => {
                        self.report(Report::NothingArrived(from));
                    }
                    Err(_) => {
                        self.arrivals.push(Arrival::Expected(from));
                        i += 1;
                    }
                },
                Arrival::Waiting(t, from) if t.marks.iter().all(super::Mark::passed) => {
                    self.rx.push(t.slot);
                    let gap = self.clock.cycles().saturating_sub(t.stopped);
                    self.report(Report::Arrived { gap, from, marks: t.marks });
                }
                waiting => {
                    self.arrivals.push(waiting);
                    i += 1;
                }
            }
        }
    }

    #[cold]
    fn stop(&mut self) {
        let done = match self.state.stop {
            Some(Stop::Receiving) => self.arrivals.is_empty(),
            Some(Stop::Processing) => self.handed_in.iter().all(Taker::is_empty),
            Some(Stop::Sending) => self.to_send.iter().all(|(_, t)| t.is_empty()),
            None => false,
        };
        if let Some(step) = self.state.stop.take_if(|_| done) {
            if step != Stop::Receiving && self.state.producing {
                // Whoever sends for this worker may end next: nothing may come out of its nodes any more.
                self.state.producing = false;
                self.pass.stop(self.clock.nanoseconds(self.state.last));
            }
            self.state.ended = step == Stop::Sending;
            self.report(Report::Stopped(step));
        }
    }

    /// Counts what queues received and could not hand on.
    fn collect_losses(&mut self) {
        for slot in &mut self.rx {
            let lost = slot.device.take_lost();
            if lost > 0 {
                self.pass.counters.port(slot.port).received.add(lost);
                self.pass.counters.dropped(slot.port, DropReason::RxNoCopy, lost);
            }
        }
    }

    fn collect_trace(&mut self) {
        let tracer = self.pass.graph.tracer();
        if tracer.has_hops() {
            let lost = tracer.take().filter_map(|hop| self.hops.push(hop).err()).count();
            tracer.lost += lost as u64;
            self.pass.counters.trace_lost.set(tracer.lost);
        }
    }

    /// Control reads reports whenever it waits for one; the ring has room for all that can be outstanding.
    fn report(&mut self, report: Report<P>) {
        let _ = self.reports.push(report);
    }

    /// Gives the receive queues back. The graph is dropped here, on the worker's own thread: freed packets go by this
    /// thread's cache of the pool.
    fn end(mut self) -> Vec<RxSlot<P>> {
        self.collect_losses();
        self.rx
    }
}

/// Sorts a received burst by flow: into `local` what stays, into the rings what other workers process.
#[inline]
fn spread<P: Packet>(
    id: usize,
    slot: &RxSlot<P>,
    batch: &mut Batch<P>,
    local: &mut Batch<P>,
    rings: &mut [Option<Outbound<P>>],
    counters: &WorkerCounters,
) {
    let workers = &slot.spread[..];
    for packet in batch.drain(..) {
        let hash = flow::hash_frame(packet.head(), SPREAD_SEED);
        let to = workers[flow::share(hash, workers.len() as u32) as usize];
        match rings.get_mut(to) {
            Some(Some(ring)) if to != id => ring.staged.push(packet),
            _ => local.push(packet),
        }
    }
    for ring in rings.iter_mut().flatten().filter(|r| !r.staged.is_empty()) {
        let given = ring.giver.give(&mut ring.staged);
        counters.port(slot.port).handed_over.add(given as u64);
        if !ring.staged.is_empty() {
            counters.dropped(slot.port, DropReason::HandoffFull, ring.staged.len() as u64);
            P::free_bulk(&mut ring.staged);
        }
    }
}

fn count_handed_in<P: Packet>(batch: &Batch<P>, counters: &WorkerCounters) {
    for same in batch.chunk_by(|a, b| a.rx_port() == b.rx_port()) {
        counters.port(same[0].rx_port()).handed_in.add(same.len() as u64);
    }
}

//! The tester's thread: sends what is due, takes what comes, and keeps the books of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Orders, TryRecvError};
use std::time::Duration;

use linerate_pipeline::io::RxQueue;
use linerate_pipeline::{Batch, Packet, PacketAlloc};
use linerate_tester::receive::Receiver;
use linerate_tester::source::{FrameReader, Responder};
use rtrb::Producer;

use super::outlet::Outlet;
use super::trial::{Begin, Order, Report, Second, Stalls};
use crate::clock::Clock;

/// Between two looks at the orders, in turns.
const LOOK: u32 = 64;
/// Between two calls of [`Responder::tick`].
const TICK: Duration = Duration::from_millis(5);
/// A worker that was away for longer had its CPU taken: a stall.
pub(super) const STALL: Duration = Duration::from_millis(1);
/// Pause of a worker that has no trial.
const REST: Duration = Duration::from_micros(200);

/// The receiving side of a port on one worker.
pub(super) struct Inlet<P> {
    /// The port, by its place in the tester.
    pub(super) port: usize,
    pub(super) queue: Box<dyn RxQueue<P>>,
    /// The stations on the port, if this inlet is the one that plays them.
    pub(super) responder: Option<Box<dyn Responder<P>>>,
    /// Leads to whoever sends by the port.
    pub(super) answers: Option<Producer<P>>,
}

/// What others see of a worker while it runs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Live {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    /// Frames made and not taken by devices yet.
    pub(super) pending: AtomicU64,
}

pub(super) struct Worker<P: Packet> {
    pub(super) clock: Clock,
    pub(super) alloc: Box<dyn PacketAlloc<P> + Send>,
    pub(super) inlets: Vec<Inlet<P>>,
    pub(super) outlets: Vec<Outlet<P>>,
    pub(super) orders: Orders<Order<P>>,
    pub(super) live: Arc<Live>,
    /// Another thread needs this one's CPU: give it away when there is nothing to do.
    pub(super) yielding: bool,
}

/// A trial under way.
struct Trial<P> {
    receivers: Vec<Receiver>,
    reader: Arc<dyn FrameReader<P>>,
    start: u64,
    seconds: Vec<Second>,
    stalls: Stalls,
    sent: u64,
    received: u64,
}

impl<P: Packet> Worker<P> {
    /// Runs until it is told to end.
    pub(super) fn run(mut self) {
        let mut trial: Option<Trial<P>> = None;
        let mut batch = Batch::new();
        let mut frames = Vec::new();
        let (tick, stall) = (self.cycles(TICK), self.cycles(STALL));
        let (mut last, mut ticked, mut turn) = (self.clock.cycles(), 0, 0u32);
        loop {
            turn = turn.wrapping_add(1);
            if trial.is_none() || turn.is_multiple_of(LOOK) {
                match self.orders.try_recv() {
                    Ok(Order::Begin(begin)) => {
                        trial = Some(self.begin(*begin));
                        last = self.clock.cycles();
                    }
                    Ok(Order::Stop) => {
                        let now = self.clock.cycles();
                        self.outlets.iter_mut().for_each(|o| o.finish(now));
                    }
                    Ok(Order::Collect(to)) => {
                        // Who does not wait for it any more does not need it.
                        let _ = to.send(self.collect(trial.take()));
                    }
                    Ok(Order::Quit) | Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => {}
                }
            }
            let now = self.clock.cycles();
            if let Some(trial) = &mut trial {
                trial.away(now, now - last, stall);
            }
            last = now;
            if now.wrapping_sub(ticked) > tick {
                ticked = now;
                self.tick(now, &mut frames);
            }
            let sent = self.send(trial.as_mut(), now);
            let received = self.receive(trial.as_mut(), &mut batch, &mut frames);
            if sent + received == 0 {
                match trial {
                    None => std::thread::sleep(REST),
                    Some(_) if self.yielding => std::thread::yield_now(),
                    Some(_) => std::hint::spin_loop(),
                }
            }
        }
    }

    fn cycles(&self, time: Duration) -> u64 {
        self.clock.cycles_of(time.as_nanos() as u64)
    }

    fn begin(&mut self, begin: Begin<P>) -> Trial<P> {
        for (outlet, jobs) in self.outlets.iter_mut().zip(begin.jobs) {
            outlet.begin(jobs);
        }
        Trial {
            receivers: begin.receivers,
            reader: begin.reader,
            start: begin.start,
            seconds: begin.seconds,
            stalls: Stalls::default(),
            sent: 0,
            received: 0,
        }
    }

    fn collect(&mut self, trial: Option<Trial<P>>) -> Report {
        let sent = self.outlets.iter_mut().flat_map(Outlet::collect).collect();
        let Some(trial) = trial else { return Report { sent, ..Report::default() } };
        let ports = self.inlets.iter().map(|i| i.port);
        Report {
            sent,
            received: ports.zip(trial.receivers.into_iter().map(Receiver::finish)).collect(),
            seconds: trial.seconds,
            stalls: trial.stalls,
        }
    }

    fn send(&mut self, trial: Option<&mut Trial<P>>, now: u64) -> u64 {
        let mut all = 0;
        for outlet in &mut self.outlets {
            all += outlet.send(self.clock.reader(), &mut *self.alloc).0;
        }
        if let (Some(trial), true) = (trial, all > 0) {
            trial.sent += all;
            self.live.sent.store(trial.sent, Ordering::Relaxed);
            if let Some(second) = trial.second(now, self.clock.hz()) {
                second.sent += all;
            }
        }
        let pending = self.outlets.iter().map(|o| o.pending() as u64).sum();
        self.live.pending.store(pending, Ordering::Relaxed);
        all
    }

    fn receive(
        &mut self,
        mut trial: Option<&mut Trial<P>>,
        batch: &mut Batch<P>,
        frames: &mut Vec<Vec<u8>>,
    ) -> u64 {
        let mut all = 0;
        for (i, inlet) in self.inlets.iter_mut().enumerate() {
            let n = inlet.queue.rx(batch);
            if n == 0 {
                continue;
            }
            let now = self.clock.cycles();
            batch.iter().for_each(Packet::prefetch);
            let (mut ours, mut sum, mut max) = (0, 0, 0);
            for packet in batch.iter() {
                let arrival = trial.as_ref().and_then(|t| t.reader.read(packet, now));
                if let (Some(arrival), Some(trial)) = (arrival, trial.as_deref_mut()) {
                    if let Some(receiver) = trial.receivers.get_mut(i) {
                        receiver.arrived(now, packet.len(), arrival);
                    }
                    let delay = now.saturating_sub(arrival.sent_at);
                    (ours, sum, max) = (ours + 1, sum + delay, delay.max(max));
                } else if !inlet.responder.as_mut().is_some_and(|r| r.receive(packet, now, frames))
                    && let Some(receiver) = trial.as_deref_mut().and_then(|t| t.receivers.get_mut(i))
                {
                    receiver.foreign(packet.len());
                }
            }
            P::free_bulk(batch);
            inlet.answer(frames, &mut *self.alloc);
            all += n as u64;
            if let Some(trial) = trial.as_deref_mut() {
                trial.received += ours;
                self.live.received.store(trial.received, Ordering::Relaxed);
                if let Some(second) = trial.second(now, self.clock.hz()) {
                    second.received += ours;
                    second.delay_sum += sum;
                    second.delay_max = second.delay_max.max(max);
                }
            }
        }
        all
    }

    fn tick(&mut self, now: u64, frames: &mut Vec<Vec<u8>>) {
        for inlet in &mut self.inlets {
            if let Some(responder) = &mut inlet.responder {
                responder.tick(now, frames);
                inlet.answer(frames, &mut *self.alloc);
            }
        }
    }
}

impl<P: Packet> Inlet<P> {
    /// Hands frames to whoever sends by the port. What finds no room is lost, as on any link: it is asked again.
    fn answer(&mut self, frames: &mut Vec<Vec<u8>>, alloc: &mut dyn PacketAlloc<P>) {
        for frame in frames.drain(..) {
            let (Some(answers), Some(mut packet)) = (&mut self.answers, alloc.alloc()) else { continue };
            if let Some(room) = packet.append(frame.len()) {
                room.copy_from_slice(&frame);
                let _ = answers.push(packet);
            }
        }
    }
}

impl<P> Trial<P> {
    #[inline]
    fn second(&mut self, now: u64, hz: u64) -> Option<&mut Second> {
        let index = now.checked_sub(self.start)? / hz.max(1);
        self.seconds.get_mut(index as usize)
    }

    /// The worker was away from its queues for so many ticks.
    #[inline]
    fn away(&mut self, now: u64, ticks: u64, stall: u64) {
        if ticks > stall && now > self.start {
            self.stalls.note((now - ticks).saturating_sub(self.start), ticks);
        }
    }
}

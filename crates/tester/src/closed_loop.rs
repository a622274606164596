//! Sender and sink joined to a loop with a bounded number of packets under way.
//!
//! A new packet is sent only when one has come back, so no queue between tester and router can overflow while the window
//! is smaller than the queues: a packet that does not come back was lost by the router and by nothing else. What the
//! loop turns at is the rate of the slower of the two ends; who that was, the router's busy share tells.
//!
//! Packets are sent in whole bursts and buffers that came back right are used again, so that the sending side costs as
//! little as it can.

use std::collections::VecDeque;

use linerate_pipeline::io::{RxQueue, TxQueue};
use linerate_pipeline::{BURST, Batch, Packet, PortId};

use crate::flow::Flows;
use crate::frame::{Stamp, Template, headers};
use crate::ip::Ip;
use crate::sink::{Expect, Fault, STREAMS, Sink, Tally};

/// Where packets of a given length come from.
pub trait FrameAlloc<P> {
    /// A packet of `len` bytes of any content, in as many segments as it takes; `None` where the pool is exhausted.
    fn frame(&mut self, len: usize) -> Option<P>;
}

/// A piece of wire: what is sent into it can be received from it, in order. In place of a router it shows what sender and
/// sink can do on their own.
#[derive(Debug)]
pub struct Wire<P> {
    packets: VecDeque<P>,
    holds: usize,
}

impl<P> Wire<P> {
    /// A wire that holds at most so many packets.
    pub fn new(holds: usize) -> Self {
        Wire { packets: VecDeque::with_capacity(holds), holds }
    }
}

impl<P: Packet> TxQueue<P> for Wire<P> {
    fn tx(&mut self, batch: &mut Batch<P>) -> usize {
        let n = batch.len().min(self.holds - self.packets.len());
        self.packets.extend(batch.drain(..n));
        n
    }
}

impl<P: Packet> RxQueue<P> for Wire<P> {
    fn rx(&mut self, batch: &mut Batch<P>) -> usize {
        let n = self.packets.len().min(batch.remaining_capacity());
        batch.extend(self.packets.drain(..n));
        n
    }
}

/// What a trial came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Test frames sent.
    pub sent: u64,
    /// Test frames that never came back, right or wrong.
    pub lost: u64,
    /// What came back.
    pub tally: Tally,
}

impl Trial {
    /// Whether every packet sent came back once, in order and right.
    pub fn clean(&self) -> bool {
        self.lost == 0 && self.tally.bad == 0 && self.tally.duplicates == 0 && self.tally.reordered == 0
    }

    /// Adds another trial.
    pub fn add(&mut self, other: &Trial) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.tally.add(&other.tally);
    }
}

/// One sender and its sink.
pub struct ClosedLoop<A, P: Packet> {
    template: Template<A>,
    flows: Flows<A>,
    sink: Sink<A>,
    window: u32,
    /// Index of the next flow.
    at: usize,
    sent: [u32; STREAMS],
    sent_total: u64,
    /// Sequence numbers below are no longer waited for.
    given_up: [u32; STREAMS],
    /// Buffers that came back right, to be used again.
    spare: Vec<P>,
    /// Stamped packets that the queue has not taken yet.
    pending: Batch<P>,
    received: Batch<P>,
    last_arrival: u64,
}

impl<A: Ip, P: Packet> ClosedLoop<A, P> {
    /// A loop over `flows`, starting with flow `start` (modulo their number), with at most `window` packets under way.
    pub fn new(template: Template<A>, flows: Flows<A>, expect: Expect, window: u32, start: usize) -> Self {
        let window = window.max(BURST as u32);
        ClosedLoop {
            sink: Sink::new(template.clone(), flows.clone(), expect),
            at: start % flows.list.len().max(1),
            template,
            flows,
            window,
            sent: [0; STREAMS],
            sent_total: 0,
            given_up: [0; STREAMS],
            spare: Vec::with_capacity(window as usize + BURST),
            pending: Batch::new(),
            received: Batch::new(),
            last_arrival: 0,
        }
    }

    /// Receives what came back on the router's ports and checks it; returns how many packets there were. `now` in
    /// nanoseconds.
    pub fn receive<R: RxQueue<P> + ?Sized>(&mut self, port: PortId, queue: &mut R, now: u64) -> usize {
        let n = queue.rx(&mut self.received);
        if n == 0 {
            return 0;
        }
        self.last_arrival = now;
        self.received.iter().for_each(Packet::prefetch);
        for packet in self.received.drain(..) {
            if self.sink.check(port, &packet, now as u32) && self.spare.len() < self.spare.capacity() {
                self.spare.push(packet);
            }
        }
        n
    }

    /// Sends a burst where the window has room for a whole one; returns how many packets the queue took.
    pub fn send(
        &mut self,
        queue: &mut (impl TxQueue<P> + ?Sized),
        pool: &mut impl FrameAlloc<P>,
        now: u64,
    ) -> usize {
        if self.pending.is_empty() && self.under_way() + BURST as u32 <= self.window {
            self.make_burst(pool, now);
        }
        if self.pending.is_empty() { 0 } else { queue.tx(&mut self.pending) }
    }

    /// Packets sent, or stamped to be sent, that have not come back.
    pub fn under_way(&self) -> u32 {
        (0..STREAMS).map(|s| self.outstanding(s)).sum()
    }

    /// Gives up waiting for what is under way when nothing has come back for `patience` nanoseconds, so that a router
    /// that loses packets does not stop the loop. True where it did.
    pub fn give_up(&mut self, now: u64, patience: u64) -> bool {
        let stalled = self.under_way() > 0 && now.saturating_sub(self.last_arrival) > patience;
        if stalled {
            self.given_up = self.sent;
            self.last_arrival = now;
        }
        stalled
    }

    /// Drops what is stamped but not sent, so that it does not count as lost. Call before draining.
    pub fn stop(&mut self) {
        for packet in self.pending.drain(..).rev() {
            // Unsent packets are the newest of their streams: taking their numbers back leaves no gap.
            let stamp = packet
                .head()
                .get(..headers::<A>())
                .and_then(|h| h.last_chunk())
                .and_then(|s| Stamp::read(self.template.key(), s));
            if let Some(s) = stamp {
                self.sent[usize::from(s.stream)] = s.sequence;
                self.sent_total -= 1;
            }
        }
    }

    /// Packets that came back right so far.
    pub fn good(&self) -> u64 {
        self.sink.good()
    }

    /// The flow that the next packet would belong to: where a later trial may continue.
    pub fn position(&self) -> usize {
        self.at
    }

    /// What the trial came to. Complete when nothing is under way any more.
    pub fn result(&self) -> Trial {
        let tally = self.sink.tally();
        // Where the signature is damaged nobody can tell which packet it was, but it did come back.
        let back = self.sink.received() + tally.count(Fault::Signature);
        Trial { sent: self.sent_total, lost: self.sent_total.saturating_sub(back), tally }
    }

    fn outstanding(&self, stream: usize) -> u32 {
        let open = self.sent[stream].wrapping_sub(self.sink.acknowledged(stream as u8));
        open.min(self.sent[stream].wrapping_sub(self.given_up[stream]))
    }

    fn make_burst(&mut self, pool: &mut impl FrameAlloc<P>, now: u64) {
        let n = headers::<A>();
        while !self.pending.is_full() {
            let packet = match self.spare.pop() {
                Some(p) => Some(p),
                None => pool.frame(self.template.spec().buffer_len()).map(|mut p| {
                    self.template.fill(&mut p);
                    p
                }),
            };
            let Some(mut packet) = packet else { return };
            let (index, flow) = (self.at, self.flows.list[self.at]);
            // The stream is the port the packet must leave by: order is kept within one, not between two.
            let stream = self.flows.hops[usize::from(flow.next_hop)].port as usize % STREAMS;
            let stamp = Stamp {
                flow: index as u32,
                stream: stream as u8,
                sequence: self.sent[stream],
                time: now as u32,
            };
            let Some(head) = packet.pull(n) else { continue };
            self.template.sent(&flow, stamp, head);
            self.sent[stream] = self.sent[stream].wrapping_add(1);
            self.sent_total += 1;
            self.at = if index + 1 == self.flows.list.len() { 0 } else { index + 1 };
            self.pending.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::HeapPacket;
    use linerate_tables::prefix::Prefix;

    use super::*;
    use crate::flow::tests::hops;
    use crate::frame::FrameSpec;
    use crate::frame::tests::{ROUTER, TESTER};

    struct Heap(usize);

    impl FrameAlloc<HeapPacket> for Heap {
        fn frame(&mut self, len: usize) -> Option<HeapPacket> {
            self.0 += 1;
            Some(HeapPacket::with_segments(&[&vec![0; len.min(100)], &vec![0; len.saturating_sub(100)]]))
        }
    }

    fn start(window: u32) -> ClosedLoop<u32, HeapPacket> {
        let routes = vec![
            (Prefix::new(0x0808_0000u32, 16).unwrap(), 3),
            (Prefix::new(0x0909_0000u32, 16).unwrap(), 4),
        ];
        let flows = Flows::pick(&routes, hops(), 1000, &[], 1).unwrap();
        let t = Template::new(FrameSpec::new::<u32>(256).unwrap(), TESTER, ROUTER, 0x0aff_0002, 42);
        ClosedLoop::new(t, flows, Expect::Unchanged(1), window, 990)
    }

    fn turns(l: &mut ClosedLoop<u32, HeapPacket>, wire: &mut Wire<HeapPacket>, n: u64) -> Heap {
        let mut pool = Heap(0);
        for now in 0..n {
            l.send(wire, &mut pool, now * 1000);
            l.receive(1, wire, now * 1000 + 500);
        }
        l.stop();
        while l.under_way() > 0 && !l.give_up(n * 1000 + 1_000_000, 1000) {
            l.receive(1, wire, 0);
        }
        pool
    }

    #[test]
    fn everything_comes_back_and_buffers_are_used_again() {
        let mut l = start(256);
        let pool = turns(&mut l, &mut Wire::new(100), 500);
        let r = l.result();
        assert!(r.clean() && r.sent > 10_000 && r.tally.good == r.sent, "{r:?}");
        assert!(pool.0 <= 256, "{} buffers", pool.0);
        assert_eq!((r.tally.round_trip_min, l.position()), (500, (990 + r.sent as usize) % 1000));
    }

    #[test]
    fn the_window_is_never_exceeded() {
        let mut l = start(100);
        let mut wire = Wire::new(10_000);
        (0..50).for_each(|_| {
            l.send(&mut wire, &mut Heap(0), 0);
        });
        assert!((1..=100).contains(&wire.packets.len()), "{}", wire.packets.len());
    }

    #[test]
    fn losses_are_counted_and_do_not_stop_the_loop() {
        let mut l = start(256);
        let (mut wire, mut pool) = (Wire::new(1000), Heap(0));
        let mut dropped = 0;
        for now in 0..2000u64 {
            l.send(&mut wire, &mut pool, now * 1000);
            if now % 7 == 0 && wire.packets.pop_front().is_some() {
                dropped += 1;
            }
            l.receive(1, &mut wire, now * 1000);
            l.give_up(now * 1000, 50_000);
        }
        l.stop();
        while l.receive(1, &mut wire, 2_000_000) > 0 {}
        let r = l.result();
        assert_eq!(r.lost, dropped);
        assert!(dropped > 100 && r.sent > 50_000 && !r.clean(), "{r:?}");
    }
}

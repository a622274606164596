//! The transmit side of a worker: one buffer and one queue per port, filled by the output node, flushed once a loop.

use crate::counters::{Counter, MAX_PORTS, PortCounters, WorkerCounters};
use crate::io::TxQueue;
use crate::{Batch, DropReason, Packet, PortId};

/// How often an unsent tail is offered again before it is dropped as [`DropReason::TxFull`]. Bounded, so that a stuck
/// port cannot hold up the others.
const RETRIES: usize = 2;

/// Transmit buffers and queues of one worker, by port.
pub struct TxBuffers<P> {
    ports: [Option<TxPort<P>>; MAX_PORTS],
    /// Bit per port with packets waiting.
    waiting: u32,
}

struct TxPort<P> {
    out: Outlet<P>,
    pending: Box<Batch<P>>,
    /// Bytes in `pending`.
    bytes: u64,
    /// Packets at the end of `pending` that no counter of the port they came by knows of: not zero only while a
    /// [`Sender`] is at work.
    uncounted: u32,
}

struct Outlet<P> {
    queue: Box<dyn TxQueue<P>>,
    up: bool,
    /// Whether the queue is a ring to the worker that has the device's queue.
    hands_over: bool,
}

/// What is known of a batch before the device takes it: gathered where its metadata is at hand anyway.
#[derive(Clone, Copy, Debug)]
struct Tally {
    bytes: u64,
    /// Port that the first packet came in by.
    origin: PortId,
    /// Bits in which another packet's port differs from that.
    mixed: PortId,
}

impl Tally {
    #[inline(always)]
    fn starting_with(origin: PortId) -> Self {
        Tally { bytes: 0, origin, mixed: 0 }
    }

    #[inline(always)]
    fn add<P: Packet>(&mut self, packet: &P) {
        self.bytes += packet.len() as u64;
        self.mixed |= packet.rx_port() ^ self.origin;
    }
}

impl<P: Packet> Default for TxBuffers<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Packet> TxBuffers<P> {
    /// No ports yet.
    pub fn new() -> Self {
        TxBuffers { ports: std::array::from_fn(|_| None), waiting: 0 }
    }

    /// Gives the worker its queue of a port; returns the queue it replaces. Ports beyond [`MAX_PORTS`] are refused by
    /// giving the queue back.
    pub fn attach(&mut self, port: PortId, queue: Box<dyn TxQueue<P>>) -> Option<Box<dyn TxQueue<P>>> {
        self.put(port, queue, false)
    }

    /// As [`attach`](Self::attach), for a port whose device queue another worker has: `ring` leads to that worker.
    /// What it takes is counted as handed over, what finds it full is dropped as [`DropReason::HandoffFull`]; the
    /// other worker counts the packets as handed in and sends them.
    pub fn attach_handover(
        &mut self,
        port: PortId,
        ring: Box<dyn TxQueue<P>>,
    ) -> Option<Box<dyn TxQueue<P>>> {
        self.put(port, ring, true)
    }

    fn put(
        &mut self,
        port: PortId,
        queue: Box<dyn TxQueue<P>>,
        hands_over: bool,
    ) -> Option<Box<dyn TxQueue<P>>> {
        match self.ports.get_mut(usize::from(port)) {
            Some(slot) => slot
                .replace(TxPort {
                    out: Outlet { queue, up: true, hands_over },
                    pending: Box::default(),
                    bytes: 0,
                    uncounted: 0,
                })
                .map(|old| old.out.queue),
            None => Some(queue),
        }
    }

    /// Takes the worker's queue of a port away. Flush first: packets still waiting are dropped as shut down.
    pub fn detach(&mut self, port: PortId, counters: &WorkerCounters) -> Option<Box<dyn TxQueue<P>>> {
        let mut old = self.ports.get_mut(usize::from(port))?.take()?;
        self.waiting &= !(1 << port);
        old.out.refuse(counters, &mut old.pending, |_| DropReason::Shutdown);
        Some(old.out.queue)
    }

    /// Marks a port up or down; packets for a port that is down are dropped as [`DropReason::TxPortDown`].
    pub fn set_up(&mut self, port: PortId, up: bool) {
        if let Some(Some(p)) = self.ports.get_mut(usize::from(port)) {
            p.out.up = up;
        }
    }

    /// Sends each packet of a batch by the port in its metadata; a batch that leaves by one port goes straight to the
    /// device. The batch is empty afterwards.
    #[inline]
    pub fn send_each(&mut self, batch: &mut Batch<P>, counters: &WorkerCounters) {
        let Some(first) = batch.first() else { return };
        let port = first.meta().tx_port;
        let mut tally = Tally::starting_with(first.rx_port());
        let mut ports = 0;
        for packet in batch.iter() {
            ports |= packet.meta().tx_port ^ port;
            tally.add(packet);
        }
        if ports == 0 {
            return self.send_tallied(port, batch, tally, counters);
        }
        while let Some(first) = batch.first() {
            let (port, mixed) = (first.meta().tx_port, tally.mixed != 0);
            let before = batch.len();
            let Some(Some(p)) = self.ports.get_mut(usize::from(port)) else {
                let mut lost = Batch::new();
                P::split(batch, &mut lost, |packet| packet.meta().tx_port == port);
                drop_all(counters, &mut lost, DropReason::TxNoPort);
                continue;
            };
            if p.pending.remaining_capacity() < before {
                p.flush(port, counters);
            }
            let bytes = &mut p.bytes;
            let out = &p.out;
            P::split(batch, &mut p.pending, |packet| {
                let picked = packet.meta().tx_port == port;
                *bytes += if picked { packet.len() as u64 } else { 0 };
                if mixed && picked {
                    out.went(counters.port(packet.rx_port()), 1);
                }
                picked
            });
            if !mixed {
                p.out.went(counters.port(tally.origin), (before - batch.len()) as u64);
            }
            self.waiting |= 1 << port;
        }
    }

    /// Sends a whole batch by one port, straight from the batch where nothing waits before it. The batch is empty
    /// afterwards.
    #[inline]
    pub fn send_batch(&mut self, port: PortId, batch: &mut Batch<P>, counters: &WorkerCounters) {
        let Some(first) = batch.first() else { return };
        let mut tally = Tally::starting_with(first.rx_port());
        batch.iter().for_each(|p| tally.add(p));
        self.send_tallied(port, batch, tally, counters);
    }

    #[inline]
    fn send_tallied(&mut self, port: PortId, batch: &mut Batch<P>, tally: Tally, counters: &WorkerCounters) {
        let Some(Some(p)) = self.ports.get_mut(usize::from(port)) else {
            return drop_all(counters, batch, DropReason::TxNoPort);
        };
        if tally.mixed == 0 {
            p.out.went(counters.port(tally.origin), batch.len() as u64);
        } else {
            batch.iter().for_each(|packet| p.out.went(counters.port(packet.rx_port()), 1));
        }
        if p.pending.is_empty() {
            p.out.transmit(port, batch, tally.bytes, counters);
        } else {
            for packet in batch.drain(..) {
                p.push(port, packet, counters);
            }
            self.waiting |= 1 << port;
        }
    }

    /// Queues one packet for a port; sends when the buffer is full.
    #[inline]
    pub fn send(&mut self, port: PortId, packet: P, counters: &WorkerCounters) {
        match self.ports.get_mut(usize::from(port)) {
            Some(Some(p)) => {
                p.out.went(counters.port(packet.rx_port()), 1);
                p.push(port, packet, counters);
                self.waiting |= 1 << port;
            }
            _ => counters.dropped(packet.rx_port(), DropReason::TxNoPort, 1),
        }
    }

    /// For a node that sends packet after packet, all of which came in by `rx_port`.
    #[inline]
    pub fn sender<'a>(&'a mut self, rx_port: PortId, counters: &'a WorkerCounters) -> Sender<'a, P> {
        Sender { tx: self, touched: 0, origin: counters.port(rx_port), counters }
    }

    /// Sends what waits. Called once per worker loop.
    #[inline]
    pub fn flush(&mut self, counters: &WorkerCounters) {
        while self.waiting != 0 {
            let port = self.waiting.trailing_zeros();
            self.waiting &= self.waiting - 1;
            if let Some(Some(p)) = self.ports.get_mut(port as usize) {
                p.flush(port as PortId, counters);
            }
        }
    }
}

/// Queues packets that came in by one port, and counts them as gone once per batch and port they leave by.
pub struct Sender<'a, P: Packet> {
    tx: &'a mut TxBuffers<P>,
    /// Bit per port that packets were queued for since they were last counted.
    touched: u32,
    origin: &'a PortCounters,
    counters: &'a WorkerCounters,
}

impl<P: Packet> Sender<'_, P> {
    /// Queues one packet for a port; sends when the buffer is full.
    #[inline(always)]
    pub fn send(&mut self, port: PortId, packet: P) {
        let Some(Some(p)) = self.tx.ports.get_mut(usize::from(port)) else {
            return self.counters.dropped(packet.rx_port(), DropReason::TxNoPort, 1);
        };
        if p.pending.is_full() {
            p.settle(self.origin);
            p.flush(port, self.counters);
        }
        p.bytes += packet.len() as u64;
        p.uncounted += 1;
        p.pending.push(packet);
        self.touched |= 1 << port;
    }
}

impl<P: Packet> Drop for Sender<'_, P> {
    #[inline]
    fn drop(&mut self) {
        self.tx.waiting |= self.touched;
        while self.touched != 0 {
            let port = self.touched.trailing_zeros();
            self.touched &= self.touched - 1;
            if let Some(Some(p)) = self.tx.ports.get_mut(port as usize) {
                p.settle(self.origin);
            }
        }
    }
}

impl<P: Packet> TxPort<P> {
    /// Counts what a [`Sender`] queued and has not counted yet.
    #[inline(always)]
    fn settle(&mut self, origin: &PortCounters) {
        self.out.went(origin, u64::from(std::mem::take(&mut self.uncounted)));
    }

    #[inline]
    fn push(&mut self, port: PortId, packet: P, counters: &WorkerCounters) {
        if self.pending.is_full() {
            self.flush(port, counters);
        }
        self.bytes += packet.len() as u64;
        self.pending.push(packet);
    }

    #[inline(never)]
    fn flush(&mut self, port: PortId, counters: &WorkerCounters) {
        self.out.transmit(port, &mut self.pending, self.bytes, counters);
        self.bytes = 0;
    }
}

impl<P: Packet> Outlet<P> {
    /// Counts packets that came in by a port as sent or handed over, when they are queued: nobody needs to look at
    /// each of them again. [`refuse`](Self::refuse) takes back what the device does not want.
    #[inline(always)]
    fn went(&self, origin: &PortCounters, packets: u64) {
        self.counter(origin).add(packets);
    }

    #[inline(always)]
    fn counter<'c>(&self, origin: &'c PortCounters) -> &'c Counter {
        if self.hands_over { &origin.handed_over } else { &origin.sent }
    }

    /// Hands the batch, already counted by [`went`](Self::went), to the device; `bytes` is its size, corrected here for
    /// the tail that the device refuses.
    fn transmit(&mut self, port: PortId, batch: &mut Batch<P>, mut bytes: u64, counters: &WorkerCounters) {
        if batch.is_empty() {
            return;
        }
        if !self.up {
            return self.refuse(counters, batch, |_| DropReason::TxPortDown);
        }
        let total = batch.len();
        let mut sent = self.queue.tx(batch);
        for _ in 0..RETRIES {
            if batch.is_empty() {
                break;
            }
            sent += self.queue.tx(batch);
        }
        debug_assert_eq!(sent + batch.len(), total);
        if !batch.is_empty() {
            bytes -= batch.iter().map(|p| p.len() as u64).sum::<u64>();
            let full = if self.hands_over { DropReason::HandoffFull } else { DropReason::TxFull };
            let why = |p: &P| if self.queue.can_send(p) { full } else { DropReason::TxUnsendable };
            self.refuse(counters, batch, why);
        }
        if !self.hands_over {
            let out = counters.port(port);
            out.tx_packets.add(sent as u64);
            out.tx_bytes.add(bytes);
        }
    }

    /// Drops packets that were counted as gone.
    #[cold]
    fn refuse(&self, counters: &WorkerCounters, batch: &mut Batch<P>, why: impl Fn(&P) -> DropReason) {
        for packet in batch.iter() {
            self.counter(counters.port(packet.rx_port())).take_back(1);
            counters.dropped(packet.rx_port(), why(packet), 1);
        }
        P::free_bulk(batch);
    }
}

/// Counts and frees every packet of a batch.
fn drop_all<P: Packet>(counters: &WorkerCounters, batch: &mut Batch<P>, reason: DropReason) {
    batch.iter().for_each(|p| counters.dropped(p.rx_port(), reason, 1));
    P::free_bulk(batch);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::HeapPacket;

    /// Takes packets until its room is used up.
    struct Slow(Arc<Mutex<(Vec<HeapPacket>, usize)>>);

    impl TxQueue<HeapPacket> for Slow {
        fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
            let mut s = self.0.lock().unwrap();
            let n = batch.len().min(s.1);
            s.1 -= n;
            s.0.extend(batch.drain(..n));
            n
        }
    }

    fn packets(ports: &[PortId]) -> Batch<HeapPacket> {
        ports.iter().map(|p| HeapPacket::new(&[0; 60]).from_port(*p)).collect()
    }

    #[test]
    fn a_full_device_drops_the_tail_under_its_name_and_every_port_balances() {
        let device = Arc::new(Mutex::new((Vec::new(), 5)));
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        assert!(tx.attach(1, Box::new(Slow(device.clone()))).is_none());
        let mut batch = packets(&[0, 0, 1, 0, 1, 1, 0]);
        c.port(0).received.add(4);
        c.port(1).received.add(3);
        tx.send_batch(1, &mut batch, &c);
        assert!(batch.is_empty());
        assert_eq!(device.lock().unwrap().0.len(), 5);
        assert_eq!((c.port(1).tx_packets.get(), c.port(1).tx_bytes.get()), (5, 300));
        assert_eq!(c.drops(DropReason::TxFull), 2);
        assert_eq!((c.port(0).imbalance(), c.port(1).imbalance()), (0, 0));
    }

    /// Takes two packets a call, and none that is longer than a buffer of 100 bytes: those go behind the others.
    struct Short(Vec<HeapPacket>);

    impl TxQueue<HeapPacket> for Short {
        fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
            let (fit, long): (Vec<_>, Vec<_>) = batch.drain(..).partition(|p| self.can_send(p));
            batch.extend(fit.into_iter().chain(long));
            let n = batch.iter().filter(|p| self.can_send(p)).count().min(2);
            self.0.extend(batch.drain(..n));
            n
        }

        fn can_send(&self, packet: &HeapPacket) -> bool {
            packet.len() <= 100
        }
    }

    #[test]
    fn what_a_device_can_never_send_is_a_drop_of_its_own_and_not_sent() {
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        tx.attach(1, Box::new(Short(Vec::new())));
        c.port(0).received.add(9);
        let sizes = [60, 200, 60, 60, 300, 60, 60, 60, 60];
        tx.send_batch(1, &mut sizes.iter().map(|n| HeapPacket::new(&vec![0; *n])).collect(), &c);
        let (c0, c1) = (c.port(0), c.port(1));
        // Three calls take two each; one of those that fit is left, and the two that never will.
        assert_eq!((c0.sent.get(), c1.tx_packets.get(), c1.tx_bytes.get()), (6, 6, 360));
        assert_eq!((c.drops(DropReason::TxFull), c.drops(DropReason::TxUnsendable)), (1, 2));
        assert_eq!(c0.imbalance(), 0);
    }

    #[test]
    fn order_is_kept_between_queued_packets_and_whole_batches() {
        let device = Arc::new(Mutex::new((Vec::new(), 1000)));
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        tx.attach(0, Box::new(Slow(device.clone())));
        tx.send(0, HeapPacket::new(&[1]), &c);
        tx.send_batch(0, &mut [2u8, 3].iter().map(|b| HeapPacket::new(&[*b])).collect(), &c);
        (4..100u8).for_each(|b| tx.send(0, HeapPacket::new(&[b]), &c));
        tx.flush(&c);
        let order: Vec<u8> = device.lock().unwrap().0.iter().map(|p| p.bytes()[0]).collect();
        assert_eq!(order, (1..100).collect::<Vec<u8>>());
    }

    #[test]
    fn packets_for_another_workers_queue_are_handed_over_not_sent() {
        let ring = Arc::new(Mutex::new((Vec::new(), 2)));
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        tx.attach_handover(1, Box::new(Slow(ring)));
        c.port(0).received.add(3);
        tx.send_batch(1, &mut packets(&[0, 0, 0]), &c);
        let p = c.port(0);
        assert_eq!((p.handed_over.get(), p.sent.get(), c.port(1).tx_packets.get()), (2, 0, 0));
        assert_eq!((c.drops(DropReason::HandoffFull), p.imbalance()), (1, 0));
    }

    #[test]
    fn missing_and_downed_ports_have_reasons() {
        let device = Arc::new(Mutex::new((Vec::new(), 1000)));
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        tx.send_batch(3, &mut packets(&[0, 0]), &c);
        tx.send(40, HeapPacket::new(&[1]), &c);
        assert_eq!(c.drops(DropReason::TxNoPort), 3);
        tx.attach(3, Box::new(Slow(device)));
        tx.set_up(3, false);
        tx.send_batch(3, &mut packets(&[0]), &c);
        assert_eq!(c.drops(DropReason::TxPortDown), 1);
    }
}

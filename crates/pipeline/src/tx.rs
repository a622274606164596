//! The transmit side of a worker: one buffer and one queue per port, filled by the output node, flushed once a loop.

use crate::counters::{Counter, MAX_PORTS, PortCounters, WorkerCounters};
use crate::io::TxQueue;
use crate::{BURST, Batch, DropReason, Packet, PortId};

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
    /// Packets at the front of `pending` that a counter of the port they came by knows of: all of them, but while a
    /// [`Sender`] is at work.
    counted: usize,
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
    /// Port that the first packet came in by.
    origin: PortId,
    /// Bits in which another packet's port differs from that.
    mixed: PortId,
}

impl Tally {
    #[inline(always)]
    fn starting_with(origin: PortId) -> Self {
        Tally { origin, mixed: 0 }
    }

    #[inline(always)]
    fn add<P: Packet>(&mut self, packet: &P) {
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
        let Some(slot) = self.ports.get_mut(usize::from(port)) else { return Some(queue) };
        let mut new =
            TxPort { out: Outlet { queue, up: true, hands_over }, pending: Box::default(), counted: 0 };
        let old = slot.take().map(|old| {
            // What waits has been counted as gone: it goes by the new queue.
            (new.pending, new.counted) = (old.pending, old.counted);
            old.out.queue
        });
        *slot = Some(new);
        old
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
            let out = &p.out;
            P::split(batch, &mut p.pending, |packet| {
                let picked = packet.meta().tx_port == port;
                if mixed && picked {
                    out.went(counters.port(packet.rx_port()), 1);
                }
                picked
            });
            p.counted = p.pending.len();
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
            p.out.transmit(port, batch, counters);
        } else {
            for packet in batch.drain(..) {
                p.push(port, packet, counters);
            }
            self.waiting |= 1 << port;
        }
    }

    /// Sends the packets of a batch, all of which came in by `rx_port`, by the ports that `ways` says; those that it lets
    /// stay are left in the batch, in order.
    pub fn send_by(
        &mut self,
        rx_port: PortId,
        batch: &mut Batch<P>,
        ways: &mut Ways,
        counters: &WorkerCounters,
    ) {
        let (mut ports, stay) = (ways.used & !STAY_BIT, ways.used & STAY_BIT != 0);
        if ports.count_ones() > 2 {
            return self.send_one_by_one(rx_port, batch, ways, counters);
        }
        while ports != 0 {
            let port = ports.trailing_zeros();
            ports &= ports - 1;
            let is_rest = ports == 0 && !stay;
            let before = batch.len();
            let Some(Some(p)) = self.ports.get_mut(port as usize) else {
                let mut lost = Batch::new();
                ways.split(port, batch, &mut lost);
                drop_all(counters, &mut lost, DropReason::TxNoPort);
                continue;
            };
            if p.pending.remaining_capacity() < before {
                p.flush(port as PortId, counters);
            }
            if !is_rest {
                ways.split(port, batch, &mut p.pending);
            } else if p.pending.is_empty() {
                std::mem::swap(batch, &mut p.pending);
            } else {
                P::split(batch, &mut p.pending, |_| true);
            }
            p.out.went(counters.port(rx_port), (before - batch.len()) as u64);
            p.counted = p.pending.len();
            self.waiting |= 1 << port;
        }
    }

    /// As [`send_by`](Self::send_by), where a pass over the batch for each port would cost more.
    #[inline(never)]
    fn send_one_by_one(
        &mut self,
        rx_port: PortId,
        batch: &mut Batch<P>,
        ways: &Ways,
        counters: &WorkerCounters,
    ) {
        let mut rest = Batch::new();
        let mut sender = self.sender(rx_port, counters);
        for (packet, port) in batch.drain(..).zip(ways.ports) {
            match port {
                STAY => rest.push(packet),
                port => sender.send(PortId::from(port), packet),
            }
        }
        if !rest.is_empty() {
            *batch = rest;
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

/// Which port each packet of a batch leaves by: what [`TxBuffers::send_by`] goes by.
#[derive(Clone, Debug)]
pub struct Ways {
    ports: [u8; BURST],
    /// Bit per value in `ports`.
    used: u64,
}

/// In [`Ways`]: the packet leaves by none.
const STAY: u8 = 63;
const STAY_BIT: u64 = 1 << STAY;
/// In [`Ways`]: all ports that cannot be.
const BEYOND: PortId = 62;

impl Default for Ways {
    fn default() -> Self {
        Ways { ports: [STAY; BURST], used: 0 }
    }
}

impl Ways {
    /// For the next batch.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Packet `i` leaves by a port.
    #[inline(always)]
    pub fn leave(&mut self, i: usize, port: PortId) {
        let port = port.min(BEYOND);
        self.used |= 1 << port;
        if let Some(slot) = self.ports.get_mut(i) {
            *slot = port as u8;
        }
    }

    /// Packet `i` and all behind it stay.
    pub fn stay_from(&mut self, i: usize) {
        self.used |= STAY_BIT;
        self.ports.iter_mut().skip(i).for_each(|port| *port = STAY);
    }

    /// Packet `i` stays.
    #[inline(always)]
    pub fn stay(&mut self, i: usize) {
        self.used |= STAY_BIT;
        if let Some(slot) = self.ports.get_mut(i) {
            *slot = STAY;
        }
    }

    /// Moves those that leave by a port; the ports of the others move up with them.
    #[inline(always)]
    fn split<P: Packet>(&mut self, port: u32, batch: &mut Batch<P>, to: &mut Batch<P>) {
        let (mut i, mut kept) = (0, 0);
        P::split(batch, to, |_| {
            let of = self.ports[i % BURST];
            let picked = u32::from(of) == port;
            self.ports[kept % BURST] = of;
            kept += usize::from(!picked);
            i += 1;
            picked
        });
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
        self.touched |= 1 << port;
        if let Err(full) = p.pending.try_push(packet) {
            p.send_first(port, full.element(), self.origin, self.counters);
        }
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
        self.out.went(origin, (self.pending.len() - self.counted) as u64);
        self.counted = self.pending.len();
    }

    /// Makes room for a packet of a [`Sender`].
    #[cold]
    #[inline(never)]
    fn send_first(&mut self, port: PortId, packet: P, origin: &PortCounters, counters: &WorkerCounters) {
        self.settle(origin);
        self.flush(port, counters);
        self.pending.push(packet);
    }

    #[inline]
    fn push(&mut self, port: PortId, packet: P, counters: &WorkerCounters) {
        if self.pending.is_full() {
            self.flush(port, counters);
        }
        self.pending.push(packet);
        self.counted = self.pending.len();
    }

    #[inline(never)]
    fn flush(&mut self, port: PortId, counters: &WorkerCounters) {
        self.out.transmit(port, &mut self.pending, counters);
        self.counted = 0;
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

    /// Hands the batch, already counted by [`went`](Self::went), to the device.
    fn transmit(&mut self, port: PortId, batch: &mut Batch<P>, counters: &WorkerCounters) {
        if batch.is_empty() {
            return;
        }
        if !self.up {
            return self.refuse(counters, batch, |_| DropReason::TxPortDown);
        }
        let total = batch.len();
        let bytes_in = |batch: &Batch<P>| batch.iter().map(|p| p.len() as u64).sum::<u64>();
        let mut bytes = bytes_in(batch);
        let mut sent = self.queue.tx(batch);
        for _ in 0..RETRIES {
            if batch.is_empty() {
                break;
            }
            sent += self.queue.tx(batch);
        }
        debug_assert_eq!(sent + batch.len(), total);
        if !batch.is_empty() {
            bytes -= bytes_in(batch);
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
    fn packets_of_one_batch_leave_by_their_ports_in_order_and_others_stay() {
        let devices: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new((Vec::new(), 1000)))).collect();
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        for (port, device) in (0..).zip(&devices) {
            tx.attach(port, Box::new(Slow(device.clone())));
        }
        // Ports 0 to 2, one that is not attached, one that cannot be, and packets that stay; then whole batches by one port.
        let all: [&[Option<PortId>]; 4] = [
            &[Some(2), None, Some(0), Some(2), Some(9), Some(0), Some(4000), Some(1), None, Some(2)],
            &[Some(1); 64],
            &[Some(1), Some(1), Some(1)],
            &[Some(0), Some(1), Some(0), Some(0), Some(1)],
        ];
        let (mut ways, mut n, mut wanted) = (Ways::default(), 0u8, vec![Vec::new(); 3]);
        for ports in all {
            let mut batch = Batch::new();
            let (mut stay, mut lost) = (Vec::new(), 0);
            ways.clear();
            for (i, port) in ports.iter().enumerate() {
                batch.push(HeapPacket::new(&[n]).from_port(7));
                match port {
                    Some(port) => ways.leave(i, *port),
                    None => ways.stay(i),
                }
                match port {
                    Some(port @ 0..3) => wanted[usize::from(*port)].push(n),
                    Some(_) => lost += 1,
                    None => stay.push(n),
                }
                n += 1;
            }
            c.port(7).received.add(ports.len() as u64);
            let before = c.drops(DropReason::TxNoPort);
            tx.send_by(7, &mut batch, &mut ways, &c);
            assert_eq!(batch.iter().map(|p| p.bytes()[0]).collect::<Vec<_>>(), stay);
            assert_eq!(c.drops(DropReason::TxNoPort) - before, lost);
            c.dropped(7, DropReason::Shutdown, batch.len() as u64);
            assert_eq!(c.port(7).imbalance(), 0);
        }
        tx.flush(&c);
        for (port, device) in (0..).zip(&devices) {
            let sent: Vec<u8> = device.lock().unwrap().0.iter().map(|p| p.bytes()[0]).collect();
            assert_eq!(sent, wanted[usize::from(port)], "port {port}");
            assert_eq!(c.port(port).tx_bytes.get(), sent.len() as u64);
        }
        // What follows a packet that must not be overtaken stays as a whole.
        let mut batch: Batch<_> = (0..5).map(|b| HeapPacket::new(&[b])).collect();
        ways.clear();
        (0..5).for_each(|i| ways.leave(i, 0));
        ways.stay_from(2);
        tx.send_by(7, &mut batch, &mut ways, &c);
        assert_eq!(batch.iter().map(|p| p.bytes()[0]).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn what_waits_goes_by_the_queue_that_replaces_the_old_one() {
        let devices: Vec<_> = (0..2).map(|_| Arc::new(Mutex::new((Vec::new(), 1000)))).collect();
        let c = WorkerCounters::new();
        let mut tx = TxBuffers::new();
        c.port(0).received.add(2);
        assert!(tx.attach(1, Box::new(Slow(devices[0].clone()))).is_none());
        tx.send(1, HeapPacket::new(&[1]), &c);
        assert!(tx.attach(1, Box::new(Slow(devices[1].clone()))).is_some());
        tx.send(1, HeapPacket::new(&[2]), &c);
        tx.flush(&c);
        let sent: Vec<u8> = devices[1].lock().unwrap().0.iter().map(|p| p.bytes()[0]).collect();
        assert_eq!((sent, devices[0].lock().unwrap().0.len()), (vec![1, 2], 0));
        assert_eq!((c.port(1).tx_packets.get(), c.port(0).imbalance()), (2, 0));
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

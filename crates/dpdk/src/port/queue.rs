//! Queues: the data path's door to a device.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use linerate_pipeline::io::Received;
use linerate_pipeline::{BURST, Batch, Packet, PortId};

use super::device::Inner;
use crate::ffi;
use crate::mbuf::{self, Mbuf};

/// A receive queue. One owner: it can move to another thread but not be shared or copied.
///
/// ```compile_fail,E0277
/// // Two threads cannot poll one queue: it is not `Sync`.
/// fn shared<T: Sync>() {}
/// shared::<linerate_dpdk::RxQueue>();
/// ```
///
/// ```compile_fail,E0277
/// // Nor can it be duplicated: it is not `Clone`.
/// fn copied<T: Clone>() {}
/// copied::<linerate_dpdk::RxQueue>();
/// ```
///
/// ```compile_fail,E0596
/// // Nor polled through a shared reference.
/// use linerate_pipeline::{Batch, io::RxQueue};
/// fn poll(queue: &linerate_dpdk::RxQueue, batch: &mut Batch<linerate_dpdk::Mbuf>) {
///     queue.rx(batch);
/// }
/// ```
///
/// ```
/// // Moving it to the worker that shall poll it is what it is for.
/// fn moved<T: Send>() {}
/// moved::<linerate_dpdk::RxQueue>();
/// moved::<linerate_dpdk::TxQueue>();
/// ```
#[derive(Debug)]
pub struct RxQueue {
    port: u16,
    queue: u16,
    rx_port: PortId,
    burst: u16,
    lost: u64,
    _open: Arc<Inner>,
    _not_sync: PhantomData<Cell<()>>,
}

impl RxQueue {
    pub(super) fn new(inner: Arc<Inner>, queue: u16) -> Self {
        Self {
            port: inner.id,
            queue,
            rx_port: inner.id,
            burst: BURST as u16,
            lost: 0,
            _open: inner,
            _not_sync: PhantomData,
        }
    }

    /// Drops what has been received so far, uncounted: at most as much as any ring holds, however fast more comes.
    pub(super) fn discard(&mut self) {
        let mut batch = Batch::new();
        for _ in 0..usize::from(u16::MAX) / BURST {
            let received = linerate_pipeline::io::RxQueue::rx(self, &mut batch);
            batch.clear();
            if received == 0 {
                break;
            }
        }
        self.lost = 0;
    }

    /// Index of the queue in its port.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.queue
    }

    /// DPDK's number of the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What received packets carry as [`linerate_pipeline::Packet::rx_port`]; DPDK's port number unless set.
    pub fn set_rx_port(&mut self, port: PortId) {
        self.rx_port = port;
    }

    /// Most packets to take per receive call, 1 to [`BURST`], which is the default. Fewer keep the processor's first-level
    /// cache smaller, more spread the cost of a call.
    pub fn set_burst(&mut self, packets: usize) {
        self.burst = packets.clamp(1, BURST) as u16;
    }
}

impl linerate_pipeline::io::RxQueue<Mbuf> for RxQueue {
    #[inline]
    fn rx(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        self.rx_counted(batch).packets
    }

    #[inline]
    fn rx_counted(&mut self, batch: &mut Batch<Mbuf>) -> Received {
        let old = batch.len();
        // SAFETY: the batch has room for what is asked for; the port runs as long as this queue exists; `&mut self`
        // and not being Sync make this the queue's only user. The pointers written are mbufs handed over to the
        // caller, from pools of this crate (no other can be given to a port). Mbuf is a transparent pointer, and the
        // length grows by what conforms to its invariant only.
        unsafe {
            let first = batch.as_mut_ptr().add(old).cast();
            let n = ffi::lr_rx_burst(self.port, self.queue, first, self.burst.min((BURST - old) as u16));
            if n == 0 {
                return Received::default();
            }
            let burst = std::slice::from_raw_parts_mut(first, usize::from(n));
            let admitted = mbuf::admit(burst, self.rx_port);
            batch.set_len(old + admitted.kept);
            self.lost += admitted.lost;
            Received { packets: admitted.kept, bytes: admitted.bytes }
        }
    }

    /// Packets for which no buffer was left when they had to be copied.
    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

/// A transmit queue. One owner, like [`RxQueue`].
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<linerate_dpdk::TxQueue>();
/// ```
///
/// ```compile_fail,E0277
/// fn copied<T: Clone>() {}
/// copied::<linerate_dpdk::TxQueue>();
/// ```
#[derive(Debug)]
pub struct TxQueue {
    port: u16,
    queue: u16,
    linearise: bool,
    _open: Arc<Inner>,
    _not_sync: PhantomData<Cell<()>>,
}

impl TxQueue {
    pub(super) fn new(inner: Arc<Inner>, queue: u16, linearise: bool) -> Self {
        Self { port: inner.id, queue, linearise, _open: inner, _not_sync: PhantomData }
    }

    /// Index of the queue in its port.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.queue
    }

    /// DPDK's number of the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes every packet one segment, for devices that would send the first one only. Those that do not fit into one buffer
    /// go behind the others. Returns how many can be sent.
    #[cold]
    fn linearise(batch: &mut Batch<Mbuf>) -> usize {
        let long = |p: &mut Mbuf| p.segments() > 1 && p.pull(p.len()).is_none();
        let mut unfit = Batch::<Mbuf>::new();
        for packet in std::mem::take(batch) {
            let mut packet = packet;
            if long(&mut packet) { unfit.push(packet) } else { batch.push(packet) }
        }
        let fit = batch.len();
        batch.extend(unfit);
        fit
    }
}

impl linerate_pipeline::io::TxQueue<Mbuf> for TxQueue {
    #[inline]
    fn tx(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        let n = if self.linearise { Self::linearise(batch) } else { batch.len() };
        if n == 0 {
            return 0;
        }
        let all = batch.len();
        // SAFETY: the first `n` elements are mbufs owned by the batch; the port runs as long as this queue exists;
        // this is the queue's only user (see RxQueue). The device owns the first `sent` of them after the call: the
        // length is lowered before anything else can happen, and the rest, still owned, is moved to the front.
        unsafe {
            let first: *mut *mut ffi::rte_mbuf = batch.as_mut_ptr().cast();
            batch.set_len(0);
            let sent = usize::from(ffi::lr_tx_burst(self.port, self.queue, first, n as u16)).min(n);
            if sent < all {
                std::ptr::copy(first.add(sent), first, all - sent);
                batch.set_len(all - sent);
            }
            sent
        }
    }

    /// A device that takes single segments never takes a packet that did not fit into one.
    fn can_send(&self, packet: &Mbuf) -> bool {
        !self.linearise || packet.segments() == 1
    }
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::io::{RxQueue as _, TxQueue as _};

    use super::*;
    use crate::{Eal, EalConfig, Pool, PoolConfig, Port, PortConfig};

    /// DPDK starts once per process: tests run by nextest, each in its own.
    fn pool(size: u32) -> (&'static Eal, &'static Pool) {
        let eal = Eal::init(&EalConfig::default()).unwrap();
        let config = PoolConfig { name: "p".into(), size, data_room: 256, socket: None };
        (eal, Pool::create(eal, &config).unwrap())
    }

    /// A packet with as many bytes in each segment.
    fn packet(pool: &Pool, segments: &[usize]) -> Mbuf {
        let mut all = segments.iter().map(|n| {
            let mut segment = pool.alloc().unwrap();
            segment.append(*n).unwrap().fill(7);
            segment
        });
        let mut packet = all.next().unwrap();
        all.for_each(|segment| packet.chain(segment).unwrap());
        packet
    }

    #[test]
    fn what_does_not_fit_into_one_buffer_stays_with_the_caller() {
        let (eal, pool) = pool(64);
        let (port, rx, tx) =
            Port::open(eal, "net_null0", &PortConfig::default(), pool).unwrap().start().unwrap();
        drop((rx, tx));
        let mut tx = TxQueue::new(port.inner.clone(), 0, true);
        let mut batch: Batch<Mbuf> =
            [&[60][..], &[200, 200, 200], &[50, 50], &[250, 250]].iter().map(|s| packet(pool, s)).collect();
        assert_eq!(tx.tx(&mut batch), 2);
        assert_eq!(batch.iter().map(Packet::len).collect::<Vec<_>>(), [600, 500]);
        assert!(batch.iter().all(|p| !tx.can_send(p)) && tx.can_send(&packet(pool, &[9])));
        assert_eq!((tx.tx(&mut batch), batch.len()), (0, 2));
        drop((batch, tx, port));
        assert_eq!(pool.in_use(), 0);
        eal.cleanup().unwrap();
    }

    #[test]
    fn packets_that_cannot_be_copied_are_told() {
        let (eal, pool) = pool(64);
        let (a, b) = Port::ring_pair(eal, "x", 64, 1, &PortConfig::default(), pool).unwrap();
        let ((a, _, mut tx), (b, mut rx, _)) = (a.start().unwrap(), b.start().unwrap());
        let shared = packet(pool, &[60]);
        // SAFETY: an Mbuf is a transparent pointer.
        let raw: *mut ffi::rte_mbuf = unsafe { std::mem::transmute_copy(&shared) };
        // SAFETY: a live mbuf of ours; the second reference is given back below.
        unsafe { (*raw).refcnt = 2 };
        let mut batch = Batch::new();
        batch.push(shared);
        batch.push(packet(pool, &[61]));
        assert_eq!(tx[0].tx(&mut batch), 2);
        let rest: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
        let received = rx[0].rx_counted(&mut batch);
        assert_eq!((received, batch.len()), (Received { packets: 1, bytes: 61 }, 1));
        assert_eq!((rx[0].take_lost(), rx[0].take_lost()), (1, 0));
        // SAFETY: the reference that is left.
        unsafe { mbuf::free_raw(raw) };
        drop((rest, batch, tx, rx, a, b));
        assert_eq!(pool.in_use(), 0);
        eal.cleanup().unwrap();
    }
}

//! Queues: the data path's door to a device.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use linerate_pipeline::io::Received;
use linerate_pipeline::{BURST, Batch, PortId};

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
    copied: u64,
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
            copied: 0,
            lost: 0,
            _open: inner,
            _not_sync: PhantomData,
        }
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

    /// Packets that the driver delivered in buffers which are not its own alone (shared or external ones) and that
    /// were copied into buffers of the pool.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Packets lost because no buffer was left for such a copy.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
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
            self.copied += admitted.copied;
            self.lost += admitted.lost;
            Received { packets: admitted.kept, bytes: admitted.bytes }
        }
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
    unsendable: u64,
    _open: Arc<Inner>,
    _not_sync: PhantomData<Cell<()>>,
}

impl TxQueue {
    pub(super) fn new(inner: Arc<Inner>, queue: u16, linearise: bool) -> Self {
        Self { port: inner.id, queue, linearise, unsendable: 0, _open: inner, _not_sync: PhantomData }
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

    /// Packets freed instead of sent because they have several segments, the device takes one, and they do not fit into
    /// one buffer. Part of what `tx` reports as taken.
    #[must_use]
    pub fn unsendable(&self) -> u64 {
        self.unsendable
    }

    /// Makes every packet one segment, for devices that would send the first one only. Returns how many were freed.
    #[cold]
    fn linearise(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        use linerate_pipeline::Packet;
        let before = batch.len();
        batch.retain(|packet| packet.segments() == 1 || packet.pull(packet.len()).is_some());
        let freed = before - batch.len();
        self.unsendable += freed as u64;
        freed
    }
}

impl linerate_pipeline::io::TxQueue<Mbuf> for TxQueue {
    #[inline]
    fn tx(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        let freed = if self.linearise { self.linearise(batch) } else { 0 };
        let n = batch.len();
        if n == 0 {
            return freed;
        }
        // SAFETY: the first `n` elements are mbufs owned by the batch; the port runs as long as this queue exists;
        // this is the queue's only user (see RxQueue). The device owns the first `sent` of them after the call: the
        // length is lowered before anything else can happen, and the rest, still owned, is moved to the front.
        unsafe {
            let first: *mut *mut ffi::rte_mbuf = batch.as_mut_ptr().cast();
            batch.set_len(0);
            let sent = usize::from(ffi::lr_tx_burst(self.port, self.queue, first, n as u16)).min(n);
            if sent < n {
                std::ptr::copy(first.add(sent), first, n - sent);
                batch.set_len(n - sent);
            }
            sent + freed
        }
    }
}

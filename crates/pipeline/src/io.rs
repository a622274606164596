//! What a worker needs of a device. DPDK queues implement these; tests use in-memory ones.

use crate::{Batch, Packet};

/// What a receive call added to a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets.
    pub packets: usize,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

/// A receive queue, owned by exactly one worker at a time.
pub trait RxQueue<P>: Send {
    /// Appends received packets to `batch` (which is empty or has room), each with its
    /// [`rx_port`](crate::Packet::rx_port) set and not traced; metadata is not reset (see [`crate::Meta`]). Returns how many were added; 0 where nothing is waiting. Never blocks.
    fn rx(&mut self, batch: &mut Batch<P>) -> usize;

    /// As [`rx`](Self::rx), and says how many bytes came: a device's queue looks at each packet anyway.
    fn rx_counted(&mut self, batch: &mut Batch<P>) -> Received
    where
        P: Packet,
    {
        let old = batch.len();
        let packets = self.rx(batch);
        let bytes = batch.iter().skip(old).map(|p| p.len() as u64).sum();
        Received { packets, bytes }
    }
}

/// A transmit queue, owned by exactly one worker at a time.
pub trait TxQueue<P>: Send {
    /// Sends from the front of `batch`, removing what the device took; the unsent tail stays, in order. Returns how
    /// many were taken. Never blocks.
    fn tx(&mut self, batch: &mut Batch<P>) -> usize;
}

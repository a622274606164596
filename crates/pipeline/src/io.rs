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

    /// Packets that reached the queue since the last call and were in no batch, because no buffer was left to bring them
    /// into the form that the data path needs. Asked about every millisecond.
    fn take_lost(&mut self) -> u64 {
        0
    }
}

/// A transmit queue, owned by exactly one worker at a time.
pub trait TxQueue<P>: Send {
    /// Sends from the front of `batch`, removing what the device took; the unsent tail stays, in order. Returns how
    /// many were taken. Packets that the device can never take stay too, behind those it may take later. Never blocks.
    fn tx(&mut self, batch: &mut Batch<P>) -> usize;

    /// Whether a packet that [`tx`](Self::tx) has left may be taken another time. Asked only for packets that are about
    /// to be dropped, to know under which name.
    fn can_send(&self, packet: &P) -> bool {
        let _ = packet;
        true
    }
}

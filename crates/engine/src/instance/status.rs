//! What a running instance says about itself, as plain values. Counters of workers are shared ([`crate::workers`]): they
//! are read where they are shown.

use linerate_pipeline::PortId;

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStatus {
    /// Name in the configuration.
    pub name: String,
    /// DPDK device string.
    pub device: String,
    /// DPDK driver.
    pub driver: String,
    /// MAC address.
    pub mac: [u8; 6],
    /// Whether the link is up.
    pub up: bool,
    /// Link speed in Mbit/s; `None` where unknown.
    pub speed_mbps: Option<u32>,
    /// Layer-3 MTU in bytes.
    pub mtu: u16,
    /// Whether frames for other stations are received.
    pub promiscuous: bool,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// NUMA node of the device; `None` where it has none.
    pub numa_node: Option<u32>,
    /// Packets the device received, by its own count.
    pub rx_packets: u64,
    /// Packets the device sent, by its own count.
    pub tx_packets: u64,
    /// Dropped by the device because no descriptor was free.
    pub rx_missed: u64,
    /// Damaged frames.
    pub rx_errors: u64,
    /// Dropped by the device because no buffer was free.
    pub rx_no_buffer: u64,
    /// Frames the device failed to send.
    pub tx_errors: u64,
    /// What the device does otherwise than asked, in sentences.
    pub notes: Vec<String>,
}

/// A pool of packet buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Buffers in all.
    pub size: u32,
    /// Buffers in use: in descriptors, rings and nodes.
    pub in_use: u32,
}

/// How busy a worker was in the last second or so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Share of cycles in loops that found packets, 0 to 1.
    pub busy: f64,
    /// Cycles per packet in those loops; 0 without packets.
    pub cycles_per_packet: f64,
    /// Packets per burst that was not empty; 0 without packets.
    pub packets_per_burst: f64,
    /// Packets per second taken in.
    pub packets_per_second: f64,
}

/// Drops that have counted, by worker, port and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCount {
    /// The worker that dropped.
    pub worker: usize,
    /// The port that the packets came in by.
    pub port: PortId,
    /// Why.
    pub reason: linerate_pipeline::DropReason,
    /// How many.
    pub packets: u64,
}

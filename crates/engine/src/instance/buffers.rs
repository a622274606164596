//! How many packet buffers an instance needs, and how much memory that is.

use linerate_pipeline::BURST;

use crate::desired::{Desired, MemorySpec};

/// Packets that each worker's neighbour queues may hold.
pub(super) const HELD_PER_WORKER: u32 = 1024;

/// Buffers that a worker may have in hand or in its cache of the pool: bursts on their way through the graph, and one
/// and a half times a cache of 256.
const PER_WORKER: u32 = 8 * BURST as u32 + 384;

/// Bytes of an Ethernet header with two VLAN tags.
const L2_MOST: u32 = 22;

/// Bytes that a buffer takes besides its data: DPDK's headers, our metadata, headroom.
const OVERHEAD: u64 = 448;

/// Bytes that DPDK and drivers take for themselves at start.
const BASE: u64 = 24 << 20;

/// Bytes of a driver's state per descriptor (the largest of the drivers Debian ships).
const PER_DESCRIPTOR: u64 = 128;

/// The largest share of DPDK's memory that one pool can get in one piece, as a fraction: memory comes in segments.
const USABLE: (u64, u64) = (15, 16);

/// What an instance needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Packet buffers in the pool of each NUMA node.
    pub(super) buffers: u32,
    /// MiB of DPDK memory for one pool and all queues.
    pub(super) mib: u32,
}

/// Memory too small.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{buffers} packet buffers of {size} bytes for {queues} queues need {needed} MiB of DPDK memory, but \
     `dpdk.memory_mb` is {given}: raise it, or take fewer descriptors"
)]
pub struct TooLittle {
    buffers: u32,
    size: u16,
    queues: u32,
    needed: u32,
    given: u32,
}

/// Computes the need and compares it with the memory that is configured. `ring_capacity` is that of each ring between
/// two workers, `rings` their number.
pub(super) fn need(desired: &Desired, rings: usize, ring_capacity: usize) -> Result<Need, TooLittle> {
    let dpdk = &desired.dpdk;
    let workers = desired.workers.len() as u32;
    let queues: u32 = desired.ports.iter().map(|p| u32::from(p.rx_queues) + workers).sum();
    let descriptors: u32 = desired
        .ports
        .iter()
        .map(|p| u32::from(p.rx_queues) * u32::from(p.rx_descriptors) + workers * u32::from(p.tx_descriptors))
        .sum();
    let packets = (workers * (PER_WORKER + HELD_PER_WORKER))
        .saturating_add(u32::try_from(rings * ring_capacity).unwrap_or(u32::MAX));
    let computed = descriptors.saturating_add(packets);
    // A pool of a power of two minus one buffers wastes no memory.
    let rounded = computed.saturating_add(1).checked_next_power_of_two().map_or(u32::MAX, |n| n - 1);
    // A descriptor is one buffer; everything else holds packets, which may take several.
    let jumbo = descriptors.saturating_add(packets.saturating_mul(buffers_per_packet(desired)));
    let buffers = dpdk.packet_buffers.unwrap_or(rounded.max(jumbo));
    let bytes = u64::from(buffers) * (u64::from(dpdk.buffer_size) + OVERHEAD)
        + u64::from(descriptors) * PER_DESCRIPTOR;
    let mib = u32::try_from((bytes * USABLE.1 / USABLE.0 + BASE) >> 20).unwrap_or(u32::MAX) + 1;
    let (MemorySpec::Hugepages { megabytes: given } | MemorySpec::NoHuge { megabytes: given }) = dpdk.memory;
    if mib > given {
        return Err(TooLittle { buffers, size: dpdk.buffer_size, queues, needed: mib, given });
    }
    Ok(Need { buffers, mib })
}

/// Buffers that the largest packet of any port takes.
fn buffers_per_packet(desired: &Desired) -> u32 {
    let largest = desired.ports.iter().map(|p| u32::from(p.mtu)).max().unwrap_or(0) + L2_MOST;
    largest.div_ceil(u32::from(desired.dpdk.buffer_size).max(1))
}

#[cfg(test)]
mod tests {
    use super::super::check::tests::desired;
    use super::*;

    #[test]
    fn every_descriptor_ring_and_worker_is_counted() {
        let need = need(&desired(), 2, 2048).unwrap();
        // 2 ports × (512 + 2 × 512) + 2 × (896 + 1024) + 2 × 2048 = 11,008
        assert_eq!(need.buffers, 16_383);
        assert!((55..80).contains(&need.mib), "{}", need.mib);
        let mut jumbo = desired();
        jumbo.ports[1].mtu = 9000;
        // 2 × 1536 descriptors, and five buffers for each of 2 × 1920 + 4096 packets = 42,752
        assert_eq!(super::need(&jumbo, 2, 2048).unwrap().buffers, 42_752);
        let mut more = desired();
        more.dpdk.packet_buffers = Some(100_000);
        assert_eq!(super::need(&more, 0, 0).unwrap().buffers, 100_000);
    }

    #[test]
    fn too_little_memory_is_told_with_the_amount_needed() {
        let mut d = desired();
        d.dpdk.memory = MemorySpec::NoHuge { megabytes: 32 };
        d.dpdk.packet_buffers = Some(20_000);
        assert_eq!(
            need(&d, 0, 0).unwrap_err().to_string(),
            "20000 packet buffers of 2048 bytes for 6 queues need 76 MiB of DPDK memory, but `dpdk.memory_mb` \
             is 32: raise it, or take fewer descriptors"
        );
        d.dpdk.packet_buffers = Some(u32::MAX);
        assert!(need(&d, usize::MAX / 4096, 4096).is_err());
    }
}

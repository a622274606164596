//! What workers read to forward multicast: routes by stream, and how packets leave by each interface.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use linerate_pipeline::{IfIndex, InterfaceTable, VrfId};
use linerate_tables::snapshot::Snapshot;
use linerate_tables::snapshot_map::MapReader;

use super::model::{Mroute, MrouteOrigin, MrouteOutput};
use crate::plane::Adjacency;

/// Nanoseconds between two packets of a stream that the host system gets to see so that its counters move.
pub const SAMPLE_EVERY: u64 = 1_000_000_000;

/// Nanoseconds between two packets of a stream that the host system gets to see because they came in by the wrong
/// interface. RFC 7761 4.6: what asserts are for is settled by few packets.
pub const WRONG_EVERY: u64 = 1_000_000_000;

/// The reading half, a part of [`Plane`](crate::Plane).
#[derive(Clone, Debug)]
pub struct Multicast {
    /// By VRF, source and group, [`stream4`]; source 0: any.
    pub(crate) ip4: MapReader<Stream4, Entry>,
    /// By VRF, source and group, [`stream6`]; source 0: any.
    pub(crate) ip6: MapReader<Stream6, Entry>,
    pub(crate) egress: Snapshot<Egress>,
}

/// What routes of IPv4 are found by.
pub(crate) type Stream4 = [u64; 2];

/// What routes of IPv6 are found by.
pub(crate) type Stream6 = [u64; 5];

/// The key of an IPv4 stream in a VRF.
#[inline(always)]
pub(crate) fn stream4(vrf: VrfId, source: u32, group: u32) -> Stream4 {
    [u64::from(vrf), u64::from(source) << 32 | u64::from(group)]
}

/// The key of an IPv6 stream in a VRF.
#[inline(always)]
pub(crate) fn stream6(vrf: VrfId, source: u128, group: u128) -> Stream6 {
    [u64::from(vrf), (source >> 64) as u64, source as u64, (group >> 64) as u64, group as u64]
}

/// A multicast route. Replaced as a whole when it changes, its counters excepted.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) input: IfIndex,
    pub(crate) outputs: Box<[MrouteOutput]>,
    /// The largest threshold of any output.
    pub(crate) threshold: u8,
    pub(crate) to_host: bool,
    /// The host system knows the stream, and has counters that daemons look at.
    pub(crate) sampled: bool,
    pub(crate) counters: Arc<Counters>,
}

/// What a multicast route counts: once per run of packets, by any worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) wrong_interface: AtomicU64,
    /// Nanoseconds; 0: never.
    pub(crate) last_used: AtomicU64,
    /// When the next packet is shown to the host system.
    pub(crate) sample: Due,
    /// The same for packets that came in by the wrong interface.
    pub(crate) wrong: Due,
}

/// Lets one through per interval, whichever worker has it.
#[derive(Debug, Default)]
pub(crate) struct Due(AtomicU64);

impl Due {
    /// Whether it is time; if so, it will be again after `interval`.
    #[inline]
    pub(crate) fn take(&self, now: u64, interval: u64) -> bool {
        let due = self.0.load(Relaxed);
        now >= due && self.0.compare_exchange(due, now.saturating_add(interval), Relaxed, Relaxed).is_ok()
    }
}

impl Counters {
    #[inline]
    pub(crate) fn count(&self, packets: u64, bytes: u64, now: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.last_used.store(now.max(1), Relaxed);
    }
}

impl Entry {
    pub(crate) fn new(route: &Mroute, origin: MrouteOrigin, counters: Arc<Counters>) -> Self {
        Entry {
            input: route.input,
            // A packet never goes back to where it came from.
            outputs: route.outputs.iter().filter(|o| o.interface != route.input).copied().collect(),
            threshold: route.outputs.iter().map(|o| o.threshold).max().unwrap_or(0),
            to_host: route.to_host,
            sampled: origin == MrouteOrigin::Learned,
            counters,
        }
    }
}

/// How packets leave by each interface: adjacencies without a destination, which the group gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Egress(Vec<Adjacency>);

impl Egress {
    pub(crate) fn new(table: &InterfaceTable) -> Self {
        let mut all = Vec::new();
        for (index, interface) in table.iter().filter(|(_, i)| i.up) {
            all.resize(usize::from(index), Adjacency::default());
            all.push(Adjacency::new(index, interface, Some([0; 6])));
        }
        Egress(all)
    }

    /// The template of an interface; `None` where it does not exist or is down.
    #[inline(always)]
    pub(crate) fn get(&self, interface: IfIndex) -> Option<&Adjacency> {
        self.0.get(usize::from(interface)).filter(|a| a.complete)
    }
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::Interface;

    use super::*;

    #[test]
    fn templates_are_of_interfaces_that_are_up() {
        let interface = |port, up| Interface { up, ..Interface::new("x", port, [2; 6], 1400, &[]) };
        let table = InterfaceTable::build([
            (1, interface(1, true)),
            (3, interface(3, false)),
            (4, interface(4, true)),
        ])
        .unwrap();
        let egress = Egress::new(&table);
        let ports: Vec<_> = (0..6).map(|i| egress.get(i).map(|a| (a.interface, a.port, a.mtu))).collect();
        assert_eq!(ports, [None, Some((1, 1, 1400)), None, None, Some((4, 4, 1400)), None]);
    }

    #[test]
    fn one_is_due_per_interval() {
        let due = Due::default();
        let taken: Vec<u64> = (0..10).filter(|now| due.take(*now, 4)).collect();
        assert_eq!(taken, [0, 4, 8]);
    }
}

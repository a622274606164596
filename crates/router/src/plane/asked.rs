//! When workers last asked for neighbours: all of them together ask no oftener than RFC 4861 7.2.2 and RFC 1122 2.3.2.1
//! allow, which is once a second.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linerate_pipeline::IfIndex;

use super::words::zeroed_u64;
use super::writer::PlaneError;

/// Neighbours remembered. Two that share a slot may be asked for too often, never too seldom.
const SLOTS: usize = 4096;

/// Low bits of a slot: time in units of 2^20 ns, for 36 years. Above them a tag of the neighbour.
const TIME_BITS: u32 = 40;

/// One second in those units, rounded up by one because times are rounded down.
const INTERVAL: u64 = 1_000_000_000 / (1 << 20) + 2;

#[derive(Debug)]
pub(super) struct Asked(Box<[AtomicU64]>);

impl Asked {
    pub(super) fn new() -> Result<Self, PlaneError> {
        Ok(Asked(zeroed_u64(SLOTS)?))
    }

    /// Whether the neighbour may be asked for now (nanoseconds); then this counts as asking.
    pub(super) fn claim(&self, now: u64, interface: IfIndex, address: IpAddr) -> bool {
        let Some((slot, tag, word)) = self.slot(now, interface, address) else { return true };
        let old = slot.load(Relaxed);
        let age = (word & TIME).wrapping_sub(old & TIME) & TIME;
        if old >> TIME_BITS == tag && age < INTERVAL {
            return false;
        }
        // Where another worker was faster, and for the same neighbour, that one asks.
        slot.compare_exchange(old, word, Relaxed, Relaxed)
            .map_or_else(|now| now >> TIME_BITS != tag, |_| true)
    }

    /// Whether the neighbour was asked for not long ago: within the time that a question may take to be answered.
    pub(super) fn recently(&self, now: u64, interface: IfIndex, address: IpAddr) -> bool {
        let Some((slot, tag, word)) = self.slot(now, interface, address) else { return false };
        let old = slot.load(Relaxed);
        old >> TIME_BITS == tag && (word & TIME).wrapping_sub(old & TIME) & TIME < 3 * INTERVAL
    }

    /// The neighbour is being asked for.
    pub(super) fn note(&self, now: u64, interface: IfIndex, address: IpAddr) {
        if let Some((slot, _, word)) = self.slot(now, interface, address) {
            slot.store(word, Relaxed);
        }
    }

    fn slot(&self, now: u64, interface: IfIndex, address: IpAddr) -> Option<(&AtomicU64, u64, u64)> {
        let bits = match address {
            IpAddr::V4(a) => u128::from(a.to_bits()),
            IpAddr::V6(a) => a.to_bits(),
        };
        let mixed = mix(bits as u64 ^ mix((bits >> 64) as u64 ^ u64::from(interface) << 48));
        // Zero is a slot that nobody has used.
        let tag = (mixed >> 12) % ((1 << (64 - TIME_BITS)) - 1) + 1;
        let slot = self.0.get(mixed as usize % SLOTS)?;
        Some((slot, tag, tag << TIME_BITS | now >> 20 & TIME))
    }
}

const TIME: u64 = (1 << TIME_BITS) - 1;

/// Spreads every bit over all of them (the finaliser of SplitMix64).
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_asked_for_once_a_second_whoever_asks() {
        let asked = Asked::new().unwrap();
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        const MS: u64 = 1_000_000;
        assert!(asked.claim(0, 1, a) && asked.claim(0, 2, a) && asked.claim(0, 1, b));
        assert!((1..=1000).all(|ms| !asked.claim(ms * MS, 1, a)));
        assert!(asked.claim(1003 * MS, 1, a) && !asked.claim(1004 * MS, 1, a));
        asked.note(1500 * MS, 1, b);
        assert!(asked.recently(2400 * MS, 1, b) && !asked.recently(9000 * MS, 1, b));
        assert!(!asked.recently(2400 * MS, 3, b));
        assert!(!asked.claim(2400 * MS, 1, b) && asked.claim(2600 * MS, 1, b));
    }
}

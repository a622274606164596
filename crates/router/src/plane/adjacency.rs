//! Adjacencies: how a packet leaves towards one neighbour. One cache line each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linerate_pipeline::{IfIndex, Interface, PortId};

/// Index of an adjacency. Good until the worker's next quiescent point.
pub type AdjacencyIndex = u32;

/// Length of the longest header an adjacency can hold: Ethernet with two VLAN tags.
pub const MAX_HEADER: usize = 22;

/// 64-bit words per record.
pub(super) const WORDS: usize = 8;

/// The word of a record that says whether packets were sent by it: the only one that changes.
pub(super) const USED: usize = 6;

/// Ethertype of the outer tag of double-tagged frames (IEEE 802.1ad).
const TPID_OUTER: [u8; 2] = [0x88, 0xa8];

/// Ethertype of a single or inner tag (IEEE 802.1Q).
const TPID: [u8; 2] = [0x81, 0x00];

/// What the rewrite needs to know, as a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjacency {
    /// Interface the packet leaves by.
    pub interface: IfIndex,
    /// Port the packet leaves by.
    pub port: PortId,
    /// MTU of the interface: the largest layer-3 packet in bytes.
    pub mtu: u16,
    /// Whether the neighbour's MAC address is known. Where it is not, [`header`](Self::header) has zeros for it and
    /// the packet must wait.
    pub complete: bool,
    /// Bytes of [`header`](Self::header) in use: 14, 18 or 22.
    pub header_len: u8,
    /// Destination, source, VLAN tags; the ethertype at the end is zero ([`write`](Self::write) fills it in), for
    /// IPv4 may leave by an IPv6 neighbour and the other way round (RFC 8950).
    pub header: [u8; 24],
}

impl Adjacency {
    /// The adjacency of a neighbour of `interface`; `mac` is `None` while it is being resolved.
    pub fn new(index: IfIndex, interface: &Interface, mac: Option<[u8; 6]>) -> Self {
        let mut header = [0; 24];
        header[..6].copy_from_slice(&mac.unwrap_or_default());
        header[6..12].copy_from_slice(&interface.mac);
        let outer = if interface.inner_vlan.is_some() { TPID_OUTER } else { TPID };
        let tags = [(outer, interface.vlan), (TPID, interface.inner_vlan)];
        let mut at = 12;
        for (tpid, vlan) in tags.into_iter().filter_map(|(tpid, vlan)| Some((tpid, vlan?))) {
            header[at..at + 2].copy_from_slice(&tpid);
            header[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
            at += 4;
        }
        Adjacency {
            interface: index,
            port: interface.port,
            mtu: interface.mtu,
            complete: mac.is_some(),
            header_len: at as u8 + 2,
            header,
        }
    }

    /// The neighbour's MAC address (zero while unknown).
    pub fn mac(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.header;
        [a, b, c, d, e, f]
    }

    /// Writes the header with this ethertype to the start of `head`. `false` where `head` is too short for it.
    #[inline(always)]
    pub fn write(&self, head: &mut [u8], ethertype: u16) -> bool {
        let len = usize::from(self.header_len);
        if len == 14
            && let Some(head) = head.first_chunk_mut::<14>()
        {
            head[..12].copy_from_slice(&self.header[..12]);
            head[12..].copy_from_slice(&ethertype.to_be_bytes());
            return true;
        }
        let (Some(head), Some(header)) = (head.get_mut(..len), self.header.get(..len)) else { return false };
        head.copy_from_slice(header);
        if let Some(last) = head.last_chunk_mut::<2>() {
            *last = ethertype.to_be_bytes();
        }
        true
    }

    /// Stores into a record that no reader can reach.
    pub(super) fn store(&self, next_hop: Option<IpAddr>, record: &[AtomicU64; WORDS]) {
        let family = match next_hop {
            None => 0,
            Some(IpAddr::V4(_)) => 1,
            Some(IpAddr::V6(_)) => 2,
        };
        let flags = u64::from(self.complete) | family << 1;
        let first = u64::from(self.header_len)
            | flags << 8
            | u64::from(self.interface) << 16
            | u64::from(self.port) << 32
            | u64::from(self.mtu) << 48;
        let ip = match next_hop {
            None => 0,
            Some(IpAddr::V4(ip)) => u128::from(ip.to_bits()),
            Some(IpAddr::V6(ip)) => ip.to_bits(),
        };
        record[0].store(first, Relaxed);
        for (word, bytes) in record[1..4].iter().zip(self.header.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()), Relaxed);
        }
        record[4].store((ip >> 64) as u64, Relaxed);
        record[5].store(ip as u64, Relaxed);
        record[USED].store(0, Relaxed);
    }

    /// Loads from a record.
    #[inline(always)]
    pub(super) fn load(record: &[AtomicU64; WORDS]) -> Self {
        let first = record[0].load(Relaxed);
        let mut header = [0; 24];
        header[..8].copy_from_slice(&record[1].load(Relaxed).to_le_bytes());
        header[8..16].copy_from_slice(&record[2].load(Relaxed).to_le_bytes());
        header[16..].copy_from_slice(&record[3].load(Relaxed).to_le_bytes());
        Adjacency {
            interface: (first >> 16) as u16,
            port: (first >> 32) as u16,
            mtu: (first >> 48) as u16,
            complete: first >> 8 & 1 != 0,
            header_len: first as u8,
            header,
        }
    }

    /// The next hop's address in a record.
    pub(super) fn load_next_hop(record: &[AtomicU64; WORDS]) -> Option<IpAddr> {
        let ip = u128::from(record[4].load(Relaxed)) << 64 | u128::from(record[5].load(Relaxed));
        match record[0].load(Relaxed) >> 9 & 3 {
            1 => Some(Ipv4Addr::from_bits(ip as u32).into()),
            2 => Some(Ipv6Addr::from_bits(ip).into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(vlan: Option<u16>, inner_vlan: Option<u16>) -> Interface {
        Interface { vlan, inner_vlan, ..Interface::new("x", 3, [2, 0, 0, 0, 0, 3], 1496, &[]) }
    }

    #[test]
    fn headers_carry_the_tags_in_order() {
        let mut head = [0xff; 32];
        let plain = Adjacency::new(9, &interface(None, None), Some([1, 2, 3, 4, 5, 6]));
        assert!(plain.write(&mut head, 0x0800));
        assert_eq!(head[..14], [1, 2, 3, 4, 5, 6, 2, 0, 0, 0, 0, 3, 8, 0]);
        assert_eq!(head[14], 0xff);
        let tagged = Adjacency::new(9, &interface(Some(0x123), None), Some([1, 2, 3, 4, 5, 6]));
        assert!(tagged.write(&mut head, 0x86dd));
        assert_eq!(head[12..18], [0x81, 0, 1, 0x23, 0x86, 0xdd]);
        let double = Adjacency::new(9, &interface(Some(0x123), Some(0x456)), Some([1, 2, 3, 4, 5, 6]));
        assert!(double.write(&mut head, 0x0800));
        assert_eq!(head[12..22], [0x88, 0xa8, 1, 0x23, 0x81, 0, 4, 0x56, 8, 0]);
        assert!(!double.write(&mut head[..21], 0x0800) && !plain.write(&mut head[..13], 0x0800));
    }

    #[test]
    fn a_record_gives_back_what_was_stored() {
        for (ip, mac) in [("10.0.0.1", Some([9; 6])), ("fe80::1", None), ("255.255.255.255", Some([0xff; 6]))]
        {
            let ip = Some(ip.parse().unwrap());
            let record: [AtomicU64; WORDS] = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
            let a = Adjacency::new(0xfffe, &interface(Some(4094), Some(1)), mac);
            a.store(ip, &record);
            assert_eq!((Adjacency::load(&record), Adjacency::load_next_hop(&record)), (a, ip));
        }
    }
}

//! Ethernet II (IEEE 802.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, U16};

/// A MAC address in the order of transmission.
pub type Mac = [u8; 6];

/// The address of all stations.
pub const BROADCAST: Mac = [0xff; 6];

/// Ethertype of IPv4.
pub const ETHERTYPE_IP4: u16 = 0x0800;
/// Ethertype of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// Ethertype of a customer VLAN tag (802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// Ethertype of IPv6.
pub const ETHERTYPE_IP6: u16 = 0x86dd;
/// Ethertype of a service VLAN tag (802.1ad).
pub const ETHERTYPE_QINQ: u16 = 0x88a8;
/// Lowest value that is an ethertype; below it the field is an IEEE 802.3 length.
pub const ETHERTYPE_MIN: u16 = 0x0600;

/// The Ethernet header, 14 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EthHeader {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// Ethertype of what follows.
    pub ethertype: U16,
}

impl Header for EthHeader {}

/// Whether an address is a group's: multicast or broadcast (I/G bit).
#[inline(always)]
pub const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// The group address that carries an IPv4 multicast (RFC 1112 6.4).
pub const fn ip4_multicast(group: u32) -> Mac {
    let [_, b, c, d] = group.to_be_bytes();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

/// The group address that carries an IPv6 multicast (RFC 2464 7).
pub const fn ip6_multicast(group: [u8; 16]) -> Mac {
    [0x33, 0x33, group[12], group[13], group[14], group[15]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_mappings() {
        assert!(is_group(BROADCAST) && is_group([1, 0, 0x5e, 0, 0, 1]) && !is_group([2, 0, 0, 0, 0, 1]));
        assert_eq!(ip4_multicast(0xe0ff_0102), [1, 0, 0x5e, 0x7f, 1, 2]);
        let mut group = [0u8; 16];
        (group[0], group[12], group[15]) = (0xff, 0xff, 7);
        assert_eq!(ip6_multicast(group), [0x33, 0x33, 0xff, 0, 0, 7]);
        assert!(EthHeader::view(&[0; 13]).is_none());
    }
}

//! VLAN tags: 802.1Q and 802.1ad.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, U16};

/// Bits of the tag control information that hold the VLAN id.
pub const VID_MASK: u16 = 0x0fff;
/// Bits of the tag control information that hold priority (PCP) and drop eligibility (DEI).
pub const PRIORITY_MASK: u16 = 0xf000;

/// What follows a tag protocol identifier: 4 bytes, the ethertype of the payload included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VlanTag {
    /// Tag control information: PCP (3 bits), DEI (1), VLAN id (12).
    pub tci: U16,
    /// Ethertype of what follows.
    pub ethertype: U16,
}

impl Header for VlanTag {}

/// The VLAN id in a TCI; 0 means a priority tag without VLAN.
#[inline(always)]
pub const fn vid(tci: u16) -> u16 {
    tci & VID_MASK
}

/// The priority code point in a TCI, 0 to 7.
#[inline(always)]
pub const fn pcp(tci: u16) -> u8 {
    (tci >> 13) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tci_splits_into_its_fields() {
        let tag = VlanTag::view(&[0xb0, 0x65, 0x08, 0x00]).unwrap();
        assert_eq!((pcp(tag.tci.get()), vid(tag.tci.get()), tag.ethertype.get()), (5, 101, 0x0800));
    }
}

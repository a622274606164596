//! What differs between IPv4 and IPv6 for a tester.

use linerate_tables::prefix::Address;

/// An address family: `u32` is IPv4, `u128` is IPv6.
pub trait Ip: Address {
    /// Name as people write it.
    const NAME: &'static str;
    /// Name in result ids.
    const ID: &'static str;
    /// Ethertype of its packets.
    const ETHERTYPE: u16;
    /// Bytes of its header, without options or extension headers.
    const HEADER: usize;

    /// The address `slots` prefixes of this length further; `None` past the end of the address space.
    fn step(self, len: u8, slots: u64) -> Option<Self>;

    /// A word for hash sets: mostly different for different addresses.
    fn word(self) -> u64;

    /// The address with `bits` added below a prefix length: a host inside the prefix.
    fn host(self, len: u8, bits: u64) -> Self;

    /// Whether a router may forward to this address: unicast, and neither loopback, link-local nor reserved.
    fn routable(self) -> bool;

    /// The address in network order, right-aligned in 16 bytes.
    fn octets(self) -> [u8; 16];
}

impl Ip for u32 {
    const NAME: &'static str = "IPv4";
    const ID: &'static str = "ipv4";
    const ETHERTYPE: u16 = 0x0800;
    const HEADER: usize = 20;

    fn step(self, len: u8, slots: u64) -> Option<Self> {
        let by = slots.checked_shl(32u32.saturating_sub(u32::from(len)))?;
        self.checked_add(u32::try_from(by).ok()?)
    }

    fn word(self) -> u64 {
        u64::from(self)
    }

    fn host(self, len: u8, bits: u64) -> Self {
        self | (bits as u32 & !u32::mask(len))
    }

    fn routable(self) -> bool {
        let first = self >> 24;
        first != 0 && first != 127 && first < 224 && self >> 16 != 0xa9fe
    }

    fn octets(self) -> [u8; 16] {
        u128::from(self).to_be_bytes()
    }
}

impl Ip for u128 {
    const NAME: &'static str = "IPv6";
    const ID: &'static str = "ipv6";
    const ETHERTYPE: u16 = 0x86dd;
    const HEADER: usize = 40;

    fn step(self, len: u8, slots: u64) -> Option<Self> {
        let shift = 128u32.saturating_sub(u32::from(len));
        let by = u128::from(slots);
        (shift < 128 && by <= u128::MAX >> shift).then(|| self.checked_add(by << shift)).flatten()
    }

    fn word(self) -> u64 {
        (self >> 64) as u64 ^ (self as u64).rotate_left(32)
    }

    fn host(self, len: u8, bits: u64) -> Self {
        // Fill from the top of the host part, so that long prefixes below are met too.
        let spread = u128::from(bits) << 64 | u128::from(bits.rotate_left(29));
        self | (spread.checked_shr(u32::from(len)).unwrap_or(0) & !u128::mask(len))
    }

    fn routable(self) -> bool {
        self >> 125 == 1
    }

    fn octets(self) -> [u8; 16] {
        self.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_with_the_address_space() {
        assert_eq!(0x0a00_0000u32.step(24, 3), Some(0x0a00_0300));
        assert_eq!(0xffff_ff00u32.step(24, 1), None);
        assert_eq!(u32::MAX.step(32, 1), None);
        assert_eq!(0u128.step(0, 1), None);
        assert_eq!(7u128.step(128, 1), Some(8));
        assert_eq!(u128::MAX.step(48, 1), None);
    }

    #[test]
    fn hosts_stay_inside_their_prefix() {
        for bits in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            assert_eq!(0x0a01_0200u32.host(24, bits) >> 8, 0x0a_0102);
            assert_eq!(0x0a01_0203u32.host(32, bits), 0x0a01_0203);
            let net = 0x2001_4860u128 << 96;
            assert_eq!(net.host(32, bits) >> 96, 0x2001_4860);
            assert_eq!((net | 9).host(128, bits), net | 9);
        }
    }

    #[test]
    fn only_unicast_that_may_cross_a_router_is_routable() {
        for a in [0u32, 0x7f00_0001, 0xe000_0001, 0xffff_ffff, 0xa9fe_0101] {
            assert!(!a.routable(), "{a:08x}");
        }
        assert!(0x0808_0808u32.routable() && (0x2001u128 << 112).routable());
        assert!(!1u128.routable() && !(0xfe80u128 << 112).routable() && !(0xff0eu128 << 112).routable());
    }
}

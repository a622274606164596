//! Addresses as integers and prefixes over them: what tables compute with.

use std::fmt;

/// An IP address as an integer in host byte order: `u32` for IPv4, `u128` for IPv6. Bit 0 is the most significant.
pub trait Address: Copy + Ord + Eq + std::hash::Hash + fmt::Debug + Send + Sync + 'static {
    /// Number of bits: 32 or 128.
    const BITS: u8;
    /// The network mask of a prefix length; lengths above [`Self::BITS`] count as that.
    fn mask(len: u8) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise complement.
    fn not(self) -> Self;
    /// The address after this one; `None` after the last.
    fn next(self) -> Option<Self>;
    /// The address before this one; `None` before the first.
    fn prev(self) -> Option<Self>;
    /// As the standard library's address, for display and parsing.
    fn to_ip(self) -> std::net::IpAddr;
}

impl Address for u32 {
    const BITS: u8 = 32;
    fn mask(len: u8) -> Self {
        u32::MAX.checked_shl(32u32.saturating_sub(u32::from(len))).unwrap_or(0)
    }
    fn and(self, other: Self) -> Self {
        self & other
    }
    fn or(self, other: Self) -> Self {
        self | other
    }
    fn not(self) -> Self {
        !self
    }
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn prev(self) -> Option<Self> {
        self.checked_sub(1)
    }
    fn to_ip(self) -> std::net::IpAddr {
        std::net::Ipv4Addr::from_bits(self).into()
    }
}

impl Address for u128 {
    const BITS: u8 = 128;
    fn mask(len: u8) -> Self {
        u128::MAX.checked_shl(128u32.saturating_sub(u32::from(len))).unwrap_or(0)
    }
    fn and(self, other: Self) -> Self {
        self & other
    }
    fn or(self, other: Self) -> Self {
        self | other
    }
    fn not(self) -> Self {
        !self
    }
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn prev(self) -> Option<Self> {
        self.checked_sub(1)
    }
    fn to_ip(self) -> std::net::IpAddr {
        std::net::Ipv6Addr::from_bits(self).into()
    }
}

/// A prefix whose host bits are zero and whose length fits the address: there is no other way to make one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix<A> {
    addr: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix that covers `addr` with `len` bits; host bits are cleared. `None` where `len` exceeds the address.
    pub fn new(addr: A, len: u8) -> Option<Self> {
        (len <= A::BITS).then(|| Prefix { addr: addr.and(A::mask(len)), len })
    }

    /// The prefix that covers every address.
    pub fn all() -> Self {
        Prefix { addr: A::mask(0), len: 0 }
    }

    /// The lowest address covered.
    pub fn first(self) -> A {
        self.addr
    }

    /// The highest address covered.
    pub fn last(self) -> A {
        self.addr.or(A::mask(self.len).not())
    }

    /// The prefix length in bits.
    #[allow(clippy::len_without_is_empty, reason = "a prefix length, not a container's")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether `addr` lies inside.
    pub fn contains(self, addr: A) -> bool {
        addr.and(A::mask(self.len)) == self.addr
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr.to_ip(), self.len)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ipnet::Ipv4Net> for Prefix<u32> {
    fn from(net: ipnet::Ipv4Net) -> Self {
        let len = net.prefix_len();
        Prefix { addr: net.addr().to_bits() & u32::mask(len), len }
    }
}

impl From<ipnet::Ipv6Net> for Prefix<u128> {
    fn from(net: ipnet::Ipv6Net) -> Self {
        let len = net.prefix_len();
        Prefix { addr: net.addr().to_bits() & u128::mask(len), len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_the_extremes() {
        assert_eq!(u32::mask(0), 0);
        assert_eq!(u32::mask(8), 0xff00_0000);
        assert_eq!(u32::mask(32), u32::MAX);
        assert_eq!(u128::mask(0), 0);
        assert_eq!(u128::mask(128), u128::MAX);
    }

    #[test]
    fn host_bits_are_cleared_and_long_lengths_refused() {
        let p = Prefix::new(0x0a01_02ffu32, 24).unwrap();
        assert_eq!((p.first(), p.last(), p.to_string()), (0x0a01_0200, 0x0a01_02ff, "10.1.2.0/24".into()));
        assert!(Prefix::new(0u32, 33).is_none());
        assert!(Prefix::new(0u128, 129).is_none());
    }
}

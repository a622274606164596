//! The router's own addresses, by VRF: exactly, and as a filter that tells quickly of nearly every address that it is
//! none of them.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::policy::VrfId;
use crate::{IfIndex, Interface};

/// Words of the filter, 64 bits each: of foreign addresses as many in 8,192 look like one of the router's as that has. The
/// size is fixed so that looking needs no more than the address of it; 1 KB leaves the first-level cache to the packets.
const WORDS: usize = 128;

/// The addresses at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    own4: Vec<(VrfId, Ipv4Addr)>,
    own6: Vec<(VrfId, Ipv6Addr)>,
    /// First and last addresses of networks, where those are no stations' (not of /31 and /32).
    broadcast4: Vec<(VrfId, Ipv4Addr, IfIndex)>,
    filter: Box<[u64; WORDS]>,
    /// All that the filter knows, of whatever VRF, sorted.
    exact4: Vec<u32>,
    exact6: Vec<u128>,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses::of([].into_iter())
    }
}

impl Addresses {
    pub(crate) fn of<'a>(interfaces: impl Iterator<Item = (IfIndex, &'a Interface)>) -> Self {
        let (mut own4, mut own6, mut broadcast4) = (Vec::new(), Vec::new(), Vec::new());
        for (index, i) in interfaces {
            own4.extend(i.ip4.iter().map(|n| (i.vrf, n.addr())));
            own6.extend(i.ip6.iter().map(|n| (i.vrf, Ipv6Net::addr(n))));
            let ends = |n: &Ipv4Net| [n.network(), n.broadcast()];
            let all = i.ip4.iter().filter(|n| n.prefix_len() < 31).flat_map(ends);
            broadcast4.extend(all.map(|a| (i.vrf, a, index)));
        }
        own4.sort_unstable();
        own6.sort_unstable();
        broadcast4.sort_unstable();
        let four = own4.iter().map(|(_, a)| a).chain(broadcast4.iter().map(|(_, a, _)| a));
        let mut exact4: Vec<u32> = four.map(|a| a.to_bits()).collect();
        let mut exact6: Vec<u128> = own6.iter().map(|(_, a)| a.to_bits()).collect();
        exact4.sort_unstable();
        exact6.sort_unstable();
        let mut filter = Box::new([0; WORDS]);
        for hash in
            exact4.iter().map(|a| hash4(*a)).chain(exact6.iter().map(|a| hash6((a >> 64) as u64, *a as u64)))
        {
            filter[(hash >> 25) as usize] |= 1 << (hash >> 19 & 63);
        }
        Addresses { own4, own6, broadcast4, filter, exact4, exact6 }
    }

    pub(crate) fn owns4(&self, vrf: VrfId, addr: Ipv4Addr) -> bool {
        self.own4.binary_search(&(vrf, addr)).is_ok()
    }

    pub(crate) fn owns6(&self, vrf: VrfId, addr: Ipv6Addr) -> bool {
        self.own6.binary_search(&(vrf, addr)).is_ok()
    }

    /// The interface in one of whose networks this is a broadcast.
    pub(crate) fn broadcast4(&self, vrf: VrfId, addr: Ipv4Addr) -> Option<IfIndex> {
        let at = self.broadcast4.partition_point(|(v, a, _)| (*v, *a) < (vrf, addr));
        self.broadcast4.get(at).filter(|(v, a, _)| (*v, *a) == (vrf, addr)).map(|b| b.2)
    }

    /// A VRF's own addresses, in order.
    pub(crate) fn own4(&self, vrf: VrfId) -> impl Iterator<Item = Ipv4Addr> {
        let from = self.own4.partition_point(|(v, _)| *v < vrf);
        self.own4.iter().skip(from).take_while(move |(v, _)| *v == vrf).map(|(_, a)| *a)
    }

    /// A VRF's own addresses, in order.
    pub(crate) fn own6(&self, vrf: VrfId) -> impl Iterator<Item = Ipv6Addr> {
        let from = self.own6.partition_point(|(v, _)| *v < vrf);
        self.own6.iter().skip(from).take_while(move |(v, _)| *v == vrf).map(|(_, a)| *a)
    }

    pub(crate) fn filter(&self) -> OwnFilter<'_> {
        OwnFilter { bits: &self.filter, all: self }
    }
}

/// Tells whether an address is an address or a broadcast address of this router, in whatever VRF. A handful of
/// instructions, for the source of each packet, except for the few addresses that the filter takes for own ones: those are
/// searched for, so that no foreign flow is ever treated differently from others.
#[derive(Clone, Copy, Debug)]
pub struct OwnFilter<'a> {
    bits: &'a [u64; WORDS],
    all: &'a Addresses,
}

impl OwnFilter<'_> {
    /// Whether an IPv4 address may be one: all that are, and very few others.
    #[inline(always)]
    pub fn suspects4(self, addr: u32) -> bool {
        self.has(hash4(addr))
    }

    /// Whether an IPv6 address, given in halves, may be one.
    #[inline(always)]
    pub fn suspects6(self, high: u64, low: u64) -> bool {
        self.has(hash6(high, low))
    }

    /// Whether an IPv4 address is one.
    #[inline(always)]
    pub fn owns4(self, addr: u32) -> bool {
        self.suspects4(addr) && self.is4(addr)
    }

    /// Whether an IPv6 address is one.
    #[inline(always)]
    pub fn owns6(self, addr: u128) -> bool {
        self.suspects6((addr >> 64) as u64, addr as u64) && self.is6(addr)
    }

    #[cold]
    #[inline(never)]
    fn is4(self, addr: u32) -> bool {
        self.all.exact4.binary_search(&addr).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn is6(self, addr: u128) -> bool {
        self.all.exact6.binary_search(&addr).is_ok()
    }

    #[inline(always)]
    fn has(self, hash: u32) -> bool {
        self.bits[(hash >> 25) as usize] >> (hash >> 19 & 63) & 1 != 0
    }
}

/// An odd constant near 2^32/φ.
const SPREAD: u32 = 0x9e37_79b1;

#[inline(always)]
fn hash4(addr: u32) -> u32 {
    addr.wrapping_mul(SPREAD)
}

#[inline(always)]
fn hash6(high: u64, low: u64) -> u32 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let folded = high ^ low.rotate_left(29);
    (folded.wrapping_mul(SPREAD) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_every_own_address_and_no_other() {
        let interface = |n: u32| {
            let four = Ipv4Net::new(Ipv4Addr::from_bits(0x0a00_0001 | n << 8), 24).unwrap();
            let six = Ipv6Net::new(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n) << 64 | 1), 64);
            let vrf = (n % 3) as VrfId;
            Interface { vrf, ..Interface::new("x", 0, [2; 6], 1500, &[four.into(), six.unwrap().into()]) }
        };
        for n in [0, 1, 7, 2000] {
            let all: Vec<Interface> = (0..n).map(interface).collect();
            let addresses = Addresses::of((0..).zip(&all));
            let filter = addresses.filter();
            for i in &all {
                assert!(i.ip4.iter().all(|n| filter.owns4(n.addr().to_bits())));
                assert!(i.ip4.iter().all(|n| filter.owns4(n.broadcast().to_bits())));
                assert!(i.ip6.iter().all(|n| filter.owns6(n.addr().to_bits())));
                let (four, six) = (i.ip4[0].addr(), i.ip6[0].addr());
                assert!(addresses.owns4(i.vrf, four) && addresses.owns6(i.vrf, six));
                assert!(!addresses.owns4(i.vrf + 1, four) && !addresses.owns6(i.vrf + 1, six));
                let at = addresses.broadcast4(i.vrf, i.ip4[0].broadcast()).unwrap();
                assert_eq!(all[usize::from(at)], *i);
            }
            let foreign = (0..100_000u32).filter(|x| filter.owns4(0x2000_0000 | x.wrapping_mul(40_503)));
            assert_eq!(foreign.count(), 0, "{n} interfaces");
            let foreign = (0..100_000u128).filter(|x| filter.owns6(0x2a00 << 112 | x << 64 | (x * 77)));
            assert_eq!(foreign.count(), 0, "{n} interfaces");
            for vrf in 0..3 {
                assert_eq!(addresses.own4(vrf).count(), all.iter().filter(|i| i.vrf == vrf).count());
                assert_eq!(addresses.own6(vrf).count(), all.iter().filter(|i| i.vrf == vrf).count());
            }
        }
    }
}

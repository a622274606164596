//! IPv6 (RFC 8200) and its extension headers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, U16, U32};

/// Next header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: routing.
pub const ROUTING: u8 = 43;
/// Next header: fragment.
pub const FRAGMENT: u8 = 44;
/// Next header: authentication header (RFC 4302).
pub const AUTH: u8 = 51;
/// Next header: ICMPv6.
pub const ICMPV6: u8 = 58;
/// Next header: none.
pub const NO_NEXT: u8 = 59;
/// Next header: destination options.
pub const DEST_OPTIONS: u8 = 60;
/// Next header: mobility (RFC 6275).
pub const MOBILITY: u8 = 135;

/// Most extension headers [`walk`] follows. Real packets have at most a few; the bound keeps hostile ones cheap.
pub const MAX_EXTENSIONS: usize = 10;

/// The smallest MTU of an IPv6 link (RFC 8200 5).
pub const MIN_MTU: u16 = 1280;

/// The IPv6 header, 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ip6Header {
    /// Version (4 bits), traffic class (8), flow label (20).
    pub version_flow: U32,
    /// Bytes after this header.
    pub payload_len: U16,
    /// Type of the header that follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

impl Header for Ip6Header {}

impl Ip6Header {
    /// A header of ours with flow label and traffic class 0.
    pub fn new(src: [u8; 16], dst: [u8; 16], next_header: u8, hop_limit: u8, payload: usize) -> Self {
        Ip6Header {
            version_flow: U32::new(6 << 28),
            payload_len: U16::new(payload.min(0xffff) as u16),
            next_header,
            hop_limit,
            src,
            dst,
        }
    }

    /// Traffic class: the DSCP in the upper six bits (RFC 2474), ECN in the lower two.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.version_flow.get() >> 20) as u8
    }

    /// Version field.
    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_flow.get() >> 28) as u8
    }
}

/// What lies behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// Protocol of the payload.
    pub protocol: u8,
    /// Its offset from the end of the fixed header.
    pub offset: usize,
    /// Offset (units of 8 bytes) and "more fragments", where a fragment header was met.
    pub fragment: Option<(u16, bool)>,
}

impl Upper {
    /// Whether this is a piece of a larger packet. An atomic fragment (RFC 6946) is not.
    pub fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|(offset, more)| offset != 0 || more)
    }
}

/// Why a chain of extension headers could not be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// The chain runs past the bytes at hand.
    #[error("the chain of IPv6 extension headers is cut off")]
    CutOff,
    /// More headers than [`MAX_EXTENSIONS`].
    #[error("the packet has more than {MAX_EXTENSIONS} IPv6 extension headers")]
    TooMany,
    /// A hop-by-hop header that does not come first (RFC 8200 4.1).
    #[error("a hop-by-hop header follows another IPv6 extension header")]
    HopByHopNotFirst,
}

/// Follows the extension headers from the end of the fixed header: `first` is its next-header field, `bytes` what
/// comes behind it (a prefix that covers the headers is enough). Stops at a later fragment: what follows there is
/// payload.
pub fn walk(first: u8, bytes: &[u8]) -> Result<Upper, WalkError> {
    let mut upper = Upper { protocol: first, offset: 0, fragment: None };
    for n in 0..=MAX_EXTENSIONS {
        let header = bytes.get(upper.offset..).unwrap_or_default();
        let len = match upper.protocol {
            HOP_BY_HOP if n > 0 => return Err(WalkError::HopByHopNotFirst),
            HOP_BY_HOP | ROUTING | DEST_OPTIONS | MOBILITY => {
                (usize::from(*header.get(1).ok_or(WalkError::CutOff)?) + 1) * 8
            }
            AUTH => (usize::from(*header.get(1).ok_or(WalkError::CutOff)?) + 2) * 4,
            FRAGMENT => {
                let f: &[u8; 8] = header.first_chunk().ok_or(WalkError::CutOff)?;
                let field = u16::from_be_bytes([f[2], f[3]]);
                upper.fragment = Some((field >> 3, field & 1 != 0));
                8
            }
            _ => return Ok(upper),
        };
        if n == MAX_EXTENSIONS {
            break;
        }
        if header.len() < len {
            return Err(WalkError::CutOff);
        }
        upper.protocol = header[0];
        upper.offset += len;
        if upper.fragment.is_some_and(|(offset, _)| offset != 0) {
            return Ok(upper);
        }
    }
    Err(WalkError::TooMany)
}

/// ff00::/8.
#[inline(always)]
pub const fn is_multicast(addr: &[u8; 16]) -> bool {
    addr[0] == 0xff
}

/// fe80::/10.
#[inline(always)]
pub const fn is_link_local(addr: &[u8; 16]) -> bool {
    addr[0] == 0xfe && addr[1] & 0xc0 == 0x80
}

/// `::`.
#[inline]
pub const fn is_unspecified(addr: &[u8; 16]) -> bool {
    u128::from_ne_bytes(*addr) == 0
}

/// Whether an address is an IPv4 one in disguise: `::a.b.c.d` (RFC 4291 2.5.5.1, the unspecified address and that of the
/// loopback interface among them) or `::ffff:a.b.c.d` (2.5.5.2). No such address belongs on a wire.
#[inline]
pub const fn is_ip4_in_ip6(addr: &[u8; 16]) -> bool {
    let addr = u128::from_be_bytes(*addr);
    addr >> 32 == 0 || addr >> 32 == 0xffff
}

/// `::1`.
#[inline]
pub const fn is_loopback(addr: &[u8; 16]) -> bool {
    u128::from_be_bytes(*addr) == 1
}

/// Scope of a multicast address (RFC 4291 2.7): 1 interface, 2 link, 5 site, 14 global.
#[inline]
pub const fn multicast_scope(addr: &[u8; 16]) -> u8 {
    addr[1] & 0xf
}

/// The group that solicitations for an address go to (RFC 4291 2.7.1).
pub const fn solicited_node(addr: [u8; 16]) -> [u8; 16] {
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, addr[13], addr[14], addr[15]]
}

/// All nodes on the link, ff02::1.
pub const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// All routers on the link, ff02::2.
pub const ALL_ROUTERS: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// The link-local address made from a MAC address (RFC 4291 appendix A).
pub const fn link_local(mac: crate::Mac) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_followed_to_the_payload() {
        let hop = [ROUTING, 0, 5, 2, 0, 0, 1, 0];
        let routing = [FRAGMENT, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let fragment = [AUTH, 0, 0, 1, 0, 0, 0, 7];
        let auth = [crate::ip4::UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let chain = [&hop[..], &routing, &fragment, &auth, &[1, 2]].concat();
        let upper = walk(HOP_BY_HOP, &chain).unwrap();
        assert_eq!(upper, Upper { protocol: 17, offset: 44, fragment: Some((0, true)) });
        assert!(upper.is_fragment());
        for cut in 0..44 {
            assert_eq!(walk(HOP_BY_HOP, &chain[..cut]), Err(WalkError::CutOff), "{cut}");
        }
        assert_eq!(walk(6, &[]), Ok(Upper { protocol: 6, offset: 0, fragment: None }));
    }

    #[test]
    fn hostile_chains_end() {
        assert_eq!(walk(DEST_OPTIONS, &[DEST_OPTIONS, 0].repeat(500)), Err(WalkError::TooMany));
        assert_eq!(walk(HOP_BY_HOP, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(WalkError::HopByHopNotFirst));
        let later = [HOP_BY_HOP, 0, 0, 8, 0, 0, 0, 7, 0xff, 0xff];
        let upper = walk(FRAGMENT, &later).unwrap();
        assert_eq!(
            (upper.offset, upper.fragment),
            (8, Some((1, false))),
            "payload is not taken for a header"
        );
        let atomic = walk(FRAGMENT, &[17, 0, 0, 0, 0, 0, 0, 7]).unwrap();
        assert!(!atomic.is_fragment() && atomic.fragment.is_some());
    }

    #[test]
    fn derived_addresses() {
        let ll = link_local([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(std::net::Ipv6Addr::from(ll).to_string(), "fe80::11:22ff:fe33:4455");
        assert_eq!(std::net::Ipv6Addr::from(solicited_node(ll)).to_string(), "ff02::1:ff33:4455");
        assert!(is_link_local(&ll) && is_multicast(&ALL_NODES) && multicast_scope(&ALL_ROUTERS) == 2);
    }
}

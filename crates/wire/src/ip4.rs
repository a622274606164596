//! IPv4 (RFC 791).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, U16, U32, checksum};

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// "Don't fragment" in [`Ip4Header::fragment`].
pub const DF: u16 = 0x4000;
/// "More fragments" in [`Ip4Header::fragment`].
pub const MF: u16 = 0x2000;
/// The fragment offset, in units of 8 bytes, in [`Ip4Header::fragment`].
pub const OFFSET: u16 = 0x1fff;

/// Most bytes of options a header can carry.
pub const MAX_OPTIONS: usize = 40;

/// The IPv4 header without options, 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ip4Header {
    /// Version (4 bits) and header length in 32-bit words (4 bits).
    pub version_ihl: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of header and payload in bytes.
    pub total_len: U16,
    /// Identification, for reassembly.
    pub id: U16,
    /// [`DF`], [`MF`] and [`OFFSET`].
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: U16,
    /// Source address.
    pub src: U32,
    /// Destination address.
    pub dst: U32,
}

impl Header for Ip4Header {}

impl Ip4Header {
    /// A header of ours, without options and with its checksum. `payload` in bytes; what exceeds 65,515 is cut in the
    /// length field, so callers check it before.
    pub fn new(src: u32, dst: u32, protocol: u8, ttl: u8, payload: usize) -> Self {
        let mut h = Ip4Header {
            version_ihl: 0x45,
            tos: 0,
            total_len: U16::new((payload + Self::LEN).min(0xffff) as u16),
            id: U16::new(0),
            fragment: U16::new(0),
            ttl,
            protocol,
            checksum: U16::new(0),
            src: U32::new(src),
            dst: U32::new(dst),
        };
        h.set_checksum();
        h
    }

    /// Version field.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Header length in bytes, options included: 0 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0xf) * 4
    }

    /// Whether this is any fragment of a larger datagram.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (MF | OFFSET) != 0
    }

    /// Whether this is a fragment other than the first: it has no transport header.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.get() & OFFSET != 0
    }

    /// Whether fragmentation is forbidden.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & DF != 0
    }

    /// Writes the checksum of a header without options.
    pub fn set_checksum(&mut self) {
        let bytes: &[u8; 20] = zerocopy::transmute_ref!(self);
        self.checksum = U16::new(checksum::ip4_header(bytes));
    }
}

/// 224/4.
#[inline]
pub const fn is_multicast(addr: u32) -> bool {
    addr >> 28 == 0xe
}

/// 127/8.
#[inline]
pub const fn is_loopback(addr: u32) -> bool {
    addr >> 24 == 127
}

/// Whether no host may send from this address across a router (RFC 1812 5.3.7): 0/8, 127/8, 224/4, 240/4 (the limited
/// broadcast included).
#[inline(always)]
pub fn is_martian_source(addr: u32) -> bool {
    static TABLE: [bool; 256] = MARTIAN;
    TABLE[(addr >> 24) as usize]
}

/// Whether an address is special: [a martian](is_martian_source), or [link-local](is_link_local). Exactly, for packets to the
/// rest of 169/8 must not go another way than all others.
#[inline(always)]
pub fn is_suspect(addr: u32) -> bool {
    is_martian_source(addr) | is_link_local(addr)
}

/// Whether an address [is special](is_suspect), or one of the rest of 169/8: one load, for a first look.
#[inline(always)]
pub fn may_be_suspect(addr: u32) -> bool {
    static TABLE: [bool; 256] = {
        let mut table = MARTIAN;
        table[169] = true;
        table
    };
    TABLE[(addr >> 24) as usize]
}

/// Whether an address is link-local, 169.254/16, which no router forwards (RFC 3927 2.7).
#[inline(always)]
pub const fn is_link_local(addr: u32) -> bool {
    addr >> 16 == 0xa9fe
}

/// By the first octet: a load is cheaper than three comparisons.
const MARTIAN: [bool; 256] = {
    let mut table = [false; 256];
    (table[0], table[127]) = (true, true);
    let mut top = 224;
    while top < 256 {
        table[top] = true;
        top += 1;
    }
    table
};

/// Option: loose source and record route (RFC 791 3.1).
const LOOSE_SOURCE_ROUTE: u8 = 131;
/// Option: strict source and record route.
const STRICT_SOURCE_ROUTE: u8 = 137;
/// Option: record route.
const RECORD_ROUTE: u8 = 7;
/// Option: internet timestamp.
const TIMESTAMP: u8 = 68;

/// What the options of a sound header ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The sender wants to choose the way (loosely or strictly).
    pub source_route: bool,
}

/// Options that no receiver can make sense of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an IPv4 option has a length or pointer that cannot be, or runs past the header")]
pub struct BadOptions;

/// Walks the options between header and payload (RFC 791 3.1, RFC 1812 5.2.4): each must lie within the header, and
/// those that have addresses or times written into them must have their pointer behind its own fields. Bytes behind the
/// end of the list do not count. Options that are not known are stepped over.
pub fn check_options(options: &[u8]) -> Result<Options, BadOptions> {
    let mut found = Options::default();
    let mut rest = options;
    while let Some((&kind, behind)) = rest.split_first() {
        let len = match kind {
            0 => break,
            1 => {
                rest = behind;
                continue;
            }
            _ => usize::from(*behind.first().ok_or(BadOptions)?),
        };
        if len < 2 {
            return Err(BadOptions);
        }
        let (option, next) = rest.split_at_checked(len).ok_or(BadOptions)?;
        // The least value of the pointer: the first byte behind the option's fixed fields, counted from one.
        let least = match kind {
            RECORD_ROUTE | LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => 4,
            TIMESTAMP => 5,
            _ => 0,
        };
        if least > 0 && (len + 1 < least || option.get(2).is_none_or(|p| usize::from(*p) < least)) {
            return Err(BadOptions);
        }
        found.source_route |= matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE);
        rest = next;
    }
    Ok(found)
}

/// Copies those of `options` into `out` that belong in every fragment (RFC 791 3.1, the copied flag), padded to a
/// multiple of four. Returns the number of bytes. Options cut off by their own length end the copy.
pub fn copied_options(options: &[u8], out: &mut [u8; MAX_OPTIONS]) -> usize {
    let (mut at, mut n) = (0, 0);
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(*options.get(at + 1).unwrap_or(&0)),
        };
        let Some(option) = options.get(at..at + len).filter(|o| !o.is_empty()) else { break };
        if kind & 0x80 != 0
            && let Some(to) = out.get_mut(n..n + len)
        {
            to.copy_from_slice(option);
            n += len;
        }
        at += len;
    }
    let padded = n.next_multiple_of(4).min(MAX_OPTIONS);
    out[n..padded].fill(0);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn martians() {
        for bad in [0, 1, 0x7f00_0001, 0xe000_0001, 0xf000_0001, u32::MAX] {
            assert!(is_martian_source(bad), "{bad:#x}");
        }
        for good in [0x0100_0000, 0x7eff_ffff, 0x8000_0000, 0xdfff_ffff] {
            assert!(!is_martian_source(good), "{good:#x}");
        }
        for top in 0..=255u32 {
            for rest in [0, 1, 0x00fe_0000, 0x00fe_ffff, 0x00fd_ffff, 0x00ff_0000, 0x00ff_ffff] {
                let addr = top << 24 | rest;
                let wanted = is_martian_source(addr) || (top == 169 && rest >> 16 == 254);
                assert_eq!(is_suspect(addr), wanted, "{addr:#x}");
                assert_eq!(may_be_suspect(addr), wanted || top == 169, "{addr:#x}");
            }
        }
    }

    #[test]
    fn options_are_walked_and_source_routes_found() {
        let good: [(&[u8], bool); 9] = [
            (&[], false),
            (&[1, 1, 1, 1], false),
            (&[0, 68, 0, 0], false),
            (&[148, 4, 0, 0], false),
            (&[7, 3, 4, 0], false),
            (&[68, 4, 5, 0], false),
            (&[1, 131, 3, 4], true),
            (&[137, 7, 4, 10, 0, 0, 1, 0], true),
            (&[200, 2, 201, 2], false),
        ];
        for (options, source_route) in good {
            assert_eq!(check_options(options), Ok(Options { source_route }), "{options:?}");
        }
        let bad: [&[u8]; 10] = [
            &[68, 0, 0, 0],
            &[131, 255, 4, 0],
            &[200, 1, 0, 0],
            &[1, 1, 1, 200],
            &[200, 5, 0, 0],
            &[7, 3, 3, 0],
            &[131, 2, 0, 0],
            &[68, 4, 4, 0],
            &[68, 3, 5, 0],
            &[1, 1, 7, 2],
        ];
        for options in bad {
            assert_eq!(check_options(options), Err(BadOptions), "{options:?}");
        }
    }

    #[test]
    fn options_with_the_copied_flag_are_kept_and_padded() {
        let mut out = [9; MAX_OPTIONS];
        // NOP, record route (not copied), loose source route of 7 bytes (copied), router alert (copied), end.
        let options = [1, 7, 3, 4, 131, 7, 4, 1, 2, 3, 4, 148, 4, 0, 0, 0];
        assert_eq!(copied_options(&options, &mut out), 12);
        assert_eq!(out[..12], [131, 7, 4, 1, 2, 3, 4, 148, 4, 0, 0, 0]);
        for cut in [&[131][..], &[131, 0, 1, 1], &[131, 200, 0, 0], &[131, 1, 131, 1]] {
            assert!(copied_options(cut, &mut out) <= 4, "{cut:?}");
        }
    }
}

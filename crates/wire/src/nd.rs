//! Neighbour discovery for IPv6 (RFC 4861).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, Mac, U16, U32};

/// Option: link-layer address of the sender of a solicitation.
pub const OPTION_SOURCE_LLA: u8 = 1;
/// Option: link-layer address of the target of an advertisement.
pub const OPTION_TARGET_LLA: u8 = 2;

/// Flag of an advertisement: from a router.
pub const FLAG_ROUTER: u32 = 1 << 31;
/// Flag of an advertisement: answers a solicitation.
pub const FLAG_SOLICITED: u32 = 1 << 30;
/// Flag of an advertisement: replaces what is cached.
pub const FLAG_OVERRIDE: u32 = 1 << 29;

/// A neighbour solicitation or advertisement without options, 24 bytes (RFC 4861 4.3, 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NeighborMessage {
    /// 135 or 136.
    pub kind: u8,
    /// 0.
    pub code: u8,
    /// ICMPv6 checksum.
    pub checksum: U16,
    /// Flags of an advertisement; reserved in a solicitation.
    pub flags: U32,
    /// The address asked about or advertised.
    pub target: [u8; 16],
}

impl Header for NeighborMessage {}

/// A message with one link-layer address option: what this router sends, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NeighborMessageWithMac {
    /// The message.
    pub message: NeighborMessage,
    /// [`OPTION_SOURCE_LLA`] or [`OPTION_TARGET_LLA`].
    pub option: u8,
    /// Length of the option in units of 8 bytes: 1.
    pub option_len: u8,
    /// The link-layer address.
    pub mac: Mac,
}

impl Header for NeighborMessageWithMac {}

impl NeighborMessageWithMac {
    /// A message of ours with its checksum, to be sent from `src` to `dst`.
    pub fn new(
        kind: u8,
        flags: u32,
        target: [u8; 16],
        option: u8,
        mac: Mac,
        src: &[u8; 16],
        dst: &[u8; 16],
    ) -> Self {
        let message =
            NeighborMessage { kind, code: 0, checksum: U16::new(0), flags: U32::new(flags), target };
        let mut m = NeighborMessageWithMac { message, option, option_len: 1, mac };
        let sum =
            crate::checksum::Sum::pseudo6(src, dst, crate::ip6::ICMPV6, Self::LEN as u32).add(m.as_bytes());
        m.message.checksum = U16::new(sum.checksum());
        m
    }
}

/// An option whose length is zero or runs past the message (RFC 4861 7.1: the message must be discarded).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a neighbour-discovery option has length zero or runs past the end of the message")]
pub struct BadOption;

/// The link-layer address of the first option of type `wanted` in the bytes behind a message; `Ok(None)` where there
/// is none. All options are checked.
pub fn link_layer_address(options: &[u8], wanted: u8) -> Result<Option<Mac>, BadOption> {
    let mut found = None;
    let mut rest = options;
    while !rest.is_empty() {
        let (&[kind, units], _) = rest.split_first_chunk::<2>().ok_or(BadOption)?;
        let len = usize::from(units) * 8;
        if len == 0 || len > rest.len() {
            return Err(BadOption);
        }
        let (option, next) = rest.split_at(len);
        if kind == wanted && units == 1 && found.is_none() {
            found = option[2..].first_chunk::<6>().copied();
        }
        rest = next;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_searched_and_all_checked() {
        let lla = [1, 1, 2, 0, 0, 0, 0, 9];
        let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
        assert_eq!(link_layer_address(&[nonce, lla].concat(), 1), Ok(Some([2, 0, 0, 0, 0, 9])));
        assert_eq!(link_layer_address(&nonce, 1), Ok(None));
        assert_eq!(link_layer_address(&[], 1), Ok(None));
        for bad in [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[1, 2, 0, 0, 0, 0, 0, 0], &[1]] {
            assert_eq!(link_layer_address(&[&lla, bad].concat(), 1), Err(BadOption));
        }
    }
}

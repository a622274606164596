//! Header views and builders, checksums and the flow hash.
//!
//! Depends on no crate of ours, and knows nothing of packets beyond a slice of bytes. Read [`Header`] below first, then
//! [`ip4`].
//!
//! Every header is a plain struct whose fields are big-endian and unaligned: it is laid over packet bytes where they
//! are ([`Header::view`]), never parsed and written back, so that what is not understood passes byte-exact. Nothing
//! here panics on any input: what does not fit is `None` or an error.

#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod eth;
pub mod flow;
pub mod icmp;
pub mod icmpv6;
pub mod ip4;
pub mod ip6;
pub mod nd;
pub mod tcp;
pub mod udp;
pub mod vlan;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use eth::Mac;
pub use zerocopy::byteorder::network_endian::{U16, U32};

/// A fixed-size header that can be laid over bytes.
pub trait Header: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized {
    /// Size in bytes.
    const LEN: usize = size_of::<Self>();

    /// The header at the start of `bytes`; `None` where they are too few.
    #[inline(always)]
    fn view(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(h, _)| h)
    }

    /// The header at the start of `bytes`, to change; `None` where they are too few.
    #[inline(always)]
    fn view_mut(bytes: &mut [u8]) -> Option<&mut Self> {
        Self::mut_from_prefix(bytes).ok().map(|(h, _)| h)
    }

    /// The header at `offset`; `None` where it does not fit.
    #[inline(always)]
    fn view_at(bytes: &[u8], offset: usize) -> Option<&Self> {
        // One comparison: the length of the range is known when this is compiled.
        Self::ref_from_bytes(bytes.get(offset..offset.wrapping_add(Self::LEN))?).ok()
    }

    /// The header at `offset`, to change; `None` where it does not fit.
    #[inline(always)]
    fn view_at_mut(bytes: &mut [u8], offset: usize) -> Option<&mut Self> {
        Self::mut_from_bytes(bytes.get_mut(offset..offset.wrapping_add(Self::LEN))?).ok()
    }
}

#[cfg(test)]
mod vectors;

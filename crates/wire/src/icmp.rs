//! ICMP (RFC 792, RFC 1812 4.3).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, U16};

/// Type: echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Type: destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Type: source quench (deprecated, still an error message).
pub const SOURCE_QUENCH: u8 = 4;
/// Type: redirect.
pub const REDIRECT: u8 = 5;
/// Type: echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Type: time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Type: parameter problem.
pub const PARAMETER_PROBLEM: u8 = 12;

/// Codes of [`UNREACHABLE`].
pub mod unreachable {
    /// No route.
    pub const NET: u8 = 0;
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// Nothing here speaks this protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nothing listens on this port.
    pub const PORT: u8 = 3;
    /// Larger than the MTU and may not be fragmented (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Administratively prohibited (RFC 1812 5.2.7.1).
    pub const PROHIBITED: u8 = 13;
}

/// The first 8 bytes of every ICMP and ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum over the whole message (with a pseudo-header in ICMPv6).
    pub checksum: U16,
    /// What the type says: identifier and sequence number of an echo, the MTU in its last half, …
    pub rest: [u8; 4],
}

impl Header for IcmpHeader {}

/// Whether a type is an error message, about which no error may be sent (RFC 1122 3.2.2). Types unknown here count
/// as queries.
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

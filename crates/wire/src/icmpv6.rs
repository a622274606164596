//! ICMPv6 (RFC 4443). Messages begin with [`crate::icmp::IcmpHeader`].

/// Multicast listener query (RFC 2710 3.1).
pub const MLD_QUERY: u8 = 130;
/// Multicast listener done (RFC 2710 3.1).
pub const MLD_DONE: u8 = 132;
/// Version 2 multicast listener report (RFC 3810 5.2).
pub const MLD2_REPORT: u8 = 143;
/// Type: destination unreachable.
pub const UNREACHABLE: u8 = 1;
/// Type: packet too big.
pub const PACKET_TOO_BIG: u8 = 2;
/// Type: time exceeded.
pub const TIME_EXCEEDED: u8 = 3;
/// Type: parameter problem.
pub const PARAMETER_PROBLEM: u8 = 4;
/// Type: echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Type: echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Type: router solicitation (RFC 4861).
pub const ROUTER_SOLICITATION: u8 = 133;
/// Type: router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Type: neighbour solicitation.
pub const NEIGHBOR_SOLICITATION: u8 = 135;
/// Type: neighbour advertisement.
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Type: redirect.
pub const REDIRECT: u8 = 137;

/// Codes of [`UNREACHABLE`].
pub mod unreachable {
    /// No route.
    pub const NO_ROUTE: u8 = 0;
    /// Administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// The source address does not reach beyond its scope.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host does not answer.
    pub const ADDRESS: u8 = 3;
    /// Nothing listens on this port.
    pub const PORT: u8 = 4;
    /// A reject route.
    pub const REJECT: u8 = 6;
}

/// Code of [`PARAMETER_PROBLEM`]: unrecognised next header.
pub const UNKNOWN_NEXT_HEADER: u8 = 1;

/// Whether a type is an error message, or a redirect: no error may be sent about those (RFC 4443 2.4 e).
pub const fn is_error(kind: u8) -> bool {
    kind < 128 || kind == REDIRECT
}

/// Whether a message type is multicast listener discovery (RFC 2710, RFC 3810).
pub const fn is_listener_discovery(kind: u8) -> bool {
    matches!(kind, 130..=132 | 143)
}

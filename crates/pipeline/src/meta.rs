//! Per-packet metadata: plain old data of one cache line that travels with the packet.

use crate::policy::VrfId;

/// Index of a port (a DPDK device), dense from 0.
pub type PortId = u16;

/// Index of a logical interface (a port, a VLAN on a port, …), dense from 0; see [`IF_NONE`].
pub type IfIndex = u16;

/// "No interface": what [`Meta::rx_if`] holds before an input node has found it.
pub const IF_NONE: IfIndex = u16::MAX;

/// What nodes tell each other about a packet.
///
/// Plain data, at most 64 bytes: it lives in the mbuf's private area, on a cache line of its own that a packet on the
/// express way never touches. So a receive queue does not reset it: what a received packet has here is whatever its buffer
/// held before, until the input node ([`crate::nodes::EthInput`]) stores the default value. What is known from the
/// first moment on, the port and the trace id, is in [`crate::Packet`] itself. Allocated packets start with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Meta {
    /// Logical interface the packet came in by.
    pub rx_if: IfIndex,
    /// Logical interface the packet leaves by.
    pub tx_if: IfIndex,
    /// Port the packet leaves by.
    pub tx_port: PortId,
    /// Offset of the network-layer header from the first byte (14 for an untagged frame).
    pub l3: u16,
    /// Offset of the transport header (or of the first extension header not yet walked).
    pub l4: u16,
    /// Ethertype of what lies at [`l3`](Self::l3), host byte order.
    pub ethertype: u16,
    /// See [`flags`].
    pub flags: u16,
    /// VLAN tag control information of the outer tag, host byte order (valid with [`flags::VLAN`]).
    pub vlan_tci: u16,
    /// VLAN tag control information of the inner tag, host byte order (valid with [`flags::QINQ`]).
    pub inner_tci: u16,
    /// Why an ICMP error is wanted, as `type << 8 | code`.
    pub icmp: u16,
    /// MTU to report in an ICMP error.
    pub mtu: u16,
    /// The next hop the lookup resolved to: index of an adjacency.
    pub adjacency: u32,
    /// Flow hash over the 5-tuple (valid with [`flags::HASH`]).
    pub hash: u32,
    /// VRF of the interface it came in by: whose routes it follows.
    pub vrf: VrfId,
    /// VRF in whose table its way was found, where that is not by an adjacency: another than [`vrf`](Self::vrf) where
    /// routes lead from one table to another.
    pub found_in: VrfId,
    /// Free for the product whose graph this is.
    pub user: u32,
}

/// Bits of [`Meta::flags`].
pub mod flags {
    /// An 802.1Q tag was present; see [`super::Meta::vlan_tci`].
    pub const VLAN: u16 = 1 << 0;
    /// A second tag was present; see [`super::Meta::inner_tci`].
    pub const QINQ: u16 = 1 << 1;
    /// [`super::Meta::hash`] is filled in.
    pub const HASH: u16 = 1 << 2;
    /// The frame was addressed to all or to a group at the link layer: no ICMP error may answer it (RFC 1122 3.2.2).
    pub const L2_MULTICAST: u16 = 1 << 3;
    /// Made here, or a received packet turned into an answer: it leaves with the TTL it has, and no ICMP error is
    /// sent about it.
    pub const GENERATED: u16 = 1 << 4;
    /// The interface it came in by asks for [validation](crate::policy::SourceValidation) of its source address.
    pub const CHECK_SOURCE: u16 = 1 << 5;
    /// The interface it came in by wants senders to be told of better ways ([redirects](crate::policy::IpPolicy)).
    pub const REDIRECTS: u16 = 1 << 6;
    /// An access list refused it, and the ICMP error that is due says so.
    pub const FILTERED: u16 = 1 << 7;
}

const _: () = assert!(size_of::<Meta>() <= 64);

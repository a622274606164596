//! What workers tell control, and what control asks of workers.
//!
//! Both travel through bounded queues that the engine makes; a full queue is counted and what did not fit is lost,
//! which neighbour resolution survives: it asks again. Small `Copy` values, so that queues need no allocation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_pipeline::IfIndex;

use crate::acl::AclHit;

/// Something a worker saw that concerns control: the neighbour table, mostly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterEvent {
    /// A packet waits (or would have waited) for this neighbour: resolve it. Sent once when a packet begins to wait,
    /// not for each packet that joins, and again every second it waits on.
    Unresolved {
        /// Where the neighbour should be.
        interface: IfIndex,
        /// Its address: the gateway, or the destination itself in a network on the link.
        address: IpAddr,
        /// A worker has asked for it just now: the next question is due in a second.
        asked: bool,
    },
    /// A rule of an access list that samples what it matches.
    AclHit(AclHit),
    /// A well-formed ARP packet (RFC 826).
    ArpSeen {
        /// Where it came in.
        interface: IfIndex,
        /// Sender protocol address.
        address: Ipv4Addr,
        /// Sender hardware address.
        mac: [u8; 6],
        /// What kind it was.
        kind: ArpKind,
    },
    /// A valid neighbour solicitation (RFC 4861 7.1.1) that names a link-layer address, or an advertisement (7.1.2).
    NdSeen {
        /// Where it came in.
        interface: IfIndex,
        /// Solicitation: its source address. Advertisement: its target address.
        address: Ipv6Addr,
        /// The source (target) link-layer address option. An advertisement without one confirms what is known and
        /// tells no address (RFC 4861 7.2.5).
        mac: Option<[u8; 6]>,
        /// What kind it was.
        kind: NdKind,
    },
}

/// Kinds of ARP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpKind {
    /// A request for one of this router's addresses: its sender will want to hear from us (RFC 826 merges and adds it,
    /// where the sender can be a neighbour there).
    RequestForUs,
    /// A reply addressed to us.
    Reply,
    /// Sender and target address are the same: an announcement. Updates what is known, adds nothing.
    Gratuitous,
    /// Anything else: updates what is known, adds nothing.
    Other,
}

/// Kinds of neighbour-discovery messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdKind {
    /// A solicitation for one of the receiving interface's addresses.
    Solicitation,
    /// An advertisement with its flags (RFC 4861 4.4).
    Advertisement {
        /// It answers a solicitation of ours.
        solicited: bool,
        /// It replaces a link-layer address already known.
        overrides: bool,
    },
}

/// Ask for a neighbour: control hands it to one worker, which sends an ARP request or a neighbour solicitation from
/// [`source_ip4`](linerate_pipeline::Interface::source_ip4) or [`source_ip6`](linerate_pipeline::Interface::source_ip6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// By which interface.
    pub interface: IfIndex,
    /// Whom to ask for.
    pub address: IpAddr,
    /// To this station only (checking that a known neighbour is still there); `None`: broadcast, or the
    /// solicited-node group.
    pub unicast: Option<[u8; 6]>,
}

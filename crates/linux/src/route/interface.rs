//! Interfaces, their addresses and neighbours as netlink describes them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An interface of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name; empty where the message has none.
    pub name: String,
    /// Its Ethernet address; `None`: it has none.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// An administrator has set it up.
    pub up: bool,
    /// It has carrier.
    pub carrier: bool,
    /// It carries frames (`IFF_RUNNING`): up, with a carrier, and what it is joined to lets frames through.
    pub running: bool,
    /// It is the loopback.
    pub loopback: bool,
    /// Index of the bridge, bond or VRF that it is a member of.
    pub master: Option<u32>,
    /// Index of the interface below (of a VLAN, a tunnel) or of the peer (veth), which may be in another namespace.
    pub parent: Option<u32>,
    /// What it is.
    pub detail: LinkDetail,
}

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkDetail {
    /// No kind: hardware, loopback.
    Plain,
    /// A VLAN subinterface.
    Vlan {
        /// VLAN id.
        id: u16,
        /// Ethertype of the tag: 0x8100 or 0x88a8.
        ethertype: u16,
    },
    /// A VRF.
    Vrf {
        /// Its table.
        table: u32,
    },
    /// Another kind, by its name (`tun`, `veth`, `bridge`, `bond`).
    Other(String),
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface's index.
    pub interface: u32,
    /// The host's own address with the length of the connected prefix.
    pub address: IpNet,
    /// The other end of a point-to-point address; the connected prefix is then the peer's.
    pub peer: Option<IpAddr>,
    /// Duplicate address detection is under way: not to be used yet.
    pub tentative: bool,
    /// Another host has it: not to be used.
    pub duplicate: bool,
    /// Not the first of its prefix (IPv4), or temporary (IPv6).
    pub secondary: bool,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The interface's index.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address where known.
    pub mac: Option<Mac>,
    /// How far resolution is.
    pub state: NeighborState,
    /// It says that it is a router (ND).
    pub router: bool,
    /// An address that this host answers for, not a neighbour (`NTF_PROXY`).
    pub proxy: bool,
    /// Learned by another program (`NTF_EXT_LEARNED`).
    pub external: bool,
}

/// How far a neighbour's resolution is (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeighborState {
    /// No state.
    None,
    /// Asked, no answer yet.
    Incomplete,
    /// Answered lately.
    Reachable,
    /// Answered once; to be checked when used.
    Stale,
    /// Used; about to be checked.
    Delay,
    /// Being checked.
    Probe,
    /// Did not answer: not to be used.
    Failed,
    /// Needs no resolution.
    NoArp,
    /// Set by hand.
    Permanent,
}

impl NeighborState {
    /// Whether packets may be sent to the Ethernet address.
    pub fn usable(self) -> bool {
        !matches!(self, NeighborState::None | NeighborState::Incomplete | NeighborState::Failed)
    }
}

impl From<u16> for NeighborState {
    /// The bit that is set; of several, the one that says most.
    fn from(bits: u16) -> Self {
        const BITS: [(u16, NeighborState); 8] = [
            (0x80, NeighborState::Permanent),
            (0x40, NeighborState::NoArp),
            (0x02, NeighborState::Reachable),
            (0x10, NeighborState::Probe),
            (0x08, NeighborState::Delay),
            (0x04, NeighborState::Stale),
            (0x20, NeighborState::Failed),
            (0x01, NeighborState::Incomplete),
        ];
        BITS.into_iter().find(|(bit, _)| bits & bit != 0).map_or(NeighborState::None, |(_, state)| state)
    }
}

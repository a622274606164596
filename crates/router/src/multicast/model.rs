//! Multicast routes as control sees them.

use std::fmt;
use std::net::IpAddr;

use linerate_pipeline::{IfIndex, InterfaceTable, VRF_DEFAULT, VrfId};

/// What a multicast route is for: a group, and one source or all, of what comes in by interfaces of one VRF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MrouteKey {
    /// The VRF of the interfaces that packets come in by.
    pub vrf: VrfId,
    /// The group.
    pub group: IpAddr,
    /// The sender; `None`: any that has no route of its own for the group.
    pub source: Option<IpAddr>,
}

/// What becomes of the packets of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mroute {
    /// The interface they must come in by: what comes in elsewhere is a copy that went round (RPF check).
    pub input: IfIndex,
    /// Where they go. Empty: nowhere, they are dropped without asking anybody.
    pub outputs: Vec<MrouteOutput>,
    /// The router itself wants them too: a member here, or a register tunnel (RFC 7761 4.4) of the host system's.
    pub to_host: bool,
}

/// An output of a multicast route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MrouteOutput {
    /// The interface.
    pub interface: IfIndex,
    /// Packets must come in with a TTL (hop limit) above this.
    pub threshold: u8,
}

/// Who wants a multicast route. A configured one wins over a learned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MrouteOrigin {
    /// The configuration.
    Static,
    /// A routing daemon, through the host system.
    Learned,
}

impl MrouteOrigin {
    /// Its name in views.
    pub fn name(self) -> &'static str {
        match self {
            MrouteOrigin::Static => "static",
            MrouteOrigin::Learned => "learned",
        }
    }
}

/// A multicast route in use, with what it counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrouteView {
    /// What it is for.
    pub key: MrouteKey,
    /// Who made it.
    pub origin: MrouteOrigin,
    /// What it does.
    pub route: Mroute,
    /// Packets that came in by the right interface.
    pub packets: u64,
    /// Their bytes of layer 3.
    pub bytes: u64,
    /// Packets that came in by another interface.
    pub wrong_interface: u64,
    /// When the last of either came, in nanoseconds of the workers' clock; `None`: never.
    pub last_used: Option<u64>,
}

/// Why a multicast route cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MrouteError {
    /// Not a multicast address.
    #[error("{0} is no multicast group: IPv4 groups are in 224.0.0.0/4, IPv6 groups in ff00::/8")]
    NoGroup(IpAddr),
    /// A group that no router forwards.
    #[error(
        "{0} is never forwarded: packets to it stay on their link (224.0.0.0/24, and ff00::/8 of scope 0 to 2)"
    )]
    StaysOnLink(IpAddr),
    /// The source can be no sender.
    #[error(
        "{0} cannot be the source of a multicast stream: expected a unicast address that is not link-local"
    )]
    NoSource(IpAddr),
    /// One is IPv4, the other IPv6.
    #[error("source {0} and group {1} are of different address families")]
    Families(IpAddr, IpAddr),
    /// An interface index that does not exist.
    #[error("multicast route {key} names interface number {interface}, which does not exist")]
    NoInterface {
        /// The route.
        key: MrouteKey,
        /// The index.
        interface: IfIndex,
    },
    /// The input is in another VRF than the route.
    #[error("multicast route {key}: its input is the interface \"{interface}\", which is in VRF {vrf}")]
    OtherVrf {
        /// The route.
        key: MrouteKey,
        /// The input's name.
        interface: String,
        /// The VRF of the input.
        vrf: VrfId,
    },
}

impl fmt::Display for MrouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(f, "({source}, {})", self.group)?,
            None => write!(f, "(*, {})", self.group)?,
        }
        match self.vrf {
            VRF_DEFAULT => Ok(()),
            vrf => write!(f, " of VRF {vrf}"),
        }
    }
}

impl MrouteKey {
    /// Whether there can be such a stream to forward.
    pub fn check(&self) -> Result<(), MrouteError> {
        if !self.group.is_multicast() {
            return Err(MrouteError::NoGroup(self.group));
        }
        let stays = match self.group {
            IpAddr::V4(g) => matches!(g.octets(), [224, 0, 0, _]),
            IpAddr::V6(g) => g.octets()[1] & 0xf <= 2,
        };
        if stays {
            return Err(MrouteError::StaysOnLink(self.group));
        }
        let Some(source) = self.source else { return Ok(()) };
        let is_sender = match source {
            IpAddr::V4(s) => !linerate_wire::ip4::is_martian_source(s.to_bits()),
            IpAddr::V6(s) => {
                !(s.is_multicast() || s.is_unspecified() || s.is_loopback() || s.is_unicast_link_local())
            }
        };
        match (source.is_ipv4() == self.group.is_ipv4(), is_sender) {
            (false, _) => Err(MrouteError::Families(source, self.group)),
            (true, false) => Err(MrouteError::NoSource(source)),
            (true, true) => Ok(()),
        }
    }
}

impl Mroute {
    /// Whether all its interfaces exist, the input in the VRF of the route. Outputs may be in any.
    pub(super) fn check(&self, key: MrouteKey, table: &InterfaceTable) -> Result<(), MrouteError> {
        let mut all = std::iter::once(self.input).chain(self.outputs.iter().map(|o| o.interface));
        if let Some(interface) = all.find(|i| table.get(*i).is_none()) {
            return Err(MrouteError::NoInterface { key, interface });
        }
        match table.get(self.input).filter(|i| i.vrf != key.vrf) {
            Some(i) => Err(MrouteError::OtherVrf { key, interface: i.name.clone(), vrf: i.vrf }),
            None => Ok(()),
        }
    }

    /// The same, each output once, with the lowest of its thresholds, in order of interfaces.
    pub(super) fn canonical(mut self) -> Self {
        self.outputs.sort_unstable();
        self.outputs.dedup_by_key(|o| o.interface);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_nobody_forwards_are_refused_with_a_sentence() {
        let key = |source: &str, group: &str| MrouteKey {
            vrf: 0,
            group: group.parse().unwrap(),
            source: (source != "*").then(|| source.parse().unwrap()),
        };
        for (source, group) in [
            ("10.0.0.1", "232.1.1.1"),
            ("*", "224.0.1.0"),
            ("2001:db8::1", "ff3e::1"),
            ("*", "ff05::2"),
            ("fd00::1", "ff08::1"),
        ] {
            assert_eq!(key(source, group).check(), Ok(()), "{source} {group}");
        }
        for (source, group, text) in [
            ("*", "10.0.0.1", "10.0.0.1 is no multicast group"),
            ("*", "2001:db8::1", "2001:db8::1 is no multicast group"),
            ("*", "224.0.0.251", "224.0.0.251 is never forwarded"),
            ("*", "ff02::1", "ff02::1 is never forwarded"),
            ("*", "ff31::1", "ff31::1 is never forwarded"),
            ("224.1.1.1", "239.1.1.1", "224.1.1.1 cannot be the source"),
            ("0.0.0.0", "239.1.1.1", "0.0.0.0 cannot be the source"),
            ("fe80::1", "ff3e::1", "fe80::1 cannot be the source"),
            ("10.0.0.1", "ff3e::1", "source 10.0.0.1 and group ff3e::1 are of different address families"),
        ] {
            let error = key(source, group).check().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(key("10.0.0.1", "232.1.1.1").to_string(), "(10.0.0.1, 232.1.1.1)");
        assert_eq!(key("*", "ff05::2").to_string(), "(*, ff05::2)");
        assert_eq!(MrouteKey { vrf: 7, ..key("*", "ff05::2") }.to_string(), "(*, ff05::2) of VRF 7");
    }

    #[test]
    fn outputs_are_sorted_and_each_stands_once() {
        let output = |(interface, threshold)| MrouteOutput { interface, threshold };
        let outputs = [(5, 1), (2, 9), (5, 0), (2, 3)].map(output).to_vec();
        let route = Mroute { input: 0, outputs, to_host: false }.canonical();
        assert_eq!(route.outputs, [(2, 3), (5, 0)].map(output));
    }
}

//! Logical interfaces: what a port, a VLAN on a port, or an inner VLAN of a double-tagged port is to the layers above.
//!
//! The table is an immutable snapshot ([`linerate_tables::snapshot`]): control builds a new one on every change,
//! nodes take the current one once per batch. An untagged frame finds its interface with one array load, a tagged one
//! with two, a double-tagged one with a binary search.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linerate_tables::snapshot::Snapshot;

use crate::addresses::Addresses;
use crate::counters::MAX_PORTS;
use crate::meta::IF_NONE;
use crate::policy::{IpPolicy, VRF_DEFAULT, VrfId};
use crate::{IfIndex, PortId};

pub use crate::addresses::OwnFilter;

/// The highest VLAN id that an interface can have (IEEE 802.1Q 9.6: 4095 is reserved, 0 means "no VLAN").
pub const MAX_VLAN: u16 = 4094;

/// The most interfaces in one table.
pub const MAX_INTERFACES: usize = 16_384;

/// A node's handle on the current table.
pub type Interfaces = Snapshot<InterfaceTable>;

/// One logical interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name in configuration and views.
    pub name: String,
    /// The port that carries it.
    pub port: PortId,
    /// VLAN id of the (outer) tag, 1 to [`MAX_VLAN`]; `None`: untagged frames.
    pub vlan: Option<u16>,
    /// VLAN id of the inner tag of double-tagged frames; needs [`vlan`](Self::vlan).
    pub inner_vlan: Option<u16>,
    /// Its MAC address: the source of what it sends, and what it accepts besides groups.
    pub mac: [u8; 6],
    /// Largest layer-3 packet in bytes.
    pub mtu: u16,
    /// Administratively up, and the port has link.
    pub up: bool,
    /// IPv4 addresses with their networks, in configuration order.
    pub ip4: Vec<Ipv4Net>,
    /// IPv6 addresses with their networks, in configuration order; [`link_local`](Self::link_local) not among them
    /// unless configured.
    pub ip6: Vec<Ipv6Net>,
    /// The link-local address: the first configured one, else the one made of the MAC address (RFC 4291 app. A).
    pub link_local: Ipv6Addr,
    /// The VRF it belongs to: whose routes what comes in by it follows, and whose its own networks are.
    pub vrf: VrfId,
    /// What the operator decided about IP here.
    pub policy: IpPolicy,
    /// Virtual routers that this one is the master of here (RFC 5798).
    pub virtuals: Vec<VirtualMac>,
}

/// The MAC address of a virtual router, accepted besides the interface's own, and the addresses that are answered for with
/// it. They are among the interface's addresses as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualMac {
    /// The MAC address.
    pub mac: [u8; 6],
    /// The virtual router's addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// An interface that is up, with the link-local address derived as [`Interface::link_local`] says.
    pub fn new(name: &str, port: PortId, mac: [u8; 6], mtu: u16, addresses: &[IpNet]) -> Self {
        let ip4 =
            addresses.iter().filter_map(|a| if let IpNet::V4(a) = a { Some(*a) } else { None }).collect();
        let ip6: Vec<Ipv6Net> =
            addresses.iter().filter_map(|a| if let IpNet::V6(a) = a { Some(*a) } else { None }).collect();
        let configured = ip6.iter().map(Ipv6Net::addr).find(|a| a.is_unicast_link_local());
        Interface {
            name: name.into(),
            port,
            vlan: None,
            inner_vlan: None,
            mac,
            mtu,
            up: true,
            ip4,
            ip6,
            link_local: configured.unwrap_or_else(|| link_local_of(mac)),
            vrf: VRF_DEFAULT,
            policy: IpPolicy::default(),
            virtuals: Vec::new(),
        }
    }

    /// Length of its Ethernet header with tags: 14, 18 or 22.
    pub fn header_len(&self) -> usize {
        14 + 4 * (usize::from(self.vlan.is_some()) + usize::from(self.inner_vlan.is_some()))
    }

    /// Whether `addr` is one of its own addresses.
    pub fn owns_ip4(&self, addr: Ipv4Addr) -> bool {
        self.ip4.iter().any(|n| n.addr() == addr)
    }

    /// Whether `addr` is one of its own addresses, the link-local one included.
    pub fn owns_ip6(&self, addr: Ipv6Addr) -> bool {
        addr == self.link_local || self.ip6.iter().any(|n| n.addr() == addr)
    }

    /// Whether `addr` is one of its own addresses.
    pub fn owns(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(a) => self.owns_ip4(a),
            IpAddr::V6(a) => self.owns_ip6(a),
        }
    }

    /// Whether frames to this MAC address are for the interface.
    pub fn accepts(&self, mac: [u8; 6]) -> bool {
        mac == self.mac || self.virtuals.iter().any(|v| v.mac == mac)
    }

    /// The MAC address that one of its addresses is answered for with.
    pub fn mac_of(&self, addr: IpAddr) -> [u8; 6] {
        self.virtuals.iter().find(|v| v.addresses.contains(&addr)).map_or(self.mac, |v| v.mac)
    }

    /// Whether `addr` lies in one of its IPv4 networks.
    pub fn on_link_ip4(&self, addr: Ipv4Addr) -> bool {
        self.ip4.iter().any(|n| n.contains(&addr))
    }

    /// Whether `addr` lies in one of its IPv6 networks or is link-local.
    pub fn on_link_ip6(&self, addr: Ipv6Addr) -> bool {
        addr.is_unicast_link_local() || self.ip6.iter().any(|n| n.contains(&addr))
    }

    /// Whether `addr` is the directed broadcast address of one of its networks (none for /31 and /32, RFC 3021).
    pub fn is_broadcast_ip4(&self, addr: Ipv4Addr) -> bool {
        self.ip4.iter().any(|n| n.prefix_len() < 31 && n.broadcast() == addr)
    }

    /// The address to speak to `to` with: one of a network that contains it, else the first. `None` without any.
    pub fn source_ip4(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        self.ip4.iter().find(|n| n.contains(&to)).or(self.ip4.first()).map(Ipv4Net::addr)
    }

    /// The address to speak to `to` with: for link-local destinations the link-local address, else one of a network
    /// that contains it, else the first global one, else the link-local one (RFC 6724 rules 2 and 8).
    pub fn source_ip6(&self, to: Ipv6Addr) -> Ipv6Addr {
        if to.is_unicast_link_local() {
            return self.link_local;
        }
        let global = || self.ip6.iter().filter(|n| !n.addr().is_unicast_link_local());
        global().find(|n| n.contains(&to)).or_else(|| global().next()).map_or(self.link_local, Ipv6Net::addr)
    }
}

/// The link-local address made of a MAC address by the modified EUI-64 rule (RFC 4291 appendix A).
pub fn link_local_of(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(id))
}

/// All interfaces at one moment.
#[derive(Clone, Debug)]
pub struct InterfaceTable {
    interfaces: Vec<Option<Interface>>,
    untagged: [IfIndex; MAX_PORTS],
    vlans: [Option<Box<[IfIndex; 4096]>>; MAX_PORTS],
    /// Sorted by (port, outer, inner).
    double: Vec<((PortId, u16, u16), IfIndex)>,
    /// The router's own addresses.
    addresses: Addresses,
}

impl Default for InterfaceTable {
    fn default() -> Self {
        InterfaceTable {
            interfaces: Vec::new(),
            untagged: [IF_NONE; MAX_PORTS],
            vlans: std::array::from_fn(|_| None),
            double: Vec::new(),
            addresses: Addresses::default(),
        }
    }
}

impl InterfaceTable {
    /// A table of these interfaces. Indices need not be dense; a gap is an interface that does not exist.
    pub fn build(interfaces: impl IntoIterator<Item = (IfIndex, Interface)>) -> Result<Self, InterfaceError> {
        let mut table = InterfaceTable::default();
        for (index, interface) in interfaces {
            table.add(index, interface)?;
        }
        table.double.sort_unstable();
        if let Some(w) = table.double.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(table.conflict(w[0].1, w[1].1));
        }
        table.addresses = Addresses::of(table.iter());
        Ok(table)
    }

    fn add(&mut self, index: IfIndex, interface: Interface) -> Result<(), InterfaceError> {
        let (at, port) = (usize::from(index), usize::from(interface.port));
        if at >= MAX_INTERFACES {
            return Err(InterfaceError::TooMany { name: interface.name, most: MAX_INTERFACES });
        }
        if port >= MAX_PORTS {
            return Err(InterfaceError::NoSuchPort {
                name: interface.name,
                port: interface.port,
                most: MAX_PORTS,
            });
        }
        for vlan in [interface.vlan, interface.inner_vlan].into_iter().flatten() {
            if vlan == 0 || vlan > MAX_VLAN {
                return Err(InterfaceError::BadVlan { name: interface.name, vlan });
            }
        }
        let slot = match (interface.vlan, interface.inner_vlan) {
            (None, None) => Some(&mut self.untagged[port]),
            (Some(vlan), None) => {
                let vlans = self.vlans[port].get_or_insert_with(|| Box::new([IF_NONE; 4096]));
                Some(&mut vlans[usize::from(vlan)])
            }
            (Some(outer), Some(inner)) => {
                self.double.push(((interface.port, outer, inner), index));
                None
            }
            (None, Some(_)) => return Err(InterfaceError::InnerOnly { name: interface.name }),
        };
        let taken = slot.map_or(IF_NONE, |slot| std::mem::replace(slot, index));
        if self.interfaces.len() <= at {
            self.interfaces.resize(at + 1, None);
        }
        if let Some(old) = self.interfaces[at].replace(interface) {
            return Err(InterfaceError::SameIndex { index, one: old.name });
        }
        if taken != IF_NONE { Err(self.conflict(taken, index)) } else { Ok(()) }
    }

    fn conflict(&self, one: IfIndex, other: IfIndex) -> InterfaceError {
        let name = |i| self.get(i).map(|i| i.name.clone()).unwrap_or_default();
        InterfaceError::SameFrames { one: name(one), other: name(other) }
    }

    /// The interface of untagged (and priority-tagged) frames of a port; [`IF_NONE`] where there is none.
    #[inline(always)]
    pub fn untagged(&self, port: PortId) -> IfIndex {
        self.untagged.get(usize::from(port)).copied().unwrap_or(IF_NONE)
    }

    /// The interface of frames with one tag (the low 12 bits of `tci` count; VLAN 0 is a priority tag, which means
    /// untagged); [`IF_NONE`] where there is none.
    #[inline(always)]
    pub fn tagged(&self, port: PortId, tci: u16) -> IfIndex {
        let vlan = usize::from(tci & 0xfff);
        if vlan == 0 {
            return self.untagged(port);
        }
        match self.vlans.get(usize::from(port)) {
            Some(Some(vlans)) => vlans[vlan],
            _ => IF_NONE,
        }
    }

    /// The interface of frames with two tags; [`IF_NONE`] where there is none. An outer or inner VLAN 0 is a
    /// priority tag: the other tag alone decides.
    #[inline]
    pub fn double_tagged(&self, port: PortId, outer_tci: u16, inner_tci: u16) -> IfIndex {
        match (outer_tci & 0xfff, inner_tci & 0xfff) {
            (0, vlan) | (vlan, 0) => self.tagged(port, vlan),
            (outer, inner) => match self.double.binary_search_by_key(&(port, outer, inner), |d| d.0) {
                Ok(at) => self.double[at].1,
                Err(_) => IF_NONE,
            },
        }
    }

    /// An interface by index.
    #[inline(always)]
    pub fn get(&self, index: IfIndex) -> Option<&Interface> {
        self.interfaces.get(usize::from(index))?.as_ref()
    }

    /// Whether an address is this router's in a VRF, on whatever interface.
    pub fn owns_ip4(&self, vrf: VrfId, addr: Ipv4Addr) -> bool {
        self.addresses.owns4(vrf, addr)
    }

    /// Whether an address is this router's in a VRF, on whatever interface. Link-local addresses belong to their
    /// interface alone and are not asked for here.
    pub fn owns_ip6(&self, vrf: VrfId, addr: Ipv6Addr) -> bool {
        self.addresses.owns6(vrf, addr)
    }

    /// Whether an address is the first or last one of a network of a VRF's interfaces: a broadcast there (RFC 1812
    /// 5.3.5; none of /31 and /32, RFC 3021).
    pub fn is_broadcast_ip4(&self, vrf: VrfId, addr: Ipv4Addr) -> bool {
        self.addresses.broadcast4(vrf, addr).is_some()
    }

    /// The interface in one of whose networks an address is the first or last one.
    pub fn broadcast_interface(&self, vrf: VrfId, addr: Ipv4Addr) -> Option<(IfIndex, &Interface)> {
        let index = self.addresses.broadcast4(vrf, addr)?;
        Some((index, self.get(index)?))
    }

    /// A quick test for addresses of the router.
    #[inline(always)]
    pub fn own_filter(&self) -> OwnFilter<'_> {
        self.addresses.filter()
    }

    /// Some IPv4 address of this router in a VRF: what an interface without one speaks with (RFC 1812 5.2.2,
    /// unnumbered).
    pub fn any_ip4(&self, vrf: VrfId) -> Option<Ipv4Addr> {
        self.addresses.own4(vrf).next()
    }

    /// The address to speak to `to` with on an interface: its own ([`Interface::source_ip4`]), on one without any
    /// [another one](Self::any_ip4) of the router's in the same VRF. `None` where the router has no IPv4 address there.
    pub fn source_ip4(&self, interface: &Interface, to: Ipv4Addr) -> Option<Ipv4Addr> {
        interface.source_ip4(to).or_else(|| self.any_ip4(interface.vrf))
    }

    /// Whether an address is the router's as seen on an interface: one of the interface's own; on an unnumbered one,
    /// which has none, any address of the router in its VRF, for it speaks with those.
    pub fn answers_ip4(&self, interface: &Interface, addr: Ipv4Addr) -> bool {
        interface.owns_ip4(addr) || (interface.ip4.is_empty() && self.owns_ip4(interface.vrf, addr))
    }

    /// Some IPv6 address of this router in a VRF that is not link-local.
    pub fn any_ip6(&self, vrf: VrfId) -> Option<Ipv6Addr> {
        self.addresses.own6(vrf).find(|a| !a.is_unicast_link_local())
    }

    /// The address to send a packet to `to` with that answers something received by an interface, and may be routed:
    /// as [`Interface::source_ip6`], but never a link-local address for a packet that may leave the link (RFC 4291
    /// 2.5.6). `None` where the router has no address in the interface's VRF that reaches so far.
    pub fn source_ip6(&self, interface: &Interface, to: Ipv6Addr) -> Option<Ipv6Addr> {
        let own = interface.source_ip6(to);
        let reaches = to.is_unicast_link_local() || !own.is_unicast_link_local();
        if reaches { Some(own) } else { self.any_ip6(interface.vrf) }
    }

    /// An interface by name.
    pub fn by_name(&self, name: &str) -> Option<(IfIndex, &Interface)> {
        self.iter().find(|(_, i)| i.name == name)
    }

    /// All interfaces in order of index.
    pub fn iter(&self) -> impl Iterator<Item = (IfIndex, &Interface)> {
        self.interfaces.iter().enumerate().filter_map(|(at, i)| Some((at as IfIndex, i.as_ref()?)))
    }
}

/// Why interfaces cannot stand in one table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceError {
    /// The index space is used up.
    #[error("interface {name} is one too many: {most} is the most a router can have")]
    TooMany {
        /// The interface.
        name: String,
        /// The limit.
        most: usize,
    },
    /// The port id is beyond the table.
    #[error("interface {name} names port number {port}, but ports are numbered 0 to {}", most - 1)]
    NoSuchPort {
        /// The interface.
        name: String,
        /// Its port.
        port: PortId,
        /// Number of ports there can be.
        most: usize,
    },
    /// A VLAN id outside 1 to 4094.
    #[error("interface {name} has VLAN {vlan}; VLAN ids go from 1 to 4094")]
    BadVlan {
        /// The interface.
        name: String,
        /// The VLAN id.
        vlan: u16,
    },
    /// An inner VLAN without an outer one.
    #[error("interface {name} has an inner VLAN but no outer one")]
    InnerOnly {
        /// The interface.
        name: String,
    },
    /// Two interfaces want the same frames.
    #[error("interfaces {one} and {other} have the same port and VLANs, so a frame could belong to either")]
    SameFrames {
        /// One of them.
        one: String,
        /// The other.
        other: String,
    },
    /// Two interfaces with the same index.
    #[error("interface index {index} is given to {one} and to another interface")]
    SameIndex {
        /// The index.
        index: IfIndex,
        /// The interface that has it.
        one: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, port: PortId, vlan: Option<u16>, inner_vlan: Option<u16>) -> Interface {
        let mac = [2, 0, 0, 0, 0, port as u8];
        Interface { vlan, inner_vlan, ..Interface::new(name, port, mac, 1500, &[]) }
    }

    #[test]
    fn frames_find_their_interface_by_port_and_tags() {
        let table = InterfaceTable::build([
            (0, interface("a", 0, None, None)),
            (1, interface("a.7", 0, Some(7), None)),
            (5, interface("b.7", 1, Some(7), None)),
            (2, interface("a.7.9", 0, Some(7), Some(9))),
            (3, interface("a.7.8", 0, Some(7), Some(8))),
        ])
        .unwrap();
        assert_eq!([table.untagged(0), table.untagged(1), table.untagged(99)], [0, IF_NONE, IF_NONE]);
        assert_eq!(
            [table.tagged(0, 0xe007), table.tagged(1, 7), table.tagged(0, 8), table.tagged(2, 7)],
            [1, 5, IF_NONE, IF_NONE]
        );
        assert_eq!(table.tagged(0, 0xe000), 0, "a priority tag is no VLAN");
        assert_eq!(table.double_tagged(0, 7, 9), 2);
        assert_eq!(table.double_tagged(0, 9, 7), IF_NONE, "outer stays outer");
        assert_eq!(table.double_tagged(0, 7, 0), 1);
        assert_eq!(table.double_tagged(0, 0, 0), 0);
        assert!(table.get(4).is_none() && table.get(600).is_none());
        assert_eq!(table.by_name("b.7").map(|(i, _)| i), Some(5));
        assert_eq!(table.get(2).map(Interface::header_len), Some(22));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused_by_name() {
        let refused = |a, b| InterfaceTable::build([(0, a), (1, b)]).unwrap_err();
        let same = InterfaceError::SameFrames { one: "x".into(), other: "y".into() };
        assert_eq!(refused(interface("x", 3, None, None), interface("y", 3, None, None)), same);
        assert_eq!(refused(interface("x", 3, Some(4), None), interface("y", 3, Some(4), None)), same);
        assert_eq!(refused(interface("x", 3, Some(4), Some(1)), interface("y", 3, Some(4), Some(1))), same);
        let alone = |i| InterfaceTable::build([(0, i)]).unwrap_err();
        assert!(matches!(
            alone(interface("x", 0, Some(4095), None)),
            InterfaceError::BadVlan { vlan: 4095, .. }
        ));
        assert!(matches!(alone(interface("x", 0, Some(0), None)), InterfaceError::BadVlan { vlan: 0, .. }));
        assert!(matches!(alone(interface("x", 0, None, Some(4))), InterfaceError::InnerOnly { .. }));
        assert!(matches!(alone(interface("x", 32, None, None)), InterfaceError::NoSuchPort { .. }));
    }

    #[test]
    fn an_interface_without_addresses_speaks_with_another_ones() {
        let nets = ["10.0.0.1/24", "2001:db8::1/64", "fe80::1/64"].map(|a| a.parse().unwrap());
        let (lan, bare) = (Interface::new("lan", 0, [2; 6], 1500, &nets), interface("bare", 1, None, None));
        let table = InterfaceTable::build([(0, lan.clone()), (1, bare.clone())]).unwrap();
        let (far4, far6, near6) =
            (Ipv4Addr::new(8, 8, 8, 8), "2001:db9::1".parse().unwrap(), "fe80::9".parse().unwrap());
        let (one4, one6): (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 0, 0, 1), "2001:db8::1".parse().unwrap());
        for i in [&lan, &bare] {
            assert_eq!((table.source_ip4(i, far4), table.source_ip6(i, far6)), (Some(one4), Some(one6)));
            assert_eq!(table.source_ip6(i, near6), Some(i.link_local));
            assert!(table.answers_ip4(i, one4) && !table.answers_ip4(i, far4));
        }
        let table = InterfaceTable::build([(1, bare.clone())]).unwrap();
        assert_eq!((table.source_ip4(&bare, far4), table.source_ip6(&bare, far6)), (None, None));
        let other = Interface::new("other", 2, [2; 6], 1500, &["10.0.2.1/24".parse().unwrap()]);
        let table = InterfaceTable::build([(0, lan), (2, other.clone())]).unwrap();
        assert!(!table.answers_ip4(&other, one4), "it has an address of its own");
    }

    #[test]
    fn addresses_answer_for_their_networks() {
        let nets =
            ["10.0.0.1/24", "10.1.0.0/31", "2001:db8::1/64", "10.2.0.1/32"].map(|a| a.parse().unwrap());
        let i = Interface::new("lan", 0, [0x52, 0x54, 0, 1, 2, 3], 1500, &nets);
        assert_eq!(i.link_local, "fe80::5054:ff:fe01:203".parse::<Ipv6Addr>().unwrap());
        assert!(i.owns("10.0.0.1".parse().unwrap()) && !i.owns("10.0.0.2".parse().unwrap()));
        assert!(i.owns(i.link_local.into()) && i.owns("2001:db8::1".parse().unwrap()));
        assert!(i.is_broadcast_ip4(Ipv4Addr::new(10, 0, 0, 255)));
        assert!(
            !i.is_broadcast_ip4(Ipv4Addr::new(10, 1, 0, 1))
                && !i.is_broadcast_ip4(Ipv4Addr::new(10, 2, 0, 1))
        );
        assert_eq!(i.source_ip4(Ipv4Addr::new(10, 1, 0, 1)), Some(Ipv4Addr::new(10, 1, 0, 0)));
        assert_eq!(i.source_ip4(Ipv4Addr::new(8, 8, 8, 8)), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(i.source_ip6("fe80::9".parse().unwrap()), i.link_local);
        assert_eq!(i.source_ip6("2001:db9::9".parse().unwrap()), "2001:db8::1".parse::<Ipv6Addr>().unwrap());
    }
}

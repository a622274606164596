//! What the router is told: routes, their actions, static neighbours; and how it refuses.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::interface::InterfaceError;
use linerate_pipeline::policy::MAX_VRFS;
use linerate_pipeline::{IfIndex, Interface, VrfId};
use linerate_tables::fib::FibError;

use crate::plane::{MAX_GROUP_MEMBERS, PlaneError};

/// Greatest weight of a path.
pub const MAX_WEIGHT: u16 = 256;

/// Who contributed a route, in order of preference: of several routes for one prefix the first of these forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Source {
    /// The router's own addresses.
    Local = 0,
    /// The networks of its interfaces.
    Connected = 1,
    /// Configuration and RIB files.
    Static = 2,
    /// Linux: what an operator or a program put into the kernel's table.
    Kernel = 3,
    /// A routing daemon, over FPM.
    Learned = 4,
    /// Host routes of resolved neighbours in connected networks.
    Neighbor = 5,
}

impl Source {
    /// All, most preferred first.
    pub const ALL: [Source; 6] =
        [Source::Local, Source::Connected, Source::Static, Source::Kernel, Source::Learned, Source::Neighbor];

    /// As views show it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Local => "local",
            Source::Connected => "connected",
            Source::Static => "static",
            Source::Kernel => "kernel",
            Source::Learned => "learned",
            Source::Neighbor => "neighbor",
        }
    }
}

/// What a route does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteAction {
    /// Sends it along one of these paths, by flow hash and weight. Paths that cannot be used at the moment (interface
    /// down, gateway without route or silent) are left out; with none left the packet is answered with ICMP "host
    /// unreachable".
    Forward(Vec<Path>),
    /// Discards it silently.
    Blackhole,
    /// Discards it with ICMP "administratively prohibited".
    Prohibit,
    /// Discards it with ICMP "host unreachable".
    Unreachable,
    /// It is for this system itself: an address that no interface of the router has (a loopback address).
    Local,
}

impl RouteAction {
    /// One path by a gateway, found by its own route.
    pub fn via(gateway: IpAddr) -> Self {
        RouteAction::Forward(vec![Path::via(gateway)])
    }

    /// Whether the router can take it as the action of a route for `prefix`; `exists` says which interfaces there are.
    pub fn check(&self, prefix: IpNet, exists: impl Fn(IfIndex) -> bool) -> Result<(), RouterError> {
        let RouteAction::Forward(paths) = self else { return Ok(()) };
        if paths.is_empty() {
            return Err(RouterError::NoPaths { prefix });
        }
        if paths.len() > MAX_GROUP_MEMBERS {
            return Err(PlaneError::TooManyMembers(paths.len()).into());
        }
        for path in paths {
            if !(1..=MAX_WEIGHT).contains(&path.weight) {
                return Err(RouterError::BadWeight { prefix, weight: path.weight });
            }
            if let Some(interface) = path.interface.filter(|i| !exists(*i)) {
                return Err(RouterError::NoInterface { prefix, interface });
            }
            if let (Some(vrf), Some(_)) = (path.vrf, path.interface) {
                return Err(RouterError::VrfAndInterface { prefix, vrf });
            }
            if let Some(vrf) = path.vrf.filter(|v| usize::from(*v) >= MAX_VRFS) {
                return Err(RouterError::VrfNumber { vrf });
            }
            match path.gateway {
                None if path.interface.is_none() && path.vrf.is_none() => {
                    return Err(RouterError::EmptyPath { prefix });
                }
                None => {}
                Some(gateway) => check_gateway(prefix, gateway, path.interface.is_some())?,
            }
        }
        Ok(())
    }

    /// Whether it has paths by an interface alone: the destinations themselves are on those links.
    pub(crate) fn has_links(&self) -> bool {
        matches!(self, RouteAction::Forward(paths) if paths.iter().any(|p| p.gateway.is_none() && p.interface.is_some()))
    }

    /// The action of a route for `prefix` in a VRF, in the one form that all its spellings share, whatever VRF they are in:
    /// paths sorted, equal ones merged, weights without common factor, and a VRF named wherever it decides where a path
    /// leads. On a link where a route to a single host ends the host is its own gateway: a
    /// host route of its neighbour would be the same prefix once more.
    pub(crate) fn canonical(&self, vrf: VrfId, prefix: IpNet) -> RouteAction {
        let RouteAction::Forward(paths) = self else { return self.clone() };
        let mut paths = paths.clone();
        let host = prefix.addr();
        if prefix.prefix_len() == prefix.max_prefix_len() && check_gateway(prefix, host, true).is_ok() {
            for path in paths.iter_mut().filter(|p| p.interface.is_some()) {
                path.gateway.get_or_insert(host);
            }
        }
        // An interface alone puts destinations on its link only where the route is of its own VRF; see `follow_path`.
        for path in paths.iter_mut().filter(|p| p.gateway.is_none() || p.interface.is_none()) {
            path.vrf.get_or_insert(vrf);
        }
        paths.sort_by_key(|p| (p.gateway, p.interface, p.vrf));
        paths.dedup_by(|b, a| {
            let same = (a.gateway, a.interface, a.vrf) == (b.gateway, b.interface, b.vrf);
            if same {
                a.weight = a.weight.saturating_add(b.weight).min(MAX_WEIGHT);
            }
            same
        });
        let divisor = paths.iter().fold(0, |d, p| gcd(d, p.weight)).max(1);
        paths.iter_mut().for_each(|p| p.weight /= divisor);
        RouteAction::Forward(paths)
    }
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn check_gateway(prefix: IpNet, gateway: IpAddr, has_interface: bool) -> Result<(), RouterError> {
    let impossible = gateway.is_multicast()
        || gateway.is_unspecified()
        || gateway.is_loopback()
        || matches!(gateway, IpAddr::V4(g) if g.is_broadcast())
        || matches!((prefix, gateway), (IpNet::V6(_), IpAddr::V4(_)));
    if impossible {
        return Err(RouterError::BadGateway { prefix, gateway });
    }
    if matches!(gateway, IpAddr::V6(g) if g.is_unicast_link_local()) && !has_interface {
        return Err(RouterError::GatewayNeedsInterface { prefix, gateway });
    }
    Ok(())
}

/// One path of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The gateway; `None`: the destination itself is on the link. An IPv4 route may have an IPv6 gateway (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// The interface; `None`: found by the route to the gateway, over further gateways if need be. Required for
    /// link-local gateways.
    pub interface: Option<IfIndex>,
    /// Relative share, 1 to [`MAX_WEIGHT`].
    pub weight: u16,
    /// With a gateway and no interface: the VRF whose routes lead to the gateway. With neither: the VRF in whose table the
    /// destination is looked up again. `None`: the route's own. Not with an interface, whose VRF decides: packets may leave
    /// by an interface of any VRF.
    pub vrf: Option<VrfId>,
}

impl Path {
    /// By a gateway, found by its own route.
    pub fn via(gateway: IpAddr) -> Self {
        Path { gateway: Some(gateway), interface: None, weight: 1, vrf: None }
    }

    /// By the table of a VRF.
    pub fn table(vrf: VrfId) -> Self {
        Path { gateway: None, interface: None, weight: 1, vrf: Some(vrf) }
    }
}

/// A static neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor {
    /// Where it is.
    pub interface: IfIndex,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// The whole desired state. Order does not matter, except that a later route for the same prefix replaces an earlier.
#[derive(Clone, Debug, Default)]
pub struct RouterConfig {
    /// Interfaces with their addresses.
    pub interfaces: Vec<(IfIndex, Interface)>,
    /// Static routes of the default VRF; host bits of the prefix do not count. Routes with the same action should share one `Arc`:
    /// it makes loading faster.
    pub routes: Vec<(IpNet, Arc<RouteAction>)>,
    /// Static neighbours.
    pub neighbors: Vec<StaticNeighbor>,
    /// VRFs besides the default one.
    pub vrfs: Vec<VrfConfig>,
}

/// A VRF besides the default one.
#[derive(Clone, Debug, Default)]
pub struct VrfConfig {
    /// Its number, 1 to [`MAX_VRFS`] - 1.
    pub vrf: VrfId,
    /// Its name.
    pub name: String,
    /// Its static routes, as in [`RouterConfig::routes`].
    pub routes: Vec<(IpNet, Arc<RouteAction>)>,
}

/// What a change changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Routes that were not there before.
    pub added: usize,
    /// Routes with another action than before.
    pub replaced: usize,
    /// Routes that are gone.
    pub removed: usize,
}

impl std::ops::Add for Changes {
    type Output = Changes;

    fn add(self, other: Changes) -> Changes {
        Changes {
            added: self.added + other.added,
            replaced: self.replaced + other.replaced,
            removed: self.removed + other.removed,
        }
    }
}

/// Why the router refused. Errors found by checking leave everything as it was.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    /// Interfaces that cannot stand together.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The tables shared with workers are full.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The FIB refused.
    #[error(transparent)]
    Fib(#[from] FibError),
    /// A forwarding route without paths.
    #[error("route {prefix} forwards but has no path; name a gateway or an interface")]
    NoPaths {
        /// The route.
        prefix: IpNet,
    },
    /// A path with neither gateway nor interface.
    #[error("route {prefix} has a path with neither gateway nor interface")]
    EmptyPath {
        /// The route.
        prefix: IpNet,
    },
    /// A weight outside the range.
    #[error("route {prefix} has a path of weight {weight}; weights go from 1 to {MAX_WEIGHT}")]
    BadWeight {
        /// The route.
        prefix: IpNet,
        /// The weight.
        weight: u16,
    },
    /// A path by an interface that does not exist.
    #[error("route {prefix} leaves by interface number {interface}, which does not exist")]
    NoInterface {
        /// The route.
        prefix: IpNet,
        /// The index.
        interface: IfIndex,
    },
    /// An address that cannot be a gateway of this route.
    #[error(
        "route {prefix} has the gateway {gateway}, which is no unicast address that such packets can be sent to"
    )]
    BadGateway {
        /// The route.
        prefix: IpNet,
        /// The gateway.
        gateway: IpAddr,
    },
    /// A link-local gateway on no particular link.
    #[error("route {prefix} has the link-local gateway {gateway}; say by which interface it is reached")]
    GatewayNeedsInterface {
        /// The route.
        prefix: IpNet,
        /// The gateway.
        gateway: IpAddr,
    },
    /// A path with an interface and a VRF.
    #[error("route {prefix} names an interface and VRF {vrf} for one path; an interface's VRF is its own")]
    VrfAndInterface {
        /// The route.
        prefix: IpNet,
        /// The VRF.
        vrf: VrfId,
    },
    /// A VRF that does not exist.
    #[error("there is no VRF number {vrf}")]
    NoVrf {
        /// Its number.
        vrf: VrfId,
    },
    /// An interface in a VRF that does not exist.
    #[error("interface {interface} is to be in VRF number {vrf}, which does not exist; create it first")]
    InterfaceVrf {
        /// The interface.
        interface: String,
        /// Number of the VRF.
        vrf: VrfId,
    },
    /// A VRF number beyond the table.
    #[error("a VRF has number {vrf}, but VRFs are numbered 0 to {}", MAX_VRFS - 1)]
    VrfNumber {
        /// Its number.
        vrf: VrfId,
    },
    /// A VRF name that is empty or too long.
    #[error("VRF number {vrf} has the name \"{name}\"; expected 1 to 64 characters")]
    VrfName {
        /// Its number.
        vrf: VrfId,
        /// Its name, cut off.
        name: String,
    },
    /// A VRF that exists already.
    #[error("VRF number {vrf} exists already")]
    VrfExists {
        /// Its number.
        vrf: VrfId,
    },
    /// A name that another VRF has.
    #[error("there is a VRF named {name} already")]
    VrfNameTaken {
        /// The name.
        name: String,
    },
    /// The default VRF is neither made nor given up.
    #[error("VRF number 0 is the default one, which always exists")]
    DefaultVrf,
    /// A VRF that interfaces are still in.
    #[error("VRF number {vrf} cannot be deleted: interface {interface} is in it; move it to another first")]
    VrfInUse {
        /// Its number.
        vrf: VrfId,
        /// An interface in it.
        interface: String,
    },
    /// A router that was made for one table.
    #[error("this router was set up with a single forwarding table; it cannot have VRFs")]
    OneVrfOnly,
    /// A static neighbour that cannot be.
    #[error("static neighbour {address}: {problem}")]
    BadNeighbor {
        /// Its address.
        address: IpAddr,
        /// What is wrong.
        problem: &'static str,
    },
}

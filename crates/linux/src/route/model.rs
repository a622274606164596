//! Routes and next hops as netlink describes them.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::interface::{Address, Link, Neighbor};

/// One thing that netlink said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A unicast route, or one that drops.
    Route(Change, Route),
    /// An entry of the multicast forwarding cache.
    Multicast(Change, MulticastRoute),
    /// A next-hop object.
    Nexthop(Change, Nexthop),
    /// An interface.
    Link(Change, Link),
    /// An address of an interface.
    Address(Change, Address),
    /// A neighbour (ARP, ND) of an interface.
    Neighbor(Change, Neighbor),
    /// A rule of policy routing.
    Rule(Change, RuleSeen),
}

/// Of a rule, what tells it from others that lead to a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleSeen {
    /// For IPv6.
    pub v6: bool,
    /// For multicast routes.
    pub multicast: bool,
    /// Its place: lower is asked first.
    pub priority: u32,
    /// The table that it leads to; `None`: to none.
    pub table: Option<u32>,
    /// Only packets from here.
    pub from: Option<IpNet>,
    /// Only packets that came in by this interface.
    pub input: Option<String>,
    /// Only packets of sockets bound to this interface.
    pub output: Option<String>,
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// New, or set again (the message has no `NLM_F_REPLACE`). The kernel reports each change of a link this way.
    Add,
    /// In place of one with the same key.
    Replace,
    /// Behind others with the same key (`ip route append`). For IPv6 the message lists all next hops that the route then
    /// has.
    Append,
    /// Gone. A route's delete from FRR has no next hops; an IPv6 delete from the kernel has those that are gone, which need
    /// not be all.
    Delete,
}

/// A route of one prefix in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Table; 254 is Linux's `main`, 255 `local`.
    pub table: u32,
    /// Destination, host bits zero.
    pub prefix: IpNet,
    /// Type of service that the route is limited to; 0: all.
    pub tos: u8,
    /// Metric (`RTA_PRIORITY`): lower is preferred. Over FPM always 20, and no part of the route's identity.
    pub metric: u32,
    /// Who made it.
    pub protocol: Protocol,
    /// How far the destination is.
    pub scope: Scope,
    /// What becomes of packets. [`RouteKind::Unspecified`] in deletes from FRR.
    pub kind: RouteKind,
    /// Source prefix that the route is limited to (IPv6).
    pub from: Option<IpNet>,
    /// Address that packets of this host take as source.
    pub preferred_source: Option<IpAddr>,
    /// MTU of the path in bytes.
    pub mtu: Option<u32>,
    /// The next-hop object that forwards. The kernel lists its next hops as well, FRR does not.
    pub nexthop: Option<u32>,
    /// Next hops as written in the message; empty where the route drops or only names an object.
    pub next_hops: Vec<NextHop>,
}

impl Route {
    /// Why the data plane cannot forward by this route, if so.
    pub fn unsupported(&self) -> Option<Unsupported> {
        if self.from.is_some() {
            return Some(Unsupported::SourcePrefix);
        }
        if self.tos != 0 {
            return Some(Unsupported::TypeOfService);
        }
        self.next_hops.iter().find_map(|h| h.encap).map(Unsupported::Encapsulation)
    }
}

/// What the data plane cannot do with a route or next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unsupported {
    /// Packets would need a header.
    #[error("the next hop adds a header ({0}), which is not supported")]
    Encapsulation(Encap),
    /// Routing by source address.
    #[error("the route is limited to a source prefix, which is not supported")]
    SourcePrefix,
    /// Routing by TOS.
    #[error("the route is limited to a type of service, which is not supported")]
    TypeOfService,
}

/// Where packets go next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// Router to send to; `None`: the destination is on the link. An IPv6 gateway of an IPv4 route is RFC 8950.
    ///
    /// FRR without next-hop groups (`no fpm use-next-hop-groups`) writes 169.254.0.1, on-link, in place of an IPv6
    /// link-local gateway; the MAC is then in the kernel's neighbour table only.
    pub gateway: Option<IpAddr>,
    /// Index of the interface.
    pub interface: Option<u32>,
    /// Share of the flows, 1 or more.
    pub weight: u32,
    /// The gateway is reached on the interface even where no address of it covers the gateway.
    pub onlink: bool,
    /// The kernel does not use it: its interface is down.
    pub dead: bool,
    /// Its interface has no carrier.
    pub link_down: bool,
    /// A header to add, which the data plane does not.
    pub encap: Option<Encap>,
}

impl Default for NextHop {
    fn default() -> Self {
        NextHop {
            gateway: None,
            interface: None,
            weight: 1,
            onlink: false,
            dead: false,
            link_down: false,
            encap: None,
        }
    }
}

impl NextHop {
    /// Whether both name the same path: gateway and interface.
    pub fn same_path(&self, other: &NextHop) -> bool {
        self.gateway == other.gateway && self.interface == other.interface
    }
}

/// A next-hop object (`ip nexthop`, FRR's next-hop groups).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nexthop {
    /// Its number.
    pub id: u32,
    /// Who made it.
    pub protocol: Protocol,
    /// What becomes of packets; `None` in deletes.
    pub action: Option<NexthopAction>,
}

/// What a next-hop object does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NexthopAction {
    /// Sends to one next hop.
    Forward(NextHop),
    /// Drops.
    Blackhole,
    /// Spreads flows over other objects. FRR may name a member before it describes it.
    Group(Members),
    /// For bridges' forwarding databases: no route uses it.
    Fdb,
}

/// Members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Number of the member and its weight, 1 or more.
    pub members: Vec<(u32, u32)>,
    /// How a resilient group moves flows; `None`: flows are spread by hash threshold.
    pub resilience: Option<Resilience>,
}

/// A resilient group's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resilience {
    /// Buckets that flows hash to.
    pub buckets: u16,
    /// Hundredths of a second without traffic after which a bucket may move.
    pub idle_timer: u32,
    /// Hundredths of a second for which the group may stay unbalanced; 0: for ever.
    pub unbalanced_timer: u32,
}

/// An entry of the kernel's multicast forwarding cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastRoute {
    /// IPv6.
    pub v6: bool,
    /// Table.
    pub table: u32,
    /// Sender; `None`: all.
    pub source: Option<IpAddr>,
    /// Group; `None`: all.
    pub group: Option<IpAddr>,
    /// Interface that packets must come in by; `None`: not yet known.
    pub input: Option<u32>,
    /// Interfaces that packets go out of, with the TTL they must exceed.
    pub outputs: Vec<(u32, u8)>,
}

/// Who made a route (`rtm_protocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Not said.
    pub const UNSPECIFIED: Protocol = Protocol(0);
    /// The kernel itself: connected routes. Over FPM also routes that FRR learned from the kernel.
    pub const KERNEL: Protocol = Protocol(2);
    /// iproute2's default.
    pub const BOOT: Protocol = Protocol(3);
    /// An administrator.
    pub const STATIC: Protocol = Protocol(4);
    /// FRR's next-hop objects.
    pub const ZEBRA: Protocol = Protocol(11);
    /// FRR's BGP.
    pub const BGP: Protocol = Protocol(186);
    /// FRR's static routes.
    pub const FRR_STATIC: Protocol = Protocol(196);

    /// FRR's protocols. zebra puts their routes into the kernel as well as sending them over FPM: whoever has FPM leaves
    /// them out of what the kernel tells.
    pub fn of_frr() -> impl Iterator<Item = Protocol> {
        std::iter::once(Protocol::ZEBRA).chain((186..=198).map(Protocol))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "unspecified",
            1 => "redirect",
            2 => "kernel",
            3 => "boot",
            4 | 196 => "static",
            9 => "ra",
            11 => "zebra",
            12 => "bird",
            16 => "dhcp",
            17 => "mrouted",
            18 => "keepalived",
            186 => "bgp",
            187 => "isis",
            188 => "ospf",
            189 => "rip",
            190 => "ripng",
            191 => "nhrp",
            192 => "eigrp",
            197 => "openfabric",
            other => return write!(f, "{other}"),
        })
    }
}

/// How far a destination is (`rtm_scope`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Anywhere.
    Universe,
    /// On a link.
    Link,
    /// This host.
    Host,
    /// Nowhere: in deletes, any.
    Nowhere,
    /// Another number.
    Other(u8),
}

impl From<u8> for Scope {
    fn from(n: u8) -> Self {
        match n {
            0 => Scope::Universe,
            253 => Scope::Link,
            254 => Scope::Host,
            255 => Scope::Nowhere,
            n => Scope::Other(n),
        }
    }
}

/// What becomes of packets (`rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Not said: FRR's deletes.
    Unspecified,
    /// Forwarded.
    Unicast,
    /// For this host.
    Local,
    /// For this host and others on the link.
    Broadcast,
    /// For this host, sent to by unicast.
    Anycast,
    /// For a group: IPv6's `ff00::/8` per interface, not an entry of the multicast forwarding cache.
    Multicast,
    /// Dropped in silence.
    Blackhole,
    /// Dropped with host unreachable.
    Unreachable,
    /// Dropped with administratively prohibited.
    Prohibit,
    /// Looked up in the next table.
    Throw,
    /// Another number.
    Other(u8),
}

impl RouteKind {
    /// Whether packets go no further: dropped, or left to the next table.
    pub fn drops(self) -> bool {
        matches!(self, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Throw)
    }
}

impl From<u8> for RouteKind {
    fn from(n: u8) -> Self {
        match n {
            0 => RouteKind::Unspecified,
            1 => RouteKind::Unicast,
            2 => RouteKind::Local,
            3 => RouteKind::Broadcast,
            4 => RouteKind::Anycast,
            5 => RouteKind::Multicast,
            6 => RouteKind::Blackhole,
            7 => RouteKind::Unreachable,
            8 => RouteKind::Prohibit,
            9 => RouteKind::Throw,
            n => RouteKind::Other(n),
        }
    }
}

/// A kind of header that a next hop adds (`LWTUNNEL_ENCAP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encap(pub u16);

impl fmt::Display for Encap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 11] =
            ["none", "mpls", "ip", "ila", "ip6", "seg6", "bpf", "seg6local", "rpl", "ioam6", "xfrm"];
        match NAMES.get(usize::from(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "kind {}", self.0),
        }
    }
}

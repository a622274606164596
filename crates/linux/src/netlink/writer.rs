//! Changes what the kernel knows. Each call returns when the kernel has done it or refused.

use std::fmt;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;

use super::encode;
use super::socket::{NetlinkError, Socket};
use crate::route::{Address, Mac, Neighbor, Route};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Add; an error if it is there ([`NetlinkError::exists`]).
    Add,
    /// Add, or change what is there.
    Replace,
    /// Delete; an error if it is not there ([`NetlinkError::absent`]).
    Delete,
}

impl Operation {
    fn flags(self) -> u16 {
        match self {
            Operation::Add => NLM_F_CREATE | NLM_F_EXCL,
            Operation::Replace => NLM_F_CREATE | NLM_F_REPLACE,
            Operation::Delete => 0,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Add => "add",
            Operation::Replace => "set",
            Operation::Delete => "delete",
        })
    }
}

/// What to change of an interface; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Up or down.
    pub up: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Ethernet address.
    pub mac: Option<Mac>,
    /// Carrier (of taps and the like).
    pub carrier: Option<bool>,
    /// Index of the bridge, bond or VRF to be a member of; `Some(None)`: of none.
    pub master: Option<Option<u32>>,
    /// Name.
    pub name: Option<String>,
}

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// For IPv6; the kernel has rules per family.
    pub v6: bool,
    /// For multicast routes, of which the kernel has tables and rules of their own.
    pub multicast: bool,
    /// Its place: lower is asked first.
    pub priority: u32,
    /// Only packets from here.
    pub from: Option<IpNet>,
    /// Only packets to here.
    pub to: Option<IpNet>,
    /// Only packets that came in by this interface.
    pub input: Option<String>,
    /// Only packets of sockets bound to this interface.
    pub output: Option<String>,
    /// Only packets with this mark, under this mask.
    pub mark: Option<(u32, u32)>,
    /// What to do.
    pub target: RuleTarget,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleTarget {
    /// Look up in a table; on no match the next rule is asked.
    Table(u32),
    /// Drop with network unreachable.
    Unreachable,
    /// Drop with administratively prohibited.
    Prohibit,
    /// Drop in silence.
    Blackhole,
}

/// Sends requests to the kernel.
pub struct Writer {
    socket: Socket,
}

impl Writer {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Writer { socket: Socket::open(&[], 1 << 18)? })
    }

    /// Changes an interface.
    pub fn set_link(&mut self, index: u32, settings: &LinkSettings) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::SetLink(encode::link(index, settings));
        self.socket.request(&format!("change interface {index}"), 0, message)
    }

    /// Deletes an interface.
    pub fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelLink(encode::link(index, &LinkSettings::default()));
        self.socket.request(&format!("delete interface {index}"), 0, message)
    }

    /// Adds or deletes an address. IPv6 addresses are checked for duplicates before they can be used.
    pub fn address(&mut self, operation: Operation, address: &Address) -> Result<(), NetlinkError> {
        let what = format!("{operation} address {} on interface {}", address.address, address.interface);
        let message = encode::address(address);
        let message = match operation {
            Operation::Delete => RouteNetlinkMessage::DelAddress(message),
            _ => RouteNetlinkMessage::NewAddress(message),
        };
        self.socket.request(&what, operation.flags(), message)
    }

    /// Adds or deletes a route. Of a route to delete table, prefix, metric and what else is given must match.
    pub fn route(&mut self, operation: Operation, route: &Route) -> Result<(), NetlinkError> {
        let what = format!("{operation} route {} in table {}", route.prefix, route.table);
        let message = encode::route(route);
        let message = match operation {
            Operation::Delete => RouteNetlinkMessage::DelRoute(message),
            _ => RouteNetlinkMessage::NewRoute(message),
        };
        self.socket.request(&what, operation.flags(), message)
    }

    /// Adds or deletes a neighbour.
    pub fn neighbor(&mut self, operation: Operation, neighbor: &Neighbor) -> Result<(), NetlinkError> {
        let what = format!("{operation} neighbour {} on interface {}", neighbor.address, neighbor.interface);
        let message = encode::neighbor(neighbor);
        let message = match operation {
            Operation::Delete => RouteNetlinkMessage::DelNeighbour(message),
            _ => RouteNetlinkMessage::NewNeighbour(message),
        };
        self.socket.request(&what, operation.flags(), message)
    }

    /// Adds or deletes a rule. The kernel cannot replace one: that adds it unless it is there.
    pub fn rule(&mut self, operation: Operation, rule: &Rule) -> Result<(), NetlinkError> {
        let what = format!("{operation} rule {}", rule.priority);
        let message = encode::rule(rule);
        match operation {
            Operation::Delete => self.socket.request(&what, 0, RouteNetlinkMessage::DelRule(message)),
            _ => {
                let result =
                    self.socket.request(&what, Operation::Add.flags(), RouteNetlinkMessage::NewRule(message));
                result
                    .or_else(|e| if operation == Operation::Replace && e.exists() { Ok(()) } else { Err(e) })
            }
        }
    }
}

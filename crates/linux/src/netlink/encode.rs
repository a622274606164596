//! What is sent to the kernel, as `netlink-packet-route` encodes it.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteNextHop, RouteNextHopFlags, RouteProtocol,
    RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use super::writer::{LinkSettings, Rule, RuleTarget};
use crate::route::wire::{IP6MR, IPMR};
use crate::route::{Address, Neighbor, NeighborState, NextHop, Route, RouteKind, Scope};

pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

pub(super) fn link(index: u32, settings: &LinkSettings) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    if let Some(up) = settings.up {
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    }
    let attributes = [
        settings.mtu.map(LinkAttribute::Mtu),
        settings.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())),
        settings.carrier.map(|carrier| LinkAttribute::Carrier(carrier.into())),
        settings.master.map(|master| LinkAttribute::Controller(master.unwrap_or(0))),
        settings.name.clone().map(LinkAttribute::IfName),
    ];
    message.attributes.extend(attributes.into_iter().flatten());
    message
}

pub(super) fn address(address: &Address) -> AddressMessage {
    let own = address.address.addr();
    let mut message = AddressMessage::default();
    message.header.family = family(own);
    message.header.prefix_len = address.address.prefix_len();
    message.header.index = address.interface;
    message.header.scope = match own {
        IpAddr::V4(a) if a.is_loopback() => AddressScope::Host,
        IpAddr::V4(a) if a.is_link_local() => AddressScope::Link,
        _ => AddressScope::Universe,
    };
    message.attributes.push(AddressAttribute::Local(own));
    message.attributes.push(AddressAttribute::Address(address.peer.unwrap_or(own)));
    if let (IpNet::V4(net), None) = (address.address, address.peer)
        && net.prefix_len() < 31
    {
        message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
    }
    message
}

pub(super) fn neighbor(neighbor: &Neighbor) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(neighbor.address);
    message.header.ifindex = neighbor.interface;
    message.header.state = match neighbor.state {
        NeighborState::None => NeighbourState::None,
        NeighborState::Incomplete => NeighbourState::Incomplete,
        NeighborState::Reachable => NeighbourState::Reachable,
        NeighborState::Stale => NeighbourState::Stale,
        NeighborState::Delay => NeighbourState::Delay,
        NeighborState::Probe => NeighbourState::Probe,
        NeighborState::Failed => NeighbourState::Failed,
        NeighborState::NoArp => NeighbourState::Noarp,
        NeighborState::Permanent => NeighbourState::Permanent,
    };
    for (set, flag) in [
        (neighbor.router, NeighbourFlags::Router),
        (neighbor.proxy, NeighbourFlags::Proxy),
        (neighbor.external, NeighbourFlags::ExtLearned),
    ] {
        message.header.flags.set(flag, set);
    }
    message.attributes.push(NeighbourAttribute::Destination(match neighbor.address {
        IpAddr::V4(a) => NeighbourAddress::Inet(a),
        IpAddr::V6(a) => NeighbourAddress::Inet6(a),
    }));
    if let Some(mac) = neighbor.mac {
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
    }
    message
}

pub(super) fn route(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(route.prefix.addr());
    header.destination_prefix_length = route.prefix.prefix_len();
    header.source_prefix_length = route.from.map_or(0, |f| f.prefix_len());
    header.tos = route.tos;
    header.protocol = RouteProtocol::from(route.protocol.0);
    header.scope = RouteScope::from(match route.scope {
        Scope::Universe => 0,
        Scope::Link => 253,
        Scope::Host => 254,
        Scope::Nowhere => 255,
        Scope::Other(n) => n,
    });
    header.kind = RouteType::from(kind(route.kind));
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Table(route.table));
    attributes.push(RouteAttribute::Destination(route.prefix.addr().into()));
    if let Some(from) = route.from {
        attributes.push(RouteAttribute::Source(from.addr().into()));
    }
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    if let Some(source) = route.preferred_source {
        attributes.push(RouteAttribute::PrefSource(source.into()));
    }
    if let Some(mtu) = route.mtu {
        attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    // A next-hop object stands for its next hops; the kernel takes one or the other.
    match (route.nexthop, &route.next_hops[..]) {
        (Some(id), _) => attributes.push(RouteAttribute::NhId(id)),
        (None, []) => {}
        (None, [one]) => {
            if one.onlink {
                message.header.flags |= netlink_packet_route::route::RouteFlags::Onlink;
            }
            attributes.extend(gateway(route, one));
            attributes.extend(one.interface.map(RouteAttribute::Oif));
        }
        (None, several) => {
            let hops = several.iter().map(|hop| {
                let mut entry = RouteNextHop::default();
                entry.flags.set(RouteNextHopFlags::Onlink, hop.onlink);
                entry.hops = u8::try_from(hop.weight.clamp(1, 256) - 1).unwrap_or(u8::MAX);
                entry.interface_index = hop.interface.unwrap_or(0);
                entry.attributes.extend(gateway(route, hop));
                entry
            });
            attributes.push(RouteAttribute::MultiPath(hops.collect()));
        }
    }
    message
}

/// The gateway; of the other family (RFC 8950) in `RTA_VIA`.
fn gateway(route: &Route, hop: &NextHop) -> Option<RouteAttribute> {
    let gateway = hop.gateway?;
    Some(if gateway.is_ipv4() == route.prefix.addr().is_ipv4() {
        RouteAttribute::Gateway(RouteAddress::from(gateway))
    } else {
        RouteAttribute::Via(RouteVia::from(gateway))
    })
}

fn kind(kind: RouteKind) -> u8 {
    match kind {
        RouteKind::Unspecified => 0,
        RouteKind::Unicast => 1,
        RouteKind::Local => 2,
        RouteKind::Broadcast => 3,
        RouteKind::Anycast => 4,
        RouteKind::Multicast => 5,
        RouteKind::Blackhole => 6,
        RouteKind::Unreachable => 7,
        RouteKind::Prohibit => 8,
        RouteKind::Throw => 9,
        RouteKind::Other(n) => n,
    }
}

pub(super) fn rule(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = match (rule.v6, rule.multicast) {
        (false, false) => AddressFamily::Inet,
        (true, false) => AddressFamily::Inet6,
        (false, true) => AddressFamily::Other(IPMR),
        (true, true) => AddressFamily::Other(IP6MR),
    };
    message.header.dst_len = rule.to.map_or(0, |p| p.prefix_len());
    message.header.src_len = rule.from.map_or(0, |p| p.prefix_len());
    message.header.action = match rule.target {
        RuleTarget::Table(_) => RuleAction::ToTable,
        RuleTarget::Unreachable => RuleAction::Unreachable,
        RuleTarget::Prohibit => RuleAction::Prohibit,
        RuleTarget::Blackhole => RuleAction::Blackhole,
    };
    let table = match rule.target {
        RuleTarget::Table(table) => Some(table),
        _ => None,
    };
    let attributes = [
        Some(RuleAttribute::Priority(rule.priority)),
        table.map(RuleAttribute::Table),
        rule.from.map(|p| RuleAttribute::Source(p.addr())),
        rule.to.map(|p| RuleAttribute::Destination(p.addr())),
        rule.input.clone().map(RuleAttribute::Iifname),
        rule.output.clone().map(RuleAttribute::Oifname),
        rule.mark.map(|(mark, _)| RuleAttribute::FwMark(mark)),
        rule.mark.map(|(_, mask)| RuleAttribute::FwMask(mask)),
    ];
    message.attributes.extend(attributes.into_iter().flatten());
    message
}

//! What next hops of Linux and FRR mean to the router.

use std::net::IpAddr;

use linerate_linux::route::{NextHop, RouteKind};
use linerate_pipeline::IfIndex;
use linerate_router::model::MAX_WEIGHT;
use linerate_router::plane::MAX_GROUP_MEMBERS;
use linerate_router::{Path, RouteAction};

use super::Interfaces;

/// Whether such routes can have such gateways: IPv6 packets have no IPv4 gateways.
pub(super) fn fits(ip6: bool, action: &RouteAction) -> bool {
    match action {
        RouteAction::Forward(paths) if ip6 => paths.iter().all(|p| p.gateway.is_none_or(|g| g.is_ipv6())),
        _ => true,
    }
}

/// What the router does by a route of this kind and these next hops, weighted by the objects that led to them.
pub(super) fn action_of<'a>(
    kind: RouteKind,
    hops: impl Iterator<Item = (&'a NextHop, u32)>,
    interfaces: &Interfaces,
) -> Option<RouteAction> {
    match kind {
        RouteKind::Unicast | RouteKind::Unspecified => {}
        RouteKind::Blackhole => return Some(RouteAction::Blackhole),
        RouteKind::Prohibit => return Some(RouteAction::Prohibit),
        RouteKind::Unreachable => return Some(RouteAction::Unreachable),
        _ => return None,
    }
    let path = |(hop, share): (&NextHop, u32)| {
        let interface = match hop.interface {
            // By an interface of the system that is not this router's, such as that of its management.
            Some(index) => Some(*interfaces.get(&index)?),
            None => None,
        };
        (hop.encap.is_none() && (interface.is_some() || hop.gateway.is_some()))
            .then(|| (hop.gateway.map(unmapped), interface, hop.weight.max(1).saturating_mul(share.max(1))))
    };
    let mut paths: Vec<_> = hops.filter_map(path).collect();
    paths.truncate(MAX_GROUP_MEMBERS);
    let heaviest = paths.iter().map(|p| p.2).max()?;
    let most = u32::from(MAX_WEIGHT);
    let scaled = |weight: u32| {
        let weight = if heaviest <= most {
            weight
        } else {
            (u64::from(weight) * u64::from(most) / u64::from(heaviest)) as u32
        };
        weight.clamp(1, most) as u16
    };
    let path = |(gateway, interface, weight): (Option<IpAddr>, Option<IfIndex>, u32)| Path {
        gateway,
        interface,
        vrf: None,
        weight: scaled(weight),
    };
    Some(RouteAction::Forward(paths.into_iter().map(path).collect()))
}

/// FRR writes IPv4 next hops of IPv6 sessions as IPv4-mapped addresses in places.
fn unmapped(gateway: IpAddr) -> IpAddr {
    match gateway {
        IpAddr::V6(a) => a.to_ipv4_mapped().map_or(gateway, IpAddr::V4),
        IpAddr::V4(_) => gateway,
    }
}

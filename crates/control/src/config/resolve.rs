//! Gateways to paths: which interface leads to a gateway, directly or through other static routes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_engine::desired::{Path, RouteAction};

use super::interfaces::{Interface, is_link_local};

/// How many static routes a gateway may be resolved through.
const MAX_DEPTH: usize = 8;

/// Most paths of one route.
pub(super) const MAX_PATHS: usize = 64;

/// Interfaces, their networks and the static routes that gateways may resolve through.
pub(super) struct Network<'a> {
    interfaces: &'a [Interface],
    /// Connected networks, the longest prefix first, else in configuration order.
    connected: Vec<(IpNet, &'a str)>,
    /// Static routes that forward, or do not (`None`), by prefix.
    routes: BTreeMap<IpNet, Option<Vec<Hop>>>,
}

/// A path as configured, not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hop {
    pub(super) gateway: Option<IpAddr>,
    pub(super) interface: Option<String>,
    pub(super) weight: u16,
}

impl<'a> Network<'a> {
    pub(super) fn new(interfaces: &'a [Interface]) -> Self {
        let of = |i: &'a Interface| i.spec.addresses.iter().map(|a| (a.trunc(), i.spec.name.as_str()));
        let mut connected: Vec<_> = interfaces.iter().flat_map(of).collect();
        connected.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        Network { interfaces, connected, routes: BTreeMap::new() }
    }

    /// Lets gateways be resolved through a static route.
    pub(super) fn add_route(&mut self, prefix: IpNet, hops: Option<Vec<Hop>>) {
        self.routes.insert(prefix, hops);
    }

    pub(super) fn interface(&self, name: &str) -> Option<&'a Interface> {
        self.interfaces.iter().find(|i| i.spec.name == name)
    }

    pub(super) fn interface_names(&self) -> impl Iterator<Item = &'a str> {
        self.interfaces.iter().map(|i| i.spec.name.as_str())
    }

    /// Whether an address is one of the router's own.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|i| i.spec.addresses.iter().any(|a| a.addr() == address))
    }

    /// Whether a network is connected.
    pub(super) fn is_connected(&self, prefix: IpNet) -> bool {
        self.connected.iter().any(|(net, _)| *net == prefix)
    }

    /// Whether an address is in one of an interface's networks.
    pub(super) fn on_link(&self, address: IpAddr, interface: &str) -> bool {
        self.connected.iter().any(|(net, name)| *name == interface && net.contains(&address))
    }

    /// An interface's networks for a message.
    pub(super) fn networks_of(&self, interface: &str) -> String {
        list(self.connected.iter().filter(|(_, name)| *name == interface).map(|(net, _)| *net))
    }

    /// The paths that lead to the hops of a route, each a gateway on a connected network (or the link itself).
    /// The error is what was found and what was expected.
    pub(super) fn resolve(&self, hops: &[Hop]) -> Result<RouteAction, String> {
        let mut paths = Vec::new();
        for hop in hops {
            self.one(hop, &mut Vec::new(), &mut paths)?;
        }
        merge(&mut paths);
        if paths.len() > MAX_PATHS {
            return Err(format!("the route resolves to {} paths: expected at most {MAX_PATHS}", paths.len()));
        }
        let heaviest = paths.iter().map(|p| p.1).max().unwrap_or(1);
        let scale = |w: u32| if heaviest <= 256 { w } else { (w * 256 / heaviest).max(1) };
        Ok(RouteAction::Forward(paths.into_iter().map(|(p, w)| Path { weight: scale(w) as u16, ..p }).collect()))
    }

    fn one(&self, hop: &Hop, via: &mut Vec<IpNet>, paths: &mut Vec<(Path, u32)>) -> Result<(), String> {
        let weight = u32::from(hop.weight);
        let Some(gateway) = hop.gateway else {
            let path = Path { gateway: None, interface: hop.interface.clone(), weight: 1 };
            paths.push((path, weight));
            return Ok(());
        };
        if self.is_own(gateway) {
            return Err(format!("the gateway {gateway} is this router's own address: expected a neighbour's"));
        }
        let direct = |interface: &str| Path { gateway: Some(gateway), interface: Some(interface.into()), weight: 1 };
        if let Some(interface) = &hop.interface {
            paths.push((direct(interface), weight));
            return Ok(());
        }
        if is_link_local(gateway) {
            return Err(format!("the gateway {gateway} is link-local: expected {{ gateway, interface }}"));
        }
        if let Some((net, interface)) = self.connected.iter().find(|(net, _)| net.contains(&gateway)) {
            if let IpNet::V4(v4) = net
                && v4.prefix_len() < 31
                && (gateway == v4.network() || gateway == v4.broadcast())
            {
                return Err(format!("the gateway {gateway} is the network or broadcast address of {net}: expected a host"));
            }
            paths.push((direct(interface), weight));
            return Ok(());
        }
        self.through_route(gateway, weight, via, paths)
    }

    /// A gateway that is on no link, through the longest static route to it. Default routes do not count: they would
    /// make every mistyped gateway resolve.
    fn through_route(
        &self,
        gateway: IpAddr,
        weight: u32,
        via: &mut Vec<IpNet>,
        paths: &mut Vec<(Path, u32)>,
    ) -> Result<(), String> {
        let most = if gateway.is_ipv4() { 32 } else { 128 };
        let covering = (1..=most).rev().find_map(|length| {
            let net = IpNet::new(gateway, length).ok()?.trunc();
            self.routes.get_key_value(&net)
        });
        let Some((prefix, hops)) = covering else {
            let nets = list(self.connected.iter().map(|(net, _)| *net).filter(|n| n.addr().is_ipv4() == gateway.is_ipv4()));
            return Err(format!("the gateway {gateway} is on no connected network: expected one in {nets}"));
        };
        if via.contains(prefix) {
            let way = via.iter().map(ToString::to_string).collect::<Vec<_>>().join(" → ");
            return Err(format!("the gateway {gateway} leads back to itself: {way} → {prefix}"));
        }
        if via.len() >= MAX_DEPTH {
            return Err(format!("the gateway {gateway} needs more than {MAX_DEPTH} static routes to be resolved"));
        }
        let Some(hops) = hops else {
            return Err(format!("the gateway {gateway} is discarded by the route {prefix}: expected one that forwards"));
        };
        via.push(*prefix);
        let mut inner = Vec::new();
        for hop in hops {
            self.one(hop, via, &mut inner)?;
            if inner.len() + paths.len() > MAX_PATHS * 4 {
                return Err(format!("the gateway {gateway} resolves to more than {MAX_PATHS} paths"));
            }
        }
        via.pop();
        // Weights multiply along the way; capped far above what scaling to 256 can tell apart.
        paths.extend(inner.into_iter().map(|(p, w)| (p, (w * weight).min(1 << 16))));
        Ok(())
    }
}

/// Paths that turned out the same become one with the sum of their weights.
fn merge(paths: &mut Vec<(Path, u32)>) {
    let mut out: Vec<(Path, u32)> = Vec::with_capacity(paths.len());
    for (path, weight) in paths.drain(..) {
        match out.iter_mut().find(|(p, _)| *p == path) {
            Some((_, w)) => *w += weight,
            None => out.push((path, weight)),
        }
    }
    *paths = out;
}

fn list(nets: impl Iterator<Item = IpNet>) -> String {
    let nets: Vec<String> = nets.map(|n| n.to_string()).collect();
    match nets.len() {
        0 => "a network of an [[interface]], and there is none".into(),
        n if n > 8 => format!("{} …", nets[..8].join(", ")),
        _ => nets.join(", "),
    }
}

//! Whether gateways lead somewhere: to a connected network, directly or through other static routes.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_engine::desired::{Path, RouteAction};
use linerate_pipeline::VrfId;

use super::interfaces::{Interface, is_link_local};
use super::vrfs::{DEFAULT, Vrfs};

/// How many static routes a gateway may be resolved through.
const MAX_DEPTH: usize = 4;

/// Most paths of one route.
pub(super) const MAX_PATHS: usize = 64;

/// Interfaces, their networks and the static routes that gateways may resolve through.
pub(super) struct Network<'a> {
    interfaces: &'a [Interface],
    vrfs: &'a Vrfs,
    /// Connected networks with their VRF, the longest prefix first, else in configuration order.
    connected: Vec<(VrfId, IpNet, &'a str)>,
    /// Static routes that forward, or do not (`None`), by prefix.
    routes: BTreeMap<(VrfId, IpNet), Option<Vec<Hop>>>,
    /// Gateways that lead somewhere, with the number of routes that led to them: many paths over many levels would
    /// otherwise be followed as often as there are ways.
    good: RefCell<HashSet<(VrfId, IpAddr, usize)>>,
}

/// A path as configured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hop {
    pub(super) gateway: Option<IpAddr>,
    pub(super) interface: Option<String>,
    pub(super) weight: u16,
    /// Where the gateway is looked up, or without one the destination; `None`: in the route's own VRF.
    pub(super) vrf: Option<VrfId>,
}

impl<'a> Network<'a> {
    pub(super) fn new(interfaces: &'a [Interface], vrfs: &'a Vrfs) -> Self {
        let of = |i: &'a Interface| i.spec.addresses.iter().map(|a| (i.vrf, a.trunc(), i.spec.name.as_str()));
        let mut connected: Vec<_> = interfaces.iter().flat_map(of).collect();
        connected.sort_by_key(|(_, net, _)| std::cmp::Reverse(net.prefix_len()));
        Network { interfaces, vrfs, connected, routes: BTreeMap::new(), good: RefCell::default() }
    }

    /// Lets gateways be resolved through a static route.
    pub(super) fn add_route(&mut self, vrf: VrfId, prefix: IpNet, hops: Option<Vec<Hop>>) {
        self.good.get_mut().clear();
        self.routes.insert((vrf, prefix), hops);
    }

    pub(super) fn interface(&self, name: &str) -> Option<&'a Interface> {
        self.interfaces.iter().find(|i| i.spec.name == name)
    }

    pub(super) fn interface_names(&self) -> impl Iterator<Item = &'a str> {
        self.interfaces.iter().map(|i| i.spec.name.as_str())
    }

    pub(super) fn vrfs(&self) -> &'a Vrfs {
        self.vrfs
    }

    /// The VRF of an interface.
    pub(super) fn vrf_of(&self, interface: &str) -> VrfId {
        self.interface(interface).map_or(0, |i| i.vrf)
    }

    /// Whether an address is one of the router's own in a VRF.
    pub(super) fn is_own(&self, vrf: VrfId, address: IpAddr) -> bool {
        let here = self.interfaces.iter().filter(|i| i.vrf == vrf);
        here.into_iter().any(|i| i.spec.addresses.iter().any(|a| a.addr() == address))
    }

    /// Whether a network is connected in a VRF.
    pub(super) fn is_connected(&self, vrf: VrfId, prefix: IpNet) -> bool {
        self.connected.iter().any(|(v, net, _)| (*v, *net) == (vrf, prefix))
    }

    /// Whether an address is in one of an interface's networks.
    pub(super) fn on_link(&self, address: IpAddr, interface: &str) -> bool {
        self.connected.iter().any(|(_, net, name)| *name == interface && net.contains(&address))
    }

    /// Whether an address can be a neighbour on an interface: it is in one of its networks, or the route to it says that
    /// it is on that link.
    pub(super) fn may_be_on(&self, address: IpAddr, interface: &str) -> bool {
        let on = |h: &Hop| h.gateway.is_none() && h.interface.as_deref() == Some(interface);
        let route = self.covering(self.vrf_of(interface), address, 0).and_then(|(_, hops)| hops.as_ref());
        self.on_link(address, interface) || route.is_some_and(|hops| hops.iter().any(on))
    }

    /// The longest static route of a VRF to an address whose prefix is no shorter than `least`.
    fn covering(&self, vrf: VrfId, address: IpAddr, least: u8) -> Option<(IpNet, &Option<Vec<Hop>>)> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (least..=most).rev().find_map(|length| {
            let net = IpNet::new(address, length).ok()?.trunc();
            self.routes.get(&(vrf, net)).map(|hops| (net, hops))
        })
    }

    /// An interface's networks for a message.
    pub(super) fn networks_of(&self, interface: &str) -> String {
        list(self.connected.iter().filter(|(_, _, name)| *name == interface).map(|(_, net, _)| *net))
    }

    /// The action of a route with these hops, once each gateway is known to lead somewhere: to a neighbour on a
    /// connected network, directly or through other static routes. The router follows those itself, and again whenever
    /// one of them changes. The error is what was found and what was expected.
    pub(super) fn resolve(&self, vrf: VrfId, hops: &[Hop]) -> Result<RouteAction, String> {
        hops.iter().try_for_each(|hop| self.one(vrf, hop, &mut Vec::new()))?;
        let name = |vrf: VrfId| self.vrfs.name(vrf).unwrap_or(DEFAULT).to_owned();
        let path = |h: &Hop| Path {
            gateway: h.gateway,
            interface: h.interface.clone(),
            weight: h.weight,
            vrf: h.vrf.map(name),
        };
        Ok(RouteAction::Forward(hops.iter().map(path).collect()))
    }

    fn one(&self, vrf: VrfId, hop: &Hop, via: &mut Vec<(VrfId, IpNet)>) -> Result<(), String> {
        let Some(gateway) = hop.gateway else {
            let itself = hop.interface.is_none() && hop.vrf == Some(vrf);
            return if itself {
                Err("the route leads back to its own VRF: expected another".into())
            } else {
                Ok(())
            };
        };
        let vrf = match &hop.interface {
            Some(interface) => self.vrf_of(interface),
            None => hop.vrf.unwrap_or(vrf),
        };
        if self.is_own(vrf, gateway) {
            return Err(format!(
                "the gateway {gateway} is this router's own address: expected a neighbour's"
            ));
        }
        if let Some(interface) = &hop.interface {
            let own = self.connected.iter().filter(|(_, _, name)| name == interface);
            return own.map(|(_, net, _)| net).try_for_each(|net| check_host(gateway, net));
        }
        if is_link_local(gateway) {
            return Err(format!("the gateway {gateway} is link-local: expected {{ gateway, interface }}"));
        }
        let on = |(v, net, _): &&(VrfId, IpNet, &str)| *v == vrf && net.contains(&gateway);
        if let Some((_, net, _)) = self.connected.iter().find(on) {
            return check_host(gateway, net);
        }
        if self.good.borrow().contains(&(vrf, gateway, via.len())) {
            return Ok(());
        }
        self.through_route(vrf, gateway, via)?;
        self.good.borrow_mut().insert((vrf, gateway, via.len()));
        Ok(())
    }

    /// A gateway that is on no link, through the longest static route to it. Default routes do not count: they would
    /// make every mistyped gateway resolve.
    fn through_route(
        &self,
        vrf: VrfId,
        gateway: IpAddr,
        via: &mut Vec<(VrfId, IpNet)>,
    ) -> Result<(), String> {
        let Some((prefix, hops)) = self.covering(vrf, gateway, 1) else {
            let family = |net: &IpNet| net.addr().is_ipv4() == gateway.is_ipv4();
            let here = self.connected.iter().filter(|(v, _, _)| *v == vrf);
            let nets = list(here.map(|(_, net, _)| *net).filter(family));
            let place = self.vrfs.place(vrf);
            return Err(format!(
                "the gateway {gateway} is on no connected network{place}: expected one in {nets}"
            ));
        };
        if via.contains(&(vrf, prefix)) {
            let way = via.iter().map(|(_, net)| net.to_string()).collect::<Vec<_>>().join(" → ");
            return Err(format!("the gateway {gateway} leads back to itself: {way} → {prefix}"));
        }
        if via.len() >= MAX_DEPTH {
            return Err(format!(
                "the gateway {gateway} needs more than {MAX_DEPTH} static routes to be resolved"
            ));
        }
        let Some(hops) = hops else {
            return Err(format!(
                "the gateway {gateway} is discarded by the route {prefix}: expected one that forwards"
            ));
        };
        via.push((vrf, prefix));
        // On to another table: the gateway is looked up there.
        let there = |h: &Hop| h.gateway.is_none() && h.interface.is_none();
        hops.iter().try_for_each(|hop| match hop.vrf.filter(|_| there(hop)) {
            Some(vrf) => self.one(vrf, &Hop { gateway: Some(gateway), vrf: None, ..hop.clone() }, via),
            None => self.one(vrf, hop, via),
        })?;
        via.pop();
        Ok(())
    }
}

/// A gateway must not be the network or broadcast address of a network that has them.
fn check_host(gateway: IpAddr, net: &IpNet) -> Result<(), String> {
    match net {
        IpNet::V4(v4) if v4.prefix_len() < 31 && (gateway == v4.network() || gateway == v4.broadcast()) => {
            Err(format!(
                "the gateway {gateway} is the network or broadcast address of {net}: expected a host"
            ))
        }
        _ => Ok(()),
    }
}

fn list(nets: impl Iterator<Item = IpNet>) -> String {
    let nets: Vec<String> = nets.map(|n| n.to_string()).collect();
    match nets.len() {
        0 => "a network of an [[interface]], and there is none".into(),
        n if n > 8 => format!("{} …", nets[..8].join(", ")),
        _ => nets.join(", "),
    }
}

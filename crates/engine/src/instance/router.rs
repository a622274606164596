//! The router of an instance: desired state in its own terms, and the rounds of its control logic.

use std::collections::HashMap;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_dpdk::Mbuf;
use linerate_pipeline::interface::InterfaceTable;
use linerate_pipeline::{IfIndex, Interface, PortId, VRF_DEFAULT, VrfId};
use linerate_router::acl::{Acl, AclBinding, AclWriter};
use linerate_router::{
    Mroute, MrouteKey, MrouteOutput, Path, RouteAction, RouterConfig, RouterError, StaticNeighbor, VrfConfig,
};
use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::qsbr::Domain;

use super::check::MAX_MTU;
use super::error::StartError;
use super::ports::PortState;
use crate::desired::{self, Desired};
use crate::graphs::router::{PuntLine, RouterGraph, RouterLines, RouterParts, graph, neighbor_options};
use crate::host::View;

/// The router of an instance, control half.
pub type Router = linerate_router::Router<Ip4Fib, Ip6Fib>;

/// What configuration calls the VRF of interfaces and routes that name none.
const DEFAULT_VRF: &str = "default";

/// The router and its lines to the workers.
pub(crate) struct RouterHalf {
    pub(crate) router: Router,
    lines: RouterLines,
    /// Administrative state of each interface: the router wants it combined with the link's.
    admin_up: Vec<bool>,
    /// Whether each port has link.
    port_up: Vec<bool>,
    /// The ways of packets to Linux, one a worker, until they are taken.
    punts: Vec<PuntLine<Mbuf>>,
}

impl RouterHalf {
    /// A router that is as desired. Nothing reads its tables yet, so loading them is fast.
    pub(super) fn new(
        desired: &Desired,
        ports: &[PortState],
        domain: Domain,
        now: u64,
    ) -> Result<Self, StartError> {
        let fib4 = Ip4Fib::new(&domain).map_err(RouterError::from)?;
        let fib6 = Ip6Fib::new(&domain).map_err(RouterError::from)?;
        let router = Router::new(domain.clone(), fib4, fib6, neighbor_options())?;
        let mut router = router.with_vrfs(move || Ok((Ip4Fib::new(&domain)?, Ip6Fib::new(&domain)?)));
        let port = |at: usize| ports.get(at).map(|p| Found { mac: p.mac(), mtu: p.mtu(), up: p.is_up() });
        let config = config(desired, port)?;
        for (_, interface) in &config.interfaces {
            if let Some(port) = ports.get(usize::from(interface.port)) {
                port.accept(interface.mac);
            }
        }
        router.apply(now, config)?;
        let (acls, bindings) = acls(desired);
        router.set_acls(acls, &bindings)?;
        router.set_static_mroutes(now, mroutes(desired)?)?;
        Ok(RouterHalf {
            router,
            lines: RouterLines::default(),
            admin_up: desired.interfaces.iter().map(|i| i.up).collect(),
            port_up: ports.iter().map(PortState::is_up).collect(),
            punts: Vec::new(),
        })
    }

    /// The graph of one more worker.
    pub(super) fn graph(&mut self, desired: &Desired, seed: u64) -> Result<RouterGraphParts, StartError> {
        let parts = RouterParts {
            plane: self.router.plane(),
            seed,
            icmp_errors_per_second: desired.icmp_errors_per_second,
            punt: desired.linux.as_ref().map(|l| l.punt),
        };
        let RouterGraph { graph, on_tick, line, punt } = graph::<Mbuf, _, _>(&parts)?;
        self.lines.add(line);
        self.punts.extend(punt);
        Ok((graph, on_tick))
    }

    /// One round: events in, timers, probes out. Returns whether there was anything to do.
    pub(super) fn round(&mut self, now: u64) -> bool {
        let any = self.lines.round(&mut self.router, now);
        for (interface, conflict) in self.router.conflicts_to_tell() {
            let name = self.router.interfaces().get(interface).map_or("?", |i| &i.name);
            let mac = conflict.mac.map(|byte| format!("{byte:02x}")).join(":");
            tracing::warn!(
                "{mac} uses {}, an address of interface {name}: {} messages so far; give one of the two another",
                conflict.address,
                conflict.count
            );
        }
        any
    }

    /// A port's link went up or down: so do its interfaces.
    pub(super) fn set_link(&mut self, now: u64, port: PortId, up: bool) {
        if let Some(known) = self.port_up.get_mut(usize::from(port)) {
            *known = up;
        }
        let of = self.router.interfaces().iter().filter(|(_, i)| i.port == port).map(|(i, _)| i);
        let admin = |index: &IfIndex| self.admin_up.get(usize::from(*index)).copied().unwrap_or(true);
        let states: Vec<(IfIndex, bool)> = of.map(|index| (index, up && admin(&index))).collect();
        // Interfaces that exist can always change state; what is full stays full.
        let _ = self.router.set_links(now, states);
    }

    /// The ways of packets to Linux, one a worker: once.
    pub(crate) fn take_punts(&mut self) -> Vec<PuntLine<Mbuf>> {
        std::mem::take(&mut self.punts)
    }

    /// Whether an interface is up as far as its administrator is concerned.
    pub(crate) fn is_admin_up(&self, interface: IfIndex) -> bool {
        self.admin_up.get(usize::from(interface)).copied().unwrap_or(true)
    }

    /// Interfaces become what Linux has them be: addresses, MAC address, MTU, up or down.
    pub(crate) fn follow(
        &mut self,
        now: u64,
        ports: &[PortState],
        changed: &[(IfIndex, View)],
    ) -> Result<(), RouterError> {
        let mut all: Vec<(IfIndex, Interface)> =
            self.router.interfaces().iter().map(|(i, f)| (i, f.clone())).collect();
        for (index, view) in changed {
            let Ok(at) = all.binary_search_by_key(index, |(i, _)| *i) else { continue };
            let Some((_, interface)) = all.get_mut(at) else { continue };
            let port = usize::from(interface.port);
            if let Some(admin) = self.admin_up.get_mut(usize::from(*index)) {
                *admin = view.up;
            }
            let mac = view.mac.unwrap_or(interface.mac);
            let most = ports.get(port).map_or(MAX_MTU, PortState::mtu);
            let mtu = u16::try_from(view.mtu).unwrap_or(u16::MAX).min(most);
            if let (Some(port), true) = (ports.get(port), mac != interface.mac) {
                port.accept(mac);
            }
            for other in &view.virtuals {
                if let Some(port) = ports.get(port) {
                    port.accept(other.mac);
                }
            }
            // The networks are the interface's own already.
            let hosts = view.virtuals.iter().flat_map(|v| &v.addresses).map(|a| IpNet::from(*a));
            let known = |a: &IpNet| view.addresses.iter().any(|b| b.addr() == a.addr());
            let addresses: Vec<IpNet> =
                view.addresses.iter().copied().chain(hosts.filter(|a| !known(a))).collect();
            let fresh = Interface::new(&interface.name, interface.port, mac, mtu, &addresses);
            *interface = Interface {
                mac,
                mtu,
                up: view.up && self.port_up.get(port).copied().unwrap_or(false),
                ip4: fresh.ip4,
                ip6: fresh.ip6,
                link_local: fresh.link_local,
                virtuals: view.virtuals.clone(),
                ..interface.clone()
            };
        }
        self.router.set_interfaces(now, all)
    }

    /// Events that workers could not deliver: neighbour resolution asks again.
    pub(super) fn lost(&self) -> u64 {
        self.lines.lost()
    }
}

/// A worker's graph and what it does on each tick.
pub(super) type RouterGraphParts = (linerate_pipeline::Graph<Mbuf>, crate::workers::OnTick<Mbuf>);

/// Checks what a router needs no device for: names, interfaces that exclude each other, routes that cannot be.
pub(super) fn check(desired: &Desired) -> Result<(), StartError> {
    let station = |at: usize| [2, 0, 0, 0, 0, at as u8];
    let config = config(desired, |at| Some(Found { mac: station(at), mtu: MAX_MTU, up: true }))?;
    let (acls, bindings) = acls(desired);
    AclWriter::check(&acls, &bindings)?;
    let table = InterfaceTable::build(config.interfaces).map_err(RouterError::from)?;
    for (prefix, action) in config.vrfs.iter().map(|v| &v.routes).chain([&config.routes]).flatten() {
        action.check(*prefix, |interface| table.get(interface).is_some())?;
    }
    Ok(())
}

/// What is known of a port once it runs.
struct Found {
    mac: [u8; 6],
    mtu: u16,
    up: bool,
}

/// The desired state in the router's terms: names become indices. `found` tells of a port by its position.
fn config(desired: &Desired, found: impl Fn(usize) -> Option<Found>) -> Result<RouterConfig, StartError> {
    let index = |name: &str| index_of(desired, name);
    let vrf = |name: Option<&str>| vrf_of(desired, name);
    let mut vrfs: Vec<VrfConfig> = (1..)
        .zip(&desired.vrfs)
        .map(|(vrf, v)| VrfConfig { vrf, name: v.name.clone(), routes: Vec::new() })
        .collect();
    let mut interfaces = Vec::new();
    for (at, spec) in desired.interfaces.iter().enumerate() {
        let port = desired.ports.iter().position(|p| p.name == spec.port);
        let (Some(port), Some(found)) = (port, port.and_then(&found)) else {
            return Err(StartError::NoPort { interface: spec.name.clone(), port: spec.port.clone() });
        };
        let (mac, mtu) = (spec.mac.unwrap_or(found.mac), spec.mtu.unwrap_or(found.mtu));
        let interface = Interface {
            vlan: spec.vlan,
            inner_vlan: spec.inner_vlan,
            up: spec.up && found.up,
            vrf: vrf(spec.vrf.as_deref())?,
            policy: spec.policy,
            ..Interface::new(&spec.name, port as PortId, mac, mtu, &spec.addresses)
        };
        interfaces.push((at as IfIndex, interface));
    }
    let neighbors = neighbors(desired)?;
    // Routes of a table share their actions: each is translated once.
    let mut known: HashMap<*const desired::RouteAction, Arc<RouteAction>> = HashMap::new();
    let mut routes = Vec::with_capacity(desired.routes.len());
    for route in &desired.routes {
        let action = match known.get(&Arc::as_ptr(&route.action)) {
            Some(action) => action.clone(),
            None => {
                let action = Arc::new(translate(&route.action, index, vrf)?);
                known.insert(Arc::as_ptr(&route.action), action.clone());
                action
            }
        };
        let table = match vrf(route.vrf.as_deref())?.checked_sub(1) {
            None => Some(&mut routes),
            Some(at) => vrfs.get_mut(usize::from(at)).map(|v| &mut v.routes),
        };
        table.into_iter().for_each(|t| t.push((route.prefix, action.clone())));
    }
    Ok(RouterConfig { interfaces, routes, neighbors, vrfs })
}

/// VRFs by their table in Linux; the default one's is `main`.
pub(super) fn tables(desired: &Desired, main: u32) -> HashMap<u32, VrfId> {
    let others = desired.vrfs.iter().enumerate().filter_map(|(at, v)| Some((v.table?, at as VrfId + 1)));
    std::iter::once((main, VRF_DEFAULT)).chain(others).collect()
}

/// Access lists, and which interfaces they are bound to.
fn acls(desired: &Desired) -> (Vec<Acl>, Vec<AclBinding>) {
    let list = |spec: &desired::AclSpec| Acl {
        name: spec.name.clone(),
        rules: spec.rules.to_vec(),
        default: spec.default,
    };
    let binding = |(at, spec): (usize, &desired::InterfaceSpec)| AclBinding {
        interface: at as IfIndex,
        input: spec.acl_in.clone(),
        output: spec.acl_out.clone(),
    };
    let bindings = desired.interfaces.iter().enumerate().map(binding).collect();
    (desired.acls.iter().map(list).collect(), bindings)
}

/// The static neighbours of the configuration.
pub(super) fn neighbors(desired: &Desired) -> Result<Vec<StaticNeighbor>, StartError> {
    let of = |n: &desired::NeighborSpec| {
        Ok(StaticNeighbor { interface: index_of(desired, &n.interface)?, address: n.address, mac: n.mac })
    };
    desired.neighbors.iter().map(of).collect()
}

fn vrf_of(desired: &Desired, name: Option<&str>) -> Result<VrfId, StartError> {
    match name {
        None | Some(DEFAULT_VRF) => Ok(VRF_DEFAULT),
        Some(name) => {
            let at = desired.vrfs.iter().position(|v| v.name == name);
            at.map(|at| at as VrfId + 1).ok_or_else(|| StartError::NoVrf(name.into()))
        }
    }
}

fn index_of(desired: &Desired, name: &str) -> Result<IfIndex, StartError> {
    let at = desired.interfaces.iter().position(|i| i.name == name);
    at.map(|i| i as IfIndex).ok_or_else(|| StartError::NoInterface(name.into()))
}

/// The static multicast routes in the router's terms, each in the VRF of its input.
fn mroutes(desired: &Desired) -> Result<Vec<(MrouteKey, Mroute)>, StartError> {
    let index = |name: &str| index_of(desired, name);
    let route = |spec: &desired::MulticastRouteSpec| {
        let output = |o: &desired::MulticastOutputSpec| {
            Ok(MrouteOutput { interface: index(&o.interface)?, threshold: o.ttl_threshold })
        };
        let outputs = spec.outputs.iter().map(output).collect::<Result<_, StartError>>()?;
        let input = index(&spec.input)?;
        let vrf = desired.interfaces.get(usize::from(input)).and_then(|i| i.vrf.as_deref());
        let key = MrouteKey { vrf: vrf_of(desired, vrf)?, group: spec.group, source: spec.source };
        key.check()?;
        Ok((key, Mroute { input, outputs, to_host: false }))
    };
    desired.multicast_routes.iter().map(route).collect()
}

fn translate(
    action: &desired::RouteAction,
    index: impl Fn(&str) -> Result<IfIndex, StartError>,
    vrf: impl Fn(Option<&str>) -> Result<VrfId, StartError>,
) -> Result<RouteAction, StartError> {
    Ok(match action {
        desired::RouteAction::Blackhole => RouteAction::Blackhole,
        desired::RouteAction::Prohibit => RouteAction::Prohibit,
        desired::RouteAction::Unreachable => RouteAction::Unreachable,
        desired::RouteAction::Forward(paths) => RouteAction::Forward(
            paths
                .iter()
                .map(|p| {
                    let interface = p.interface.as_deref().map(&index).transpose()?;
                    let vrf = p.vrf.as_deref().map(|name| vrf(Some(name))).transpose()?;
                    Ok(Path { gateway: p.gateway, interface, weight: p.weight, vrf })
                })
                .collect::<Result<_, StartError>>()?,
        ),
    })
}

/// Seed of the flow hash: differs between routers by their MAC addresses, and is the same after a restart.
pub(super) fn seed(ports: &[PortState]) -> u64 {
    ports.iter().flat_map(PortState::mac).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

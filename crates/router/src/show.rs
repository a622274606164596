//! What views print: routes, neighbours, figures.

use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::{IfIndex, Interface, VRF_DEFAULT, VrfId};
use linerate_tables::fib::{Fib, FibMemory, NextHopId};
use linerate_tables::prefix::{Address, Prefix};

use crate::acl::{AclLogEntry, AclView};
use crate::action::{Key, Target};
use crate::model::{RouteAction, Source};
use crate::neighbor::{NeighborState, NeighborStats};
use crate::plane::PlaneUse;
use crate::router::Router;
use crate::vrf::Family;

/// Which routes to show. All conditions must hold; the default shows all.
#[derive(Clone, Debug)]
pub struct RouteFilter {
    /// Of this VRF.
    pub vrf: VrfId,
    /// IPv4 only (`Some(true)`), IPv6 only (`Some(false)`).
    pub ip4: Option<bool>,
    /// This prefix and what it contains.
    pub within: Option<IpNet>,
    /// Only the longest prefix that covers this address.
    pub longest_match: Option<IpAddr>,
    /// Of this source.
    pub source: Option<Source>,
    /// With this gateway, as configured or as resolved.
    pub gateway: Option<IpAddr>,
    /// Leaving by this interface.
    pub interface: Option<IfIndex>,
    /// Continue after this prefix: the last one of the page before.
    pub after: Option<IpNet>,
    /// So many prefixes at most.
    pub limit: usize,
}

impl Default for RouteFilter {
    fn default() -> Self {
        RouteFilter {
            vrf: VRF_DEFAULT,
            ip4: None,
            within: None,
            longest_match: None,
            source: None,
            gateway: None,
            interface: None,
            after: None,
            limit: usize::MAX,
        }
    }
}

/// What a route does, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionView {
    /// To this router itself.
    Local,
    /// A connected network.
    Connected(IfIndex),
    /// A resolved neighbour.
    Neighbor(IfIndex),
    /// A route's action as it was given.
    Route(Arc<RouteAction>),
}

/// Where a path of a route leads at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathView {
    /// The neighbour; `None`: the destination itself, or no neighbour (blackhole).
    pub neighbor: Option<IpAddr>,
    /// The interface.
    pub interface: Option<IfIndex>,
    /// The VRF in whose table the destination is looked up again.
    pub table: Option<VrfId>,
    /// Share.
    pub weight: u16,
    /// State of the neighbour.
    pub state: Option<NeighborState>,
}

/// One source's route for a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteView {
    /// Its VRF.
    pub vrf: VrfId,
    /// Destination.
    pub prefix: IpNet,
    /// Who contributed it.
    pub source: Source,
    /// Whether it is the one that forwards.
    pub best: bool,
    /// Its next hop's id in the plane.
    pub next_hop: NextHopId,
    /// What it does.
    pub action: ActionView,
    /// Where its paths lead; empty for forwarding routes that have no usable path.
    pub paths: Vec<PathView>,
}

/// A neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborView {
    /// Where it is.
    pub interface: IfIndex,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address, where known.
    pub mac: Option<[u8; 6]>,
    /// Its state.
    pub state: NeighborState,
    /// When it entered the state, nanoseconds of the router's clock.
    pub since: u64,
    /// Distinct route actions that use it.
    pub users: usize,
}

/// Figures of one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyStats {
    /// Routes by source, in the order of [`Source::ALL`].
    pub routes: [usize; Source::ALL.len()],
    /// Prefixes in the FIB.
    pub fib_routes: usize,
    /// Bytes of the FIB.
    pub fib: FibMemory,
}

/// A VRF and its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VrfStats {
    /// Its number.
    pub vrf: VrfId,
    /// Its name.
    pub name: String,
    /// The interfaces in it.
    pub interfaces: Vec<IfIndex>,
    /// IPv4.
    pub ip4: FamilyStats,
    /// IPv6.
    pub ip6: FamilyStats,
}

/// Figures of the router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// IPv4, default VRF.
    pub ip4: FamilyStats,
    /// IPv6, default VRF.
    pub ip6: FamilyStats,
    /// Distinct actions of routes.
    pub actions: usize,
    /// Neighbours in the table.
    pub neighbors: usize,
    /// What happened to them.
    pub neighbor_events: NeighborStats,
    /// Room used in the tables shared with workers.
    pub plane: PlaneUse,
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// All access lists with what their rules have matched.
    pub fn acls(&self) -> Vec<AclView> {
        self.acls.views()
    }

    /// The last samples of rules with `log`, oldest first.
    pub fn acl_log(&self) -> impl Iterator<Item = &AclLogEntry> {
        self.acl_log.entries()
    }

    /// Routes in order, IPv4 before IPv6, each prefix with all its sources, the preferred first. A page ends after
    /// `limit` prefixes.
    pub fn routes(&self, filter: &RouteFilter) -> Vec<RouteView> {
        let mut views = Vec::new();
        let mut left = filter.limit;
        let is4 = |net: Option<IpNet>| net.map(|n| n.addr().is_ipv4());
        let families = [filter.ip4, is4(filter.within), filter.longest_match.map(|a| a.is_ipv4())];
        if !families.contains(&Some(false)) && is4(filter.after) != Some(false) {
            let net = |n| if let IpNet::V4(n) = n { Some(Prefix::from(n)) } else { None };
            let to = filter
                .longest_match
                .and_then(|a| if let IpAddr::V4(a) = a { Some(a.to_bits()) } else { None });
            self.routes_of::<u32>(
                filter,
                filter.within.and_then(net),
                filter.after.and_then(net),
                to,
                &mut left,
                &mut views,
            );
        }
        if !families.contains(&Some(true)) {
            let net = |n| if let IpNet::V6(n) = n { Some(Prefix::from(n)) } else { None };
            let to = filter
                .longest_match
                .and_then(|a| if let IpAddr::V6(a) = a { Some(a.to_bits()) } else { None });
            self.routes_of::<u128>(
                filter,
                filter.within.and_then(net),
                filter.after.and_then(net),
                to,
                &mut left,
                &mut views,
            );
        }
        views
    }

    /// All neighbours in order of address.
    pub fn neighbors(&self) -> impl Iterator<Item = NeighborView> {
        self.neighbors.iter().filter_map(|(_, e)| {
            Some(NeighborView {
                interface: e.interface,
                address: e.address,
                mac: e.mac,
                state: e.state?,
                since: e.since,
                users: e.link.users.len(),
            })
        })
    }

    /// Figures.
    pub fn stats(&self) -> RouterStats {
        RouterStats {
            ip4: self.family_stats::<u32>(VRF_DEFAULT),
            ip6: self.family_stats::<u128>(VRF_DEFAULT),
            actions: self.actions.len(),
            neighbors: self.neighbors.len(),
            neighbor_events: self.neighbors.stats,
            plane: self.plane.in_use(),
        }
    }

    /// Figures of one VRF's tables.
    pub fn vrf_stats(&self, vrf: VrfId) -> Option<VrfStats> {
        let name = self.vrf(vrf)?.name.clone();
        let of = |(i, f): (IfIndex, &Interface)| (f.vrf == vrf).then_some(i);
        Some(VrfStats {
            vrf,
            name,
            interfaces: self.interfaces().iter().filter_map(of).collect(),
            ip4: self.family_stats::<u32>(vrf),
            ip6: self.family_stats::<u128>(vrf),
        })
    }

    fn family_stats<A: Address>(&self, vrf: VrfId) -> FamilyStats
    where
        Self: Family<A>,
    {
        let Some(table) = self.table(vrf) else { return FamilyStats::default() };
        FamilyStats {
            routes: Source::ALL.map(|s| table.rib.count(s)),
            fib_routes: table.fib.len(),
            fib: table.fib.memory(),
        }
    }

    fn routes_of<A: Address>(
        &self,
        filter: &RouteFilter,
        within: Option<Prefix<A>>,
        after: Option<Prefix<A>>,
        longest: Option<A>,
        left: &mut usize,
        views: &mut Vec<RouteView>,
    ) where
        Self: Family<A>,
    {
        let Some(rib) = self.table(filter.vrf).map(|t| &t.rib) else { return };
        let matched = longest.map(|a| rib.longest(a, |_| true).map(|(p, _)| p));
        let from = match (matched, within, after) {
            (Some(Some(p)), _, _) => Bound::Included(p),
            (Some(None), _, _) => return,
            (None, Some(w), Some(a)) if a < w => Bound::Included(w),
            (None, Some(w), None) => Bound::Included(w),
            (None, _, Some(a)) => Bound::Excluded(a),
            (None, None, None) => Bound::Unbounded,
        };
        for (prefix, candidates) in rib.iter_from(from) {
            let outside = matched.flatten().is_some_and(|p| p != prefix)
                || within.is_some_and(|w| !w.contains(prefix.first()));
            if outside || *left == 0 {
                return;
            }
            let Ok(net) = IpNet::new(prefix.first().to_ip(), prefix.len()) else { continue };
            let before = views.len();
            for (at, c) in candidates.iter().enumerate() {
                if filter.source.is_none_or(|s| s == c.source) {
                    let view = self.route_view(filter.vrf, net, c.source, at == 0, c.id);
                    if filter.accepts(&view) {
                        views.push(view);
                    }
                }
            }
            *left -= usize::from(views.len() > before);
        }
    }

    fn route_view(&self, vrf: VrfId, prefix: IpNet, source: Source, best: bool, id: NextHopId) -> RouteView {
        let on = |interface, address: Option<IpAddr>| {
            let entry = address.and_then(|a| self.neighbors.get(self.neighbors.find(interface, a)?));
            let state = entry.and_then(|e| e.state);
            PathView { neighbor: address, interface: Some(interface), table: None, weight: 1, state }
        };
        // A neighbour's host route may name the next hop of an action that means the same.
        let (action, paths) = match self.actions.get(id).filter(|_| source != Source::Neighbor) {
            None => {
                let host = prefix.addr();
                let entry = self.neighbors.between(host, host).filter_map(|at| self.neighbors.get(at));
                let interface = entry
                    .filter(|e| e.link.hosted == Some(id) && e.link.hosted_in == vrf)
                    .map(|e| e.interface)
                    .next();
                let interface = interface.unwrap_or(IfIndex::MAX);
                (ActionView::Neighbor(interface), vec![on(interface, Some(host))])
            }
            Some(action) => match &action.key {
                Key::Local => (ActionView::Local, Vec::new()),
                Key::Glean(i) => (ActionView::Connected(*i), vec![on(*i, None)]),
                // No route has that as its whole action; it is what a path of one leads to.
                Key::Table(_) => (ActionView::Local, Vec::new()),
                Key::Route(route) | Key::Default(route) => {
                    let paths = action.targets.iter().map(|(target, weight)| match target {
                        Target::Neighbor(at) => match self.neighbors.get(*at) {
                            Some(e) => PathView { weight: *weight, ..on(e.interface, Some(e.address)) },
                            None => PathView { weight: *weight, ..PathView::default() },
                        },
                        Target::Action(id) => {
                            let (interface, table) = match self.actions.get(*id).map(|a| &a.key) {
                                Some(Key::Glean(i)) => (Some(*i), None),
                                Some(Key::Table(vrf)) => (None, Some(*vrf)),
                                _ => (None, None),
                            };
                            PathView { interface, table, weight: *weight, ..PathView::default() }
                        }
                    });
                    (ActionView::Route(as_given(route, vrf)), paths.collect())
                }
            },
        };
        RouteView { vrf, prefix, source, best, next_hop: id, action, paths }
    }
}

/// An action without the VRF where that is the route's own, which goes without saying.
fn as_given(action: &Arc<RouteAction>, own: VrfId) -> Arc<RouteAction> {
    let RouteAction::Forward(paths) = &**action else { return action.clone() };
    let mut paths = paths.clone();
    for path in paths.iter_mut().filter(|p| p.interface.is_some() || p.vrf == Some(own)) {
        path.vrf = None;
    }
    Arc::new(RouteAction::Forward(paths))
}

impl RouteFilter {
    fn accepts(&self, view: &RouteView) -> bool {
        let configured = |gateway| match &view.action {
            ActionView::Route(action) => match &**action {
                RouteAction::Forward(paths) => paths.iter().any(|p| p.gateway == Some(gateway)),
                _ => false,
            },
            _ => false,
        };
        self.gateway.is_none_or(|g| configured(g) || view.paths.iter().any(|p| p.neighbor == Some(g)))
            && self.interface.is_none_or(|i| view.paths.iter().any(|p| p.interface == Some(i)))
    }
}

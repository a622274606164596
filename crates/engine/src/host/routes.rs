//! Routes of Linux and of FRR in the router's terms.
//!
//! Two sources: the kernel's tables ([`RouteTable`] knows the ways of its messages) and FRR over FPM, where a route is one
//! message that replaces the one before, and mostly names a next-hop object that other messages describe. Both are kept
//! here, since a route's meaning changes without a word about it: when the object it names does, or when a tap has been
//! made anew and has another index.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linerate_linux::fpm::FpmEvent;
use linerate_linux::netlink::{MonitorEvent, Section};
use linerate_linux::route::{
    Change, Event, NextHop, Nexthop, NexthopAction, Protocol, Route, RouteChange, RouteKind, RouteTable,
    Scope, Sweep,
};
use linerate_pipeline::IfIndex;
use linerate_router::model::MAX_WEIGHT;
use linerate_router::plane::MAX_GROUP_MEMBERS;
use linerate_router::{Path, RouteAction, Source};

/// Groups in groups that are followed.
const MAX_DEPTH: usize = 8;

/// A route of the router has changed: what it does from now on; `None`: it is gone.
pub(super) type RouterChange = (Source, u32, IpNet, Option<Arc<RouteAction>>);

/// What is known of FRR's session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmState {
    /// FRR is connected.
    pub connected: bool,
    /// Routes that FRR has told.
    pub routes: usize,
    /// Next-hop objects.
    pub objects: usize,
    /// Routes that cannot be used: their next-hop object is not known (yet), or none of their next hops is by an interface
    /// of this router.
    pub unusable: usize,
    /// Routes of an earlier session, which forward until the hold time is over.
    pub holding: bool,
    /// Routes that the last sweep removed.
    pub swept: usize,
}

/// All routes.
pub(super) struct Routes {
    kernel: RouteTable,
    fpm: HashMap<(u32, IpNet), Told>,
    objects: HashMap<u32, Object>,
    sweep: Sweep<(u32, IpNet)>,
    interfaces: Interfaces,
    pub(super) state: FpmState,
}

/// Interfaces of this router by their index in Linux.
type Interfaces = HashMap<u32, IfIndex>;

/// A route of FRR.
#[derive(Clone, Debug)]
enum Told {
    /// By a next-hop object.
    Object(u32),
    /// By next hops of its own.
    Own(Box<(RouteKind, Vec<NextHop>)>),
    /// Of an earlier session, as it was when that ended.
    Held(Option<Arc<RouteAction>>),
}

/// A next-hop object, and what a route by it does.
#[derive(Debug)]
struct Object {
    what: NexthopAction,
    action: Option<Arc<RouteAction>>,
}

impl Routes {
    /// No routes. After FRR has gone or come back, routes that it has not told again are removed after `hold`.
    pub(super) fn new(hold: Duration) -> Self {
        Routes {
            kernel: RouteTable::new(),
            fpm: HashMap::new(),
            objects: HashMap::new(),
            sweep: Sweep::new(hold),
            interfaces: Interfaces::new(),
            state: FpmState::default(),
        }
    }

    /// Which interfaces there are. Every route may mean something else now.
    pub(super) fn set_interfaces(&mut self, interfaces: Interfaces, out: &mut Vec<RouterChange>) {
        if interfaces == self.interfaces {
            return;
        }
        self.interfaces = interfaces;
        self.resolve_objects();
        let fpm = self.fpm.keys().map(|key| self.of_fpm(*key));
        let mut prefixes: Vec<(u32, IpNet)> = self.kernel.iter().map(|r| (r.table, r.prefix)).collect();
        prefixes.dedup();
        let kernel = prefixes.into_iter().map(|(table, prefix)| self.of_kernel(table, prefix));
        out.extend(fpm.chain(kernel));
    }

    /// What the kernel said.
    pub(super) fn kernel(&mut self, event: MonitorEvent, out: &mut Vec<RouterChange>) {
        let of = |section, route: &Route| (section == Section::RoutesV4) == route.prefix.addr().is_ipv4();
        let changes: Vec<RouteChange> = match event {
            MonitorEvent::Begin(section @ (Section::RoutesV4 | Section::RoutesV6)) => {
                self.kernel.begin_sweep(|route| of(section, route));
                return;
            }
            MonitorEvent::End(Section::RoutesV4 | Section::RoutesV6) => self.kernel.end_sweep(),
            MonitorEvent::Event(Event::Route(change, route)) => {
                self.kernel.apply(change, route).into_iter().collect()
            }
            _ => return,
        };
        out.extend(changes.into_iter().map(|c| self.of_kernel(c.table, c.prefix)));
    }

    /// What FRR said, a batch at a time: of a route that it takes back and tells again in one go (its way of changing one)
    /// only the last word counts.
    pub(super) fn fpm(&mut self, now: Instant, events: &mut Vec<FpmEvent>, out: &mut Vec<RouterChange>) {
        let mut touched: Vec<(u32, IpNet)> = Vec::with_capacity(events.len());
        let mut changed_objects = false;
        for event in events.drain(..) {
            match event {
                FpmEvent::Connected(_) => {
                    self.keep_what_was_told();
                    self.sweep.connected(now);
                    self.state.connected = true;
                }
                FpmEvent::Disconnected(_) => {
                    self.sweep.disconnected(now);
                    self.state.connected = false;
                }
                FpmEvent::Event(Event::Nexthop(change, object)) => {
                    changed_objects |= self.object(change, object);
                }
                FpmEvent::Event(Event::Route(change, route)) => {
                    let key = (route.table, route.prefix);
                    if self.route(change, key, route) && touched.last() != Some(&key) {
                        touched.push(key);
                    }
                }
                FpmEvent::Event(_) => {}
            }
        }
        if changed_objects {
            let differs = self.resolve_objects();
            let by = |told: &Told| matches!(told, Told::Object(id) if differs.contains(id));
            touched.extend(self.fpm.iter().filter(|(_, told)| by(told)).map(|(key, _)| *key));
            touched.sort_unstable();
            touched.dedup();
        }
        out.extend(touched.into_iter().map(|key| self.of_fpm(key)));
        self.note();
    }

    /// Removes what FRR has not told again, once the hold time is over.
    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<RouterChange>) {
        let Some(swept) = self.sweep.sweep(now) else { return };
        let gone: Vec<(u32, IpNet)> = self.fpm.keys().filter(|key| swept.gone(key)).copied().collect();
        for key in &gone {
            self.fpm.remove(key);
        }
        self.fpm.shrink_to_fit();
        if !self.state.connected {
            self.objects = HashMap::new();
        }
        self.state.swept = gone.len();
        out.extend(gone.into_iter().map(|(table, prefix)| (Source::Learned, table, prefix, None)));
        self.note();
    }

    /// Counts of the kernel's routes.
    pub(super) fn kernel_routes(&self) -> usize {
        self.kernel.len()
    }

    fn note(&mut self) {
        self.state.routes = self.fpm.len();
        self.state.objects = self.objects.len();
        self.state.holding = self.sweep.due().is_some();
    }

    /// Counts the routes that cannot be used: walks all of them.
    pub(super) fn count_unusable(&mut self) {
        let unusable = |key: &&(u32, IpNet)| self.of_fpm(**key).3.is_none();
        self.state.unusable = self.fpm.keys().filter(unusable).count();
    }

    /// A new session may use the numbers of objects for others: routes that it has not told yet stay as they are.
    fn keep_what_was_told(&mut self) {
        let Routes { fpm, objects, interfaces, .. } = self;
        for (key, told) in fpm.iter_mut() {
            let action = of_told(key.1, told, objects, interfaces);
            *told = Told::Held(action);
        }
        objects.clear();
    }

    fn route(&mut self, change: Change, key: (u32, IpNet), route: Route) -> bool {
        // Connected routes and those that FRR has from the kernel come from the kernel itself.
        if route.protocol == Protocol::KERNEL {
            return false;
        }
        if change == Change::Delete {
            self.sweep.deleted(&key);
            return self.fpm.remove(&key).is_some();
        }
        self.sweep.told(key);
        let told = match route.nexthop {
            // FRR's object for a route that drops does not say how.
            Some(id)
                if route.next_hops.is_empty()
                    && matches!(route.kind, RouteKind::Unicast | RouteKind::Unspecified) =>
            {
                Told::Object(id)
            }
            _ if route.unsupported().is_some() => Told::Held(None),
            _ => Told::Own(Box::new((route.kind, route.next_hops))),
        };
        self.fpm.insert(key, told);
        true
    }

    /// Whether objects have to be resolved again.
    fn object(&mut self, change: Change, object: Nexthop) -> bool {
        match (change, object.action) {
            (Change::Delete, _) | (_, None) => self.objects.remove(&object.id).is_some(),
            (_, Some(what)) => {
                let known = self.objects.get(&object.id).is_some_and(|o| o.what == what);
                if !known {
                    self.objects.insert(object.id, Object { what, action: None });
                }
                !known
            }
        }
    }

    /// Finds out what every object does; returns those that do something else than before.
    fn resolve_objects(&mut self) -> std::collections::HashSet<u32> {
        let mut differs = std::collections::HashSet::new();
        let ids: Vec<u32> = self.objects.keys().copied().collect();
        for id in ids {
            let action = object_action(id, &self.objects, &self.interfaces);
            let Some(object) = self.objects.get_mut(&id) else { continue };
            if object.action.as_deref() != action.as_ref() {
                object.action = action.map(Arc::new);
                differs.insert(id);
            }
        }
        differs
    }

    fn of_fpm(&self, key: (u32, IpNet)) -> RouterChange {
        let action =
            self.fpm.get(&key).and_then(|told| of_told(key.1, told, &self.objects, &self.interfaces));
        (Source::Learned, key.0, key.1, action)
    }

    fn of_kernel(&self, table: u32, prefix: IpNet) -> RouterChange {
        let route = self.kernel.get(table, prefix).filter(|r| is_wanted(r));
        let action =
            route.and_then(|r| action_of(r.kind, r.next_hops.iter().map(|h| (h, 1)), &self.interfaces));
        (Source::Kernel, table, prefix, action.map(Arc::new))
    }
}

/// Whether a route of the kernel is not one that the router makes itself of its addresses.
fn is_wanted(route: &Route) -> bool {
    let groups = matches!(route.prefix.addr(), IpAddr::V6(a) if a.is_multicast());
    let own_link = matches!(route.prefix.addr(), IpAddr::V6(a) if a.is_unicast_link_local());
    let connected = route.protocol == Protocol::KERNEL
        && (route.scope == Scope::Link || route.preferred_source.is_some() || route.prefix.addr().is_ipv6())
        && route.next_hops.iter().all(|h| h.gateway.is_none())
        && route.prefix.prefix_len() != route.prefix.max_prefix_len();
    route.protocol != super::rules::OURS
        && route.unsupported().is_none()
        && !groups
        && !own_link
        && !connected
}

fn of_told(
    prefix: IpNet,
    told: &Told,
    objects: &HashMap<u32, Object>,
    interfaces: &Interfaces,
) -> Option<Arc<RouteAction>> {
    match told {
        Told::Object(id) => {
            let action = objects.get(id)?.action.clone()?;
            fits(prefix, &action).then_some(action)
        }
        Told::Own(own) => {
            let action = action_of(own.0, own.1.iter().map(|h| (h, 1)), interfaces)?;
            fits(prefix, &action).then(|| Arc::new(action))
        }
        Told::Held(action) => action.clone(),
    }
}

/// Whether such routes can have such gateways: IPv6 packets have no IPv4 gateways.
fn fits(prefix: IpNet, action: &RouteAction) -> bool {
    match action {
        RouteAction::Forward(paths) if prefix.addr().is_ipv6() => {
            paths.iter().all(|p| p.gateway.is_none_or(|g| g.is_ipv6()))
        }
        _ => true,
    }
}

/// What a route by an object does; `None`: nothing that this router can do.
fn object_action(id: u32, objects: &HashMap<u32, Object>, interfaces: &Interfaces) -> Option<RouteAction> {
    let mut hops = Vec::new();
    match flatten(id, 1, objects, &mut hops, MAX_DEPTH)? {
        Some(kind) => action_of(kind, std::iter::empty(), interfaces),
        None => action_of(RouteKind::Unicast, hops.into_iter(), interfaces),
    }
}

/// Collects the next hops of an object with their weights, or says what it does instead of forwarding. `None`: it is
/// not known or can forward nothing.
fn flatten<'a>(
    id: u32,
    weight: u32,
    objects: &'a HashMap<u32, Object>,
    hops: &mut Vec<(&'a NextHop, u32)>,
    depth: usize,
) -> Option<Option<RouteKind>> {
    match &objects.get(&id)?.what {
        NexthopAction::Forward(hop) => {
            hops.push((hop, weight));
            Some(None)
        }
        NexthopAction::Blackhole => Some(Some(RouteKind::Blackhole)),
        NexthopAction::Fdb => None,
        NexthopAction::Group(members) => {
            let depth = depth.checked_sub(1)?;
            let mut drops = None;
            // A member that is not described (yet) is left out.
            for (member, share) in &members.members {
                let weight = weight.saturating_mul(*share);
                if let Some(Some(kind)) = flatten(*member, weight, objects, hops, depth) {
                    drops = Some(kind);
                }
            }
            if hops.is_empty() { drops.map(Some) } else { Some(None) }
        }
    }
}

/// What the router does by a route of this kind and these next hops, weighted by the objects that led to them.
fn action_of<'a>(
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

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;

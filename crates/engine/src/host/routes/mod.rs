//! Routes of Linux and of FRR in the router's terms.
//!
//! Two sources: the kernel's tables ([`RouteTable`] knows the ways of its messages) and FRR over FPM, where a route is one
//! message that replaces the one before, and mostly names a next-hop object that other messages describe. Both are kept
//! here, since a route's meaning changes without a word about it: when the object it names does, or when a tap has been
//! made anew and has another index.

mod action;
mod objects;
mod told;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linerate_linux::fpm::FpmEvent;
use linerate_linux::netlink::{MonitorEvent, Section};
use linerate_linux::route::{
    Change, Event, Protocol, Route, RouteChange, RouteKind, RouteTable, Scope, Sweep,
};
use linerate_pipeline::IfIndex;
use linerate_router::{RouteAction, Source};

use self::action::{action_of, fits};
use self::objects::Objects;
use self::told::{By, Told};

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
    fpm4: Told<Ipv4Net>,
    fpm6: Told<Ipv6Net>,
    objects: Objects,
    sweep: Sweep,
    interfaces: Interfaces,
    loopback: Loopback,
    pub(super) state: FpmState,
}

/// Addresses of the loopback and the table that they are in. The kernel has routes to them by the loopback, which is no
/// interface of this router: what such a route says is that the address is the system's own.
#[derive(Default)]
struct Loopback {
    table: u32,
    addresses: BTreeSet<IpAddr>,
}

impl Loopback {
    fn has(&self, table: u32, prefix: IpNet) -> bool {
        let host = prefix.prefix_len() == prefix.max_prefix_len();
        host && table == self.table && self.addresses.contains(&prefix.addr())
    }
}

/// Interfaces of this router by their index in Linux.
type Interfaces = HashMap<u32, IfIndex>;

/// A route of FRR: table and prefix.
type Key = (u32, IpNet);

/// Collects routes of either family.
struct Concerned<'a>(&'a mut Vec<Key>);

impl<N: Into<IpNet>> Extend<(u32, N)> for Concerned<'_> {
    fn extend<I: IntoIterator<Item = (u32, N)>>(&mut self, routes: I) {
        self.0.extend(routes.into_iter().map(|(table, prefix)| (table, prefix.into())));
    }
}

impl Routes {
    /// No routes. After FRR has gone or come back, routes that it has not told again are removed after `hold`.
    pub(super) fn new(hold: Duration) -> Self {
        Routes {
            kernel: RouteTable::new(),
            fpm4: Told::new(),
            fpm6: Told::new(),
            objects: Objects::default(),
            sweep: Sweep::new(hold),
            interfaces: Interfaces::new(),
            loopback: Loopback::default(),
            state: FpmState::default(),
        }
    }

    /// Which interfaces there are. Every route may mean something else now.
    pub(super) fn set_interfaces(&mut self, interfaces: Interfaces, out: &mut Vec<RouterChange>) {
        if interfaces == self.interfaces {
            return;
        }
        self.interfaces = interfaces;
        let mut concerned = Vec::new();
        let changed = self.objects.resolve_all(&self.interfaces);
        self.change_objects(changed);
        self.fpm4.change_own();
        self.fpm6.change_own();
        self.settle(&mut concerned);
        out.extend(concerned.into_iter().map(|key| self.of_fpm(key)));
        let mut prefixes: Vec<(u32, IpNet)> = self.kernel.iter().map(|r| (r.table, r.prefix)).collect();
        prefixes.dedup();
        let kernel = prefixes.into_iter().map(|(table, prefix)| self.of_kernel(table, prefix));
        out.extend(kernel);
    }

    /// Which addresses the loopback has: they are local in this table, whatever routes the kernel has to them.
    pub(super) fn set_loopback(
        &mut self,
        table: u32,
        addresses: impl Iterator<Item = IpAddr>,
        out: &mut Vec<RouterChange>,
    ) {
        let addresses: BTreeSet<IpAddr> = addresses.collect();
        let before = std::mem::replace(&mut self.loopback, Loopback { table, addresses });
        let changed = before.addresses.symmetric_difference(&self.loopback.addresses);
        out.extend(changed.map(|address| self.of_kernel(table, (*address).into())));
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
    /// only the last word counts, and so it does of a next-hop object.
    pub(super) fn fpm(&mut self, now: Instant, events: &mut Vec<FpmEvent>, out: &mut Vec<RouterChange>) {
        let mut touched: Vec<Key> = Vec::with_capacity(events.len());
        for event in events.drain(..) {
            match event {
                FpmEvent::Connected(_) => {
                    self.settle(&mut touched);
                    self.fpm4.hold();
                    self.fpm6.hold();
                    self.objects.clear();
                    self.sweep.connected(now);
                    self.state.connected = true;
                }
                FpmEvent::Disconnected(_) => {
                    self.sweep.disconnected(now);
                    self.state.connected = false;
                }
                FpmEvent::Event(Event::Nexthop(change, object)) => self.objects.tell(change, object),
                FpmEvent::Event(Event::Route(change, route)) => {
                    let key = (route.table, route.prefix);
                    if self.route(now, change, route) && touched.last() != Some(&key) {
                        touched.push(key);
                    }
                }
                FpmEvent::Event(_) => {}
            }
        }
        self.settle(&mut touched);
        out.extend(touched.into_iter().map(|key| self.of_fpm(key)));
        self.note();
    }

    /// Removes what FRR has not told again, once the hold time is over.
    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<RouterChange>) {
        if let Some(all) = self.sweep.is_due(now) {
            let mut gone = Vec::new();
            Concerned(&mut gone).extend(self.fpm4.sweep(all));
            Concerned(&mut gone).extend(self.fpm6.sweep(all));
            if all {
                self.objects.clear();
            }
            self.state.swept = gone.len();
            out.extend(gone.into_iter().map(|(table, prefix)| (Source::Learned, table, prefix, None)));
        }
        self.fpm4.shrink();
        self.fpm6.shrink();
        self.note();
        self.state.holding =
            self.sweep.waits() && (!self.state.connected || self.fpm4.holds() || self.fpm6.holds());
    }

    /// Counts of the kernel's routes.
    pub(super) fn kernel_routes(&self) -> usize {
        self.kernel.len()
    }

    fn note(&mut self) {
        self.state.routes = self.fpm4.len() + self.fpm6.len();
        self.state.unusable = self.fpm4.unusable() + self.fpm6.unusable();
        self.state.objects = self.objects.len();
    }

    /// A route is told, or taken back; whether it has to be looked at.
    fn route(&mut self, now: Instant, change: Change, route: Route) -> bool {
        // Connected routes and those that FRR has from the kernel come from the kernel itself.
        if route.protocol == Protocol::KERNEL {
            return false;
        }
        let (table, prefix) = (route.table, route.prefix);
        if change == Change::Delete {
            return match prefix {
                IpNet::V4(p) => self.fpm4.remove(table, p),
                IpNet::V6(p) => self.fpm6.remove(table, p),
            };
        }
        let drops = !matches!(route.kind, RouteKind::Unicast | RouteKind::Unspecified);
        let by = match route.nexthop {
            // FRR's object for a route that drops does not say how.
            Some(id) if route.next_hops.is_empty() && !drops => By::Object(id),
            _ if route.unsupported().is_some() => By::Unsupported,
            _ => By::Own(route.kind, route.next_hops),
        };
        let again = match prefix {
            IpNet::V4(p) => self.fpm4.set(table, p, by),
            IpNet::V6(p) => self.fpm6.set(table, p, by),
        };
        if again {
            self.sweep.told_again(now);
        }
        true
    }

    /// Brings routes up to date with the objects that have changed; appends those that do something else now.
    fn settle(&mut self, concerned: &mut Vec<Key>) {
        if self.objects.is_changed() {
            let changed = self.objects.resolve(&self.interfaces);
            self.change_objects(changed);
        }
        let Routes { fpm4, fpm6, objects, interfaces, .. } = self;
        let (objects, interfaces) = (&*objects, &*interfaces);
        let resolve = |ip6| {
            move |by: &By| match by {
                By::Object(id) => objects.action(*id).filter(|action| fits(ip6, action)).cloned(),
                by => own_action(ip6, by, interfaces),
            }
        };
        fpm4.settle(resolve(false), &mut Concerned(concerned));
        fpm6.settle(resolve(true), &mut Concerned(concerned));
    }

    fn change_objects(&mut self, changed: Vec<u32>) {
        for id in changed {
            self.fpm4.change(id);
            self.fpm6.change(id);
        }
    }

    fn of_fpm(&self, (table, prefix): Key) -> RouterChange {
        let action = match prefix {
            IpNet::V4(p) => self.fpm4.action(table, p),
            IpNet::V6(p) => self.fpm6.action(table, p),
        };
        (Source::Learned, table, prefix, action.cloned())
    }

    fn of_kernel(&self, table: u32, prefix: IpNet) -> RouterChange {
        if self.loopback.has(table, prefix) {
            return (Source::Kernel, table, prefix, Some(Arc::new(RouteAction::Local)));
        }
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

/// What routes of a family by next hops of their own do.
fn own_action(ip6: bool, by: &By, interfaces: &Interfaces) -> Option<Arc<RouteAction>> {
    let By::Own(kind, hops) = by else { return None };
    action_of(*kind, hops.iter().map(|h| (h, 1)), interfaces).filter(|a| fits(ip6, a)).map(Arc::new)
}

#[cfg(test)]
mod tests;

//! The router's control logic: what is desired goes in, the plane follows.
//!
//! One owner on a control thread; no threads, clocks or sockets here. Time is a parameter in nanoseconds of any
//! monotonic clock. Every call leaves RIB, FIBs, next hops and neighbours in agreement.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::{IfIndex, Interface, InterfaceTable};
use linerate_tables::fib::{Fib, NextHopId};
use linerate_tables::prefix::{Address, Prefix};
use linerate_tables::qsbr::Domain;
use linerate_tables::snapshot::Publisher;

use crate::action::{Action, Actions, Key};
use crate::connected::{Own, OwnRoutes};
use crate::event::{ArpKind, NdKind, Probe, RouterEvent};
use crate::model::{Changes, RouteAction, RouterConfig, RouterError, Source, StaticNeighbor};
use crate::neighbor::{Heard, NeighborOptions, Neighbors};
use crate::plane::{Plane, PlaneWriter};
use crate::rib::{Candidate, Step};
use crate::table::{Sorted, Table};

/// The router. `F4` and `F6` are the writers of its FIBs, which it owns.
#[derive(Debug)]
pub struct Router<F4, F6> {
    pub(crate) now: u64,
    pub(crate) plane: PlaneWriter,
    pub(crate) interfaces: Publisher<InterfaceTable>,
    pub(crate) v4: Table<u32, F4>,
    pub(crate) v6: Table<u128, F6>,
    pub(crate) actions: Actions,
    pub(crate) neighbors: Neighbors,
    statics: BTreeMap<(IfIndex, IpAddr), [u8; 6]>,
    /// Shortest connected prefix of IPv4 and IPv6: shorter routes cannot come between a neighbour and its network.
    shortest: [u8; 2],
}

/// The table of an address family, by the type of its addresses.
pub(crate) trait Family<A: Address> {
    type Fib: Fib<A>;
    fn table(&self) -> &Table<A, Self::Fib>;
    fn table_mut(&mut self) -> &mut Table<A, Self::Fib>;
}

impl<F4: Fib<u32>, F6: Fib<u128>> Family<u32> for Router<F4, F6> {
    type Fib = F4;
    fn table(&self) -> &Table<u32, F4> {
        &self.v4
    }
    fn table_mut(&mut self) -> &mut Table<u32, F4> {
        &mut self.v4
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Family<u128> for Router<F4, F6> {
    type Fib = F6;
    fn table(&self) -> &Table<u128, F6> {
        &self.v6
    }
    fn table_mut(&mut self) -> &mut Table<u128, F6> {
        &mut self.v6
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// A router without interfaces and routes. The FIBs must be empty and use the same QSBR domain, which all workers
    /// are registered with.
    pub fn new(domain: Domain, fib4: F4, fib6: F6, neighbors: NeighborOptions) -> Result<Self, RouterError> {
        Ok(Router {
            now: 0,
            plane: PlaneWriter::new(domain)?,
            interfaces: Publisher::new(InterfaceTable::default()),
            v4: Table::new(fib4),
            v6: Table::new(fib6),
            actions: Actions::default(),
            neighbors: Neighbors::new(neighbors),
            statics: BTreeMap::new(),
            shortest: [u8::MAX; 2],
        })
    }

    /// What the nodes of a worker read.
    pub fn plane(&self) -> Plane<F4::Reader, F6::Reader> {
        Plane {
            fib4: self.v4.fib.reader(),
            fib6: self.v6.fib.reader(),
            next_hops: self.plane.reader(),
            interfaces: self.interfaces.reader(),
        }
    }

    /// Makes this the state: interfaces, static routes and static neighbours. Only what differs is touched. All of it
    /// is checked before anything changes; an error after that can only be a full table.
    pub fn apply(&mut self, now: u64, config: RouterConfig) -> Result<Changes, RouterError> {
        let table = InterfaceTable::build(config.interfaces)?;
        check_routes(&config.routes, &table)?;
        check_neighbors(&config.neighbors, &table)?;
        self.now = now;
        self.use_interfaces(table)?;
        self.use_neighbors(config.neighbors);
        let changes = self.use_routes(Source::Static, config.routes);
        self.finish();
        changes
    }

    /// Replaces all interfaces. Routes by interfaces that are gone stay and come to life again with them.
    pub fn set_interfaces(
        &mut self,
        now: u64,
        interfaces: impl IntoIterator<Item = (IfIndex, Interface)>,
    ) -> Result<(), RouterError> {
        let table = InterfaceTable::build(interfaces)?;
        self.now = now;
        let result = self.use_interfaces(table);
        self.finish();
        result
    }

    /// An interface goes up or down: its networks and addresses come or go, paths by it are used or not.
    pub fn set_link(&mut self, now: u64, interface: IfIndex, up: bool) -> Result<(), RouterError> {
        let mut all: Vec<_> = self.interfaces.current().iter().map(|(i, f)| (i, f.clone())).collect();
        let changed = all.iter_mut().find(|(i, f)| *i == interface && f.up != up);
        match changed {
            Some((_, f)) => f.up = up,
            None => return Ok(()),
        }
        self.set_interfaces(now, all)
    }

    /// Replaces all routes of a source (configuration, or a daemon after a restart). A later route for the same prefix
    /// replaces an earlier one.
    pub fn set_routes(
        &mut self,
        now: u64,
        source: Source,
        routes: Vec<(IpNet, Arc<RouteAction>)>,
    ) -> Result<Changes, RouterError> {
        check_routes(&routes, self.interfaces.current())?;
        self.now = now;
        let changes = self.use_routes(source, routes);
        self.finish();
        changes
    }

    /// Adds one route or replaces its action.
    pub fn insert(
        &mut self,
        now: u64,
        source: Source,
        prefix: IpNet,
        action: &RouteAction,
    ) -> Result<(), RouterError> {
        let table = self.interfaces.current();
        action.check(prefix, |i| table.get(i).is_some())?;
        self.now = now;
        let id = self.intern(Key::Route(Arc::new(action.canonical())))?;
        self.settle();
        let result = match prefix {
            IpNet::V4(p) => self.change(Prefix::<u32>::from(p), source, Some(id)),
            IpNet::V6(p) => self.change(Prefix::<u128>::from(p), source, Some(id)),
        };
        if result.is_err() {
            self.release(id);
        }
        self.finish();
        result.map(|_| ())
    }

    /// Removes one route. Returns whether it was there.
    pub fn withdraw(&mut self, now: u64, source: Source, prefix: IpNet) -> Result<bool, RouterError> {
        self.now = now;
        let step = match prefix {
            IpNet::V4(p) => self.change(Prefix::<u32>::from(p), source, None),
            IpNet::V6(p) => self.change(Prefix::<u128>::from(p), source, None),
        };
        self.finish();
        Ok(step?.had.is_some())
    }

    /// Takes in what a worker saw.
    pub fn event(&mut self, now: u64, event: RouterEvent) {
        self.now = now;
        match event {
            RouterEvent::Unresolved { interface, address } => {
                if self.can_be_neighbor(interface, address, true) {
                    self.neighbors.unresolved(now, interface, address);
                }
            }
            RouterEvent::ArpSeen { interface, address, mac, kind } => {
                let asked = kind == ArpKind::RequestForUs;
                let how = Heard { create: asked, confirm: asked || kind == ArpKind::Reply, replace: true };
                self.heard(interface, address.into(), mac, how);
            }
            RouterEvent::NdSeen { interface, address, mac, kind } => {
                let how = match kind {
                    NdKind::Solicitation => Heard { create: true, confirm: false, replace: true },
                    NdKind::Advertisement { solicited, overrides } => {
                        Heard { create: false, confirm: solicited, replace: overrides }
                    }
                };
                self.heard(interface, address.into(), mac, how);
            }
        }
        self.finish();
    }

    /// Lets timers run and recycles what workers have let go. Call it at least every 100 ms.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        let plane = &mut self.plane;
        self.neighbors.tick(now, &mut |adjacency| plane.take_used(adjacency));
        self.interfaces.collect();
        self.finish();
    }

    /// When [`tick`](Self::tick) next has a timer to run; `None`: not before something happens.
    pub fn next_timer(&self) -> Option<u64> {
        self.neighbors.next_timer()
    }

    /// The probes to send since the last call: hand them to workers.
    pub fn probes(&mut self) -> impl Iterator<Item = Probe> + '_ {
        std::iter::from_fn(|| self.neighbors.take_probe())
    }

    /// The interfaces as they are.
    pub fn interfaces(&self) -> &InterfaceTable {
        self.interfaces.current()
    }

    fn heard(&mut self, interface: IfIndex, address: IpAddr, mac: [u8; 6], how: Heard) {
        let Some(own) = self.interfaces.current().get(interface) else { return };
        if own.owns(address) {
            self.neighbors.stats.duplicates += u64::from(mac != own.mac);
            return;
        }
        // A group or zero address can be nobody's.
        if mac[0] & 1 != 0 || mac == [0; 6] {
            self.neighbors.stats.ignored += 1;
            return;
        }
        let known = self.neighbors.find(interface, address).is_some();
        if known || how.create && self.can_be_neighbor(interface, address, false) {
            self.neighbors.heard(self.now, interface, address, mac, how);
        }
    }

    /// Whether an address may become a neighbour of an interface; counts it as ignored where not. What waits for a
    /// gateway that a route puts on this interface is known already and asks for nothing.
    fn can_be_neighbor(&mut self, index: IfIndex, address: IpAddr, known_is_fine: bool) -> bool {
        let known = known_is_fine && self.neighbors.find(index, address).is_some();
        let interface = self.interfaces.current().get(index).filter(|i| i.up);
        let fine = interface.is_some_and(|interface| match address {
            IpAddr::V4(a) => {
                let zero = |n: &ipnet::Ipv4Net| n.prefix_len() < 31 && n.network() == a;
                interface.on_link_ip4(a)
                    && !interface.owns_ip4(a)
                    && !interface.is_broadcast_ip4(a)
                    && !interface.ip4.iter().any(zero)
            }
            IpAddr::V6(a) => interface.on_link_ip6(a) && !interface.owns_ip6(a) && !a.is_multicast(),
        });
        self.neighbors.stats.ignored += u64::from(!fine && !known);
        fine || known
    }

    pub(crate) fn is_up(&self, interface: IfIndex) -> bool {
        self.interfaces.current().get(interface).is_some_and(|i| i.up)
    }

    /// The route that a gateway is reached by, host routes of neighbours not counted.
    pub(crate) fn route_of_gateway(&self, gateway: IpAddr) -> Option<(NextHopId, &Action)> {
        let id = self.longest(gateway)?.id;
        Some((id, self.actions.get(id)?))
    }

    /// The preferred route that covers an address, host routes of neighbours not counted.
    pub(crate) fn longest(&self, address: IpAddr) -> Option<Candidate> {
        let wanted = |c: Candidate| c.source != Source::Neighbor;
        match address {
            IpAddr::V4(a) => Some(self.v4.rib.longest(a.to_bits(), wanted)?.1),
            IpAddr::V6(a) => Some(self.v6.rib.longest(a.to_bits(), wanted)?.1),
        }
    }

    fn use_interfaces(&mut self, table: InterfaceTable) -> Result<(), RouterError> {
        let old = self.interfaces.current();
        let last = old.iter().chain(table.iter()).map(|(i, _)| i).max();
        let changed: Vec<IfIndex> =
            last.map_or(0..0, |last| 0..last + 1).filter(|i| old.get(*i) != table.get(*i)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let own = OwnRoutes::of(table.iter());
        self.interfaces.publish(table);
        // First what is on the wire: neighbours of interfaces that went down are unusable by one store each.
        for interface in &changed {
            for at in self.neighbors.on(*interface) {
                if let Some(entry) = self.neighbors.get_mut(at) {
                    entry.link.rebuild = true;
                }
                self.neighbors.touch(at);
            }
        }
        self.settle();
        let shortest = |len: Option<u8>| len.unwrap_or(u8::MAX);
        self.shortest = [
            shortest(own.connected4.keys().map(|p| p.len()).min()),
            shortest(own.connected6.keys().map(|p| p.len()).min()),
        ];
        let mut result = self.use_own(Source::Connected, own.connected4);
        result = self.use_own(Source::Local, own.local4).and(result);
        result = self.use_own(Source::Connected, own.connected6).and(result);
        result = self.use_own(Source::Local, own.local6).and(result);
        self.actions.mark_all();
        self.settle();
        for index in changed {
            let current = self.interfaces.current();
            let interface = current.get(index).filter(|i| i.up);
            self.neighbors.forget(index, |address| {
                interface.is_some_and(|i| match address {
                    IpAddr::V4(a) => i.on_link_ip4(a) && !i.owns_ip4(a),
                    IpAddr::V6(a) => i.on_link_ip6(a) && !i.owns_ip6(a),
                })
            });
        }
        self.plane.wake();
        result
    }

    fn use_own<A: Address>(&mut self, source: Source, own: Own<A>) -> Result<(), RouterError>
    where
        Self: Family<A>,
    {
        let mut routes = Vec::with_capacity(own.len());
        for (prefix, interface) in own {
            let key = if source == Source::Local { Key::Local } else { Key::Glean(interface) };
            routes.push((prefix, self.intern(key)?));
        }
        self.use_sorted(source, routes).map(|_| ())
    }

    fn use_neighbors(&mut self, neighbors: Vec<StaticNeighbor>) {
        let wanted: BTreeMap<_, _> =
            neighbors.into_iter().map(|n| ((n.interface, n.address), n.mac)).collect();
        let old = std::mem::replace(&mut self.statics, wanted);
        for (interface, address) in old.keys().filter(|k| !self.statics.contains_key(k)) {
            self.neighbors.unset_static(self.now, *interface, *address);
        }
        for ((interface, address), mac) in self.statics.iter().filter(|(k, mac)| old.get(k) != Some(mac)) {
            self.neighbors.set_static(self.now, *interface, *address, *mac);
        }
        self.settle();
    }

    fn use_routes(
        &mut self,
        source: Source,
        routes: Vec<(IpNet, Arc<RouteAction>)>,
    ) -> Result<Changes, RouterError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (prefix, action) in &routes {
            match prefix {
                IpNet::V4(p) => v4.push((Prefix::<u32>::from(*p), action)),
                IpNet::V6(p) => v6.push((Prefix::<u128>::from(*p), action)),
            }
        }
        let mut known = HashMap::new();
        let v4 = self.intern_all(v4, &mut known)?;
        let v6 = self.intern_all(v6, &mut known)?;
        drop(routes);
        let a = self.use_sorted(source, v4)?;
        let b = self.use_sorted(source, v6)?;
        Ok(Changes {
            added: a.added + b.added,
            replaced: a.replaced + b.replaced,
            removed: a.removed + b.removed,
        })
    }

    /// Sorts routes, drops all but the last for each prefix, and interns their actions, each `Arc` once.
    fn intern_all<A: Address>(
        &mut self,
        mut routes: Vec<(Prefix<A>, &Arc<RouteAction>)>,
        known: &mut HashMap<*const RouteAction, NextHopId>,
    ) -> Result<Sorted<A>, RouterError> {
        routes.sort_by_key(|r| r.0);
        routes.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
            }
            same
        });
        let mut sorted = Sorted::with_capacity(routes.len());
        for (prefix, action) in routes {
            let id = match known.get(&Arc::as_ptr(action)) {
                Some(id) => {
                    self.actions.hold(*id);
                    *id
                }
                None => {
                    let id = match self.intern(Key::Route(Arc::new(action.canonical()))) {
                        Ok(id) => id,
                        Err(error) => {
                            sorted.iter().for_each(|(_, id)| self.release(*id));
                            return Err(error.into());
                        }
                    };
                    known.insert(Arc::as_ptr(action), id);
                    id
                }
            };
            sorted.push((prefix, id));
        }
        Ok(sorted)
    }

    /// Makes these the routes of a source. Each entry comes with one use of its action.
    fn use_sorted<A: Address>(&mut self, source: Source, wanted: Sorted<A>) -> Result<Changes, RouterError>
    where
        Self: Family<A>,
    {
        let difference = self.table().difference(source, &wanted);
        let mut set = difference.set.iter().map(|(p, _)| *p).peekable();
        for (prefix, id) in &wanted {
            if set.next_if_eq(prefix).is_none() {
                self.release(*id);
            }
        }
        drop(wanted);
        let changes = Changes {
            added: difference.set.len() - difference.replaced,
            replaced: difference.replaced,
            removed: difference.removed.len(),
        };
        for prefix in difference.removed {
            self.change(prefix, source, None)?;
        }
        let rest = if Table::<A, <Self as Family<A>>::Fib>::is_bulk(&difference.set) {
            let (fresh, rest) = self.table().split_fresh(difference.set);
            self.load(source, fresh)?;
            rest
        } else {
            self.settle();
            difference.set
        };
        for (prefix, id) in rest {
            if let Err(error) = self.change(prefix, source, Some(id)) {
                self.release(id);
                return Err(error);
            }
        }
        Ok(changes)
    }

    /// Adds many routes for prefixes that nobody has a route for.
    fn load<A: Address>(&mut self, source: Source, fresh: Sorted<A>) -> Result<(), RouterError>
    where
        Self: Family<A>,
    {
        self.table_mut().rib.append(source, fresh.clone());
        // The actions get their meaning from the new routes before the FIB names them.
        self.actions.mark_all();
        self.settle();
        let result = self.table_mut().load(source, &fresh);
        if result.is_err() {
            fresh.iter().for_each(|(_, id)| self.release(*id));
            self.actions.mark_all();
        }
        let all: Vec<_> = self.neighbors.iter().map(|(at, _)| at).collect();
        all.into_iter().for_each(|at| self.neighbors.touch(at));
        self.settle();
        Ok(result?)
    }

    /// Sets or removes one route and notes what depends on it. A use of `id` passes to the route.
    pub(crate) fn change<A: Address>(
        &mut self,
        prefix: Prefix<A>,
        source: Source,
        id: Option<NextHopId>,
    ) -> Result<Step, RouterError>
    where
        Self: Family<A>,
    {
        let step = self.table_mut().change(prefix, source, id)?;
        if source != Source::Neighbor && step.before != step.after {
            let (first, last) = (prefix.first().to_ip(), prefix.last().to_ip());
            self.actions.mark_between(first, last);
            if prefix.len() >= self.shortest[usize::from(A::BITS == 128)] {
                let inside: Vec<_> = self.neighbors.between(first, last).collect();
                inside.into_iter().for_each(|at| self.neighbors.touch(at));
            }
        }
        if let Some(had) = step.had {
            self.release(had);
        }
        Ok(step)
    }

    /// Brings actions and neighbours up to date with what changed.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(id) = self.actions.dirty.pop_first() {
                self.resolve(id);
            } else if let Some(at) = self.neighbors.take_changed() {
                self.sync(at);
            } else {
                return;
            }
        }
    }

    fn finish(&mut self) {
        self.settle();
        self.plane.commit();
    }
}

fn check_routes(routes: &[(IpNet, Arc<RouteAction>)], table: &InterfaceTable) -> Result<(), RouterError> {
    let mut checked = std::collections::HashSet::new();
    for (prefix, action) in routes {
        if checked.insert((Arc::as_ptr(action), prefix.addr().is_ipv4())) {
            action.check(*prefix, |i| table.get(i).is_some())?;
        }
    }
    Ok(())
}

fn check_neighbors(neighbors: &[StaticNeighbor], table: &InterfaceTable) -> Result<(), RouterError> {
    for n in neighbors {
        let problem = match table.get(n.interface) {
            None => "its interface does not exist",
            Some(i) if i.owns(n.address) => "this is the interface's own address",
            _ if n.address.is_multicast() || n.address.is_unspecified() => "this is no unicast address",
            _ if n.mac[0] & 1 != 0 || n.mac == [0; 6] => "its MAC address is no station's",
            Some(_) => continue,
        };
        return Err(RouterError::BadNeighbor { address: n.address, problem });
    }
    Ok(())
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;

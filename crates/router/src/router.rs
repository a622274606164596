//! The router's control logic: what is desired goes in, the plane follows.
//!
//! One owner on a control thread; no threads, clocks or sockets here. Time is a parameter in nanoseconds of any
//! monotonic clock. Every call leaves RIB, FIBs, next hops and neighbours in agreement.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::{IfIndex, Interface, InterfaceTable, VRF_DEFAULT, VrfId};
use linerate_tables::fib::{Fib, NextHopId};
use linerate_tables::prefix::{Address, Prefix};
use linerate_tables::qsbr::Domain;
use linerate_tables::snapshot::Publisher;

use crate::acl::{Acl, AclBinding, AclError, AclLogBook, AclWriter};
use crate::action::{Action, Actions, Key};
use crate::check::{check_neighbors, check_routes};
use crate::conflict::Conflict;
use crate::connected::{Own, OwnRoutes};
use crate::event::{ArpKind, NdKind, Probe, RouterEvent};
use crate::model::{Changes, RouteAction, RouterConfig, RouterError, Source, StaticNeighbor, VrfConfig};
use crate::multicast::control::MulticastControl;
use crate::neighbor::{Entry, EntryIndex, Heard, NeighborOptions, Neighbors};
use crate::plane::{FibSet, Limits, Plane, PlaneError, PlaneWriter};
use crate::rib::{Candidate, Step};
use crate::table::{Sorted, Table};
use crate::vrf::{Factory, Family, Vrf};

/// The router. `F4` and `F6` are the writers of its FIBs, which it owns.
pub struct Router<F4: Fib<u32>, F6: Fib<u128>> {
    pub(crate) now: u64,
    pub(crate) plane: PlaneWriter,
    pub(crate) interfaces: Publisher<InterfaceTable>,
    pub(crate) acls: AclWriter,
    pub(crate) acl_log: AclLogBook,
    pub(crate) default_vrf: Vrf<F4, F6>,
    /// The other VRFs, number 1 first.
    pub(crate) other_vrfs: Vec<Option<Vrf<F4, F6>>>,
    pub(crate) factory: Factory<F4, F6>,
    pub(crate) fibs4: Publisher<FibSet<F4::Reader>>,
    pub(crate) fibs6: Publisher<FibSet<F6::Reader>>,
    pub(crate) actions: Actions,
    pub(crate) neighbors: Neighbors,
    pub(crate) multicast: MulticastControl,
    statics: BTreeMap<(IfIndex, IpAddr), [u8; 6]>,
    pub(crate) conflicts: BTreeMap<(IfIndex, IpAddr), Conflict>,
    /// Something changed that packets held by workers may have waited for.
    pub(crate) stirred: bool,
    /// Why a neighbour or path could not be put into the tables, since this was last asked.
    pub(crate) full: Option<PlaneError>,
    /// Neighbours that found the tables full, and when they try again.
    pub(crate) starved: Vec<EntryIndex>,
    pub(crate) starved_until: u64,
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// A router without interfaces and routes. The FIBs must be empty and use the same QSBR domain, which all workers
    /// are registered with.
    pub fn new(domain: Domain, fib4: F4, fib6: F6, neighbors: NeighborOptions) -> Result<Self, RouterError> {
        Self::with_limits(domain, fib4, fib6, neighbors, Limits::default())
    }

    pub(crate) fn with_limits(
        domain: Domain,
        fib4: F4,
        fib6: F6,
        neighbors: NeighborOptions,
        limits: Limits,
    ) -> Result<Self, RouterError> {
        Ok(Router {
            now: 0,
            plane: PlaneWriter::with_limits(domain, limits)?,
            interfaces: Publisher::new(InterfaceTable::default()),
            acls: AclWriter::default(),
            acl_log: AclLogBook::default(),
            factory: Factory(None),
            fibs4: Publisher::new(FibSet::new([Some(fib4.reader())])),
            fibs6: Publisher::new(FibSet::new([Some(fib6.reader())])),
            default_vrf: Vrf::new("default", fib4, fib6),
            other_vrfs: Vec::new(),
            actions: Actions::default(),
            neighbors: Neighbors::new(neighbors),
            multicast: MulticastControl::default(),
            statics: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            stirred: false,
            full: None,
            starved: Vec::new(),
            starved_until: 0,
        })
    }

    /// What the nodes of a worker read.
    pub fn plane(&self) -> Plane<F4::Reader, F6::Reader> {
        Plane {
            fib4: self.default_vrf.v4.fib.reader(),
            fib6: self.default_vrf.v6.fib.reader(),
            vrfs4: self.fibs4.reader(),
            vrfs6: self.fibs6.reader(),
            next_hops: self.plane.reader(),
            interfaces: self.interfaces.reader(),
            acls: self.acls.reader(),
            multicast: self.multicast.reader(),
        }
    }

    /// Makes this the state: VRFs, interfaces, static routes and static neighbours. Only what differs is touched. All of it
    /// is checked before anything changes; an error after that can only be a full table: then what found room works.
    pub fn apply(&mut self, now: u64, config: RouterConfig) -> Result<Changes, RouterError> {
        let table = InterfaceTable::build(config.interfaces)?;
        self.check_vrfs(&config.vrfs)?;
        Self::check_interface_vrfs(&table, |vrf| config.vrfs.iter().any(|v| v.vrf == vrf))?;
        for routes in config.vrfs.iter().map(|v| &v.routes).chain([&config.routes]) {
            check_routes(routes, &table)?;
        }
        check_neighbors(&config.neighbors, &table)?;
        self.now = now;
        self.full = None;
        let vrfs: Vec<VrfId> = config.vrfs.iter().map(|v| v.vrf).collect();
        let made = config.vrfs.iter().try_for_each(|v| match self.vrf(v.vrf) {
            None => self.add_vrf(v.vrf, &v.name),
            Some(_) => {
                self.name_vrf(v.vrf, v.name.clone());
                Ok(())
            }
        });
        let interfaces = made.and_then(|()| self.use_interfaces(table));
        self.use_neighbors(config.neighbors);
        let gone: Vec<VrfId> =
            self.vrfs().map(|(v, _)| v).filter(|v| *v != VRF_DEFAULT && !vrfs.contains(v)).collect();
        if interfaces.is_ok() {
            gone.into_iter().for_each(|vrf| self.remove_vrf(vrf));
        }
        let mut changes = self.use_routes(VRF_DEFAULT, Source::Static, config.routes);
        for VrfConfig { vrf, routes, .. } in config.vrfs {
            changes = changes.and_then(|so_far| Ok(so_far + self.use_routes(vrf, Source::Static, routes)?));
        }
        self.finish();
        interfaces?;
        let changes = changes?;
        match self.full.take() {
            Some(error) => Err(error.into()),
            None => Ok(changes),
        }
    }

    /// Replaces all interfaces. Routes by interfaces that are gone stay and come to life again with them.
    pub fn set_interfaces(
        &mut self,
        now: u64,
        interfaces: impl IntoIterator<Item = (IfIndex, Interface)>,
    ) -> Result<(), RouterError> {
        let table = InterfaceTable::build(interfaces)?;
        Self::check_interface_vrfs(&table, |vrf| self.vrf(vrf).is_some())?;
        self.now = now;
        let result = self.use_interfaces(table);
        self.finish();
        result
    }

    /// An interface goes up or down: its networks and addresses come or go, paths by it are used or not.
    pub fn set_link(&mut self, now: u64, interface: IfIndex, up: bool) -> Result<(), RouterError> {
        self.set_links(now, [(interface, up)])
    }

    /// As [`set_link`](Self::set_link), for all interfaces of a port at once: what it costs depends on them and on the
    /// neighbours there, not on the number of routes.
    pub fn set_links(
        &mut self,
        now: u64,
        states: impl IntoIterator<Item = (IfIndex, bool)>,
    ) -> Result<(), RouterError> {
        let states: HashMap<IfIndex, bool> = states.into_iter().collect();
        let current = self.interfaces.current();
        let differs = |(i, up): (&IfIndex, &bool)| current.get(*i).is_some_and(|f| f.up != *up);
        if !states.iter().any(differs) {
            return Ok(());
        }
        let all: Vec<_> = current
            .iter()
            .map(|(i, f)| (i, Interface { up: states.get(&i).copied().unwrap_or(f.up), ..f.clone() }))
            .collect();
        self.set_interfaces(now, all)
    }

    /// Replaces all access lists and which interfaces they are bound to, at once. On an error nothing changes.
    pub fn set_acls(&mut self, acls: Vec<Acl>, bindings: &[AclBinding]) -> Result<(), AclError> {
        self.acls.replace(acls, bindings)
    }

    /// Replaces all routes of a source (configuration, or a daemon after a restart) in one VRF. A later route for the same prefix
    /// replaces an earlier one.
    pub fn set_routes(
        &mut self,
        now: u64,
        vrf: VrfId,
        source: Source,
        routes: Vec<(IpNet, Arc<RouteAction>)>,
    ) -> Result<Changes, RouterError> {
        check_routes(&routes, self.interfaces.current())?;
        self.must_exist(vrf)?;
        self.now = now;
        let changes = self.use_routes(vrf, source, routes);
        self.finish();
        changes
    }

    /// Adds one route to a VRF or replaces its action.
    pub fn insert(
        &mut self,
        now: u64,
        vrf: VrfId,
        source: Source,
        prefix: IpNet,
        action: &RouteAction,
    ) -> Result<(), RouterError> {
        let table = self.interfaces.current();
        action.check(prefix, |i| table.get(i).is_some())?;
        self.must_exist(vrf)?;
        self.now = now;
        let id = self.intern(Key::of(action, vrf, prefix))?;
        self.settle();
        let result = match prefix {
            IpNet::V4(p) => self.change(vrf, Prefix::<u32>::from(p), source, Some(id)),
            IpNet::V6(p) => self.change(vrf, Prefix::<u128>::from(p), source, Some(id)),
        };
        if result.is_err() {
            self.release(id);
        }
        self.finish();
        result.map(|_| ())
    }

    /// Removes one route from a VRF. Returns whether it was there.
    pub fn withdraw(
        &mut self,
        now: u64,
        vrf: VrfId,
        source: Source,
        prefix: IpNet,
    ) -> Result<bool, RouterError> {
        self.must_exist(vrf)?;
        self.now = now;
        let step = match prefix {
            IpNet::V4(p) => self.change(vrf, Prefix::<u32>::from(p), source, None),
            IpNet::V6(p) => self.change(vrf, Prefix::<u128>::from(p), source, None),
        };
        self.finish();
        Ok(step?.had.is_some())
    }

    /// Takes in what a worker saw.
    pub fn event(&mut self, now: u64, event: RouterEvent) {
        self.now = now;
        match event {
            RouterEvent::Unresolved { interface, address, asked } => {
                self.unresolved(interface, address, asked);
                // A destination on one of several links may be on any of them.
                for other in self.other_links(interface, address) {
                    self.unresolved(other, address, false);
                }
            }
            RouterEvent::AclHit(hit) => self.acl_log.add(now, hit, &self.acls),
            RouterEvent::ArpSeen { interface, address, mac, kind } => {
                let asked = kind == ArpKind::RequestForUs;
                let create = match kind {
                    ArpKind::RequestForUs => true,
                    ArpKind::Reply => self.was_asked(interface, address.into()),
                    ArpKind::Gratuitous => self.learns_gratuitous(interface),
                    ArpKind::Other => false,
                };
                let answer = kind == ArpKind::Reply;
                let how = Heard { create, confirm: asked || answer, answer, replace: true };
                self.heard(interface, address.into(), mac, how);
            }
            RouterEvent::NdSeen { interface, address, mac: None, kind } => {
                // RFC 4861 7.2.5: without an address it can only confirm the one that is known.
                if matches!(kind, NdKind::Advertisement { solicited: true, .. }) {
                    self.neighbors.confirmed(now, interface, address.into());
                }
            }
            RouterEvent::NdSeen { interface, address, mac: Some(mac), kind } => {
                let how = match kind {
                    NdKind::Solicitation => {
                        Heard { create: true, confirm: false, answer: false, replace: true }
                    }
                    NdKind::Advertisement { solicited: true, overrides } => {
                        let create = self.was_asked(interface, address.into());
                        Heard { create, confirm: true, answer: true, replace: overrides }
                    }
                    NdKind::Advertisement { solicited: false, overrides } => {
                        let create = self.learns_gratuitous(interface);
                        Heard { create, confirm: false, answer: false, replace: overrides }
                    }
                };
                self.heard(interface, address.into(), mac, how);
            }
        }
        self.finish();
    }

    /// Takes in that a neighbour does not answer any more, by word of the host system: it is asked for anew, and packets for it
    /// wait meanwhile. A static one stays.
    pub fn distrust_neighbor(&mut self, now: u64, interface: IfIndex, address: IpAddr) {
        self.now = now;
        self.neighbors.distrust(now, interface, address);
        self.finish();
    }

    /// Lets timers run and recycles what workers have let go. Call it at least every 100 ms.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        self.feed_starved();
        let plane = &mut self.plane;
        self.neighbors.tick(now, &mut |adjacency| plane.take_used(adjacency));
        self.interfaces.collect();
        self.acls.collect();
        self.fibs4.collect();
        self.fibs6.collect();
        self.multicast.collect();
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

    fn unresolved(&mut self, interface: IfIndex, address: IpAddr, asked: bool) {
        if self.can_be_neighbor(interface, address, true) {
            let plane = &mut self.plane;
            let used = &mut |adjacency| plane.take_used(adjacency);
            self.neighbors.unresolved(self.now, interface, address, asked, used);
        }
    }

    fn heard(&mut self, interface: IfIndex, address: IpAddr, mac: [u8; 6], how: Heard) {
        let Some(own) = self.interfaces.current().get(interface) else { return };
        if own.owns(address) {
            // A virtual router's frames are this router's too while it is master, and a new master's while it hands over.
            if !own.accepts(mac) {
                self.note_conflict(interface, address, mac);
            }
            return;
        }
        // A group or zero address can be nobody's.
        if mac[0] & 1 != 0 || mac == [0; 6] {
            self.neighbors.stats.ignored += 1;
            return;
        }
        let known = self.neighbors.find(interface, address).is_some();
        if known || how.create && self.can_be_neighbor(interface, address, false) {
            let plane = &mut self.plane;
            let used = &mut |adjacency| plane.take_used(adjacency);
            self.neighbors.heard(self.now, interface, address, mac, how, used);
        }
    }

    /// Whether an address may become a neighbour of an interface: it is in one of its networks, or a route says that it
    /// is on its link. Counts it as ignored where not. What waits for a gateway that a route puts on this interface is
    /// known already and asks for nothing.
    fn can_be_neighbor(&mut self, index: IfIndex, address: IpAddr, known_is_fine: bool) -> bool {
        let known = known_is_fine && self.neighbors.find(index, address).is_some();
        let interface = self.interfaces.current().get(index).filter(|i| i.up);
        let fine = interface.is_some_and(|interface| match address {
            IpAddr::V4(a) => {
                let zero = |n: &ipnet::Ipv4Net| n.prefix_len() < 31 && n.network() == a;
                let station =
                    !(a.is_unspecified() || a.is_loopback() || a.is_multicast() || a.is_broadcast());
                (interface.on_link_ip4(a) || station && self.on_link(index, address).is_some())
                    && !interface.owns_ip4(a)
                    && !interface.is_broadcast_ip4(a)
                    && !interface.ip4.iter().any(zero)
            }
            IpAddr::V6(a) => {
                let station = !(a.is_unspecified() || a.is_loopback());
                (interface.on_link_ip6(a) || station && self.on_link(index, address).is_some())
                    && !interface.owns_ip6(a)
                    && !a.is_multicast()
            }
        });
        self.neighbors.stats.ignored += u64::from(!fine && !known);
        fine || known
    }

    /// The links besides `interface` on which the route to an address says that it may be.
    fn other_links(&self, interface: IfIndex, address: IpAddr) -> Vec<IfIndex> {
        let vrf = self.vrf_of(interface);
        let action = self.longest(vrf, address).and_then(|c| self.actions.get(c.id));
        let other = |i: &IfIndex| *i != interface && self.vrf_of(*i) == vrf;
        action.map_or(Vec::new(), |a| a.key.links().filter(other).collect())
    }

    pub(crate) fn is_up(&self, interface: IfIndex) -> bool {
        self.interfaces.current().get(interface).is_some_and(|i| i.up)
    }

    /// The route that a gateway is reached by in a VRF, host routes of neighbours not counted.
    pub(crate) fn route_of_gateway(&self, vrf: VrfId, gateway: IpAddr) -> Option<(NextHopId, &Action)> {
        let id = self.longest(vrf, gateway)?.id;
        Some((id, self.actions.get(id)?))
    }

    /// The preferred route of a VRF that covers an address, host routes of neighbours not counted.
    pub(crate) fn longest(&self, vrf: VrfId, address: IpAddr) -> Option<Candidate> {
        let wanted = |c: Candidate| c.source != Source::Neighbor;
        let vrf = self.vrf(vrf)?;
        match address {
            IpAddr::V4(a) => Some(vrf.v4.rib.longest(a.to_bits(), wanted)?.1),
            IpAddr::V6(a) => Some(vrf.v6.rib.longest(a.to_bits(), wanted)?.1),
        }
    }

    fn must_exist(&self, vrf: VrfId) -> Result<(), RouterError> {
        self.vrf(vrf).map(drop).ok_or(RouterError::NoVrf { vrf })
    }

    fn use_interfaces(&mut self, table: InterfaceTable) -> Result<(), RouterError> {
        let old = self.interfaces.current();
        let last = old.iter().chain(table.iter()).map(|(i, _)| i).max();
        let changed: Vec<IfIndex> =
            last.map_or(0..0, |last| 0..last + 1).filter(|i| old.get(*i) != table.get(*i)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let vrfs = changed.iter().flat_map(|i| [old.get(*i), table.get(*i)]).flatten().map(|i| i.vrf);
        let own = OwnRoutes::by_vrf(&vrfs.collect(), table.iter());
        self.multicast.use_interfaces(self.interfaces.current(), &table);
        self.interfaces.publish(table);
        // First what is on the wire: neighbours of interfaces that went down are unusable by one store each.
        for at in self.neighbors.on(&changed) {
            if let Some(entry) = self.neighbors.get_mut(at) {
                entry.link.rebuild = true;
            }
            self.neighbors.touch(at);
        }
        self.settle();
        let mut result = Ok(());
        for (vrf, own) in own {
            result = self.use_own(vrf, Source::Connected, own.connected4, |o| &mut o.connected4).and(result);
            result = self.use_own(vrf, Source::Local, own.local4, |o| &mut o.local4).and(result);
            result = self.use_own(vrf, Source::Connected, own.connected6, |o| &mut o.connected6).and(result);
            result = self.use_own(vrf, Source::Local, own.local6, |o| &mut o.local6).and(result);
        }
        changed.iter().for_each(|interface| self.actions.mark_by(*interface));
        self.settle();
        for at in self.neighbors.on(&changed) {
            if self.neighbors.get(at).is_some_and(|e| !self.stays(e.interface, e.address)) {
                self.neighbors.forget(at);
            }
        }
        self.stirred = true;
        result
    }

    /// Whether an address can still be a neighbour of an interface that has changed.
    fn stays(&self, index: IfIndex, address: IpAddr) -> bool {
        let interface = self.interfaces.current().get(index).filter(|i| i.up);
        interface.is_some_and(|i| match address {
            IpAddr::V4(a) => (i.on_link_ip4(a) || self.on_link(index, address).is_some()) && !i.owns_ip4(a),
            IpAddr::V6(a) => (i.on_link_ip6(a) || self.on_link(index, address).is_some()) && !i.owns_ip6(a),
        })
    }

    /// Makes these the routes that interfaces contribute of one kind. Compared with those of before, of which there are
    /// few, and not with the RIB.
    fn use_own<A: Address>(
        &mut self,
        vrf: VrfId,
        source: Source,
        wanted: Own<A>,
        which: impl Fn(&mut OwnRoutes) -> &mut Own<A>,
    ) -> Result<(), RouterError>
    where
        Self: Family<A>,
    {
        let mut result = Ok(());
        let Some(own) = self.vrf_mut(vrf).map(|v| &mut v.own) else { return result };
        let mut have = std::mem::take(which(own));
        let gone: Vec<Prefix<A>> = have.keys().filter(|p| !wanted.contains_key(p)).copied().collect();
        for prefix in gone {
            have.remove(&prefix);
            result = self.change(vrf, prefix, source, None).map(drop).and(result);
        }
        for (prefix, interface) in wanted {
            if have.get(&prefix) == Some(&interface) {
                continue;
            }
            let key = if source == Source::Local { Key::Local } else { Key::Glean(interface) };
            let changed = self.intern(key).map_err(RouterError::from).and_then(|id| {
                let changed = self.change(vrf, prefix, source, Some(id));
                if changed.is_err() {
                    self.release(id);
                }
                changed
            });
            match changed {
                Ok(_) => _ = have.insert(prefix, interface),
                Err(error) => result = Err(error),
            }
        }
        if let Some(own) = self.vrf_mut(vrf).map(|v| &mut v.own) {
            *which(own) = have;
        }
        result
    }

    pub(crate) fn use_neighbors(&mut self, neighbors: Vec<StaticNeighbor>) {
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
        vrf: VrfId,
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
        let v4 = self.intern_all(vrf, v4, &mut known)?;
        let v6 = match self.intern_all(vrf, v6, &mut known) {
            Ok(v6) => v6,
            Err(error) => {
                self.release_all(&v4);
                return Err(error);
            }
        };
        drop(routes);
        let a = match self.use_sorted(vrf, source, v4) {
            Ok(a) => a,
            Err(error) => {
                self.release_all(&v6);
                return Err(error);
            }
        };
        Ok(a + self.use_sorted(vrf, source, v6)?)
    }

    /// Sorts routes, drops all but the last for each prefix, and interns their actions, each `Arc` once.
    fn intern_all<A: Address>(
        &mut self,
        vrf: VrfId,
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
            // A host route by an interface alone means something else for each host, a default route something of its own.
            let shared = prefix.len() > 0 && (prefix.len() < A::BITS || !action.has_links());
            let id = match known.get(&Arc::as_ptr(action)).filter(|_| shared) {
                Some(id) => {
                    self.actions.hold(*id);
                    *id
                }
                None => {
                    let net = IpNet::new(prefix.first().to_ip(), prefix.len());
                    let key =
                        net.map_or_else(|_| Key::Route(Arc::clone(action)), |net| Key::of(action, vrf, net));
                    let id = match self.intern(key) {
                        Ok(id) => id,
                        Err(error) => {
                            self.release_all(&sorted);
                            return Err(error.into());
                        }
                    };
                    if shared {
                        known.insert(Arc::as_ptr(action), id);
                    }
                    id
                }
            };
            sorted.push((prefix, id));
        }
        Ok(sorted)
    }

    /// Gives back the uses that routes came with which do not get into the table.
    fn release_all<A: Address>(&mut self, routes: &[(Prefix<A>, NextHopId)]) {
        routes.iter().for_each(|(_, id)| self.release(*id));
    }

    /// Makes these the routes of a source. Each entry comes with one use of its action.
    fn use_sorted<A: Address>(
        &mut self,
        vrf: VrfId,
        source: Source,
        wanted: Sorted<A>,
    ) -> Result<Changes, RouterError>
    where
        Self: Family<A>,
    {
        let Some(table) = self.table(vrf) else {
            self.release_all(&wanted);
            return Err(RouterError::NoVrf { vrf });
        };
        let difference = table.difference(source, &wanted);
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
            if let Err(error) = self.change(vrf, prefix, source, None) {
                self.release_all(&difference.set);
                return Err(error);
            }
        }
        let rest = if Table::<A, <Self as Family<A>>::Fib>::is_bulk(&difference.set) {
            let (fresh, rest) = match self.table(vrf) {
                Some(table) => table.split_fresh(difference.set),
                None => (Vec::new(), difference.set),
            };
            if let Err(error) = self.load(vrf, source, fresh) {
                self.release_all(&rest);
                return Err(error);
            }
            rest
        } else {
            self.settle();
            difference.set
        };
        for (at, (prefix, id)) in rest.iter().enumerate() {
            if let Err(error) = self.change(vrf, *prefix, source, Some(*id)) {
                self.release_all(rest.get(at..).unwrap_or_default());
                return Err(error);
            }
        }
        Ok(changes)
    }

    /// Adds many routes for prefixes that nobody has a route for.
    fn load<A: Address>(&mut self, vrf: VrfId, source: Source, fresh: Sorted<A>) -> Result<(), RouterError>
    where
        Self: Family<A>,
    {
        let Some(table) = self.table_mut(vrf) else { return Err(RouterError::NoVrf { vrf }) };
        table.rib.append(source, fresh.clone());
        self.count_links(vrf, &fresh, true);
        // The actions get their meaning from the new routes before the FIB names them.
        self.actions.mark_all();
        self.settle();
        let result = self.table_mut(vrf).map_or(Ok(()), |table| table.load(source, &fresh));
        if result.is_err() {
            self.count_links(vrf, &fresh, false);
            self.release_all(&fresh);
            self.actions.mark_all();
        }
        self.stirred = true;
        let all: Vec<_> = self.neighbors.iter().map(|(at, _)| at).collect();
        all.into_iter().for_each(|at| self.neighbors.touch(at));
        self.settle();
        Ok(result?)
    }

    /// Sets or removes one route and notes what depends on it. A use of `id` passes to the route.
    pub(crate) fn change<A: Address>(
        &mut self,
        vrf: VrfId,
        prefix: Prefix<A>,
        source: Source,
        id: Option<NextHopId>,
    ) -> Result<Step, RouterError>
    where
        Self: Family<A>,
    {
        let table = self.table_mut(vrf).ok_or(RouterError::NoVrf { vrf })?;
        let step = table.change(prefix, source, id)?;
        self.follow(vrf, prefix, source, id, step);
        // A neighbour's next hop is its own, or lent by an action: no use of either is counted.
        if let Some(had) = step.had.filter(|_| source != Source::Neighbor) {
            self.release(had);
        }
        Ok(step)
    }

    /// Notes what depends on a route that has changed.
    pub(crate) fn follow<A: Address>(
        &mut self,
        vrf: VrfId,
        prefix: Prefix<A>,
        source: Source,
        id: Option<NextHopId>,
        step: Step,
    ) {
        self.stirred |= step.before != step.after;
        if source == Source::Neighbor {
            return;
        }
        // Networks that go concern neighbours as much as those that come.
        let shortest = |r: &Self| r.vrf(vrf).map_or(u8::MAX, |v| v.links.shortest(A::BITS));
        let before = shortest(self);
        for (id, comes) in [(step.had, false), (id, true)] {
            self.count_link(vrf, prefix, id, comes);
        }
        if step.before != step.after {
            let (first, last) = (prefix.first().to_ip(), prefix.last().to_ip());
            self.actions.mark_between(vrf, first, last);
            if prefix.len() >= before.min(shortest(self)) {
                let here = |e: &Entry| self.vrf_of(e.interface) == vrf;
                let inside = self.neighbors.between(first, last);
                let inside: Vec<_> = inside.filter(|at| self.neighbors.get(*at).is_some_and(here)).collect();
                inside.into_iter().for_each(|at| self.neighbors.touch(at));
            }
        }
    }

    /// Takes back what [`follow`](Self::follow) counted, for a change that is taken back.
    pub(crate) fn unfollow<A: Address>(
        &mut self,
        vrf: VrfId,
        prefix: Prefix<A>,
        source: Source,
        id: Option<NextHopId>,
        step: Step,
    ) {
        if source != Source::Neighbor {
            for (id, comes) in [(id, false), (step.had, true)] {
                self.count_link(vrf, prefix, id, comes);
            }
        }
    }

    /// Whether something waits for [`settle`](Self::settle).
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.actions.dirty.is_empty() || self.neighbors.has_changed()
    }

    fn count_links<A: Address>(&mut self, vrf: VrfId, routes: &Sorted<A>, comes: bool) {
        routes.iter().for_each(|(prefix, id)| self.count_link(vrf, *prefix, Some(*id), comes));
    }

    /// Counts a route that comes or goes, where it says that destinations are on a link.
    fn count_link<A: Address>(&mut self, vrf: VrfId, prefix: Prefix<A>, id: Option<NextHopId>, comes: bool) {
        let key = id.and_then(|id| self.actions.get(id)).map(|a| &a.key);
        if key.is_some_and(|k| matches!(k, Key::Glean(_)) || k.links().next().is_some())
            && let Some(vrf) = self.vrf_mut(vrf)
        {
            vrf.links.count(A::BITS, prefix.len(), comes);
        }
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "router_full_tests.rs"]
mod full_tests;

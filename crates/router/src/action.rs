//! Actions of routes: each distinct one has one next hop in the plane, however many routes share it.
//!
//! Here they are interned, counted, and resolved: from gateways to neighbours, over further routes if need be. An
//! action notes which gateways its resolution looked up, so that a route change re-resolves those it concerns and no
//! others; routes themselves are never walked.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::{IfIndex, VrfId};
use linerate_tables::fib::Fib;

use crate::model::{Path, RouteAction};
use crate::neighbor::EntryIndex;
use crate::plane::{MAX_GROUP_MEMBERS, Member, NextHop, NextHopId, PlaneError};
use crate::router::Router;

/// Routes over which a gateway may be resolved one after another.
const MAX_DEPTH: usize = 8;

/// Paths of other routes that one resolution looks at: what is behind the rest counts as unreachable. No sane table gets
/// near, for each gateway is followed once; routes that lead back to themselves in many ways do.
const MAX_WORK: usize = 1 << 15;

/// Fraction of one that weights are computed in while nested groups are flattened.
const UNIT: u64 = 1 << 16;

/// A gateway and the VRF in which it is looked up.
pub(crate) type Place = (VrfId, IpAddr);

/// The address that sorts before all others: what a path notes that leads to a whole table.
const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What an action is, for telling equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Local,
    Glean(IfIndex),
    /// On to another VRF's table.
    Table(VrfId),
    Route(Arc<RouteAction>),
    /// The same for default routes, which do not count where sources are validated loosely.
    Default(Arc<RouteAction>),
}

impl Key {
    /// What a route for `prefix` does, in one form for all its spellings.
    pub(crate) fn of(action: &RouteAction, vrf: VrfId, prefix: IpNet) -> Self {
        let action = Arc::new(action.canonical(vrf, prefix));
        if prefix.prefix_len() == 0 { Key::Default(action) } else { Key::Route(action) }
    }

    /// Whether destinations of such a route are on this interface's link themselves; `Some(true)`: and nowhere else.
    pub(crate) fn on_link(&self, interface: IfIndex) -> Option<bool> {
        match self {
            Key::Glean(i) => (*i == interface).then_some(true),
            _ => self.links().any(|i| i == interface).then(|| self.paths().len() == 1),
        }
    }

    /// The interfaces of paths by an interface alone.
    pub(crate) fn links(&self) -> impl Iterator<Item = IfIndex> {
        self.paths().iter().filter(|p| p.gateway.is_none()).filter_map(|p| p.interface)
    }

    fn paths(&self) -> &[Path] {
        match self {
            Key::Route(action) | Key::Default(action) => match &**action {
                RouteAction::Forward(paths) => paths,
                _ => &[],
            },
            _ => &[],
        }
    }
}

/// Where a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Neighbor(EntryIndex),
    /// Another action that is not a group.
    Action(NextHopId),
}

/// The same before neighbours are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Neighbor(IfIndex, IpAddr),
    Glean(IfIndex),
    Table(VrfId),
    Action(NextHopId),
}

#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) key: Key,
    /// Routes and other actions that name it.
    refs: usize,
    pub(crate) targets: Vec<(Target, u16)>,
    looked_up: Vec<Place>,
    interfaces: Vec<IfIndex>,
}

/// All actions.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    by_key: HashMap<Key, NextHopId>,
    by_id: Vec<Option<Action>>,
    /// Gateways that resolutions looked up, with the action they did it for.
    looked_up: BTreeSet<(Place, NextHopId)>,
    /// Interfaces whose state decided on a path, with the action.
    interfaces: BTreeSet<(IfIndex, NextHopId)>,
    pub(crate) dirty: BTreeSet<NextHopId>,
}

impl Actions {
    pub(crate) fn get(&self, id: NextHopId) -> Option<&Action> {
        self.by_id.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: NextHopId) -> Option<&mut Action> {
        self.by_id.get_mut(id as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn find(&self, key: &Key) -> Option<NextHopId> {
        self.by_key.get(key).copied()
    }

    /// Marks the actions to be resolved again whose gateways lie between two addresses of a VRF.
    pub(crate) fn mark_between(&mut self, vrf: VrfId, first: IpAddr, last: IpAddr) {
        let range = ((vrf, first), 0)..=((vrf, last), NextHopId::MAX);
        let concerned = self.looked_up.range(range).map(|(_, id)| *id);
        self.dirty.extend(concerned);
    }

    /// Marks the actions to be resolved again that lead by a VRF.
    pub(crate) fn mark_vrf(&mut self, vrf: VrfId) {
        // IPv4 addresses sort before all IPv6 ones.
        self.mark_between(vrf, FIRST, Ipv6Addr::from_bits(u128::MAX).into());
    }

    /// Marks the actions to be resolved again that have paths by this interface, of their own or of routes they follow.
    pub(crate) fn mark_by(&mut self, interface: IfIndex) {
        let concerned =
            self.interfaces.range((interface, 0)..=(interface, NextHopId::MAX)).map(|(_, id)| *id);
        self.dirty.extend(concerned);
    }

    pub(crate) fn mark_all(&mut self) {
        self.dirty.extend(self.by_key.values());
    }

    /// One more user.
    pub(crate) fn hold(&mut self, id: NextHopId) {
        if let Some(action) = self.get_mut(id) {
            action.refs += 1;
        }
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// The next hop of an action, made where there is none yet, with one more user. A new one that has gateways is
    /// marked to be resolved.
    pub(crate) fn intern(&mut self, key: Key) -> Result<NextHopId, PlaneError> {
        if let Some(id) = self.actions.find(&key) {
            self.actions.hold(id);
            return Ok(id);
        }
        let next_hop = match &key {
            Key::Local => NextHop::Local,
            Key::Glean(interface) => NextHop::Glean(*interface),
            Key::Table(vrf) => NextHop::Table(*vrf),
            Key::Route(action) | Key::Default(action) => match **action {
                RouteAction::Blackhole => NextHop::Blackhole,
                RouteAction::Prohibit => NextHop::Prohibit,
                RouteAction::Local => NextHop::Local,
                RouteAction::Unreachable | RouteAction::Forward(_) => NextHop::Unreachable,
            },
        };
        let id = match key {
            Key::Default(_) => self.plane.add_default(next_hop)?,
            _ => self.plane.add(next_hop)?,
        };
        let at = id as usize;
        if self.actions.by_id.len() <= at {
            self.actions.by_id.resize_with(at + 1, || None);
        }
        if matches!(&key, Key::Route(action) | Key::Default(action) if matches!(**action, RouteAction::Forward(_)))
        {
            self.actions.dirty.insert(id);
        }
        self.actions.by_key.insert(key.clone(), id);
        let nothing = (Vec::new(), Vec::new(), Vec::new());
        let (targets, looked_up, interfaces) = nothing;
        self.actions.by_id[at] = Some(Action { key, refs: 1, targets, looked_up, interfaces });
        Ok(id)
    }

    /// One user less; the last one frees it. Ids that are no action's (neighbours') are left alone.
    pub(crate) fn release(&mut self, id: NextHopId) {
        let Some(action) = self.actions.get_mut(id) else { return };
        action.refs -= 1;
        if action.refs > 0 {
            return;
        }
        let Some(action) = self.actions.by_id[id as usize].take() else { return };
        self.actions.by_key.remove(&action.key);
        self.actions.dirty.remove(&id);
        for gateway in action.looked_up {
            self.actions.looked_up.remove(&(gateway, id));
        }
        for interface in action.interfaces {
            self.actions.interfaces.remove(&(interface, id));
        }
        for (target, _) in action.targets {
            self.detach(target, id);
        }
        self.plane.remove(id);
    }

    /// Resolves an action anew.
    pub(crate) fn resolve(&mut self, id: NextHopId) {
        let Some(Action { key: Key::Route(action) | Key::Default(action), .. }) = self.actions.get(id) else {
            return;
        };
        let RouteAction::Forward(paths) = &**action else { return };
        let mut ends = Vec::new();
        let mut walk = Walk { visited: vec![id], ..Walk::default() };
        for path in paths {
            let share = UNIT * u64::from(path.weight);
            self.follow_path(path, None, share, &mut walk, &mut ends);
        }
        let Walk { mut looked_up, mut interfaces, .. } = walk;
        looked_up.sort_unstable();
        looked_up.dedup();
        interfaces.sort_unstable();
        interfaces.dedup();
        let (ends, left_out) = flatten(ends);
        if left_out > 0 {
            self.neighbors.stats.plane_full += 1;
        }
        let targets: Vec<(Target, u16)> =
            ends.into_iter().filter_map(|(end, weight)| Some((self.attach(end, id)?, weight))).collect();
        let Some(action) = self.actions.get_mut(id) else { return };
        let old = std::mem::replace(&mut action.targets, targets.clone());
        let old_looked_up = std::mem::replace(&mut action.looked_up, looked_up.clone());
        if old_looked_up != looked_up {
            old_looked_up.iter().for_each(|g| _ = self.actions.looked_up.remove(&(*g, id)));
            self.actions.looked_up.extend(looked_up.into_iter().map(|g| (g, id)));
        }
        if let Some(action) = self.actions.get_mut(id)
            && action.interfaces != interfaces
        {
            let old = std::mem::replace(&mut action.interfaces, interfaces.clone());
            old.iter().for_each(|i| _ = self.actions.interfaces.remove(&(*i, id)));
            self.actions.interfaces.extend(interfaces.into_iter().map(|i| (i, id)));
        }
        if let [(Target::Neighbor(at), _)] = old[..] {
            self.rehost(at, id);
        }
        self.publish(id);
        for (target, _) in old {
            let kept = targets.iter().any(|(t, _)| *t == target);
            match target {
                Target::Neighbor(_) if kept => {}
                // Attaching took one more reference even where it had one already.
                _ => self.detach(target, id),
            }
        }
    }

    /// Tells the plane what an action's targets mean now.
    pub(crate) fn publish(&mut self, id: NextHopId) {
        let Some(Action { key: Key::Route(action) | Key::Default(action), targets, .. }) =
            self.actions.get(id)
        else {
            return;
        };
        let (true, targets) = (matches!(**action, RouteAction::Forward(_)), targets.clone()) else { return };
        match targets[..] {
            [] => self.plane.set(id, NextHop::Unreachable),
            [(target, _)] => {
                let next_hop = self.target(target).map_or(NextHop::Unreachable, |(_, n)| n);
                self.plane.set(id, next_hop);
            }
            _ => {
                let all: Vec<(Member, NextHop)> = targets
                    .iter()
                    .filter_map(|(target, weight)| {
                        let (id, next_hop) = self.target(*target)?;
                        Some((Member { id, weight: *weight }, next_hop))
                    })
                    .collect();
                let members: Vec<Member> = all.iter().map(|(m, _)| *m).collect();
                let live: Vec<Member> =
                    all.iter().filter(|(_, n)| *n != NextHop::Unreachable).map(|(m, _)| *m).collect();
                if members.is_empty() {
                    self.plane.set(id, NextHop::Unreachable);
                } else if self.plane.set_group(id, &members, &live).is_err() {
                    // No room for the group: better one of its paths than none.
                    self.neighbors.stats.plane_full += 1;
                    let first = all.iter().map(|(_, n)| *n).find(|n| *n != NextHop::Unreachable);
                    self.plane.set(id, first.unwrap_or(NextHop::Unreachable));
                }
            }
        }
    }

    /// The next hop of a target: its id (0 while a neighbour has none) and what it says.
    fn target(&self, target: Target) -> Option<(NextHopId, NextHop)> {
        match target {
            Target::Neighbor(at) => {
                let link = &self.neighbors.get(at)?.link;
                Some((link.id?, link.next_hop))
            }
            Target::Action(id) => Some((
                id,
                match &self.actions.get(id)?.key {
                    Key::Local => NextHop::Local,
                    Key::Glean(interface) => NextHop::Glean(*interface),
                    Key::Table(vrf) => NextHop::Table(*vrf),
                    Key::Route(action) | Key::Default(action) => match **action {
                        RouteAction::Blackhole => NextHop::Blackhole,
                        RouteAction::Prohibit => NextHop::Prohibit,
                        RouteAction::Local => NextHop::Local,
                        RouteAction::Unreachable | RouteAction::Forward(_) => NextHop::Unreachable,
                    },
                },
            )),
        }
    }

    fn attach(&mut self, end: End, user: NextHopId) -> Option<Target> {
        match end {
            End::Neighbor(interface, address) => {
                let at = self.neighbors.pin(self.now, interface, address);
                let first = self.neighbors.get_mut(at).is_some_and(|e| e.link.users.insert(user));
                if first {
                    // It needs a next hop before a group can name it; its host route may wait for the action.
                    self.connect(at);
                    self.neighbors.touch(at);
                }
                Some(Target::Neighbor(at))
            }
            End::Glean(interface) => self.intern(Key::Glean(interface)).ok().map(Target::Action),
            End::Table(vrf) => self.intern(Key::Table(vrf)).ok().map(Target::Action),
            End::Action(id) => {
                self.actions.hold(id);
                Some(Target::Action(id))
            }
        }
    }

    fn detach(&mut self, target: Target, user: NextHopId) {
        match target {
            Target::Action(id) => self.release(id),
            Target::Neighbor(at) => {
                let Some(entry) = self.neighbors.get_mut(at) else { return };
                if entry.link.users.remove(&user) {
                    if entry.link.users.is_empty() {
                        self.neighbors.unpin(self.now, at);
                    }
                    self.rehost(at, user);
                }
            }
        }
    }

    /// Where a path ends. `asked` is the gateway that led here from another route: an on-link path then leads to it.
    fn follow_path(
        &self,
        path: &Path,
        asked: Option<IpAddr>,
        share: u64,
        walk: &mut Walk,
        ends: &mut Vec<(End, u64)>,
    ) {
        let to = path.gateway.or(asked);
        if let Some(interface) = path.interface {
            walk.interfaces.push(interface);
            if self.is_up(interface) {
                let there = self.vrf_of(interface);
                ends.push(match to {
                    Some(gateway) => (End::Neighbor(interface, gateway), share),
                    None if path.vrf.is_none_or(|vrf| vrf == there) => (End::Glean(interface), share),
                    // The link's stations are in the table of its own VRF, which is where they are found.
                    None => (End::Table(there), share),
                });
            }
            return;
        }
        let vrf = path.vrf.unwrap_or_default();
        let Some(gateway) = to else {
            walk.looked_up.push((vrf, FIRST));
            if self.vrf(vrf).is_some() {
                ends.push((End::Table(vrf), share));
            }
            return;
        };
        if let Some(known) = walk.known.get(&(vrf, gateway)) {
            return share_out(known, share, ends);
        }
        walk.looked_up.push((vrf, gateway));
        let Some((id, action)) = self.route_of_gateway(vrf, gateway) else { return };
        match &action.key {
            Key::Local | Key::Table(_) => {}
            Key::Glean(interface) => ends.push((End::Neighbor(*interface, gateway), share)),
            Key::Route(route) | Key::Default(route) => match &**route {
                RouteAction::Unreachable | RouteAction::Local => {}
                RouteAction::Blackhole | RouteAction::Prohibit => ends.push((End::Action(id), share)),
                RouteAction::Forward(paths) => {
                    let nested = self.follow_route(id, paths, (vrf, gateway), walk);
                    share_out(&nested, share, ends);
                }
            },
        }
    }

    /// Where a gateway leads that is behind another route, each end once; what the paths got is their part of the whole.
    fn follow_route(&self, id: NextHopId, paths: &[Path], place: Place, walk: &mut Walk) -> Vec<(End, u64)> {
        let work = walk.work + paths.len();
        if walk.visited.len() > MAX_DEPTH || walk.visited.contains(&id) || work > MAX_WORK {
            walk.cut = true;
            return Vec::new();
        }
        walk.work = work;
        walk.visited.push(id);
        let cut_before = std::mem::take(&mut walk.cut);
        let mut nested = Vec::new();
        for path in paths {
            self.follow_path(path, Some(place.1), UNIT * u64::from(path.weight), walk, &mut nested);
        }
        walk.visited.pop();
        merge(&mut nested);
        // Where a way was cut off, the answer depends on how one came here.
        if !walk.cut {
            walk.known.insert(place, nested.clone());
        }
        walk.cut |= cut_before;
        nested
    }
}

/// One resolution on its way.
#[derive(Default)]
struct Walk {
    /// Routes from the action to where it is now.
    visited: Vec<NextHopId>,
    looked_up: Vec<Place>,
    interfaces: Vec<IfIndex>,
    /// Where gateways behind other routes lead, so that each is followed once however many paths name it.
    known: HashMap<Place, Vec<(End, u64)>>,
    /// A way was cut off because it led back, or too far.
    cut: bool,
    work: usize,
}

/// Gives ends their parts of a share.
fn share_out(nested: &[(End, u64)], share: u64, ends: &mut Vec<(End, u64)>) {
    let total = nested.iter().map(|(_, s)| *s).sum::<u64>().max(1);
    let part = |s: u64| (u128::from(s) * u128::from(share) / u128::from(total)).max(1) as u64;
    ends.extend(nested.iter().map(|(end, s)| (*end, part(*s))));
}

/// Equal ends become one.
fn merge(ends: &mut Vec<(End, u64)>) {
    ends.sort_unstable();
    ends.dedup_by(|b, a| {
        let same = a.0 == b.0;
        if same {
            a.1 += b.1;
        }
        same
    });
}

/// Equal ends become one; shares become weights of at most 256 without a common factor. Of more ends than a group can
/// have those with the largest shares are kept; also returns how many are not.
fn flatten(mut ends: Vec<(End, u64)>) -> (Vec<(End, u16)>, usize) {
    merge(&mut ends);
    let left_out = ends.len().saturating_sub(MAX_GROUP_MEMBERS);
    if left_out > 0 {
        ends.sort_by_key(|(end, share)| (std::cmp::Reverse(*share), *end));
        ends.truncate(MAX_GROUP_MEMBERS);
        ends.sort_unstable();
    }
    let divisor = ends.iter().fold(0, |d, e| gcd(d, e.1)).max(1);
    let most = ends.iter().map(|e| e.1 / divisor).max().unwrap_or(1).max(1);
    let scale = |s: u64| {
        let s = s / divisor;
        if most <= 256 { s } else { (s * 256 / most).max(1) }
    };
    (ends.into_iter().map(|(end, share)| (end, scale(share) as u16)).collect(), left_out)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

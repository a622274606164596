//! FRR's next-hop objects: what a route by each does, brought up to date with as little work as a change needs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use linerate_linux::route::{Change, NextHop, Nexthop, NexthopAction, RouteKind};
use linerate_router::RouteAction;
use linerate_router::plane::MAX_GROUP_MEMBERS;

use super::Interfaces;
use super::action::action_of;

/// Groups in groups that are followed.
const MAX_DEPTH: usize = 8;

/// Objects looked at for one: more than any real group has, and an end to groups of groups of groups.
const MAX_VISITS: usize = 16 * MAX_GROUP_MEMBERS;

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    known: HashMap<u32, Object>,
    /// Groups by their members, those that are not described as well: who changes when a member does.
    groups: HashMap<u32, BTreeSet<u32>>,
    /// Changed since they were last resolved.
    changed: HashSet<u32>,
}

/// A next-hop object, and what a route by it does.
#[derive(Debug)]
struct Object {
    what: NexthopAction,
    action: Option<Arc<RouteAction>>,
}

impl Objects {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// What a route by an object does, as of the last [`resolve`](Self::resolve).
    pub(super) fn action(&self, id: u32) -> Option<&Arc<RouteAction>> {
        self.known.get(&id)?.action.as_ref()
    }

    /// An object is described, changes or goes.
    pub(super) fn tell(&mut self, change: Change, object: Nexthop) {
        let id = object.id;
        let what = object.action.filter(|_| change != Change::Delete);
        let known = self.known.get(&id).map(|o| &o.what);
        if known == what.as_ref() {
            return;
        }
        for member in known.map(members).unwrap_or_default() {
            if let Some(groups) = self.groups.get_mut(&member) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.groups.remove(&member);
                }
            }
        }
        match what {
            Some(what) => {
                for member in members(&what) {
                    self.groups.entry(member).or_default().insert(id);
                }
                // Until it is resolved it does what it did.
                let action = self.known.remove(&id).and_then(|o| o.action);
                self.known.insert(id, Object { what, action });
            }
            None => drop(self.known.remove(&id)),
        }
        self.changed.insert(id);
    }

    /// Whether anything has changed since the last [`resolve`](Self::resolve).
    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Finds out what the objects do that have changed, and the groups that they are in; returns those that do something
    /// else than before, or are gone.
    pub(super) fn resolve(&mut self, interfaces: &Interfaces) -> Vec<u32> {
        let mut todo: Vec<u32> = self.changed.iter().copied().collect();
        while let Some(id) = todo.pop() {
            let groups = self.groups.get(&id).into_iter().flatten();
            todo.extend(groups.filter(|group| self.changed.insert(**group)));
        }
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter(|id| self.update(*id, interfaces)).collect()
    }

    /// The same for all objects, when interfaces have changed.
    pub(super) fn resolve_all(&mut self, interfaces: &Interfaces) -> Vec<u32> {
        self.changed.extend(self.known.keys());
        self.resolve(interfaces)
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        *self = Objects::default();
    }

    /// Resolves one object; whether it does something else now.
    fn update(&mut self, id: u32, interfaces: &Interfaces) -> bool {
        let action = self.resolved(id, interfaces);
        let Some(object) = self.known.get_mut(&id) else { return true };
        let differs = object.action.as_deref() != action.as_ref();
        if differs {
            object.action = action.map(Arc::new);
        }
        differs
    }

    /// What a route by an object does; `None`: nothing that this router can do.
    fn resolved(&self, id: u32, interfaces: &Interfaces) -> Option<RouteAction> {
        let mut walk = Walk { objects: &self.known, hops: Vec::new(), visits: MAX_VISITS };
        match walk.flatten(id, 1, MAX_DEPTH)? {
            Some(kind) => action_of(kind, std::iter::empty(), interfaces),
            None => action_of(RouteKind::Unicast, walk.hops.into_iter(), interfaces),
        }
    }
}

/// The members of a group; none of what is no group.
fn members(what: &NexthopAction) -> Vec<u32> {
    match what {
        NexthopAction::Group(members) => members.members.iter().map(|(id, _)| *id).collect(),
        _ => Vec::new(),
    }
}

/// Looks through a group, the groups in it and so on.
struct Walk<'a> {
    objects: &'a HashMap<u32, Object>,
    /// Next hops found, with their weights.
    hops: Vec<(&'a NextHop, u32)>,
    /// Objects that may still be looked at.
    visits: usize,
}

impl Walk<'_> {
    /// Collects the next hops of an object with their weights, or says what it does instead of forwarding. `None`: it is
    /// not known or can forward nothing.
    fn flatten(&mut self, id: u32, weight: u32, depth: usize) -> Option<Option<RouteKind>> {
        self.visits = self.visits.checked_sub(1)?;
        match &self.objects.get(&id)?.what {
            NexthopAction::Forward(hop) => {
                self.hops.push((hop, weight));
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
                    if let Some(Some(kind)) = self.flatten(*member, weight, depth) {
                        drops = Some(kind);
                    }
                }
                if self.hops.is_empty() { drops.map(Some) } else { Some(None) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_linux::route::{Members, Protocol};

    use super::*;

    fn object(id: u32, action: NexthopAction) -> Nexthop {
        Nexthop { id, protocol: Protocol::ZEBRA, action: Some(action) }
    }

    fn group(id: u32, members: impl Iterator<Item = u32>) -> Nexthop {
        let members = members.map(|m| (m, 1)).collect();
        object(id, NexthopAction::Group(Members { members, resilience: None }))
    }

    fn hop(last: u8) -> NexthopAction {
        let gateway = Some(std::net::IpAddr::from([10, 0, 0, last]));
        NexthopAction::Forward(NextHop { gateway, interface: Some(1), ..NextHop::default() })
    }

    #[test]
    fn a_change_concerns_the_groups_it_is_in_and_no_other() {
        let (mut all, interfaces) = (Objects::default(), Interfaces::from([(1, 0)]));
        let resolve = |all: &mut Objects| {
            let mut changed = all.resolve(&interfaces);
            changed.sort_unstable();
            changed
        };
        for n in [group(20, [1, 2].into_iter()), group(30, [20, 3].into_iter()), group(40, [3].into_iter())] {
            all.tell(Change::Add, n);
        }
        assert_eq!(resolve(&mut all), [0; 0], "nothing is described");
        (1..4).for_each(|n| all.tell(Change::Add, object(u32::from(n), hop(n))));
        assert_eq!(resolve(&mut all), [1, 2, 3, 20, 30, 40]);
        all.tell(Change::Add, object(2, hop(9)));
        assert_eq!(resolve(&mut all), [2, 20, 30]);
        all.tell(Change::Add, object(2, hop(9)));
        assert!(!all.is_changed());
        let delete = |id| Nexthop { id, protocol: Protocol::ZEBRA, action: None };
        all.tell(Change::Delete, delete(20));
        assert_eq!(resolve(&mut all), [20, 30]);
        all.tell(Change::Add, object(1, hop(7)));
        assert_eq!(resolve(&mut all), [1], "it is in no group any more");
        (1..41).for_each(|id| all.tell(Change::Delete, delete(id)));
        resolve(&mut all);
        assert!(all.known.is_empty() && all.groups.is_empty() && all.changed.is_empty());
    }

    #[test]
    fn groups_of_groups_of_groups_come_to_an_end() {
        let (mut all, interfaces) = (Objects::default(), Interfaces::from([(1, 0)]));
        for level in 0..8u32 {
            all.tell(Change::Add, group(level * 100, (0..99).map(|_| (level + 1) * 100)));
        }
        all.tell(Change::Add, object(800, hop(1)));
        let begin = std::time::Instant::now();
        all.resolve(&interfaces);
        assert!(begin.elapsed() < std::time::Duration::from_secs(2));
        let Some(RouteAction::Forward(paths)) = all.action(0).map(|a| &**a) else { panic!("eight deep") };
        assert!(paths.len() <= MAX_GROUP_MEMBERS);
    }
}

//! The routes of one family that FRR has told, and what they have in common kept once.
//!
//! A full table has a million routes and a few hundred *ways* to forward them: a next-hop object, or next hops of a route's
//! own. Each route names its way, and each way knows its routes: when an object changes, what it costs depends on the routes
//! by that object and not on the table. What cannot be used is counted as it changes. Ways that have changed are looked at once,
//! at the end of a batch ([`Told::settle`]), however often they changed in it.
//!
//! Memory: a route's prefix, twice, and two words.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use linerate_linux::route::{NextHop, RouteKind};
use linerate_router::RouteAction;

/// By what a route forwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum By {
    /// A next-hop object.
    Object(u32),
    /// Next hops of its own.
    Own(RouteKind, Vec<NextHop>),
    /// Nothing that this router can do.
    Unsupported,
}

/// A way, or `None` for one of an earlier session.
type What = Option<By>;

/// What routes of one table by the same way have in common.
#[derive(Debug)]
struct Way<N> {
    table: u32,
    what: What,
    /// What its routes do; `None`: they cannot be used.
    action: Option<Arc<RouteAction>>,
    /// Nobody has found out yet what they do.
    fresh: bool,
    routes: Vec<N>,
}

/// Which way a route is by, and which of its routes it is.
#[derive(Clone, Copy, Debug)]
struct Place {
    way: u32,
    at: u32,
}

/// The routes. `N` is a prefix.
#[derive(Debug)]
pub(super) struct Told<N> {
    tables: HashMap<u32, HashMap<N, Place>>,
    ways: Vec<Option<Way<N>>>,
    free: Vec<u32>,
    /// Ways of this session, by object and table, and the others.
    objects: BTreeMap<(u32, u32), u32>,
    others: HashMap<u32, HashMap<By, u32>>,
    /// Ways whose routes may do something else by now.
    changed: BTreeSet<u32>,
    len: usize,
    unusable: usize,
}

impl<N: Copy + Eq + Hash> Told<N> {
    pub(super) fn new() -> Self {
        Told {
            tables: HashMap::new(),
            ways: Vec::new(),
            free: Vec::new(),
            objects: BTreeMap::new(),
            others: HashMap::new(),
            changed: BTreeSet::new(),
            len: 0,
            unusable: 0,
        }
    }

    /// Routes of all tables.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Those that cannot be used.
    pub(super) fn unusable(&self) -> usize {
        self.unusable
    }

    /// What a route does as of the last [`settle`](Self::settle); `None`: it is not there or cannot be used.
    pub(super) fn action(&self, table: u32, prefix: N) -> Option<&Arc<RouteAction>> {
        let place = self.tables.get(&table)?.get(&prefix)?;
        self.way(place.way)?.action.as_ref()
    }

    /// Adds a route or replaces it. Whether it replaces one of an earlier session.
    pub(super) fn set(&mut self, table: u32, prefix: N, by: By) -> bool {
        let number = match self.find(table, &by) {
            Some(number) => number,
            None => self.add_way(table, by),
        };
        let Some(Some(way)) = self.ways.get_mut(number as usize) else { return false };
        let place = Place { way: number, at: way.routes.len() as u32 };
        let old = match self.tables.entry(table).or_default().entry(prefix) {
            Entry::Occupied(old) if old.get().way == number => return false,
            Entry::Occupied(mut old) => Some(std::mem::replace(old.get_mut(), place)),
            Entry::Vacant(new) => {
                new.insert(place);
                None
            }
        };
        way.routes.push(prefix);
        self.unusable += usize::from(way.action.is_none());
        self.len += 1;
        old.is_some_and(|old| self.leave(table, old))
    }

    /// Removes a route; whether it was there.
    pub(super) fn remove(&mut self, table: u32, prefix: N) -> bool {
        let Some(prefixes) = self.tables.get_mut(&table) else { return false };
        let Some(place) = prefixes.remove(&prefix) else { return false };
        if prefixes.is_empty() {
            self.tables.remove(&table);
        }
        self.leave(table, place);
        true
    }

    /// Routes by an object may do something else from now on.
    pub(super) fn change(&mut self, object: u32) {
        let all = self.objects.range((object, 0)..=(object, u32::MAX));
        self.changed.extend(all.map(|(_, number)| *number));
    }

    /// Routes by next hops of their own may do something else from now on.
    pub(super) fn change_own(&mut self) {
        self.changed.extend(self.others.values().flat_map(HashMap::values));
    }

    /// Finds out what routes do whose ways have changed or are new, of `resolve`; appends those that do something else than
    /// before, but not those of new ways, which have just been told.
    pub(super) fn settle(
        &mut self,
        resolve: impl Fn(&By) -> Option<Arc<RouteAction>>,
        concerned: &mut impl Extend<(u32, N)>,
    ) {
        for number in std::mem::take(&mut self.changed) {
            if let Some(action) = self.way(number).and_then(|way| way.what.as_ref()).map(&resolve) {
                self.act(number, action, concerned);
            }
        }
    }

    /// A new session may use the numbers of objects for others: routes that it has not told yet stay as they are.
    pub(super) fn hold(&mut self) {
        self.ways.iter_mut().flatten().for_each(|way| way.what = None);
        self.objects.clear();
        self.others.clear();
    }

    /// Whether there are routes of an earlier session.
    pub(super) fn holds(&self) -> bool {
        self.ways.iter().flatten().any(|way| way.what.is_none())
    }

    /// Removes the routes of earlier sessions, or all; returns them.
    pub(super) fn sweep(&mut self, all: bool) -> Vec<(u32, N)> {
        let mut gone = Vec::new();
        for way in self.ways.iter().flatten().filter(|way| all || way.what.is_none()) {
            gone.extend(way.routes.iter().map(|prefix| (way.table, *prefix)));
        }
        for (table, prefix) in &gone {
            self.remove(*table, *prefix);
        }
        gone
    }

    /// Gives back memory that far fewer routes than once do not need. What it costs is little beside what removing so many
    /// routes did.
    pub(super) fn shrink(&mut self) {
        for prefixes in self.tables.values_mut() {
            if prefixes.capacity() / 8 > prefixes.len().max(1024) {
                prefixes.shrink_to(2 * prefixes.len());
            }
        }
        for way in self.ways.iter_mut().flatten() {
            if way.routes.capacity() / 8 > way.routes.len().max(1024) {
                way.routes.shrink_to(2 * way.routes.len());
            }
        }
    }

    fn way(&self, number: u32) -> Option<&Way<N>> {
        self.ways.get(number as usize)?.as_ref()
    }

    fn find(&self, table: u32, by: &By) -> Option<u32> {
        match by {
            By::Object(id) => self.objects.get(&(*id, table)).copied(),
            by => self.others.get(&table)?.get(by).copied(),
        }
    }

    fn add_way(&mut self, table: u32, by: By) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.ways.push(None);
            self.ways.len() as u32 - 1
        });
        match &by {
            By::Object(id) => self.objects.insert((*id, table), number),
            by => self.others.entry(table).or_default().insert(by.clone(), number),
        };
        if let Some(slot) = self.ways.get_mut(number as usize) {
            *slot = Some(Way { table, what: Some(by), action: None, fresh: true, routes: Vec::new() });
        }
        self.changed.insert(number);
        number
    }

    /// A way's routes do this from now on.
    fn act(&mut self, number: u32, action: Option<Arc<RouteAction>>, concerned: &mut impl Extend<(u32, N)>) {
        let Some(Some(way)) = self.ways.get_mut(number as usize) else { return };
        let fresh = std::mem::replace(&mut way.fresh, false);
        if way.action == action {
            return;
        }
        match (way.action.is_some(), action.is_some()) {
            (true, false) => self.unusable += way.routes.len(),
            (false, true) => self.unusable -= way.routes.len(),
            _ => {}
        }
        way.action = action;
        if !fresh {
            concerned.extend(way.routes.iter().map(|prefix| (way.table, *prefix)));
        }
    }

    /// A route is no longer at this place, in the table neither. Whether it was of an earlier session.
    fn leave(&mut self, table: u32, place: Place) -> bool {
        let Some(Some(way)) = self.ways.get_mut(place.way as usize) else { return false };
        let at = place.at as usize;
        if at >= way.routes.len() {
            return false;
        }
        way.routes.swap_remove(at);
        self.len -= 1;
        self.unusable -= usize::from(way.action.is_none());
        if let Some(moved) = way.routes.get(at)
            && let Some(its) = self.tables.get_mut(&table).and_then(|prefixes| prefixes.get_mut(moved))
        {
            its.at = place.at;
        }
        let held = way.what.is_none();
        if way.routes.is_empty() {
            self.drop_way(place.way);
        }
        held
    }

    fn drop_way(&mut self, number: u32) {
        let Some(way) = self.ways.get_mut(number as usize).and_then(Option::take) else { return };
        match way.what {
            Some(By::Object(id)) => drop(self.objects.remove(&(id, way.table))),
            Some(by) => {
                if let Some(others) = self.others.get_mut(&way.table) {
                    others.remove(&by);
                    if others.is_empty() {
                        self.others.remove(&way.table);
                    }
                }
            }
            None => {}
        }
        self.changed.remove(&number);
        self.free.push(number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::HashSet;

    use super::*;

    fn action(n: u32) -> Option<Arc<RouteAction>> {
        (!n.is_multiple_of(5))
            .then(|| Arc::new(RouteAction::via(std::net::IpAddr::from([10, 0, 0, n as u8]))))
    }

    proptest! {
        /// Against a list of every route with what it is by, and what every object does.
        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0u32..9, 0u32..2, 0u32..12, 0u32..8), 1..200)) {
            let mut told = Told::<u32>::new();
            let mut model: HashMap<(u32, u32), What> = HashMap::new();
            let mut frozen: HashMap<(u32, u32), Option<Arc<RouteAction>>> = HashMap::new();
            let mut objects: HashMap<u32, u32> = HashMap::new();
            for (step, table, prefix, n) in steps {
                let key = (table, prefix);
                let of = |objects: &HashMap<u32, u32>, by: &By| match by {
                    By::Object(id) => action(objects.get(id).copied().unwrap_or(0)),
                    By::Own(_, hops) => action(hops.len() as u32),
                    By::Unsupported => None,
                };
                match step {
                    0..=2 => {
                        let by = match n {
                            0 => By::Unsupported,
                            1..=4 => By::Object(n),
                            n => By::Own(RouteKind::Unicast, vec![NextHop::default(); n as usize - 5]),
                        };
                        let replaced = told.set(table, prefix, by.clone());
                        let mut concerned = Vec::new();
                        told.settle(|by| of(&objects, by), &mut concerned);
                        prop_assert_eq!(concerned, []);
                        let had = model.insert(key, Some(by));
                        prop_assert_eq!(replaced, had == Some(None));
                    }
                    3 | 4 => prop_assert_eq!(told.remove(table, prefix), model.remove(&key).is_some()),
                    5 | 6 => {
                        let before = objects.insert(n, prefix).unwrap_or(0);
                        let mut concerned = Vec::new();
                        // Back and forth in one batch is no change.
                        told.change(n);
                        told.change(n);
                        told.settle(|by| of(&objects, by), &mut concerned);
                        let by = model.iter().filter(|(_, what)| **what == Some(By::Object(n)));
                        let want: HashSet<_> = by.map(|(key, _)| *key).collect();
                        let differs = action(before) != action(prefix);
                        prop_assert_eq!(concerned.len(), if differs { want.len() } else { 0 });
                        prop_assert!(concerned.iter().all(|key| want.contains(key)));
                    }
                    7 => {
                        for (key, what) in &mut model {
                            if let Some(by) = what.take() {
                                frozen.insert(*key, of(&objects, &by));
                            }
                        }
                        told.hold();
                    }
                    _ => {
                        let gone: HashSet<_> = told.sweep(n == 0).into_iter().collect();
                        let want = model.iter().filter(|(_, what)| n == 0 || what.is_none());
                        prop_assert_eq!(gone, want.map(|(key, _)| *key).collect::<HashSet<_>>());
                        model.retain(|_, what| n != 0 && what.is_some());
                    }
                }
                told.shrink();
                let want = |key, what: &What| match what {
                    Some(by) => of(&objects, by),
                    None => frozen.get(key).cloned().flatten(),
                };
                for (key, what) in &model {
                    prop_assert_eq!(told.action(key.0, key.1).cloned(), want(key, what));
                }
                prop_assert_eq!(told.len(), model.len());
                prop_assert_eq!(told.holds(), model.values().any(Option::is_none));
                prop_assert_eq!(told.unusable(), model.iter().filter(|(k, w)| want(k, w).is_none()).count());
            }
            told.sweep(true);
            prop_assert!(told.tables.is_empty() && told.ways.iter().all(Option::is_none));
            prop_assert!(told.objects.is_empty() && told.others.is_empty());
        }
    }
}

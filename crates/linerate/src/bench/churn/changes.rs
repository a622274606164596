//! Which routes change: all but those that traffic goes by, as near to them as can be.
//!
//! Half of the changes are to routes of the table within [`REACH`] of one that traffic goes by, in the order of addresses: its
//! neighbours, the prefixes around it and those inside it. The other half are longer prefixes that come and go next to a
//! destination, in its own /24 (IPv6: /48). Both make the FIB rebuild the very records that lookups of the traffic read.

use std::collections::BTreeMap;

use linerate_tables::fib::NextHopId;
use linerate_tables::prefix::Prefix;
use linerate_tester::flow::Flow;
use linerate_tester::ip::Ip;
use linerate_tester::oracle::Oracle;
use linerate_tester::rng::Rng;
use linerate_tester::table::{NEXT_HOPS, Routes};

/// Routes of the table before and behind the one of a destination that may change.
const REACH: u64 = 48;

/// Longer prefixes that are there at a time, at most.
const LONGER: usize = 20_000;

/// One change: a route has this next hop from now on; `None`: it is gone.
pub(super) type Change<A> = (Prefix<A>, Option<NextHopId>);

/// Kinds of changes made so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) added: usize,
    pub(super) replaced: usize,
    pub(super) removed: usize,
}

/// Makes changes for ever.
pub(super) struct Changes<A> {
    /// The table, and what each route of it does now.
    routes: Routes<A>,
    now: Vec<Option<NextHopId>>,
    /// Routes that traffic goes by: never changed.
    kept: Vec<bool>,
    /// Destinations with the index of their route, sorted.
    destinations: Vec<(A, usize)>,
    /// Longer prefixes that are there.
    longer: BTreeMap<Prefix<A>, NextHopId>,
    rng: Rng,
    pub(super) kinds: Kinds,
}

impl<A: Ip> Changes<A> {
    /// Changes beside `flows`, which were picked from `routes` (sorted, without duplicates).
    pub(super) fn new(routes: Routes<A>, flows: &[Flow<A>], seed: u64) -> Self {
        // An oracle that tells which route it is, not where it leads.
        let numbered = routes.iter().zip(1..).map(|((p, _), n)| (*p, n)).collect();
        let oracle = Oracle::new(&numbered);
        let route =
            |f: &Flow<A>| Some((f.destination, (oracle.lookup(f.destination) as usize).checked_sub(1)?));
        let mut destinations: Vec<(A, usize)> = flows.iter().filter_map(route).collect();
        destinations.sort_unstable();
        let mut kept = vec![false; routes.len()];
        destinations.iter().for_each(|(_, route)| kept[*route] = true);
        Changes {
            now: routes.iter().map(|r| Some(r.1)).collect(),
            routes,
            kept,
            destinations,
            longer: BTreeMap::new(),
            rng: Rng::new(seed),
            kinds: Kinds::default(),
        }
    }

    /// The next change. It always is one: never what is so already.
    pub(super) fn next(&mut self) -> Change<A> {
        loop {
            let near = self.destinations[self.rng.below(self.destinations.len() as u64) as usize];
            let change = if self.rng.below(2) == 0 { self.of_table(near.1) } else { self.beside(near.0) };
            if let Some(change) = change {
                return change;
            }
        }
    }

    /// Routes that never change.
    pub(super) fn untouched(&self) -> usize {
        self.kept.iter().filter(|k| **k).count()
    }

    /// A route of the table near route `at`.
    fn of_table(&mut self, at: usize) -> Option<Change<A>> {
        let route = (at as u64 + self.rng.below(2 * REACH + 1)).checked_sub(REACH)? as usize;
        if *self.kept.get(route)? {
            return None;
        }
        let to = match self.now[route] {
            Some(_) if self.rng.below(3) == 0 => None,
            had => Some(self.other(had)),
        };
        let had = std::mem::replace(&mut self.now[route], to);
        self.count(had, to);
        Some((self.routes[route].0, to))
    }

    /// A longer prefix beside a destination.
    fn beside(&mut self, destination: A) -> Option<Change<A>> {
        let (block, lengths) = if A::BITS == 32 { (24, 8) } else { (48, 16) };
        let len = block + 1 + self.rng.below(lengths) as u8;
        let inside = Prefix::new(destination, block)?.first().host(block, self.rng.next());
        let fresh = Prefix::new(inside, len)?;
        let full = self.longer.len() >= LONGER;
        let known = self.longer.range(fresh..).next().or_else(|| self.longer.first_key_value());
        let (prefix, had) = match known {
            Some((prefix, next_hop)) if full || *prefix == fresh => (*prefix, Some(*next_hop)),
            _ => (fresh, None),
        };
        if had.is_none()
            && (self.covers(prefix) || self.routes.binary_search_by_key(&prefix, |r| r.0).is_ok())
        {
            return None;
        }
        let to = match had {
            Some(_) if full || self.rng.below(2) == 0 => None,
            had => Some(self.other(had)),
        };
        match to {
            Some(next_hop) => self.longer.insert(prefix, next_hop),
            None => self.longer.remove(&prefix),
        };
        self.count(had, to);
        Some((prefix, to))
    }

    /// Whether a prefix has a destination inside.
    fn covers(&self, prefix: Prefix<A>) -> bool {
        let first = self.destinations.partition_point(|(d, _)| *d < prefix.first());
        self.destinations.get(first).is_some_and(|(d, _)| prefix.contains(*d))
    }

    /// Another next hop than this one.
    fn other(&mut self, had: Option<NextHopId>) -> NextHopId {
        let next_hop = 1 + self.rng.below(u64::from(NEXT_HOPS)) as NextHopId;
        match had {
            Some(had) if had == next_hop => 1 + had % NEXT_HOPS,
            _ => next_hop,
        }
    }

    fn count(&mut self, had: Option<NextHopId>, has: Option<NextHopId>) {
        match (had, has) {
            (None, _) => self.kinds.added += 1,
            (Some(_), Some(_)) => self.kinds.replaced += 1,
            (Some(_), None) => self.kinds.removed += 1,
        }
    }

    /// Addresses in and around what changed, and of all the table.
    pub(super) fn probes(&mut self, count: usize) -> Vec<A> {
        let longer: Vec<Prefix<A>> = self.longer.keys().copied().collect();
        let mut one = || {
            let prefix = match (self.rng.below(3), longer.len() as u64) {
                (0, n @ 1..) => longer[self.rng.below(n) as usize],
                (1, _) => {
                    let near = self.destinations[self.rng.below(self.destinations.len() as u64) as usize].1;
                    self.routes[(near + self.rng.below(REACH) as usize).min(self.routes.len() - 1)].0
                }
                _ => self.routes[self.rng.below(self.routes.len() as u64) as usize].0,
            };
            prefix.first().host(prefix.len(), self.rng.next())
        };
        (0..count).map(|_| one()).collect()
    }

    /// The table as it is now.
    pub(super) fn table(&self) -> Routes<A> {
        let table = self.routes.iter().zip(&self.now).filter_map(|((p, _), now)| Some((*p, (*now)?)));
        let mut all: Routes<A> = table.chain(self.longer.iter().map(|(p, n)| (*p, *n))).collect();
        all.sort_unstable_by_key(|(p, _)| (p.first(), p.len()));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use linerate_tester::flow::Flows;

    use super::*;
    use crate::demo::plan;

    fn holds<A: Ip>(routes: Routes<A>, own: &[Prefix<A>]) {
        let flows = Flows::pick(&routes, plan::hops(), 2000, own, 1).unwrap();
        let mut changes = Changes::new(routes.clone(), &flows.list, 2);
        let untouched: HashSet<Prefix<A>> =
            routes.iter().zip(&changes.kept).filter(|(_, kept)| **kept).map(|((p, _), _)| *p).collect();
        assert!(untouched.len() > 500 && untouched.len() == changes.untouched());
        let mut model: BTreeMap<Prefix<A>, NextHopId> = routes.into_iter().collect();
        let made: Vec<Change<A>> = (0..50_000).map(|_| changes.next()).collect();
        for (prefix, to) in &made {
            assert!(!untouched.contains(prefix));
            let had = match to {
                Some(next_hop) => model.insert(*prefix, *next_hop),
                None => model.remove(prefix),
            };
            assert_ne!(had, *to, "{prefix}: not a change");
        }
        let now: Routes<A> = model.into_iter().collect();
        assert_eq!(changes.table(), now);
        let oracle = Oracle::new(&now);
        for f in flows.list.iter() {
            assert_eq!(oracle.lookup(f.destination), u32::from(f.next_hop), "{:?}", f.destination);
        }
        let kinds = changes.kinds;
        assert_eq!(kinds.added + kinds.replaced + kinds.removed, 50_000);
        assert!([kinds.added, kinds.replaced, kinds.removed].iter().all(|n| *n > 5000), "{kinds:?}");
        assert!(made.iter().map(|c| c.0).collect::<HashSet<_>>().len() > 5000);
    }

    #[test]
    fn changes_are_real_and_leave_every_destination_where_it_is() {
        holds(linerate_tester::table::ipv4(1, 20_000, NEXT_HOPS), &plan::own4());
        holds(linerate_tester::table::ipv6(1, 20_000, NEXT_HOPS), &plan::own6());
    }
}

//! Loading a whole table: routes go into buckets by slot, each slot is painted once.

use super::{Changed, Ip4Fib, layout::SLOTS, rib::Rib};
use crate::{
    fib::{FibError, NO_ROUTE, NextHopId, arena::HEADROOM},
    prefix::Prefix,
};

impl Ip4Fib {
    /// See [`Fib::load`](crate::fib::Fib::load).
    pub(super) fn load_all(&mut self, routes: Vec<(Prefix<u32>, NextHopId)>) -> Result<(), FibError> {
        if routes.iter().any(|&(_, nh)| nh == NO_ROUTE) {
            return Err(FibError::ReservedNextHop);
        }
        let buckets = Buckets::new(&routes);
        self.retry_stale();
        self.arena.reserve(self.most_words_of(&buckets, &routes) + HEADROOM)?;
        // One use more of every next hop until all is done: from here on nothing can fail.
        let held = self.hops.hold(routes.iter().filter(|(p, _)| p.len() > 0).map(|&(_, nh)| nh))?;

        let mut replaced = Vec::new();
        let mut shorts = false;
        for &(prefix, nh) in routes.iter().filter(|(p, _)| Rib::is_short(p.len())) {
            if prefix.len() == 0 {
                let old = self.set_default(nh);
                self.routes += usize::from(old.is_none());
            } else {
                shorts = true;
                self.put(prefix.first(), prefix.len(), nh, &mut replaced);
            }
        }
        if shorts {
            self.rib.recover();
        }
        for slot in 0..SLOTS {
            let bucket = buckets.of(slot);
            for &(place, nh) in bucket {
                self.put(place.addr(slot), place.len(), nh, &mut replaced);
            }
            if shorts || !bucket.is_empty() {
                self.publish_or_defer(slot, if bucket.is_empty() { Changed::Slot } else { Changed::All });
            }
        }
        for index in replaced.into_iter().chain(held) {
            self.hops.release(index);
        }
        Ok(())
    }

    /// Puts one route among the routes, not yet into what readers see.
    fn put(&mut self, addr: u32, len: u8, nh: NextHopId, replaced: &mut Vec<u32>) {
        // Cannot fail: the next hop is held.
        let Ok(index) = self.hops.acquire(nh) else { return };
        match self.rib.set(addr, len, index) {
            Some(old) => replaced.push(old),
            None => self.routes += 1,
        }
    }

    /// What publishing the whole load can take at most.
    fn most_words_of(&self, buckets: &Buckets, routes: &[(Prefix<u32>, NextHopId)]) -> usize {
        let shorts = buckets.routes.len() < routes.len();
        (0..SLOTS)
            .map(|slot| {
                let bucket = buckets.of(slot);
                let now = self.rib.slot(slot);
                if bucket.is_empty() && !(shorts && now.is_some()) {
                    return 0;
                }
                let deep = bucket.iter().filter(|(place, _)| place.len() > 24).count();
                now.map_or(4, |slot| slot.most_words(0)) + (2 * bucket.len()).min(33) + 14 * deep
            })
            .sum()
    }
}

/// Where in its slot a route is: 14 address bits, then the length. Sorts as [`Prefix`] does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u32);

impl Place {
    fn new(prefix: Prefix<u32>) -> Self {
        Place((prefix.first() & 0x3fff) << 6 | u32::from(prefix.len()))
    }

    fn addr(self, slot: usize) -> u32 {
        (slot as u32) << 14 | self.0 >> 6
    }

    fn len(self) -> u8 {
        (self.0 & 63) as u8
    }
}

/// The routes longer than /18, slot by slot, each slot's sorted by place; equal places in the order given.
struct Buckets {
    starts: Vec<u32>,
    routes: Vec<(Place, NextHopId)>,
}

impl Buckets {
    fn new(routes: &[(Prefix<u32>, NextHopId)]) -> Self {
        let slot_of = |prefix: Prefix<u32>| (prefix.first() >> 14) as usize;
        let long = || routes.iter().filter(|(p, _)| !Rib::is_short(p.len()));
        let mut starts = vec![0u32; SLOTS + 1];
        for &(prefix, _) in long() {
            starts[slot_of(prefix) + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut buckets = Buckets { starts, routes: vec![(Place(0), NO_ROUTE); sum as usize] };
        for &(prefix, nh) in long() {
            let at = &mut next[slot_of(prefix)];
            buckets.routes[*at as usize] = (Place::new(prefix), nh);
            *at += 1;
        }
        for bounds in buckets.starts.windows(2) {
            buckets.routes[bounds[0] as usize..bounds[1] as usize].sort_by_key(|&(place, _)| place);
        }
        buckets
    }

    fn of(&self, slot: usize) -> &[(Place, NextHopId)] {
        match (self.starts.get(slot), self.starts.get(slot + 1)) {
            (Some(&from), Some(&to)) => self.routes.get(from as usize..to as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

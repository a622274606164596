//! Next hops inside a table: 32-bit ids outside, small indices inside.
//!
//! Records store indices. As long as every id is small (below 2^17) the index is the id itself and readers skip the
//! translation. The first id that is not turns translation on for good: readers then load one word more per lookup,
//! from an array as large as the ids in use. Index 0 is the default route: changing that is one store, whatever the
//! size of the table.

use super::{FibError, NO_ROUTE, NextHopId, arena::zeroed};
use crate::qsbr::{Domain, Epoch};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Most distinct next hops one table can tell apart, the default route's not counted.
pub const MAX_NEXT_HOPS: usize = 1 << 16;

/// Indices there are: twice the most in use, so that those waiting for readers do not run a table out of them.
pub(crate) const INDICES: usize = 2 * MAX_NEXT_HOPS;

/// The readers' side.
#[derive(Debug)]
pub(crate) struct Ids {
    /// Id of every index; entry 0 is the default route's, [`NO_ROUTE`] without one.
    ids: Box<[AtomicU32]>,
    translated: AtomicBool,
}

/// The writer's side: who uses which index.
#[derive(Debug)]
pub(crate) struct NextHops {
    shared: Arc<Ids>,
    domain: Domain,
    /// Routes per index.
    uses: Vec<u32>,
    /// Ids whose index is not the id.
    moved: HashMap<NextHopId, u32>,
    /// Indices without routes that readers may still meet.
    idle: BTreeMap<u32, Epoch>,
    /// Lowest index that may never have been used (translated ids only).
    cursor: u32,
    distinct: usize,
}

impl Ids {
    /// The ids by index, exactly [`INDICES`] of them.
    #[inline]
    pub(crate) fn table(&self) -> &[AtomicU32] {
        &self.ids
    }

    /// Whether an index other than 0 must be looked up. Load it after the records whose indices are to be resolved.
    #[inline]
    pub(crate) fn translated(&self) -> bool {
        self.translated.load(Ordering::Acquire)
    }

    /// The default route's next hop.
    #[inline]
    pub(crate) fn default(&self) -> NextHopId {
        self.ids.first().map_or(NO_ROUTE, |id| id.load(Ordering::Relaxed))
    }
}

impl NextHops {
    pub(crate) fn new(domain: Domain) -> Result<Self, FibError> {
        Ok(NextHops {
            shared: Arc::new(Ids { ids: zeroed(INDICES)?, translated: AtomicBool::new(false) }),
            domain,
            uses: Vec::new(),
            moved: HashMap::new(),
            idle: BTreeMap::new(),
            cursor: 1,
            distinct: 0,
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Ids> {
        &self.shared
    }

    /// Sets the default route's next hop: one store.
    pub(crate) fn set_default(&self, id: NextHopId) {
        self.store(0, id);
    }

    /// The id behind an index in use.
    pub(crate) fn id(&self, index: u32) -> NextHopId {
        self.shared.ids.get(index as usize).map_or(NO_ROUTE, |id| id.load(Ordering::Relaxed))
    }

    /// One use more of every distinct id, so that acquiring any of them cannot fail until the returned indices are
    /// released. The more routes an id has, the smaller the index it gets. On an error nothing is changed.
    pub(crate) fn hold(&mut self, ids: impl Iterator<Item = NextHopId>) -> Result<Vec<u32>, FibError> {
        let mut small = vec![0u32; INDICES];
        let mut large = HashMap::<NextHopId, u32>::new();
        for id in ids {
            match small.get_mut(id as usize) {
                Some(count) => *count += 1,
                None => *large.entry(id).or_default() += 1,
            }
        }
        let small =
            small.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(id, &count)| (id as u32, count));
        let mut ids: Vec<(NextHopId, u32)> = small.chain(large).collect();
        ids.sort_unstable_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
        let mut held = Vec::with_capacity(ids.len());
        for (id, _) in ids {
            match self.acquire(id) {
                Ok(index) => held.push(index),
                Err(error) => {
                    held.into_iter().for_each(|index| self.release(index));
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// The index for one more route through `id`.
    pub(crate) fn acquire(&mut self, id: NextHopId) -> Result<u32, FibError> {
        let index = match self.in_use(id) {
            Some(index) => index,
            None => self.assign(id)?,
        };
        if let Some(uses) = self.uses.get_mut(index as usize) {
            *uses += 1;
        }
        Ok(index)
    }

    /// One route less through this index.
    pub(crate) fn release(&mut self, index: u32) {
        let Some(uses) = self.uses.get_mut(index as usize) else { return };
        *uses = uses.saturating_sub(1);
        if *uses == 0 {
            self.distinct -= 1;
            self.idle.insert(index, self.domain.advance());
        }
    }

    /// Bytes readers touch.
    pub(crate) fn lookup_bytes(&self) -> usize {
        if self.shared.translated() { self.uses.len() * 4 } else { 4 }
    }

    /// Bytes of the writer's own.
    pub(crate) fn control_bytes(&self) -> usize {
        self.uses.capacity() * 4 + self.moved.capacity() * 9 + self.idle.len() * 16
    }

    fn in_use(&self, id: NextHopId) -> Option<u32> {
        let used = |index: u32| self.uses.get(index as usize).is_some_and(|&uses| uses > 0);
        if used(id) && self.id(id) == id {
            return Some(id);
        }
        self.moved.get(&id).copied().filter(|&index| used(index))
    }

    /// Finds an index for an id that has none in use.
    fn assign(&mut self, id: NextHopId) -> Result<u32, FibError> {
        if self.distinct >= MAX_NEXT_HOPS {
            return Err(FibError::TooManyNextHops(MAX_NEXT_HOPS));
        }
        let index = match self.moved.get(&id) {
            // It was here before and nobody took its place.
            Some(&index) if self.id(index) == id => index,
            _ => self.find(id).ok_or(FibError::TooManyNextHops(MAX_NEXT_HOPS))?,
        };
        let before = self.id(index);
        if before != id {
            self.moved.remove(&before);
        }
        if index != id {
            self.moved.insert(id, index);
            self.shared.translated.store(true, Ordering::Release);
        }
        self.idle.remove(&index);
        if self.uses.len() <= index as usize {
            self.uses.resize(index as usize + 1, 0);
        }
        self.store(index, id);
        self.distinct += 1;
        Ok(index)
    }

    /// An index that no route uses and no reader can meet with another meaning.
    fn find(&mut self, id: NextHopId) -> Option<u32> {
        if (1..INDICES as u32).contains(&id) && (self.id(id) == id || self.never_used(id)) {
            return Some(id);
        }
        let passed = self.domain.passed();
        if let Some((&index, _)) = self.idle.iter().take(16).find(|&(_, &epoch)| epoch <= passed) {
            return Some(index);
        }
        while self.cursor < INDICES as u32 {
            let index = self.cursor;
            self.cursor += 1;
            if self.never_used(index) {
                return Some(index);
            }
        }
        self.idle.iter().find(|&(_, &epoch)| epoch <= passed).map(|(&index, _)| index)
    }

    fn never_used(&self, index: u32) -> bool {
        self.id(index) == NO_ROUTE
    }

    fn store(&self, index: u32, id: NextHopId) {
        if let Some(word) = self.shared.ids.get(index as usize) {
            word.store(id, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_ids_are_their_own_index() {
        let mut hops = NextHops::new(Domain::new()).unwrap();
        for id in [1, 64, 65_535, 131_071] {
            assert_eq!(hops.acquire(id), Ok(id));
        }
        assert!(!hops.shared().translated());
        assert_eq!(hops.acquire(131_072), Ok(2));
        assert!(hops.shared().translated());
        assert_eq!((hops.id(2), hops.acquire(2).unwrap(), hops.id(3)), (131_072, 3, 2));
    }

    #[test]
    fn an_index_is_reused_only_when_readers_have_moved_on() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let mut hops = NextHops::new(domain).unwrap();
        let a = hops.acquire(1_000_000).unwrap();
        hops.release(a);
        let b = hops.acquire(1_000_001).unwrap();
        assert_ne!(a, b);
        reader.quiescent();
        assert_eq!(hops.acquire(1_000_002), Ok(a));
        assert_eq!(hops.id(a), 1_000_002);
    }

    #[test]
    fn a_next_hop_that_comes_back_keeps_its_index() {
        let domain = Domain::new();
        let _reader = domain.register();
        let mut hops = NextHops::new(domain).unwrap();
        for id in [5, 1_000_000] {
            let a = hops.acquire(id).unwrap();
            hops.release(a);
            assert_eq!(hops.acquire(id), Ok(a));
        }
    }

    #[test]
    fn sixty_four_k_distinct_and_not_one_more() {
        for first in [1u32, 3_000_000_000] {
            let mut hops = NextHops::new(Domain::new()).unwrap();
            for id in first..first + MAX_NEXT_HOPS as u32 {
                hops.acquire(id).unwrap();
            }
            let extra = first + MAX_NEXT_HOPS as u32;
            assert_eq!(hops.acquire(extra), Err(FibError::TooManyNextHops(65_536)));
            assert!(hops.hold([extra].into_iter()).is_err());
            let held = hops.hold([first].into_iter()).unwrap();
            held.into_iter().for_each(|index| hops.release(index));
            hops.release(first % INDICES as u32 * u32::from(first == 1) + u32::from(first != 1));
            assert!(hops.acquire(extra).is_ok());
        }
    }
}

//! The routes of one address family: per prefix the candidates of each source, the preferred one forwards.
//!
//! An ordered map with one word per prefix: about 20 bytes per IPv4 route, ordered iteration for views, and the longest
//! match by stepping back over nested prefixes. Prefixes with several candidates, which are few, keep them aside.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use arrayvec::ArrayVec;
use linerate_tables::fib::NextHopId;
use linerate_tables::prefix::{Address, Prefix};

use crate::model::Source;

const SOURCES: usize = Source::ALL.len();

/// One source's route for a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) source: Source,
    pub(crate) id: NextHopId,
}

/// Either one candidate (source in bits 28–30, next hop below) or, with bit 31, an index into `Rib::several`.
#[derive(Clone, Copy, Debug)]
struct Cell(u32);

const SEVERAL: u32 = 1 << 31;
const ID: u32 = (1 << 28) - 1;

impl Cell {
    fn one(c: Candidate) -> Self {
        Cell((c.source as u32) << 28 | c.id & ID)
    }

    fn several(index: u32) -> Self {
        Cell(SEVERAL | index)
    }

    fn get(self) -> Result<Candidate, usize> {
        if self.0 & SEVERAL != 0 {
            return Err((self.0 & !SEVERAL) as usize);
        }
        let source = Source::ALL.get((self.0 >> 28) as usize).copied().unwrap_or(Source::Neighbor);
        Ok(Candidate { source, id: self.0 & ID })
    }
}

/// What setting a candidate did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The next hop this source had for the prefix.
    pub(crate) had: Option<NextHopId>,
    /// The preferred candidate before.
    pub(crate) before: Option<Candidate>,
    /// The preferred candidate now.
    pub(crate) after: Option<Candidate>,
}

/// The routes.
#[derive(Debug)]
pub(crate) struct Rib<A: Address> {
    routes: BTreeMap<Prefix<A>, Cell>,
    /// Candidates sorted by preference.
    several: Vec<ArrayVec<Candidate, SOURCES>>,
    free: Vec<u32>,
    count: [usize; SOURCES],
}

impl<A: Address> Rib<A> {
    pub(crate) fn new() -> Self {
        Rib { routes: BTreeMap::new(), several: Vec::new(), free: Vec::new(), count: [0; SOURCES] }
    }

    /// Prefixes with at least one candidate.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// Routes of a source.
    pub(crate) fn count(&self, source: Source) -> usize {
        self.count[source as usize]
    }

    /// Sets or removes a source's route for a prefix.
    pub(crate) fn set(&mut self, prefix: Prefix<A>, source: Source, id: Option<NextHopId>) -> Step {
        let step = match self.routes.entry(prefix) {
            Entry::Vacant(entry) => {
                let after = id.map(|id| Candidate { source, id });
                if let Some(c) = after {
                    entry.insert(Cell::one(c));
                }
                Step { had: None, before: None, after }
            }
            Entry::Occupied(mut entry) => {
                let cell = *entry.get();
                let mut all = match cell.get() {
                    Ok(one) => ArrayVec::from_iter([one]),
                    Err(index) => self.several[index].clone(),
                };
                let before = all.first().copied();
                let at = all.iter().position(|c| c.source == source);
                let had = at.map(|at| all.remove(at).id);
                if let Some(id) = id {
                    let _ = all.try_push(Candidate { source, id });
                    all.sort_unstable();
                }
                let after = all.first().copied();
                let index = cell.get().err();
                match (all.len(), after) {
                    (0, _) | (_, None) => {
                        entry.remove();
                    }
                    (1, Some(one)) => *entry.get_mut() = Cell::one(one),
                    _ => {
                        let index =
                            index.map(|i| i as u32).or_else(|| self.free.pop()).unwrap_or_else(|| {
                                self.several.push(ArrayVec::new());
                                self.several.len() as u32 - 1
                            });
                        self.several[index as usize] = all.clone();
                        *entry.get_mut() = Cell::several(index);
                    }
                }
                if let Some(index) = index.filter(|_| all.len() < 2) {
                    self.several[index].clear();
                    self.free.push(index as u32);
                }
                Step { had, before, after }
            }
        };
        let count = &mut self.count[source as usize];
        match (step.had, id) {
            (None, Some(_)) => *count += 1,
            (Some(_), None) => *count -= 1,
            _ => {}
        }
        step
    }

    /// Adds routes of one source for prefixes that have no candidate at all, sorted by prefix and without repetition.
    pub(crate) fn append(&mut self, source: Source, sorted: Vec<(Prefix<A>, NextHopId)>) {
        self.count[source as usize] += sorted.len();
        let mut new: BTreeMap<_, _> =
            sorted.into_iter().map(|(p, id)| (p, Cell::one(Candidate { source, id }))).collect();
        if self.routes.is_empty() {
            self.routes = new;
        } else {
            self.routes.append(&mut new);
        }
    }

    /// Gives back what prefixes with several candidates took that are no more.
    pub(crate) fn compact(&mut self) {
        if self.free.len() == self.several.len() {
            (self.several, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// A source's next hop for exactly this prefix.
    pub(crate) fn get(&self, prefix: Prefix<A>, source: Source) -> Option<NextHopId> {
        self.candidates(*self.routes.get(&prefix)?).iter().find(|c| c.source == source).map(|c| c.id)
    }

    /// Whether there is any candidate for exactly this prefix.
    pub(crate) fn contains(&self, prefix: Prefix<A>) -> bool {
        self.routes.contains_key(&prefix)
    }

    /// The longest prefix that covers `addr` and has a candidate that `wanted` accepts, with the most preferred such.
    pub(crate) fn longest(
        &self,
        addr: A,
        wanted: impl Fn(Candidate) -> bool,
    ) -> Option<(Prefix<A>, Candidate)> {
        let mut limit = Prefix::new(addr, A::BITS)?;
        loop {
            // Prefixes are laminar: whatever covers `addr` and sorts before the predecessor covers that as well, so
            // it is no longer than the bits that the two have in common.
            let (prefix, cell) = self.routes.range(..=limit).next_back()?;
            if prefix.contains(addr) {
                if let Some(c) = self.candidates(*cell).iter().copied().find(|c| wanted(*c)) {
                    return Some((*prefix, c));
                }
                limit = Prefix::new(addr, prefix.len().checked_sub(1)?)?;
            } else {
                limit = common(addr, *prefix);
            }
        }
    }

    /// All routes from `after` (exclusive; `None`: the first) on, each prefix with its candidates, best first.
    pub(crate) fn iter_from(
        &self,
        after: Bound<Prefix<A>>,
    ) -> impl Iterator<Item = (Prefix<A>, ArrayVec<Candidate, SOURCES>)> {
        self.routes.range((after, Bound::Unbounded)).map(|(p, cell)| (*p, self.candidates(*cell)))
    }

    /// All routes of a source in order.
    pub(crate) fn of(&self, source: Source) -> impl Iterator<Item = (Prefix<A>, NextHopId)> {
        self.iter_from(Bound::Unbounded)
            .filter_map(move |(p, all)| Some((p, all.iter().find(|c| c.source == source)?.id)))
    }

    fn candidates(&self, cell: Cell) -> ArrayVec<Candidate, SOURCES> {
        match cell.get() {
            Ok(one) => ArrayVec::from_iter([one]),
            Err(index) => self.several.get(index).cloned().unwrap_or_default(),
        }
    }
}

/// The longest prefix that covers both.
fn common<A: Address>(addr: A, prefix: Prefix<A>) -> Prefix<A> {
    let (mut short, mut long) = (0, prefix.len());
    while short < long {
        let middle = (short + long).div_ceil(2);
        if addr.and(A::mask(middle)) == prefix.first().and(A::mask(middle)) {
            short = middle;
        } else {
            long = middle - 1;
        }
    }
    Prefix::new(addr, short).unwrap_or(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn source(i: usize) -> Source {
        Source::ALL[i % SOURCES]
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_all_candidates(
            steps in prop::collection::vec((0u32..32, 0u8..=5, 0usize..SOURCES, prop::option::of(1u32..9)), 1..120),
        ) {
            let mut rib = Rib::new();
            let mut model: HashMap<(Prefix<u32>, Source), NextHopId> = HashMap::new();
            let best = |m: &HashMap<(Prefix<u32>, Source), NextHopId>, p| {
                Source::ALL.iter().find_map(|s| Some(Candidate { source: *s, id: *m.get(&(p, *s))? }))
            };
            for (addr, len, s, id) in steps {
                let (p, s) = (Prefix::new(addr << 27, len).unwrap(), source(s));
                let before = best(&model, p);
                let had = match id {
                    Some(id) => model.insert((p, s), id),
                    None => model.remove(&(p, s)),
                };
                prop_assert_eq!(rib.set(p, s, id), Step { had, before, after: best(&model, p) });
                prop_assert_eq!(rib.get(p, s), id);
                for host in 0..32u32 {
                    let addr = host << 27 | 5;
                    let wanted = |c: Candidate| c.source != Source::Neighbor;
                    let expected = (0..=5u8).rev().find_map(|len| {
                        let p = Prefix::new(addr, len).unwrap();
                        let c = Source::ALL.iter().filter(|s| **s != Source::Neighbor).find_map(|s| {
                            Some(Candidate { source: *s, id: *model.get(&(p, *s))? })
                        })?;
                        Some((p, c))
                    });
                    prop_assert_eq!(rib.longest(addr, wanted), expected);
                }
            }
            for s in Source::ALL {
                prop_assert_eq!(rib.count(s), model.keys().filter(|k| k.1 == s).count());
                prop_assert_eq!(rib.of(s).count(), rib.count(s));
            }
            let all: Vec<_> = model.keys().copied().collect();
            for (p, s) in all {
                rib.set(p, s, None);
            }
            prop_assert_eq!((rib.len(), rib.free.len()), (0, rib.several.len()));
        }
    }

    #[test]
    fn a_cell_is_one_word() {
        assert_eq!(size_of::<(Prefix<u32>, Cell)>(), 12);
    }
}

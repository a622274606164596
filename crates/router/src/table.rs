//! One address family: its RIB and its FIB, which are changed together.

use std::iter::Peekable;

use linerate_tables::fib::{Fib, FibError, NextHopId};
use linerate_tables::prefix::{Address, Prefix};

use crate::model::Source;
use crate::rib::{Rib, Step};

/// Above this many new routes at once the FIB is loaded in bulk.
const BULK: usize = 4096;

#[derive(Debug)]
pub(crate) struct Table<A: Address, F> {
    pub(crate) rib: Rib<A>,
    pub(crate) fib: F,
}

/// Routes sorted by prefix, each prefix once.
pub(crate) type Sorted<A> = Vec<(Prefix<A>, NextHopId)>;

/// What must change so that a source has the routes it should.
#[derive(Debug)]
pub(crate) struct Difference<A: Address> {
    pub(crate) removed: Vec<Prefix<A>>,
    /// New routes, and those that change their next hop.
    pub(crate) set: Sorted<A>,
    pub(crate) replaced: usize,
}

impl<A: Address, F: Fib<A>> Table<A, F> {
    pub(crate) fn new(fib: F) -> Self {
        Table { rib: Rib::new(), fib }
    }

    /// Sets or removes a source's route; the FIB follows where the preferred route changed. On an error nothing has.
    pub(crate) fn change(
        &mut self,
        prefix: Prefix<A>,
        source: Source,
        id: Option<NextHopId>,
    ) -> Result<Step, FibError> {
        let step = self.rib.set(prefix, source, id);
        if let Err(error) = self.follow(prefix, step) {
            self.rib.set(prefix, source, step.had);
            return Err(error);
        }
        Ok(step)
    }

    fn follow(&mut self, prefix: Prefix<A>, step: Step) -> Result<(), FibError> {
        let (before, after) = (step.before.map(|c| c.id), step.after.map(|c| c.id));
        match after {
            _ if before == after => {}
            Some(id) => {
                self.fib.insert(prefix, id)?;
            }
            None => {
                self.fib.withdraw(prefix);
            }
        }
        Ok(())
    }

    /// How the routes of `source` differ from `wanted`.
    pub(crate) fn difference(&self, source: Source, wanted: &Sorted<A>) -> Difference<A> {
        let mut difference = Difference { removed: Vec::new(), set: Vec::new(), replaced: 0 };
        if self.rib.count(source) == 0 {
            difference.set.clone_from(wanted);
            return difference;
        }
        let mut have = self.rib.of(source).peekable();
        for &(prefix, id) in wanted {
            difference.removed.extend(skip_below(&mut have, prefix));
            match have.next_if(|(p, _)| *p == prefix) {
                Some((_, old)) if old == id => {}
                Some(_) => {
                    difference.replaced += 1;
                    difference.set.push((prefix, id));
                }
                None => difference.set.push((prefix, id)),
            }
        }
        difference.removed.extend(have.map(|(p, _)| p));
        difference
    }

    /// Whether so many routes are better loaded at once than one by one.
    pub(crate) fn is_bulk(routes: &Sorted<A>) -> bool {
        routes.len() > BULK
    }

    /// The routes whose prefix nobody has a route for, split from the others.
    pub(crate) fn split_fresh(&self, routes: Sorted<A>) -> (Sorted<A>, Sorted<A>) {
        if self.rib.len() == 0 {
            return (routes, Vec::new());
        }
        routes.into_iter().partition(|(p, _)| !self.rib.contains(*p))
    }

    /// Loads the routes of `source` that [`Rib::append`] has added into the FIB; takes them out of the RIB again where
    /// the FIB refuses.
    pub(crate) fn load(&mut self, source: Source, fresh: &Sorted<A>) -> Result<(), FibError> {
        self.fib.load(fresh.iter().copied()).inspect_err(|_| {
            for (prefix, _) in fresh {
                self.rib.set(*prefix, source, None);
            }
        })
    }
}

/// Takes what sorts before `prefix`.
fn skip_below<A: Address>(
    have: &mut Peekable<impl Iterator<Item = (Prefix<A>, NextHopId)>>,
    prefix: Prefix<A>,
) -> Vec<Prefix<A>> {
    std::iter::from_fn(|| have.next_if(|(p, _)| *p < prefix)).map(|(p, _)| p).collect()
}

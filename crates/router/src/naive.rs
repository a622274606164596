//! A FIB that is obviously right and slow: an ordered map behind a lock. For tests of whatever stands on a FIB.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use linerate_tables::fib::{Fib, FibError, FibMemory, Lookup, NO_ROUTE, NextHopId};
use linerate_tables::prefix::{Address, Prefix};

/// The routes, by prefix.
type Routes<A> = Arc<RwLock<BTreeMap<Prefix<A>, NextHopId>>>;

/// The writer; [`NaiveReader`] is its reader.
#[derive(Debug)]
pub struct NaiveFib<A: Address>(Routes<A>);

/// The reader.
#[derive(Clone, Debug)]
pub struct NaiveReader<A: Address>(Routes<A>);

impl<A: Address> Default for NaiveFib<A> {
    fn default() -> Self {
        NaiveFib(Arc::default())
    }
}

impl<A: Address> Lookup<A> for NaiveReader<A> {
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let routes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (addr, out) in addrs.iter().zip(out) {
            let covering = (0..=A::BITS).rev().filter_map(|len| Prefix::new(*addr, len));
            *out = covering.filter_map(|p| routes.get(&p)).next().copied().unwrap_or(NO_ROUTE);
        }
    }
}

impl<A: Address> Fib<A> for NaiveFib<A> {
    type Reader = NaiveReader<A>;

    fn reader(&self) -> NaiveReader<A> {
        NaiveReader(self.0.clone())
    }

    fn insert(&mut self, prefix: Prefix<A>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        if nh == NO_ROUTE {
            return Err(FibError::ReservedNextHop);
        }
        Ok(self.0.write().unwrap_or_else(PoisonError::into_inner).insert(prefix, nh))
    }

    fn withdraw(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&prefix)
    }

    fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&prefix).copied()
    }

    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Result<(), FibError> {
        let routes: Vec<_> = routes.into_iter().collect();
        if routes.iter().any(|r| r.1 == NO_ROUTE) {
            return Err(FibError::ReservedNextHop);
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(routes);
        Ok(())
    }

    fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn memory(&self) -> FibMemory {
        FibMemory { lookup: self.len() * size_of::<(Prefix<A>, NextHopId)>(), ..FibMemory::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let mut fib = NaiveFib::<u32>::default();
        let p = |a, len| Prefix::new(a, len).unwrap();
        fib.load([(p(0, 0), 1), (p(0x0a00_0000, 8), 2), (p(0x0a01_0000, 16), 3)]).unwrap();
        let r = fib.reader();
        assert_eq!([0x0a01_0203, 0x0a02_0304, 0xc633_0001].map(|a| r.lookup(a)), [3, 2, 1]);
        assert_eq!((fib.withdraw(p(0, 0)), r.lookup(0xc633_0001)), (Some(1), NO_ROUTE));
        assert_eq!(fib.insert(p(0, 0), 0), Err(FibError::ReservedNextHop));
    }
}

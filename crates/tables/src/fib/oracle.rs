//! The reference every FIB is checked against: the routes flattened to disjoint ranges, found by binary search.
//!
//! Slow to change (it is rebuilt), independent of every structure it checks, and short enough to be believed.

use super::{NO_ROUTE, NextHopId};
use crate::prefix::{Address, Prefix};
use std::collections::BTreeMap;

/// Consecutive ranges that cover the whole address space; neighbours differ in their next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle<A> {
    ranges: Vec<Range<A>>,
}

/// Addresses `first..=last` that share one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<A> {
    /// Lowest address.
    pub first: A,
    /// Highest address.
    pub last: A,
    /// The answer, [`NO_ROUTE`] where nothing covers the range.
    pub nh: NextHopId,
}

impl<A: Address> Oracle<A> {
    /// Flattens routes given in any order; a later entry for the same prefix replaces an earlier one.
    pub fn new(routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Self {
        // Prefixes order by address, then length: every route comes after the routes that cover it.
        let routes: BTreeMap<Prefix<A>, NextHopId> = routes.into_iter().collect();
        let mut ranges = Vec::new();
        // Routes that cover the current address, outermost first, over "no route" for everything.
        let mut open = vec![(A::mask(0).not(), NO_ROUTE)];
        let mut at = Some(A::mask(0));
        for (prefix, nh) in routes {
            close_before(&mut open, &mut at, prefix.first(), &mut ranges);
            let outer = open.last().map_or(NO_ROUTE, |&(_, nh)| nh);
            if let (Some(first), Some(last)) = (at, prefix.first().prev())
                && first <= last
            {
                push(&mut ranges, Range { first, last, nh: outer });
            }
            at = Some(prefix.first());
            open.push((prefix.last(), nh));
        }
        while let Some((last, nh)) = open.pop() {
            close(last, nh, &mut at, &mut ranges);
        }
        Oracle { ranges }
    }

    /// The next hop of the longest prefix that covers `addr`, [`NO_ROUTE`] where none does.
    pub fn lookup(&self, addr: A) -> NextHopId {
        let after = self.ranges.partition_point(|range| range.first <= addr);
        after.checked_sub(1).and_then(|i| self.ranges.get(i)).map_or(NO_ROUTE, |range| range.nh)
    }

    /// All ranges, ascending. Checking every `first` and `last` checks every address of a table.
    pub fn ranges(&self) -> &[Range<A>] {
        &self.ranges
    }
}

/// Ends every open route that does not reach `next`.
fn close_before<A: Address>(
    open: &mut Vec<(A, NextHopId)>,
    at: &mut Option<A>,
    next: A,
    ranges: &mut Vec<Range<A>>,
) {
    while let Some(&(last, nh)) = open.last()
        && last < next
    {
        open.pop();
        close(last, nh, at, ranges);
    }
}

/// Ends one route: what is left of it, from `at` to its last address, is a range.
fn close<A: Address>(last: A, nh: NextHopId, at: &mut Option<A>, ranges: &mut Vec<Range<A>>) {
    if let Some(first) = *at
        && first <= last
    {
        push(ranges, Range { first, last, nh });
        *at = last.next();
    }
}

fn push<A: Address>(ranges: &mut Vec<Range<A>>, range: Range<A>) {
    match ranges.last_mut() {
        Some(before) if before.nh == range.nh => before.last = range.last,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(addr: u32, len: u8) -> Prefix<u32> {
        Prefix::new(addr, len).unwrap()
    }

    #[test]
    fn no_routes_are_one_range() {
        let oracle = Oracle::<u128>::new([]);
        assert_eq!(oracle.ranges(), [Range { first: 0, last: u128::MAX, nh: NO_ROUTE }]);
        assert_eq!(oracle.lookup(5), NO_ROUTE);
    }

    #[test]
    fn nested_and_neighbouring_routes() {
        let oracle = Oracle::new([
            (p(0x0a000000, 8), 1),
            (p(0x0a800000, 9), 2),
            (p(0x0aff0000, 16), 3),
            (p(0x0b000000, 8), 1),
            (p(u32::MAX, 32), 9),
            (p(0, 32), 8),
        ]);
        let of = |first, last, nh| Range { first, last, nh };
        assert_eq!(
            oracle.ranges(),
            [
                of(0, 0, 8),
                of(1, 0x09ff_ffff, NO_ROUTE),
                of(0x0a00_0000, 0x0a7f_ffff, 1),
                of(0x0a80_0000, 0x0afe_ffff, 2),
                of(0x0aff_0000, 0x0aff_ffff, 3),
                of(0x0b00_0000, 0x0bff_ffff, 1),
                of(0x0c00_0000, u32::MAX - 1, NO_ROUTE),
                of(u32::MAX, u32::MAX, 9),
            ]
        );
        assert_eq!(oracle.lookup(0x0aff_1234), 3);
    }

    #[test]
    fn agrees_with_a_linear_search() {
        let mut routes = Vec::new();
        let mut seed = 1u32;
        for _ in 0..300 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            routes.push((p(seed & 0xf000_00ff, (seed >> 8) as u8 % 33), 1 + (seed >> 16) % 5));
        }
        let oracle = Oracle::new(routes.iter().copied());
        for range in oracle.ranges() {
            for addr in [range.first, range.last] {
                let best = routes.iter().filter(|(p, _)| p.contains(addr)).map(|(p, _)| p.len()).max();
                let nh = best
                    .and_then(|len| routes.iter().rfind(|(p, _)| p.contains(addr) && p.len() == len))
                    .map_or(NO_ROUTE, |&(_, nh)| nh);
                assert_eq!(oracle.lookup(addr), nh, "{addr:#x}");
            }
        }
    }
}

//! Longest-prefix match the slow and obvious way: what a router's answer is judged by.
//!
//! Shares no code and no idea with the FIBs under test: the sorted routes are swept once with a stack of the prefixes
//! that are open, which leaves disjoint ranges; a lookup is a binary search.

use linerate_tables::fib::{NO_ROUTE, NextHopId};
use linerate_tables::prefix::Prefix;

use crate::ip::Ip;
use crate::table::Routes;

/// A table flattened to disjoint ranges.
#[derive(Clone, Debug)]
pub struct Oracle<A> {
    /// First address of each range and its next hop; a range ends where the next one begins.
    starts: Vec<(A, NextHopId)>,
}

impl<A: Ip> Oracle<A> {
    /// Of routes sorted by address and length without duplicates, as [`Routes`] are.
    pub fn new(routes: &Routes<A>) -> Self {
        let mut oracle = Oracle { starts: Vec::with_capacity(routes.len() * 2) };
        let mut open: Vec<(Prefix<A>, NextHopId)> = Vec::new();
        for (p, next_hop) in routes {
            oracle.close(&mut open, |o| !o.contains(p.first()));
            oracle.begin(p.first(), *next_hop);
            open.push((*p, *next_hop));
        }
        oracle.close(&mut open, |_| true);
        oracle
    }

    /// The next hop of the longest prefix that covers `addr`; [`NO_ROUTE`] for none.
    pub fn lookup(&self, addr: A) -> NextHopId {
        match self.starts.partition_point(|(start, _)| *start <= addr) {
            0 => NO_ROUTE,
            n => self.starts[n - 1].1,
        }
    }

    /// Number of ranges with a route, neighbours with the same next hop merged.
    pub fn ranges(&self) -> usize {
        self.starts.iter().filter(|(_, nh)| *nh != NO_ROUTE).count()
    }

    /// Ends the innermost open prefixes that `ended` says lie wholly before what comes next.
    fn close(&mut self, open: &mut Vec<(Prefix<A>, NextHopId)>, ended: impl Fn(&Prefix<A>) -> bool) {
        while let Some((p, _)) = open.last().copied().filter(|(p, _)| ended(p)) {
            open.pop();
            if let Some(after) = p.last().step(A::BITS, 1) {
                self.begin(after, open.last().map_or(NO_ROUTE, |o| o.1));
            }
        }
    }

    fn begin(&mut self, at: A, next_hop: NextHopId) {
        while self.starts.last().is_some_and(|(start, _)| *start == at) {
            self.starts.pop();
        }
        if self.starts.last().map_or(NO_ROUTE, |s| s.1) != next_hop {
            self.starts.push((at, next_hop));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Small addresses so that every case of nesting and touching comes up; checked against a scan of all routes and
    /// against the `prefix-trie` crate.
    #[test]
    fn agrees_with_a_linear_scan_and_with_prefix_trie() {
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let mut routes: Routes<u32> = (0..rng.below(40))
                .map(|_| {
                    let len = rng.below(9) as u8 + 24 * u8::from(rng.chance(300));
                    let addr = (rng.next() as u32) & 0xff00_00ff;
                    (Prefix::new(addr, len.min(32)).unwrap(), 1 + rng.below(4) as u32)
                })
                .collect();
            routes.sort_by_key(|r| (r.0.first(), r.0.len()));
            routes.dedup_by_key(|r| r.0);
            let oracle = Oracle::new(&routes);
            let trie: prefix_trie::PrefixMap<ipnet::Ipv4Net, u32> = routes
                .iter()
                .map(|(p, nh)| (ipnet::Ipv4Net::new(p.first().into(), p.len()).unwrap(), *nh))
                .collect();
            let edges = routes.iter().flat_map(|(p, _)| {
                [p.first(), p.last(), p.first().wrapping_sub(1), p.last().wrapping_add(1)]
            });
            for addr in edges.chain([0, u32::MAX]) {
                let scan = routes.iter().filter(|r| r.0.contains(addr)).max_by_key(|r| r.0.len());
                let scan = scan.map_or(NO_ROUTE, |r| r.1);
                let host = ipnet::Ipv4Net::new(addr.into(), 32).unwrap();
                assert_eq!(oracle.lookup(addr), scan, "{addr:08x} in {routes:?}");
                assert_eq!(trie.get_lpm(&host).map_or(NO_ROUTE, |r| *r.1), scan);
            }
        }
    }

    #[test]
    fn the_ends_of_the_address_space_are_inside() {
        let all = vec![(Prefix::new(0u128, 0).unwrap(), 5), (Prefix::new(u128::MAX, 128).unwrap(), 6)];
        let oracle = Oracle::new(&all);
        assert_eq!((oracle.lookup(0), oracle.lookup(u128::MAX - 1), oracle.lookup(u128::MAX)), (5, 5, 6));
        assert_eq!(oracle.ranges(), 2);
        assert_eq!(Oracle::<u32>::new(&vec![]).lookup(1), NO_ROUTE);
    }
}

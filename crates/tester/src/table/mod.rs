//! Full routing tables made up from a seed: the same routes on every machine, shaped like the Internet's.
//!
//! Nothing real is shipped: a table is grown length by length so that the counts, the nesting, the runs of neighbouring
//! prefixes and the sharing of next hops come out as counted in a public table (`histogram.rs` tells which and how).

mod histogram;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use linerate_tables::fib::NextHopId;
use linerate_tables::prefix::Prefix;

use crate::ip::Ip;
use crate::rng::{Rng, mix};
use histogram::Length;

/// Routes of the generated IPv4 full table.
pub const IPV4_ROUTES: usize = 612_927;

/// Routes of the generated IPv6 full table.
pub const IPV6_ROUTES: usize = 160_147;

/// Distinct next hops of the generated tables.
pub const NEXT_HOPS: u32 = 64;

/// Origin networks that the routes belong to: as many as there are autonomous systems in the public table, rounded.
const ORIGINS: u64 = 75_000;

/// A routing table: prefixes without duplicates, sorted by address and length, with next hops from 1 on.
pub type Routes<A> = Vec<(Prefix<A>, NextHopId)>;

/// An IPv4 table of `routes` prefixes with next hops 1 to `next_hops`.
///
/// Lengths are distributed as in the public table up to its size; what is asked for beyond that are random /24 outside of
/// what is there, which is what a table rich in more-specifics looks like to a lookup structure. No route lies in 0/8,
/// 10/8, 127/8 or 224/3, and there is no default route. About 10 million routes can be made; more are cut off there.
pub fn ipv4(seed: u64, routes: usize, next_hops: u32) -> Routes<u32> {
    let mut rng = Rng::new(seed);
    let mut octets: Vec<u8> = (1..=223).filter(|o| *o != 10 && *o != 127).collect();
    rng.shuffle(&mut octets);
    octets.truncate(histogram::IPV4_OCTETS);
    let random = |rng: &mut Rng| {
        let busy = octets.len() - 1 - rng.below_skewed(octets.len() as u64) as usize;
        u32::from(octets[busy]) << 24 | (rng.next() as u32 >> 8)
    };
    let mut table = Growing::new(rng, histogram::IPV4_PARENTS, random);
    table.grow(&histogram::IPV4, routes);
    table.fill(24, routes, octets.len() << 15);
    table.finish(next_hops)
}

/// An IPv6 table of `routes` prefixes with next hops 1 to `next_hops`.
///
/// As [`ipv4`]; beyond the size of the public table it is filled up with random /48 in the blocks in use. All routes lie
/// in 2000::/3, none in 2001:db8::/32, and there is no default route.
pub fn ipv6(seed: u64, routes: usize, next_hops: u32) -> Routes<u128> {
    let blocks = histogram::IPV6_BLOCKS;
    let random = |rng: &mut Rng| {
        let block = blocks[rng.below_skewed(blocks.len() as u64) as usize];
        // The documentation prefix is the tester's own.
        let second = u128::from(rng.next() as u16);
        let second = if block == 0x2001 && second == 0xdb8 { 0xdb9 } else { second };
        u128::from(block) << 112 | second << 96 | u128::from(rng.next()) << 32
    };
    let mut table = Growing::new(Rng::new(seed), histogram::IPV6_PARENTS, random);
    table.grow(&histogram::IPV6, routes);
    table.fill(48, routes, 1 << 30);
    table.finish(next_hops)
}

/// A fingerprint of a table: equal on every machine for equal tables.
pub fn fingerprint<A: Ip>(routes: &Routes<A>) -> u64 {
    routes.iter().fold(0, |h, (p, nh)| {
        let addr = match p.first().to_ip() {
            std::net::IpAddr::V4(a) => u128::from(a.to_bits()),
            std::net::IpAddr::V6(a) => a.to_bits(),
        };
        mix(mix(h ^ addr as u64).wrapping_add((addr >> 64) as u64) ^ u64::from(*nh) << 8 ^ u64::from(p.len()))
    })
}

/// One placed prefix.
#[derive(Clone, Copy)]
struct Placed<A> {
    addr: A,
    origin: u32,
}

struct Growing<A, R> {
    rng: Rng,
    parents: histogram::Parents,
    random: R,
    /// By length: what has been placed, in the order of placing.
    placed: Vec<Vec<Placed<A>>>,
    /// By length: the same as a set.
    sets: Vec<HashSet<u64, Plain>>,
    /// Lengths in use so far.
    used: Vec<u8>,
    count: usize,
}

impl<A: Ip, R: Fn(&mut Rng) -> A> Growing<A, R> {
    fn new(rng: Rng, parents: histogram::Parents, random: R) -> Self {
        let lengths = usize::from(A::BITS) + 1;
        Growing {
            rng,
            parents,
            random,
            placed: (0..lengths).map(|_| Vec::new()).collect(),
            sets: (0..lengths).map(|_| HashSet::default()).collect(),
            used: Vec::new(),
            count: 0,
        }
    }

    /// Places prefixes length by length, shortest first: whatever lies around a prefix is then there before it.
    fn grow(&mut self, source: &[Length], routes: usize) {
        let total: usize = source.iter().map(|l| l.count as usize).sum();
        for (l, count) in source.iter().zip(scale(source, routes.min(total), total)) {
            let end = self.count + count;
            let mut failures = 0;
            while self.count < end && failures < 10_000 {
                let before = self.count;
                self.run(l, end);
                failures = if self.count == before { failures + 1 } else { 0 };
            }
            if count > 0 {
                self.used.push(l.len);
            }
        }
    }

    /// Adds random prefixes of one length outside of what is there, up to `routes` in all or `most` of that length.
    fn fill(&mut self, len: u8, routes: usize, most: usize) {
        if self.count >= routes {
            return;
        }
        let most = most.saturating_sub(self.placed[usize::from(len)].len());
        let end = routes.min(self.count + most);
        self.sets[usize::from(len)].reserve(end - self.count);
        while self.count < end {
            let addr = (self.random)(&mut self.rng).and(A::mask(len));
            let origin = self.new_origin();
            self.place(addr, len, origin);
        }
    }

    /// Places one prefix and, while the dice say so, its right-hand neighbours.
    fn run(&mut self, l: &Length, end: usize) {
        let parent = if self.rng.chance(l.nested) { self.parent(l.len) } else { None };
        let Some(start) = self.start(l.len, parent) else { return };
        let mut origin = match parent {
            Some((p, _)) if self.rng.chance(l.nested_same) => p.origin,
            _ => self.new_origin(),
        };
        let mut addr = start;
        loop {
            if !self.place(addr, l.len, origin) || self.count >= end || !self.rng.chance(l.adjacent) {
                return;
            }
            let Some(next) = addr.step(l.len, 1) else { return };
            let inside = match parent {
                Some((p, len)) => next.and(A::mask(len)) == p.addr,
                None => next.and(A::mask(8)) == start.and(A::mask(8)) && !self.covered(next, l.len),
            };
            if !inside {
                return;
            }
            addr = next;
            if !self.rng.chance(l.adjacent_same) {
                // A change is a change: back to the parent's origin only from another one.
                origin = match parent {
                    Some((p, _)) if p.origin != origin && self.rng.chance(l.nested_same) => p.origin,
                    _ => self.new_origin(),
                };
            }
        }
    }

    /// Where a run begins: in a parent, preferring its low addresses as allocations do, or in space nobody covers.
    fn start(&mut self, len: u8, parent: Option<(Placed<A>, u8)>) -> Option<A> {
        match parent {
            Some((p, plen)) => {
                let slots = 1u64 << (len - plen).min(40);
                let slot = self.rng.below_skewed(slots);
                p.addr.step(len, slot)
            }
            // Tried until it fits: giving up early would leave too many nested ones.
            None => (0..200).find_map(|_| {
                let addr = (self.random)(&mut self.rng).and(A::mask(len));
                (!self.covered(addr, len)).then_some(addr)
            }),
        }
    }

    /// A prefix to nest one of length `len` in. Some prefixes are split up far more than others, as in reality.
    fn parent(&mut self, len: u8) -> Option<(Placed<A>, u8)> {
        let (_, weights) = self.parents.iter().find(|(longest, _)| len <= *longest)?;
        let mut dice = self.rng.below(1000) as u16;
        let picked = weights.iter().find(|(_, w)| {
            let hit = dice < *w;
            dice = dice.saturating_sub(*w);
            hit
        });
        let plen = match picked {
            Some((l, _)) if *l < len => *l,
            _ => {
                let shorter = self.used.iter().filter(|l| **l < len).count();
                *self.used.get(self.rng.below(shorter as u64) as usize).filter(|l| **l < len)?
            }
        };
        let of = &self.placed[usize::from(plen)];
        let at = self.rng.below_skewed(of.len() as u64) as usize;
        of.get(at).map(|p| (*p, plen))
    }

    fn covered(&self, addr: A, len: u8) -> bool {
        self.used
            .iter()
            .filter(|l| **l < len)
            .any(|l| self.sets[usize::from(*l)].contains(&addr.and(A::mask(*l)).word()))
    }

    fn place(&mut self, addr: A, len: u8, origin: u32) -> bool {
        let fresh = self.sets[usize::from(len)].insert(addr.word());
        if fresh {
            self.placed[usize::from(len)].push(Placed { addr, origin });
            self.count += 1;
        }
        fresh
    }

    fn new_origin(&mut self) -> u32 {
        self.rng.below(ORIGINS) as u32
    }

    fn finish(self, next_hops: u32) -> Routes<A> {
        let mut routes: Routes<A> = Vec::with_capacity(self.count);
        for (len, placed) in self.placed.into_iter().enumerate() {
            for p in placed {
                let next_hop = 1 + (mix(u64::from(p.origin)) % u64::from(next_hops.max(1))) as NextHopId;
                routes.extend(Prefix::new(p.addr, len as u8).map(|prefix| (prefix, next_hop)));
            }
        }
        routes.sort_unstable_by_key(|(p, _)| (p.first(), p.len()));
        routes
    }
}

/// Scales counts to a total, the largest remainders rounded up, so that they add up exactly.
fn scale(source: &[Length], routes: usize, total: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = source.iter().map(|l| l.count as usize * routes / total).collect();
    let missing = routes - counts.iter().sum::<usize>();
    let mut order: Vec<usize> = (0..source.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(source[*i].count as usize * routes % total), *i));
    order.iter().take(missing).for_each(|i| counts[*i] += 1);
    counts
}

/// Hashes single words by mixing them: the sets hold addresses made here, not input from outside.
#[derive(Default)]
struct WordHasher(u64);

type Plain = BuildHasherDefault<WordHasher>;

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = mix(self.0 ^ u64::from(*b));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(word);
    }
}

/// What a table looks like, for people and for tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Routes by prefix length.
    pub lengths: HashMap<u8, usize>,
    /// Share of routes inside a shorter one.
    pub nested: f64,
    /// Stretches of addresses with one next hop, per route: what a compressing structure is left with.
    pub ranges_per_route: f64,
    /// Distinct next hops.
    pub next_hops: usize,
}

/// Measures a table.
pub fn shape<A: Ip>(routes: &Routes<A>) -> Shape {
    let mut shape = Shape::default();
    let mut around: Vec<Prefix<A>> = Vec::new();
    let mut nested = 0usize;
    for (p, _) in routes {
        *shape.lengths.entry(p.len()).or_default() += 1;
        while around.last().is_some_and(|a| !a.contains(p.first())) {
            around.pop();
        }
        nested += usize::from(!around.is_empty());
        around.push(*p);
    }
    let n = routes.len().max(1) as f64;
    shape.nested = nested as f64 / n;
    shape.ranges_per_route = crate::oracle::Oracle::new(routes).ranges() as f64 / n;
    shape.next_hops = routes.iter().map(|r| r.1).collect::<HashSet<_>>().len();
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique_and_sorted<A: Ip>(routes: &Routes<A>) -> bool {
        routes.windows(2).all(|w| (w[0].0.first(), w[0].0.len()) < (w[1].0.first(), w[1].0.len()))
    }

    #[test]
    fn the_ipv4_full_table_is_shaped_like_the_internets() {
        let t = ipv4(1, IPV4_ROUTES, NEXT_HOPS);
        assert_eq!(t.len(), IPV4_ROUTES);
        assert!(unique_and_sorted(&t));
        let s = shape(&t);
        for l in histogram::IPV4 {
            let share = f64::from(l.count) / 901_899.0 * IPV4_ROUTES as f64;
            let have = s.lengths.get(&l.len).copied().unwrap_or(0) as f64;
            assert!((have - share).abs() <= 1.0, "/{}: {have} for {share}", l.len);
        }
        // Source: 0.507 nested, 391,444 ranges for 901,899 routes.
        assert!((0.45..0.56).contains(&s.nested), "{s:?}");
        assert!((0.38..0.48).contains(&s.ranges_per_route), "{s:?}");
        assert_eq!(s.next_hops, NEXT_HOPS as usize);
        for (p, _) in &t {
            let octet = p.first() >> 24;
            assert!((1..224).contains(&octet) && octet != 10 && octet != 127 && p.len() >= 8, "{p}");
        }
    }

    #[test]
    fn the_ipv6_full_table_is_shaped_like_the_internets() {
        let t = ipv6(1, IPV6_ROUTES, NEXT_HOPS);
        assert_eq!(t.len(), IPV6_ROUTES);
        assert!(unique_and_sorted(&t));
        let s = shape(&t);
        for l in histogram::IPV6 {
            assert_eq!(s.lengths.get(&l.len).copied().unwrap_or(0), l.count as usize, "/{}", l.len);
        }
        assert!((0.45..0.70).contains(&s.nested), "{s:?}");
        let documentation = Prefix::new(0x2001_0db8u128 << 96, 32).unwrap();
        for (p, _) in &t {
            assert_eq!(p.first() >> 125, 1, "{p}");
            assert!(!documentation.contains(p.first()), "{p}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_table_on_every_machine() {
        let (a, b) = (ipv4(7, 50_000, 64), ipv6(7, 20_000, 64));
        assert_eq!(
            (fingerprint(&a), fingerprint(&b)),
            (16_770_505_942_102_502_329, 11_415_044_707_095_954_027)
        );
        assert_ne!(fingerprint(&a), fingerprint(&ipv4(8, 50_000, 64)));
    }

    #[test]
    fn beyond_the_public_table_it_is_filled_with_fresh_prefixes() {
        let t = ipv4(1, 1_000_000, 64);
        assert_eq!(t.len(), 1_000_000);
        assert!(unique_and_sorted(&t));
        assert_eq!(ipv6(1, 200_000, 64).len(), 200_000);
        assert_eq!(ipv4(1, 0, 64).len(), 0);
        assert_eq!(ipv4(1, 16, 64).len(), 16);
    }
}

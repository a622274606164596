//! What the tests of every FIB share: models, adversarial route sets, the real tables.

use super::{Fib, FibError, Lookup, NO_ROUTE, NextHopId, oracle::Oracle};
use crate::{
    prefix::{Address, Prefix},
    qsbr::Domain,
};
use std::{collections::BTreeMap, io::Read, path::PathBuf};

pub(crate) type Routes<A> = Vec<(Prefix<A>, NextHopId)>;

/// A small, fast generator (SplitMix64): tests are the same on every run.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        (1..list.len()).rev().for_each(|i| list.swap(i, self.below(i + 1)));
    }

    pub(crate) fn addr<A: TestAddress>(&mut self) -> A {
        A::from_bits(u128::from(self.next()) << 64 | u128::from(self.next()))
    }
}

/// Addresses from and to left-aligned bits.
pub(crate) trait TestAddress: Address {
    fn from_bits(bits: u128) -> Self;
    fn parse(text: &str) -> Option<Prefix<Self>>;
}

impl TestAddress for u32 {
    fn from_bits(bits: u128) -> Self {
        (bits >> 96) as u32
    }
    fn parse(text: &str) -> Option<Prefix<Self>> {
        Some(text.parse::<ipnet::Ipv4Net>().ok()?.into())
    }
}

impl TestAddress for u128 {
    fn from_bits(bits: u128) -> Self {
        bits
    }
    fn parse(text: &str) -> Option<Prefix<Self>> {
        Some(text.parse::<ipnet::Ipv6Net>().ok()?.into())
    }
}

/// Checks every range's first and last address, the single lookup on a sample, and `len`.
pub(crate) fn check<A: Address, F: Fib<A>>(
    fib: &F,
    reader: &F::Reader,
    model: &BTreeMap<Prefix<A>, NextHopId>,
) {
    let oracle = Oracle::new(model.iter().map(|(&p, &nh)| (p, nh)));
    let (addrs, expected): (Vec<A>, Vec<NextHopId>) =
        oracle.ranges().iter().flat_map(|r| [(r.first, r.nh), (r.last, r.nh)]).unzip();
    check_answers(reader, &addrs, &expected);
    for (&addr, &nh) in addrs.iter().zip(&expected).step_by(addrs.len() / 50 + 1) {
        assert_eq!(reader.lookup(addr), nh, "{}", addr.to_ip());
    }
    assert_eq!(fib.len(), model.len());
}

pub(crate) fn check_answers<A: Address>(reader: &impl Lookup<A>, addrs: &[A], expected: &[NextHopId]) {
    let mut out = vec![NO_ROUTE; addrs.len()];
    // An odd batch length exercises the ends of every kernel.
    for (addrs, out) in addrs.chunks(1_003).zip(out.chunks_mut(1_003)) {
        reader.lookup_batch(addrs, out);
    }
    for ((addr, got), want) in addrs.iter().zip(out).zip(expected) {
        assert_eq!(got, *want, "at {}", addr.to_ip());
    }
}

/// Random inserts, replacements and withdrawals of `pool`, against the model and the oracle.
pub(crate) fn churn<A: Address, F: Fib<A>>(
    fib: &mut F,
    model: &mut BTreeMap<Prefix<A>, NextHopId>,
    pool: &[Prefix<A>],
    rng: &mut Rng,
    ops: usize,
    ids: u64,
) {
    for _ in 0..ops {
        let prefix = pool[rng.below(pool.len())];
        assert_eq!(fib.get(prefix), model.get(&prefix).copied());
        if rng.below(3) == 0 {
            assert_eq!(fib.withdraw(prefix), model.remove(&prefix), "{prefix}");
        } else {
            let nh = (rng.next() % ids) as u32 + 1;
            assert_eq!(fib.insert(prefix, nh), Ok(model.insert(prefix, nh)), "{prefix}");
        }
    }
}

/// A next hop of no route that stays.
const TRANSIENT: NextHopId = 4_000_000;

/// Fills a table of little memory whose reader never moves on, so that nothing it replaces comes back, then withdraws all: each
/// withdrawal works, the last ones by what is set apart for them or by being published when the reader has moved on.
pub(crate) fn withdrawals_work_in_a_full_table<A: TestAddress, F: Fib<A>>(
    new: impl Fn(&Domain) -> F,
    limit: impl Fn(&mut F, usize),
    bytes: impl Fn(&F) -> usize,
) {
    let mut full = 0;
    // Withdrawn with what is set apart for it, or with no memory at all.
    let all =
        [1 << 13, 0].into_iter().flat_map(|left| adversarial::<A>().into_iter().map(move |s| (left, s)));
    for (left, (name, routes)) in all {
        let domain = Domain::new();
        let mut stuck = domain.register();
        let (mut fib, mut model) = (new(&domain), BTreeMap::new());
        limit(&mut fib, 1 << 13);
        let mut refused = 0;
        // Each route has a next hop of its own, so that an answer says whose it is.
        let mut routes: Vec<Prefix<A>> = routes.into_iter().map(|(p, _)| p).filter(|p| p.len() > 0).collect();
        routes.sort_unstable();
        routes.dedup();
        Rng(9).shuffle(&mut routes);
        let of = |nh: NextHopId| routes.get(nh as usize - 1).copied();
        for (&p, nh) in routes.iter().zip(1..) {
            match fib.insert(p, nh) {
                Ok(old) => assert_eq!(old, model.insert(p, nh), "{name}"),
                Err(FibError::Full(_)) => refused += 1,
                Err(e) => panic!("{name}: {e}"),
            }
        }
        full += usize::from(refused > 0);
        check(&fib, &fib.reader(), &model);
        limit(&mut fib, left);
        let mut rng = Rng(5);
        let mut all: Vec<_> = model.keys().copied().collect();
        let mut transient: Vec<Prefix<A>> = Vec::new();
        while !all.is_empty() {
            let p = all.swap_remove(rng.below(all.len()));
            assert_eq!(fib.withdraw(p), model.remove(&p), "{name}: {p}");
            assert_eq!((fib.len(), fib.get(p)), (model.len(), None), "{name}");
            // Readers see what is there, or what was: nothing that never was.
            let near = all.last().copied().unwrap_or(p);
            for addr in [p.first(), p.last(), near.first()] {
                let nh = fib.reader().lookup(addr);
                let covers = match nh {
                    NO_ROUTE => true,
                    TRANSIENT => transient.iter().any(|p| p.contains(addr)),
                    nh => of(nh).is_some_and(|p| p.contains(addr)),
                };
                assert!(covers, "{name}: {nh} at {}", addr.to_ip());
            }
            if all.len() % 256 == 1 {
                // One that is refused or goes in leaves the others as they are, also where they are not published yet.
                if fib.insert(p, TRANSIENT).is_ok() {
                    transient.push(p);
                    assert_eq!(fib.withdraw(p), Some(TRANSIENT), "{name}");
                }
            }
            // Now and then a little memory comes back.
            if all.len() % 7 == 0 && left == 0 {
                stuck.quiescent();
            }
            if all.len() % 1_024 == 0 {
                stuck.quiescent();
                let other = Prefix::new(A::mask(0).not(), A::BITS).unwrap();
                let had = model.contains_key(&other);
                if !had && fib.insert(other, TRANSIENT).is_ok() {
                    transient.push(other);
                    fib.withdraw(other);
                }
            }
        }
        limit(&mut fib, usize::MAX);
        for _ in 0..3 {
            stuck.quiescent();
            assert_eq!(fib.load([]), Ok(()));
        }
        check(&fib, &fib.reader(), &model);
        assert_eq!(bytes(&fib), 0, "{name}: all blocks are back");
    }
    assert!(full >= 6, "{full} sets are too large for this table");
}

/// Route sets that hurt multibit tries.
pub(crate) fn adversarial<A: TestAddress>() -> Vec<(&'static str, Routes<A>)> {
    let bits = A::BITS;
    let mut rng = Rng(7);
    let base: A = A::from_bits(0x2001_0db8 << 96);
    let prefix = |addr: A, len: u8| Prefix::new(addr, len).unwrap();
    let nested = (0..=bits).map(|l| (prefix(base, l), u32::from(l) + 1)).collect();
    let ones = (0..=bits).map(|l| (prefix(A::mask(0).not(), l), u32::from(l) + 1)).collect();
    let last_of_each = (1..=bits).map(|l| (prefix(base.or(A::mask(l).not()), bits), u32::from(l))).collect();
    let long_under_short = (0..20_000)
        .map(|i| {
            let addr = rng.addr::<A>().and(A::mask(8).not()).or(base.and(A::mask(8)));
            (prefix(addr, bits - (i % 8) as u8), 1 + i % 300)
        })
        .collect();
    let all_lengths =
        (0..20_000).map(|i| (prefix(rng.addr(), (i % (u32::from(bits) + 1)) as u8), 1 + i)).collect();
    let dense = (0..4_096u128)
        .map(|i| (prefix(base.or(A::from_bits(i << (128 - bits))), bits), 1 + (i as u32 * 7) % 60_000))
        .collect();
    let many_ids = (0..60_000u32)
        .map(|i| {
            (prefix(A::from_bits(u128::from(i) << 108 | 1 << 125), 20), 0x8000_0000 | i.wrapping_mul(65_537))
        })
        .collect();
    vec![
        ("nested chain", nested),
        ("chain at the end of the space", ones),
        ("one host per length", last_of_each),
        ("host routes under a /8", long_under_short),
        ("all lengths, random", all_lengths),
        ("dense hosts", dense),
        ("60,000 next hops with the top bit set", many_ids),
    ]
}

/// A real table, or `None` (said aloud) where there is none.
pub(crate) fn real_table<A: TestAddress>(file: &str) -> Option<Routes<A>> {
    let dir = std::env::var_os("LINERATE_ROUTES").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = dir.join(file);
    let Ok(packed) = std::fs::File::open(&path) else {
        eprintln!(
            "SKIPPED: {} is not there; set LINERATE_ROUTES to the directory with {file}",
            path.display()
        );
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    Some(
        text.lines()
            .map(|line| {
                let (prefix, nh) = line.split_once(' ').unwrap();
                (A::parse(prefix).unwrap(), nh.parse().unwrap())
            })
            .collect(),
    )
}

//! A table that once had many more routes gives their memory back, and is the same table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::fib::oracle::Oracle;
use linerate_tables::fib::{Fib, Lookup, NextHopId};
use linerate_tables::prefix::{Address, Prefix};
use linerate_tables::qsbr::Domain;

/// Words given back.
static DISCARDED: AtomicUsize = AtomicUsize::new(0);

fn discard(words: &[AtomicU64]) {
    words.iter().for_each(|w| w.store(0, Relaxed));
    DISCARDED.fetch_add(words.len(), Relaxed);
}

fn mixed(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ z >> 27
}

fn check<A: Address, F: Fib<A>>(fib: &F, model: &BTreeMap<Prefix<A>, NextHopId>) {
    let reader = fib.reader();
    for range in Oracle::new(model.iter().map(|(p, nh)| (*p, *nh))).ranges() {
        for addr in [range.first, range.last] {
            assert_eq!(reader.lookup(addr), range.nh, "{}", addr.to_ip());
        }
    }
    assert_eq!(fib.len(), model.len());
}

fn comes_and_goes<A: Address, F: Fib<A>>(domain: &Domain, mut fib: F, prefix: impl Fn(u64) -> Prefix<A>) {
    let mut worker = domain.register();
    let mut model = BTreeMap::new();
    let mut most = 0;
    for round in 0..3u64 {
        let all: Vec<Prefix<A>> = (0..60_000).map(|n| prefix(mixed(round << 32 | n))).collect();
        for (n, p) in all.iter().enumerate() {
            let nh = 1 + n as u32 % 90;
            assert_eq!(fib.insert(*p, nh), Ok(model.insert(*p, nh)));
        }
        check(&fib, &model);
        let full = fib.memory();
        if round == 0 {
            most = full.control;
        }
        assert!(full.control <= most + most / 8, "round {round}: {} of {most}", full.control);
        for p in all.iter().skip(40 * round as usize) {
            assert_eq!(fib.withdraw(*p), model.remove(p));
        }
        worker.quiescent();
        let before = DISCARDED.load(Relaxed);
        fib.compact(discard);
        assert!(DISCARDED.load(Relaxed) > before, "nothing was given back");
        check(&fib, &model);
        assert!(fib.memory().control < full.control * 3 / 4, "{:?} of {full:?}", fib.memory());
        worker.quiescent();
        fib.compact(discard);
        check(&fib, &model);
    }
    assert!(!model.is_empty());
}

#[test]
fn ip4() {
    let domain = Domain::new();
    let fib = Ip4Fib::new(&domain).unwrap();
    comes_and_goes(&domain, fib, |n| {
        let len = [8, 14, 17, 20, 22, 24, 24, 24, 24, 26, 28, 32][(n % 12) as usize];
        Prefix::new((n >> 32) as u32 & 0x3fff_ffff, len).unwrap()
    });
}

#[test]
fn ip6() {
    let domain = Domain::new();
    let fib = Ip6Fib::new(&domain).unwrap();
    comes_and_goes(&domain, fib, |n| {
        let len = [19, 20, 29, 32, 36, 44, 48, 48, 48, 48, 64, 128][(n % 12) as usize];
        let bits = 0x2001_u128 << 112 | u128::from(n >> 8 & 0x3ff) << 92 | u128::from(n) << 28;
        Prefix::new(bits, len).unwrap()
    });
}

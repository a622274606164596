//! What the FIB tests share: a small generator, the real tables, the full check.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "a test panics, and says that it was skipped")]

use linerate_tables::{
    fib::{Fib, Lookup, NextHopId, oracle::Oracle},
    prefix::{Address, Prefix},
};
use std::{collections::BTreeMap, io::Read, path::PathBuf};

pub(crate) type Routes<A> = BTreeMap<Prefix<A>, NextHopId>;

/// xorshift64*: repeatable, good enough to draw routes with.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// The file of a real table, `None` (said loudly) where it is not there.
pub(crate) fn real_table(name: &str) -> Option<Vec<(String, NextHopId)>> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir =
        std::env::var_os("LINERATE_ROUTES").map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let path = dir.join(name);
    let Ok(file) = std::fs::File::open(&path) else {
        eprintln!("SKIPPED: no routing table at {}; set LINERATE_ROUTES to its directory", path.display());
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let route = |line: &str| {
        let (prefix, nh) = line.split_once(' ').unwrap();
        (prefix.to_owned(), nh.parse().unwrap())
    };
    Some(text.lines().map(route).collect())
}

/// Compares every range start and end of the flattened routes, and every route itself.
pub(crate) fn check_all<A: Address, F: Fib<A>>(fib: &F, readers: &[&dyn Lookup<A>], routes: &Routes<A>) {
    assert_eq!(fib.len(), routes.len());
    for (&prefix, &nh) in routes {
        assert_eq!(fib.get(prefix), Some(nh), "{prefix}");
    }
    let oracle = Oracle::new(routes.iter().map(|(&p, &nh)| (p, nh)));
    let (mut addrs, mut expected) = (Vec::new(), Vec::new());
    for range in oracle.ranges() {
        addrs.extend([range.first, range.last]);
        expected.extend([range.nh, range.nh]);
    }
    let mut out = vec![0; addrs.len()];
    for reader in readers {
        out.fill(NextHopId::MAX);
        reader.lookup_batch(&addrs, &mut out);
        for ((&addr, &got), &expected) in addrs.iter().zip(&out).zip(&expected) {
            assert_eq!(got, expected, "{}", addr.to_ip());
        }
    }
}

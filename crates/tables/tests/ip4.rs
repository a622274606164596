//! The IPv4 FIB against `prefix-trie` and against the flattened-range oracle, through every kernel of this CPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Rng, Routes, check_all, real_table};
use ipnet::Ipv4Net;
use linerate_tables::{
    fib::{
        Fib, FibError, Lookup, MAX_NEXT_HOPS, NO_ROUTE, NextHopId,
        ip4::{Ip4Fib, Ip4Reader, Kernel},
    },
    prefix::Prefix,
    qsbr::Domain,
};
use prefix_trie::PrefixMap;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn p(addr: u32, len: u8) -> Prefix<u32> {
    Prefix::new(addr, len).unwrap()
}

fn net(prefix: Prefix<u32>) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::from_bits(prefix.first()), prefix.len()).unwrap()
}

fn new() -> Ip4Fib {
    Ip4Fib::new(&Domain::new()).unwrap()
}

fn every_kernel(fib: &Ip4Fib) -> Vec<Ip4Reader> {
    Kernel::available().into_iter().map(|kernel| fib.reader().with_kernel(kernel)).collect()
}

fn check(fib: &Ip4Fib, routes: &Routes<u32>) {
    let readers = every_kernel(fib);
    let readers: Vec<&dyn Lookup<u32>> = readers.iter().map(|r| r as _).collect();
    check_all(fib, &readers, routes);
}

fn built(routes: &Routes<u32>) -> Ip4Fib {
    let mut fib = new();
    fib.load(routes.iter().map(|(&p, &nh)| (p, nh))).unwrap();
    fib
}

fn real() -> Option<Routes<u32>> {
    let table = real_table("bgp-ipv4.txt.gz")?;
    Some(table.into_iter().map(|(prefix, nh)| (prefix.parse::<Ipv4Net>().unwrap().into(), nh)).collect())
}

/// The FIB and the two models, changed together.
struct Trio {
    fib: Ip4Fib,
    routes: Routes<u32>,
    trie: PrefixMap<Ipv4Net, NextHopId>,
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Prefix<u32>, NextHopId),
    Withdraw(Prefix<u32>),
    Load(Vec<(Prefix<u32>, NextHopId)>),
}

impl Trio {
    fn new() -> Self {
        Trio { fib: new(), routes: Routes::new(), trie: PrefixMap::new() }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(prefix, nh) => {
                let old = self.routes.insert(prefix, nh);
                self.trie.insert(net(prefix), nh);
                assert_eq!(self.fib.insert(prefix, nh), Ok(old));
            }
            Op::Withdraw(prefix) => {
                let old = self.routes.remove(&prefix);
                self.trie.remove(&net(prefix));
                assert_eq!(self.fib.withdraw(prefix), old);
            }
            Op::Load(load) => {
                self.routes.extend(load.iter().copied());
                load.iter().for_each(|&(prefix, nh)| _ = self.trie.insert(net(prefix), nh));
                self.fib.load(load).unwrap();
            }
        }
    }

    fn check(&self, addrs: &[u32]) {
        check(&self.fib, &self.routes);
        let reader = self.fib.reader();
        for &addr in addrs {
            let host = Ipv4Net::new(Ipv4Addr::from_bits(addr), 32).unwrap();
            let expected = self.trie.get_lpm(&host).map_or(NO_ROUTE, |(_, &nh)| nh);
            assert_eq!(reader.lookup(addr), expected, "{}", Ipv4Addr::from_bits(addr));
        }
    }
}

/// Addresses that meet each other: few values in every byte.
fn addr() -> impl Strategy<Value = u32> {
    let byte = || prop_oneof![Just(0u8), Just(255), Just(128), Just(64), any::<u8>()];
    (prop_oneof![Just(10u8), Just(11), any::<u8>()], byte(), prop_oneof![0u8..2, any::<u8>()], byte())
        .prop_map(|(a, b, c, d)| u32::from_be_bytes([a, b, c, d]))
}

fn prefix() -> impl Strategy<Value = Prefix<u32>> {
    (addr(), 0u8..=32).prop_map(|(addr, len)| p(addr, len))
}

fn next_hop() -> impl Strategy<Value = NextHopId> {
    prop_oneof![4 => 1u32..6, 2 => 250u32..260, 1 => 65_530u32..65_540, 1 => 131_060u32..131_080]
}

fn any_next_hop() -> impl Strategy<Value = NextHopId> {
    prop_oneof![3 => next_hop(), 1 => 1..=u32::MAX]
}

fn ops(nh: impl Strategy<Value = NextHopId> + Clone) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (prefix(), nh.clone()).prop_map(|(prefix, nh)| Op::Insert(prefix, nh)),
        4 => prefix().prop_map(Op::Withdraw),
        1 => prop::collection::vec((prefix(), nh), 0..200).prop_map(Op::Load),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_small_ids(ops in ops(1u32..131_072), addrs in prop::collection::vec(addr(), 64)) {
        let mut trio = Trio::new();
        ops.into_iter().for_each(|op| trio.apply(op));
        trio.check(&addrs);
    }

    #[test]
    fn any_sequence_of_changes_any_ids(ops in ops(any_next_hop().boxed()), addrs in prop::collection::vec(addr(), 64)) {
        let mut trio = Trio::new();
        for (i, op) in ops.into_iter().enumerate() {
            trio.apply(op);
            if i % 16 == 0 {
                trio.check(&[]);
            }
        }
        trio.check(&addrs);
        // Withdrawing everything leaves nothing.
        let all: Vec<_> = trio.routes.keys().copied().collect();
        all.into_iter().for_each(|prefix| trio.apply(Op::Withdraw(prefix)));
        trio.check(&addrs);
        trio.fib.reclaim();
        let memory = trio.fib.memory();
        prop_assert!(memory.retired == 0 && memory.lookup <= 4 * 131_072, "{memory:?}");
    }

    #[test]
    fn dense_slots(cells in prop::collection::vec((0u32..64, 19u8..=32, 0u32..16_384, next_hop()), 1..400)) {
        let mut trio = Trio::new();
        for (cell, len, host, nh) in cells {
            trio.apply(Op::Insert(p(0x0a00_0000 | cell << 8 | host & if len > 24 { 0x3fff } else { 0 }, len), nh));
        }
        trio.check(&[]);
    }

    #[test]
    fn batches_of_any_length(n in 0usize..200, seed in 1u64..) {
        let mut fib = new();
        let mut rng = Rng(seed);
        for _ in 0..50 {
            fib.insert(p(rng.next() as u32 & 0x0fff_ffff, 8 + rng.below(25) as u8), 1 + rng.below(400) as u32).unwrap();
        }
        let addrs: Vec<u32> = (0..n).map(|_| rng.next() as u32 & 0x0fff_ffff).collect();
        let portable = fib.reader().with_kernel(Kernel::Portable);
        let expected: Vec<_> = addrs.iter().map(|&addr| portable.lookup(addr)).collect();
        for reader in every_kernel(&fib) {
            let mut out = vec![NextHopId::MAX; n + 3];
            reader.lookup_batch(&addrs, &mut out);
            prop_assert_eq!(&out[..n], &expected);
            prop_assert_eq!(&out[n..], &[NextHopId::MAX; 3], "written past the batch");
        }
    }
}

#[test]
fn reserved_next_hop_is_refused_and_nothing_changes() {
    let mut fib = new();
    assert_eq!(fib.insert(p(0, 0), NO_ROUTE), Err(FibError::ReservedNextHop));
    assert_eq!(fib.load([(p(1, 32), 5), (p(2, 32), NO_ROUTE)]), Err(FibError::ReservedNextHop));
    check(&fib, &Routes::new());
}

#[test]
fn all_lengths_under_one_slash_8() {
    let mut routes = Routes::new();
    let mut rng = Rng(5);
    for len in 25..=32 {
        for _ in 0..12_000 {
            routes.insert(p(0x0a00_0000 | rng.next() as u32 >> 8, len), 1 + rng.below(70_000) as u32);
        }
    }
    routes.insert(p(0x0a00_0000, 8), 3);
    check(&built(&routes), &routes);
}

#[test]
fn every_address_of_a_slash_18_is_a_route() {
    let mut routes: Routes<u32> = (0..16_384).map(|i| (p(0x0a40_0000 + i, 32), 1 + i % 999)).collect();
    let mut fib = built(&routes);
    check(&fib, &routes);
    for i in (0..16_384).step_by(3) {
        let prefix = p(0x0a40_0000 + i, 32);
        assert_eq!(fib.withdraw(prefix), routes.remove(&prefix));
    }
    check(&fib, &routes);
}

#[test]
fn nested_chains() {
    let mut trio = Trio::new();
    let at = [0x0a0b_0c0du32, 0x0a0b_0cff, u32::MAX, 0];
    for (i, addr) in at.into_iter().enumerate() {
        for len in 0..=32 {
            trio.apply(Op::Insert(p(addr, len), 1 + u32::from(len) + 40 * i as u32));
        }
    }
    trio.check(&at);
    for len in (0..=32).step_by(2).chain((1..=32).step_by(2)) {
        for addr in at {
            trio.apply(Op::Withdraw(p(addr, len)));
        }
        trio.check(&at);
    }
}

#[test]
fn default_route_flaps() {
    let mut trio = Trio::new();
    trio.apply(Op::Insert(p(0x0a00_0000, 8), 7));
    trio.apply(Op::Insert(p(0xac10_0001, 32), 9));
    for round in 0..50 {
        trio.apply(Op::Insert(p(0, 0), if round % 2 == 0 { 5 } else { 4_000_000_000 }));
        trio.check(&[0, 0x0a00_0000, u32::MAX]);
        trio.apply(Op::Withdraw(p(0, 0)));
        trio.check(&[0, 0x0a00_0000, u32::MAX]);
    }
}

#[test]
fn replacing_a_slash_8_above_300_k_more_specifics() {
    let mut routes = Routes::new();
    let mut rng = Rng(11);
    while routes.len() < 300_000 {
        let len = if rng.below(4) == 0 { 25 + rng.below(8) } else { 9 + rng.below(16) } as u8;
        routes.insert(p(0x0a00_0000 | rng.next() as u32 >> 8, len), 1 + rng.below(500) as u32);
    }
    routes.insert(p(0x0a00_0000, 8), 600);
    let mut fib = built(&routes);
    for nh in [601, 70_000, 5] {
        routes.insert(p(0x0a00_0000, 8), nh);
        fib.insert(p(0x0a00_0000, 8), nh).unwrap();
        check(&fib, &routes);
    }
    routes.remove(&p(0x0a00_0000, 8));
    fib.withdraw(p(0x0a00_0000, 8));
    check(&fib, &routes);
}

#[test]
fn dense_slash_24s() {
    let mut rng = Rng(3);
    for ids in [60, 40_000, 100_000] {
        let routes: Routes<u32> =
            (0..20_000).map(|i| (p(0x1000_0000 + (i << 8), 24), 1 + rng.below(ids) as u32)).collect();
        check(&built(&routes), &routes);
    }
}

#[test]
fn sixty_four_k_next_hops_and_not_one_more() {
    for first in [1u32, 900_000_000] {
        let mut routes: Routes<u32> =
            (0..MAX_NEXT_HOPS as u32).map(|i| (p(i << 12, 24 + (i % 9) as u8), first + i)).collect();
        let mut fib = built(&routes);
        check(&fib, &routes);
        let refused = FibError::TooManyNextHops(MAX_NEXT_HOPS);
        assert_eq!(fib.insert(p(77 << 8, 24), 17), if first == 1 { Ok(None) } else { Err(refused) });
        fib.withdraw(p(77 << 8, 24));
        let extra = first + MAX_NEXT_HOPS as u32;
        assert_eq!(fib.insert(p(77 << 8, 24), extra), Err(FibError::TooManyNextHops(MAX_NEXT_HOPS)));
        assert!(fib.load([(p(5, 32), first), (p(6, 32), extra)]).is_err());
        check(&fib, &routes);
        // One goes, another may come.
        let gone = p(0, 24);
        assert_eq!(fib.withdraw(gone), routes.remove(&gone));
        fib.insert(gone, extra).unwrap();
        routes.insert(gone, extra);
        check(&fib, &routes);
    }
}

#[test]
fn any_order_of_insertion_gives_the_same_table() {
    let mut rng = Rng(8);
    let mut list: Vec<_> = (0..30_000)
        .map(|_| (p(rng.next() as u32 & 0x03ff_ffff, 8 + rng.below(25) as u8), 1 + rng.below(300) as u32))
        .collect();
    let routes: Routes<u32> = list.iter().copied().collect();
    list = routes.iter().map(|(&p, &nh)| (p, nh)).collect();
    let loaded = built(&routes);
    let size = loaded.memory().lookup;
    for order in 0..4 {
        match order {
            0 => list.sort_by_key(|(p, _)| p.len()),
            1 => list.reverse(),
            _ => rng.shuffle(&mut list),
        }
        let mut fib = new();
        list.iter().for_each(|&(prefix, nh)| assert_eq!(fib.insert(prefix, nh), Ok(None)));
        check(&fib, &routes);
        fib.reclaim();
        assert_eq!((fib.memory().lookup, fib.memory().retired), (size, 0));
        let mut fib = new();
        fib.load(list.iter().copied()).unwrap();
        check(&fib, &routes);
        assert_eq!(fib.memory().lookup, size);
    }
}

#[test]
fn the_real_table_and_a_million_changes() {
    let Some(mut routes) = real() else { return };
    let mut fib = built(&routes);
    check(&fib, &routes);
    let before = fib.memory();
    assert!(before.lookup <= 2_400_000, "{before:?}");

    let list: Vec<_> = routes.iter().map(|(&p, &nh)| (p, nh)).collect();
    let mut rng = Rng(42);
    // Withdraw and announce, with another next hop half of the time.
    for _ in 0..500_000 {
        let (prefix, _) = list[rng.below(list.len())];
        let nh = 1 + rng.below(64) as u32;
        assert_eq!(fib.withdraw(prefix), routes.insert(prefix, nh));
        assert_eq!(fib.insert(prefix, nh), Ok(None));
    }
    check(&fib, &routes);
    for &(prefix, nh) in &list {
        fib.insert(prefix, nh).unwrap();
    }
    fib.reclaim();
    let after = fib.memory();
    assert_eq!((after.lookup, after.retired), (before.lookup, 0));
    check(&fib, &list.into_iter().collect());
}

/// Readers look up prefixes that nobody touches while a writer changes everything around them.
#[test]
fn readers_never_see_an_untouched_prefix_wrong_or_missing() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    const CHANGES: usize = 1_000_000;
    let domain = Domain::new();
    let mut fib = Ip4Fib::new(&domain).unwrap();
    let mut rng = Rng(99);
    // Below 10.0.0.0/12: odd /24s stay, as do host routes 1 and 2 of every fourth /24, whatever happens around them.
    let mut stays = Routes::new();
    for i in (1..4096u32).step_by(2) {
        stays.insert(p(0x0a00_0000 | i << 8, 24), 1 + i % 700);
        if i % 4 == 1 {
            stays.insert(p(0x0a00_0001 | i << 8, 32), 100_000 + i);
            stays.insert(p(0x0a00_0002 | i << 8, 32), 2 + i);
        }
    }
    fib.load(stays.iter().map(|(&p, &nh)| (p, nh))).unwrap();
    let (addrs, expected): (Vec<u32>, Vec<u32>) = stays.iter().map(|(p, &nh)| (p.first(), nh)).unzip();
    let (done, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for kernel in Kernel::available() {
            let (reader, mut qsbr) = (fib.reader().with_kernel(kernel), domain.register());
            let (addrs, expected, done, batches) = (&addrs, &expected, &done, &batches);
            scope.spawn(move || {
                let mut out = vec![0; 64];
                while !done.load(Relaxed) {
                    for (addrs, expected) in addrs.chunks(64).zip(expected.chunks(64)) {
                        reader.lookup_batch(addrs, &mut out);
                        assert_eq!(&out[..addrs.len()], expected);
                        qsbr.quiescent();
                    }
                    batches.fetch_add(1, Relaxed);
                }
            });
        }
        let finish = Finish(&done);
        for i in 0..CHANGES {
            let addr = 0x0a00_0000 | rng.next() as u32 & 0x000f_ffff;
            let prefix = match rng.below(400) {
                0 => p(addr, rng.below(18) as u8),
                1..100 => p(addr, 18 + rng.below(6) as u8),
                100..250 => p(addr & !0x100, 24),
                // Host 4 and up: never what stays.
                _ => p(addr | 4, 30 + rng.below(3) as u8),
            };
            if rng.below(3) == 0 {
                fib.withdraw(prefix);
            } else {
                // From half way on with large ids, so that readers see the switch to translation.
                let nh = 1 + rng.below(900) as u32 + if i > CHANGES / 2 { 1 << 20 } else { 0 };
                fib.insert(prefix, nh).unwrap();
            }
        }
        drop(finish);
    });
    assert!(batches.into_inner() > 0);
    for (&prefix, &nh) in &stays {
        assert_eq!(fib.get(prefix), Some(nh));
    }
}

/// Ends the readers even where the writer's assertion fails.
struct Finish<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

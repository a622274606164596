//! Batches of changes against the same changes one by one, against `prefix-trie` and the flattened-range oracle, in both
//! families and the yardstick.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Rng, Routes, check_all, real_table};
use ipnet::{Ipv4Net, Ipv6Net};
use linerate_tables::{
    fib::{Change, Fib, FibError, Lookup, NO_ROUTE, NextHopId, Refused, ip4, ip6},
    prefix::{Address, Prefix},
    qsbr::Domain,
};
use prefix_trie::PrefixMap;
use proptest::prelude::*;
use std::ops::ControlFlow;

/// What the tests need of a family: addresses from bits, networks of `prefix-trie`.
trait Family: Address {
    type Net: prefix_trie::Prefix + Copy;
    /// Addresses of few different values, so that prefixes meet; `bits` says which.
    fn pick(bits: u64) -> Self;
    fn net(prefix: Prefix<Self>) -> Self::Net;
    fn parse(text: &str) -> Prefix<Self>;
}

impl Family for u32 {
    type Net = Ipv4Net;
    fn pick(bits: u64) -> Self {
        let high =
            [0x0a00_0000, 0x0a00_4000, 0xc000_0000, bits as u32 & 0xff00_0000][bits as usize >> 40 & 3];
        high | bits as u32 & [0xff, 0xffff, 0x3fff, 0x00ff_ffff][bits as usize >> 50 & 3]
    }
    fn net(prefix: Prefix<u32>) -> Ipv4Net {
        Ipv4Net::new(prefix.first().into(), prefix.len()).unwrap()
    }
    fn parse(text: &str) -> Prefix<u32> {
        text.parse::<Ipv4Net>().unwrap().into()
    }
}

impl Family for u128 {
    type Net = Ipv6Net;
    fn pick(bits: u64) -> Self {
        let high = [0x2001_0db8u128, 0x2001_0db8, 0xfd00_0000, 0x2a00_0000][bits as usize >> 40 & 3] << 96;
        let shift = [0, 30, 60, 80][bits as usize >> 50 & 3];
        high | u128::from(bits & 0xffff) << shift
    }
    fn net(prefix: Prefix<u128>) -> Ipv6Net {
        Ipv6Net::new(prefix.first().into(), prefix.len()).unwrap()
    }
    fn parse(text: &str) -> Prefix<u128> {
        text.parse::<Ipv6Net>().unwrap().into()
    }
}

/// A change as drawn: bits of the address, length, next hop (0: withdrawn).
type Drawn = (u64, u8, NextHopId);

fn change<A: Family>((bits, len, nh): Drawn) -> Change<A> {
    let prefix = Prefix::new(A::pick(bits), len % (A::BITS + 1)).unwrap();
    // One in some hundred is one that no table takes.
    let next_hop = match nh {
        0 => None,
        1 if bits % 97 == 0 => Some(NO_ROUTE),
        nh => Some(nh),
    };
    Change { prefix, next_hop }
}

fn batches() -> impl Strategy<Value = Vec<Vec<Drawn>>> {
    let next_hop = prop_oneof![4 => 0u32..8, 1 => 65_000u32..66_000, 1 => any::<u32>()];
    let change = (any::<u64>(), prop_oneof![any::<u8>(), 16u8..=64], next_hop);
    prop::collection::vec(prop::collection::vec(change, 0..150), 1..6)
}

/// The same calls one by one, up to the first that is refused.
fn singly<A: Family>(fib: &mut impl Fib<A>, changes: &[Change<A>]) -> Result<(), Refused> {
    let made = changes.iter().enumerate().try_for_each(|(at, change)| match change.next_hop {
        Some(nh) => match fib.insert(change.prefix, nh) {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Refused { at, error }),
        },
        None => {
            fib.withdraw(change.prefix);
            ControlFlow::Continue(())
        }
    });
    match made {
        ControlFlow::Break(refused) => Err(refused),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn agrees<A: Family, F: Fib<A>>(batches: Vec<Vec<Drawn>>, make: impl Fn() -> F) {
    let (mut fib, mut other) = (make(), make());
    let mut routes = Routes::new();
    let mut trie = PrefixMap::<A::Net, NextHopId>::new();
    for batch in batches {
        let batch: Vec<Change<A>> = batch.into_iter().map(change).collect();
        let result = fib.apply(&batch);
        assert_eq!(result, singly(&mut other, &batch));
        let made = result.map_or_else(|refused| refused.at, |()| batch.len());
        for change in &batch[..made] {
            match change.next_hop {
                Some(nh) => {
                    routes.insert(change.prefix, nh);
                    trie.insert(A::net(change.prefix), nh);
                }
                None => {
                    routes.remove(&change.prefix);
                    trie.remove(&A::net(change.prefix));
                }
            }
        }
        check_all(&fib, &[&fib.reader()], &routes);
        assert_eq!(fib.memory().lookup, other.memory().lookup, "batches leave nothing behind");
        for change in &batch {
            let (first, last) = (change.prefix.first(), change.prefix.last());
            for addr in [first, last] {
                let host = A::net(Prefix::new(addr, A::BITS).unwrap());
                let want = trie.get_lpm(&host).map_or(NO_ROUTE, |(_, nh)| *nh);
                assert_eq!(fib.reader().lookup(addr), want, "{}", addr.to_ip());
            }
        }
    }
}

fn new4() -> ip4::Ip4Fib {
    ip4::Ip4Fib::new(&Domain::new()).unwrap()
}

fn new6() -> ip6::Ip6Fib {
    ip6::Ip6Fib::new(&Domain::new()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batches_ip4(batches in batches()) {
        agrees::<u32, _>(batches, new4);
    }

    #[test]
    fn any_batches_ip6(batches in batches()) {
        agrees::<u128, _>(batches, new6);
    }
}

#[cfg(feature = "poptrie")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batches_poptrie(batches in batches()) {
        use linerate_tables::fib::poptrie::Poptrie;
        agrees::<u32, _>(batches.clone(), || Poptrie::new(&Domain::new()).unwrap());
        agrees::<u128, _>(batches, || Poptrie::new(&Domain::new()).unwrap());
    }
}

#[test]
fn the_first_refused_change_ends_the_batch() {
    let mut fib = new4();
    let set = |i: u32, nh| Change { prefix: Prefix::new(i << 12, 24).unwrap(), next_hop: Some(nh) };
    let most = linerate_tables::fib::MAX_NEXT_HOPS as u32;
    let all: Vec<_> = (0..most + 2).map(|i| set(i, i + 1)).collect();
    let error = FibError::TooManyNextHops(most as usize);
    assert_eq!(fib.apply(&all), Err(Refused { at: most as usize, error }));
    assert_eq!(fib.len(), most as usize);
    assert_eq!(fib.get(all[most as usize + 1].prefix), None);
    let text = fib.apply(&[set(1, 1), set(2, NO_ROUTE)]).unwrap_err().to_string();
    assert!(text.starts_with("change 1 of the batch was refused: next hop 0 is reserved"), "{text}");
    // What the next batch makes room for it takes.
    let withdraw = Change { next_hop: None, ..all[0] };
    assert_eq!(fib.apply(&[withdraw, all[most as usize]]), Ok(()));
    assert_eq!(fib.get(all[most as usize].prefix), Some(most + 1));
}

#[test]
fn the_last_of_several_changes_of_one_route_counts() {
    let prefix = u128::parse("2001:db8:1::/48");
    let change = |nh| Change { prefix, next_hop: nh };
    let mut fib = new6();
    fib.apply(&[change(Some(5)), change(None), change(Some(6)), change(Some(7))]).unwrap();
    assert_eq!((fib.get(prefix), fib.len()), (Some(7), 1));
    fib.apply(&[change(Some(9)), change(None), change(None)]).unwrap();
    assert_eq!((fib.get(prefix), fib.len(), fib.reader().lookup(prefix.first())), (None, 0, NO_ROUTE));
}

/// Comes up, changes and goes in batches of several lengths, each in an order of its own.
fn real_table_in_batches<A: Family, F: Fib<A>>(file: &str, make: impl Fn() -> F) {
    let Some(table) = real_table(file) else { return };
    let mut list: Vec<(Prefix<A>, NextHopId)> = table.iter().map(|(p, nh)| (A::parse(p), *nh)).collect();
    let mut routes: Routes<A> = list.iter().copied().collect();
    let mut loaded = make();
    loaded.load(list.iter().copied()).unwrap();
    let mut rng = Rng(77);
    rng.shuffle(&mut list);
    let mut fib = make();
    let changes = |list: &[(Prefix<A>, NextHopId)]| -> Vec<Change<A>> {
        list.iter().map(|&(prefix, nh)| Change { prefix, next_hop: Some(nh) }).collect()
    };
    for (i, part) in list.chunks(list.len() / 5 + 1).enumerate() {
        for batch in changes(part).chunks([1, 7, 31, 64, 1_000][i]) {
            fib.apply(batch).unwrap();
        }
    }
    check_all(&fib, &[&fib.reader()], &routes);
    assert_eq!(fib.memory().lookup, loaded.memory().lookup, "the same table is the same size");
    for _ in 0..400 {
        let batch: Vec<Change<A>> = (0..256)
            .map(|_| {
                let prefix = list[rng.below(list.len())].0;
                let next_hop = (rng.below(3) > 0).then(|| 1 + rng.below(64) as u32);
                match next_hop {
                    Some(nh) => routes.insert(prefix, nh),
                    None => routes.remove(&prefix),
                };
                Change { prefix, next_hop }
            })
            .collect();
        fib.apply(&batch).unwrap();
    }
    check_all(&fib, &[&fib.reader()], &routes);
    let gone: Vec<Change<A>> = list.iter().map(|&(prefix, _)| Change { prefix, next_hop: None }).collect();
    gone.chunks(500).for_each(|batch| fib.apply(batch).unwrap());
    check_all(&fib, &[&fib.reader()], &Routes::new());
}

#[test]
fn the_real_ip4_table_in_batches() {
    real_table_in_batches::<u32, _>("bgp-ipv4.txt.gz", new4);
}

#[test]
fn the_real_ip6_table_in_batches() {
    real_table_in_batches::<u128, _>("bgp-ipv6.txt.gz", new6);
}

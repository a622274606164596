//! Both families against the same models as every other FIB.

use super::*;
use crate::fib::{NO_ROUTE, testing::*};
use proptest::prelude::*;
use std::{collections::BTreeMap, net::Ipv4Addr};

fn table<A: Bits>() -> Poptrie<A> {
    Poptrie::new(&Domain::new()).unwrap()
}

fn adversarial_sets<A: Bits + TestAddress>() {
    for (name, routes) in adversarial::<A>() {
        eprintln!("{name}");
        let mut model: BTreeMap<Prefix<A>, NextHopId> = routes.iter().copied().collect();
        let mut fib = table::<A>();
        fib.load(routes.iter().copied()).unwrap();
        check(&fib, &fib.reader(), &model);
        let mut single = table::<A>();
        for (&p, &nh) in model.iter().rev() {
            single.insert(p, nh).unwrap();
        }
        check(&single, &single.reader(), &model);
        let bytes = |fib: &Poptrie<A>| fib.memory().lookup - fib.writer.encoding.label_bytes();
        assert_eq!(bytes(&single), bytes(&fib), "{name}");
        let pool: Vec<_> = model.keys().copied().collect();
        churn(&mut fib, &mut model, &pool, &mut Rng(3), 4_000, 1_000);
        check(&fib, &fib.reader(), &model);
        for p in pool {
            assert_eq!(fib.withdraw(p), model.remove(&p));
        }
        check(&fib, &fib.reader(), &model);
        assert_eq!(fib.memory().lookup, fib.writer.encoding.label_bytes(), "{name}: all blocks are back");
    }
}

#[test]
fn withdrawals_work_where_there_is_no_memory() {
    let limit = |fib: &mut Poptrie<u128>, words| fib.writer.encoding.limit(words);
    let bytes = |fib: &Poptrie<u128>| fib.memory().lookup - fib.writer.encoding.label_bytes();
    withdrawals_work_in_a_full_table(|domain| Poptrie::new(domain).unwrap(), limit, bytes);
}

#[test]
fn adversarial_ipv4_sets() {
    adversarial_sets::<u32>();
}

#[test]
fn adversarial_ipv6_sets() {
    adversarial_sets::<u128>();
}

fn real<A: Bits + TestAddress>(file: &str) {
    let Some(routes) = real_table::<A>(file) else { return };
    let mut model: BTreeMap<Prefix<A>, NextHopId> = routes.iter().copied().collect();
    let mut fib = table::<A>();
    fib.load(routes.iter().copied()).unwrap();
    check(&fib, &fib.reader(), &model);
    let mut pool: Vec<_> = routes.iter().map(|&(p, _)| p).collect();
    pool.extend((0..10).map(|len| Prefix::new(routes[0].0.first(), len).unwrap()));
    churn(&mut fib, &mut model, &pool, &mut Rng(1), 50_000, 64);
    check(&fib, &fib.reader(), &model);
}

#[test]
fn the_real_ipv4_table_after_churn() {
    real::<u32>("bgp-ipv4.txt.gz");
}

#[test]
fn the_real_ipv6_table_after_churn() {
    real::<u128>("bgp-ipv6.txt.gz");
}

#[test]
fn a_failed_load_changes_nothing() {
    let prefix = |text: &str| u32::parse(text).unwrap();
    let mut fib = table::<u32>();
    let mut model = BTreeMap::new();
    for (text, nh) in [("10.0.0.0/8", 5), ("10.1.0.0/24", 6), ("0.0.0.0/0", 7), ("10.1.0.1/32", 9)] {
        fib.insert(prefix(text), nh).unwrap();
        model.insert(prefix(text), nh);
    }
    let too_many = (0..70_000u32).map(|i| (Prefix::new(0x0a00_0000 | i << 6, 26).unwrap(), u32::MAX - i));
    assert_eq!(fib.load(too_many), Err(FibError::TooManyNextHops(65_535)));
    check(&fib, &fib.reader(), &model);
    let pool: Vec<_> = model.keys().copied().collect();
    churn(&mut fib, &mut model, &pool, &mut Rng(5), 200, 5);
    check(&fib, &fib.reader(), &model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any sequence of changes of all lengths.
    #[test]
    fn any_sequence_of_changes_agrees_with_prefix_trie(
        ops in proptest::collection::vec((any::<u32>(), 0u8..=32, 0u32..5), 1..120)
    ) {
        let mut fib = table::<u32>();
        let mut trie = prefix_trie::PrefixMap::<ipnet::Ipv4Net, u32>::new();
        let mut probes = vec![0, u32::MAX];
        for (bits, len, nh) in ops {
            let p = Prefix::new(0x0a0a_0a0a ^ bits.checked_shr(u32::from(len) / 2).unwrap_or(0), len).unwrap();
            let net = ipnet::Ipv4Net::new(Ipv4Addr::from_bits(p.first()), len).unwrap();
            if nh == 0 {
                prop_assert_eq!(fib.withdraw(p), trie.remove(&net));
            } else {
                prop_assert_eq!(fib.insert(p, nh), Ok(trie.insert(net, nh)));
            }
            probes.extend([p.first(), p.last(), p.first().wrapping_sub(1), p.last().wrapping_add(1)]);
        }
        for &probe in &probes {
            let host = ipnet::Ipv4Net::new(Ipv4Addr::from_bits(probe), 32).unwrap();
            let want = trie.get_lpm(&host).map_or(NO_ROUTE, |(_, nh)| *nh);
            prop_assert_eq!(fib.reader().lookup(probe), want);
        }
    }
}

//! The whole structure against models: every kernel, every way of building, churn, readers at work.

use super::*;
use crate::fib::{NO_ROUTE, oracle::Oracle, testing::*};
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    net::Ipv6Addr,
    sync::atomic::{AtomicBool, Ordering},
};

type Model = BTreeMap<Prefix<u128>, NextHopId>;

fn table() -> Ip6Fib {
    Ip6Fib::new(&Domain::new()).unwrap()
}

fn check_kernels(fib: &Ip6Fib, model: &Model) {
    for kernel in Kernel::available() {
        check(fib, &fib.reader().with_kernel(kernel), model);
    }
}

fn prefix(text: &str) -> Prefix<u128> {
    text.parse::<ipnet::Ipv6Net>().unwrap().into()
}

fn addr(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

#[test]
fn an_empty_table_and_a_default_route() {
    let mut fib = table();
    let reader = fib.reader();
    assert_eq!(reader.lookup(addr("2001:db8::1")), NO_ROUTE);
    assert_eq!(fib.memory().lookup, 0);
    assert_eq!(fib.insert(prefix("::/0"), 0), Err(FibError::ReservedNextHop));
    assert_eq!(fib.insert(prefix("::/0"), u32::MAX), Ok(None));
    assert_eq!(reader.lookup(addr("2001:db8::1")), u32::MAX);
    assert_eq!((fib.get(prefix("::/0")), fib.len()), (Some(u32::MAX), 1));
    assert_eq!(fib.withdraw(prefix("::/0")), Some(u32::MAX));
    assert_eq!((reader.lookup(addr("ff02::1")), fib.len()), (NO_ROUTE, 0));
}

#[test]
fn batches_of_every_length_get_every_answer() {
    let mut fib = table();
    let routes: Routes<u128> =
        (0..200u128).map(|i| (Prefix::new(addr("2600::") | i << 84, 44).unwrap(), 1 + i as u32)).collect();
    fib.load(routes.iter().copied()).unwrap();
    let addrs: Vec<u128> = routes.iter().map(|(p, _)| p.first() | 7).collect();
    for kernel in Kernel::available() {
        let reader = fib.reader().with_kernel(kernel);
        for n in 0..=addrs.len() {
            let mut out = vec![u32::MAX; n];
            reader.lookup_batch(&addrs[..n], &mut out);
            assert!(out.iter().copied().eq(1..=n as u32), "{} {n}", kernel.name());
        }
    }
}

#[test]
fn the_addresses_a_router_has_besides_the_internet() {
    let mut fib = table();
    let mut model = Model::new();
    let routes = [
        "fe80::/10",
        "fe80::1/128",
        "ff02::/16",
        "ff00::/8",
        "fc00::/7",
        "fd12:3456::/48",
        "fd12:3456::/64",
        "::1/128",
        "64:ff9b::/96",
        "2001:db8::/127",
        "2001:db8::/128",
        "2001:db8:0:1::/64",
        "2001:db8:0:1::53/128",
        "2000::/3",
        "::/1",
        "8000::/1",
        "::/2",
        "2002::/16",
        "2001::/20",
        "2001::/21",
        "::/0",
        "e000::/3",
        "2001:db8::/68",
        "2001:db8::/69",
        "2001:db8::/74",
        "2001:db8::/62",
    ];
    for (i, text) in routes.into_iter().enumerate() {
        fib.insert(prefix(text), i as u32 + 1).unwrap();
        model.insert(prefix(text), i as u32 + 1);
        check_kernels(&fib, &model);
    }
    for text in routes {
        assert!(fib.withdraw(prefix(text)).is_some());
        model.remove(&prefix(text));
        check_kernels(&fib, &model);
    }
    assert_eq!(fib.memory().lookup, 0);
}

#[test]
fn adversarial_sets_loaded_inserted_churned_and_withdrawn() {
    for (name, routes) in adversarial::<u128>() {
        eprintln!("{name}");
        let mut model: Model = routes.iter().copied().collect();
        let mut loaded = table();
        loaded.load(routes.iter().copied()).unwrap();
        check_kernels(&loaded, &model);
        let mut single = table();
        for &(p, nh) in routes.iter().rev() {
            single.insert(p, nh).unwrap();
        }
        for (&p, &nh) in &model {
            single.insert(p, nh).unwrap();
        }
        check_kernels(&single, &model);
        let pool: Vec<_> = model.keys().copied().collect();
        churn(&mut loaded, &mut model, &pool, &mut Rng(3), 5_000, 1_000);
        check_kernels(&loaded, &model);
        for p in pool {
            assert_eq!(loaded.withdraw(p), model.remove(&p));
        }
        check_kernels(&loaded, &model);
        assert_eq!(
            loaded.memory().lookup - loaded.writer.encoding.label_bytes(),
            0,
            "{name}: all blocks are back"
        );
    }
}

#[test]
fn the_real_table_in_any_order_and_after_churn() {
    let Some(routes) = real_table::<u128>("bgp-ipv6.txt.gz") else { return };
    let mut model: Model = routes.iter().copied().collect();
    let mut fib = table();
    fib.load(routes.iter().copied()).unwrap();
    check_kernels(&fib, &model);
    let bytes = fib.memory().lookup;
    assert!(bytes <= 2_000_000, "{bytes} bytes for {} routes", fib.len());

    let mut shortest_first = routes.clone();
    shortest_first.sort_by_key(|(p, _)| (p.len(), p.first().reverse_bits()));
    for longest_first in [false, true] {
        let mut other = table();
        if longest_first {
            shortest_first.reverse();
        }
        for &(p, nh) in &shortest_first {
            other.insert(p, nh).unwrap();
        }
        check(&other, &other.reader(), &model);
        assert_eq!(other.memory().lookup, bytes, "the same table is the same size, however it came about");
    }

    let mut pool: Vec<_> = routes.iter().map(|&(p, _)| p).collect();
    pool.extend(["::/0", "2000::/3", "2400::/6", "2a00::/12"].map(prefix));
    churn(&mut fib, &mut model, &pool, &mut Rng(1), 200_000, 64);
    check_kernels(&fib, &model);
}

#[test]
fn hundreds_of_thousands_load_and_a_host_route_costs_one_record() {
    let mut rng = Rng(11);
    let mut routes: Routes<u128> = (0..250_000)
        .map(|i| (Prefix::new(addr("2400::") | (rng.next() as u128 >> 8) << 68, 48).unwrap(), 1 + i % 60_000))
        .collect();
    let base = addr("2001:db8:0:1::");
    routes.extend((0..100_000).map(|i| (Prefix::new(base | u128::from(rng.next()), 128).unwrap(), 1 + i)));
    let model: Model = routes.iter().copied().collect();
    let mut fib = table();
    fib.load(routes).unwrap();
    check(&fib, &fib.reader(), &model);
    let mut hosts = table();
    hosts.load(model.iter().filter(|(p, _)| p.len() == 128).map(|(&p, &nh)| (p, nh))).unwrap();
    let each = (hosts.memory().lookup - slots::SLOTS * 4) / hosts.len();
    assert!(each < 80, "{each} bytes a host route");
}

#[test]
fn a_failed_load_changes_nothing() {
    let mut fib = table();
    let mut model = Model::new();
    for (text, nh) in [("2001:db8::/32", 5), ("2001:db8::/64", 6), ("::/0", 7), ("2000::/3", 0x9000_0000)] {
        fib.insert(prefix(text), nh).unwrap();
        model.insert(prefix(text), nh);
    }
    let too_many =
        (0..70_000u32).map(|i| (Prefix::new(u128::from(i) << 80 | 2 << 124, 48).unwrap(), u32::MAX - i));
    let same = [(prefix("2001:db8::/64"), 9), (prefix("::/0"), 9), (prefix("2001:db8::1/128"), 9)];
    let result = fib.load(same.into_iter().chain(too_many));
    assert_eq!(result, Err(FibError::TooManyNextHops(65_535)));
    check_kernels(&fib, &model);
    assert_eq!(fib.load([(prefix("::/1"), 1), (prefix("::/2"), 0)]), Err(FibError::ReservedNextHop));
    churn(&mut fib, &mut model, &[prefix("2001:db8::/64"), prefix("2001:db8::1/128")], &mut Rng(5), 100, 5);
    check_kernels(&fib, &model);
}

#[test]
fn withdrawals_work_where_there_is_no_memory() {
    withdrawals_work_in_a_full_table::<u128, _>(
        |domain| Ip6Fib::new(domain).unwrap(),
        |fib, words| fib.writer.encoding.limit(words),
        |fib| fib.memory().lookup - fib.writer.encoding.label_bytes(),
    );
}

#[test]
fn readers_never_see_a_wrong_route_while_others_change() {
    let domain = Domain::new();
    let mut fib = Ip6Fib::new(&domain).unwrap();
    let mut rng = Rng(23);
    // Even /40s stay; the odd ones between them and everything around come and go.
    let stable: Routes<u128> =
        (0..2_000u128).map(|i| (Prefix::new(addr("2600::") | i << 89, 40).unwrap(), 1 + i as u32)).collect();
    let mut changing: Vec<Prefix<u128>> = stable
        .iter()
        .map(|(p, _)| Prefix::new(p.first() | 1 << 88, 40 + rng.below(89) as u8).unwrap())
        .collect();
    changing.extend(["2000::/3", "2600::/32", "2600::/16", "2600:f00::/24", "::/0"].map(prefix));
    fib.load(stable.iter().copied()).unwrap();
    let addrs: Vec<u128> = stable.iter().map(|(p, _)| p.first() | u128::from(rng.next())).collect();
    let expected: Vec<u32> = stable.iter().map(|&(_, nh)| nh).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for kernel in Kernel::available() {
            let (reader, mut qsbr) = (fib.reader().with_kernel(kernel), domain.register());
            let (stop, addrs, expected) = (&stop, &addrs, &expected);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    check_answers(&reader, addrs, expected);
                    qsbr.quiescent();
                }
            });
        }
        let mut model = Model::new();
        for &p in &changing {
            fib.withdraw(p);
        }
        for _ in 0..20 {
            for _ in 0..10_000 {
                let p = changing[rng.below(changing.len())];
                if model.remove(&p).is_some() {
                    fib.withdraw(p);
                } else {
                    fib.insert(p, 70_000).unwrap();
                    model.insert(p, 70_000);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any sequence of changes, all lengths, addresses that share long beginnings.
    #[test]
    fn any_sequence_of_changes_agrees_with_prefix_trie(
        ops in proptest::collection::vec((0usize..6, any::<u128>(), 0u8..=128, 0u32..6), 1..120)
    ) {
        let bases = ["::", "2001:db8::", "2001:db8:0:1::", "fd00::", "fe80::", "2001:db8:ffff:ffff::"].map(addr);
        let mut fib = table();
        let mut trie = prefix_trie::PrefixMap::<ipnet::Ipv6Net, u32>::new();
        let mut model = Model::new();
        let mut probes = vec![0, u128::MAX];
        for (base, bits, len, nh) in ops {
            let p = Prefix::new(bases[base] ^ bits.checked_shr(u32::from(len) / 2 + 20).unwrap_or(0), len).unwrap();
            let net = ipnet::Ipv6Net::new(Ipv6Addr::from_bits(p.first()), len).unwrap();
            if nh == 0 {
                prop_assert_eq!(fib.withdraw(p), trie.remove(&net));
                model.remove(&p);
            } else {
                let nh = if nh == 5 { u32::MAX - u32::from(len) } else { nh };
                prop_assert_eq!(fib.insert(p, nh), Ok(trie.insert(net, nh)));
                model.insert(p, nh);
            }
            probes.extend([p.first(), p.last(), p.first().wrapping_sub(1), p.last().wrapping_add(1)]);
        }
        for &probe in &probes {
            let host = ipnet::Ipv6Net::new(Ipv6Addr::from_bits(probe), 128).unwrap();
            let want = trie.get_lpm(&host).map_or(NO_ROUTE, |(_, nh)| *nh);
            prop_assert_eq!(fib.reader().lookup(probe), want);
            prop_assert_eq!(Oracle::new(model.iter().map(|(&p, &nh)| (p, nh))).lookup(probe), want);
        }
        check_kernels(&fib, &model);
    }

    /// The same with hardly any memory and a reader that moves on now and then: what is refused changes nothing, what is
    /// withdrawn is, and with memory again all is as it should be.
    #[test]
    fn any_sequence_of_changes_with_hardly_any_memory(
        ops in proptest::collection::vec((0usize..5, any::<u128>(), 8u8..=128, 0u32..6), 1..400),
        words in 4_200usize..6_000,
    ) {
        let bases = ["2001:db8::", "2001:db8:0:1::", "2001:db8:1::", "fe80::", "2001:db8:ffff:ffff::"].map(addr);
        let domain = Domain::new();
        let mut stuck = domain.register();
        let mut fib = Ip6Fib::new(&domain).unwrap();
        fib.writer.encoding.limit(words);
        let mut model = Model::new();
        for (base, bits, len, nh) in ops {
            let p = Prefix::new(bases[base] ^ bits.checked_shr(u32::from(len) / 2 + 40).unwrap_or(0), len).unwrap();
            if nh == 0 {
                let any = model.keys().nth(bits as usize % model.len().max(1)).copied().unwrap_or(p);
                prop_assert_eq!(fib.withdraw(any), model.remove(&any));
            } else {
                match fib.insert(p, nh) {
                    Ok(old) => prop_assert_eq!(old, model.insert(p, nh)),
                    Err(e) => prop_assert!(matches!(e, FibError::Full(_)), "{e}"),
                }
            }
            match bits % 32 {
                0 => stuck.quiescent(),
                1 => fib.writer.encoding.limit(0),
                2 | 3 => fib.writer.encoding.limit(words),
                _ => {}
            }
            prop_assert_eq!(fib.len(), model.len());
        }
        stuck.quiescent();
        fib.writer.encoding.limit(usize::MAX);
        prop_assert_eq!(fib.load([]), Ok(()));
        check_kernels(&fib, &model);
    }
}

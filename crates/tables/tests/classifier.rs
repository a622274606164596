//! The classifier against a linear scan: generated sets, adversarial sets, arbitrary rules; all kernels.
#![cfg(not(loom))]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use linerate_tables::{
    classifier::{
        ALL_PORTS, Classifier, ClassifierError, Fragment, Icmp, Kernel, Key, Rule, RuleError, Shape,
        TcpFlags, Vlan,
        synthetic::{self, Drawn, Profile, Rng},
    },
    prefix::Prefix,
};
use proptest::prelude::*;

const NO_MATCH: u32 = u32::MAX;

/// The first rule that matches, looked at one after the other.
fn scan<A: Shape>(rules: &[Rule<A>], key: &Key<A>) -> u32 {
    rules.iter().find(|rule| rule.matches(key)).map_or(NO_MATCH, |rule| rule.action)
}

/// Builds the classifier, checks its size, and compares all kernels with the scan.
fn check<A: Shape>(rules: &[Rule<A>], keys: &[Key<A>]) {
    let mut classifier = Classifier::new(0);
    classifier.replace(rules, NO_MATCH).unwrap();
    let (bytes, most) = (classifier.lookup_bytes(), Classifier::<A>::most_lookup_bytes(rules.len()));
    assert!(bytes <= most, "{bytes} bytes for {} rules, {most} at most", rules.len());
    let expected: Vec<u32> = keys.iter().map(|key| scan(rules, key)).collect();
    for kernel in Kernel::available() {
        let mut reader = classifier.reader().with_kernel(kernel);
        let mut out = vec![7; keys.len()];
        reader.lookup_batch(keys, &mut out);
        for ((key, got), want) in keys.iter().zip(&out).zip(&expected) {
            assert_eq!(got, want, "{kernel:?}, {key:?}");
        }
    }
}

/// Keys inside rules and anywhere.
fn keys<A: Drawn>(rules: &[Rule<A>], n: usize, seed: u64) -> Vec<Key<A>> {
    let mut rng = Rng::new(seed);
    (0..n)
        .map(|i| match i % 8 {
            0 => synthetic::key_anywhere(&mut rng),
            _ => synthetic::key_in(&rules[rng.below(rules.len())], &mut rng),
        })
        .collect()
}

fn generated<A: Drawn>() {
    for profile in Profile::ALL {
        for (n, more) in [(1, true), (2, false), (40, true), (700, true), (3_000, true), (3_000, false)] {
            let rules = synthetic::rules::<A>(profile, n, 11, more);
            check(&rules, &keys(&rules, 700, n as u64));
        }
    }
}

/// General rules before special ones and in any order, so that later nodes must be visited too; batches of which few keys,
/// and nearly all, have no rule in the first node.
fn in_any_order<A: Drawn>() {
    let mut rng = Rng::new(5);
    for profile in Profile::ALL {
        let mut rules = synthetic::rules::<A>(profile, 1_500, 3, true);
        rules.reverse();
        for _ in 0..2 {
            let mut mixed = keys(&rules, 640, 9);
            check(&rules, &mixed);
            for (i, key) in mixed.iter_mut().enumerate() {
                if i % 16 != 0 {
                    *key = synthetic::key_anywhere(&mut rng);
                }
            }
            check(&rules, &mixed);
            for i in (1..rules.len()).rev() {
                rules.swap(i, rng.below(i + 1));
            }
        }
    }
}

#[test]
fn rules_in_any_order_ip4() {
    in_any_order::<u32>();
}

#[test]
fn rules_in_any_order_ip6() {
    in_any_order::<u128>();
}

#[test]
fn generated_sets_of_ip4() {
    generated::<u32>();
}

#[test]
fn generated_sets_of_ip6() {
    generated::<u128>();
}

#[test]
fn batches_of_any_length() {
    let rules = synthetic::rules::<u32>(Profile::Acl, 300, 5, true);
    for n in [0, 1, 2, 63, 64, 65, 127, 128, 200] {
        check(&rules, &keys(&rules, n, 9));
    }
}

/// 10,000 rules of a kind that defeats one structure or another.
fn adversarial<A: Drawn>(make: impl Fn(usize, &mut Rng) -> Rule<A>) {
    let mut rng = Rng::new(3);
    let rules: Vec<Rule<A>> = (0..10_000).map(|i| Rule { action: i as u32, ..make(i, &mut rng) }).collect();
    check(&rules, &keys(&rules, 250, 4));
}

#[test]
fn equal_rules() {
    adversarial::<u32>(|_, _| Rule { protocol: Some(17), dst_ports: 1..=65_534, ..Rule::any(0) });
    adversarial::<u128>(|_, _| Rule::any(0));
}

#[test]
fn nested_port_ranges_narrow_first() {
    adversarial::<u32>(|i, _| Rule { dst_ports: 10_000 - i as u16..=50_000 + i as u16, ..Rule::any(0) });
}

#[test]
fn nested_port_ranges_wide_first() {
    adversarial::<u128>(|i, _| Rule { dst_ports: i as u16..=65_535 - i as u16, ..Rule::any(0) });
}

#[test]
fn overlapping_rectangles_of_ports() {
    adversarial::<u32>(|_, rng| {
        let mut range = || {
            let first = rng.below(60_000) as u16;
            first..=first + rng.below(5_000) as u16
        };
        Rule { src_ports: range(), dst_ports: range(), ..Rule::any(0) }
    });
}

#[test]
fn crossing_prefixes() {
    adversarial::<u32>(|i, rng| {
        let mut prefix = |len| Prefix::new(rng.next() as u32, len).unwrap();
        let len = (i % 33) as u8;
        Rule { src: prefix(len), dst: prefix(32 - len), ..Rule::any(0) }
    });
}

#[test]
fn few_prefixes_many_combinations() {
    adversarial::<u128>(|_, rng| {
        let mut prefix = || Prefix::new(rng.below(4) as u128, 126 + rng.below(3) as u8).unwrap();
        let (src, dst) = (prefix(), prefix());
        let flags = rng.next() as u8;
        Rule {
            src,
            dst,
            tcp_flags: Some(TcpFlags { value: rng.next() as u8 & flags, mask: flags }),
            dscp: Some(rng.below(64) as u8),
            ..Rule::any(0)
        }
    });
}

#[test]
fn the_first_of_several_matches_wins_whatever_their_width() {
    let host = Prefix::new(0x0a00_0001u32, 32).unwrap();
    let wide = Rule { protocol: Some(6), ..Rule::any(1) };
    let narrow = Rule { dst: host, ..Rule::any(2) };
    let key = Key::new(1, 0x0a00_0001, 6).with_ports(5, 80);
    for (rules, want) in [(vec![wide.clone(), narrow.clone()], 1), (vec![narrow, wide], 2)] {
        check(&rules, &[key]);
        assert_eq!(scan(&rules, &key), want);
    }
}

#[test]
fn what_a_packet_lacks_does_not_match() {
    let any = Rule::<u32>::any(1);
    let port = Rule { dst_ports: 0..=65_534, ..any.clone() };
    let flags = Rule { tcp_flags: Some(TcpFlags { value: 2, mask: 0x12 }), ..any.clone() };
    let echo = Rule { icmp: Some(Icmp { kind: 8, code: None }), ..any.clone() };
    let later = Rule { fragment: Fragment::NonInitial, ..any.clone() };
    let untagged = Rule { vlan: Some(Vlan::Untagged), ..any.clone() };
    let zero = Rule { vlan: Some(Vlan::Id(0)), ..any.clone() };
    let key = Key::new(1u32, 2, 6);
    let rest = key.with_fragment(false);
    for (rule, key, matches) in [
        (&any, rest, true),
        (&port, rest, false),
        (&port, key.with_ports(1, 2), true),
        (&port, key.with_ports(1, 65_535), false),
        (&port, Key::new(1, 2, 1).with_icmp(0, 0), false),
        (&flags, key.with_ports(1, 2).with_tcp_flags(0x42), true),
        (&flags, key.with_ports(1, 2).with_tcp_flags(0x12), false),
        (&flags, rest, false),
        (&echo, Key::new(1, 2, 1).with_icmp(8, 77), true),
        (&echo, Key::new(1, 2, 1).with_icmp(0, 77), false),
        (&echo, Key::new(1, 2, 17).with_ports(0, 8 << 8), false),
        (&echo, Key::new(1, 2, 1).with_fragment(false), false),
        (&later, rest, true),
        (&later, key.with_fragment(true), false),
        (&later, key, false),
        (&untagged, key, true),
        (&untagged, key.with_vlan(0), false),
        (&zero, key.with_vlan(0), true),
        (&zero, key, false),
    ] {
        assert_eq!(rule.matches(&key), matches, "{rule:?} {key:?}");
        check(std::slice::from_ref(rule), &[key]);
    }
}

#[test]
fn impossible_rules_are_refused_with_their_place() {
    let any = Rule::<u32>::any(1);
    let icmp = Some(Icmp { kind: 8, code: None });
    for (rule, reason) in [
        (Rule { vlan: Some(Vlan::Id(4096)), ..any.clone() }, RuleError::VlanId(4096)),
        (Rule { dscp: Some(64), ..any.clone() }, RuleError::Dscp(64)),
        (
            Rule { tcp_flags: Some(TcpFlags { value: 3, mask: 1 }), ..any.clone() },
            RuleError::FlagsOutsideMask { value: 3, mask: 1 },
        ),
        (
            Rule { tcp_flags: Some(TcpFlags { value: 1, mask: 1 }), protocol: Some(17), ..any.clone() },
            RuleError::FlagsWithoutTcp(17),
        ),
        (Rule { icmp, protocol: Some(58), ..any.clone() }, RuleError::IcmpProtocol { got: 58, want: 1 }),
        (Rule { icmp, dst_ports: 1..=1, ..any.clone() }, RuleError::IcmpWithPorts),
        (Rule { icmp, fragment: Fragment::NonInitial, ..any.clone() }, RuleError::NoTransport),
    ] {
        let mut classifier = Classifier::new(5);
        classifier.replace(std::slice::from_ref(&any), 6).unwrap();
        let error = classifier.replace(&[any.clone(), rule], 6).unwrap_err();
        assert_eq!(error, ClassifierError::Rule { index: 1, reason });
        let mut out = [0];
        classifier.reader().lookup_batch(&[Key::new(1, 2, 3)], &mut out);
        assert_eq!(out, [1], "a refused list changes nothing");
    }
}

#[test]
fn readers_see_whole_lists_only() {
    // Each list gives the same action to all keys; a mixture would show in a batch.
    let lists: Vec<Vec<Rule<u32>>> = (0..4)
        .map(|i| {
            let rules = synthetic::rules::<u32>(Profile::ALL[i % 3], 200, i as u64, false);
            rules.into_iter().map(|rule| Rule { action: i as u32, ..rule }).collect()
        })
        .collect();
    let keys: Vec<Key<u32>> = {
        let mut rng = Rng::new(1);
        (0..64).map(|_| synthetic::key_anywhere(&mut rng)).collect()
    };
    let mut classifier = Classifier::new(0);
    classifier.replace(&lists[0], 0).unwrap();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (mut reader, keys) = (classifier.reader(), keys.clone());
            std::thread::spawn(move || {
                let mut seen = 0;
                while seen != 3 {
                    let mut out = [9; 64];
                    reader.lookup_batch(&keys, &mut out);
                    assert!(out.iter().all(|&id| id == out[0]), "{out:?}");
                    seen = out[0];
                }
            })
        })
        .collect();
    for round in 0..40 {
        let i = if round == 39 { 3 } else { round % 3 };
        classifier.replace(&lists[i], i as u32).unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// Rules in a small world, so that they overlap.
fn small_rule<A: Drawn>() -> impl Strategy<Value = Rule<A>> {
    let prefix = || {
        (0u128..8, 0u8..=A::BITS).prop_map(|(bits, len)| {
            let addr = A::from_bits(bits << 125 | bits << 96 | bits);
            Prefix::new(addr, len).unwrap()
        })
    };
    let ports = || {
        prop_oneof![
            3 => Just(ALL_PORTS),
            1 => (0u16..4).prop_map(|p| p..=p),
            2 => (0u16..1000, 0u16..600).prop_map(|(p, n)| p..=p + n),
            1 => (0u16..=u16::MAX, 0u16..=u16::MAX).prop_map(|(a, b)| a.min(b)..=a.max(b)),
        ]
    };
    let options = (
        prop::option::of(prop_oneof![Just(6u8), Just(17), Just(A::ICMP)]),
        prop::option::of((any::<u8>(), any::<u8>())),
        prop::option::of((0u8..3, prop::option::of(0u8..3))),
        prop_oneof![
            4 => Just(Fragment::Any),
            1 => Just(Fragment::Whole),
            1 => Just(Fragment::Part),
            1 => Just(Fragment::Initial),
            1 => Just(Fragment::NonInitial)
        ],
        prop::option::of(prop_oneof![Just(Vlan::Untagged), (0u16..3).prop_map(Vlan::Id)]),
        prop::option::of(0u8..3),
    );
    (prefix(), prefix(), ports(), ports(), options)
        .prop_map(|(src, dst, src_ports, dst_ports, (protocol, flags, icmp, fragment, vlan, dscp))| Rule {
            src,
            dst,
            protocol,
            src_ports,
            dst_ports,
            tcp_flags: flags.map(|(value, mask)| TcpFlags { value: value & mask, mask }),
            icmp: icmp.map(|(kind, code)| Icmp { kind, code }),
            fragment,
            vlan,
            dscp,
            action: 0,
        })
        .prop_map(|mut rule| {
            // Of what excludes each other, keep one.
            if rule.icmp.is_some() {
                (rule.protocol, rule.tcp_flags) = (None, None);
                (rule.src_ports, rule.dst_ports) = (ALL_PORTS, ALL_PORTS);
            }
            if rule.tcp_flags.is_some() {
                rule.protocol = Some(6);
            }
            if rule.check().is_err() {
                rule.fragment = Fragment::Any;
            }
            rule
        })
}

fn small_key<A: Drawn>() -> impl Strategy<Value = Key<A>> {
    let addr = || (0u128..8, 0u128..8).prop_map(|(a, b)| A::from_bits(a << 125 | b << 96 | a));
    let protocol = prop_oneof![Just(6u8), Just(17), Just(A::ICMP), Just(47)];
    let port = || prop_oneof![0u16..1700, any::<u16>()];
    let more =
        (any::<u8>(), 0u8..4, 0u8..4, prop::option::of(any::<bool>()), prop::option::of(0u16..4), 0u8..4);
    (addr(), addr(), protocol, port(), port(), more).prop_map(
        |(src, dst, protocol, a, b, (flags, kind, code, fragment, vlan, dscp))| {
            let mut key = Key::new(src, dst, protocol).with_dscp(dscp);
            if fragment != Some(false) {
                key = match protocol {
                    6 => key.with_ports(a, b).with_tcp_flags(flags),
                    17 => key.with_ports(a, b),
                    47 => key,
                    _ => key.with_icmp(kind, code),
                };
            }
            key = vlan.map_or(key, |id| key.with_vlan(id));
            fragment.map_or(key, |first| key.with_fragment(first))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn arbitrary_rules_of_ip4(
        mut rules in prop::collection::vec(small_rule::<u32>(), 0..300),
        keys in prop::collection::vec(small_key::<u32>(), 1..150),
    ) {
        rules.iter_mut().zip(0..).for_each(|(rule, i)| rule.action = i);
        check(&rules, &keys);
    }

    #[test]
    fn arbitrary_rules_of_ip6(
        mut rules in prop::collection::vec(small_rule::<u128>(), 0..300),
        keys in prop::collection::vec(small_key::<u128>(), 1..150),
    ) {
        rules.iter_mut().zip(0..).for_each(|(rule, i)| rule.action = i);
        check(&rules, &keys);
    }
}

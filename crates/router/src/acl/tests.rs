//! Rules as text, and lists as workers meet them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linerate_tables::classifier::{Fragment, Key, TcpFlags, Workspace};
use proptest::prelude::*;

use super::text::{AclLine, parse_line, parse_rules};
use super::*;

fn rule(text: &str) -> AclRule {
    match parse_line(text) {
        Ok(AclLine::Rule(_, rule)) => *rule,
        other => panic!("{text}: {other:?}"),
    }
}

fn bad(text: &str) -> String {
    let error = parse_line(text).expect_err(text);
    format!("{}: {}", error.column, error.message)
}

#[test]
fn what_an_operator_writes_is_understood() {
    let r = rule("permit tcp 10.0.0.0/8 any eq 443");
    assert_eq!((r.action, r.protocol, r.dst_ports.clone()), (AclAction::Permit, Some(6), vec![443..=443]));
    assert_eq!((r.src, r.dst), (Some("10.0.0.0/8".parse().unwrap()), None));
    assert_eq!(r.families(), (true, false));
    assert_eq!(rule("  10  permit tcp 10.0.0.0 0.255.255.255 any eq https  ! web"), r);
    assert_eq!(rule("deny ip any any").families(), (true, true));
    assert_eq!(rule("deny ipv6 any any").families(), (false, true));
    assert_eq!(rule("deny ip any 2001:db8::/32").families(), (false, true));
    assert_eq!(rule("permit icmp any any echo").families(), (true, false));
    assert_eq!(rule("permit icmp6 any any nd-ns").families(), (false, true));
    assert_eq!(rule("permit udp any gt 1023 host 10.0.0.1 range 5000 5010").src_ports, [1024..=65535]);
    assert_eq!(rule("permit udp any neq 53 any").src_ports, [0..=52, 54..=65535]);
    assert_eq!(rule("permit tcp any any eq 80 443 8080 log").dst_ports, [80..=80, 443..=443, 8080..=8080]);
    assert_eq!(rule("deny icmp any any 3 13").icmp.unwrap().code, Some(13));
    let flags = rule("permit tcp any any match-all +syn -ack").compiled::<u32>(1);
    assert_eq!(flags[0].tcp_flags, Some(TcpFlags { value: 0x02, mask: 0x12 }));
    assert_eq!(rule("permit tcp any any established").compiled::<u32>(1).len(), 2, "ACK or RST");
    let fragments = rule("permit ip any any fragments vlan 7 dscp ef log");
    assert_eq!(fragments.compiled::<u128>(1)[0].fragment, Fragment::NonInitial);
    assert_eq!((fragments.dscp, fragments.log), (Some(46), true));
    assert_eq!(parse_line("remark the rest! # of it").unwrap(), AclLine::Remark("the rest! # of it".into()));
    assert_eq!(parse_line("  ! nothing").unwrap(), AclLine::Nothing);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let cases = [
        ("allow ip any any", "1: found `allow`: expected permit, deny or reject"),
        (
            "permit tpc any any",
            "8: found `tpc`: expected a protocol: ip, ipv4, ipv6, tcp, udp, icmp, icmp6, another name, or a number to 255",
        ),
        (
            "permit ip any",
            "14: the rule ends here: expected a destination: any, host ADDRESS, or a prefix such as 198.51.100.0/24",
        ),
        (
            "permit ip 10.0.0.1/8 any",
            "11: found `10.0.0.1/8`: expected no bits set behind the prefix: 10.0.0.0/8",
        ),
        (
            "permit ip 10.0.0.0 0.255.0.255 any",
            "20: found `0.255.0.255`: expected a wildcard whose ones are all at the end, such as 0.0.0.255",
        ),
        (
            "permit ip any eq 80 any",
            "21: ports need a protocol that has them: expected tcp, udp, sctp, dccp or udplite",
        ),
        (
            "permit tcp any any eq 70000",
            "23: found `70000`: expected a port: a number to 65535 or a name such as https",
        ),
        (
            "permit tcp any range 90 80 any",
            "25: found `80`: expected a port from 90 on: the lower one is first",
        ),
        (
            "permit ip 10.0.0.0/8 2001:db8::/32",
            "22: source and destination are of different address families: expected both IPv4 or both IPv6",
        ),
        (
            "permit tcp any any eq 80 fragments",
            "26: fragments but the first have no transport header: `fragments` excludes ports, TCP flags and ICMP types",
        ),
        ("permit udp any any established", "20: TCP flags need the protocol tcp"),
        ("permit tcp any any match-all +syn -syn", "35: a TCP flag is asked for both set and not set"),
        ("permit ip any any vlan 4095", "24: found `4095`: expected a VLAN id from 1 to 4094, or untagged"),
        (
            "permit ip any any tos 4",
            "19: found `tos`: expected established, match-all, match-any, fragments, vlan, dscp, log, or nothing more",
        ),
        ("10", "3: the rule ends here: expected permit, deny or reject"),
    ];
    for (text, message) in cases {
        assert_eq!(bad(text), message);
    }
    let errors = parse_rules("20 permit ip any any\n\n10 deny ip any any\nx").unwrap_err();
    let lines: Vec<u64> = errors.iter().map(|e| e.0).collect();
    assert_eq!(lines, [3, 4]);
}

fn any_rule() -> impl Strategy<Value = String> {
    let action = prop::sample::select(vec!["permit", "deny", "reject"]);
    let port = prop::sample::select(vec![
        "",
        " eq 80",
        " eq bgp 443 9",
        " range 5 90",
        " neq 22",
        " gt 1023",
        " lt 9",
    ]);
    let v4 = prop::sample::select(vec![
        "any",
        "host 10.0.0.9",
        "10.0.0.0/24",
        "198.18.0.0/15",
        "10.0.0.0 0.0.0.7",
    ]);
    let v6 = prop::sample::select(vec!["any", "host 2001:db8::9", "2001:db8::/64", "2001:db8:18::/48"]);
    let sides = prop_oneof![(v4.clone(), v4), (v6.clone(), v6)];
    let tail = prop::sample::select(vec!["", " log", " dscp ef", " dscp 1", " vlan 7", " vlan untagged"]);
    let body = prop_oneof![
        (prop::sample::select(vec!["tcp", "udp", "sctp"]), sides.clone(), port.clone(), port.clone())
            .prop_map(|(p, (a, b), x, y)| format!("{p} {a}{x} {b}{y}")),
        (
            sides.clone(),
            port,
            prop::sample::select(vec!["established", "match-all +syn -ack", "match-any +rst -fin"])
        )
            .prop_map(|((a, b), y, o)| format!("tcp {a} {b}{y} {o}")),
        (prop::sample::select(vec!["ip", "tcp", "udp", "gre", "200", "icmp"]), sides.clone(), any::<bool>())
            .prop_map(|(p, (a, b), f)| format!("{p} {a} {b}{}", if f { " fragments" } else { "" })),
        prop::sample::select(vec![
            "icmp any any echo",
            "icmp any any 3 4",
            "icmp6 any any nd-ns",
            "icmp6 any any 1 6",
            "icmp any any 99"
        ])
        .prop_map(str::to_owned),
    ];
    (action, body, tail).prop_map(|(action, body, tail)| format!("{action} {body}{tail}"))
}

/// The list as an operator reads it: rule after rule, condition after condition.
fn naive(acl: &Acl, key: &Key<u32>) -> AclAction {
    let hit = acl.rules.iter().find(|rule| rule.compiled::<u32>(0).iter().any(|r| r.matches(key)));
    hit.map_or(acl.default, |rule| rule.action)
}

proptest! {
    #[test]
    fn rules_are_written_as_they_are_read(text in any_rule()) {
        let first = rule(&text);
        prop_assert_eq!(rule(&first.to_string()), first, "{}", text);
    }

    #[test]
    fn nothing_that_is_read_panics(text in "\\PC{0,60}", words in prop::collection::vec(prop::sample::select(vec![
        "permit", "tcp", "any", "host", "eq", "range", "0", "65536", "10.0.0.0/8", "::/0", "0.0.0.0", "match-any", "+", "-é", "vlan", "dscp", "icmp", "log",
    ]), 0..9)) {
        let _ = parse_line(&text);
        let _ = parse_line(&words.join(" "));
    }

    #[test]
    fn compiled_lists_decide_as_their_rules_say(
        texts in prop::collection::vec(any_rule(), 0..20),
        default in prop::sample::select(vec![AclAction::Permit, AclAction::Deny, AclAction::Reject]),
        picks in prop::collection::vec((0u32..4, 0u32..4, prop::sample::select(vec![1u8, 6, 17, 47, 132]), 0u16..100, 0u16..100, any::<u8>(), 0u8..4), 1..80),
    ) {
        let acl = Acl { name: "x".into(), rules: texts.iter().map(|t| rule(t)).collect(), default };
        let mut writer = AclWriter::default();
        let bound = AclBinding { interface: 0, input: Some("x".into()), output: None };
        writer.replace(vec![acl.clone()], &[bound]).unwrap();
        let mut acls = writer.reader().for_worker();
        let mut workspace = Workspace::default();
        let keys: Vec<Key<u32>> = picks.iter().map(|&(src, dst, protocol, sport, dport, flags, kind)| {
            let address = |n: u32| [0x0a00_0009, 0x0a00_0003, 0xc612_0001, 0x0808_0808][n as usize];
            let key = Key::new(address(src), address(dst), protocol);
            match (kind, protocol) {
                (0, _) => key.with_fragment(false),
                (_, 6) => key.with_ports(sport, dport).with_tcp_flags(flags),
                (_, 1) => key.with_icmp(sport as u8, dport as u8),
                (_, 17 | 132) => key.with_ports(sport, dport).with_dscp(flags >> 2),
                _ => key.with_vlan(7),
            }
        }).collect();
        let mut found = vec![0; keys.len()];
        let (table, _) = acls.get();
        let number = table.bound(Direction::In, 0).unwrap();
        workspace.lookup_batch(<u32 as ListOf>::of(table.list(number).unwrap()), &keys, &mut found);
        for (key, found) in keys.iter().zip(found) {
            prop_assert_eq!(Decision::of(found).action(), naive(&acl, key), "{:?}", key);
        }
    }
}

/// While lists are replaced all the time, each batch meets one of them: never one rule of one and another of the other.
#[test]
fn a_batch_meets_the_old_list_or_the_new_one() {
    let list = |first: &str, second: &str| Acl {
        name: "x".into(),
        rules: parse_rules(&format!("{first} ip 10.0.0.0/8 any\n{second} ip any any")).unwrap(),
        default: AclAction::Deny,
    };
    let (a, b) = (list("permit", "deny"), list("deny", "permit"));
    let bound = [AclBinding { interface: 3, input: Some("x".into()), output: None }];
    let mut writer = AclWriter::default();
    writer.replace(vec![a.clone()], &bound).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (mut acls, stop) = (writer.reader().for_worker(), stop.clone());
            std::thread::spawn(move || {
                let mut workspace = Workspace::default();
                let keys = [Key::new(0x0a00_0001u32, 1, 17), Key::new(0x0b00_0001, 1, 17)];
                let (mut met, mut found) = ([0u64; 2], [0; 2]);
                while !stop.load(Relaxed) {
                    let (table, worker) = acls.get();
                    let list = table.list(table.bound(Direction::In, 3).unwrap()).unwrap();
                    workspace.lookup_batch(<u32 as ListOf>::of(list), &keys, &mut found);
                    let [x, y] = found.map(Decision::of);
                    list.row(worker).add(x, 100);
                    assert_ne!(x.action(), y.action(), "a mix of two lists");
                    met[usize::from(x.action() == AclAction::Permit)] += 1;
                }
                met
            })
        })
        .collect();
    for i in 0..3000 {
        writer.replace(vec![if i % 2 == 0 { b.clone() } else { a.clone() }], &bound).unwrap();
    }
    stop.store(true, Relaxed);
    let met: Vec<[u64; 2]> = readers.into_iter().map(|r| r.join().unwrap()).collect();
    assert!(met.iter().flatten().sum::<u64>() > 0, "{met:?}");
    writer.collect();
}

#[test]
fn lists_that_stay_keep_their_counters_and_mistakes_change_nothing() {
    let list = |name: &str, text: &str| Acl {
        name: name.into(),
        rules: parse_rules(text).unwrap(),
        default: AclAction::Deny,
    };
    let bound =
        |name: &str| [AclBinding { interface: 1, input: Some(name.into()), output: Some(name.into()) }];
    let mut writer = AclWriter::default();
    writer.replace(vec![list("a", "permit ip any any"), list("b", "deny ip any any")], &bound("a")).unwrap();
    let mut acls = writer.reader().for_worker();
    let count = |acls: &mut Acls, n: u64| {
        let (table, worker) = acls.get();
        let list = table.list(table.bound(Direction::Out, 1).unwrap()).unwrap();
        (0..n).for_each(|_| list.row(worker).add(Decision::of(0), 60));
    };
    count(&mut acls, 3);
    let of = |writer: &AclWriter, name: &str| {
        let views = writer.views();
        let rule = views.iter().find(|v| v.name == name).unwrap().rules[0].clone();
        (rule.packets, rule.bytes)
    };
    assert_eq!(of(&writer, "a"), (3, 180));
    writer
        .replace(vec![list("c", "permit tcp any any"), list("a", "permit ip any any")], &bound("a"))
        .unwrap();
    count(&mut acls, 1);
    assert_eq!((of(&writer, "a"), of(&writer, "c")), ((4, 240), (0, 0)));
    let twice = writer.replace(vec![list("a", ""), list("a", "")], &[]).unwrap_err();
    assert_eq!(twice, AclError::Twice("a".into()));
    let none = writer.replace(vec![list("a", "")], &bound("z")).unwrap_err();
    assert_eq!(none, AclError::NoList { interface: 1, list: "z".into() });
    assert_eq!(of(&writer, "a"), (4, 240), "as it was");
    let texts: Vec<String> = writer.views()[0].rules.iter().map(|r| r.text.clone()).collect();
    assert_eq!(
        texts,
        ["permit tcp any any", "(permit icmp6 any any nd-ns, nd-na)", "(deny everything else)"]
    );
}

//! Rules of access lists as TOML tables: the same conditions as in a line of text, by name.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use linerate_router::acl::{
    AclAction, AclLine, AclRule, ESTABLISHED, FLAGS, TcpMatch, parse_line, words as acl_words,
};
use linerate_tables::classifier::Vlan;

use super::decode::{At, Item, Section};

/// A rule. What is wrong has been noted.
pub(super) fn table(mut s: Section<'_>) -> Option<AclRule> {
    let (at, key, source) = (s.at, s.key.clone(), s.source);
    let mut rule = AclRule::default();
    let mut good = true;
    let action = s.need("action", "\"permit\", \"deny\" or \"reject\"").and_then(|i| i.word(&AclAction::ALL));
    match action {
        Some(action) => rule.action = action.value,
        None => good = false,
    }
    let mut apply = |found: Option<Option<()>>| good &= found != Some(None);
    apply(s.take("protocol").map(|i| {
        let what = "a protocol such as \"tcp\" or a number to 255";
        (rule.family, rule.protocol) = word(&i, what, acl_words::protocol)?.value;
        Some(())
    }));
    apply(s.take("src").map(|i| prefix(&i).map(|p| rule.src = p)));
    apply(s.take("dst").map(|i| prefix(&i).map(|p| rule.dst = p)));
    apply(s.take("src_port").map(|i| ports(&i).map(|p| rule.src_ports = p)));
    apply(s.take("dst_port").map(|i| ports(&i).map(|p| rule.dst_ports = p)));
    apply(s.take("tcp_flags").map(|i| flags(&i).map(|f| rule.tcp = Some(f))));
    let icmp = s.take("icmp");
    apply(s.take("fragments").map(|i| i.bool().map(|b| rule.fragments = b.value)));
    apply(s.take("vlan").map(|i| {
        let vlan = if i.is_string() {
            i.word(&[("untagged", Vlan::Untagged)])?.value
        } else {
            Vlan::Id(i.number(1..=4094, "a VLAN id")?.value)
        };
        rule.vlan = Some(vlan);
        Some(())
    }));
    apply(s.take("dscp").map(|i| {
        rule.dscp = Some(word(&i, "a DSCP: a number to 63 or a name such as \"ef\"", acl_words::dscp)?.value);
        Some(())
    }));
    apply(s.take("log").map(|i| i.bool().map(|b| rule.log = b.value)));
    apply(s.take("description").map(|i| i.string("a description").map(|d| rule.remark = d.value)));
    apply(icmp.map(|i| {
        let text = word(&i, "an ICMP type: a name such as \"echo\", or \"TYPE\" or \"TYPE CODE\"", |w| {
            let line =
                format!("permit {} any any {w}", if rule.protocol == Some(58) { "icmp6" } else { "icmp" });
            match parse_line(&line) {
                Ok(AclLine::Rule(_, found)) if found.icmp.is_some() => Some((found.protocol, found.icmp)),
                _ => None,
            }
        })?;
        rule.protocol = rule.protocol.or(text.value.0);
        rule.icmp = text.value.1;
        Some(())
    }));
    s.finish();
    if !good {
        return None;
    }
    match rule.check() {
        Ok(()) => Some(rule),
        Err(e) => {
            source.problem(at, key, e.to_string());
            None
        }
    }
}

/// A word, or a number that is read as one.
fn word<T>(item: &Item<'_>, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<At<T>> {
    let text = if item.is_string() {
        item.string(what)?
    } else {
        item.number(0..=u32::from(u16::MAX), what)?.map(|n| n.to_string())
    };
    match read(&text.value) {
        Some(value) => Some(text.map(|_| value)),
        None => {
            item.expected(what);
            None
        }
    }
}

/// `Some(None)` is any.
fn prefix(item: &Item<'_>) -> Option<Option<IpNet>> {
    let what = "\"any\", an address, or a prefix such as \"198.51.100.0/24\" without host bits";
    let read = |w: &str| match w {
        "any" => Some(None),
        _ => {
            let net = w.parse::<IpNet>().or_else(|_| w.parse::<IpAddr>().map(IpNet::from));
            net.ok().filter(|net| net.trunc() == *net).map(Some)
        }
    };
    word(item, what, read).map(|net| net.value)
}

/// A port, a range, or a list of ports.
fn ports(item: &Item<'_>) -> Option<Vec<RangeInclusive<u16>>> {
    let what = "a port such as 443 or \"https\", a range such as \"1024-65535\", or a list of ports";
    if item.is_list() {
        let list = item.list(what)?;
        let ports: Vec<_> = list.iter().filter_map(|i| word(i, "a port", acl_words::port)).collect();
        if list.is_empty() || ports.len() > 16 {
            item.expected("1 to 16 ports");
            return None;
        }
        return (ports.len() == list.len()).then(|| ports.iter().map(|p| p.value..=p.value).collect());
    }
    let read = |w: &str| {
        if let Some(port) = acl_words::port(w) {
            return Some(port..=port);
        }
        let (first, last) = w.split_once('-')?;
        let (first, last) = (acl_words::port(first.trim())?, acl_words::port(last.trim())?);
        (first <= last).then_some(first..=last)
    };
    word(item, what, read).map(|range| vec![range.value])
}

/// `"established"`, or flags that must be set, or not set (`!`).
fn flags(item: &Item<'_>) -> Option<TcpMatch> {
    let what = "\"established\", or TCP flags such as \"syn,!ack\"";
    let read = |w: &str| {
        if w == "established" {
            return Some(TcpMatch::Any { set: ESTABLISHED, unset: 0 });
        }
        let (mut set, mut unset) = (0, 0);
        for name in w.split(',').map(str::trim) {
            let (name, side) = match name.strip_prefix('!') {
                Some(name) => (name, &mut unset),
                None => (name, &mut set),
            };
            *side |= FLAGS.iter().find(|(n, _)| *n == name)?.1;
        }
        Some(TcpMatch::All { set, unset })
    };
    word(item, what, read).map(|flags| flags.value)
}

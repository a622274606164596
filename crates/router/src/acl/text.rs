//! Rules as text, in the words of IOS: `permit tcp 10.0.0.0/8 any eq 443`.
//!
//! ```text
//! LINE     = [NUMBER] ACTION PROTOCOL ADDRESS [PORTS] ADDRESS [PORTS] OPTION... | [NUMBER] remark TEXT
//! ACTION   = permit | deny | reject
//! PROTOCOL = ip | ipv4 | ipv6 | tcp | udp | icmp | icmp6 | ... | 0-255
//! ADDRESS  = any | host ADDRESS | PREFIX/LENGTH | IPV4 WILDCARD
//! PORTS    = eq PORT... | neq PORT | lt PORT | gt PORT | range PORT PORT
//! OPTION   = ICMPTYPE [CODE] | established | match-all {+|-}FLAG... | match-any {+|-}FLAG... | fragments
//!          | vlan ID | vlan untagged | dscp DSCP | log
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use linerate_tables::classifier::{Icmp, Vlan};

use super::rule::{AclAction, AclFamily, AclRule, ESTABLISHED, FLAGS, TcpMatch};
use super::words::{self, dscp, number, port, protocol, word};

/// Ports at most after `eq`.
const MAX_EQ: usize = 16;

/// What is wrong with a line: where, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AclTextError {
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What was found, and what was expected.
    pub message: String,
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclLine {
    /// A rule, with its sequence number where it has one.
    Rule(Option<u32>, Box<AclRule>),
    /// A remark about the next rule.
    Remark(String),
    /// Nothing: empty, or a comment (`#`, `!`).
    Nothing,
}

/// Reads a line.
pub fn parse_line(line: &str) -> Result<AclLine, AclTextError> {
    let text = line.split(['#', '!']).next().unwrap_or_default();
    let mut words = Words::new(text);
    let sequence = match words.peek().and_then(|w| w.parse().ok()) {
        Some(n) => {
            words.next();
            Some(n)
        }
        None => None,
    };
    match words.peek() {
        None if sequence.is_none() => return Ok(AclLine::Nothing),
        Some("remark") => {
            words.next();
            // A remark may contain what otherwise begins a comment.
            let rest = line.get(words.at..).unwrap_or_default();
            return Ok(AclLine::Remark(rest.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        _ => {}
    }
    let rule = rule(&mut words)?;
    Ok(AclLine::Rule(sequence, Box::new(rule)))
}

/// Reads a whole list, line by line. A remark belongs to the rule that follows; sequence numbers, where there are any, ascend.
/// All errors with their lines, counted from 1.
pub fn parse_rules(text: &str) -> Result<Vec<AclRule>, Vec<(u64, AclTextError)>> {
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    let (mut remark, mut last) = (String::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        match parse_line(line) {
            Ok(AclLine::Nothing) => {}
            Ok(AclLine::Remark(text)) => remark = text,
            Ok(AclLine::Rule(sequence, rule)) => {
                if let (Some(sequence), Some(last)) = (sequence, last)
                    && sequence <= last
                {
                    let message = format!(
                        "found the sequence number {sequence} behind {last}: expected rules in order"
                    );
                    errors.push((number, AclTextError { column: 1, message }));
                }
                last = sequence.or(last);
                rules.push(AclRule { remark: std::mem::take(&mut remark), ..*rule });
            }
            Err(error) => errors.push((number, error)),
        }
    }
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// The words of a line with their places.
struct Words<'a> {
    text: &'a str,
    /// Behind the word taken last.
    at: usize,
    /// Where the word taken last begins.
    last: usize,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Words { text, at: 0, last: 0 }
    }

    /// The next word and where it begins.
    fn look(&self) -> Option<(usize, &'a str)> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.find(|c: char| !c.is_whitespace())?;
        let word = self.text.get(start..)?.split_whitespace().next()?;
        Some((start, word))
    }

    fn peek(&self) -> Option<&'a str> {
        self.look().map(|(_, word)| word)
    }

    fn next(&mut self) -> Option<&'a str> {
        let (start, word) = self.look()?;
        (self.last, self.at) = (start, start + word.len());
        Some(word)
    }

    /// Takes the next word if it is this one.
    fn eat(&mut self, wanted: &str) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    /// The next word as `parse` reads it.
    fn need<T>(&mut self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, AclTextError> {
        let Some((start, word)) = self.look() else {
            let message = format!("the rule ends here: expected {expected}");
            return Err(self.error(self.text.trim_end().len(), message));
        };
        let parsed = parse(word).ok_or_else(|| self.found(start, word, expected))?;
        self.next();
        Ok(parsed)
    }

    fn found(&self, at: usize, word: &str, expected: &str) -> AclTextError {
        let shown: String = word.chars().take(40).collect();
        self.error(at, format!("found `{}`: expected {expected}", shown.escape_debug()))
    }

    fn error(&self, at: usize, message: String) -> AclTextError {
        let column = self.text.get(..at).map_or(0, |before| before.chars().count()) + 1;
        AclTextError { column, message }
    }
}

fn rule(words: &mut Words<'_>) -> Result<AclRule, AclTextError> {
    let action = words.need("permit, deny or reject", |w| number(&AclAction::ALL, w))?;
    let expected = "a protocol: ip, ipv4, ipv6, tcp, udp, icmp, icmp6, another name, or a number to 255";
    let (family, protocol) = words.need(expected, protocol)?;
    let mut rule = AclRule { action, family, protocol, ..AclRule::default() };
    rule.src = address(words, "a source")?;
    rule.src_ports = ports(words)?;
    rule.dst = address(words, "a destination")?;
    rule.dst_ports = ports(words)?;
    while let Some((at, word)) = words.look() {
        option(&mut rule, words, at, word)?;
    }
    let end = words.last;
    rule.check().map_err(|e| words.error(end, e.to_string()))?;
    Ok(rule)
}

fn address(words: &mut Words<'_>, what: &str) -> Result<Option<IpNet>, AclTextError> {
    if words.eat("any") {
        return Ok(None);
    }
    if words.eat("host") {
        return words.need("an IP address", |w| w.parse::<IpAddr>().ok()).map(|a| Some(a.into()));
    }
    let (at, text) = words.look().unwrap_or((words.text.trim_end().len(), ""));
    let expected = format!("{what}: any, host ADDRESS, or a prefix such as 198.51.100.0/24");
    let net = words
        .need(&expected, |w| w.parse::<IpNet>().ok().or_else(|| w.parse::<IpAddr>().ok().map(IpNet::from)))?;
    let net = match (net, words.look()) {
        (IpNet::V4(host), Some((at, next))) if !text.contains('/') && next.parse::<Ipv4Addr>().is_ok() => {
            let wildcard = next.parse::<Ipv4Addr>().map_or(0, Ipv4Addr::to_bits);
            words.next();
            let Some(len) = prefix_of(wildcard) else {
                let expected = "a wildcard whose ones are all at the end, such as 0.0.0.255";
                return Err(words.found(at, next, expected));
            };
            IpNet::new(host.addr().into(), len).unwrap_or(net)
        }
        _ => net,
    };
    if net.trunc() != net {
        return Err(words.found(at, text, &format!("no bits set behind the prefix: {}", net.trunc())));
    }
    Ok(Some(net))
}

/// The prefix length that a wildcard of IOS means.
fn prefix_of(wildcard: u32) -> Option<u8> {
    let ones = wildcard.trailing_ones();
    (wildcard.checked_shr(ones).unwrap_or(0) == 0).then_some(32 - ones as u8)
}

fn ports(words: &mut Words<'_>) -> Result<Vec<RangeInclusive<u16>>, AclTextError> {
    const EXPECTED: &str = "a port: a number to 65535 or a name such as https";
    let one = |words: &mut Words<'_>| words.need(EXPECTED, port);
    let Some((at, how)) = words.look() else { return Ok(Vec::new()) };
    let take = matches!(how, "eq" | "neq" | "lt" | "gt" | "range");
    if !take {
        return Ok(Vec::new());
    }
    words.next();
    let first = one(words)?;
    Ok(match how {
        "eq" => {
            let mut all = vec![first..=first];
            // What follows is a port only where it cannot be an address or an option.
            while let Some(next) = words.peek().and_then(port) {
                words.next();
                if all.len() == MAX_EQ {
                    return Err(words.error(words.last, format!("more than {MAX_EQ} ports after eq")));
                }
                all.push(next..=next);
            }
            all
        }
        "neq" => {
            let below = first.checked_sub(1).map(|last| 0..=last);
            let above = first.checked_add(1).map(|first| first..=u16::MAX);
            below.into_iter().chain(above).collect()
        }
        "lt" => match first.checked_sub(1) {
            Some(last) => vec![0..=last],
            None => return Err(words.found(at, "lt 0", "a port above 0: no port is less")),
        },
        "gt" => match first.checked_add(1) {
            Some(first) => vec![first..=u16::MAX],
            None => return Err(words.found(at, "gt 65535", "a port below 65535: no port is greater")),
        },
        _ => {
            let (at, text) = words.look().unwrap_or((words.text.len(), ""));
            let last = one(words)?;
            if last < first {
                return Err(words.found(
                    at,
                    text,
                    &format!("a port from {first} on: the lower one is first"),
                ));
            }
            vec![first..=last]
        }
    })
}

fn option(rule: &mut AclRule, words: &mut Words<'_>, at: usize, word: &str) -> Result<(), AclTextError> {
    if let Some(icmp) = icmp(rule, word) {
        words.next();
        rule.icmp = Some(icmp);
        if icmp.code.is_none()
            && word.parse::<u8>().is_ok()
            && let Some(code) = words.peek().and_then(|w| w.parse().ok())
        {
            words.next();
            rule.icmp = Some(Icmp { code: Some(code), ..icmp });
        }
        return Ok(());
    }
    match word {
        "established" => {
            words.next();
            rule.tcp = Some(TcpMatch::Any { set: ESTABLISHED, unset: 0 });
        }
        "match-all" | "match-any" => {
            words.next();
            let (mut set, mut unset) = (0, 0);
            while let Some(next) = words.peek().filter(|w| w.starts_with(['+', '-'])) {
                let bit = words.need("a TCP flag: +fin, +syn, -ack …", |w| number(&FLAGS, w.get(1..)?))?;
                *(if next.starts_with('+') { &mut set } else { &mut unset }) |= bit;
            }
            if set | unset == 0 {
                return words.need("TCP flags such as +syn -ack", |_| None::<()>);
            }
            let all = word == "match-all";
            rule.tcp = Some(if all { TcpMatch::All { set, unset } } else { TcpMatch::Any { set, unset } });
        }
        "fragments" => {
            words.next();
            rule.fragments = true;
        }
        "log" | "log-input" => {
            words.next();
            rule.log = true;
        }
        "vlan" => {
            words.next();
            let id = |w: &str| w.parse().ok().filter(|id| (1..=4094).contains(id)).map(Vlan::Id);
            let vlan = |w: &str| if w == "untagged" { Some(Vlan::Untagged) } else { id(w) };
            rule.vlan = Some(words.need("a VLAN id from 1 to 4094, or untagged", vlan)?);
        }
        "dscp" => {
            words.next();
            rule.dscp = Some(words.need("a DSCP: a number to 63 or a name such as ef", dscp)?);
        }
        _ => {
            let icmp = if matches!(rule.protocol, Some(1 | 58)) { "an ICMP type, " } else { "" };
            let expected = format!(
                "{icmp}established, match-all, match-any, fragments, vlan, dscp, log, or nothing more"
            );
            return Err(words.found(at, word, &expected));
        }
    }
    Ok(())
}

fn icmp_words(protocol: Option<u8>) -> &'static [(&'static str, u8, Option<u8>)] {
    match protocol {
        Some(1) => words::ICMP,
        Some(58) => words::ICMPV6,
        _ => &[],
    }
}

/// An ICMP type, by name or number, for a rule of that protocol without one.
pub(super) fn icmp(rule: &AclRule, word: &str) -> Option<Icmp> {
    let words = icmp_words(rule.protocol);
    if words.is_empty() || rule.icmp.is_some() {
        return None;
    }
    let named =
        words.iter().find(|(w, ..)| *w == word).map(|(_, kind, code)| Icmp { kind: *kind, code: *code });
    named.or_else(|| Some(Icmp { kind: word.parse().ok()?, code: None }))
}

/// As [`parse_line`] reads it again; the remark is left out.
impl fmt::Display for AclRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.action.name())?;
        match (self.family, self.protocol) {
            (AclFamily::Ip4, None) => f.write_str("ipv4")?,
            (AclFamily::Ip6, None) => f.write_str("ipv6")?,
            (_, None) => f.write_str("ip")?,
            (_, Some(p)) => match word(words::PROTOCOLS, p) {
                Some(name) => f.write_str(name)?,
                None => write!(f, "{p}")?,
            },
        }
        for (net, ports) in [(&self.src, &self.src_ports), (&self.dst, &self.dst_ports)] {
            match net {
                None => f.write_str(" any")?,
                Some(net) if net.prefix_len() == net.max_prefix_len() => write!(f, " host {}", net.addr())?,
                Some(net) => write!(f, " {net}")?,
            }
            write_ports(ports, f)?;
        }
        if let Some(Icmp { kind, code }) = self.icmp {
            match (icmp_words(self.protocol).iter().find(|(_, k, c)| (*k, *c) == (kind, code)), code) {
                (Some((name, ..)), _) => write!(f, " {name}")?,
                (None, None) => write!(f, " {kind}")?,
                (None, Some(code)) => write!(f, " {kind} {code}")?,
            }
        }
        match self.tcp {
            None => {}
            Some(TcpMatch::Any { set: ESTABLISHED, unset: 0 }) => f.write_str(" established")?,
            Some(TcpMatch::All { set, unset }) => write_flags("match-all", set, unset, f)?,
            Some(TcpMatch::Any { set, unset }) => write_flags("match-any", set, unset, f)?,
        }
        if self.fragments {
            f.write_str(" fragments")?;
        }
        match self.vlan {
            None => {}
            Some(Vlan::Untagged) => f.write_str(" vlan untagged")?,
            Some(Vlan::Id(id)) => write!(f, " vlan {id}")?,
        }
        match self.dscp.map(|d| (d, word(words::DSCPS, d))) {
            None => {}
            Some((_, Some(name))) => write!(f, " dscp {name}")?,
            Some((number, None)) => write!(f, " dscp {number}")?,
        }
        f.write_str(if self.log { " log" } else { "" })
    }
}

fn write_ports(ports: &[RangeInclusive<u16>], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let show = |port: u16| word(words::PORTS, port).map_or_else(|| port.to_string(), str::to_owned);
    match ports {
        [] => Ok(()),
        [below, above]
            if *below.start() == 0
                && *above.end() == u16::MAX
                && u32::from(*below.end()) + 2 == u32::from(*above.start()) =>
        {
            write!(f, " neq {}", show(below.end() + 1))
        }
        [one] if one.start() == one.end() => write!(f, " eq {}", show(*one.start())),
        [one] => write!(f, " range {} {}", one.start(), one.end()),
        many => {
            f.write_str(" eq")?;
            many.iter().try_for_each(|p| write!(f, " {}", show(*p.start())))
        }
    }
}

fn write_flags(how: &str, set: u8, unset: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {how}")?;
    for (name, bit) in FLAGS {
        if set & bit != 0 {
            write!(f, " +{name}")?;
        }
        if unset & bit != 0 {
            write!(f, " -{name}")?;
        }
    }
    Ok(())
}

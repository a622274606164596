//! Generated rules and keys for tests and benchmarks, in the manner of ClassBench (Taylor and Turner, INFOCOM 2005).
//!
//! ClassBench draws rules from statistics of real filters: which pairs of prefix lengths occur, how ports are given for each
//! protocol, how strongly addresses share prefixes. The tables below have the main features of its three families (access
//! lists, firewalls, Linux chains), in round numbers; no seed file is read. The same arguments give the same rules.

use super::{ALL_PORTS, Icmp, Key, Rule, Shape, TcpFlags};
use crate::prefix::Prefix;
use std::ops::RangeInclusive;

/// A family of rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Access lists: mostly pairs of hosts and small networks, destination ports of services.
    Acl,
    /// Firewalls: one side is often any, ports of either side, TCP flags.
    Firewall,
    /// Linux chains: something of both, many prefix lengths.
    Chain,
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): repeatable.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Weight, shortest and longest source prefix, shortest and longest destination prefix; in IPv4 lengths.
type Pair = (u32, [u8; 2], [u8; 2]);

/// Weight, and how ports are given.
type PortClass = (u32, Ports, Ports);

/// How a port is given.
#[derive(Clone, Copy)]
enum Ports {
    Any,
    /// 1024–65535.
    High,
    /// One of the services.
    Service,
    /// A range somewhere.
    Range,
}

/// What makes a profile.
struct Statistics {
    pairs: &'static [Pair],
    ports: &'static [PortClass],
    /// Weight and protocol; 0 is any.
    protocols: &'static [(u32, u8)],
    /// Percent of TCP rules that look at flags.
    flags: usize,
}

impl Profile {
    /// All three.
    pub const ALL: [Profile; 3] = [Profile::Acl, Profile::Firewall, Profile::Chain];

    /// As in ClassBench's file names.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Acl => "acl",
            Profile::Firewall => "fw",
            Profile::Chain => "ipc",
        }
    }

    fn statistics(self) -> Statistics {
        use Ports::{Any, High, Range, Service};
        match self {
            Profile::Acl => Statistics {
                pairs: &[
                    (50, [32, 32], [32, 32]),
                    (17, [28, 31], [32, 32]),
                    (16, [32, 32], [28, 31]),
                    (5, [21, 24], [32, 32]),
                    (5, [32, 32], [20, 24]),
                    (3, [23, 31], [23, 31]),
                    (2, [0, 0], [24, 32]),
                    (1, [13, 16], [8, 24]),
                    (1, [0, 8], [0, 8]),
                ],
                ports: &[(31, Any, Any), (55, Any, Service), (10, Any, Range), (4, Any, High)],
                protocols: &[(87, 6), (8, 0), (3, 1), (2, 17)],
                flags: 10,
            },
            Profile::Firewall => Statistics {
                pairs: &[
                    (33, [0, 1], [31, 32]),
                    (8, [0, 1], [24, 30]),
                    (12, [31, 32], [0, 1]),
                    (8, [24, 30], [0, 1]),
                    (14, [32, 32], [32, 32]),
                    (16, [27, 31], [27, 31]),
                    (6, [16, 24], [28, 32]),
                    (2, [8, 21], [8, 21]),
                    (1, [0, 0], [0, 0]),
                ],
                ports: &[
                    (25, Any, Any),
                    (52, Any, Service),
                    (12, Service, Any),
                    (7, High, High),
                    (3, High, Service),
                    (1, Any, Range),
                ],
                protocols: &[(57, 6), (32, 17), (6, 47), (4, 1), (1, 0)],
                flags: 96,
            },
            Profile::Chain => Statistics {
                pairs: &[
                    (25, [32, 32], [32, 32]),
                    (12, [28, 31], [32, 32]),
                    (12, [32, 32], [28, 31]),
                    (10, [23, 25], [32, 32]),
                    (10, [32, 32], [23, 25]),
                    (15, [22, 26], [22, 26]),
                    (6, [22, 28], [0, 2]),
                    (6, [0, 2], [22, 32]),
                    (3, [15, 18], [15, 18]),
                    (1, [0, 1], [0, 1]),
                ],
                ports: &[
                    (38, Any, Any),
                    (32, Any, Service),
                    (10, Service, Any),
                    (7, Service, Service),
                    (7, Any, High),
                    (6, Any, Range),
                ],
                protocols: &[(34, 0), (38, 17), (26, 6), (2, 1)],
                flags: 41,
            },
        }
    }
}

impl Rng {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an endless stream is no iterator worth the name")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Below `n`, small numbers more often: uniform in the logarithm, which is Zipf's law with exponent 1.
    pub fn zipf(&mut self, n: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (((n as f64 + 1.0).ln() * unit).exp() as usize).saturating_sub(1).min(n - 1)
    }

    fn pick<'a, T>(&mut self, of: &'a [T], weight: impl Fn(&T) -> u32) -> Option<&'a T> {
        let total: u32 = of.iter().map(&weight).sum();
        let mut at = self.below(total as usize) as u32;
        of.iter().find(|item| {
            let weight = weight(item);
            let here = at < weight;
            at = at.wrapping_sub(weight);
            here
        })
    }
}

/// An address family that addresses can be drawn for.
pub trait Drawn: Shape {
    /// From 128 random bits.
    fn from_bits(bits: u128) -> Self;
    /// What a prefix length of IPv4 becomes.
    fn length(ip4: u8) -> u8;
}

impl Drawn for u32 {
    fn from_bits(bits: u128) -> Self {
        (bits >> 96) as u32
    }
    fn length(ip4: u8) -> u8 {
        ip4
    }
}

impl Drawn for u128 {
    /// Within 2000::/3.
    fn from_bits(bits: u128) -> Self {
        bits >> 3 | 1 << 125
    }
    /// Hosts stay hosts; a /16 becomes a /32, a /24 a /48, a /31 about a /64.
    fn length(ip4: u8) -> u8 {
        match ip4 {
            32 => 128,
            0..=3 => ip4,
            _ => (2 * ip4).min(64),
        }
    }
}

/// `n` rules; actions count from 1. Rules with longer prefixes tend to come first, as in lists that make sense. With `more`, a
/// share of the rules looks at TCP flags and ICMP types; without, at the five-tuple only.
pub fn rules<A: Drawn>(profile: Profile, n: usize, seed: u64, more: bool) -> Vec<Rule<A>> {
    let mut rng = Rng::new(seed ^ (profile as u64) << 32 ^ u64::from(A::BITS));
    let statistics = profile.statistics();
    // Addresses that rules share, and networks that addresses share.
    let networks: Vec<u128> = (0..n / 40 + 4).map(|_| bits(&mut rng)).collect();
    let mut pool = || -> Vec<A> {
        (0..n / 2 + 8)
            .map(|_| {
                let network = networks[rng.zipf(networks.len())];
                let keep = [12, 16, 20, 22][rng.below(4)];
                A::from_bits(network & (u128::MAX << (128 - keep)) | bits(&mut rng) >> keep)
            })
            .collect()
    };
    let sides = [pool(), pool()];
    let services: Vec<u16> = [80, 443, 53, 22, 25, 123, 161, 1521, 1433, 110, 21, 23, 69, 514, 389, 88]
        .into_iter()
        .chain((0..60).map(|_| 1 << 10 | rng.next() as u16 >> 2))
        .collect();
    let mut rules: Vec<Rule<A>> =
        (0..n).map(|_| rule(&statistics, &sides, &services, &mut rng, more)).collect();
    rules.sort_by_key(|rule| {
        std::cmp::Reverse((u32::from(rule.src.len()) + u32::from(rule.dst.len())) * 4 / u32::from(A::BITS))
    });
    for (rule, action) in rules.iter_mut().zip(1..) {
        rule.action = action;
    }
    rules
}

fn bits(rng: &mut Rng) -> u128 {
    u128::from(rng.next()) << 64 | u128::from(rng.next())
}

fn rule<A: Drawn>(
    s: &Statistics,
    sides: &[Vec<A>; 2],
    services: &[u16],
    rng: &mut Rng,
    more: bool,
) -> Rule<A> {
    let mut rule = Rule::any(0);
    if let Some((_, src, dst)) = rng.pick(s.pairs, |pair| pair.0) {
        let mut prefix = |of: &[A], lengths: &[u8; 2]| {
            let len = lengths[0] + rng.below(usize::from(lengths[1] - lengths[0]) + 1) as u8;
            let addr = of[if rng.below(2) == 0 { rng.zipf(of.len()) } else { rng.below(of.len()) }];
            Prefix::new(addr, A::length(len)).unwrap_or_else(Prefix::all)
        };
        (rule.src, rule.dst) = (prefix(&sides[0], src), prefix(&sides[1], dst));
    }
    let protocol = rng.pick(s.protocols, |p| p.0).map_or(0, |p| p.1);
    rule.protocol = match protocol {
        0 => None,
        1 => Some(A::ICMP),
        other => Some(other),
    };
    if matches!(protocol, 6 | 17)
        && let Some(&(_, src, dst)) = rng.pick(s.ports, |class| class.0)
    {
        (rule.src_ports, rule.dst_ports) = (ports(src, services, rng), ports(dst, services, rng));
    }
    if more && protocol == 6 && rng.below(100) < s.flags {
        let masks = [(0x02, 0x12), (0x10, 0x10), (0x00, 0x02)];
        let (value, mask) = masks[rng.below(masks.len())];
        rule.tcp_flags = Some(TcpFlags { value, mask });
    }
    if more && protocol == 1 {
        rule.icmp = Some(Icmp { kind: rng.below(16) as u8, code: [None, Some(0), Some(4)][rng.below(3)] });
    }
    rule
}

fn ports(how: Ports, services: &[u16], rng: &mut Rng) -> RangeInclusive<u16> {
    match how {
        Ports::Any => ALL_PORTS,
        Ports::High => 1024..=u16::MAX,
        Ports::Service => {
            let port = services[rng.zipf(services.len())];
            port..=port
        }
        Ports::Range => {
            let first = 1000 + rng.below(60_000) as u16;
            first..=first.saturating_add([7, 9, 49, 99, 1023][rng.below(5)])
        }
    }
}

/// A key that matches a rule (which must be one that can match); what the rule leaves open is random. Packets of any
/// protocol have ports here, unless the rule asks for ICMP or later fragments.
pub fn key_in<A: Drawn>(rule: &Rule<A>, rng: &mut Rng) -> Key<A> {
    use super::{Fragment, Vlan};
    let mut inside =
        |prefix: Prefix<A>| prefix.first().or(A::from_bits(bits(rng)).and(A::mask(prefix.len()).not()));
    let (src, dst) = (inside(rule.src), inside(rule.dst));
    let tcp = rule.tcp_flags.map(|_| 6);
    let icmp = rule.icmp.map(|_| A::ICMP);
    let protocol = rule.protocol.or(tcp).or(icmp).unwrap_or([6, 17, 6, 132, 47][rng.below(5)]);
    let mut key = Key::new(src, dst, protocol);
    let mut port = |range: &RangeInclusive<u16>| {
        range.start() + rng.below(usize::from(range.end() - range.start()) + 1) as u16
    };
    let later = rule.fragment == Fragment::NonInitial;
    if let Some(Icmp { kind, code }) = rule.icmp {
        key = key.with_icmp(kind, code.unwrap_or(3));
    } else if !later {
        key = key.with_ports(port(&rule.src_ports), port(&rule.dst_ports));
        let flags = rule.tcp_flags.unwrap_or(TcpFlags { value: 0, mask: 0 });
        key = key.with_tcp_flags(rng.next() as u8 & !flags.mask | flags.value);
    }
    if matches!(rule.fragment, Fragment::Part | Fragment::NonInitial) {
        key = key.with_fragment(!later);
    }
    match rule.vlan {
        Some(Vlan::Id(id)) => key = key.with_vlan(id),
        None if rng.below(4) == 0 => key = key.with_vlan(rng.next() as u16),
        _ => {}
    }
    key.with_dscp(rule.dscp.unwrap_or_else(|| [0, 0, 46, 34][rng.below(4)]))
}

/// A key of random addresses, protocol TCP or UDP, and random ports.
pub fn key_anywhere<A: Drawn>(rng: &mut Rng) -> Key<A> {
    tuple_anywhere(rng).key()
}

/// A five-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// IP protocol.
    pub protocol: u8,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl<A: Drawn> Tuple<A> {
    /// As a key that has nothing else.
    pub fn key(&self) -> Key<A> {
        Key::new(self.src, self.dst, self.protocol).with_ports(self.src_port, self.dst_port)
    }
}

/// A five-tuple that matches a rule without other conditions.
pub fn tuple_in<A: Drawn>(rule: &Rule<A>, rng: &mut Rng) -> Tuple<A> {
    let mut inside =
        |prefix: Prefix<A>| prefix.first().or(A::from_bits(bits(rng)).and(A::mask(prefix.len()).not()));
    let (src, dst) = (inside(rule.src), inside(rule.dst));
    let mut port = |range: &RangeInclusive<u16>| {
        range.start() + rng.below(usize::from(range.end() - range.start()) + 1) as u16
    };
    let (src_port, dst_port) = (port(&rule.src_ports), port(&rule.dst_ports));
    Tuple {
        src,
        dst,
        protocol: rule.protocol.unwrap_or([6, 17, 6, 132, 47][rng.below(5)]),
        src_port,
        dst_port,
    }
}

/// Random addresses, protocol TCP or UDP, and random ports.
pub fn tuple_anywhere<A: Drawn>(rng: &mut Rng) -> Tuple<A> {
    let (src, dst) = (A::from_bits(bits(rng)), A::from_bits(bits(rng)));
    Tuple {
        src,
        dst,
        protocol: [6, 17][rng.below(2)],
        src_port: rng.next() as u16,
        dst_port: rng.next() as u16,
    }
}

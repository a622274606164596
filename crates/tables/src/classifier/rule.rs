//! What is matched: rules as an operator writes them.

use super::key::{Key, Shape, Words, opt};
use crate::prefix::Prefix;
use std::ops::RangeInclusive;

/// What a match returns. The classifier gives it no meaning.
pub type ActionId = u32;

/// One rule: everything it names must hold. [`Rule::any`] names nothing; change what matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<A: Shape> {
    /// Source address.
    pub src: Prefix<A>,
    /// Destination address.
    pub dst: Prefix<A>,
    /// IP protocol (IPv6: the first next header that is no extension header).
    pub protocol: Option<u8>,
    /// Source port, both ends included. [`ALL_PORTS`] also takes packets without ports, any other range does not.
    pub src_ports: RangeInclusive<u16>,
    /// Destination port, likewise.
    pub dst_ports: RangeInclusive<u16>,
    /// TCP flags; packets that are not TCP, or do not hold its header, do not match.
    pub tcp_flags: Option<TcpFlags>,
    /// ICMP type and code; packets without do not match.
    pub icmp: Option<Icmp>,
    /// Fragments.
    pub fragment: Fragment,
    /// Outer VLAN tag.
    pub vlan: Option<Vlan>,
    /// DSCP, 0–63.
    pub dscp: Option<u8>,
    /// What a packet gets that matches this rule and none before it.
    pub action: ActionId,
}

/// The range of ports that asks for nothing.
pub const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

/// TCP flags with the bits given in `mask` as in `value`: CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the highest down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// Wanted.
    pub value: u8,
    /// Bits that count.
    pub mask: u8,
}

/// An ICMP or ICMPv6 type, with one code or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code; `None` for all.
    pub code: Option<u8>,
}

/// Which parts of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragment {
    /// No matter.
    #[default]
    Any,
    /// Datagrams that are not fragmented.
    Whole,
    /// Fragments, the first one included.
    Part,
    /// Whole datagrams and first fragments: what has the transport header.
    Initial,
    /// Fragments but the first one.
    NonInitial,
}

/// A VLAN condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// No tag.
    Untagged,
    /// A tag with this id, 0–4095.
    Id(u16),
}

/// Why a rule cannot be.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum RuleError {
    /// First port above last port.
    #[error("the port range {0}-{1} is empty: write the lower port first")]
    EmptyPortRange(u16, u16),
    /// VLAN id out of range.
    #[error("VLAN id {0} is above 4095")]
    VlanId(u16),
    /// DSCP out of range.
    #[error("DSCP {0} is above 63")]
    Dscp(u8),
    /// A flag is asked for that the mask leaves out.
    #[error("TCP flags {value:#04x} are outside their mask {mask:#04x}")]
    FlagsOutsideMask {
        /// Flags asked for.
        value: u8,
        /// Flags looked at.
        mask: u8,
    },
    /// TCP flags with another protocol.
    #[error("TCP flags with protocol {0} match nothing: give protocol 6 or none")]
    FlagsWithoutTcp(u8),
    /// ICMP type with another protocol.
    #[error("an ICMP type with protocol {got} matches nothing: give protocol {want} or none")]
    IcmpProtocol {
        /// The rule's protocol.
        got: u8,
        /// ICMP's in this address family.
        want: u8,
    },
    /// ICMP type together with ports or TCP flags.
    #[error("a rule with an ICMP type and ports or TCP flags matches nothing")]
    IcmpWithPorts,
    /// Ports, flags or ICMP types in fragments that have none.
    #[error(
        "fragments but the first have no transport header: ports, TCP flags and ICMP types never match there"
    )]
    NoTransport,
}

/// A rule in the form that the compiler and the lookup work on: bits that are given, and two port ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern<W> {
    /// Bits that count, ports not among them.
    pub(super) mask: W,
    /// What they are.
    pub(super) value: W,
    /// Source and destination port (ICMP type and code), both ends included.
    pub(super) ports: [Range; 2],
}

/// A range of port numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
}

impl Range {
    pub(super) const ALL: Range = Range { first: 0, last: u16::MAX };

    pub(super) fn contains(self, other: Range) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The common part; empty (first above last) where there is none.
    pub(super) fn and(self, other: Range) -> Range {
        Range { first: self.first.max(other.first), last: self.last.min(other.last) }
    }
}

impl<A: Shape> Rule<A> {
    /// A rule that matches every packet of the family.
    pub fn any(action: ActionId) -> Self {
        let all = Prefix::all();
        Rule {
            src: all,
            dst: all,
            protocol: None,
            src_ports: ALL_PORTS,
            dst_ports: ALL_PORTS,
            tcp_flags: None,
            icmp: None,
            fragment: Fragment::Any,
            vlan: None,
            dscp: None,
            action,
        }
    }

    /// Whether a packet matches, looked at field by field: the definition that the compiled form is tested against.
    pub fn matches(&self, key: &Key<A>) -> bool {
        self.pattern().is_ok_and(|pattern| pattern.matches(key.words()))
    }

    /// Says what is wrong with this rule, if anything is.
    pub fn check(&self) -> Result<(), RuleError> {
        self.pattern().map(|_| ())
    }

    /// Bits and ranges of this rule.
    pub(super) fn pattern(&self) -> Result<Pattern<A::Words>, RuleError> {
        let ports = [range(&self.src_ports)?, range(&self.dst_ports)?];
        let mut options = Bits::default();
        let mut pattern = Pattern {
            mask: A::words(A::mask(self.src.len()), A::mask(self.dst.len())),
            value: A::words(self.src.first(), self.dst.first()),
            ports,
        };
        let has_ports = ports != [Range::ALL; 2];
        let mut protocol = self.protocol;
        if has_ports || self.tcp_flags.is_some() {
            options.set(opt::HAS_PORTS, opt::HAS_PORTS);
        }
        if let Some(TcpFlags { value, mask }) = self.tcp_flags {
            if value & !mask != 0 {
                return Err(RuleError::FlagsOutsideMask { value, mask });
            }
            if let Some(other) = protocol.filter(|&p| p != 6) {
                return Err(RuleError::FlagsWithoutTcp(other));
            }
            protocol = Some(6);
            options.set(u64::from(mask) << opt::FLAGS, u64::from(value) << opt::FLAGS);
        }
        if let Some(Icmp { kind, code }) = self.icmp {
            if has_ports || self.tcp_flags.is_some() {
                return Err(RuleError::IcmpWithPorts);
            }
            if let Some(got) = protocol.filter(|&p| p != A::ICMP) {
                return Err(RuleError::IcmpProtocol { got, want: A::ICMP });
            }
            protocol = Some(A::ICMP);
            options.set(opt::HAS_ICMP, opt::HAS_ICMP);
            let kind = u16::from(kind) << 8;
            pattern.ports[1] = match code {
                Some(code) => Range { first: kind | u16::from(code), last: kind | u16::from(code) },
                None => Range { first: kind, last: kind | 0xff },
            };
        }
        if let Some(protocol) = protocol {
            options.set(0xff << opt::PROTOCOL, u64::from(protocol) << opt::PROTOCOL);
        }
        let transport = has_ports || self.tcp_flags.is_some() || self.icmp.is_some();
        if transport && self.fragment == Fragment::NonInitial {
            return Err(RuleError::NoTransport);
        }
        let both = opt::FRAGMENT | opt::INITIAL;
        match self.fragment {
            Fragment::Any => {}
            Fragment::Whole => options.set(both, opt::INITIAL),
            Fragment::Part => options.set(opt::FRAGMENT, opt::FRAGMENT),
            Fragment::Initial => options.set(opt::INITIAL, opt::INITIAL),
            Fragment::NonInitial => options.set(both, opt::FRAGMENT),
        }
        match self.vlan {
            None => {}
            Some(Vlan::Untagged) => options.set(1 << (opt::VLAN + 12), 0),
            Some(Vlan::Id(id)) if id > 0xfff => return Err(RuleError::VlanId(id)),
            Some(Vlan::Id(id)) => options.set(0x1fff << opt::VLAN, (u64::from(id) | 0x1000) << opt::VLAN),
        }
        if let Some(dscp) = self.dscp {
            if dscp > 63 {
                return Err(RuleError::Dscp(dscp));
            }
            options.set(63 << opt::DSCP, u64::from(dscp) << opt::DSCP);
        }
        pattern.mask.get_mut()[A::Words::COUNT - 2] = options.mask;
        pattern.value.get_mut()[A::Words::COUNT - 2] = options.value;
        Ok(pattern)
    }
}

/// Bits given and what they are.
#[derive(Default)]
struct Bits {
    mask: u64,
    value: u64,
}

impl Bits {
    fn set(&mut self, mask: u64, value: u64) {
        self.mask |= mask;
        self.value |= value;
    }
}

fn range(ports: &RangeInclusive<u16>) -> Result<Range, RuleError> {
    let (first, last) = (*ports.start(), *ports.end());
    if first > last {
        return Err(RuleError::EmptyPortRange(first, last));
    }
    Ok(Range { first, last })
}

impl<W: Words> Pattern<W> {
    /// Whether the packet with these words matches.
    pub(super) fn matches(&self, key: &[u64]) -> bool {
        let bits = key.iter().zip(self.mask.get()).zip(self.value.get()).all(|((k, m), v)| k & m == *v);
        let [src, dst] = port_words::<W>().map(|w| (key[w] >> 48) as u16);
        let within = |range: Range, port| range.first <= port && port <= range.last;
        bits && within(self.ports[0], src) && within(self.ports[1], dst)
    }

    /// Whether everything that matches `other` within `region` also matches this. Neither is disjoint from the region.
    pub(super) fn covers(&self, other: &Self, region: &Self) -> bool {
        let words = self.mask.get().iter().zip(self.value.get());
        let others = other.mask.get().iter().zip(other.value.get()).zip(region.mask.get());
        let bits = words.zip(others).all(|((m, v), ((om, ov), rm))| {
            // Bits that the region gives agree with both; the rest must be given by the other, and agree.
            m & !rm & !om == 0 && (v ^ ov) & m & om & !rm == 0
        });
        let ports = self.ports.iter().zip(other.ports).zip(region.ports);
        bits && ports.into_iter().all(|((mine, other), region)| mine.contains(other.and(region)))
    }
}

/// The words whose top 16 bits are the source and the destination port.
pub(super) const fn port_words<W: Words>() -> [usize; 2] {
    [W::COUNT - 1, W::COUNT - 2]
}

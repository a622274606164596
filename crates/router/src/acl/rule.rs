//! Access lists as an operator means them: lists of rules, and what their matching conditions are to the classifier.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use linerate_tables::classifier::{
    ALL_PORTS, ActionId, Fragment, Icmp, Rule, RuleError, Shape, TcpFlags, Vlan,
};
use linerate_tables::prefix::Prefix;

/// TCP flags, from the highest bit of the header's flag byte down.
pub const FLAGS: [(&str, u8); 8] = [
    ("cwr", 0x80),
    ("ece", 0x40),
    ("urg", 0x20),
    ("ack", 0x10),
    ("psh", 0x08),
    ("rst", 0x04),
    ("syn", 0x02),
    ("fin", 0x01),
];

/// ACK and RST: what segments of an established connection have one of.
pub const ESTABLISHED: u8 = 0x14;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;

/// Protocols whose header begins with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
pub const PORT_PROTOCOLS: [u8; 5] = [TCP, 17, 33, 132, 136];

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AclAction {
    /// Goes on.
    Permit,
    /// Dropped silently.
    #[default]
    Deny,
    /// Dropped, and its sender told: ICMP "communication administratively prohibited" (IPv4 3/13, RFC 1812 5.2.7.1; IPv6
    /// 1/1, RFC 4443 3.1).
    Reject,
}

impl AclAction {
    /// All three, as rules name them.
    pub const ALL: [(&str, AclAction); 3] =
        [("permit", AclAction::Permit), ("deny", AclAction::Deny), ("reject", AclAction::Reject)];

    /// As rules name it.
    pub fn name(self) -> &'static str {
        match self {
            AclAction::Permit => "permit",
            AclAction::Deny => "deny",
            AclAction::Reject => "reject",
        }
    }
}

/// A named list: the first rule that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// Its name.
    pub name: String,
    /// In order of precedence.
    pub rules: Vec<AclRule>,
    /// What becomes of packets that no rule matches.
    pub default: AclAction,
}

/// Address families a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AclFamily {
    /// That of its prefixes; both where it has none.
    #[default]
    Any,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
}

/// Conditions on TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpMatch {
    /// All of `set` are set and all of `unset` are not.
    All {
        /// Bits.
        set: u8,
        /// Bits.
        unset: u8,
    },
    /// One of `set` is set, or one of `unset` is not.
    Any {
        /// Bits.
        set: u8,
        /// Bits.
        unset: u8,
    },
}

/// One rule: everything it names must hold. The default permits nothing and matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclRule {
    /// What it does.
    pub action: AclAction,
    /// Whether samples of what it matches are logged.
    pub log: bool,
    /// Address family, where it is said.
    pub family: AclFamily,
    /// IP protocol; in IPv6 the first next header that is no extension header.
    pub protocol: Option<u8>,
    /// Source; `None`: any.
    pub src: Option<IpNet>,
    /// Destination; `None`: any.
    pub dst: Option<IpNet>,
    /// Source ports; none: any.
    pub src_ports: Vec<RangeInclusive<u16>>,
    /// Destination ports; none: any.
    pub dst_ports: Vec<RangeInclusive<u16>>,
    /// TCP flags.
    pub tcp: Option<TcpMatch>,
    /// ICMP (ICMPv6) type and code.
    pub icmp: Option<Icmp>,
    /// Only fragments that are not the first of their datagram.
    pub fragments: bool,
    /// The outer VLAN tag that the packet came in with.
    pub vlan: Option<Vlan>,
    /// DSCP, 0 to 63.
    pub dscp: Option<u8>,
    /// What the operator says about it.
    pub remark: String,
}

/// Why a rule cannot be.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum AclRuleError {
    /// IPv4 and IPv6 in one rule.
    #[error("source and destination are of different address families: expected both IPv4 or both IPv6")]
    MixedFamilies,
    /// A prefix of the other family than the rule's word says.
    #[error("the rule is for {0} and has a prefix of the other address family")]
    OtherFamily(&'static str),
    /// Ports of a protocol that has none.
    #[error("ports need a protocol that has them: expected tcp, udp, sctp, dccp or udplite")]
    PortsWithoutProtocol,
    /// Flags of another protocol.
    #[error("TCP flags need the protocol tcp")]
    FlagsWithoutTcp,
    /// A flag that must be set and not set.
    #[error("a TCP flag is asked for both set and not set")]
    FlagsContradict,
    /// ICMP type of another protocol.
    #[error("an ICMP type needs the protocol icmp or icmp6")]
    IcmpWithoutProtocol,
    /// `fragments` with what only first fragments have.
    #[error(
        "fragments but the first have no transport header: `fragments` excludes ports, TCP flags and ICMP types"
    )]
    FragmentsWithTransport,
    /// The compiler's own view.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl AclRule {
    /// Whether it is for IPv4, and whether for IPv6.
    pub fn families(&self) -> (bool, bool) {
        let prefix = self.src.or(self.dst);
        match (self.family, prefix) {
            (AclFamily::Ip4, _) | (_, Some(IpNet::V4(_))) => (true, false),
            (AclFamily::Ip6, _) | (_, Some(IpNet::V6(_))) => (false, true),
            _ => (self.protocol != Some(ICMPV6), self.protocol != Some(ICMP)),
        }
    }

    /// Says what is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), AclRuleError> {
        if let (Some(a), Some(b)) = (self.src, self.dst)
            && a.addr().is_ipv4() != b.addr().is_ipv4()
        {
            return Err(AclRuleError::MixedFamilies);
        }
        let other = |v6: bool| self.src.iter().chain(&self.dst).any(|p| p.addr().is_ipv6() != v6);
        match self.family {
            AclFamily::Ip4 if other(false) => return Err(AclRuleError::OtherFamily("IPv4")),
            AclFamily::Ip6 if other(true) => return Err(AclRuleError::OtherFamily("IPv6")),
            _ => {}
        }
        let ports = !(self.src_ports.is_empty() && self.dst_ports.is_empty());
        if ports && !self.protocol.is_some_and(|p| PORT_PROTOCOLS.contains(&p)) {
            return Err(AclRuleError::PortsWithoutProtocol);
        }
        if let Some(tcp) = self.tcp {
            if self.protocol != Some(TCP) {
                return Err(AclRuleError::FlagsWithoutTcp);
            }
            let (TcpMatch::All { set, unset } | TcpMatch::Any { set, unset }) = tcp;
            if set & unset != 0 {
                return Err(AclRuleError::FlagsContradict);
            }
        }
        let (ip4, ip6) = self.families();
        if self.icmp.is_some() {
            let wanted = if ip4 { ICMP } else { ICMPV6 };
            if self.protocol != Some(wanted) || (ip4 && ip6) {
                return Err(AclRuleError::IcmpWithoutProtocol);
            }
        }
        if self.fragments && (ports || self.tcp.is_some() || self.icmp.is_some()) {
            return Err(AclRuleError::FragmentsWithTransport);
        }
        self.compiled::<u32>(0).iter().try_for_each(Rule::check)?;
        self.compiled::<u128>(0).iter().try_for_each(Rule::check)?;
        Ok(())
    }

    /// How many of the classifier's rules it stands for, in each family.
    pub fn terms(&self) -> usize {
        let tcp = match self.tcp {
            Some(TcpMatch::Any { set, unset }) => (set.count_ones() + unset.count_ones()) as usize,
            _ => 1,
        };
        self.src_ports.len().max(1).saturating_mul(self.dst_ports.len().max(1)).saturating_mul(tcp)
    }

    /// The classifier's rules that it stands for, all with the same action; none where it is for the other family only.
    pub fn compiled<A: Family>(&self, action: ActionId) -> Vec<Rule<A>> {
        let (ip4, ip6) = self.families();
        if !(if A::BITS == 32 { ip4 } else { ip6 }) {
            return Vec::new();
        }
        let all = |ports: &[RangeInclusive<u16>]| match ports {
            [] => vec![ALL_PORTS],
            ports => ports.to_vec(),
        };
        let tcp: Vec<Option<TcpFlags>> = match self.tcp {
            None => vec![None],
            Some(TcpMatch::All { set, unset }) => vec![Some(TcpFlags { value: set, mask: set | unset })],
            Some(TcpMatch::Any { set, unset }) => bits(set)
                .map(|bit| Some(TcpFlags { value: bit, mask: bit }))
                .chain(bits(unset).map(|bit| Some(TcpFlags { value: 0, mask: bit })))
                .collect(),
        };
        let base = Rule {
            src: self.src.and_then(A::prefix).unwrap_or_else(Prefix::all),
            dst: self.dst.and_then(A::prefix).unwrap_or_else(Prefix::all),
            protocol: self.protocol,
            icmp: self.icmp,
            fragment: if self.fragments { Fragment::NonInitial } else { Fragment::Any },
            vlan: self.vlan,
            dscp: self.dscp,
            ..Rule::any(action)
        };
        let mut rules = Vec::new();
        for src_ports in all(&self.src_ports) {
            for dst_ports in all(&self.dst_ports) {
                for tcp_flags in &tcp {
                    let (src_ports, dst_ports) = (src_ports.clone(), dst_ports.clone());
                    rules.push(Rule { src_ports, dst_ports, tcp_flags: *tcp_flags, ..base.clone() });
                }
            }
        }
        rules
    }
}

/// The bits that are set, each by itself.
fn bits(of: u8) -> impl Iterator<Item = u8> {
    (0..8).map(move |i| of & 1 << i).filter(|bit| *bit != 0)
}

/// The two address families.
pub trait Family: Shape {
    /// A prefix of this family; `None` for one of the other.
    fn prefix(net: IpNet) -> Option<Prefix<Self>>;
}

impl Family for u32 {
    fn prefix(net: IpNet) -> Option<Prefix<u32>> {
        if let IpNet::V4(net) = net { Some(net.into()) } else { None }
    }
}

impl Family for u128 {
    fn prefix(net: IpNet) -> Option<Prefix<u128>> {
        if let IpNet::V6(net) = net { Some(net.into()) } else { None }
    }
}

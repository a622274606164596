//! Words for numbers in rules, as IOS has them; names of protocols and services as IANA registers them.

use super::rule::AclFamily;

/// Protocols. Of several words for one number the first is the one that rules are written with.
pub(super) const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipinip", 4),
    ("ipip", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6-in-ip", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ahp", 51),
    ("ah", 51),
    ("icmp6", 58),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("pcp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("udplite", 136),
    ("mpls-in-ip", 137),
];

/// Ports. The same words for every transport protocol.
pub(super) const PORTS: &[(&str, u16)] = &[
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("chargen", 19),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("time", 37),
    ("whois", 43),
    ("tacacs", 49),
    ("domain", 53),
    ("dns", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("gopher", 70),
    ("finger", 79),
    ("www", 80),
    ("http", 80),
    ("kerberos", 88),
    ("hostname", 101),
    ("pop2", 109),
    ("pop3", 110),
    ("sunrpc", 111),
    ("ident", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ss", 139),
    ("imap", 143),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("irc", 194),
    ("ldap", 389),
    ("https", 443),
    ("isakmp", 500),
    ("exec", 512),
    ("biff", 512),
    ("login", 513),
    ("who", 513),
    ("cmd", 514),
    ("syslog", 514),
    ("lpd", 515),
    ("rip", 520),
    ("ripng", 521),
    ("dhcpv6-client", 546),
    ("dhcpv6-server", 547),
    ("ldaps", 636),
    ("ldp", 646),
    ("domain-s", 853),
    ("ftps", 990),
    ("imaps", 993),
    ("pop3s", 995),
    ("l2tp", 1701),
    ("radius", 1812),
    ("radius-acct", 1813),
    ("gtp-c", 2123),
    ("gtp-u", 2152),
    ("bfd", 3784),
    ("bfd-echo", 3785),
    ("non500-isakmp", 4500),
    ("vxlan", 4789),
    ("bfd-multihop", 4784),
    ("pfcp", 8805),
];

/// ICMP types, with a code where the word means one.
pub(super) const ICMP: &[(&str, u8, Option<u8>)] = &[
    ("echo-reply", 0, None),
    ("unreachable", 3, None),
    ("net-unreachable", 3, Some(0)),
    ("host-unreachable", 3, Some(1)),
    ("protocol-unreachable", 3, Some(2)),
    ("port-unreachable", 3, Some(3)),
    ("packet-too-big", 3, Some(4)),
    ("source-route-failed", 3, Some(5)),
    ("administratively-prohibited", 3, Some(13)),
    ("source-quench", 4, None),
    ("redirect", 5, None),
    ("echo", 8, None),
    ("router-advertisement", 9, None),
    ("router-solicitation", 10, None),
    ("time-exceeded", 11, None),
    ("ttl-exceeded", 11, Some(0)),
    ("reassembly-timeout", 11, Some(1)),
    ("parameter-problem", 12, None),
    ("timestamp-request", 13, None),
    ("timestamp-reply", 14, None),
    ("information-request", 15, None),
    ("information-reply", 16, None),
    ("mask-request", 17, None),
    ("mask-reply", 18, None),
    ("traceroute", 30, None),
];

/// ICMPv6 types, with a code where the word means one.
pub(super) const ICMPV6: &[(&str, u8, Option<u8>)] = &[
    ("unreachable", 1, None),
    ("no-route", 1, Some(0)),
    ("no-admin", 1, Some(1)),
    ("beyond-scope", 1, Some(2)),
    ("destination-unreachable", 1, Some(3)),
    ("port-unreachable", 1, Some(4)),
    ("packet-too-big", 2, None),
    ("time-exceeded", 3, None),
    ("hop-limit", 3, Some(0)),
    ("reassembly-timeout", 3, Some(1)),
    ("parameter-problem", 4, None),
    ("header", 4, Some(0)),
    ("next-header", 4, Some(1)),
    ("parameter-option", 4, Some(2)),
    ("echo-request", 128, None),
    ("echo", 128, None),
    ("echo-reply", 129, None),
    ("mld-query", 130, None),
    ("mld-report", 131, None),
    ("mld-reduction", 132, None),
    ("router-solicitation", 133, None),
    ("router-advertisement", 134, None),
    ("nd-ns", 135, None),
    ("nd-na", 136, None),
    ("redirect", 137, None),
    ("router-renumbering", 138, None),
    ("mldv2", 143, None),
];

/// DSCP values (RFC 2474, 2597, 3246, 5865).
pub(super) const DSCPS: &[(&str, u8)] = &[
    ("default", 0),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("voice-admit", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// The number of a word.
pub(super) fn number<T: Copy>(words: &[(&str, T)], word: &str) -> Option<T> {
    words.iter().find(|(w, _)| *w == word).map(|(_, n)| *n)
}

/// The word for a number, where there is one.
pub(super) fn word<T: Copy + PartialEq>(words: &'static [(&str, T)], number: T) -> Option<&'static str> {
    words.iter().find(|(_, n)| *n == number).map(|(w, _)| *w)
}

/// A protocol's name or number; `ip`, `ipv4` and `ipv6` are all protocols.
pub fn protocol(word: &str) -> Option<(AclFamily, Option<u8>)> {
    Some(match word {
        "ip" | "any" => (AclFamily::Any, None),
        "ipv4" => (AclFamily::Ip4, None),
        "ipv6" => (AclFamily::Ip6, None),
        _ => (AclFamily::Any, Some(number(PROTOCOLS, word).or_else(|| word.parse().ok())?)),
    })
}

/// A port's number or name.
pub fn port(word: &str) -> Option<u16> {
    word.parse().ok().or_else(|| number(PORTS, word))
}

/// A DSCP's number or name.
pub fn dscp(word: &str) -> Option<u8> {
    number(DSCPS, word).or_else(|| word.parse().ok().filter(|n| *n < 64))
}

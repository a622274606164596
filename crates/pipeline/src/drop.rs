//! Why packets are dropped: every lost packet has one of these names and is counted under it.

macro_rules! drop_reasons {
    ($( $(#[doc = $doc:literal])+ $name:ident = $text:literal, )+) => {
        /// Reason for a drop. The name in snake case is the counter's stable name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason { $( $(#[doc = $doc])+ $name, )+ }

        impl DropReason {
            /// All reasons, in the order of their codes.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name),+];

            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Stable name, as counters, JSON and metrics show it.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)+ }
            }

            /// One sentence for a person.
            pub fn explain(self) -> &'static str {
                match self { $(DropReason::$name => concat!($($doc),+).trim_ascii(),)+ }
            }

            /// Index into counter arrays.
            pub fn code(self) -> u8 {
                self as u8
            }
        }
    };
}

drop_reasons! {
    /// The frame is shorter than an Ethernet header.
    EthTooShort = "eth_too_short",
    /// A VLAN tag is cut off by the end of the frame.
    VlanTooShort = "vlan_too_short",
    /// No interface is configured for frames with these VLAN tags, or without any, on this port.
    VlanUnknown = "vlan_unknown",
    /// The destination MAC address is another station's.
    EthNotForUs = "eth_not_for_us",
    /// The source MAC address is a group address, which no station may send from.
    EthSourceMulticast = "eth_source_multicast",
    /// The ethertype is none that this graph handles.
    EthertypeUnknown = "ethertype_unknown",
    /// The interface that the frame arrived on is administratively down.
    InterfaceDown = "interface_down",
    /// The packet is shorter than an IPv4 header.
    Ip4TooShort = "ip4_too_short",
    /// The IPv4 version field is not 4.
    Ip4BadVersion = "ip4_bad_version",
    /// The IPv4 header length is below 20 bytes or beyond the packet.
    Ip4BadHeaderLength = "ip4_bad_header_length",
    /// The IPv4 total length is smaller than its header or larger than the frame.
    Ip4BadTotalLength = "ip4_bad_total_length",
    /// The IPv4 header checksum is wrong.
    Ip4BadChecksum = "ip4_bad_checksum",
    /// An IPv4 option has an impossible length or pointer, or runs past the header.
    Ip4BadOptions = "ip4_bad_options",
    /// The IPv4 packet has a source route, by which senders get round filters: refused, as RFC 7126 advises.
    Ip4SourceRoute = "ip4_source_route",
    /// The IPv4 source address can never be a sender (multicast, broadcast, loopback, reserved, or 0/8 in transit).
    Ip4BadSource = "ip4_bad_source",
    /// The IPv4 source address is one of this router's own: somebody uses it, or a packet came back.
    Ip4OwnSource = "ip4_own_source",
    /// An IPv4 link-local address (169.254/16) was about to leave its link (RFC 3927 2.7).
    Ip4LinkLocalScope = "ip4_link_local_scope",
    /// No route speaks for the IPv4 source address, where the interface asks for one (RFC 3704).
    Ip4SourceInvalid = "ip4_source_invalid",
    /// The IPv4 destination may not be forwarded (loopback, 0/8, or reserved 240/4).
    Ip4BadDestination = "ip4_bad_destination",
    /// An IPv4 multicast packet, and no multicast route wants it.
    Ip4MulticastUnrouted = "ip4_multicast_unrouted",
    /// A broadcast that is not forwarded and that nothing here listens to.
    Ip4Broadcast = "ip4_broadcast",
    /// An IP packet for a unicast address arrived in a link-layer broadcast or multicast frame (RFC 1122 3.3.6).
    L2BroadcastUnicastIp = "l2_broadcast_unicast_ip",
    /// The packet is shorter than an IPv6 header.
    Ip6TooShort = "ip6_too_short",
    /// The IPv6 version field is not 6.
    Ip6BadVersion = "ip6_bad_version",
    /// The IPv6 payload length exceeds the frame.
    Ip6BadPayloadLength = "ip6_bad_payload_length",
    /// The IPv6 source address can never be a sender (multicast, loopback, IPv4 in IPv6, or unspecified in transit).
    Ip6BadSource = "ip6_bad_source",
    /// The IPv6 source address is one of this router's own: somebody uses it, or a packet came back.
    Ip6OwnSource = "ip6_own_source",
    /// No route speaks for the IPv6 source address, where the interface asks for one (RFC 3704).
    Ip6SourceInvalid = "ip6_source_invalid",
    /// The IPv6 destination may not be forwarded (unspecified, loopback, IPv4 in IPv6, or interface-local multicast).
    Ip6BadDestination = "ip6_bad_destination",
    /// A link-local address was about to leave its link (RFC 4291 2.5.6).
    Ip6LinkLocalScope = "ip6_link_local_scope",
    /// An IPv6 multicast packet, and no multicast route wants it.
    Ip6MulticastUnrouted = "ip6_multicast_unrouted",
    /// A multicast packet came in by another interface than the one its route says: a copy that went round (RPF check).
    MulticastWrongInterface = "multicast_wrong_interface",
    /// A multicast packet whose route has no output that is up.
    MulticastNoOutput = "multicast_no_output",
    /// A multicast packet for this router itself, of which there are more than it wants to see.
    MulticastMemberLimit = "multicast_member_limit",
    /// An IPv6 extension header is malformed or cut off.
    Ip6BadExtension = "ip6_bad_extension",
    /// The access list for packets that come in by the interface denies it.
    AclInDenied = "acl_in_denied",
    /// The access list for packets that leave by the interface denies it.
    AclOutDenied = "acl_out_denied",
    /// An access list rejects it, and no ICMP error was sent about it (forbidden, or rate limit).
    AclRejected = "acl_rejected",
    /// An access list applies, and the packet hides what it asks about: TCP fragments that split the TCP header (RFC 3128), or
    /// IPv6 extension headers that are malformed, cut off, or more than are followed (RFC 7112).
    AclUndetermined = "acl_undetermined",
    /// The IPv4 TTL or IPv6 hop limit ran out, and no ICMP error was sent about it (forbidden, or rate limit).
    TtlExpired = "ttl_expired",
    /// No route covers the destination, and no ICMP error was sent about it (forbidden, or rate limit).
    NoRoute = "no_route",
    /// A route says to discard silently.
    RouteBlackhole = "route_blackhole",
    /// A route prohibits the destination, and no ICMP error was sent about it (forbidden, or rate limit).
    RouteProhibit = "route_prohibit",
    /// The next hop does not answer, or the route says unreachable, and no ICMP error was sent about it (forbidden, or
    /// rate limit).
    Unreachable = "unreachable",
    /// The packet exceeds the MTU of its way out, and was neither fragmented nor an ICMP error sent about it.
    MtuExceeded = "mtu_exceeded",
    /// Too many packets already wait for this neighbour's link-layer address.
    NeighborQueueFull = "neighbor_queue_full",
    /// The worker's space for packets that wait for neighbours is used up.
    NeighborTableFull = "neighbor_table_full",
    /// The ARP packet is malformed or not Ethernet/IPv4.
    ArpMalformed = "arp_malformed",
    /// An ARP packet that asks for, or tells, nothing that concerns this router.
    ArpIgnored = "arp_ignored",
    /// An ARP packet used up: what it told was taken in.
    ArpConsumed = "arp_consumed",
    /// The neighbour-discovery packet is malformed (RFC 4861 7.1).
    NdMalformed = "nd_malformed",
    /// A neighbour-discovery packet that concerns nothing here.
    NdIgnored = "nd_ignored",
    /// A neighbour-discovery packet used up: what it told was taken in.
    NdConsumed = "nd_consumed",
    /// The ICMP or ICMPv6 message is malformed or its checksum is wrong.
    IcmpMalformed = "icmp_malformed",
    /// An ICMP message for this router that it does not act on.
    IcmpIgnored = "icmp_ignored",
    /// An ICMP message could not be built (no address to send it from, or no room in the buffer).
    IcmpUnsendable = "icmp_unsendable",
    /// A packet for this router itself, of a protocol that nothing here answers.
    LocalUnhandled = "local_unhandled",
    /// A packet given to Linux: it is for a daemon or socket of this system.
    Punted = "punted",
    /// A packet for Linux over the rate limit of its class (control-plane policing).
    PuntPoliced = "punt_policed",
    /// A packet for Linux that found the queue there full.
    PuntQueueFull = "punt_queue_full",
    /// The packet's headers do not fit into its first buffer segment.
    HeaderNotContiguous = "header_not_contiguous",
    /// No headroom in the buffer for the outgoing header.
    NoHeadroom = "no_headroom",
    /// The packet pool was empty when a packet had to be made.
    PoolExhausted = "pool_exhausted",
    /// The driver delivered the packet in a buffer that it shares, and the pool was empty when it had to be copied.
    RxNoCopy = "rx_no_copy",
    /// The adjacency was withdrawn while the packet was on its way through the graph.
    AdjacencyGone = "adjacency_gone",
    /// The port to send by does not exist on this worker.
    TxNoPort = "tx_no_port",
    /// The transmit queue was full.
    TxFull = "tx_full",
    /// The packet spans several buffers, and the device to send by takes single ones: raise dpdk.buffer_size.
    TxUnsendable = "tx_unsendable",
    /// The port to send by is down.
    TxPortDown = "tx_port_down",
    /// The ring to the worker that should handle the packet was full.
    HandoffFull = "handoff_full",
    /// More packets were generated in one pass than the graph has room for.
    GraphOverflow = "graph_overflow",
    /// The packet came back to a node more often than any real packet does: a loop in the graph was cut.
    GraphLoop = "graph_loop",
    /// The worker was stopped with packets still waiting in it.
    Shutdown = "shutdown",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_snake_case_and_explained() {
        let mut seen = std::collections::HashSet::new();
        for (i, r) in DropReason::ALL.iter().enumerate() {
            assert_eq!(usize::from(r.code()), i);
            assert!(seen.insert(r.name()), "{} twice", r.name());
            assert!(r.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
            assert!(r.explain().ends_with('.'), "{}", r.name());
        }
    }
}

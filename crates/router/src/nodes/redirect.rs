//! Redirects: senders are told of a better first hop on their own link (RFC 1812 5.2.7.2, RFC 4861 8.2), where an
//! interface wants that. The packet itself is forwarded all the same.

use std::net::{IpAddr, Ipv4Addr};

use linerate_pipeline::interface::Interfaces;
use linerate_pipeline::meta::flags;
use linerate_pipeline::{Cx, IfIndex, Interface, Packet};
use linerate_wire::checksum::Sum;
use linerate_wire::eth::EthHeader;
use linerate_wire::icmp::{self, IcmpHeader};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, Mac, U16, eth, icmpv6};
use zerocopy::IntoBytes;

use super::ErrorLimit;
use super::icmp6_error;
use crate::plane::{Adjacency, AdjacencyIndex, MAX_HEADER, NextHops};

/// How much of the packet is quoted: its header and what tells the flow.
const QUOTE: usize = 128;

/// Room for the longest redirect.
const LONGEST: usize = MAX_HEADER + Ip6Header::LEN + REDIRECT6 + QUOTE;

/// A redirect of IPv6 up to the quotation: header, target, destination, and the head of the option (RFC 4861 4.5, 4.6.3).
const REDIRECT6: usize = IcmpHeader::LEN + 16 + 16 + 8;

/// Option "redirected header" (RFC 4861 4.6.3).
const OPTION_REDIRECTED: u8 = 4;

/// Tells senders, as often as its limit allows.
#[derive(Clone, Debug)]
pub struct Redirect {
    interfaces: Interfaces,
    next_hops: NextHops,
    limit: ErrorLimit,
}

/// What a redirect needs to know of a packet before it is rewritten.
pub(super) struct Notice {
    sender: Mac,
    adjacency: AdjacencyIndex,
    quote: [u8; QUOTE],
    len: usize,
}

impl Redirect {
    /// One that knows these interfaces and adjacencies.
    pub fn new(interfaces: Interfaces, next_hops: NextHops, limit: ErrorLimit) -> Self {
        Redirect { interfaces, next_hops, limit }
    }

    /// Looks whether a packet that the lookup sends out by `adjacency` leaves where it came in by, on an interface that
    /// wants redirects.
    pub(super) fn notice<P: Packet>(&self, packet: &P, adjacency: &Adjacency) -> Option<Notice> {
        let meta = packet.meta();
        let wanted = meta.flags & flags::REDIRECTS != 0 && meta.flags & flags::GENERATED == 0;
        if !wanted || adjacency.interface != meta.rx_if {
            return None;
        }
        let sender = EthHeader::view(packet.head())?.src;
        let mut quote = [0; QUOTE];
        let len = packet.copy_out(usize::from(meta.l3), &mut quote);
        Some(Notice { sender, adjacency: meta.adjacency, quote, len })
    }

    /// Sends the redirect that a packet calls for which has been forwarded, where one may be sent.
    #[inline(never)]
    pub(super) fn send<P: Packet>(&mut self, cx: &mut Cx<'_, P>, index: IfIndex, notice: &Notice) {
        let Some(gateway) = self.next_hops.next_hop_ip(notice.adjacency) else { return };
        let Some(interface) = self.interfaces.get().get(index) else { return };
        let mut frame = Frame { bytes: [0; LONGEST], len: 0 };
        let quote = notice.quote.get(..notice.len).unwrap_or_default();
        let ethertype = match gateway {
            IpAddr::V4(_) => eth::ETHERTYPE_IP4,
            IpAddr::V6(_) => eth::ETHERTYPE_IP6,
        };
        let adjacency = Adjacency::new(index, interface, Some(notice.sender));
        if adjacency.write(&mut frame.bytes, ethertype) {
            frame.len = usize::from(adjacency.header_len);
        }
        let written = match gateway {
            IpAddr::V4(gateway) => frame.four(interface, gateway, quote),
            IpAddr::V6(gateway) => frame.six(interface, gateway.octets(), quote),
        };
        if written.is_none() || !self.limit.allow(cx.now) {
            return;
        }
        let bytes = frame.bytes.get(..frame.len.max(MIN_FRAME)).unwrap_or_default();
        let Some(mut packet) = cx.alloc.alloc() else { return };
        let Some(to) = packet.append(bytes.len()) else { return };
        to.copy_from_slice(bytes);
        packet.set_rx_port(interface.port);
        let meta = packet.meta_mut();
        (meta.rx_if, meta.tx_if, meta.tx_port) = (index, index, interface.port);
        cx.generated(&mut packet);
        cx.tx.send(interface.port, packet, cx.counters);
    }
}

/// The shortest Ethernet frame without FCS; shorter ones are padded with zeros.
const MIN_FRAME: usize = 60;

struct Frame {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Frame {
    /// To a sender on the link, about a gateway on the link, no fragment but the first and no packet with a source route
    /// (which do not get here).
    fn four(&mut self, interface: &Interface, gateway: Ipv4Addr, quote: &[u8]) -> Option<()> {
        let h = Ip4Header::view(quote)?;
        let (src, dst) = (Ipv4Addr::from_bits(h.src.get()), h.dst.get());
        let own = interface.ip4.iter().find(|n| n.contains(&src))?;
        let sound = own.contains(&gateway)
            && !interface.owns_ip4(src)
            && !interface.is_broadcast_ip4(src)
            && !h.is_later_fragment()
            && !is_error4(h, quote)
            && !ip4::is_multicast(dst);
        if !sound || gateway == src {
            return None;
        }
        // RFC 1812 5.2.7.2: for the host.
        let (kind, code) = (icmp::REDIRECT, 1);
        let rest = gateway.octets();
        let mut message = IcmpHeader { kind, code, checksum: U16::new(0), rest };
        message.checksum = U16::new(Sum::new().over(message.as_bytes()).over(quote).checksum());
        let len = IcmpHeader::LEN + quote.len();
        let mut header = Ip4Header::new(own.addr().to_bits(), src.to_bits(), ip4::ICMP, 64, len);
        header.tos = 0xc0;
        header.fragment.set(ip4::DF);
        header.set_checksum();
        self.push(header.as_bytes())?;
        self.push(message.as_bytes())?;
        self.push(quote)
    }

    /// To a neighbour, about the destination where that is on the link itself, or about a router by its link-local address,
    /// by which alone hosts know routers.
    fn six(&mut self, interface: &Interface, gateway: [u8; 16], quote: &[u8]) -> Option<()> {
        let h = Ip6Header::view(quote)?;
        let itself = gateway == h.dst;
        let sound = interface.on_link_ip6(h.src.into())
            && !interface.owns_ip6(h.src.into())
            && (itself || ip6::is_link_local(&gateway))
            && !icmp6_error::is_error(h.next_header, quote.get(Ip6Header::LEN..)?)
            && !ip6::is_multicast(&h.dst)
            && gateway != h.src;
        if !sound {
            return None;
        }
        // The option is a whole number of units of eight bytes.
        let quote = quote.get(..quote.len() / 8 * 8)?;
        let (src, dst) = (interface.link_local.octets(), h.src);
        let mut message = [0; REDIRECT6];
        message[0] = icmpv6::REDIRECT;
        message[8..24].copy_from_slice(&gateway);
        message[24..40].copy_from_slice(&h.dst);
        message[40] = OPTION_REDIRECTED;
        message[41] = (1 + quote.len() / 8) as u8;
        let len = REDIRECT6 + quote.len();
        let sum = Sum::pseudo6(&src, &dst, ip6::ICMPV6, len as u32).over(&message).over(quote);
        message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        self.push(Ip6Header::new(src, dst, ip6::ICMPV6, 255, len).as_bytes())?;
        self.push(&message)?;
        self.push(quote)
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }
}

/// Whether a packet is itself an ICMP error; one cut off before its type counts as one.
fn is_error4(header: &Ip4Header, quote: &[u8]) -> bool {
    header.protocol == ip4::ICMP && quote.get(header.header_len()).is_none_or(|kind| icmp::is_error(*kind))
}

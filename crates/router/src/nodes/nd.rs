//! Neighbour discovery (RFC 4861): answers solicitations for this router's addresses and tells control what was heard.

use std::fmt;
use std::net::Ipv6Addr;

use linerate_pipeline::interface::{Interface, Interfaces};
use linerate_pipeline::{Batch, Cx, Exits, IfIndex, Node, Packet};
use linerate_wire::eth::{self, EthHeader};
use linerate_wire::icmpv6;
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::nd::{self, NeighborMessage, NeighborMessageWithMac};
use linerate_wire::{Header, Mac};
use zerocopy::IntoBytes;

use super::{EventSink, l2};
use crate::event::{NdKind, RouterEvent};

linerate_pipeline::exits! {
    /// Where packets go from `nd`.
    pub enum NdExit {
        /// The solicitation has become the advertisement.
        Reply,
        /// An advertisement: what it told was passed on, and Linux may want to hear it too.
        Heard,
        /// Valid, and of no concern to this router.
        Ignored,
        /// Router solicitation, router advertisement or redirect.
        Other,
        /// Fails a check of RFC 4861 7.1.
        Malformed,
        /// No room in the buffer for the answer.
        Unsendable,
    }
}

/// The longest message with options that is looked at; RFC 4861 options of solicitations and advertisements take far
/// less.
const MAX_MESSAGE: usize = 512;

/// Answers solicitations for addresses of the interface they came in by, duplicate address detection included; raises
/// [`RouterEvent::NdSeen`]. Expects ICMPv6 messages whose checksum is right, at `l4`.
pub struct Nd {
    interfaces: Interfaces,
    events: EventSink,
}

impl Nd {
    /// A node that answers for this table and tells what it hears.
    pub fn new(interfaces: Interfaces, events: EventSink) -> Self {
        Nd { interfaces, events }
    }
}

impl<P: Packet> Node<P> for Nd {
    type Exit = NdExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, NdExit>) {
        for (i, packet) in batch.iter_mut().enumerate() {
            out.set(i, self.handle(packet));
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        match NeighborMessage::view_at(packet.head(), usize::from(packet.meta().l4)) {
            Some(m) => write!(f, "type {} target {}", m.kind, Ipv6Addr::from(m.target)),
            None => f.write_str("malformed"),
        }
    }
}

impl Nd {
    fn handle<P: Packet>(&mut self, packet: &mut P) -> NdExit {
        let meta = *packet.meta();
        let (l3, l4) = (usize::from(meta.l3), usize::from(meta.l4));
        let mut buffer = [0; MAX_MESSAGE];
        let n = packet.copy_out(l4, &mut buffer);
        let bytes = buffer.get(..n).unwrap_or_default();
        let header = Ip6Header::view_at(packet.head(), l3).copied();
        let sender = EthHeader::view(packet.head()).map(|e| e.src);
        let (Some(header), Some(sender), Some(&kind)) = (header, sender, bytes.first()) else {
            return NdExit::Malformed;
        };
        if !matches!(kind, icmpv6::NEIGHBOR_SOLICITATION | icmpv6::NEIGHBOR_ADVERTISEMENT) {
            return NdExit::Other;
        }
        let Some(message) = Message::check(&header, bytes, packet.len() - l4, sender) else {
            return NdExit::Malformed;
        };
        let Some(interface) = self.interfaces.get().get(meta.rx_if) else { return NdExit::Ignored };
        if message.is_solicitation {
            let learned = solicitation_tells(&message, interface, meta.rx_if);
            let Some(claim) = claim(interface, message.target.into()) else { return NdExit::Ignored };
            if let Some(event) = learned {
                (self.events)(event);
            }
            return answer(packet, &message, claim, meta.rx_if, interface);
        }
        // Whether the target can be a neighbour on this link depends on routes too: control decides that.
        let target = Ipv6Addr::from(message.target);
        let kind = NdKind::Advertisement {
            solicited: message.flags & nd::FLAG_SOLICITED != 0,
            overrides: message.flags & nd::FLAG_OVERRIDE != 0,
        };
        let mac = message.lla;
        (self.events)(RouterEvent::NdSeen { interface: meta.rx_if, address: target, mac, kind });
        // Somebody else may claim an address of ours: control counts that, and Linux, which may be about to use it,
        // does duplicate address detection.
        NdExit::Heard
    }
}

/// A valid solicitation or advertisement.
struct Message {
    is_solicitation: bool,
    flags: u32,
    src: [u8; 16],
    target: [u8; 16],
    lla: Option<Mac>,
    /// Where the frame came from, where a solicitation has no link-layer address.
    sender: Mac,
}

impl Message {
    /// RFC 4861 7.1.1 and 7.1.2 (the checksum is right already); `len` is the whole message's length.
    fn check(header: &Ip6Header, bytes: &[u8], len: usize, sender: Mac) -> Option<Self> {
        let m = NeighborMessage::view(bytes)?;
        let is_solicitation = m.kind == icmpv6::NEIGHBOR_SOLICITATION;
        let wanted = if is_solicitation { nd::OPTION_SOURCE_LLA } else { nd::OPTION_TARGET_LLA };
        let options = bytes.get(NeighborMessage::LEN..)?;
        if len > bytes.len() {
            return None;
        }
        let lla = nd::link_layer_address(options, wanted).ok()?;
        let flags = m.flags.get();
        let duplicate_detection = ip6::is_unspecified(&header.src);
        let sound = header.hop_limit == 255
            && m.code == 0
            && !ip6::is_multicast(&m.target)
            && lla.is_none_or(|mac| !eth::is_group(mac))
            && if is_solicitation {
                !duplicate_detection || (header.dst == ip6::solicited_node(header.dst) && lla.is_none())
            } else {
                !duplicate_detection && (!ip6::is_multicast(&header.dst) || flags & nd::FLAG_SOLICITED == 0)
            };
        sound.then_some(Message { is_solicitation, flags, src: header.src, target: m.target, lla, sender })
    }
}

/// What a solicitation tells about who sent it; whether that can be a neighbour on this link, control decides.
fn solicitation_tells(message: &Message, interface: &Interface, index: IfIndex) -> Option<RouterEvent> {
    let address = Ipv6Addr::from(message.src);
    let mac = Some(message.lla?);
    let kind = NdKind::Solicitation;
    (!interface.owns_ip6(address)).then_some(RouterEvent::NdSeen { interface: index, address, mac, kind })
}

/// The flag that an address is advertised with: an address of its own overrides what others know. The subnet-router
/// anycast address (RFC 4291 2.6.1; not of a /127 or /128, RFC 6164) does not, for other routers have it too (RFC 4861
/// 7.2.7). `None` where the address is not the interface's.
fn claim(interface: &Interface, address: Ipv6Addr) -> Option<u32> {
    if interface.owns_ip6(address) {
        return Some(nd::FLAG_OVERRIDE);
    }
    let anycast = |n: &ipnet::Ipv6Net| {
        n.prefix_len() < 127 && !n.addr().is_unicast_link_local() && n.network() == address
    };
    interface.ip6.iter().any(anycast).then_some(0)
}

/// Turns a solicitation into the advertisement (RFC 4861 7.2.4).
fn answer<P: Packet>(
    packet: &mut P,
    message: &Message,
    claim: u32,
    index: IfIndex,
    interface: &Interface,
) -> NdExit {
    let duplicate_detection = ip6::is_unspecified(&message.src);
    let (dst, mac, solicited) = if duplicate_detection {
        (ip6::ALL_NODES, eth::ip6_multicast(ip6::ALL_NODES), 0)
    } else {
        (message.src, message.lla.unwrap_or(message.sender), nd::FLAG_SOLICITED)
    };
    let src = message.target;
    let own_mac = interface.mac_of(Ipv6Addr::from(src).into());
    let reply = NeighborMessageWithMac::new(
        icmpv6::NEIGHBOR_ADVERTISEMENT,
        nd::FLAG_ROUTER | claim | solicited,
        src,
        nd::OPTION_TARGET_LLA,
        own_mac,
        &src,
        &dst,
    );
    let header = Ip6Header::new(src, dst, ip6::ICMPV6, 255, NeighborMessageWithMac::LEN);
    let l3 = usize::from(packet.meta().l3);
    let wanted = l3 + Ip6Header::LEN + NeighborMessageWithMac::LEN;
    packet.truncate(wanted);
    let missing = wanted.saturating_sub(packet.len());
    if (missing > 0 && packet.append(missing).is_none()) || packet.pull(wanted).is_none() {
        return NdExit::Unsendable;
    }
    if !l2::readdress(packet, mac, own_mac, index, interface) {
        return NdExit::Malformed;
    }
    if let Some(to) = packet.head_mut().get_mut(l3..wanted) {
        to[..Ip6Header::LEN].copy_from_slice(header.as_bytes());
        to[Ip6Header::LEN..].copy_from_slice(reply.as_bytes());
    }
    NdExit::Reply
}

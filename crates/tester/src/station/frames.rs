//! The frames that stations understand and make: ARP (RFC 826), neighbour discovery (RFC 4861), echo (RFC 792, 4443), each under 0 to
//! 2 VLAN tags.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use linerate_wire::arp::{self, ArpPacket};
use linerate_wire::checksum::Sum;
use linerate_wire::eth::{
    self, ETHERTYPE_ARP, ETHERTYPE_IP4, ETHERTYPE_IP6, ETHERTYPE_QINQ, ETHERTYPE_VLAN, EthHeader, Mac,
};
use linerate_wire::icmp::{ECHO_REPLY, ECHO_REQUEST};
use linerate_wire::icmpv6::{self, NEIGHBOR_ADVERTISEMENT, NEIGHBOR_SOLICITATION};
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::{self, ICMPV6, Ip6Header};
use linerate_wire::nd::{self, NeighborMessage, NeighborMessageWithMac};
use linerate_wire::vlan::{VlanTag, vid};
use linerate_wire::{Header, U16};
use zerocopy::IntoBytes;

/// Protocol number of ICMP.
const ICMP: u8 = 1;

/// A frame that concerns stations.
pub(super) struct Frame {
    /// Where it was sent to.
    pub(super) destination: Mac,
    source: Mac,
    /// VLAN ids, outer first.
    pub(super) vlans: ArrayVec<u16, 2>,
    /// Where the layer behind the tags begins.
    at: usize,
    pub(super) said: Said,
}

/// What it says.
pub(super) enum Said {
    /// Who has `target`?
    Asks { target: IpAddr, from: IpAddr, mac: Mac },
    /// `target` is at `mac`.
    Answers { target: IpAddr, mac: Mac },
    /// An echo request to `target`.
    Pings { target: IpAddr },
}

impl Frame {
    /// Reads a frame; `None`: it concerns no station, or is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let ethernet = EthHeader::view(bytes)?;
        let (mut ethertype, mut at, mut vlans) = (ethernet.ethertype.get(), EthHeader::LEN, ArrayVec::new());
        while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
            let tag = VlanTag::view_at(bytes, at)?;
            vlans.try_push(vid(tag.tci.get())).ok()?;
            (ethertype, at) = (tag.ethertype.get(), at + VlanTag::LEN);
        }
        let rest = bytes.get(at..)?;
        let said = match ethertype {
            ETHERTYPE_ARP => arp(rest)?,
            ETHERTYPE_IP4 => echo(rest)?,
            ETHERTYPE_IP6 => discovery(rest)?,
            _ => return None,
        };
        Some(Frame { destination: ethernet.dst, source: ethernet.src, vlans, at, said })
    }

    /// The answer of the station with this MAC address to a question or a ping; `None` where there is none.
    pub(super) fn answer(&self, bytes: &[u8], mac: Mac) -> Option<Vec<u8>> {
        let mut answer = bytes.get(..self.at)?.to_vec();
        let ethernet = EthHeader::view_mut(&mut answer)?;
        (ethernet.dst, ethernet.src) = (self.source, mac);
        match &self.said {
            Said::Asks { target: IpAddr::V4(target), from: IpAddr::V4(from), mac: asker } => {
                let ours = (mac, target.to_bits());
                let reply = ArpPacket::new(arp::REPLY, ours, (*asker, from.to_bits()));
                answer.extend_from_slice(reply.as_bytes());
            }
            Said::Asks { target: IpAddr::V6(target), from: IpAddr::V6(from), mac: asker } => {
                // Who has no address yet is answered by all nodes' group (RFC 4861 7.2.4).
                let (to, flags) = match from.is_unspecified() {
                    true => (Ipv6Addr::from(ip6::ALL_NODES), nd::FLAG_OVERRIDE),
                    false => (*from, nd::FLAG_OVERRIDE | nd::FLAG_SOLICITED),
                };
                let ethernet = EthHeader::view_mut(&mut answer)?;
                ethernet.dst =
                    if from.is_unspecified() { eth::ip6_multicast(ip6::ALL_NODES) } else { *asker };
                let (target, to) = (target.octets(), to.octets());
                let message = NeighborMessageWithMac::new(
                    NEIGHBOR_ADVERTISEMENT,
                    flags,
                    target,
                    nd::OPTION_TARGET_LLA,
                    mac,
                    &target,
                    &to,
                );
                let header = Ip6Header::new(target, to, ICMPV6, 255, NeighborMessageWithMac::LEN);
                answer.extend_from_slice(header.as_bytes());
                answer.extend_from_slice(message.as_bytes());
            }
            Said::Pings { target: IpAddr::V4(_) } => pong4(bytes.get(self.at..)?, &mut answer)?,
            Said::Pings { target: IpAddr::V6(_) } => pong6(bytes.get(self.at..)?, &mut answer)?,
            _ => return None,
        }
        Some(answer)
    }
}

/// A question of ours.
pub(super) struct Question {
    pub(super) from: IpAddr,
    pub(super) target: IpAddr,
    /// What was known: then the question goes there alone.
    pub(super) known: Option<Mac>,
}

impl Question {
    /// The frame that asks it; `None` where the addresses are of different families.
    pub(super) fn frame(&self, mac: Mac, vlans: &[u16]) -> Option<Vec<u8>> {
        match (self.target, self.from) {
            (IpAddr::V4(target), IpAddr::V4(from)) => {
                let mut frame = ethernet(self.known.unwrap_or(eth::BROADCAST), mac, vlans, ETHERTYPE_ARP);
                let packet = ArpPacket::new(
                    arp::REQUEST,
                    (mac, from.to_bits()),
                    (self.known.unwrap_or_default(), target.to_bits()),
                );
                frame.extend_from_slice(packet.as_bytes());
                Some(frame)
            }
            (IpAddr::V6(target), IpAddr::V6(from)) => {
                let (from, target) = (from.octets(), target.octets());
                let group = ip6::solicited_node(target);
                let to = if self.known.is_some() { target } else { group };
                let mut frame =
                    ethernet(self.known.unwrap_or(eth::ip6_multicast(group)), mac, vlans, ETHERTYPE_IP6);
                let message = NeighborMessageWithMac::new(
                    NEIGHBOR_SOLICITATION,
                    0,
                    target,
                    nd::OPTION_SOURCE_LLA,
                    mac,
                    &from,
                    &to,
                );
                let header = Ip6Header::new(from, to, ICMPV6, 255, NeighborMessageWithMac::LEN);
                frame.extend_from_slice(header.as_bytes());
                frame.extend_from_slice(message.as_bytes());
                Some(frame)
            }
            _ => None,
        }
    }
}

/// An Ethernet header with its tags: the outer of two is a service tag (802.1ad).
fn ethernet(dst: Mac, src: Mac, vlans: &[u16], ethertype: u16) -> Vec<u8> {
    let mut types: Vec<u16> = match vlans.len() {
        0 => Vec::new(),
        1 => vec![ETHERTYPE_VLAN],
        _ => vec![ETHERTYPE_QINQ, ETHERTYPE_VLAN],
    };
    types.push(ethertype);
    let mut frame = EthHeader { dst, src, ethertype: U16::new(types[0]) }.as_bytes().to_vec();
    for (vlan, next) in vlans.iter().zip(types.iter().skip(1)) {
        frame.extend_from_slice(VlanTag { tci: U16::new(*vlan), ethertype: U16::new(*next) }.as_bytes());
    }
    frame
}

fn arp(bytes: &[u8]) -> Option<Said> {
    let packet = ArpPacket::view(bytes).filter(|p| p.is_well_formed())?;
    let ip = |a: linerate_wire::U32| IpAddr::from(Ipv4Addr::from_bits(a.get()));
    Some(match packet.operation.get() {
        arp::REPLY => Said::Answers { target: ip(packet.sender_ip), mac: packet.sender_mac },
        _ => Said::Asks { target: ip(packet.target_ip), from: ip(packet.sender_ip), mac: packet.sender_mac },
    })
}

/// The packet without padding, its header's length checked.
fn ip4(bytes: &[u8]) -> Option<(&Ip4Header, &[u8])> {
    let header = Ip4Header::view(bytes)?;
    let (start, end) = (usize::from(header.version_ihl & 15) * 4, usize::from(header.total_len.get()));
    let whole =
        header.version_ihl >> 4 == 4 && start >= Ip4Header::LEN && header.fragment.get() & 0x3fff == 0;
    whole.then(|| bytes.get(start..end)).flatten().map(|payload| (header, payload))
}

fn ip6(bytes: &[u8]) -> Option<(&Ip6Header, &[u8])> {
    let header = Ip6Header::view(bytes).filter(|h| h.version() == 6)?;
    let end = Ip6Header::LEN + usize::from(header.payload_len.get());
    bytes.get(Ip6Header::LEN..end).map(|payload| (header, payload))
}

fn echo(bytes: &[u8]) -> Option<Said> {
    let (header, payload) = ip4(bytes)?;
    let asks = header.protocol == ICMP && payload.len() >= 8 && payload.starts_with(&[ECHO_REQUEST, 0]);
    asks.then(|| Said::Pings { target: Ipv4Addr::from_bits(header.dst.get()).into() })
}

fn discovery(bytes: &[u8]) -> Option<Said> {
    let (header, payload) = ip6(bytes)?;
    if header.next_header != ICMPV6 || payload.len() < 8 {
        return None;
    }
    let source = Ipv6Addr::from(header.src);
    if payload[0] == icmpv6::ECHO_REQUEST {
        return Some(Said::Pings { target: Ipv6Addr::from(header.dst).into() });
    }
    // From another link, or broken: RFC 4861 7.1.
    let length = payload.len() as u32;
    let valid = Sum::pseudo6(&header.src, &header.dst, ICMPV6, length).over(payload).is_valid();
    if header.hop_limit != 255 || !valid {
        return None;
    }
    let (message, options) = (NeighborMessage::view(payload)?, payload.get(NeighborMessage::LEN..)?);
    let target = IpAddr::from(Ipv6Addr::from(message.target));
    match message.kind {
        NEIGHBOR_SOLICITATION => {
            let mac = nd::link_layer_address(options, nd::OPTION_SOURCE_LLA).ok()?;
            // A probe for duplicates has no address to answer to; anything else must say where to.
            let mac = mac.or(source.is_unspecified().then_some([0; 6]))?;
            Some(Said::Asks { target, from: source.into(), mac })
        }
        NEIGHBOR_ADVERTISEMENT => {
            let mac = nd::link_layer_address(options, nd::OPTION_TARGET_LLA).ok()??;
            Some(Said::Answers { target, mac })
        }
        _ => None,
    }
}

fn pong4(bytes: &[u8], answer: &mut Vec<u8>) -> Option<()> {
    let (header, payload) = ip4(bytes)?;
    let mut reply = payload.to_vec();
    reply[0] = ECHO_REPLY;
    reply[2..4].fill(0);
    let sum = Sum::new().over(&reply).checksum();
    reply[2..4].copy_from_slice(&sum.to_be_bytes());
    let back = Ip4Header::new(header.dst.get(), header.src.get(), ICMP, 64, reply.len());
    answer.extend_from_slice(back.as_bytes());
    answer.extend_from_slice(&reply);
    Some(())
}

fn pong6(bytes: &[u8], answer: &mut Vec<u8>) -> Option<()> {
    let (header, payload) = ip6(bytes)?;
    let mut reply = payload.to_vec();
    reply[0] = icmpv6::ECHO_REPLY;
    reply[2..4].fill(0);
    let sum = Sum::pseudo6(&header.dst, &header.src, ICMPV6, reply.len() as u32).over(&reply).checksum();
    reply[2..4].copy_from_slice(&sum.to_be_bytes());
    let back = Ip6Header::new(header.dst, header.src, ICMPV6, 64, reply.len());
    answer.extend_from_slice(back.as_bytes());
    answer.extend_from_slice(&reply);
    Some(())
}

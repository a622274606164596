//! Packets for Linux: sorted by kind, limited, handed up.
//!
//! A packet leaves the graph here as it came in; the engine's side of [`PuntSink`] writes it to the tap of its interface.

use std::fmt;

use linerate_pipeline::{Batch, Cx, DropReason, Exits, Node, Packet};
use linerate_wire::icmpv6;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, eth};

use super::icmp6_error::WALK;
use super::limit::ErrorLimit;
use crate::punt::{PuntClass, PuntCounters, PuntRates, PuntSink};

linerate_pipeline::exits! {
    /// Where packets go from `punt`: those that Linux does not get.
    pub enum PuntExit {
        /// Over the rate of its class.
        Policed,
        /// The queue to Linux is full.
        QueueFull,
        /// Of an ethertype that nothing in Linux is asked to handle.
        Unwanted,
    }
}

/// Ethertypes and LLC addresses of link protocols.
const ISIS_JUMBO: u16 = 0x8870;
const SLOW_PROTOCOLS: u16 = 0x8809;
const LLDP: u16 = 0x88cc;
/// Below this an ethertype field is the length of an LLC frame (IEEE 802.3 3.2.6).
const LLC: u16 = 0x0600;
const LLC_OSI: [u8; 2] = [0xfe, 0xfe];

/// IP protocols by number.
mod protocol {
    pub(super) const IGMP: u8 = 2;
    pub(super) const EIGRP: u8 = 88;
    pub(super) const OSPF: u8 = 89;
    pub(super) const PIM: u8 = 103;
    pub(super) const VRRP: u8 = 112;
}

/// Gives packets to Linux, class by class.
pub struct Punt<P> {
    limits: Vec<ErrorLimit>,
    counters: PuntCounters,
    sink: Box<dyn PuntSink<P>>,
}

impl<P> Punt<P> {
    /// A node that lets so many packets of each class pass to `sink`.
    pub fn new(rates: &PuntRates, counters: PuntCounters, sink: Box<dyn PuntSink<P>>) -> Self {
        Punt { limits: rates.0.iter().map(|r| ErrorLimit::new(*r)).collect(), counters, sink }
    }
}

impl<P: Packet> Node<P> for Punt<P> {
    type Exit = PuntExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, PuntExit>) {
        let mut rest = Batch::new();
        for packet in batch.drain(..) {
            if let Err((packet, exit)) = self.hand_up(cx, packet) {
                out.set(rest.len(), exit);
                rest.push(packet);
            }
        }
        *batch = rest;
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        f.write_str(classify(packet).map_or("unwanted", PuntClass::name))
    }
}

impl<P: Packet> Punt<P> {
    fn hand_up(&mut self, cx: &Cx<'_, P>, packet: P) -> Result<(), (P, PuntExit)> {
        let Some(class) = classify(&packet) else { return Err((packet, PuntExit::Unwanted)) };
        let counters = self.counters.of(class);
        if !self.limits.get(class as usize).is_some_and(|l| l.allow(cx.now)) {
            counters.policed.add(1);
            return Err((packet, PuntExit::Policed));
        }
        let (port, interface, bytes) = (packet.rx_port(), packet.meta().rx_if, packet.len() as u64);
        match self.sink.put(packet, interface, class) {
            Ok(()) => {
                counters.packets.add(1);
                counters.bytes.add(bytes);
                cx.counters.dropped(port, DropReason::Punted, 1);
                Ok(())
            }
            Err(packet) => {
                counters.queue_full.add(1);
                Err((packet, PuntExit::QueueFull))
            }
        }
    }
}

/// The class of a packet; `None`: of an ethertype that Linux does not get.
pub(crate) fn classify<P: Packet>(packet: &P) -> Option<PuntClass> {
    let l3 = usize::from(packet.meta().l3);
    Some(match packet.meta().ethertype {
        eth::ETHERTYPE_IP4 => class4(packet, l3),
        eth::ETHERTYPE_IP6 => class6(packet, l3),
        eth::ETHERTYPE_ARP => PuntClass::Neighbor,
        ISIS_JUMBO => PuntClass::IsIs,
        LLDP | SLOW_PROTOCOLS => PuntClass::Link,
        length if length < LLC => {
            let mut llc = [0; 2];
            if packet.copy_out(l3, &mut llc) < 2 || llc != LLC_OSI {
                return None;
            }
            PuntClass::IsIs
        }
        _ => return None,
    })
}

fn class4<P: Packet>(packet: &P, l3: usize) -> PuntClass {
    let Some(h) = Ip4Header::view_at(packet.head(), l3) else { return PuntClass::Local };
    let first = h.fragment.get() & 0x1fff == 0;
    let l4 = l3 + h.header_len();
    by_protocol(packet, h.protocol, first.then_some(l4)).unwrap_or(if ip4::is_multicast(h.dst.get()) {
        PuntClass::MulticastData
    } else {
        PuntClass::Local
    })
}

fn class6<P: Packet>(packet: &P, l3: usize) -> PuntClass {
    let Some(h) = Ip6Header::view_at(packet.head(), l3) else { return PuntClass::Local };
    let otherwise = if ip6::is_multicast(&h.dst) { PuntClass::MulticastData } else { PuntClass::Local };
    let mut bytes = [0; WALK];
    let n = packet.copy_out(l3 + Ip6Header::LEN, &mut bytes);
    let bytes = bytes.get(..n).unwrap_or_default();
    let Ok(upper) = ip6::walk(h.next_header, bytes) else { return otherwise };
    let l4 = l3 + Ip6Header::LEN + upper.offset;
    if upper.protocol == ip6::ICMPV6 {
        let mut kind = [0];
        packet.copy_out(l4, &mut kind);
        return match kind[0] {
            icmpv6::ROUTER_SOLICITATION..=icmpv6::REDIRECT => PuntClass::Neighbor,
            icmpv6::MLD_QUERY..=icmpv6::MLD_DONE | icmpv6::MLD2_REPORT => PuntClass::Igmp,
            _ => PuntClass::Icmp,
        };
    }
    by_protocol(packet, upper.protocol, Some(l4)).unwrap_or(otherwise)
}

/// By the protocol over IP and its ports, which are at `l4` where this is no later fragment.
fn by_protocol<P: Packet>(packet: &P, protocol: u8, l4: Option<usize>) -> Option<PuntClass> {
    let ports = || {
        let mut bytes = [0; 4];
        let n = packet.copy_out(l4?, &mut bytes);
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        (n == 4).then(|| [word(0), word(2)])
    };
    match protocol {
        ip4::ICMP => Some(PuntClass::Icmp),
        protocol::IGMP => Some(PuntClass::Igmp),
        protocol::OSPF => Some(PuntClass::Ospf),
        protocol::PIM => Some(PuntClass::Pim),
        protocol::VRRP => Some(PuntClass::Vrrp),
        protocol::EIGRP => Some(PuntClass::Routing),
        // BGP, LDP: either side may have opened the connection.
        ip4::TCP => ports()?.iter().any(|p| matches!(p, 179 | 646)).then_some(PuntClass::Bgp),
        ip4::UDP => match ports()?[1] {
            3784 | 3785 | 4784 | 6784 | 7784 => Some(PuntClass::Bfd),
            67 | 68 | 546 | 547 => Some(PuntClass::Dhcp),
            520 | 521 => Some(PuntClass::Routing),
            646 => Some(PuntClass::Bgp),
            _ => None,
        },
        _ => None,
    }
}

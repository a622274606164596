//! Asking for neighbours: ARP requests (RFC 826) and neighbour solicitations (RFC 4861 7.2.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_pipeline::interface::InterfaceTable;
use linerate_pipeline::{Cx, Interface, Packet};
use linerate_wire::arp::{self, ArpPacket};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::nd::{self, NeighborMessageWithMac};
use linerate_wire::{Header, eth, icmpv6};
use zerocopy::IntoBytes;

use crate::event::Probe;
use crate::plane::{Adjacency, MAX_HEADER, NextHops};

/// The shortest Ethernet frame without FCS; shorter ones are padded with zeros.
const MIN_FRAME: usize = 60;

/// Sends a probe, and notes in `next_hops` that this neighbour was asked for. It counts as generated on the interface's
/// port. `false` where the interface is gone or down, or the pool is empty; nothing is lost then, for whoever wants the
/// neighbour asks again.
pub fn send<P: Packet>(
    cx: &mut Cx<'_, P>,
    table: &InterfaceTable,
    next_hops: &NextHops,
    probe: &Probe,
) -> bool {
    let Some(interface) = table.get(probe.interface).filter(|i| i.up) else { return false };
    let mut frame = Frame { bytes: [0; LONGEST], len: 0 };
    match probe.address {
        IpAddr::V4(target) => {
            // A router without any address asks as a probe does, from 0.0.0.0 (RFC 5227).
            let sender = table.source_ip4(interface, target).unwrap_or(Ipv4Addr::UNSPECIFIED);
            frame.arp(probe, interface, sender, target);
        }
        IpAddr::V6(target) => frame.solicitation(probe, interface, target),
    }
    let bytes = frame.bytes.get(..frame.len.max(MIN_FRAME)).unwrap_or_default();
    let Some(mut packet) = cx.alloc.alloc() else { return false };
    let Some(to) = packet.append(bytes.len()) else { return false };
    to.copy_from_slice(bytes);
    packet.set_rx_port(interface.port);
    let meta = packet.meta_mut();
    meta.tx_port = interface.port;
    (meta.rx_if, meta.tx_if) = (probe.interface, probe.interface);
    cx.generated(&mut packet);
    cx.tx.send(interface.port, packet, cx.counters);
    next_hops.note_asked(cx.now, probe.interface, probe.address);
    true
}

/// Room for the longest probe: a solicitation with two VLAN tags.
const LONGEST: usize = MAX_HEADER + Ip6Header::LEN + size_of::<NeighborMessageWithMac>();

struct Frame {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Frame {
    fn arp(&mut self, probe: &Probe, interface: &Interface, sender: Ipv4Addr, target: Ipv4Addr) {
        self.ethernet(probe, interface, eth::BROADCAST, eth::ETHERTYPE_ARP);
        let target = (probe.unicast.unwrap_or_default(), target.to_bits());
        self.push(ArpPacket::new(arp::REQUEST, (interface.mac, sender.to_bits()), target).as_bytes());
    }

    fn solicitation(&mut self, probe: &Probe, interface: &Interface, target: Ipv6Addr) {
        let target = target.octets();
        let group = ip6::solicited_node(target);
        self.ethernet(probe, interface, eth::ip6_multicast(group), eth::ETHERTYPE_IP6);
        let src = interface.source_ip6(target.into()).octets();
        let dst = if probe.unicast.is_some() { target } else { group };
        let message = NeighborMessageWithMac::new(
            icmpv6::NEIGHBOR_SOLICITATION,
            0,
            target,
            nd::OPTION_SOURCE_LLA,
            interface.mac,
            &src,
            &dst,
        );
        self.push(Ip6Header::new(src, dst, ip6::ICMPV6, 255, NeighborMessageWithMac::LEN).as_bytes());
        self.push(message.as_bytes());
    }

    fn ethernet(&mut self, probe: &Probe, interface: &Interface, group: eth::Mac, ethertype: u16) {
        let adjacency = Adjacency::new(probe.interface, interface, Some(probe.unicast.unwrap_or(group)));
        if adjacency.write(&mut self.bytes, ethertype) {
            self.len = usize::from(adjacency.header_len);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            to.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

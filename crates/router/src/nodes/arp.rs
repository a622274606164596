//! ARP (RFC 826, RFC 5227): answers for this router's addresses and tells control what was heard.

use std::fmt;
use std::net::Ipv4Addr;

use linerate_pipeline::interface::{Interface, InterfaceTable, Interfaces};
use linerate_pipeline::{Batch, Cx, Exits, Node, Packet};
use linerate_wire::Header;
use linerate_wire::arp::{self, ArpPacket};
use zerocopy::IntoBytes;

use super::{EventSink, l2};
use crate::event::{ArpKind, RouterEvent};

linerate_pipeline::exits! {
    /// Where packets go from `arp`.
    pub enum ArpExit {
        /// The request has become the reply.
        Reply,
        /// What it told was passed on, and Linux may want to hear it too: an answer to us, an announcement, or a claim to
        /// one of our addresses.
        Heard,
        /// What it told was passed on; the packet is used up.
        Consumed,
        /// It tells nothing that concerns this router.
        Ignored,
        /// Not ARP for IPv4 over Ethernet, cut off, or from a sender that cannot be one.
        Malformed,
    }
}

/// Answers requests for addresses of the interface they came in by, in place; raises [`RouterEvent::ArpSeen`].
///
/// A request for an address of another interface is not answered: whoever asks is on the wrong link. An interface
/// without addresses answers for all of the router's, since it speaks with those.
pub struct Arp {
    interfaces: Interfaces,
    events: EventSink,
}

impl Arp {
    /// A node that answers for this table and tells what it hears.
    pub fn new(interfaces: Interfaces, events: EventSink) -> Self {
        Arp { interfaces, events }
    }
}

impl<P: Packet> Node<P> for Arp {
    type Exit = ArpExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, ArpExit>) {
        for (i, packet) in batch.iter_mut().enumerate() {
            out.set(i, self.handle(packet));
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        let Some(a) = ArpPacket::view_at(packet.head(), usize::from(packet.meta().l3)) else {
            return f.write_str("malformed");
        };
        let (sender, target) =
            (Ipv4Addr::from_bits(a.sender_ip.get()), Ipv4Addr::from_bits(a.target_ip.get()));
        write!(f, "op {} sender {sender} target {target}", a.operation.get())
    }
}

impl Arp {
    fn handle<P: Packet>(&mut self, packet: &mut P) -> ArpExit {
        let l3 = usize::from(packet.meta().l3);
        let rx_if = packet.meta().rx_if;
        let Some(head) = packet.pull(l3 + ArpPacket::LEN) else { return ArpExit::Malformed };
        let Some(&heard) = ArpPacket::view_at(head, l3).filter(|a| a.is_well_formed()) else {
            return ArpExit::Malformed;
        };
        let table = self.interfaces.get();
        let Some(interface) = table.get(rx_if) else { return ArpExit::Ignored };
        let sender = Ipv4Addr::from_bits(heard.sender_ip.get());
        let target = Ipv4Addr::from_bits(heard.target_ip.get());
        // Our own packet came back: nothing to learn, nothing to answer.
        if heard.sender_mac == interface.mac {
            return ArpExit::Ignored;
        }
        // Somebody else claims an address of ours: control counts it, and nobody answers.
        if table.answers_ip4(interface, sender) {
            let (address, mac) = (sender, heard.sender_mac);
            let kind = ArpKind::Other;
            (self.events)(RouterEvent::ArpSeen { interface: rx_if, address, mac, kind });
            return ArpExit::Heard;
        }
        let kind = classify(&heard, table, interface, sender, target);
        let answer = heard.operation.get() == arp::REQUEST && table.answers_ip4(interface, target);
        // A probe (RFC 5227 2.1.1) has no sender address yet.
        if let Some(kind) = kind {
            (self.events)(RouterEvent::ArpSeen {
                interface: rx_if,
                address: sender,
                mac: heard.sender_mac,
                kind,
            });
        }
        if !answer {
            return match kind {
                Some(ArpKind::Reply | ArpKind::Gratuitous) => ArpExit::Heard,
                Some(_) => ArpExit::Consumed,
                None => ArpExit::Ignored,
            };
        }
        let mac = interface.mac_of(target.into());
        let us = (mac, heard.target_ip.get());
        let reply = ArpPacket::new(arp::REPLY, us, (heard.sender_mac, heard.sender_ip.get()));
        if !l2::readdress(packet, heard.sender_mac, mac, rx_if, interface) {
            return ArpExit::Malformed;
        }
        if let Some(to) = ArpPacket::view_at_mut(packet.head_mut(), l3) {
            to.as_mut_bytes().copy_from_slice(reply.as_bytes());
        }
        ArpExit::Reply
    }
}

/// What the packet tells about its sender; `None` where that is nothing this router may believe. Whether the sender can
/// be a neighbour on this link depends on routes too, so control decides that.
fn classify(
    heard: &ArpPacket,
    table: &InterfaceTable,
    interface: &Interface,
    sender: Ipv4Addr,
    target: Ipv4Addr,
) -> Option<ArpKind> {
    if sender.is_unspecified() || interface.is_broadcast_ip4(sender) {
        return None;
    }
    let for_us = table.answers_ip4(interface, target);
    // A reply to this station answers a question of this station, whatever address it was asked with.
    let to_us = for_us || heard.target_mac == interface.mac;
    Some(match heard.operation.get() {
        _ if sender == target => ArpKind::Gratuitous,
        arp::REPLY if to_us => ArpKind::Reply,
        arp::REQUEST if for_us => ArpKind::RequestForUs,
        _ => ArpKind::Other,
    })
}

//! Ethernet headers of packets that leave: the neighbour's, or the sender's own turned around.

use linerate_pipeline::meta::flags;
use linerate_pipeline::{IfIndex, Interface, Meta, Packet};
use linerate_wire::eth::EthHeader;
use linerate_wire::vlan::{PRIORITY_MASK, VlanTag};
use linerate_wire::{Header, Mac};

use crate::plane::Adjacency;

/// Offset of the (outer) tag control information in a tagged frame.
const TCI: usize = EthHeader::LEN;

/// Puts the adjacency's header in front of the network-layer header, whatever was there before: in place where the
/// lengths match, else by taking room from, or giving it back to, the headroom. The priority bits of a tagged frame
/// go over into the outer tag. Sets `l3`, `l4`, `tx_if`, `tx_port`. `false` (and no change) where the headroom is too
/// small.
pub(crate) fn write<P: Packet>(packet: &mut P, adjacency: &Adjacency, ethertype: u16) -> bool {
    let (old, new) = (usize::from(packet.meta().l3), usize::from(adjacency.header_len));
    let fits = if new > old { packet.prepend(new - old).is_some() } else { packet.trim_front(old - new) };
    if !fits {
        return false;
    }
    let (head, meta) = packet.split_mut();
    let written = adjacency.write(head, ethertype);
    keep_priority(head, meta, new);
    meta.l4 = meta.l4.wrapping_sub(meta.l3).wrapping_add(new as u16);
    meta.l3 = new as u16;
    (meta.tx_if, meta.tx_port) = (adjacency.interface, adjacency.port);
    written
}

/// Copies the priority that a frame came with into the outer tag of the header it leaves with.
fn keep_priority(head: &mut [u8], meta: &Meta, header_len: usize) {
    let priority = meta.vlan_tci & PRIORITY_MASK;
    if meta.flags & flags::VLAN != 0
        && priority != 0
        && header_len > EthHeader::LEN
        && let Some(tag) = VlanTag::view_at_mut(head, TCI)
    {
        tag.tci.set(tag.tci.get() & !PRIORITY_MASK | priority);
    }
}

/// Sends a frame back where it came from: to its source address, from the interface's, tags unchanged. Sets `tx_if`
/// and `tx_port`. `false` where there is no Ethernet header to turn around.
pub(super) fn turn<P: Packet>(packet: &mut P, index: IfIndex, interface: &Interface) -> bool {
    let Some(sender) = EthHeader::view(packet.head()).map(|e| e.src) else { return false };
    readdress(packet, sender, interface.mac, index, interface)
}

/// As [`turn`], to another station on the same link, from an address of the interface's (its own, or a virtual router's).
pub(super) fn readdress<P: Packet>(
    packet: &mut P,
    to: Mac,
    from: Mac,
    index: IfIndex,
    interface: &Interface,
) -> bool {
    let (head, meta) = packet.split_mut();
    let Some(e) = EthHeader::view_mut(head) else { return false };
    (e.dst, e.src) = (to, from);
    (meta.tx_if, meta.tx_port) = (index, interface.port);
    meta.flags |= flags::GENERATED;
    true
}

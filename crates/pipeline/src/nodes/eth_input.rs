//! Ethernet input: finds a frame's logical interface and what it carries.

use std::fmt;

use linerate_wire::Header;
use linerate_wire::eth::{self, EthHeader};
use linerate_wire::vlan::VlanTag;

use crate::interface::{InterfaceTable, Interfaces};
use crate::meta::{IF_NONE, flags};
use crate::policy::{IpPolicy, SourceValidation, VRF_DEFAULT, VrfId};
use crate::{Batch, Cx, Exits, IfIndex, Meta, Node, Packet, PortId};

crate::exits! {
    /// Where frames go from `eth_input`.
    pub enum EthInputExit {
        /// IPv4.
        Ip4,
        /// IPv6.
        Ip6,
        /// ARP.
        Arp,
        /// Any other ethertype, IEEE 802.3 length fields included.
        Other,
        /// Shorter than an Ethernet header.
        TooShort,
        /// A VLAN tag is cut off.
        VlanTooShort,
        /// No interface takes frames with these tags on this port.
        VlanUnknown,
        /// The interface is down.
        InterfaceDown,
        /// Sent from a group address.
        SourceMulticast,
        /// For another station.
        NotForUs,
        /// The header lies across segments and cannot be made contiguous.
        NotContiguous,
    }
}

/// How many packets ahead data is fetched into the cache.
const PREFETCH: usize = 6;

/// Sets `rx_if`, `l3`, `ethertype`, the VLAN fields and [`flags::L2_MULTICAST`]; passes frames for the interface's own MAC
/// address and for groups.
///
/// One 64-bit comparison settles the common frame: untagged IP to the port's own MAC address from a unicast source. All
/// else takes the long way.
#[derive(Clone, Debug)]
pub struct EthInput {
    interfaces: Interfaces,
}

impl EthInput {
    /// A node that reads this table.
    pub fn new(interfaces: Interfaces) -> Self {
        EthInput { interfaces }
    }
}

impl<P: Packet> Node<P> for EthInput {
    type Exit = EthInputExit;

    fn process(&mut self, _: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, EthInputExit>) {
        let table = self.interfaces.get();
        batch.iter().take(PREFETCH).for_each(P::prefetch);
        let Some(first) = batch.first() else { return };
        let common = ToUs::new(table, first.rx_port());
        let asked = asked(common.policy);
        out.set_all(EthInputExit::Ip4);
        for i in 0..batch.len() {
            if let Some(ahead) = batch.get(i + PREFETCH) {
                ahead.prefetch();
            }
            let packet = &mut batch[i];
            let ethertype = common.ethertype(packet);
            let meta = packet.meta_mut();
            *meta = Meta::default();
            match ethertype {
                Some(eth::ETHERTYPE_IP4) => {
                    (meta.rx_if, meta.l3, meta.ethertype) = (common.interface, 14, eth::ETHERTYPE_IP4);
                    (meta.vrf, meta.flags) = (common.vrf, asked);
                }
                Some(eth::ETHERTYPE_IP6) => {
                    (meta.rx_if, meta.l3, meta.ethertype) = (common.interface, 14, eth::ETHERTYPE_IP6);
                    (meta.vrf, meta.flags) = (common.vrf, asked);
                    out.set(i, EthInputExit::Ip6);
                }
                _ => out.set(i, classify(table, packet)),
            }
        }
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        let Some(e) = EthHeader::view(packet.head()) else { return write!(f, "{} bytes", packet.len()) };
        let mac = |f: &mut dyn fmt::Write, [a, b, c, d, e, g]: eth::Mac| {
            write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
        };
        mac(f, e.src)?;
        f.write_str(" > ")?;
        mac(f, e.dst)?;
        let m = packet.meta();
        if m.flags & flags::VLAN != 0 {
            write!(f, " vlan {}", linerate_wire::vlan::vid(m.vlan_tci))?;
        }
        if m.flags & flags::QINQ != 0 {
            write!(f, ".{}", linerate_wire::vlan::vid(m.inner_tci))?;
        }
        write!(f, " ethertype {:#06x} {} bytes", m.ethertype, packet.len())
    }
}

/// What a frame looks like that came in untagged by a port and is for this system: to the address of the port's untagged
/// interface, which is up, or of a virtual router there, from a unicast source.
#[derive(Clone, Copy, Debug)]
pub struct ToUs {
    port: PortId,
    interface: IfIndex,
    vrf: VrfId,
    policy: IpPolicy,
    /// Destination MAC in the low 48 bits; the group bit of the source, bit 48, is clear.
    address: u64,
    /// The same of the first virtual router there; that of the interface where there is none.
    other: u64,
}

/// Destination address, and the group bit of the source.
const ADDRESS_MASK: u64 = 0x0001_ffff_ffff_ffff;

impl ToUs {
    /// For frames that came in by `port`.
    pub fn new(table: &InterfaceTable, port: PortId) -> Self {
        let interface = table.untagged(port);
        let mut to_us = ToUs {
            port,
            interface,
            vrf: VRF_DEFAULT,
            policy: IpPolicy::default(),
            // Outside the mask: never matches.
            address: u64::MAX,
            other: u64::MAX,
        };
        let word = |[a, b, c, d, e, f]: [u8; 6]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        if let Some(i) = table.get(interface).filter(|i| i.up) {
            (to_us.address, to_us.other) = (word(i.mac), word(i.virtuals.first().map_or(i.mac, |v| v.mac)));
            (to_us.vrf, to_us.policy) = (i.vrf, i.policy);
        }
        to_us
    }

    /// The interface of such frames.
    pub fn interface(&self) -> IfIndex {
        self.interface
    }

    /// Its VRF.
    pub fn vrf(&self) -> VrfId {
        self.vrf
    }

    /// What it asks for.
    pub fn policy(&self) -> IpPolicy {
        self.policy
    }

    /// Whether a frame is such a one. `first`: its first eight bytes, the first in the lowest bits.
    #[inline(always)]
    pub fn frame(&self, first: u64, rx_port: PortId) -> bool {
        let to = first & ADDRESS_MASK;
        ((to == self.address) | (to == self.other)) & (rx_port == self.port)
    }

    /// Of the two addresses that such frames may be to, the one that this frame is to, if it is such a frame: likely that of
    /// those behind it too. `first`: its first eight bytes; none, or another frame: whichever.
    #[inline]
    pub fn likely(&self, first: Option<&[u8; 8]>) -> u64 {
        let to = first.map_or(0, |f| u64::from_le_bytes(*f)) & ADDRESS_MASK;
        if to == self.other { self.other } else { self.address }
    }

    /// As [`frame`](Self::frame), for frames to one address alone.
    #[inline(always)]
    pub fn is_at(&self, address: u64, first: u64, rx_port: PortId) -> bool {
        first & ADDRESS_MASK == address && rx_port == self.port
    }

    /// The ethertype of such a frame; `None` for any other.
    #[inline(always)]
    fn ethertype<P: Packet>(&self, packet: &P) -> Option<u16> {
        let (first, rest) = packet.head().split_first_chunk::<8>()?;
        let rest = rest.first_chunk::<6>()?;
        let ethertype = u16::from_be_bytes([rest[4], rest[5]]);
        self.frame(u64::from_le_bytes(*first), packet.rx_port()).then_some(ethertype)
    }
}

/// What an interface asks of the nodes behind, as flags.
fn asked(policy: IpPolicy) -> u16 {
    let check = policy.source_validation != SourceValidation::Off;
    (u16::from(check) * flags::CHECK_SOURCE) | (u16::from(policy.redirects) * flags::REDIRECTS)
}

/// The long way: any frame.
#[inline(never)]
fn classify<P: Packet>(table: &InterfaceTable, packet: &mut P) -> EthInputExit {
    // Headers with two tags, so that everything below looks at the head alone.
    const LONGEST: usize = 22;
    let want = packet.len().min(LONGEST);
    if packet.head().len() < want && packet.pull(want).is_none() {
        return EthInputExit::NotContiguous;
    }
    let rx_port = packet.rx_port();
    let (head, meta) = packet.split_mut();
    let Some(header) = EthHeader::view(head) else { return EthInputExit::TooShort };
    let is_tag = |t: u16| matches!(t, eth::ETHERTYPE_VLAN | eth::ETHERTYPE_QINQ);
    let (mut l3, mut ethertype) = (EthHeader::LEN, header.ethertype.get());
    if is_tag(ethertype) {
        let Some(tag) = VlanTag::view_at(head, l3) else { return EthInputExit::VlanTooShort };
        (l3, ethertype) = (l3 + VlanTag::LEN, tag.ethertype.get());
        meta.vlan_tci = tag.tci.get();
        meta.flags |= flags::VLAN;
        if is_tag(ethertype) {
            let Some(tag) = VlanTag::view_at(head, l3) else { return EthInputExit::VlanTooShort };
            (l3, ethertype) = (l3 + VlanTag::LEN, tag.ethertype.get());
            meta.inner_tci = tag.tci.get();
            meta.flags |= flags::QINQ;
        }
    }
    meta.l3 = l3 as u16;
    meta.ethertype = ethertype;
    meta.rx_if = match meta.flags & (flags::VLAN | flags::QINQ) {
        0 => table.untagged(rx_port),
        flags::VLAN => table.tagged(rx_port, meta.vlan_tci),
        _ => table.double_tagged(rx_port, meta.vlan_tci, meta.inner_tci),
    };
    if meta.rx_if == IF_NONE {
        return EthInputExit::VlanUnknown;
    }
    let Some(interface) = table.get(meta.rx_if).filter(|i| i.up) else { return EthInputExit::InterfaceDown };
    meta.vrf = interface.vrf;
    meta.flags |= asked(interface.policy);
    if eth::is_group(header.src) {
        return EthInputExit::SourceMulticast;
    }
    if eth::is_group(header.dst) {
        meta.flags |= flags::L2_MULTICAST;
    } else if !interface.accepts(header.dst) {
        return EthInputExit::NotForUs;
    }
    match ethertype {
        eth::ETHERTYPE_IP4 => EthInputExit::Ip4,
        eth::ETHERTYPE_IP6 => EthInputExit::Ip6,
        eth::ETHERTYPE_ARP => EthInputExit::Arp,
        _ => EthInputExit::Other,
    }
}

#[cfg(test)]
mod tests {
    use linerate_tables::snapshot::Publisher;

    use super::*;
    use crate::interface::Interface;
    use crate::node::run_alone;
    use crate::{HeapPacket, TxBuffers, WorkerCounters, heap::HeapAlloc};

    const US: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn run(packets: Vec<HeapPacket>) -> Vec<(HeapPacket, EthInputExit)> {
        let make = |name: &str, port, vlan, inner_vlan, up| Interface {
            vlan,
            inner_vlan,
            up,
            ..Interface::new(name, port, US, 1500, &[])
        };
        let table = InterfaceTable::build([
            (0, make("a", 0, None, None, true)),
            (1, make("a.7", 0, Some(7), None, true)),
            (2, make("a.7.9", 0, Some(7), Some(9), true)),
            (3, make("b", 1, None, None, false)),
            (4, make("c.8", 2, Some(8), None, true)),
        ])
        .unwrap();
        let counters = WorkerCounters::new();
        let (mut alloc, mut tx) = (HeapAlloc::default(), TxBuffers::new());
        let mut cx = Cx { now: 0, cycles: || 0, counters: &counters, alloc: &mut alloc, tx: &mut tx };
        let publisher = Publisher::new(table);
        run_alone(&mut EthInput::new(publisher.reader()), &mut cx, packets).passed
    }

    fn frame(dst: [u8; 6], src: [u8; 6], rest: &[u8]) -> HeapPacket {
        HeapPacket::new(&[&dst[..], &src, rest].concat())
    }

    fn one(p: HeapPacket) -> (Meta, EthInputExit) {
        let (p, e) = run(vec![p]).remove(0);
        (*p.meta(), e)
    }

    #[test]
    fn ethertypes_lead_on() {
        for (t, exit) in [
            ([8, 0], EthInputExit::Ip4),
            ([0x86, 0xdd], EthInputExit::Ip6),
            ([8, 6], EthInputExit::Arp),
            ([0x88, 0xcc], EthInputExit::Other),
            ([0, 60], EthInputExit::Other),
        ] {
            let (m, e) = one(frame(US, PEER, &t));
            assert_eq!((e, m.rx_if, m.l3, m.flags), (exit, 0, 14, 0));
            assert_eq!(m.ethertype, u16::from_be_bytes(t));
        }
    }

    #[test]
    fn tags_find_their_interface() {
        let vlan7: &[u8] = &[0x81, 0, 0xa0, 7, 8, 0];
        let (m, e) = one(frame(US, PEER, vlan7));
        assert_eq!((e, m.rx_if, m.l3, m.flags, m.vlan_tci), (EthInputExit::Ip4, 1, 18, flags::VLAN, 0xa007));
        let (m, e) = one(frame(US, PEER, &[0x88, 0xa8, 0x20, 7, 0x81, 0, 0x40, 9, 0x86, 0xdd]));
        assert_eq!((e, m.rx_if, m.l3), (EthInputExit::Ip6, 2, 22));
        assert_eq!((m.flags, m.vlan_tci, m.inner_tci), (flags::VLAN | flags::QINQ, 0x2007, 0x4009));
        let (m, e) = one(frame(US, PEER, &[0x81, 0, 0x60, 0, 8, 6]));
        assert_eq!((e, m.rx_if, m.l3), (EthInputExit::Arp, 0, 18), "a priority tag means untagged");
        let unknown: [&[u8]; 5] = [
            &[0x81, 0, 0, 8, 8, 0],
            &[0x81, 0, 0x0f, 0xff, 8, 0],
            &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 8, 0],
            &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0],
            &[0x88, 0xa8, 0, 8, 0x88, 0xa8, 0, 9, 0x81, 0, 0, 9],
        ];
        for u in unknown {
            assert_eq!(one(frame(US, PEER, u)).1, EthInputExit::VlanUnknown, "{u:x?}");
        }
        assert_eq!(one(frame(US, PEER, &[8, 0]).from_port(2)).1, EthInputExit::VlanUnknown);
        assert_eq!(one(frame(US, PEER, &[8, 0]).from_port(77)).1, EthInputExit::VlanUnknown);
        let (m, e) = one(frame(US, PEER, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 0x81, 0, 0, 1, 8, 0]));
        assert_eq!((e, m.rx_if), (EthInputExit::Other, 2), "a third tag is a payload nothing here knows");
    }

    #[test]
    fn short_frames_and_cut_tags_have_their_names() {
        let whole = [&US[..], &PEER, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0]].concat();
        for n in 0..14 {
            assert_eq!(one(HeapPacket::new(&whole[..n])).1, EthInputExit::TooShort, "{n}");
        }
        for n in 14..22 {
            assert_eq!(one(HeapPacket::new(&whole[..n])).1, EthInputExit::VlanTooShort, "{n}");
        }
        assert_eq!(one(HeapPacket::new(&whole)).1, EthInputExit::Ip4);
    }

    #[test]
    fn addresses_are_filtered() {
        let group = [1, 0, 0x5e, 0, 0, 1];
        for dst in [eth::BROADCAST, group] {
            let (m, e) = one(frame(dst, PEER, &[8, 0]));
            assert_eq!((e, m.flags), (EthInputExit::Ip4, flags::L2_MULTICAST));
        }
        assert_eq!(one(frame(PEER, US, &[8, 0])).1, EthInputExit::NotForUs);
        assert_eq!(one(frame(US, group, &[8, 0])).1, EthInputExit::SourceMulticast);
        assert_eq!(one(frame(US, eth::BROADCAST, &[8, 6])).1, EthInputExit::SourceMulticast);
        assert_eq!(one(frame(US, PEER, &[8, 0]).from_port(1)).1, EthInputExit::InterfaceDown);
    }

    #[test]
    fn headers_across_segments_are_gathered() {
        let whole = [&US[..], &PEER, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0, 1, 2, 3]].concat();
        for cut in 0..whole.len() {
            let p = HeapPacket::with_segments(&[&whole[..cut], &whole[cut..]]);
            let (m, e) = one(p);
            assert_eq!((e, m.rx_if, m.l3), (EthInputExit::Ip4, 2, 22), "{cut}");
        }
        let packets = [
            frame(US, PEER, &[8, 0]).tight(),
            HeapPacket::with_segments(&[&whole[..5], &whole[5..]]).tight(),
        ];
        let exits: Vec<_> = run(packets.into()).into_iter().map(|r| r.1).collect();
        assert_eq!(exits, [EthInputExit::Ip4, EthInputExit::NotContiguous]);
    }

    #[test]
    fn a_batch_from_several_ports_is_told_apart() {
        let packets = vec![
            frame(US, PEER, &[8, 0]),
            frame(US, PEER, &[8, 0]).from_port(1),
            frame(US, PEER, &[0x81, 0, 0, 8, 8, 0]).from_port(2),
            frame(US, PEER, &[8, 0]),
        ];
        let got: Vec<_> = run(packets).into_iter().map(|(p, e)| (p.meta().rx_if, e)).collect();
        use EthInputExit::{InterfaceDown, Ip4};
        assert_eq!(got, [(0, Ip4), (3, InterfaceDown), (4, Ip4), (0, Ip4)]);
    }
}

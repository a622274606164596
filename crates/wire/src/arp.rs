//! ARP for IPv4 over Ethernet (RFC 826).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, Mac, U16, U32};

/// Operation: request.
pub const REQUEST: u16 = 1;
/// Operation: reply.
pub const REPLY: u16 = 2;

/// An ARP packet for IPv4 over Ethernet, 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ArpPacket {
    /// Hardware type: 1 for Ethernet.
    pub hardware: U16,
    /// Protocol type: the ethertype of IPv4.
    pub protocol: U16,
    /// Length of a hardware address: 6.
    pub hardware_len: u8,
    /// Length of a protocol address: 4.
    pub protocol_len: u8,
    /// [`REQUEST`] or [`REPLY`].
    pub operation: U16,
    /// Sender's MAC address.
    pub sender_mac: Mac,
    /// Sender's IPv4 address; 0 in a probe (RFC 5227).
    pub sender_ip: U32,
    /// Target's MAC address; ignored in requests.
    pub target_mac: Mac,
    /// Target's IPv4 address.
    pub target_ip: U32,
}

impl Header for ArpPacket {}

impl ArpPacket {
    /// An ARP packet of ours.
    pub fn new(operation: u16, sender: (Mac, u32), target: (Mac, u32)) -> Self {
        ArpPacket {
            hardware: U16::new(1),
            protocol: U16::new(crate::eth::ETHERTYPE_IP4),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(operation),
            sender_mac: sender.0,
            sender_ip: U32::new(sender.1),
            target_mac: target.0,
            target_ip: U32::new(target.1),
        }
    }

    /// Whether this is IPv4 over Ethernet, a request or a reply, from a sender that can be one.
    pub fn is_well_formed(&self) -> bool {
        self.hardware.get() == 1
            && self.protocol.get() == crate::eth::ETHERTYPE_IP4
            && (self.hardware_len, self.protocol_len) == (6, 4)
            && matches!(self.operation.get(), REQUEST | REPLY)
            && !crate::eth::is_group(self.sender_mac)
            && self.sender_mac != [0; 6]
            && !crate::ip4::is_multicast(self.sender_ip.get())
            && self.sender_ip.get() != u32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ethernet_ipv4_from_a_station_is_well_formed() {
        let good = ArpPacket::new(REQUEST, ([2, 0, 0, 0, 0, 1], 0x0a00_0001), ([0; 6], 0x0a00_0002));
        assert!(good.is_well_formed());
        let spoil: [fn(&mut ArpPacket); 8] = [
            |a| a.hardware = U16::new(6),
            |a| a.protocol = U16::new(0x86dd),
            |a| a.hardware_len = 8,
            |a| a.protocol_len = 16,
            |a| a.operation = U16::new(3),
            |a| a.sender_mac[0] = 1,
            |a| a.sender_mac = [0; 6],
            |a| a.sender_ip = U32::new(0xe000_0001),
        ];
        for s in spoil {
            let mut bad = good;
            s(&mut bad);
            assert!(!bad.is_well_formed(), "{bad:?}");
        }
    }
}

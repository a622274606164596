//! The framing that all netlink messages share, and the numbers of `linux/rtnetlink.h` and its kin.
//!
//! Framing is `netlink-packet-core`'s. The contents are decoded here and not by `netlink-packet-route`: that has no
//! next-hop objects, and gives up a whole message for one attribute that it cannot parse, which a newer kernel may well
//! send among the sixty of a link. It encodes what is sent to the kernel, and is the oracle of the tests.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NetlinkBuffer, NlasIterator};

use super::fault::Fault;

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
pub(crate) const RTM_NEWRULE: u16 = 32;
pub(crate) const RTM_DELRULE: u16 = 33;
pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
pub(crate) const RTM_DELNEXTHOP: u16 = 105;
pub(crate) const RTM_GETNEXTHOP: u16 = 106;

pub(crate) const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
/// Multicast forwarding caches (`RTNL_FAMILY_IPMR`, `RTNL_FAMILY_IP6MR`).
pub(crate) const IPMR: u8 = 128;
pub(crate) const IP6MR: u8 = 129;

/// One netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages of a buffer. Ends after the first that is not one.
pub(crate) struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    pub(crate) fn new(buffer: &'a [u8]) -> Self {
        Messages(buffer)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(rest) else { return Some(Err(Fault::Header)) };
        let length = message.length() as usize;
        let Some(body) = rest.get(16..length) else { return Some(Err(Fault::Header)) };
        // Messages start at multiples of 4 bytes; the last one's padding may be missing.
        self.0 = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(Message {
            kind: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            body,
        }))
    }
}

/// The attributes of a message: type without flags, and value.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), NotAttributes>> {
    NlasIterator::new(bytes).map(|attribute| {
        let attribute = attribute.map_err(|_| NotAttributes)?;
        let value = attribute.into_inner().get(4..usize::from(attribute.length())).ok_or(NotAttributes)?;
        Ok((attribute.kind(), value))
    })
}

/// The lengths of attributes do not add up.
pub(crate) struct NotAttributes;

pub(crate) fn u16_of(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(value.try_into().ok()?))
}

pub(crate) fn u32_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

/// An address of a family, of exactly its size.
pub(crate) fn address_of(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET | IPMR => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        AF_INET6 | IP6MR => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

/// `0.0.0.0` or `::`, by family.
pub(crate) fn any_address(family: u8) -> IpAddr {
    if family == AF_INET || family == IPMR { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) }
}

/// The prefix with its host bits zeroed; the length may be too long.
pub(crate) fn prefix_of(message: u16, address: IpAddr, length: u8) -> Result<IpNet, Fault> {
    let net = IpNet::new(address, length).map_err(|_| Fault::PrefixLength { message, length })?;
    Ok(net.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_buffer_ends(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(Messages::new(&bytes).count() <= bytes.len() / 16 + 1);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4 + 1);
        }
    }

    #[test]
    fn absurd_lengths_end_the_buffer() {
        for length in [0u32, 1, 15, 17, 0xffff_fffe, u32::MAX] {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([0; 12]);
            assert_eq!(Messages::new(&bytes).collect::<Vec<_>>(), [Err(Fault::Header)], "{length}");
        }
    }

    #[test]
    fn the_last_message_needs_no_padding() {
        let mut bytes = vec![17, 0, 0, 0, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9];
        let one = Message { kind: 1, flags: 2, sequence: 3, body: &[9] };
        assert_eq!(Messages::new(&bytes).collect::<Vec<_>>(), [Ok(one)]);
        bytes.extend([0; 3]);
        bytes.extend_from_within(..);
        assert_eq!(Messages::new(&bytes).collect::<Vec<_>>(), [Ok(one), Ok(one)]);
    }
}

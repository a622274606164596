//! MRT TABLE_DUMP_V2 (RFC 6396 section 4.3), with the additional-path subtypes of RFC 8050 section 4.

use std::io::{BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Collector, Format, NextHop, Place, Rib, RibError, Select};

/// RFC 6396 section 4: TABLE_DUMP_V2.
const TABLE_DUMP_V2: u16 = 13;

/// RFC 6396 section 4.3 and RFC 8050 section 4.
mod subtype {
    pub(super) const PEER_INDEX_TABLE: u16 = 1;
    pub(super) const RIB_IPV4_UNICAST: u16 = 2;
    pub(super) const RIB_IPV6_UNICAST: u16 = 4;
    pub(super) const RIB_IPV4_UNICAST_ADDPATH: u16 = 8;
    pub(super) const RIB_IPV6_UNICAST_ADDPATH: u16 = 10;
}

/// RFC 4271 section 5.1.3.
const NEXT_HOP: u8 = 3;
/// RFC 4760 section 3; in a TABLE_DUMP_V2 record only next-hop length and next hop (RFC 6396 section 4.3.4).
const MP_REACH_NLRI: u8 = 14;

/// Longest record taken: a prefix with the entries of 1,000 peers and 4 kB of attributes each stays far below.
const MAX_RECORD: u32 = 32 << 20;

pub(super) fn read(mut input: impl BufRead, select: Select) -> Result<Rib, RibError> {
    let mut out = Collector::new(Format::Mrt);
    let mut peers: Option<Vec<IpAddr>> = None;
    let mut offset = 0u64;
    let mut body = Vec::new();
    while let Some(header) = header(&mut input, offset)? {
        let place = Place::Offset(offset);
        if header.kind != TABLE_DUMP_V2 {
            let what = format!(
                "found an MRT record of type {}: expected {TABLE_DUMP_V2} (TABLE_DUMP_V2); update files and the old \
                 TABLE_DUMP hold no table this program can load",
                header.kind
            );
            return Err(RibError::at(place, what));
        }
        if header.length > MAX_RECORD {
            let what = format!("the record claims {} bytes: expected at most {MAX_RECORD}", header.length);
            return Err(RibError::at(place, what));
        }
        // `take` and not a buffer of the claimed length: memory grows with the bytes that are there.
        body.clear();
        let read = input.by_ref().take(u64::from(header.length)).read_to_end(&mut body);
        read.map_err(|error| RibError::Read { place, error })?;
        if body.len() < header.length as usize {
            let what = format!("the file ends inside a record: expected {} bytes, found {}", header.length, body.len());
            return Err(RibError::at(place, what));
        }
        let mut cursor = Cursor { bytes: &body, offset: offset + HEADER_LENGTH };
        let layout = match header.subtype {
            subtype::PEER_INDEX_TABLE => {
                peers = Some(peer_index_table(&mut cursor)?);
                None
            }
            subtype::RIB_IPV4_UNICAST => Some((Family::V4, false)),
            subtype::RIB_IPV6_UNICAST => Some((Family::V6, false)),
            subtype::RIB_IPV4_UNICAST_ADDPATH => Some((Family::V4, true)),
            subtype::RIB_IPV6_UNICAST_ADDPATH => Some((Family::V6, true)),
            // Multicast, generic and geographic records are valid and hold no unicast route.
            _ => None,
        };
        if let Some((family, add_path)) = layout {
            let Some(peers) = &peers else {
                let what = "a RIB record before the peer index table: expected PEER_INDEX_TABLE (subtype 1) first";
                return Err(RibError::at(place, what));
            };
            let (prefix, next_hop) = rib_record(&mut cursor, family, add_path, peers, select)?;
            match next_hop {
                Some(next_hop) => out.add(prefix, NextHop::Address(next_hop), place)?,
                None => out.rib.skipped += 1,
            }
        }
        offset += HEADER_LENGTH + u64::from(header.length);
    }
    if let (Some(peers), true) = (&peers, out.rib.routes.is_empty()) {
        check_selection(peers, select, offset)?;
    }
    Ok(out.rib)
}

/// Nothing matched: says so where the selected peer is not in the file at all.
fn check_selection(peers: &[IpAddr], select: Select, offset: u64) -> Result<(), RibError> {
    let some = || peers.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let what = match select {
        Select::Peer(p) if !peers.contains(&p) => {
            format!("the file has no peer {p}: expected one of its {} peers, such as {}", peers.len(), some())
        }
        Select::PeerIndex(i) if usize::from(i) >= peers.len() => {
            format!("the file has no peer with index {i}: expected an index below {}", peers.len())
        }
        _ => return Ok(()),
    };
    Err(RibError::at(Place::Offset(offset), what))
}

/// Bytes of the common header: timestamp, type, subtype, length (RFC 6396 section 2).
const HEADER_LENGTH: u64 = 12;

struct Header {
    kind: u16,
    subtype: u16,
    length: u32,
}

/// The next common header; `None` at the end of the file.
fn header(input: &mut impl Read, offset: u64) -> Result<Option<Header>, RibError> {
    let place = Place::Offset(offset);
    let mut bytes = Vec::with_capacity(HEADER_LENGTH as usize);
    let read = input.by_ref().take(HEADER_LENGTH).read_to_end(&mut bytes);
    read.map_err(|error| RibError::Read { place, error })?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut c = Cursor { bytes: &bytes, offset };
    let _timestamp = c.u32("the record's timestamp")?;
    let kind = c.u16("the record's type")?;
    let subtype = c.u16("the record's subtype")?;
    let length = c.u32("the record's length")?;
    Ok(Some(Header { kind, subtype, length }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// RFC 6396 section 4.3.1: the peers that entries refer to by position.
fn peer_index_table(c: &mut Cursor<'_>) -> Result<Vec<IpAddr>, RibError> {
    c.u32("the collector's BGP identifier")?;
    let name = c.u16("the view name's length")?;
    c.take(usize::from(name), "the view name")?;
    let count = c.u16("the number of peers")?;
    let mut peers = Vec::new();
    for _ in 0..count {
        let kind = c.u8("a peer's type")?;
        c.u32("a peer's BGP identifier")?;
        // Bit 0: IPv6 address; bit 1: four-byte AS number.
        let address = if kind & 1 == 0 { c.v4("a peer's address")?.into() } else { c.v6("a peer's address")?.into() };
        c.take(if kind & 2 == 0 { 2 } else { 4 }, "a peer's AS number")?;
        peers.push(address);
    }
    Ok(peers)
}

/// RFC 6396 sections 4.3.2 and 4.3.4: a prefix and the next hop of its first usable entry.
fn rib_record(
    c: &mut Cursor<'_>,
    family: Family,
    add_path: bool,
    peers: &[IpAddr],
    select: Select,
) -> Result<(IpNet, Option<IpAddr>), RibError> {
    c.u32("the sequence number")?;
    let prefix = prefix(c, family)?;
    let count = c.u16("the number of entries")?;
    let mut chosen = None;
    for _ in 0..count {
        let index = c.u16("an entry's peer index")?;
        c.u32("an entry's time")?;
        if add_path {
            c.u32("an entry's path identifier")?;
        }
        let length = c.u16("the attributes' length")?;
        let start = c.offset;
        let attributes = c.take(usize::from(length), "the attributes")?;
        // An index beyond the table is nobody's: GoBGP writes one for routes of its own.
        let wanted = match select {
            Select::First => true,
            Select::Peer(p) => peers.get(usize::from(index)) == Some(&p),
            Select::PeerIndex(i) => i == index,
        };
        if wanted && chosen.is_none() {
            chosen = next_hop(&mut Cursor { bytes: attributes, offset: start }, family)?;
        }
    }
    Ok((prefix, chosen))
}

/// A length in bits and as many octets as hold them; bits beyond the length are irrelevant (RFC 4271 section 4.3).
fn prefix(c: &mut Cursor<'_>, family: Family) -> Result<IpNet, RibError> {
    let place = Place::Offset(c.offset);
    let bits = c.u8("the prefix length")?;
    let most = if family == Family::V4 { 32 } else { 128 };
    if bits > most {
        return Err(RibError::at(place, format!("prefix length {bits}: expected at most {most}")));
    }
    let mut octets = [0u8; 16];
    let bytes = c.take(usize::from(bits).div_ceil(8), "the prefix")?;
    octets[..bytes.len()].copy_from_slice(bytes);
    let net = match family {
        Family::V4 => {
            let [a, b, c, d, ..] = octets;
            Ipv4Net::new(Ipv4Addr::new(a, b, c, d), bits).map(IpNet::V4)
        }
        Family::V6 => Ipv6Net::new(Ipv6Addr::from(octets), bits).map(IpNet::V6),
    };
    net.map(|n| n.trunc()).map_err(|_| RibError::at(place, format!("prefix length {bits}: expected at most {most}")))
}

/// The next hop among the path attributes; `None` where there is none for this family.
fn next_hop(c: &mut Cursor<'_>, family: Family) -> Result<Option<IpAddr>, RibError> {
    let mut found = None;
    while !c.bytes.is_empty() {
        let flags = c.u8("an attribute's flags")?;
        let kind = c.u8("an attribute's type")?;
        // Flag 0x10: the length has two octets (RFC 4271 section 4.3).
        let length = match flags & 0x10 {
            0 => usize::from(c.u8("an attribute's length")?),
            _ => usize::from(c.u16("an attribute's length")?),
        };
        let offset = c.offset;
        let value = c.take(length, "an attribute")?;
        let mut v = Cursor { bytes: value, offset };
        match kind {
            NEXT_HOP if family == Family::V4 && found.is_none() => found = Some(v.v4("NEXT_HOP")?.into()),
            MP_REACH_NLRI => found = Some(mp_next_hop(&mut v)?),
            _ => {}
        }
    }
    Ok(found)
}

/// MP_REACH_NLRI: abbreviated to length and next hop; some writers leave it whole (AFI and SAFI first), which shows by
/// the first octet: an AFI begins with 0, and no next hop has length 0.
fn mp_next_hop(v: &mut Cursor<'_>) -> Result<IpAddr, RibError> {
    if v.bytes.first() == Some(&0) {
        v.take(3, "the address family of MP_REACH_NLRI")?;
    }
    let place = Place::Offset(v.offset);
    match v.u8("the next hop's length in MP_REACH_NLRI")? {
        4 => Ok(v.v4("the next hop")?.into()),
        // 32: the global address, then the link-local one (RFC 2545 section 3).
        16 | 32 => Ok(v.v6("the next hop")?.into()),
        n => Err(RibError::at(place, format!("a next hop of {n} bytes in MP_REACH_NLRI: expected 4, 16 or 32"))),
    }
}

/// Bounds-checked reading with the offset in the file, for messages.
struct Cursor<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], RibError> {
        let Some((head, rest)) = self.bytes.split_at_checked(n) else {
            let text = format!("{what} is cut off: expected {n} bytes, found {}", self.bytes.len());
            return Err(RibError::at(Place::Offset(self.offset), text));
        };
        self.bytes = rest;
        self.offset += n as u64;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], RibError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u8(&mut self, what: &str) -> Result<u8, RibError> {
        Ok(u8::from_be_bytes(self.array(what)?))
    }

    fn u16(&mut self, what: &str) -> Result<u16, RibError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    fn u32(&mut self, what: &str) -> Result<u32, RibError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    fn v4(&mut self, what: &str) -> Result<Ipv4Addr, RibError> {
        Ok(self.array::<4>(what)?.into())
    }

    fn v6(&mut self, what: &str) -> Result<Ipv6Addr, RibError> {
        Ok(self.array::<16>(what)?.into())
    }
}

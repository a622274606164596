//! Test frames: Ethernet, IPv4 or IPv6, UDP, and a signature by which each one is known again.
//!
//! Addresses and ports follow RFC 2544 §C.2.6.4 and RFC 4814 in spirit: UDP to port 7, random source ports, the same
//! set in every trial. Every byte of a frame follows from a flow's index, a sequence number and a time stamp, so that a
//! receiver can write down what must come back and compare it whole.
//!
//! The signature is 16 bytes behind the UDP header, so the smallest frame is 62 bytes for IPv4 and 82 for IPv6 (with FCS):
//! a 64-byte IPv6 frame cannot carry it. [`FrameSpec::new`] then makes the frame as large as it must be and says so in
//! [`FrameSpec::grown_from`]; reports show that.

use linerate_pipeline::Packet;

use crate::flow::{Flow, Hop};
use crate::ip::Ip;
use crate::rng::mix;
use crate::wire_rate::FCS;

/// Bytes of an untagged Ethernet header.
pub const ETH: usize = 14;

/// Bytes of a UDP header.
pub const UDP: usize = 8;

/// Bytes of the signature: flow and stream (4), sequence number (4), time stamp (4), check over the three (4).
pub const SIGNATURE: usize = 16;

/// Largest frame size in bytes, FCS included.
pub const MAX_SIZE: u16 = 9216;

/// TTL or hop limit of frames as sent.
pub const TTL: u8 = 64;

/// UDP destination port: echo, as RFC 2544 §C.2.6.4 says.
const UDP_PORT: u16 = 7;

/// Bytes up to the end of the signature, the longer of the two families.
pub const MAX_HEADERS: usize = ETH + 40 + UDP + SIGNATURE;

/// Bytes up to the end of the signature in a frame of family `A`.
pub const fn headers<A: Ip>() -> usize {
    ETH + A::HEADER + UDP + SIGNATURE
}

/// A size, with what had to be done to make a frame of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpec {
    /// Size as sent, FCS included.
    pub size: u16,
    /// The size asked for, where the headers and the signature do not fit into it.
    pub grown_from: Option<u16>,
}

/// A size that no frame can have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a test frame is 64 to {MAX_SIZE} bytes long, FCS included; {0} was asked for")]
pub struct BadSize(pub u16);

impl FrameSpec {
    /// For frames of family `A` of `size` bytes, FCS included.
    pub fn new<A: Ip>(size: u16) -> Result<Self, BadSize> {
        if !(64..=MAX_SIZE).contains(&size) {
            return Err(BadSize(size));
        }
        let least = headers::<A>() as u16 + FCS as u16;
        Ok(if size < least {
            FrameSpec { size: least, grown_from: Some(size) }
        } else {
            FrameSpec { size, grown_from: None }
        })
    }

    /// Bytes in a packet buffer: the size without the FCS.
    pub fn buffer_len(self) -> usize {
        usize::from(self.size) - FCS as usize
    }
}

/// What is stamped on one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Index of the flow in the flow list, below 2²⁴.
    pub flow: u32,
    /// Stream that the sequence number counts in.
    pub stream: u8,
    /// Sequence number within the stream.
    pub sequence: u32,
    /// When it was sent: nanoseconds modulo 2³².
    pub time: u32,
}

impl Stamp {
    /// The signature as four words.
    #[inline]
    fn words(self, key: u64) -> [u32; 4] {
        let flow = u32::from(self.stream) << 24 | (self.flow & 0x00ff_ffff);
        [flow, self.sequence, self.time, check(key, flow, self.sequence, self.time)]
    }

    /// Reads a signature; `None` where the check does not fit: not one of this run's frames, or damaged.
    #[inline]
    pub fn read(key: u64, bytes: &[u8; SIGNATURE]) -> Option<Self> {
        let word = |i: usize| u32::from_be_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let (flow, sequence, time) = (word(0), word(4), word(8));
        (check(key, flow, sequence, time) == word(12)).then_some(Stamp {
            flow: flow & 0x00ff_ffff,
            stream: (flow >> 24) as u8,
            sequence,
            time,
        })
    }
}

#[inline]
fn check(key: u64, flow: u32, sequence: u32, time: u32) -> u32 {
    (mix(key ^ (u64::from(flow) << 32 | u64::from(sequence))) ^ u64::from(time).wrapping_mul(0x9e37_79b9))
        as u32
}

/// Room for the headers of one frame, up to and with the signature, of either family.
pub type Headers = [u8; MAX_HEADERS];

/// Makes the frames of one size and family.
#[derive(Clone, Debug)]
pub struct Template<A> {
    spec: FrameSpec,
    source: A,
    key: u64,
    blank: Headers,
    /// One's complement sum of all words under the checksum (IPv4: of the header; IPv6: of UDP) that are the same in all
    /// frames, TTL left out.
    constant_sum: u64,
}

impl<A: Ip> Template<A> {
    /// Frames of `spec`, sent by `source_mac` and `source` to the router's `router_mac`. `key` tells the frames of this
    /// run from all others.
    pub fn new(spec: FrameSpec, source_mac: [u8; 6], router_mac: [u8; 6], source: A, key: u64) -> Self {
        let mut blank = [0; MAX_HEADERS];
        blank[0..6].copy_from_slice(&router_mac);
        blank[6..12].copy_from_slice(&source_mac);
        blank[12..14].copy_from_slice(&A::ETHERTYPE.to_be_bytes());
        let l3_len = (spec.buffer_len() - ETH) as u16;
        let udp_len = l3_len - A::HEADER as u16;
        let ip = &mut blank[ETH..];
        let source_octets = source.octets();
        if A::BITS == 32 {
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&l3_len.to_be_bytes());
            ip[9] = 17;
            ip[12..16].copy_from_slice(&source_octets[12..]);
        } else {
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
            ip[6] = 17;
            ip[8..24].copy_from_slice(&source_octets);
        }
        let udp = ETH + A::HEADER;
        blank[udp + 2..udp + 4].copy_from_slice(&UDP_PORT.to_be_bytes());
        blank[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
        let filler = spec.buffer_len() - headers::<A>();
        let constant_sum = if A::BITS == 32 {
            sum(&blank[ETH..udp])
        } else {
            let ports_and_lengths = u64::from(UDP_PORT) + 2 * u64::from(udp_len);
            sum(&source_octets) + 17 + ports_and_lengths + sum(&PATTERN[..filler])
        };
        Template { spec, source, key, blank, constant_sum }
    }

    /// The frame's size.
    pub fn spec(&self) -> FrameSpec {
        self.spec
    }

    /// The source address of all frames.
    pub fn source(&self) -> A {
        self.source
    }

    /// The key the signatures are checked with.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Writes the headers of a frame of this flow as they are sent; `out` must have room for [`headers`] bytes.
    #[inline]
    pub fn sent(&self, flow: &Flow<A>, stamp: Stamp, out: &mut [u8]) {
        self.write(flow, stamp, TTL, out);
    }

    /// Writes what the router must make of them: new MAC addresses, TTL one less, checksum computed anew.
    #[inline]
    pub fn routed(&self, flow: &Flow<A>, stamp: Stamp, hop: &Hop, out: &mut [u8]) {
        self.write(flow, stamp, TTL - 1, out);
        out[0..6].copy_from_slice(&hop.destination_mac);
        out[6..12].copy_from_slice(&hop.source_mac);
    }

    #[inline(always)]
    fn write(&self, flow: &Flow<A>, stamp: Stamp, ttl: u8, out: &mut [u8]) {
        let n = headers::<A>();
        let out = &mut out[..n];
        out.copy_from_slice(&self.blank[..n]);
        let udp = ETH + A::HEADER;
        out[udp..udp + 2].copy_from_slice(&flow.source_port.to_be_bytes());
        let signature = stamp.words(self.key);
        for (i, word) in signature.iter().enumerate() {
            let at = udp + UDP + 4 * i;
            out[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        let octets = flow.destination.octets();
        // Checksums are sums over all words, the constant ones added up beforehand; none is made by updating another
        // one, since a router's incremental update is judged by them.
        if A::BITS == 32 {
            let destination = u32::from_be_bytes([octets[12], octets[13], octets[14], octets[15]]);
            let id = stamp.sequence as u16;
            out[ETH + 4..ETH + 6].copy_from_slice(&id.to_be_bytes());
            out[ETH + 8] = ttl;
            out[ETH + 16..ETH + 20].copy_from_slice(&destination.to_be_bytes());
            let total = self.constant_sum + u64::from(id) + (u64::from(ttl) << 8) + u64::from(destination);
            out[ETH + 10..ETH + 12].copy_from_slice(&(!fold(total)).to_be_bytes());
        } else {
            out[ETH + 7] = ttl;
            out[ETH + 24..ETH + 40].copy_from_slice(&octets);
            let total = self.constant_sum
                + sum_words(u128::from_be_bytes(octets))
                + u64::from(flow.source_port)
                + signature.iter().map(|w| u64::from(*w)).sum::<u64>();
            // RFC 8200 §8.1: a checksum that comes out as zero is sent as all ones.
            let checksum = match !fold(total) {
                0 => 0xffff,
                c => c,
            };
            out[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// Writes what follows the signature into every segment of a packet of [`FrameSpec::buffer_len`] bytes.
    pub fn fill<P: Packet>(&self, packet: &mut P) {
        let mut at = 0;
        for i in 0..packet.segments() {
            let Some(segment) = packet.segment_mut(i) else { return };
            let skip = headers::<A>().saturating_sub(at).min(segment.len());
            let from = (at + skip).saturating_sub(headers::<A>());
            at += segment.len();
            let out = &mut segment[skip..];
            let n = out.len().min(PATTERN.len() - from);
            out[..n].copy_from_slice(&PATTERN[from..from + n]);
        }
    }

    /// Whether everything behind the signature is as [`fill`](Self::fill) wrote it, over all segments.
    #[inline]
    pub fn intact<P: Packet>(&self, packet: &P) -> bool {
        let mut at = 0;
        for i in 0..packet.segments() {
            let Some(segment) = packet.segment(i) else { return false };
            let skip = headers::<A>().saturating_sub(at).min(segment.len());
            let from = (at + skip).saturating_sub(headers::<A>());
            at += segment.len();
            let part = &segment[skip..];
            if PATTERN.get(from..from + part.len()) != Some(part) {
                return false;
            }
        }
        at == self.spec.buffer_len()
    }
}

/// Payload filler: each 256-byte block differs from its neighbours, so that a block moved or repeated is noticed.
static PATTERN: [u8; MAX_SIZE as usize] = {
    let mut p = [0u8; MAX_SIZE as usize];
    let mut i = 0;
    while i < p.len() {
        p[i] = (i as u8).wrapping_add(((i >> 8) as u8).wrapping_mul(37));
        i += 1;
    }
    p
};

/// Adds up 16-bit words in network order, the last byte padded with zero (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let whole: u64 = words.by_ref().map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    whole + words.remainder().first().map_or(0, |b| u64::from(*b) << 8)
}

/// The same for 16 bytes at once, as 32-bit words: what is carried out of 16 bits comes back in by folding.
#[inline]
fn sum_words(octets: u128) -> u64 {
    (0..4).map(|i| u64::from((octets >> (32 * i)) as u32)).sum()
}

/// Folds a one's complement sum into 16 bits.
#[inline]
pub(crate) fn fold(mut s: u64) -> u16 {
    s = (s & 0xffff_ffff) + (s >> 32);
    s = (s & 0xffff) + ((s >> 16) & 0xffff) + (s >> 32);
    s = (s & 0xffff) + (s >> 16);
    ((s & 0xffff) + (s >> 16)) as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use linerate_pipeline::HeapPacket;

    use super::*;

    pub(crate) const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];
    pub(crate) const TESTER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    /// A frame as it would be sent.
    pub(crate) fn frame<A: Ip>(template: &Template<A>, flow: &Flow<A>, stamp: Stamp) -> HeapPacket {
        let mut p = HeapPacket::new(&vec![0; template.spec().buffer_len()]);
        template.fill(&mut p);
        template.sent(flow, stamp, p.head_mut());
        p
    }

    fn template<A: Ip>(size: u16, source: A) -> Template<A> {
        Template::new(FrameSpec::new::<A>(size).unwrap(), TESTER, ROUTER, source, 99)
    }

    const STAMP: Stamp = Stamp { flow: 0x12_3456, stream: 2, sequence: 0xfedc_ba98, time: 77 };

    /// Against an independent parser and checksum: etherparse.
    #[test]
    fn frames_of_every_size_are_well_formed() {
        for size in crate::wire_rate::SIZES {
            let t = template(size, 0x0aff_0002u32);
            let f = Flow { destination: 0x0808_0404, source_port: 5555, next_hop: 1 };
            let bytes = frame(&t, &f, STAMP).bytes();
            assert_eq!(bytes.len(), usize::from(size) - 4);
            let p = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
            let Some(etherparse::NetSlice::Ipv4(ip)) = p.net else { panic!() };
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "{size}");
            assert_eq!((header.time_to_live, header.destination), (64, [8, 8, 4, 4]));
            let Some(etherparse::TransportSlice::Udp(udp)) = p.transport else { panic!() };
            assert_eq!((udp.source_port(), udp.destination_port()), (5555, 7));

            let t = template(size, 0x2001_0db8_ffff_0000_0000_0000_0000_0002u128);
            let f = Flow { destination: 0x2606_4700u128 << 96 | 0x1111, source_port: 5555, next_hop: 1 };
            let bytes = frame(&t, &f, STAMP).bytes();
            let p = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
            let Some(etherparse::NetSlice::Ipv6(ip)) = p.net else { panic!() };
            let Some(etherparse::TransportSlice::Udp(udp)) = p.transport else { panic!() };
            let header = udp.to_header();
            let expected = header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).unwrap();
            assert_eq!(header.checksum, expected, "{size}");
        }
    }

    #[test]
    fn a_size_that_cannot_carry_the_signature_is_grown_openly() {
        assert_eq!(FrameSpec::new::<u32>(64), Ok(FrameSpec { size: 64, grown_from: None }));
        assert_eq!(FrameSpec::new::<u128>(64), Ok(FrameSpec { size: 82, grown_from: Some(64) }));
        assert_eq!(FrameSpec::new::<u32>(63), Err(BadSize(63)));
        assert_eq!(FrameSpec::new::<u32>(9217), Err(BadSize(9217)));
    }

    #[test]
    fn a_stamp_survives_and_a_damaged_one_is_refused() {
        let mut s = [0; SIGNATURE];
        STAMP
            .words(5)
            .iter()
            .zip(s.chunks_exact_mut(4))
            .for_each(|(w, b)| b.copy_from_slice(&w.to_be_bytes()));
        assert_eq!(Stamp::read(5, &s), Some(STAMP));
        assert_eq!(Stamp::read(6, &s), None);
        for i in 0..SIGNATURE {
            let mut damaged = s;
            damaged[i] ^= 0x10;
            assert_eq!(Stamp::read(5, &damaged), None, "byte {i}");
        }
    }

    #[test]
    fn filler_is_checked_over_segment_borders() {
        let t = template(1518, 1u32);
        let whole = {
            let mut p = HeapPacket::new(&[0; 1514]);
            t.fill(&mut p);
            p.bytes()
        };
        for cut in [[40, 60], [58, 59], [100, 1400], [1000, 1514]] {
            let parts = [&whole[..cut[0]], &whole[cut[0]..cut[1]], &whole[cut[1]..]];
            assert!(t.intact(&HeapPacket::with_segments(&parts)), "{cut:?}");
            let mut p = HeapPacket::with_segments(&[&[0u8; 1514][..cut[0]], &[0u8; 1514][cut[0]..]]);
            t.fill(&mut p);
            assert!(t.intact(&p));
        }
        let mut broken = whole.clone();
        broken[1513] ^= 1;
        assert!(!t.intact(&HeapPacket::with_segments(&[&broken[..700], &broken[700..]])));
        assert!(!t.intact(&HeapPacket::new(&whole[..1513])));
    }
}

//! The receiving end: every packet that comes back is checked, not a sample.
//!
//! A frame's signature names flow, stream, sequence number and time; from these everything else in the frame follows, so
//! the check is to write down what must have come back and compare it whole: port, MAC addresses, TTL, header checksum
//! (computed in full), all other header bytes, and every byte of payload in every segment. Only when that fails is it
//! looked at what is wrong.

use std::fmt::Write as _;

use linerate_pipeline::{Packet, PortId};

use crate::flow::Flows;
use crate::frame::{ETH, Headers, MAX_HEADERS, SIGNATURE, Stamp, TTL, Template, UDP, fold, headers, sum};
use crate::ip::Ip;
use crate::sequence::Sequence;

/// Streams: one per port that packets can leave by.
pub const STREAMS: usize = 32;

/// Most faults described in words.
const DESCRIBED: usize = 8;

/// What can be wrong with a packet that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It came out of another port than the one its next hop is behind.
    Port,
    /// It is not addressed to the next hop that the longest prefix names.
    DestinationMac,
    /// It does not come from the address of the router's port.
    SourceMac,
    /// TTL or hop limit is not one less than sent.
    Ttl,
    /// The IPv4 header checksum does not fit the header.
    Checksum,
    /// Some other byte of the IP or UDP header changed.
    Header,
    /// A byte of the payload changed.
    Payload,
    /// The packet became longer or shorter.
    Length,
    /// The signature is damaged, or names a flow that does not exist.
    Signature,
}

impl Fault {
    /// All of them, in the order of their codes.
    pub const ALL: [Fault; 9] = [
        Fault::Port,
        Fault::DestinationMac,
        Fault::SourceMac,
        Fault::Ttl,
        Fault::Checksum,
        Fault::Header,
        Fault::Payload,
        Fault::Length,
        Fault::Signature,
    ];

    /// Stable name in results.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Port => "wrong_port",
            Fault::DestinationMac => "wrong_destination_mac",
            Fault::SourceMac => "wrong_source_mac",
            Fault::Ttl => "wrong_ttl",
            Fault::Checksum => "wrong_checksum",
            Fault::Header => "header_changed",
            Fault::Payload => "payload_changed",
            Fault::Length => "length_changed",
            Fault::Signature => "signature_damaged",
        }
    }
}

/// What is between sender and sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A router: every packet comes back as the next hop must see it.
    Routed,
    /// Nothing but wires: every packet comes back unchanged by this port.
    Unchanged(PortId),
}

/// What came back and what was wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets in which everything was right.
    pub good: u64,
    /// Packets in which something was wrong.
    pub bad: u64,
    /// Packets that are not this run's test frames.
    pub foreign: u64,
    /// How often each fault was met; one packet can have several.
    pub faults: [u64; Fault::ALL.len()],
    /// Test frames that came back a second time.
    pub duplicates: u64,
    /// Test frames that came back behind a later one of their stream.
    pub reordered: u64,
    /// The first faults in words.
    pub described: Vec<String>,
    /// Shortest time from sending to checking, nanoseconds; meaningless without good packets.
    pub round_trip_min: u32,
    /// Longest.
    pub round_trip_max: u32,
    /// Sum, for the mean over [`good`](Self::good).
    pub round_trip_sum: u64,
}

impl Tally {
    /// How often a fault was met.
    pub fn count(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        if other.good > 0 {
            self.round_trip_min = if self.good == 0 {
                other.round_trip_min
            } else {
                self.round_trip_min.min(other.round_trip_min)
            };
            self.round_trip_max = self.round_trip_max.max(other.round_trip_max);
        }
        self.good += other.good;
        self.bad += other.bad;
        self.foreign += other.foreign;
        self.faults.iter_mut().zip(other.faults).for_each(|(a, b)| *a += b);
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        let room = DESCRIBED.saturating_sub(self.described.len());
        self.described.extend(other.described.iter().take(room).cloned());
        self.round_trip_sum += other.round_trip_sum;
    }
}

/// Checks packets that come back.
#[derive(Debug)]
pub struct Sink<A> {
    template: Template<A>,
    flows: Flows<A>,
    expect: Expect,
    streams: [Sequence; STREAMS],
    tally: Tally,
}

impl<A: Ip> Sink<A> {
    /// For frames of `template` over `flows`.
    pub fn new(template: Template<A>, flows: Flows<A>, expect: Expect) -> Self {
        let tally = Tally { round_trip_min: u32::MAX, ..Tally::default() };
        Sink { template, flows, expect, streams: std::array::from_fn(|_| Sequence::default()), tally }
    }

    /// Checks a packet that left the router by `port`; `now` in nanoseconds modulo 2³². True where it is right in every
    /// respect.
    #[inline]
    pub fn check<P: Packet>(&mut self, port: PortId, packet: &P, now: u32) -> bool {
        let mut copy = [0; MAX_HEADERS];
        let n = headers::<A>();
        let head = match packet.head().get(..n) {
            Some(head) => head,
            // Headers spread over segments: rare, so copied rather than handled in place.
            None => {
                let have = packet.copy_out(0, &mut copy[..n]);
                &copy[..have]
            }
        };
        let mut expected = [0; MAX_HEADERS];
        if let Some((stamp, out)) = self.expected(head, &mut expected)
            && head == &expected[..n]
            && port == out
            && packet.len() == self.template.spec().buffer_len()
            && self.template.intact(packet)
        {
            let age = now.wrapping_sub(stamp.time);
            let t = &mut self.tally;
            t.good += 1;
            t.round_trip_sum += u64::from(age);
            t.round_trip_min = t.round_trip_min.min(age);
            t.round_trip_max = t.round_trip_max.max(age);
            self.streams[usize::from(stamp.stream)].arrived(stamp.sequence);
            return true;
        }
        let mut seen = [0; MAX_HEADERS];
        let seen_len = packet.copy_out(0, &mut seen[..n]);
        self.judge(port, packet.len(), &seen[..seen_len], self.template.intact(packet));
        false
    }

    /// One above the highest sequence number of a stream that came back.
    pub fn acknowledged(&self, stream: u8) -> u32 {
        self.streams.get(usize::from(stream)).map_or(0, Sequence::expected)
    }

    /// Distinct test frames that came back, right or wrong.
    pub fn received(&self) -> u64 {
        self.streams.iter().map(|s| s.received).sum()
    }

    /// Packets that came back right so far.
    pub fn good(&self) -> u64 {
        self.tally.good
    }

    /// What came back so far.
    pub fn tally(&self) -> Tally {
        let mut t = self.tally.clone();
        t.duplicates = self.streams.iter().map(|s| s.duplicates).sum();
        t.reordered = self.streams.iter().map(|s| s.reordered).sum();
        t
    }

    /// Writes what headers of this stamp must look like, and says by which port they must come; `None` where the stamp is
    /// no good.
    #[inline(always)]
    fn expected(&self, head: &[u8], out: &mut Headers) -> Option<(Stamp, PortId)> {
        let n = headers::<A>();
        let signature = head.get(n - SIGNATURE..n)?.first_chunk::<SIGNATURE>()?;
        let stamp = Stamp::read(self.template.key(), signature)?;
        let flow = self.flows.list.get(stamp.flow as usize)?;
        let hop = self.flows.hops.get(usize::from(flow.next_hop))?;
        if usize::from(stamp.stream) >= STREAMS {
            return None;
        }
        match self.expect {
            Expect::Routed => {
                self.template.routed(flow, stamp, hop, out);
                Some((stamp, hop.port))
            }
            Expect::Unchanged(port) => {
                self.template.sent(flow, stamp, out);
                Some((stamp, port))
            }
        }
    }

    /// Says what is wrong with a packet that is not as it should be.
    #[cold]
    fn judge(&mut self, port: PortId, len: usize, head: &[u8], intact: bool) {
        if !is_test_traffic::<A>(head) {
            self.tally.foreign += 1;
            return;
        }
        self.tally.bad += 1;
        let mut want = [0; MAX_HEADERS];
        let Some((stamp, out)) = self.expected(head, &mut want) else {
            return self.fault(Fault::Signature, || {
                format!("port {port}: a frame of {len} bytes whose signature is damaged")
            });
        };
        self.streams[usize::from(stamp.stream)].arrived(stamp.sequence);
        let flow = self.flows.list[stamp.flow as usize];
        let to = format!("packet {} to {}", stamp.sequence, flow.destination.to_ip());
        if port != out {
            self.fault(Fault::Port, || format!("{to}: left by port {port} instead of port {out}"));
        }
        let macs = [(Fault::DestinationMac, 0, "to"), (Fault::SourceMac, 6, "from")];
        for (fault, at, word) in macs {
            if head[at..at + 6] != want[at..at + 6] {
                self.fault(fault, || {
                    let (got, want) = (mac(&head[at..at + 6]), mac(&want[at..at + 6]));
                    format!("{to}: sent {word} {got} instead of {want} (next hop {})", flow.next_hop)
                });
            }
        }
        let ttl = ETH + if A::BITS == 32 { 8 } else { 7 };
        if head[ttl] != want[ttl] {
            let (got, want) = (head[ttl], want[ttl]);
            self.fault(Fault::Ttl, || format!("{to}: TTL {got} instead of {want} (sent with {TTL})"));
        }
        if A::BITS == 32 && fold(sum(&head[ETH..ETH + 20])) != 0xffff {
            self.fault(Fault::Checksum, || format!("{to}: the IPv4 header checksum is wrong"));
        }
        let end = ETH + A::HEADER + UDP;
        let excused = |i: usize| i < 12 || i == ttl || A::BITS == 32 && (ETH + 10..ETH + 12).contains(&i);
        if let Some(i) = (0..end).find(|i| !excused(*i) && head[*i] != want[*i]) {
            self.fault(Fault::Header, || format!("{to}: header byte {i} is {:#04x}", head[i]));
        }
        if len != self.template.spec().buffer_len() {
            self.fault(Fault::Length, || format!("{to}: {len} bytes came back"));
        } else if !intact {
            self.fault(Fault::Payload, || format!("{to}: the payload was changed"));
        }
    }

    fn fault(&mut self, fault: Fault, text: impl FnOnce() -> String) {
        self.tally.faults[fault as usize] += 1;
        if self.tally.described.len() < DESCRIBED {
            self.tally.described.push(text());
        }
    }
}

/// Whether a frame is UDP of the family and long enough to hold a signature. Anything else is the router's own traffic
/// (ARP, neighbour discovery, ICMP), not a test frame.
fn is_test_traffic<A: Ip>(head: &[u8]) -> bool {
    let protocol = ETH + if A::BITS == 32 { 9 } else { 6 };
    head.len() == headers::<A>() && head[12..14] == A::ETHERTYPE.to_be_bytes() && head[protocol] == 17
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().enumerate().fold(String::new(), |mut s, (i, b)| {
        let _ = write!(s, "{}{b:02x}", if i == 0 { "" } else { ":" });
        s
    })
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::HeapPacket;
    use linerate_tables::prefix::Prefix;

    use super::*;
    use crate::flow::tests::hops;
    use crate::frame::FrameSpec;
    use crate::frame::tests::{ROUTER, TESTER};

    const STAMP: Stamp = Stamp { flow: 3, stream: 1, sequence: 0, time: 1000 };

    /// A sink, and the bytes of the one packet that it wants back by port 2.
    fn sink<A: Ip>(size: u16, prefix: Prefix<A>, source: A) -> (Sink<A>, Vec<u8>) {
        let flows = Flows::pick(&vec![(prefix, 3)], hops(), 10, &[], 1).unwrap();
        let t = Template::new(FrameSpec::new::<A>(size).unwrap(), TESTER, ROUTER, source, 42);
        let mut p = HeapPacket::new(&vec![0; t.spec().buffer_len()]);
        t.fill(&mut p);
        t.routed(&flows.list[3], STAMP, &flows.hops[3], p.head_mut());
        (Sink::new(t, flows, Expect::Routed), p.bytes())
    }

    fn sink4() -> (Sink<u32>, Vec<u8>) {
        sink(128, Prefix::new(0x0808_0000u32, 16).unwrap(), 0x0aff_0002)
    }

    fn sink6() -> (Sink<u128>, Vec<u8>) {
        sink(128, Prefix::new(0x2606_4700u128 << 96, 32).unwrap(), 0x2001_0db8u128 << 96 | 2)
    }

    fn faults<A: Ip>(
        (mut sink, mut bytes): (Sink<A>, Vec<u8>),
        harm: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<Fault> {
        assert!(sink.check(2, &HeapPacket::new(&bytes), 1500), "right as it is");
        harm(&mut bytes);
        assert!(!sink.check(2, &HeapPacket::new(&bytes), 1500));
        let t = sink.tally();
        assert_eq!((t.good, t.bad + t.foreign), (1, 1));
        assert_eq!(t.described.len() as u64, t.faults.iter().sum::<u64>());
        Fault::ALL.into_iter().filter(|f| t.count(*f) > 0).collect()
    }

    #[test]
    fn each_fault_is_caught_and_named() {
        use Fault::*;
        assert_eq!(faults(sink4(), |b| b[5] ^= 1), [DestinationMac]);
        assert_eq!(faults(sink6(), |b| b[5] ^= 1), [DestinationMac]);
        assert_eq!(faults(sink4(), |b| b[11] ^= 1), [SourceMac]);
        // A TTL left alone with the checksum that fits it.
        let unrouted = |b: &mut Vec<u8>| {
            b[22] = 64;
            b[24..26].copy_from_slice(&[0, 0]);
            let c = !fold(sum(&b[14..34]));
            b[24..26].copy_from_slice(&c.to_be_bytes());
        };
        assert_eq!(faults(sink4(), unrouted), [Ttl]);
        assert_eq!(faults(sink6(), |b| b[21] = 64), [Ttl]);
        assert_eq!(faults(sink4(), |b| b[22] = 62), [Ttl, Checksum]);
        assert_eq!(faults(sink4(), |b| b[25] ^= 1), [Checksum]);
        assert_eq!(faults(sink6(), |b| b[15] ^= 1), [Header], "flow label or traffic class");
        assert_eq!(faults(sink6(), |b| b[60] ^= 1), [Header], "UDP checksum");
        assert_eq!(faults(sink4(), |b| b[41] ^= 1), [Header], "UDP checksum");
        assert_eq!(faults(sink4(), |b| *b.last_mut().unwrap() ^= 1), [Payload]);
        assert_eq!(faults(sink4(), |b| b[58] ^= 1), [Payload], "first byte behind the signature");
        assert_eq!(faults(sink4(), |b| b.push(0)), [Length]);
        assert_eq!(faults(sink4(), |b| b.truncate(100)), [Length]);
        assert_eq!(faults(sink4(), |b| b[45] ^= 1), [Signature]);
        assert_eq!(faults(sink6(), |b| b[77] ^= 1), [Signature]);
    }

    #[test]
    fn the_port_counts_too() {
        let (mut s, bytes) = sink4();
        assert!(!s.check(1, &HeapPacket::new(&bytes), 0));
        assert_eq!(s.tally().count(Fault::Port), 1);
        assert!(s.tally().described[0].ends_with("left by port 1 instead of port 2"));
    }

    #[test]
    fn what_is_not_a_test_frame_is_foreign_and_nothing_panics_on_it() {
        let (mut s, bytes) = sink4();
        let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
        s.check(2, &HeapPacket::new(&arp), 0);
        for n in 0..bytes.len() {
            s.check(2, &HeapPacket::new(&bytes[..n]), 0);
            s.check(2, &HeapPacket::with_segments(&[&bytes[..n], &bytes[n..n]]), 0);
        }
        assert_eq!(s.tally().foreign, 1 + 2 * 58);
        assert_eq!(s.tally().good, 0);
    }

    #[test]
    fn headers_spread_over_segments_are_read() {
        let (mut s, bytes) = sink6();
        for cut in [1, 14, 40, 70, 78, 100] {
            assert!(s.check(2, &HeapPacket::with_segments(&[&bytes[..cut], &bytes[cut..]]), 0), "{cut}");
        }
        assert_eq!((s.tally().good, s.tally().duplicates, s.received()), (6, 5, 1));
    }

    #[test]
    fn jumbo_frames_in_segments_are_checked_to_the_last_byte() {
        let (mut s, bytes) = sink(9000, Prefix::new(0x0808_0000u32, 16).unwrap(), 0x0aff_0002);
        let parts = |b: &[u8]| {
            HeapPacket::with_segments(&[
                &b[..2048],
                &b[2048..4096],
                &b[4096..6144],
                &b[6144..8192],
                &b[8192..],
            ])
        };
        assert!(s.check(2, &parts(&bytes), 0));
        for i in [2047, 2048, 4100, 8995] {
            let mut b = bytes.clone();
            b[i] ^= 0x80;
            assert!(!s.check(2, &parts(&b), 0), "byte {i}");
        }
        assert_eq!(s.tally().count(Fault::Payload), 4);
    }
}

//! Packets on the heap: the same contract as mbufs, for node tests and fuzzing.

use std::sync::Arc;

use crate::{Meta, Packet, PacketAlloc, PortId};

/// Headroom in front of the first segment, as DPDK's default.
const HEADROOM: usize = 128;
/// Room behind the data of each segment.
const TAILROOM: usize = 256;

/// A packet whose segments are plain vectors.
#[derive(Clone, Debug, Default)]
pub struct HeapPacket {
    meta: Meta,
    rx_port: PortId,
    trace_id: u32,
    segments: Vec<Segment>,
}

/// Bytes that several packets may have.
#[derive(Debug)]
struct Segment {
    buffer: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

/// A copy of a packet is a packet of its own: it shares nothing.
impl Clone for Segment {
    fn clone(&self) -> Self {
        Segment { buffer: Arc::new(self.buffer.to_vec()), ..*self }
    }
}

/// The bytes of a packet that was given up for sharing.
#[derive(Debug)]
pub struct HeapShared {
    segments: Vec<Segment>,
    uses: u16,
}

impl Segment {
    fn new(bytes: &[u8], headroom: usize) -> Self {
        let mut buffer = vec![0; headroom + bytes.len() + TAILROOM];
        buffer[headroom..headroom + bytes.len()].copy_from_slice(bytes);
        Segment { buffer: Arc::new(buffer), start: headroom, end: headroom + bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The bytes, to change, where no other packet has them.
    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.buffer).map(|b| &mut b[self.start..self.end])
    }

    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.buffer) > 1
    }

    /// One more owner of the same bytes.
    fn another(&self) -> Self {
        Segment { buffer: Arc::clone(&self.buffer), ..*self }
    }
}

impl HeapPacket {
    /// A packet of one segment.
    pub fn new(bytes: &[u8]) -> Self {
        Self::with_segments(&[bytes])
    }

    /// A packet of several segments; at least one is made.
    pub fn with_segments(segments: &[&[u8]]) -> Self {
        let mut segments: Vec<_> = segments
            .iter()
            .enumerate()
            .map(|(i, s)| Segment::new(s, if i == 0 { HEADROOM } else { 0 }))
            .collect();
        if segments.is_empty() {
            segments.push(Segment::new(&[], HEADROOM));
        }
        HeapPacket { segments, ..HeapPacket::default() }
    }

    /// The same packet, as received by `port`.
    pub fn from_port(mut self, port: PortId) -> Self {
        self.rx_port = port;
        self
    }

    /// The same packet without room before or behind its data: what [`Packet::prepend`], [`Packet::append`] and
    /// [`Packet::pull`] must refuse.
    pub fn tight(mut self) -> Self {
        for s in &mut self.segments {
            *s = Segment { buffer: Arc::new(s.bytes().to_vec()), start: 0, end: s.bytes().len() };
        }
        self
    }

    /// All bytes in one vector.
    pub fn bytes(&self) -> Vec<u8> {
        self.segments.iter().flat_map(|s| s.bytes().iter().copied()).collect()
    }

    fn first(&self) -> &Segment {
        &self.segments[0]
    }
}

impl Packet for HeapPacket {
    type Shared = HeapShared;

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.meta
    }

    fn rx_port(&self) -> PortId {
        self.rx_port
    }

    fn set_rx_port(&mut self, port: PortId) {
        self.rx_port = port;
    }

    fn trace_id(&self) -> u32 {
        self.trace_id
    }

    fn set_trace_id(&mut self, id: u32) {
        self.trace_id = id;
    }

    fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    fn head(&self) -> &[u8] {
        self.first().bytes()
    }

    fn head_mut(&mut self) -> &mut [u8] {
        self.split_mut().0
    }

    fn split_mut(&mut self) -> (&mut [u8], &mut Meta) {
        let s = &mut self.segments[0];
        // The first segment is the packet's own: this copies nothing.
        (&mut Arc::make_mut(&mut s.buffer)[s.start..s.end], &mut self.meta)
    }

    fn segments(&self) -> usize {
        self.segments.len()
    }

    fn segment(&self, i: usize) -> Option<&[u8]> {
        self.segments.get(i).map(Segment::bytes)
    }

    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        self.segments.get_mut(i)?.bytes_mut()
    }

    fn pull(&mut self, n: usize) -> Option<&mut [u8]> {
        let mut missing = n.saturating_sub(self.first().len());
        if n > self.len() || missing > self.first().buffer.len() - self.first().end {
            return None;
        }
        // The segments that will be used up, and what is taken of the next one.
        let mut whole = 1;
        while let Some(next) = self.segments.get(whole).filter(|s| missing > 0 && s.len() <= missing) {
            missing -= next.len();
            whole += 1;
        }
        if missing > 0 && self.segments.get(whole).is_none_or(Segment::is_shared) {
            return None;
        }
        let mut moved = Vec::new();
        for used in self.segments.drain(1..whole) {
            moved.extend_from_slice(used.bytes());
        }
        if let Some(part) = self.segments.get_mut(1).filter(|_| missing > 0) {
            moved.extend_from_slice(&part.bytes()[..missing]);
            part.start += missing;
        }
        let first = &mut self.segments[0];
        let end = first.end;
        first.end += moved.len();
        Arc::make_mut(&mut first.buffer)[end..end + moved.len()].copy_from_slice(&moved);
        Some(self.head_mut())
    }

    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let first = &mut self.segments[0];
        first.start = first.start.checked_sub(n)?;
        Some(self.head_mut())
    }

    fn trim_front(&mut self, n: usize) -> bool {
        let first = &mut self.segments[0];
        let fits = n <= first.end - first.start;
        if fits {
            first.start += n;
        }
        fits
    }

    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let last = self.segments.last_mut()?;
        let end = last.end;
        if n > last.buffer.len() - end {
            return None;
        }
        let buffer = Arc::get_mut(&mut last.buffer)?;
        last.end += n;
        Some(&mut buffer[end..end + n])
    }

    fn truncate(&mut self, len: usize) -> bool {
        if len >= self.len() {
            return true;
        }
        let (mut at, mut left) = (0, len);
        while left > self.segments[at].len() {
            left -= self.segments[at].len();
            at += 1;
        }
        let last = &mut self.segments[at];
        if at > 0 && last.is_shared() {
            return false;
        }
        last.end = last.start + left;
        self.segments.truncate(at + 1);
        true
    }

    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let last = self.segments.len() - 1;
        if last > 0 && self.segments[last].is_shared() {
            return Err(tail);
        }
        self.segments.extend(tail.segments);
        Ok(())
    }

    fn share(self, uses: u16) -> HeapShared {
        HeapShared { segments: self.segments, uses }
    }

    fn attach(&mut self, shared: &mut HeapShared) -> bool {
        let last = self.segments.len() - 1;
        if shared.uses == 0 || (last > 0 && self.segments[last].is_shared()) {
            return false;
        }
        shared.uses -= 1;
        if shared.uses == 0 {
            // The last one gets what is left: then nobody holds more than is said.
            self.segments.append(&mut shared.segments);
        } else {
            self.segments.extend(shared.segments.iter().map(Segment::another));
        }
        true
    }
}

/// An allocator that gives heap packets, at most as many as it is told (to test exhaustion).
#[derive(Debug)]
pub struct HeapAlloc {
    left: usize,
}

impl HeapAlloc {
    /// Gives out at most `packets`.
    pub fn with_limit(packets: usize) -> Self {
        HeapAlloc { left: packets }
    }
}

impl Default for HeapAlloc {
    fn default() -> Self {
        Self::with_limit(usize::MAX)
    }
}

impl PacketAlloc<HeapPacket> for HeapAlloc {
    fn alloc(&mut self) -> Option<HeapPacket> {
        self.left = self.left.checked_sub(1)?;
        let mut packet = HeapPacket::new(&[]);
        Arc::make_mut(&mut packet.segments[0].buffer).resize(HEADROOM + 2048, 0);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepend_trim_append_truncate() {
        let mut p = HeapPacket::new(&[1, 2, 3]);
        p.prepend(2).unwrap()[..2].copy_from_slice(&[8, 9]);
        p.append(1).unwrap()[0] = 4;
        assert_eq!(p.bytes(), [8, 9, 1, 2, 3, 4]);
        assert!(p.trim_front(2));
        assert!(!p.trim_front(5));
        p.truncate(9);
        p.truncate(2);
        assert_eq!(p.bytes(), [1, 2]);
        assert!(p.prepend(HEADROOM + 1).is_none());
        assert!(p.append(10_000).is_none());
        assert_eq!(p.bytes(), [1, 2]);
    }

    #[test]
    fn headers_across_segments_are_pulled_together() {
        let mut p = HeapPacket::with_segments(&[&[1, 2], &[3], &[4, 5, 6]]);
        assert_eq!(p.len(), 6);
        assert!(p.pull(7).is_none());
        assert_eq!(p.pull(4).unwrap(), [1, 2, 3, 4]);
        assert_eq!((p.segments(), p.bytes()), (2, vec![1, 2, 3, 4, 5, 6]));
        let mut out = [0; 3];
        assert_eq!(p.copy_out(3, &mut out), 3);
        assert_eq!(out, [4, 5, 6]);
        assert_eq!(p.copy_out(5, &mut out), 1);
        p.truncate(4);
        assert_eq!(p.segments(), 1);
        let mut gap = HeapPacket::with_segments(&[&[1], &[], &[2, 3]]);
        gap.truncate(2);
        assert_eq!(gap.bytes(), [1, 2], "an empty segment between others is none of the end");
    }

    #[test]
    fn shared_bytes_are_read_by_all_and_changed_by_none() {
        let mut shared = HeapPacket::with_segments(&[&[1, 2], &[3, 4]]).share(2);
        let mut heads = [HeapPacket::new(&[8]), HeapPacket::new(&[9]), HeapPacket::new(&[7])];
        assert_eq!(heads.each_mut().map(|h| h.attach(&mut shared)), [true, true, false]);
        let [mut a, mut b, _] = heads;
        assert_eq!((a.bytes(), b.bytes()), (vec![8, 1, 2, 3, 4], vec![9, 1, 2, 3, 4]));
        assert!(a.segment_mut(1).is_none() && a.append(1).is_none());
        assert!(a.pull(2).is_none(), "a part of what others have too");
        assert!(!a.truncate(3) && !a.truncate(4) && a.chain(HeapPacket::new(&[5])).is_err());
        assert_eq!(a.pull(5).unwrap(), [8, 1, 2, 3, 4]);
        assert_eq!((a.segments(), b.segments()), (1, 3));
        b.segment_mut(1).unwrap()[0] = 6;
        assert!(b.truncate(2));
        assert_eq!((a.bytes(), b.bytes()), (vec![8, 1, 2, 3, 4], vec![9, 6]));
        assert!(b.truncate(1) && b.chain(a).is_ok());
        assert_eq!(b.bytes(), [9, 8, 1, 2, 3, 4]);
    }
}

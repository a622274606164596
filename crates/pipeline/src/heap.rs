//! Packets on the heap: the same contract as mbufs, for node tests and fuzzing.

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

#[derive(Clone, Debug)]
struct Segment {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Segment {
    fn new(bytes: &[u8], headroom: usize) -> Self {
        let mut buffer = vec![0; headroom + bytes.len() + TAILROOM];
        buffer[headroom..headroom + bytes.len()].copy_from_slice(bytes);
        Segment { buffer, start: headroom, end: headroom + bytes.len() }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
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
            *s = Segment { buffer: s.bytes().to_vec(), start: 0, end: s.bytes().len() };
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
        self.segments.iter().map(|s| s.end - s.start).sum()
    }

    fn head(&self) -> &[u8] {
        self.first().bytes()
    }

    fn head_mut(&mut self) -> &mut [u8] {
        self.split_mut().0
    }

    fn split_mut(&mut self) -> (&mut [u8], &mut Meta) {
        let s = &mut self.segments[0];
        (&mut s.buffer[s.start..s.end], &mut self.meta)
    }

    fn segments(&self) -> usize {
        self.segments.len()
    }

    fn segment(&self, i: usize) -> Option<&[u8]> {
        self.segments.get(i).map(Segment::bytes)
    }

    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        self.segments.get_mut(i).map(|s| &mut s.buffer[s.start..s.end])
    }

    fn pull(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.len() {
            return None;
        }
        while self.first().end - self.first().start < n {
            let have = self.first().end - self.first().start;
            let room = self.first().buffer.len() - self.first().end;
            let next = &mut self.segments[1];
            let take = (n - have).min(next.end - next.start);
            if take > room {
                return None;
            }
            let moved = next.buffer[next.start..next.start + take].to_vec();
            next.start += take;
            if next.start == next.end {
                self.segments.remove(1);
            }
            let first = &mut self.segments[0];
            first.buffer[first.end..first.end + take].copy_from_slice(&moved);
            first.end += take;
        }
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
        last.end += n;
        Some(&mut last.buffer[end..end + n])
    }

    fn truncate(&mut self, len: usize) {
        let mut left = len;
        let mut keep = 0;
        for (i, s) in self.segments.iter_mut().enumerate() {
            let n = (s.end - s.start).min(left);
            s.end = s.start + n;
            left -= n;
            if n > 0 {
                keep = i + 1;
            }
        }
        self.segments.truncate(keep.max(1));
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
        packet.segments[0].buffer.resize(HEADROOM + 2048, 0);
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
}

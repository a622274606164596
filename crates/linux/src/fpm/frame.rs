//! Frames: version, type, length in network order, then netlink messages.

use crate::route::{Change, Decoder, Event, Fault, Faults, Route};

/// Bytes of the frame header.
const HEADER: usize = 4;
const VERSION: u8 = 1;
/// `FPM_MSG_TYPE_NETLINK`.
const NETLINK: u8 = 1;
/// Longer than any frame, whose length is 16 bits; a few of them, so that a read is worth a system call.
const BUFFER: usize = 4 << 16;

/// Cuts a byte stream into frames, wherever its reads end, and decodes what is in them.
#[derive(Debug)]
pub struct FrameDecoder {
    decoder: Decoder,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    frames: u64,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        FrameDecoder::new()
    }
}

impl FrameDecoder {
    /// At the start of a stream.
    pub fn new() -> Self {
        FrameDecoder {
            decoder: Decoder::new("FPM"),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            frames: 0,
        }
    }

    /// Where to read the next bytes to; never empty after [`decode`](Self::decode).
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// Says how many bytes were read, then reports what is in the frames that are whole. After an error the stream cannot
    /// be followed any further.
    pub fn decode(&mut self, read: usize, mut each: impl FnMut(Event)) -> Result<(), Fault> {
        self.end = self.buffer.len().min(self.end + read);
        while let Some(&[version, kind, high, low]) =
            self.buffer[self.start..self.end].first_chunk::<HEADER>()
        {
            let length = u16::from_be_bytes([high, low]);
            if version != VERSION || usize::from(length) < HEADER {
                let fault = Fault::Frame { version, length };
                self.decoder.faults.note(fault);
                return Err(fault);
            }
            let Some(body) = self.buffer[self.start..self.end].get(HEADER..length.into()) else { break };
            self.frames += 1;
            if kind == NETLINK {
                frame(&mut self.decoder, body, &mut each);
            } else {
                self.decoder.faults.note(Fault::FrameType(kind));
            }
            self.start += usize::from(length);
        }
        Ok(())
    }

    /// Forgets the stream, for the next one. Counters stay.
    pub fn reset(&mut self) {
        if self.start < self.end {
            self.decoder.faults.note(Fault::CutOff);
        }
        (self.start, self.end) = (0, 0);
    }

    /// Whole frames seen.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Netlink messages seen, understood or not.
    pub fn messages(&self) -> u64 {
        self.decoder.messages()
    }

    /// What was skipped.
    pub fn faults(&self) -> &Faults {
        &self.decoder.faults
    }
}

/// Reports a frame's events; a delete followed by a route of the same prefix is a replacement.
fn frame(decoder: &mut Decoder, body: &[u8], each: &mut impl FnMut(Event)) {
    let mut deleted: Option<Route> = None;
    decoder.decode(body, |event| {
        let held = deleted.take();
        let event = match event {
            Event::Route(Change::Delete, route) => {
                deleted = Some(route);
                None
            }
            Event::Route(_, route) => Some(Event::Route(Change::Replace, route)),
            Event::Nexthop(Change::Add, nexthop) => Some(Event::Nexthop(Change::Replace, nexthop)),
            other => Some(other),
        };
        let replaced = match (&held, &event) {
            (Some(old), Some(Event::Route(_, new))) => old.table == new.table && old.prefix == new.prefix,
            _ => false,
        };
        if let Some(route) = held.filter(|_| !replaced) {
            each(Event::Route(Change::Delete, route));
        }
        if let Some(event) = event {
            each(event);
        }
    });
    if let Some(route) = deleted {
        each(Event::Route(Change::Delete, route));
    }
}

/// Arbitrary bytes as a stream, read whole and in pieces: both must say the same.
pub fn fuzz(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(BUFFER)];
    let piece = usize::from(bytes.first().copied().unwrap_or(1)) + 1;
    let whole = read_in_pieces(bytes, bytes.len().max(1));
    let pieces = read_in_pieces(bytes, piece);
    assert_eq!(whole, pieces, "events depend on where reads end");
}

/// All that a stream says, when each read brings at most `piece` bytes.
fn read_in_pieces(bytes: &[u8], piece: usize) -> (Vec<Event>, Option<Fault>, u64) {
    let mut decoder = FrameDecoder::new();
    let mut events = Vec::new();
    let mut fault = None;
    for piece in bytes.chunks(piece) {
        decoder.space()[..piece.len()].copy_from_slice(piece);
        if let Err(f) = decoder.decode(piece.len(), |e| events.push(e)) {
            fault = Some(f);
            break;
        }
    }
    (events, fault, decoder.faults().total())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::RouteKind;
    use proptest::prelude::*;

    fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len() + HEADER).unwrap().to_be_bytes();
        [&[VERSION, kind, length[0], length[1]], body].concat()
    }

    /// A blackhole route or the delete of one, as FRR would write it.
    fn route(kind: u16, prefix: [u8; 4], length: u8) -> Vec<u8> {
        let rtm = [2, length, 0, 0, 254, 196, 0, if kind == 24 { 6 } else { 0 }, 0, 0, 0, 0];
        let body = [&rtm[..], &[8, 0, 1, 0], &prefix].concat();
        let mut header = (body.len() as u32 + 16).to_ne_bytes().to_vec();
        header.extend(kind.to_ne_bytes());
        header.extend([0; 10]);
        [header, body].concat()
    }

    fn said(stream: &[u8]) -> Vec<String> {
        let (events, ..) = read_in_pieces(stream, stream.len());
        let say = |e: &Event| match e {
            Event::Route(change, r) => format!("{change:?} {}", r.prefix),
            other => format!("{other:?}"),
        };
        events.iter().map(say).collect()
    }

    #[test]
    fn delete_and_new_in_one_frame_replace() {
        let (new, del) = (24, 25);
        let (a, b) = ([10, 1, 0, 0], [10, 2, 0, 0]);
        let pair = framed(1, &[route(del, a, 16), route(new, a, 16)].concat());
        assert_eq!(said(&pair), ["Replace 10.1.0.0/16"]);
        let other = framed(1, &[route(del, a, 16), route(new, b, 16)].concat());
        assert_eq!(said(&other), ["Delete 10.1.0.0/16", "Replace 10.2.0.0/16"]);
        let two =
            framed(1, &[route(del, a, 16), route(del, b, 16), route(new, b, 16), route(del, a, 16)].concat());
        assert_eq!(said(&two), ["Delete 10.1.0.0/16", "Replace 10.2.0.0/16", "Delete 10.1.0.0/16"]);
        // Two frames are two changes: between them the stream may end.
        let apart = [framed(1, &route(del, a, 16)), framed(1, &route(new, a, 16))].concat();
        assert_eq!(said(&apart), ["Delete 10.1.0.0/16", "Replace 10.1.0.0/16"]);
    }

    #[test]
    fn nonsense_in_a_frame_leaves_the_next_one_alone() {
        let good = framed(1, &route(24, [10, 1, 0, 0], 16));
        let mut long = route(24, [10, 1, 0, 0], 16);
        long[0] = 0xff;
        for (bad, fault) in [
            (framed(1, &[1; 7]), Fault::Header),
            (framed(1, &long), Fault::Header),
            (framed(1, &route(24, [10, 1, 0, 0], 55)), Fault::PrefixLength { message: 24, length: 55 }),
            (framed(1, &route(2, [0; 4], 0)), Fault::MessageType(2)),
            (framed(2, &[0; 30]), Fault::FrameType(2)),
        ] {
            let mut decoder = FrameDecoder::new();
            let stream = [&bad[..], &good].concat();
            decoder.space()[..stream.len()].copy_from_slice(&stream);
            let mut events = Vec::new();
            decoder.decode(stream.len(), |e| events.push(e)).unwrap();
            assert_eq!(decoder.faults().iter().collect::<Vec<_>>(), [(fault, 1)]);
            assert!(
                matches!(&events[..], [Event::Route(Change::Replace, r)] if r.kind == RouteKind::Blackhole)
            );
        }
    }

    #[test]
    fn a_frame_that_cannot_be_ends_the_stream() {
        for header in [[0, 1, 0, 40], [2, 1, 0, 40], [1, 1, 0, 3], [1, 1, 0, 0]] {
            let mut decoder = FrameDecoder::new();
            decoder.space()[..4].copy_from_slice(&header);
            let fault = decoder.decode(4, |_| {}).unwrap_err();
            assert!(matches!(fault, Fault::Frame { .. }), "{fault}");
            decoder.reset();
            let good = framed(1, &route(24, [10, 1, 0, 0], 16));
            decoder.space()[..good.len()].copy_from_slice(&good);
            let mut events = 0;
            decoder.decode(good.len(), |_| events += 1).unwrap();
            assert_eq!(events, 1);
        }
    }

    #[test]
    fn frames_of_the_greatest_length_pass() {
        let count = (usize::from(u16::MAX) - HEADER) / route(24, [0; 4], 8).len();
        let body: Vec<u8> =
            (0..count).flat_map(|i| route(24, [10, (i >> 8) as u8, i as u8, 0], 24)).collect();
        let stream = framed(1, &body).repeat(9);
        for piece in [1, 1000, 65_536, 200_000] {
            let mut decoder = FrameDecoder::new();
            let (mut events, mut rest) = (0, &stream[..]);
            while !rest.is_empty() {
                let space = decoder.space();
                let n = space.len().min(piece).min(rest.len());
                space[..n].copy_from_slice(&rest[..n]);
                decoder.decode(n, |_| events += 1).unwrap();
                rest = &rest[n..];
            }
            assert_eq!((events, decoder.frames(), decoder.faults().total()), (9 * count, 9, 0), "{piece}");
        }
    }

    fn streams() -> impl Strategy<Value = Vec<u8>> {
        // Frames that FRR could have sent with some bytes changed, so that more than the first check is reached.
        let frame = (any::<bool>(), any::<[u8; 4]>(), 0u8..40)
            .prop_map(|(new, prefix, length)| framed(1, &route(if new { 24 } else { 25 }, prefix, length)));
        let frames = prop::collection::vec(frame, 1..20).prop_map(|f| f.concat());
        (frames, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12)).prop_map(
            |(mut bytes, changes)| {
                for (at, byte) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                bytes
            },
        )
    }

    proptest! {
        #[test]
        fn any_stream_ends_and_reads_do_not_matter(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..600),
            streams(),
        ]) {
            crate::route::fuzz(&bytes);
        }
    }
}

//! Whole copies of packets, for the few that leave the common way.

use linerate_pipeline::{Packet, PacketAlloc};

/// A packet of its own with the first `len` bytes of another, its metadata and its port. Takes as many buffers as needed;
/// `None` where the pool does not have them.
pub(super) fn copy<P: Packet>(alloc: &mut dyn PacketAlloc<P>, packet: &P, len: usize) -> Option<P> {
    let len = len.min(packet.len());
    let (mut copy, mut done) = (None::<P>, 0);
    while done < len || copy.is_none() {
        let mut part = alloc.alloc()?;
        let mut size = len - done;
        while part.append(size).is_none() {
            size /= 2;
            if size == 0 {
                return None;
            }
        }
        done += packet.copy_out(done, part.head_mut());
        match &mut copy {
            None => copy = Some(part),
            Some(first) => first.chain(part).ok()?,
        }
    }
    let mut copy = copy?;
    *copy.meta_mut() = *packet.meta();
    copy.set_rx_port(packet.rx_port());
    Some(copy)
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::HeapPacket;
    use linerate_pipeline::heap::HeapAlloc;

    use super::*;

    #[test]
    fn copies_have_all_bytes_and_nothing_in_common() {
        let bytes: Vec<u8> = (0..9216).map(|i| (i * 7) as u8).collect();
        let packet =
            HeapPacket::with_segments(&[&bytes[..100], &bytes[100..5000], &bytes[5000..]]).from_port(3);
        for len in [0, 1, 2048, 2049, 9216, 10_000] {
            let mut one = copy(&mut HeapAlloc::default(), &packet, len).unwrap();
            assert_eq!((one.bytes(), one.rx_port()), (bytes[..len.min(9216)].to_vec(), 3));
            assert!((0..one.segments()).all(|i| one.segment_mut(i).is_some()));
        }
        assert!(copy(&mut HeapAlloc::with_limit(1), &packet, 9216).is_none());
    }
}

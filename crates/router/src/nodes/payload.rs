//! Checksums over packets of several segments.

use linerate_pipeline::Packet;
use linerate_wire::checksum::Sum;

/// Adds `len` bytes from `offset` on to a sum; fewer where the packet ends before.
pub(super) fn sum<P: Packet>(packet: &P, mut sum: Sum, offset: usize, len: usize) -> Sum {
    let (mut skip, mut left) = (offset, len);
    for i in 0..packet.segments() {
        let Some(segment) = packet.segment(i) else { break };
        let Some(bytes) = segment.get(skip..) else {
            skip -= segment.len();
            continue;
        };
        let bytes = bytes.get(..left).unwrap_or(bytes);
        sum = sum.add(bytes);
        (skip, left) = (0, left - bytes.len());
        if left == 0 {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::HeapPacket;

    use super::*;

    #[test]
    fn any_cut_gives_the_sum_of_the_whole() {
        let data: Vec<u8> = (0..=255).cycle().take(1001).collect();
        for (offset, len) in [(0, 1001), (3, 500), (7, 994), (500, 900), (1001, 5)] {
            let wanted = Sum::new().add(&data[offset..(offset + len).min(1001)]);
            for (a, b) in [(1, 2), (3, 3), (7, 504), (333, 666), (0, 1001)] {
                let p = HeapPacket::with_segments(&[&data[..a], &data[a..b], &data[b..]]);
                assert_eq!(
                    sum(&p, Sum::new(), offset, len).checksum(),
                    wanted.checksum(),
                    "{offset} {a} {b}"
                );
            }
        }
    }
}

//! The whole graph as a fuzz target.

use linerate_pipeline::HeapPacket;

use crate::testbed::{PORTS, Testbed};

/// Feeds arbitrary frames to the testbed's router and lets its timers run: nothing may panic, and every packet must be
/// accounted for.
///
/// `data` is a sequence of packets: one byte for the port, one for the number of segments, two (little-endian) for the
/// length, then the bytes; a length beyond the data takes what is left. Port 0xff lets time pass instead (length in
/// milliseconds) and resolves a neighbour every other time.
pub fn graph(data: &[u8]) {
    let Ok(mut bed) = Testbed::new() else { return };
    let mut rest = data;
    let mut frames = Vec::new();
    let mut known = false;
    while let Some((&[port, cuts, low, high], more)) = rest.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([low, high]));
        if port == 0xff {
            feed(&mut bed, &mut frames);
            let mac = known.then_some([2, 0, 0, 0, 0, 0x77]);
            known = !known;
            let _ = bed.resolved("100.65.0.0/16", 1, [10, 0, 1, 77].into(), mac);
            bed.tick(len as u64 * 1_000_000);
            rest = more;
            continue;
        }
        let (frame, more) = more.split_at(len.min(more.len()));
        let pieces: Vec<&[u8]> = frame.chunks((frame.len() / usize::from(cuts % 8 + 1)).max(1)).collect();
        frames.push((u16::from(port) % PORTS, HeapPacket::with_segments(&pieces)));
        rest = more;
    }
    feed(&mut bed, &mut frames);
    bed.tick(1);
    bed.drops();
    bed.stop();
    bed.drops();
    assert_eq!(bed.held(), 0, "packets were left behind");
}

/// Hands over what has been collected, port by port; [`Testbed::drops`] checks that every port balances.
fn feed(bed: &mut Testbed, frames: &mut Vec<(u16, HeapPacket)>) {
    for port in 0..PORTS {
        let of_port = frames.iter().filter(|f| f.0 == port).map(|f| f.1.clone()).collect::<Vec<_>>();
        bed.receive(port, of_port);
    }
    frames.clear();
    bed.drops();
}

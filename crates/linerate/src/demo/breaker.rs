//! A router that is wrong on purpose, to show that the demo notices: faults put on what it sends.

use clap::ValueEnum;
use linerate_pipeline::io::RxQueue;
use linerate_pipeline::{Batch, Packet};
use linerate_tester::table::Routes;

/// What to do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Break {
    /// One route in a hundred leads to another next hop than the table says.
    NextHop,
    /// Some IPv4 header checksums do not fit.
    Checksum,
    /// Some packets have their TTL decremented twice.
    Ttl,
    /// A bit of some payloads is flipped.
    Payload,
    /// Some packets are dropped without a word.
    Drop,
}

/// One packet in so many is harmed.
const EVERY: u32 = 1000;

/// Bytes of an Ethernet header.
const ETH: usize = 14;

impl Break {
    /// The table that the router gets in place of the right one.
    pub(crate) fn table<A: Copy>(self, routes: &Routes<A>, next_hops: u32) -> Routes<A> {
        let wrong = |n: u32| if n < next_hops { n + 1 } else { 1 };
        let change = |(i, (p, n)): (usize, &(_, u32))| if i % 100 == 0 { (*p, wrong(*n)) } else { (*p, *n) };
        match self {
            Break::NextHop => routes.iter().enumerate().map(change).collect(),
            _ => routes.clone(),
        }
    }
}

/// A queue whose packets are harmed on their way out of the router.
pub(crate) struct Breaker<Q> {
    queue: Q,
    what: Option<Break>,
    count: u32,
}

impl<Q> Breaker<Q> {
    /// Harms packets of `queue`; with `None` it leaves all of them alone.
    pub(crate) fn new(queue: Q, what: Option<Break>) -> Self {
        Breaker { queue, what: what.filter(|w| *w != Break::NextHop), count: 0 }
    }
}

impl<P: Packet, Q: RxQueue<P>> RxQueue<P> for Breaker<Q> {
    #[inline]
    fn rx(&mut self, batch: &mut Batch<P>) -> usize {
        let n = self.queue.rx(batch);
        match self.what {
            Some(what) if n > 0 => self.harm(what, batch),
            _ => n,
        }
    }
}

impl<Q> Breaker<Q> {
    #[cold]
    fn harm<P: Packet>(&mut self, what: Break, batch: &mut Batch<P>) -> usize {
        let count = &mut self.count;
        batch.retain(|packet| {
            *count += 1;
            if !count.is_multiple_of(EVERY) {
                return true;
            }
            let head = packet.head_mut();
            let ip4 = head.get(12..ETH) == Some(&[0x08, 0x00]);
            match what {
                Break::Drop => return false,
                // IPv6 has no header checksum: its UDP checksum is harmed instead.
                Break::Checksum => flip(head, if ip4 { ETH + 11 } else { ETH + 40 + 7 }),
                Break::Ttl => {
                    if let Some(ttl) = head.get_mut(if ip4 { ETH + 8 } else { ETH + 7 }) {
                        *ttl = ttl.wrapping_sub(1);
                    }
                }
                Break::Payload => {
                    let last = packet.segments() - 1;
                    if let Some(b) = packet.segment_mut(last).and_then(<[u8]>::last_mut) {
                        *b ^= 1;
                    }
                }
                Break::NextHop => {}
            }
            true
        });
        batch.len()
    }
}

fn flip(bytes: &mut [u8], at: usize) {
    if let Some(b) = bytes.get_mut(at) {
        *b ^= 1;
    }
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::HeapPacket;
    use linerate_tables::prefix::Prefix;

    use super::*;

    struct Source(HeapPacket);

    impl RxQueue<HeapPacket> for Source {
        fn rx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
            while !batch.is_full() {
                batch.push(self.0.clone());
            }
            batch.len()
        }
    }

    #[test]
    fn one_packet_in_a_thousand_is_harmed_where_it_should_be() {
        let mut bytes = vec![0; 100];
        bytes[12] = 8;
        bytes[22] = 63;
        for (what, place) in [(Break::Checksum, 25), (Break::Ttl, 22), (Break::Payload, 99)] {
            let mut b = Breaker::new(Source(HeapPacket::new(&bytes)), Some(what));
            let (mut total, mut harmed) = (0, 0);
            while total < 10_000 {
                let mut batch = Batch::new();
                total += b.rx(&mut batch);
                for p in batch.iter().filter(|p| p.bytes() != bytes) {
                    assert_ne!(p.bytes()[place], bytes[place]);
                    harmed += 1;
                }
            }
            assert_eq!(harmed, 10, "{what:?}");
        }
    }

    #[test]
    fn dropped_packets_are_missing_and_a_wrong_table_differs_in_one_route_of_a_hundred() {
        let mut b = Breaker::new(Source(HeapPacket::new(&[0; 60])), Some(Break::Drop));
        let got: usize = (0..100).map(|_| b.rx(&mut Batch::new())).sum();
        assert_eq!(got, 6400 - 6);
        let routes: Routes<u32> = (0..1000).map(|i| (Prefix::new(i << 8, 24).unwrap(), 1 + i % 4)).collect();
        let wrong = Break::NextHop.table(&routes, 4);
        assert_eq!(routes.iter().zip(&wrong).filter(|(a, b)| a != b).count(), 10);
        assert!(wrong.iter().all(|r| (1..=4).contains(&r.1)));
        assert_eq!(Break::Drop.table(&routes, 4), routes);
    }
}

//! Replication with DPDK's buffers: the payload is there once, and every buffer comes back, also where rings are full and
//! the pool is empty.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use linerate_dpdk::{Eal, EalConfig, Mbuf, Memory, Pool, PoolConfig, Port, PortConfig, RxQueue, Started};
use linerate_engine::graphs::router::{RouterGraph, RouterParts, graph};
use linerate_pipeline::io::RxQueue as _;
use linerate_pipeline::{Batch, Cx, DropReason, Interface, Packet, PacketAlloc, TxBuffers, WorkerCounters};
use linerate_router::naive::NaiveFib;
use linerate_router::neighbor::NeighborOptions;
use linerate_router::{Mroute, MrouteKey, MrouteOutput, Router, RouterConfig};
use linerate_tables::qsbr::Domain;

/// Outputs of the stream: interfaces 1 to 8, VLANs on ports 1 and 2.
const OUTPUTS: u16 = 8;

/// Frames that a ring of the testbed holds.
const RING: usize = 255;

struct Bed {
    eal: &'static Eal,
    pool: &'static Pool,
    built: RouterGraph<Mbuf>,
    tx: TxBuffers<Mbuf>,
    counters: Arc<WorkerCounters>,
    /// The far ends of ports 1 and 2.
    far: Vec<RxQueue>,
    _ports: Vec<Port<Started>>,
}

impl Bed {
    fn new(buffers: u32) -> Self {
        let eal =
            Eal::init(&EalConfig { memory: Memory::NoHuge { mb: 256 }, ..EalConfig::default() }).unwrap();
        let config = PoolConfig { name: "p".into(), size: buffers, data_room: 2048, socket: None };
        let pool = Pool::create(eal, &config).unwrap();
        let (fib4, fib6) = (NaiveFib::<u32>::default(), NaiveFib::<u128>::default());
        let mut router = Router::new(Domain::new(), fib4, fib6, NeighborOptions::default()).unwrap();
        let interface = |i: u16| {
            let port = if i == 0 { 0 } else { 1 + i % 2 };
            let vlan = (i > 0).then_some(100 + i);
            (
                i,
                Interface {
                    vlan,
                    ..Interface::new(&format!("i{i}"), port, [2, 0, 0, 0, 0, port as u8], 9216, &[])
                },
            )
        };
        let interfaces = (0..=OUTPUTS).map(interface).collect();
        router.apply(0, RouterConfig { interfaces, ..RouterConfig::default() }).unwrap();
        let outputs = (1..=OUTPUTS).map(|interface| MrouteOutput { interface, threshold: 0 }).collect();
        let key = MrouteKey { vrf: 0, group: "239.1.1.1".parse().unwrap(), source: None };
        router.set_static_mroutes(0, vec![(key, Mroute { input: 0, outputs, to_host: false })]).unwrap();
        let parts = RouterParts { plane: router.plane(), seed: 1, icmp_errors_per_second: 100, punt: None };
        let built = graph::<Mbuf, _, _>(&parts).unwrap();
        let (mut tx, mut far, mut ports) = (TxBuffers::new(), Vec::new(), Vec::new());
        for port in 1..=2 {
            let name = format!("m{port}");
            let (a, b) =
                Port::ring_pair(eal, &name, RING as u32 + 1, 1, &PortConfig::default(), pool).unwrap();
            let ((a, _, near), (b, rx, _)) = (a.start().unwrap(), b.start().unwrap());
            tx.attach(port, Box::new(near.into_iter().next().unwrap()));
            far.extend(rx);
            ports.extend([a, b]);
        }
        Bed { eal, pool, built, tx, counters: WorkerCounters::new(), far, _ports: ports }
    }

    /// A packet of the stream, of as many buffers as it takes.
    fn packet(&self, len: usize) -> Mbuf {
        let l3 = (20 + len) as u16;
        let mut bytes = vec![1, 0, 0x5e, 1, 1, 1, 2, 0, 0, 0, 9, 9, 8, 0, 0x45, 0];
        bytes.extend(l3.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 239, 1, 1, 1]);
        let sum: u32 = bytes[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        bytes[24..26].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
        bytes.extend((0..len).map(|i| (i * 3) as u8));
        let mut whole: Option<Mbuf> = None;
        for part in bytes.chunks(2048) {
            let mut segment = self.pool.alloc().unwrap();
            segment.append(part.len()).unwrap().copy_from_slice(part);
            match &mut whole {
                None => whole = Some(segment),
                Some(first) => first.chain(segment).unwrap(),
            }
        }
        whole.unwrap()
    }

    fn run(&mut self, packets: Batch<Mbuf>) {
        self.counters.port(0).received.add(packets.len() as u64);
        let (counters, mut alloc) = (self.counters.clone(), self.pool);
        let alloc: &mut dyn PacketAlloc<Mbuf> = &mut alloc;
        let mut cx = Cx { now: 1, cycles: || 0, counters: &counters, alloc, tx: &mut self.tx };
        self.built.graph.run(&mut cx, &mut Box::new(packets));
        cx.tx.flush(&counters);
        assert_eq!(counters.port(0).imbalance(), 0, "{:?}", counters.port(0));
    }

    /// What has come out at the far ends.
    fn received(&mut self) -> Vec<Mbuf> {
        let mut all = Vec::new();
        for rx in &mut self.far {
            let mut batch = Batch::new();
            while rx.rx(&mut batch) > 0 {
                all.append(&mut batch.drain(..).collect());
            }
        }
        all
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.counters.drops(reason)
    }

    fn end(self) {
        let Bed { eal, pool, built, tx, far, _ports, .. } = self;
        drop((built, tx, far, _ports));
        assert_eq!(pool.in_use(), 0);
        eal.cleanup().unwrap();
    }
}

#[test]
fn payload_is_there_once_and_every_buffer_comes_back() {
    let mut bed = Bed::new(2047);
    for (len, segments) in [(20, 1), (1400, 1), (9000, 5)] {
        for n in [1usize, 5, 20] {
            let packets = (0..n).map(|_| bed.packet(len)).collect();
            bed.run(packets);
            // A buffer for each header, and those of the payload.
            assert_eq!(bed.pool.in_use() as usize, n * (8 + segments), "{len} bytes, {n} packets");
            let received = bed.received();
            assert_eq!(received.len(), 8 * n);
            for packet in &received {
                let mut bytes = vec![0; packet.len()];
                packet.copy_out(0, &mut bytes);
                assert_eq!(bytes.len(), 18 + 20 + len);
                assert_eq!(
                    (&bytes[..6], &bytes[12..14], bytes[18 + 8]),
                    (&[1, 0, 0x5e, 1, 1, 1][..], &[0x81, 0][..], 63)
                );
                assert!(bytes[38..].iter().enumerate().all(|(i, b)| *b == (i * 3) as u8));
            }
            drop(received);
            assert_eq!(bed.pool.in_use(), 0);
        }
    }
    bed.end();
}

#[test]
fn full_rings_and_an_empty_pool_lose_packets_by_name_and_no_buffer() {
    let mut bed = Bed::new(1023);
    let mut received = 0;
    for round in 0..20u64 {
        // Twenty packets make eighty copies per port: the rings are full in the fourth burst.
        for _ in 0..5 {
            let packets = (0..20).map(|_| bed.packet(100)).collect();
            bed.run(packets);
        }
        assert_eq!(bed.dropped(DropReason::TxFull), (round + 1) * 2 * (400 - RING as u64));
        received += bed.received().len();
        assert_eq!((bed.pool.in_use(), received as u64), (0, (round + 1) * 2 * RING as u64));
    }
    // All buffers but twenty are elsewhere.
    let packets: Batch<Mbuf> = (0..5).map(|_| bed.packet(100)).collect();
    let mut elsewhere: Vec<Mbuf> = std::iter::from_fn(|| bed.pool.alloc()).collect();
    elsewhere.truncate(elsewhere.len() - 22);
    bed.run(packets);
    assert_eq!(bed.dropped(DropReason::PoolExhausted), 20, "four outputs of eight found five buffers each");
    assert_eq!(bed.received().len(), 20);
    drop(elsewhere);
    assert_eq!(bed.pool.in_use(), 0);
    bed.end();
}

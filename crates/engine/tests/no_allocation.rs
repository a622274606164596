//! Workers forward, spread, hand over, move queues and rest without ever allocating: the allocator of this binary
//! ends the process when a worker's thread does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_engine::desired::IdleSpec;
use linerate_engine::graphs;
use linerate_engine::workers::{RxSlot, WorkerSetup, Workers};
use linerate_heap_guard as guard;
use linerate_pipeline::heap::HeapAlloc;
use linerate_pipeline::io::{RxQueue, TxQueue};
use linerate_pipeline::{Batch, HeapPacket};

#[global_allocator]
static HEAP: guard::HeapGuard = guard::HeapGuard;

/// Packets go round in a circle of rings: what a worker sends is received again, so that no packet is made or freed
/// while it runs.
struct Receive(rtrb::Consumer<HeapPacket>);
struct Send(rtrb::Producer<HeapPacket>, Arc<AtomicU64>);

impl RxQueue<HeapPacket> for Receive {
    fn rx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
        // Armed by the first poll: from then on the worker is in its loop.
        guard::arm();
        let n = self.0.slots().min(batch.remaining_capacity());
        batch.extend(self.0.read_chunk(n).unwrap());
        n
    }
}

impl TxQueue<HeapPacket> for Send {
    fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
        let n = self.0.slots().min(batch.len());
        self.0.write_chunk_uninit(n).unwrap().fill_from_iter(batch.drain(..n));
        self.1.fetch_add(n as u64, Ordering::Relaxed);
        n
    }
}

struct Disarm;

impl Drop for Disarm {
    fn drop(&mut self) {
        guard::disarm();
    }
}

#[test]
fn a_running_worker_never_allocates() {
    let sent = Arc::new(AtomicU64::new(0));
    let mut common = common::common(1024);
    common.on_thread = Arc::new(|_| Ok(Box::new(Disarm) as Box<dyn Any>));
    let (mut forward, receive) = rtrb::RingBuffer::new(1024);
    let (back, other) = rtrb::RingBuffer::new(1024);
    for i in 0..500 {
        forward.push(common::frame(i % 50, 0)).unwrap();
    }
    let slot = |queue, ring| RxSlot {
        port: 0,
        queue,
        device: Box::new(Receive(ring)),
        spread: vec![0, 1].into(),
        counters: Arc::default(),
    };
    let mut rx = vec![vec![slot(0, receive)], vec![slot(1, other)]].into_iter();
    let mut tx = vec![Some(back), None].into_iter();
    let setup = |_| WorkerSetup {
        cpu: None,
        idle: IdleSpec::Sleep { max_microseconds: 50 },
        graph: graphs::io::graph(&[1, 0]).unwrap(),
        alloc: Box::new(HeapAlloc::with_limit(0)),
        on_tick: None,
        rx: rx.next().unwrap(),
        tx: tx.next().unwrap().into_iter().map(|t| (1, Box::new(Send(t, sent.clone())) as _)).collect(),
    };
    let workers = Workers::start((0..2).map(setup).collect(), &common).unwrap();
    // Queue 1 receives what worker 0 sends, and gives it back by worker 0's transmit queue: it fills queue 1 again.
    common::wait_for("forwarding", || sent.load(Ordering::Relaxed) > 100_000);
    for i in 0..200 {
        workers.move_queue(0, i % 2, usize::from(i / 2 % 2)).unwrap();
    }
    workers.trace(3, None).unwrap();
    workers.set_port_up(1, true).unwrap();
    let before = sent.load(Ordering::Relaxed);
    common::wait_for("forwarding after the moves", || sent.load(Ordering::Relaxed) > before + 100_000);
    workers.stop().unwrap();
    assert_eq!(workers.imbalance(), []);
}

/// The complete router on one worker: IPv4 and IPv6 packets by a table with both.
#[test]
fn a_routing_worker_never_allocates() {
    use linerate_engine::graphs::router::{RouterParts, graph};
    use linerate_pipeline::Interface;
    use linerate_router::neighbor::NeighborOptions;
    use linerate_router::{RouteAction, Router, RouterConfig, StaticNeighbor};
    use linerate_tables::fib::{ip4::Ip4Fib, ip6::Ip6Fib};

    let mut common = common::common(1024);
    common.on_thread = Arc::new(|_| Ok(Box::new(Disarm) as Box<dyn Any>));
    let domain = common.domain.clone();
    let (fib4, fib6) = (Ip4Fib::new(&domain).unwrap(), Ip6Fib::new(&domain).unwrap());
    let mut router = Router::new(domain, fib4, fib6, NeighborOptions::default()).unwrap();
    let interface = |n: u16| {
        let net = |text: String| text.parse().unwrap();
        let nets = [net(format!("10.0.{n}.1/24")), net(format!("2001:db8:{n}::1/64"))];
        (n, Interface::new(&format!("if{n}"), n, [2, 0, 0, 0, 0, n as u8], 1500, &nets))
    };
    let gateway = |text: &str| (text.parse().unwrap(), [2, 0, 0, 0, 1, 2]);
    let neighbor = |(address, mac)| StaticNeighbor { interface: 1, address, mac };
    let via = |text: &str| Arc::new(RouteAction::via(text.parse().unwrap()));
    let config = RouterConfig {
        interfaces: vec![interface(0), interface(1)],
        routes: vec![
            ("198.18.0.0/15".parse().unwrap(), via("10.0.1.2")),
            ("2001:db8:100::/40".parse().unwrap(), via("2001:db8:1::2")),
        ],
        neighbors: vec![neighbor(gateway("10.0.1.2")), neighbor(gateway("2001:db8:1::2"))],
        vrfs: Vec::new(),
    };
    router.apply(0, config).unwrap();
    let parts = RouterParts { plane: router.plane(), seed: 1, icmp_errors_per_second: 100, punt: None };
    let built = graph::<HeapPacket, _, _>(&parts).unwrap();
    let (mut feed, receive) = rtrb::RingBuffer::new(1024);
    let (back, mut out) = rtrb::RingBuffer::new(1024);
    let sent = Arc::new(AtomicU64::new(0));
    let setup = WorkerSetup {
        cpu: None,
        idle: IdleSpec::Sleep { max_microseconds: 50 },
        graph: built.graph,
        alloc: Box::new(HeapAlloc::with_limit(0)),
        on_tick: Some(built.on_tick),
        rx: vec![RxSlot {
            port: 0,
            queue: 0,
            device: Box::new(Receive(receive)),
            spread: [].into(),
            counters: Arc::default(),
        }],
        tx: vec![(1, Box::new(Send(back, sent.clone())) as _)],
    };
    let workers = Workers::start(vec![setup], &common).unwrap();
    let packet = |i: u32| if i.is_multiple_of(3) { ip6_frame(i) } else { ip4_frame(i) }.from_port(0);
    let mut given = 0;
    let start = std::time::Instant::now();
    while sent.load(Ordering::Relaxed) < 50_000 {
        while u64::from(given) < sent.load(Ordering::Relaxed) + 500 && feed.push(packet(given)).is_ok() {
            given += 1;
        }
        while out.pop().is_ok() {}
        if given % 1000 == 0 {
            let prefix = "198.18.3.0/24".parse().unwrap();
            router.insert(1, 0, linerate_router::Source::Static, prefix, &via("10.0.1.2")).unwrap();
            router.withdraw(2, 0, linerate_router::Source::Static, prefix).unwrap();
        }
        assert!(start.elapsed().as_secs() < 30, "{:?}", workers.views()[0].counters.port(0));
    }
    while out.pop().is_ok() {}
    workers.stop().unwrap();
    assert_eq!(workers.imbalance(), []);
}

fn ethernet(ethertype: [u8; 2], rest: &[u8]) -> HeapPacket {
    HeapPacket::new(&[&[2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 9][..], &ethertype, rest].concat())
}

fn ip4_frame(i: u32) -> HeapPacket {
    let mut p = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9];
    p.extend((0xc612_0000 | (i.wrapping_mul(2_654_435_761) >> 15)).to_be_bytes());
    let sum: u32 = p.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    p[10..12].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
    p.resize(46, 0);
    ethernet([8, 0], &p)
}

fn ip6_frame(i: u32) -> HeapPacket {
    let mut p = vec![0x60, 0, 0, 0, 0, 8, 17, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    p.extend([0x20, 1, 0xd, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0]);
    p.extend(i.to_be_bytes());
    p.extend([0x13, 0x88, 0x17, 0x70, 0, 8, 0, 1]);
    ethernet([0x86, 0xdd], &p)
}

/// The guard guards: without this the test above could pass by accident.
#[test]
fn an_armed_thread_that_allocates_ends_the_process() {
    if std::env::var_os("ALLOCATE_WHEN_ARMED").is_some() {
        guard::arm();
        std::hint::black_box(Vec::<u8>::with_capacity(std::hint::black_box(77)));
        guard::disarm();
        return;
    }
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new(me)
        .args(["--exact", "an_armed_thread_that_allocates_ends_the_process", "--nocapture"])
        .env("ALLOCATE_WHEN_ARMED", "1")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("77 bytes allocated on a thread that must not allocate"), "{text}");
}

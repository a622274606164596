//! Workers forward, spread, hand over, move queues and rest without ever allocating: the allocator of this binary
//! ends the process when a worker's thread does.

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

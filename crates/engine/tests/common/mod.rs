//! In-memory devices and a checker for order, loss and duplication.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use linerate_engine::clock::Clock;
use linerate_engine::desired::IdleSpec;
use linerate_engine::graphs;
use linerate_engine::workers::{Common, RxSlot, WorkerSetup, Workers};
use linerate_pipeline::heap::HeapAlloc;
use linerate_pipeline::io::{RxQueue, TxQueue};
use linerate_pipeline::{Batch, Graph, HeapPacket, Packet, PortId};
use linerate_tables::qsbr::Domain;

/// A receive queue that a test fills.
#[derive(Clone, Default)]
pub struct Source {
    pub port: PortId,
    queue: Arc<Mutex<VecDeque<HeapPacket>>>,
}

impl Source {
    pub fn new(port: PortId) -> Self {
        Source { port, ..Source::default() }
    }

    pub fn put(&self, packets: impl IntoIterator<Item = HeapPacket>) {
        self.queue.lock().unwrap().extend(packets.into_iter().map(|p| p.from_port(self.port)));
    }

    pub fn len(&self) -> usize {
        self.queue.lock().unwrap().len()
    }
}

impl RxQueue<HeapPacket> for Source {
    fn rx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
        let mut queue = self.queue.lock().unwrap();
        let n = queue.len().min(batch.remaining_capacity());
        batch.extend(queue.drain(..n));
        n
    }
}

/// A device's transmit side: what all its queues send, in order.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<HeapPacket>>>);

impl Sink {
    pub fn take(&self) -> Vec<HeapPacket> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl TxQueue<HeapPacket> for Sink {
    fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
        let n = batch.len();
        self.0.lock().unwrap().extend(batch.drain(..));
        n
    }
}

/// A UDP/IPv4 frame of a flow, with a sequence number in its payload.
pub fn frame(flow: u32, sequence: u32) -> HeapPacket {
    let mut f = vec![0u8; 60];
    f[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    f[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    f[12..14].copy_from_slice(&[8, 0]);
    f[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    f[26..30].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
    f[30..34].copy_from_slice(&[198, 18, 0, 1]);
    f[34..38].copy_from_slice(&[0x13, 0x88, 0x17, 0x70]);
    f[42..46].copy_from_slice(&flow.to_be_bytes());
    f[46..50].copy_from_slice(&sequence.to_be_bytes());
    HeapPacket::new(&f)
}

/// Flow and sequence number of a frame.
pub fn label(p: &HeapPacket) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(p.head()[at..at + 4].try_into().unwrap());
    (word(42), word(46))
}

/// Checks that every flow arrives complete and in order.
#[derive(Default)]
pub struct Checker {
    next: HashMap<u32, u32>,
    pub seen: u64,
}

impl Checker {
    pub fn check(&mut self, packets: Vec<HeapPacket>) {
        for p in packets {
            let (flow, sequence) = label(&p);
            let next = self.next.entry(flow).or_default();
            assert_eq!(sequence, *next, "flow {flow}: lost, doubled or out of order");
            *next += 1;
            self.seen += 1;
        }
    }
}

pub fn common(ring_capacity: usize) -> Common {
    Common {
        clock: Clock::system(),
        domain: Domain::new(),
        ring_capacity,
        shared_cpu: false,
        host_rings: false,
        on_thread: Arc::new(|_| Ok(Box::new(()))),
    }
}

/// Two ports joined by the raw graph: frames put into port 0's queues leave by port 1's sink.
pub struct Bench {
    pub sources: Vec<Source>,
    pub sink: Sink,
    pub workers: Workers<HeapPacket>,
}

pub struct Shape {
    pub workers: usize,
    pub queues: u16,
    /// Workers that have a transmit queue of their own.
    pub senders: usize,
    pub spread: Vec<usize>,
    pub ring: usize,
    pub idle: IdleSpec,
}

impl Shape {
    pub fn start(&self) -> Bench {
        self.start_with(|_| graphs::io::graph(&[1, 0]).unwrap(), &common(self.ring))
    }

    pub fn start_with(&self, graph: impl Fn(usize) -> Graph<HeapPacket>, common: &Common) -> Bench {
        let sources: Vec<Source> = (0..self.queues).map(|_| Source::new(0)).collect();
        let sink = Sink::default();
        let setup = |w: usize| WorkerSetup {
            cpu: None,
            idle: self.idle,
            graph: graph(w),
            alloc: Box::new(HeapAlloc::default()),
            on_tick: None,
            rx: (0..self.queues)
                .filter(|q| usize::from(*q) % self.workers == w)
                .map(|q| RxSlot {
                    port: 0,
                    queue: q,
                    device: Box::new(sources[usize::from(q)].clone()),
                    spread: self.spread.clone().into(),
                    counters: Arc::default(),
                })
                .collect(),
            tx: if w < self.senders { vec![(1, Box::new(sink.clone()) as _)] } else { Vec::new() },
        };
        let workers = Workers::start((0..self.workers).map(setup).collect(), common).unwrap();
        Bench { sources, sink, workers }
    }
}

/// Waits until a condition holds; fails the test after ten seconds.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed().as_secs() < 10, "{what} did not happen");
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// A small random generator: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

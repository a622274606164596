//! The tester's threads on DPDK's rings: rates, loss, duplicates, order, stalls, all known in advance.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use linerate_dpdk::{
    Eal, EalConfig, Mbuf, Pool, PoolConfig, Port, PortConfig, register_worker_thread, tsc, tsc_hz,
};
use linerate_engine::clock::Clock;
use linerate_engine::tester::{Job, Outcome, Plan, Tester, TesterPort, TesterWorker};
use linerate_pipeline::io::{RxQueue, TxQueue};
use linerate_pipeline::{Batch, Packet, PacketAlloc};
use linerate_tester::pace::{Pace, Pacer, Spread};
use linerate_tester::receive::Arrival;
use linerate_tester::source::{FrameReader, FrameSource, Responder};

/// Frames of 60 bytes: mark, stream, number, time.
struct Plain {
    stream: u32,
    next: u32,
}

const MARK: &[u8; 4] = b"mark";

impl FrameSource<Mbuf> for Plain {
    fn fill(&mut self, packets: &mut [Mbuf], now: u64) -> usize {
        for packet in packets.iter_mut() {
            let bytes = packet.append(60).unwrap();
            bytes[..4].copy_from_slice(MARK);
            bytes[4..8].copy_from_slice(&self.stream.to_be_bytes());
            bytes[8..12].copy_from_slice(&self.next.to_be_bytes());
            bytes[12..20].copy_from_slice(&now.to_be_bytes());
            self.next = self.next.wrapping_add(1);
        }
        packets.len()
    }
}

struct Marked;

impl FrameReader<Mbuf> for Marked {
    fn read(&self, packet: &Mbuf, _: u64) -> Option<Arrival> {
        let head = packet.head();
        let word = |at: usize| Some(u32::from_be_bytes(*head.get(at..)?.first_chunk()?));
        let sent_at = u64::from_be_bytes(*head.get(12..)?.first_chunk()?);
        head.starts_with(MARK).then_some(())?;
        Some(Arrival { stream: word(4)?, sequence: word(8)?, sent_at })
    }
}

struct FromPool(&'static Pool);

impl PacketAlloc<Mbuf> for FromPool {
    fn alloc(&mut self) -> Option<Mbuf> {
        self.0.alloc()
    }
}

/// What a wire does to every n-th packet; 0: nothing.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: u64,
    swap: u64,
}

/// A queue that misbehaves as told.
struct Faulty<Q> {
    queue: Q,
    faults: Faults,
    seen: u64,
}

impl<Q: TxQueue<Mbuf>> TxQueue<Mbuf> for Faulty<Q> {
    fn tx(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        let every = |n: u64, seen: u64| n > 0 && seen.is_multiple_of(n);
        let all = batch.len();
        if self.faults.lose > 0 {
            batch.retain(|_| {
                self.seen += 1;
                !every(self.faults.lose, self.seen)
            });
        }
        if self.faults.swap > 0 && batch.len() > 1 {
            self.seen += 1;
            if every(self.faults.swap, self.seen) {
                batch.swap(0, 1);
            }
        }
        while !batch.is_empty() {
            self.queue.tx(batch);
        }
        all
    }
}

/// Answers every frame that begins with "ask".
struct Echo(Arc<AtomicU64>);

impl Responder<Mbuf> for Echo {
    fn receive(&mut self, packet: &Mbuf, _: u64, answers: &mut Vec<Vec<u8>>) -> bool {
        let asked = packet.head().starts_with(b"ask");
        if asked {
            self.0.fetch_add(1, Ordering::Relaxed);
            answers.push(b"answer".to_vec());
        }
        asked
    }

    fn tick(&mut self, _: u64, _: &mut Vec<Vec<u8>>) {}
}

struct Bench {
    tester: Tester<Mbuf>,
    /// What the devices count, and they stay open as long as these.
    ports: Vec<Port<linerate_dpdk::Started>>,
    pool: &'static Pool,
    eal: &'static Eal,
}

/// Two ports joined by a ring, both ends the tester's, on one thread.
fn bench(faults: Faults, asked: &Arc<AtomicU64>) -> Bench {
    let eal = Eal::init(&EalConfig::default()).unwrap();
    let pool = Pool::create(eal, &PoolConfig { name: "p".into(), size: 8191, data_room: 2048, socket: None })
        .unwrap();
    let (a, b) = Port::ring_pair(eal, "wire", 4096, 1, &PortConfig::default(), pool).unwrap();
    let (mut ports, mut ends) = (Vec::new(), Vec::new());
    for port in [a, b] {
        let (port, mut rx, mut tx) = port.start().unwrap();
        ports.push(port);
        let faults = if ends.is_empty() { faults } else { Faults::default() };
        ends.push(TesterPort {
            rx: vec![(0, Box::new(rx.remove(0)) as Box<dyn RxQueue<Mbuf>>)],
            tx: vec![(
                0,
                Box::new(Faulty { queue: tx.remove(0), faults, seen: 0 }) as Box<dyn TxQueue<Mbuf>>,
            )],
            responder: Some(Box::new(Echo(asked.clone()))),
        });
    }
    let clock = Clock::new(tsc, tsc_hz());
    let workers = vec![TesterWorker { cpu: None, alloc: Box::new(FromPool(pool)) }];
    let on_thread = Arc::new(|| match register_worker_thread() {
        Ok(guard) => Ok(Box::new(guard) as Box<dyn Any>),
        Err(e) => Err(e.to_string()),
    });
    let tester = Tester::start(clock, ends, workers, true, &(on_thread as _)).unwrap();
    Bench { tester, ports, pool, eal }
}

impl Bench {
    /// Streams of so many frames per second from port 0, for so long.
    fn run(&mut self, rates: &[f64], time: Duration) -> Outcome {
        let clock = self.tester.clock();
        let start = self.tester.begin_at();
        let end = start + clock.cycles_of(time.as_nanos() as u64);
        let pace = |rate| Pace { rate, spread: Spread::Even, hz: clock.hz(), catch_up: 1.0 };
        let jobs = rates.iter().enumerate().map(|(i, rate)| {
            let source = Box::new(Plain { stream: i as u32, next: 0 });
            (0, 0, Job { stream: i, source, pacer: Pacer::new(&pace(*rate), start, end).unwrap() })
        });
        let plan = Plan {
            streams: rates.len(),
            start,
            end,
            jobs: jobs.collect(),
            reader: Arc::new(Marked),
            own_delay: 0,
            drain: Duration::from_millis(100),
        };
        self.tester.run(plan, |_| true).unwrap()
    }

    fn end(self) {
        drop(self.tester);
        drop(self.ports);
        assert_eq!(self.pool.in_use(), 0);
        self.eal.cleanup().unwrap();
    }
}

#[test]
fn streams_arrive_whole_each_at_its_rate() {
    let asked = Arc::default();
    let mut bench = bench(Faults::default(), &asked);
    let rates = [100_000.0, 1234.5, 7.0];
    let outcome = bench.run(&rates, Duration::from_secs(1));
    for (i, rate) in rates.iter().enumerate() {
        let (sent, got) = (&outcome.sent[i], &outcome.received[1].streams[i]);
        assert_eq!(sent.intended, rate.ceil() as u64, "{sent:?}");
        assert_eq!((sent.missed, sent.refused, sent.no_buffer, sent.unfit), (0, 0, 0, 0), "{sent:?}");
        assert_eq!((sent.frames, sent.bytes), (sent.intended, sent.intended * 60));
        assert_eq!((got.frames, got.duplicates, got.reordered, got.bytes), (sent.frames, 0, 0, sent.bytes));
        if *rate < 10_000.0 {
            assert_eq!(sent.largest_burst, 1, "{rate}");
        }
    }
    assert!(outcome.received[0].streams.iter().all(|s| s.frames == 0) && !outcome.interrupted);
    let seconds: (u64, u64) = outcome.seconds.iter().fold((0, 0), |a, s| (a.0 + s.sent, a.1 + s.received));
    let all: u64 = outcome.sent.iter().map(|s| s.frames).sum();
    assert_eq!(seconds, (all, all));
    let delay = outcome.received[1].delay(bench.tester.clock().hz()).unwrap();
    assert!(delay.count == all && delay.min < 100_000 && delay.negative == 0, "{delay:?}");
    bench.end();
}

#[test]
fn what_is_lost_or_swapped_on_the_way_is_told_to_the_frame() {
    let asked = Arc::default();
    let mut bench = bench(Faults { lose: 1000, swap: 0 }, &asked);
    let outcome = bench.run(&[100_000.0], Duration::from_millis(500));
    let (sent, got) = (&outcome.sent[0], &outcome.received[1].streams[0]);
    assert_eq!((sent.frames, got.frames, got.reordered, got.duplicates), (50_000, 49_950, 0, 0));
    // A second trial begins with clean books.
    let outcome = bench.run(&[10_000.0], Duration::from_millis(100));
    assert_eq!((outcome.sent[0].frames, outcome.received[1].streams[0].frames), (1000, 999));
    bench.end();
}

#[test]
fn frames_that_overtake_each_other_are_told() {
    let asked = Arc::default();
    let mut bench = bench(Faults { lose: 0, swap: 10 }, &asked);
    let outcome = bench.run(&[1e6], Duration::from_millis(200));
    let got = &outcome.received[1].streams[0];
    assert!(got.reordered > 0 && got.frames == outcome.sent[0].frames, "{got:?}");
    bench.end();
}

#[test]
fn strangers_are_counted_apart_and_stations_answer() {
    let asked: Arc<AtomicU64> = Arc::default();
    let mut bench = bench(Faults::default(), &asked);
    /// A question, then a stranger, in turn.
    struct Others(u64);
    impl FrameSource<Mbuf> for Others {
        fn fill(&mut self, packets: &mut [Mbuf], _: u64) -> usize {
            for packet in packets.iter_mut() {
                self.0 += 1;
                let text = if self.0.is_multiple_of(2) { b"ask" } else { b"???" };
                packet.append(3).unwrap().copy_from_slice(text);
            }
            packets.len()
        }
    }
    let clock = bench.tester.clock();
    let start = bench.tester.begin_at();
    let end = start + clock.hz();
    let pacer =
        Pacer::new(&Pace { rate: 1000.0, spread: Spread::Even, hz: clock.hz(), catch_up: 1.0 }, start, end)
            .unwrap()
            .limited_to(100);
    let plan = Plan {
        streams: 1,
        start,
        end: start + clock.hz() / 5,
        jobs: vec![(0, 0, Job { stream: 0, source: Box::new(Others(0)), pacer })],
        reader: Arc::new(Marked),
        own_delay: 0,
        drain: Duration::from_millis(50),
    };
    let outcome = bench.tester.run(plan, |_| true).unwrap();
    assert_eq!(outcome.sent[0].frames, 100);
    assert_eq!(asked.load(Ordering::Relaxed), 50);
    // At the far end the strangers; back here the answers, which are none of the run's frames either.
    assert_eq!((outcome.received[1].foreign.frames, outcome.received[1].foreign.bytes), (50, 150));
    assert_eq!((outcome.received[0].foreign.frames, outcome.received[0].foreign.bytes), (50, 300));
    bench.end();
}

#[test]
fn a_trial_that_is_ended_early_has_its_books_in_order() {
    let asked = Arc::default();
    let mut bench = bench(Faults::default(), &asked);
    struct Deaf;
    impl FrameReader<Mbuf> for Deaf {
        fn read(&self, _: &Mbuf, _: u64) -> Option<Arrival> {
            None
        }
    }
    let start = bench.tester.begin_at();
    let job = Job {
        stream: 0,
        source: Box::new(Plain { stream: 0, next: 0 }),
        pacer: Pacer::unpaced(start, u64::MAX).limited_to(1000),
    };
    let clock = bench.tester.clock();
    let plan = Plan {
        streams: 1,
        start,
        end: start + clock.hz() / 10,
        jobs: vec![(0, 0, job)],
        reader: Arc::new(Deaf),
        own_delay: 0,
        drain: Duration::from_millis(20),
    };
    let outcome = bench.tester.run(plan, |p| p.sent < 10).unwrap();
    assert!(outcome.interrupted);
    let sent = &outcome.sent[0];
    assert_eq!(sent.intended, sent.frames + sent.missed + sent.refused + sent.no_buffer + sent.unfit);
    assert_eq!(outcome.received[1].foreign.frames, sent.frames);
    bench.end();
}

#[test]
fn a_job_for_a_port_without_a_queue_is_refused() {
    let asked = Arc::default();
    let mut bench = bench(Faults::default(), &asked);
    let start = bench.tester.begin_at();
    let job = Job {
        stream: 3,
        source: Box::new(Plain { stream: 0, next: 0 }),
        pacer: Pacer::unpaced(start, start),
    };
    let plan = Plan {
        streams: 4,
        start,
        end: start,
        jobs: vec![(7, 0, job)],
        reader: Arc::new(Marked),
        own_delay: 0,
        drain: Duration::ZERO,
    };
    let error = bench.tester.run(plan, |_| true).unwrap_err();
    assert_eq!(error.to_string(), "stream 3 leaves by port 7, which has no transmit queue on any worker");
    bench.end();
}

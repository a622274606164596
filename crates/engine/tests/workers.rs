//! Workers over in-memory devices: order, completeness, accounting, idle behaviour, start and stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Bench, Checker, Random, Shape, frame, wait_for};
use linerate_engine::desired::IdleSpec;
use linerate_engine::graphs;
use linerate_engine::workers::{MoveError, Moved, RxSlot, StartError, WorkerSetup, Workers};
use linerate_linux::thread as os;
use linerate_pipeline::heap::HeapAlloc;
use linerate_pipeline::io::RxQueue;
use linerate_pipeline::{Batch, Cx, DropReason, Exits, Graph, GraphBuilder, HeapPacket, Node, exits};

const SLEEPY: IdleSpec = IdleSpec::Sleep { max_microseconds: 50 };
const FLOWS: u32 = 97;

/// Sums over all workers for packets that came in by port 0.
fn totals(b: &Bench) -> (u64, u64, u64, u64, u64) {
    let of = |f: &dyn Fn(&linerate_pipeline::counters::PortCounters) -> u64| {
        b.workers.views().iter().map(|v| f(v.counters.port(0))).sum()
    };
    (
        of(&|c| c.received.get()),
        of(&|c| c.sent.get()),
        of(&|c| c.handed_over.get()),
        of(&|c| c.handed_in.get()),
        of(&|c| c.dropped()),
    )
}

/// Traffic over a shape while `moves` random queue moves happen: every flow complete and in order, books balanced.
fn moves_under_load(shape: &Shape, moves: u32, seed: u64) {
    let bench = shape.start();
    let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let sent = std::thread::scope(|s| {
        let generator = s.spawn(|| {
            let (mut sent, mut sequences) = (0u64, vec![0; FLOWS as usize]);
            while !stop.load(Ordering::Relaxed) {
                // Fewer packets under way than a ring holds: none may be dropped.
                if sent - seen.load(Ordering::Acquire) > 700 {
                    std::thread::yield_now();
                    continue;
                }
                for _ in 0..37 {
                    let flow = (sent % u64::from(FLOWS)) as u32;
                    let source = &bench.sources[flow as usize % bench.sources.len()];
                    source.put([frame(flow, sequences[flow as usize])]);
                    sequences[flow as usize] += 1;
                    sent += 1;
                }
            }
            sent
        });
        let checker = s.spawn(|| {
            let mut checker = Checker::default();
            while !stop.load(Ordering::Relaxed) || checker.seen == 0 {
                checker.check(bench.sink.take());
                seen.store(checker.seen, Ordering::Release);
                std::thread::yield_now();
            }
            checker
        });
        let mut random = Random(seed);
        let (mut moved, start) = (0, Instant::now());
        while moved < moves || seen.load(Ordering::Relaxed) < 2000 {
            let queue = random.below(shape.queues.into()) as u16;
            let to = random.below(shape.workers as u64) as usize;
            let m = bench.workers.move_queue(0, queue, to).unwrap();
            moved += u32::from(m.from != m.to || shape.workers == 1);
            assert!(start.elapsed().as_secs() < 60, "{moved} moves in a minute");
        }
        stop.store(true, Ordering::Relaxed);
        let sent = generator.join().unwrap();
        let mut checker = checker.join().unwrap();
        wait_for("the last packet", || {
            checker.check(bench.sink.take());
            checker.seen == sent
        });
        sent
    });
    bench.workers.stop().unwrap();
    let (received, out, over, r#in, dropped) = totals(&bench);
    assert_eq!((received, out, dropped), (sent, sent, 0));
    assert_eq!(over, r#in);
    assert_eq!(bench.workers.imbalance(), []);
    assert!(sent > 1000, "hardly any load: {sent} packets");
    let by_queue: u64 = bench.workers.places().iter().map(|p| p.counters.packets.get()).sum();
    assert_eq!(by_queue, sent);
}

#[test]
fn a_thousand_queue_moves_between_two_workers() {
    let shape = Shape { workers: 2, queues: 1, senders: 2, spread: vec![], ring: 1024, idle: SLEEPY };
    moves_under_load(&shape, 1000, 1);
}

#[test]
fn a_thousand_queue_moves_with_one_sender_for_three_workers() {
    let shape = Shape { workers: 3, queues: 4, senders: 1, spread: vec![], ring: 1024, idle: SLEEPY };
    moves_under_load(&shape, 1000, 2);
}

#[test]
fn a_thousand_queue_moves_with_flows_spread_over_all_workers() {
    let shape =
        Shape { workers: 4, queues: 3, senders: 2, spread: vec![0, 1, 2, 3], ring: 1024, idle: SLEEPY };
    moves_under_load(&shape, 1000, 3);
}

#[test]
fn a_thousand_queue_moves_with_receivers_that_do_not_process() {
    let shape = Shape {
        workers: 4,
        queues: 2,
        senders: 1,
        spread: vec![1, 2],
        ring: 1024,
        idle: IdleSpec::default(),
    };
    moves_under_load(&shape, 1000, 4);
}

#[test]
fn every_shape_forwards_everything_in_order() {
    for workers in 1..=3 {
        for queues in [1, 2, 5] {
            for (senders, spread) in [(workers, vec![]), (1, (0..workers).collect()), (1, vec![workers - 1])]
            {
                let shape = Shape { workers, queues, senders, spread, ring: 1024, idle: SLEEPY };
                moves_under_load(&shape, 20, 5);
            }
        }
    }
}

#[test]
fn spreading_keeps_a_flow_on_one_worker_and_uses_all() {
    let shape = Shape { workers: 3, queues: 1, senders: 3, spread: vec![0, 1, 2], ring: 1024, idle: SLEEPY };
    let b = shape.start();
    b.sources[0].put((0..900).map(|i| frame(i % 300, i / 300)));
    wait_for("forwarding", || totals(&b).1 == 900);
    let shares: Vec<u64> = b.workers.views().iter().map(|v| v.counters.port(0).sent.get()).collect();
    assert!(shares.iter().all(|s| *s > 200 && s % 3 == 0), "{shares:?}: not by flow, or uneven");
    let mut checker = Checker::default();
    checker.check(b.sink.take());
    assert_eq!(checker.seen, 900);
}

exits! {
    /// Of the gate.
    pub enum GateExit {
        /// Done with.
        Done,
    }
}

/// Holds its worker up while closed.
struct Gate {
    open: Arc<AtomicBool>,
    entered: Arc<AtomicBool>,
}

impl Node<HeapPacket> for Gate {
    type Exit = GateExit;
    fn process(
        &mut self,
        _: &mut Cx<'_, HeapPacket>,
        _: &mut Batch<HeapPacket>,
        out: &mut Exits<'_, HeapPacket, GateExit>,
    ) {
        self.entered.store(true, Ordering::Relaxed);
        while !self.open.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        out.set_all(GateExit::Done);
    }
}

fn gate_graph(open: &Arc<AtomicBool>, entered: &Arc<AtomicBool>) -> Graph<HeapPacket> {
    let mut g = GraphBuilder::new();
    let gate = g.declare("gate");
    g.define(gate, Gate { open: open.clone(), entered: entered.clone() }, |_| DropReason::NoRoute.into());
    g.build().unwrap()
}

#[test]
fn a_full_ring_drops_by_name_and_a_held_up_worker_shows() {
    let shape = Shape { workers: 2, queues: 1, senders: 1, spread: vec![1], ring: 128, idle: SLEEPY };
    let (open, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let b = shape.start_with(|_| gate_graph(&open, &entered), &common::common(128));
    b.sources[0].put([frame(1, 0)]);
    wait_for("worker 1 at the gate", || entered.load(Ordering::Relaxed));
    b.sources[0].put((0..1000).map(|i| frame(2, i)));
    wait_for("receiving", || totals(&b).0 == 1001);
    std::thread::sleep(Duration::from_millis(30));
    let receiver = &b.workers.views()[0].counters;
    wait_for("dropping", || receiver.drops(DropReason::HandoffFull) == 1000 - 128);
    open.store(true, Ordering::Relaxed);
    b.workers.stop().unwrap();
    let (received, sent, over, r#in, dropped) = totals(&b);
    assert_eq!((received, sent, over, r#in, dropped), (1001, 0, 129, 129, 1001));
    assert_eq!(b.workers.imbalance(), []);
    let held_up = |w: usize| {
        let v = &b.workers.views()[w].counters;
        b.workers.clock().nanoseconds(v.longest_loop.get())
    };
    assert!(held_up(1) >= 30_000_000, "{} ns", held_up(1));
}

/// A worker that makes packets in its ticks and is slow about it, without a transmit queue of its own: what it makes while
/// the instance stops is sent by the other, or not made.
#[test]
fn nothing_comes_out_of_a_worker_after_the_one_that_sends_for_it_has_ended() {
    for _ in 0..5 {
        let sink = common::Sink::default();
        let slow = |cx: &mut Cx<'_, HeapPacket>| {
            std::thread::sleep(Duration::from_millis(3));
            let mut packet = HeapPacket::new(&[0; 60]);
            cx.generated(&mut packet);
            cx.tx.send(1, packet, cx.counters);
        };
        let setup = |w: usize| WorkerSetup {
            cpu: None,
            idle: SLEEPY,
            graph: graphs::io::graph(&[1, 0]).unwrap(),
            alloc: Box::new(HeapAlloc::default()),
            on_tick: if w == 1 { Some(Box::new(slow)) } else { None },
            rx: Vec::new(),
            tx: if w == 0 { vec![(1, Box::new(sink.clone()) as _)] } else { Vec::new() },
        };
        let workers = Workers::start(vec![setup(0), setup(1)], &common::common(64)).unwrap();
        let counters = |w: usize| workers.views()[w].counters.port(0);
        wait_for("packets", || counters(0).sent.get() > 2);
        workers.stop().unwrap();
        assert_eq!(counters(1).handed_over.get(), counters(0).handed_in.get());
        assert_eq!(counters(0).sent.get(), sink.take().len() as u64);
        assert_eq!(workers.imbalance(), []);
    }
}

/// A queue that delivers nothing and has lost packets for want of buffers.
struct Losing(u64);

impl RxQueue<HeapPacket> for Losing {
    fn rx(&mut self, _: &mut Batch<HeapPacket>) -> usize {
        0
    }

    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.0)
    }
}

#[test]
fn what_a_queue_lost_is_received_and_dropped_by_name() {
    let setup = WorkerSetup {
        cpu: None,
        idle: SLEEPY,
        graph: graphs::io::graph(&[1, 0]).unwrap(),
        alloc: Box::new(HeapAlloc::default()),
        on_tick: None,
        rx: vec![RxSlot {
            port: 0,
            queue: 0,
            device: Box::new(Losing(5)),
            spread: [].into(),
            counters: Arc::default(),
        }],
        tx: Vec::new(),
    };
    let workers = Workers::start(vec![setup], &common::common(64)).unwrap();
    let counters = &workers.views()[0].counters;
    wait_for("the loss is counted", || counters.drops(DropReason::RxNoCopy) == 5);
    assert_eq!(counters.port(0).received.get(), 5);
    workers.stop().unwrap();
    assert_eq!(workers.imbalance(), []);
}

#[test]
fn idle_workers_use_little_cpu_and_wake_at_once() {
    let shape = Shape {
        workers: 1,
        queues: 1,
        senders: 1,
        spread: vec![],
        ring: 128,
        idle: IdleSpec::Sleep { max_microseconds: 1000 },
    };
    let b = shape.start();
    std::thread::sleep(Duration::from_millis(50));
    let view = &b.workers.views()[0];
    let cpu = || os::cpu_time(std::path::Path::new("/proc"), view.thread).unwrap();
    let (start, before) = (Instant::now(), cpu());
    std::thread::sleep(Duration::from_millis(200));
    let used = (cpu() - before) as f64 / start.elapsed().as_nanos() as f64;
    assert!(used < 0.3, "an idle worker uses {:.0} % of a CPU", used * 100.0);
    let mut waits = Vec::new();
    for i in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        let start = Instant::now();
        b.sources[0].put([frame(1, i)]);
        while b.sink.take().is_empty() {
            std::thread::yield_now();
        }
        waits.push(start.elapsed());
    }
    waits.sort();
    // Others use this machine too: a quarter of the waits shows what the worker itself does.
    assert!(waits[4] < Duration::from_millis(3), "{waits:?}");
    let c = &view.counters;
    let busy = c.busy_cycles.get() as f64 / c.cycles.get() as f64;
    assert!(busy < 0.2, "busy share {busy} of an idle worker");
}

#[test]
fn a_command_wakes_a_sleeper() {
    let shape = Shape {
        workers: 2,
        queues: 1,
        senders: 2,
        spread: vec![],
        ring: 128,
        idle: IdleSpec::Sleep { max_microseconds: 2_000_000 },
    };
    let b = shape.start();
    // Sleeps double from 1 µs, four of each length: after this the worker is in one of half a second or more.
    std::thread::sleep(Duration::from_millis(2500));
    let start = Instant::now();
    b.workers.move_queue(0, 0, 1).unwrap();
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
    let start = Instant::now();
    b.workers.stop().unwrap();
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
}

#[test]
fn the_busy_share_of_a_loaded_worker_is_high() {
    let shape = Shape { workers: 1, queues: 1, senders: 1, spread: vec![], ring: 128, idle: SLEEPY };
    let b = shape.start();
    b.sources[0].put((0..200_000).map(|i| frame(1, i)));
    let c = &b.workers.views()[0].counters;
    let (busy, all) = (c.busy_cycles.get(), c.cycles.get());
    wait_for("forwarding", || totals(&b).1 >= 100_000);
    let (busy, all) = (c.busy_cycles.get() - busy, c.cycles.get() - all);
    assert!(busy as f64 > all as f64 * 0.8, "{busy} of {all} cycles");
    assert!(c.busy_loops.get() >= 100_000 / 64);
}

#[test]
fn moves_that_cannot_be_are_refused_in_a_sentence() {
    let shape = Shape { workers: 2, queues: 1, senders: 2, spread: vec![], ring: 128, idle: SLEEPY };
    let b = shape.start();
    let refused = |port, queue, to| b.workers.move_queue(port, queue, to).unwrap_err().to_string();
    assert_eq!(refused(0, 1, 1), "port 0 has no receive queue 1");
    assert_eq!(refused(3, 0, 1), "port 3 has no receive queue 0");
    assert_eq!(refused(0, 0, 2), "there is no worker 2: workers are counted from 0 to 1");
    assert_eq!(b.workers.move_queue(0, 0, 0), Ok(Moved { from: 0, to: 0, gap: 0 }));
    assert_eq!(b.workers.stop().unwrap().iter().map(|r| r.rx.len()).sum::<usize>(), 1);
    assert!(b.workers.stop().unwrap().is_empty());
    assert_eq!(b.workers.move_queue(0, 0, 1), Err(MoveError::Stopped));
}

#[test]
fn a_port_that_goes_down_drops_by_name() {
    let shape = Shape { workers: 2, queues: 2, senders: 1, spread: vec![], ring: 128, idle: SLEEPY };
    let b = shape.start();
    b.workers.set_port_up(1, false).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    b.sources.iter().for_each(|s| s.put([frame(1, 0)]));
    wait_for("dropping", || totals(&b).4 == 2);
    let down: u64 = b.workers.views().iter().map(|v| v.counters.drops(DropReason::TxPortDown)).sum();
    assert_eq!(down, 2);
    b.workers.set_port_up(1, true).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    b.sources.iter().for_each(|s| s.put([frame(1, 0)]));
    wait_for("sending", || totals(&b).1 == 2);
}

#[test]
fn traced_packets_show_their_way() {
    let shape = Shape { workers: 2, queues: 2, senders: 2, spread: vec![], ring: 128, idle: SLEEPY };
    let open = Arc::new(AtomicBool::new(true));
    let b = shape.start_with(|_| gate_graph(&open, &Arc::default()), &common::common(128));
    b.workers.trace(1, Some(0)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    b.sources.iter().for_each(|s| s.put([frame(1, 0), frame(1, 1)]));
    let mut hops = Vec::new();
    wait_for("tracing", || {
        hops.extend(b.workers.take_trace());
        hops.len() >= 2
    });
    hops.sort_by_key(|(worker, _)| *worker);
    let seen: Vec<_> = hops.iter().map(|(w, h)| (*w, h.packet, h.node)).collect();
    assert_eq!(seen, [(0, 1, 0), (1, 1, 0)]);
}

#[test]
fn a_worker_that_cannot_start_ends_the_others() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let mut common = common::common(64);
    common.on_thread = Arc::new(|w| if w == 1 { Err("no room".into()) } else { Ok(Box::new(())) });
    let setup = |_| linerate_engine::workers::WorkerSetup {
        cpu: None,
        idle: SLEEPY,
        graph: linerate_engine::graphs::io::graph(&[0]).unwrap(),
        alloc: Box::new(linerate_pipeline::heap::HeapAlloc::default()),
        on_tick: None,
        rx: vec![],
        tx: vec![],
    };
    let start = |setups: Vec<_>, common: &linerate_engine::workers::Common| {
        linerate_engine::workers::Workers::<HeapPacket>::start(setups, common)
    };
    let error = start((0..3).map(setup).collect(), &common).err().unwrap();
    assert_eq!(error.to_string(), "worker 1 cannot start: no room");
    let mut nowhere = setup(0);
    nowhere.cpu = Some(1023);
    let error = start(vec![nowhere], &common::common(64)).err().unwrap();
    assert!(error.to_string().starts_with("worker 0 cannot start: cannot run on CPUs 1023"), "{error}");
    let mut astray = setup(0);
    astray.rx.push(linerate_engine::workers::RxSlot {
        port: 2,
        queue: 0,
        device: Box::new(common::Source::new(2)),
        spread: vec![0, 7].into(),
        counters: Arc::default(),
    });
    let error = start(vec![astray], &common::common(64)).err().unwrap();
    assert!(matches!(error, StartError::SpreadUnknown { port: 2, worker: 7, workers: 1 }), "{error}");
    wait_for("threads end", || threads() == before);
}

#[test]
fn starting_and_stopping_leaves_no_thread_and_no_memory() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let resident = || linerate_linux::memory::resident(std::path::Path::new("/proc")).unwrap();
    let round = || {
        let shape =
            Shape { workers: 3, queues: 3, senders: 1, spread: vec![0, 1, 2], ring: 512, idle: SLEEPY };
        let b = shape.start();
        b.sources.iter().for_each(|s| s.put((0..500).map(|i| frame(i % 7, i))));
        b.workers.stop().unwrap();
        assert_eq!(b.workers.imbalance(), []);
    };
    (0..5).for_each(|_| round());
    let (before, memory) = (threads(), resident());
    (0..40).for_each(|_| round());
    wait_for("threads end", || threads() == before);
    assert!(resident() < memory + (16 << 20), "{memory} B grew to {} B", resident());
}

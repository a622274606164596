//! Tests of the graph with small nodes on heap packets.

use std::sync::Arc;

use super::*;
use crate::heap::HeapAlloc;
use crate::tx::TxBuffers;
use crate::{HeapPacket, WorkerCounters};

crate::exits! {
    enum ParityExit {
        Even,
        Odd,
        Empty,
    }
}

/// Sends packets by the parity of their first byte.
struct Parity;

impl Node<HeapPacket> for Parity {
    type Exit = ParityExit;
    fn process(
        &mut self,
        _: &mut Cx<'_, HeapPacket>,
        batch: &mut Batch<HeapPacket>,
        out: &mut Exits<'_, HeapPacket, ParityExit>,
    ) {
        for (i, p) in batch.iter().enumerate() {
            out.set(
                i,
                match p.head().first() {
                    None => ParityExit::Empty,
                    Some(b) if b % 2 == 0 => ParityExit::Even,
                    Some(_) => ParityExit::Odd,
                },
            );
        }
    }
    fn trace(&self, p: &HeapPacket, f: &mut dyn std::fmt::Write) -> std::fmt::Result {
        write!(f, "first {}", p.head()[0])
    }
}

crate::exits! {
    enum SinkExit {
        Done,
        Again,
    }
}

/// Collects bytes; emits a copy of each packet `copies` times; loops if told to.
struct Sink {
    seen: Arc<std::sync::Mutex<Vec<u8>>>,
    copies: usize,
    again: bool,
}

impl Node<HeapPacket> for Sink {
    type Exit = SinkExit;
    fn process(
        &mut self,
        cx: &mut Cx<'_, HeapPacket>,
        batch: &mut Batch<HeapPacket>,
        out: &mut Exits<'_, HeapPacket, SinkExit>,
    ) {
        for (i, p) in batch.iter().enumerate() {
            self.seen.lock().unwrap().push(p.head()[0]);
            out.set(i, if self.again { SinkExit::Again } else { SinkExit::Done });
            for _ in 0..self.copies {
                let mut copy = p.clone();
                if out.room() > 0 {
                    cx.generated(&mut copy);
                    out.emit(copy, SinkExit::Again).unwrap();
                }
            }
        }
    }
}

struct Rig {
    graph: Graph<HeapPacket>,
    counters: Arc<WorkerCounters>,
    seen: [Arc<std::sync::Mutex<Vec<u8>>>; 2],
}

fn rig(copies: usize, again: bool) -> Rig {
    let seen: [Arc<std::sync::Mutex<Vec<u8>>>; 2] = Default::default();
    let mut g = GraphBuilder::new();
    let parity = g.declare("parity");
    let odd = g.declare("odd");
    let even = g.declare("even");
    g.define(parity, Parity, |e| match e {
        ParityExit::Even => even.into(),
        ParityExit::Odd => odd.into(),
        ParityExit::Empty => DropReason::EthTooShort.into(),
    });
    g.define(odd, Sink { seen: seen[1].clone(), copies, again }, |e| match e {
        SinkExit::Done => DropReason::Shutdown.into(),
        SinkExit::Again => if again { odd } else { even }.into(),
    });
    g.define(even, Sink { seen: seen[0].clone(), copies: 0, again: false }, |e| match e {
        SinkExit::Done | SinkExit::Again => DropReason::LocalUnhandled.into(),
    });
    Rig { graph: g.build().unwrap(), counters: WorkerCounters::new(), seen }
}

impl Rig {
    fn run(&mut self, bytes: impl IntoIterator<Item = u8>) {
        let mut batch = Box::new(bytes.into_iter().map(|b| HeapPacket::new(&[b])).collect::<Batch<_>>());
        self.counters.port(0).received.add(batch.len() as u64);
        let (mut alloc, mut tx) = (HeapAlloc::default(), TxBuffers::new());
        let counters = self.counters.clone();
        let mut cx = Cx { now: 7, cycles: || 0, counters: &counters, alloc: &mut alloc, tx: &mut tx };
        self.graph.run(&mut cx, &mut batch);
        assert!(batch.is_empty());
    }

    fn seen(&self, i: usize) -> Vec<u8> {
        self.seen[i].lock().unwrap().clone()
    }
}

#[test]
fn packets_split_by_exit_in_order_and_all_are_accounted_for() {
    let mut r = rig(0, false);
    r.run(0..64);
    r.run([2, 4]);
    assert_eq!(r.seen(1), (0..64).filter(|b| b % 2 == 1).collect::<Vec<_>>());
    assert_eq!(r.seen(0), (0..64).filter(|b| b % 2 == 0).chain([2, 4]).collect::<Vec<_>>());
    assert_eq!(r.counters.drops(DropReason::Shutdown), 32);
    assert_eq!(r.counters.drops(DropReason::LocalUnhandled), 34);
    assert_eq!(r.counters.port(0).imbalance(), 0);
    let c = r.graph.counters();
    assert_eq!(
        [0, 1, 2].map(|i: usize| (c[i].packets.get(), c[i].batches.get())),
        [(66, 2), (32, 1), (34, 2)]
    );
}

#[test]
fn generated_packets_pass_on() {
    let mut r = rig(3, false);
    r.run((0..64).map(|i| 2 * i + 1));
    assert_eq!(r.seen(0).len(), 64, "emit takes one burst per call");
    assert_eq!(r.counters.port(0).generated.get(), 64);
    assert_eq!(r.counters.port(0).imbalance(), 0);
}

#[test]
fn what_no_node_has_room_for_is_dropped_by_name() {
    // Each pass through the node doubles the packets that wait in front of it.
    let mut r = rig(1, true);
    r.run((0..64).map(|i| 2 * i + 1));
    let drops = [DropReason::GraphOverflow, DropReason::GraphLoop].map(|d| r.counters.drops(d));
    assert!(drops[0] > 1000, "{drops:?}");
    assert_eq!(drops[1], (BACKLOG + BURST) as u64, "what still waited when the loop was cut");
    assert_eq!(drops[0] + drops[1], 64 + r.counters.port(0).generated.get());
    assert_eq!(r.counters.port(0).imbalance(), 0);
}

#[test]
fn a_loop_is_cut_and_counted() {
    let mut r = rig(0, true);
    r.run([1, 3]);
    assert_eq!(r.counters.drops(DropReason::GraphLoop), 2);
    assert_eq!(r.counters.port(0).imbalance(), 0);
    r.run([2]);
    assert_eq!(r.seen(0), [2], "the graph goes on working");
}

#[test]
fn the_trace_shows_each_node_and_exit() {
    let mut r = rig(0, false);
    r.graph.tracer().arm(1, None);
    r.run([5, 6]);
    let d = r.graph.describe();
    let hops: Vec<String> = r
        .graph
        .tracer()
        .take()
        .map(|h| {
            let n = &d.nodes[usize::from(h.node)];
            format!("{} {} -> {}", n.name, h.text, n.exits[usize::from(h.exit)].name)
        })
        .collect();
    assert_eq!(hops, ["parity first 5 -> Odd", "odd  -> Done"]);
    r.run([5]);
    assert!(!r.graph.tracer().has_hops(), "one packet was asked for");
}

#[test]
fn undefined_nodes_are_an_error_and_the_picture_names_every_join() {
    let mut g: GraphBuilder<HeapPacket> = GraphBuilder::new();
    g.declare("eth_input");
    assert_eq!(g.build().err(), Some(GraphError::Undefined("eth_input")));
    assert_eq!(GraphBuilder::<HeapPacket>::new().build().err(), Some(GraphError::Empty));
    assert!(rig(0, false).graph.describe().dot().contains("parity -> even [label=\"Even\"]"));
}

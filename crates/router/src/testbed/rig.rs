//! The worker's side of a testbed: a graph with in-memory devices, counters and a clock.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use linerate_pipeline::heap::HeapAlloc;
use linerate_pipeline::io::TxQueue;
use linerate_pipeline::{BURST, Batch, Cx, DropReason, Graph, HeapPacket, PortId, TxBuffers, WorkerCounters};

use super::{ICMP_LIMIT, PORTS, Sent};
use crate::event::RouterEvent;
use crate::graph::{Events, Parts, assemble};
use crate::naive::NaiveReader;
use crate::nodes::EventSink;
use crate::nodes::resolve::HoldLimits;
use crate::plane::Plane;

/// Tables as the nodes of a testbed see them.
pub type NaivePlane = Plane<NaiveReader<u32>, NaiveReader<u128>>;

type Wire = Arc<Mutex<Vec<Sent>>>;

/// One worker of a router, with everything an engine would give it.
pub struct Rig {
    graph: Graph<HeapPacket>,
    counters: Arc<WorkerCounters>,
    tx: TxBuffers<HeapPacket>,
    alloc: HeapAlloc,
    wire: Wire,
    events: Arc<Mutex<Vec<RouterEvent>>>,
    /// Drops reported by [`Rig::drops`] so far.
    reported: Vec<u64>,
}

impl Rig {
    /// A worker that reads these tables.
    pub fn new(plane: NaivePlane, hold: HoldLimits) -> Result<Self, Box<dyn Error>> {
        let events: Arc<Mutex<Vec<RouterEvent>>> = Arc::default();
        let sink = || -> EventSink {
            let events = events.clone();
            Box::new(move |event| events.lock().unwrap_or_else(PoisonError::into_inner).push(event))
        };
        let graph = assemble(Parts {
            plane,
            seed: 1,
            icmp_errors_per_second: ICMP_LIMIT,
            hold,
            events: Events { arp: sink(), nd: sink(), resolve: sink(), acl: sink() },
            punt: None,
        })?;
        let wire = Wire::default();
        let mut tx = TxBuffers::new();
        for port in 0..PORTS {
            tx.attach(port, Box::new(Device { port, wire: wire.clone() }));
        }
        Ok(Rig {
            graph,
            counters: WorkerCounters::new(),
            tx,
            alloc: HeapAlloc::default(),
            wire,
            events,
            reported: vec![0; DropReason::COUNT],
        })
    }

    /// Lets packets arrive at a port; returns what left the router, in order.
    pub fn receive(
        &mut self,
        now: u64,
        port: PortId,
        packets: impl IntoIterator<Item = HeapPacket>,
    ) -> Vec<Sent> {
        let mut packets = packets.into_iter().peekable();
        while packets.peek().is_some() {
            let mut batch: Box<Batch<HeapPacket>> =
                Box::new(packets.by_ref().take(BURST).map(|p| p.from_port(port)).collect());
            self.counters.port(port).received.add(batch.len() as u64);
            self.with_graph(now, |graph, cx| graph.run(cx, &mut batch));
        }
        self.sent()
    }

    /// Lets the nodes' timers run; returns what left the router.
    pub fn tick(&mut self, now: u64) -> Vec<Sent> {
        self.with_graph(now, Graph::tick);
        self.sent()
    }

    /// Runs something on the graph with everything a worker would give it.
    pub fn with_graph(
        &mut self,
        now: u64,
        run: impl FnOnce(&mut Graph<HeapPacket>, &mut Cx<'_, HeapPacket>),
    ) {
        let counters = self.counters.clone();
        let cx = &mut Cx { now, cycles: || 0, counters: &counters, alloc: &mut self.alloc, tx: &mut self.tx };
        run(&mut self.graph, cx);
        cx.tx.flush(&counters);
    }

    /// How many new packets the pool still has.
    pub fn limit_pool(&mut self, packets: usize) {
        self.alloc = HeapAlloc::with_limit(packets);
    }

    /// The drops since the last call. Every port must balance.
    pub fn drops(&mut self) -> Vec<(DropReason, u64)> {
        for (port, counters) in self.counters.ports.iter().enumerate() {
            assert_eq!(counters.imbalance(), 0, "port {port} does not balance: {counters:?}");
        }
        let mut drops = Vec::new();
        for (reason, reported) in DropReason::ALL.iter().zip(&mut self.reported) {
            let now = self.counters.drops(*reason);
            if now != *reported {
                drops.push((*reason, now - *reported));
                *reported = now;
            }
        }
        drops
    }

    /// Packets that wait for neighbours.
    pub fn held(&self) -> u64 {
        self.counters.ports.iter().map(|p| p.held.get()).sum()
    }

    /// Events raised since the last call.
    pub fn events(&mut self) -> Vec<RouterEvent> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What left the router since the last call.
    pub fn sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.wire.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts what is sent on the wire.
struct Device {
    port: PortId,
    wire: Wire,
}

impl TxQueue<HeapPacket> for Device {
    fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
        let n = batch.len();
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        wire.extend(batch.drain(..).map(|p| Sent { port: self.port, frame: p.bytes() }));
        n
    }
}

//! The router's graph on one worker, with the queues that join it to control.
//!
//! Which nodes there are and where each exit leads is said in [`linerate_router::graph::assemble`]. Here the graph gets
//! what only an engine has: bounded queues for events to control and for probes from it. Both ends are wait-free for
//! the worker; a queue that is full loses the event and counts it, and neighbour resolution asks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_pipeline::graph::{GraphDescription, GraphError};
use linerate_pipeline::{Cx, Graph, HeapPacket, IfIndex, Packet};
use linerate_router::graph::{Events, Parts, PuntParts, assemble};
use linerate_router::naive::NaiveFib;
use linerate_router::neighbor::NeighborOptions;
use linerate_router::nodes::resolve::HoldLimits;
use linerate_router::nodes::{EventSink, solicit};
use linerate_router::punt::{PuntClass, PuntCounters, PuntRates, PuntSink};
use linerate_router::{Plane, Probe, Router, RouterError, RouterEvent};
use linerate_tables::fib::{Fib, Lookup};
use linerate_tables::qsbr::Domain;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::workers::OnTick;

/// Events of one kind that may wait for control: what arrives in the milliseconds between two of its rounds.
const EVENTS: usize = 1024;
/// Probes that may wait for one worker.
const PROBES: usize = 256;
/// Probes that may wait for room in the workers' queues: more than there can be neighbours.
const PROBES_WAITING: usize = 1 << 17;
/// Probes sent per tick at most, so that a flood of them does not hold packets up.
const PROBES_PER_TICK: usize = 32;

/// Packets that may wait for Linux, of urgent classes and of the others each: what comes at line rate in the millisecond
/// between two looks, within the rates of the classes.
const PUNTS: usize = 1024;

/// What all workers of a router have in common.
#[derive(Clone)]
pub struct RouterParts<R4, R6> {
    /// Tables, shared with control.
    pub plane: Plane<R4, R6>,
    /// Seed of the flow hash, the same on all workers.
    pub seed: u64,
    /// ICMP errors each worker sends per second at most.
    pub icmp_errors_per_second: u32,
    /// How much of each kind goes up to Linux; `None`: there is no way there.
    pub punt: Option<PuntRates>,
}

/// One worker's graph and the ends of its queues.
pub struct RouterGraph<P: Packet> {
    /// The graph.
    pub graph: Graph<P>,
    /// What the worker does on each tick: it sends the probes that control asks for.
    pub on_tick: OnTick<P>,
    /// Control's end.
    pub line: RouterLine,
    /// The packets for Linux, where there is a way there.
    pub punt: Option<PuntLine<P>>,
}

/// A packet on its way to Linux, and the interface it came in by.
pub type Punted<P> = (P, IfIndex);

/// The far end of one worker's queues of packets for Linux.
pub struct PuntLine<P> {
    urgent: Consumer<Punted<P>>,
    other: Consumer<Punted<P>>,
    /// What the worker counted.
    pub counters: PuntCounters,
}

impl<P> PuntLine<P> {
    /// The next packet; those of urgent classes first.
    pub fn take(&mut self) -> Option<Punted<P>> {
        self.urgent.pop().or_else(|_| self.other.pop()).ok()
    }
}

/// The worker's end.
struct PuntQueues<P> {
    urgent: Producer<Punted<P>>,
    other: Producer<Punted<P>>,
}

impl<P: Packet> PuntSink<P> for PuntQueues<P> {
    fn put(&mut self, packet: P, interface: IfIndex, class: PuntClass) -> Result<(), P> {
        let queue = if class.is_urgent() { &mut self.urgent } else { &mut self.other };
        queue.push((packet, interface)).map_err(|rtrb::PushError::Full((packet, _))| packet)
    }
}

fn punt_queues<P: Packet>(rates: PuntRates) -> (PuntParts<P>, PuntLine<P>) {
    let (urgent, urgent_rx) = RingBuffer::new(PUNTS);
    let (other, other_rx) = RingBuffer::new(PUNTS);
    let counters = PuntCounters::default();
    let sink = Box::new(PuntQueues { urgent, other });
    let line = PuntLine { urgent: urgent_rx, other: other_rx, counters: counters.clone() };
    (PuntParts { rates, counters, sink }, line)
}

/// Control's end of the queues of one worker.
pub struct RouterLine {
    events: [Consumer<RouterEvent>; 4],
    probes: Producer<Probe>,
    lost: Arc<AtomicU64>,
}

/// Control's ends of the queues of all workers.
#[derive(Default)]
pub struct RouterLines {
    lines: Vec<RouterLine>,
    /// The line that the next probe is offered first: probes are dealt out evenly.
    next: usize,
}

/// Builds the graph of one worker.
pub fn graph<P, R4, R6>(parts: &RouterParts<R4, R6>) -> Result<RouterGraph<P>, GraphError>
where
    P: Packet,
    R4: Lookup<u32> + Clone + 'static,
    R6: Lookup<u128> + Clone + 'static,
{
    let lost = Arc::<AtomicU64>::default();
    let (arp, arp_rx) = sink(&lost);
    let (nd, nd_rx) = sink(&lost);
    let (resolve, resolve_rx) = sink(&lost);
    let (acl, acl_rx) = sink(&lost);
    let (punt, punt_line) = parts.punt.map(punt_queues).unzip();
    let graph = assemble(Parts {
        plane: parts.plane.clone(),
        seed: parts.seed,
        icmp_errors_per_second: parts.icmp_errors_per_second,
        hold: HoldLimits::default(),
        events: Events { arp, nd, resolve, acl },
        punt,
    })?;
    let (probes, mut probes_rx) = RingBuffer::<Probe>::new(PROBES);
    let (mut interfaces, next_hops) = (parts.plane.interfaces.clone(), parts.plane.next_hops.clone());
    let on_tick = move |cx: &mut Cx<'_, P>| {
        for _ in 0..PROBES_PER_TICK {
            let Ok(probe) = probes_rx.pop() else { break };
            solicit::send(cx, interfaces.get(), &next_hops, &probe);
        }
    };
    let line = RouterLine { events: [resolve_rx, arp_rx, nd_rx, acl_rx], probes, lost };
    Ok(RouterGraph { graph, on_tick: Box::new(on_tick), line, punt: punt_line })
}

/// Timers and bounds of the neighbour table for a router whose probes go by [`RouterLines`].
pub fn neighbor_options() -> NeighborOptions {
    NeighborOptions { max_probes: PROBES_WAITING, ..NeighborOptions::default() }
}

/// Why the router's graph cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The tables cannot be made.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// The graph cannot be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// What the router's graph consists of, for the picture in the docs: needs no device and no running instance.
pub fn description() -> Result<Arc<GraphDescription>, DescriptionError> {
    let (fib4, fib6) = (NaiveFib::<u32>::default(), NaiveFib::<u128>::default());
    let router = Router::new(Domain::new(), fib4, fib6, NeighborOptions::default())?;
    let punt = Some(PuntRates::default());
    let parts = RouterParts { plane: router.plane(), seed: 0, icmp_errors_per_second: 0, punt };
    Ok(graph::<HeapPacket, _, _>(&parts)?.graph.describe())
}

fn sink(lost: &Arc<AtomicU64>) -> (EventSink, Consumer<RouterEvent>) {
    let (mut queue, events) = RingBuffer::new(EVENTS);
    let lost = lost.clone();
    let put = move |event| {
        if queue.push(event).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    };
    (Box::new(put), events)
}

impl RouterLine {
    /// The events that wait.
    pub fn events(&mut self) -> impl Iterator<Item = RouterEvent> + '_ {
        self.events.iter_mut().flat_map(|queue| std::iter::from_fn(|| queue.pop().ok()))
    }

    /// Asks the worker to send a probe; `false` where too many wait already.
    fn probe(&mut self, probe: Probe) -> bool {
        self.probes.push(probe).is_ok()
    }

    fn is_full(&self) -> bool {
        self.probes.is_full()
    }

    /// Events lost because control did not fetch them in time.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl RouterLines {
    /// The line to one more worker.
    pub fn add(&mut self, line: RouterLine) {
        self.lines.push(line);
    }

    /// One round of control: events in, timers, probes out. Returns whether there was anything to do.
    pub fn round<F4: Fib<u32>, F6: Fib<u128>>(&mut self, router: &mut Router<F4, F6>, now: u64) -> bool {
        let mut any = false;
        for line in &mut self.lines {
            for event in line.events() {
                any = true;
                router.event(now, event);
            }
        }
        router.tick(now);
        // What no worker has room for stays with the router until the next round: each probe counts as a question asked.
        let mut probes = router.probes();
        while let Some(line) = self.free_line()
            && let Some(probe) = probes.next()
        {
            any = true;
            self.lines[line].probe(probe);
        }
        any
    }

    /// The next line with room for a probe.
    fn free_line(&mut self) -> Option<usize> {
        let all = self.lines.len();
        let free = (0..all).map(|i| (self.next + i) % all).find(|i| !self.lines[*i].is_full())?;
        self.next = (free + 1) % all;
        Some(free)
    }

    /// Events lost because control did not fetch them in time, over all workers.
    pub fn lost(&self) -> u64 {
        self.lines.iter().map(RouterLine::lost).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use linerate_pipeline::heap::HeapAlloc;
    use linerate_pipeline::io::TxQueue;
    use linerate_pipeline::{Batch, Interface, TxBuffers, WorkerCounters};
    use linerate_router::neighbor::NeighborState;
    use linerate_router::{RouteAction, RouterConfig};

    use super::*;

    #[test]
    fn the_graph_can_be_described_without_a_router() {
        let d = description().unwrap();
        assert_eq!(d.nodes[0].name, "express");
        assert!(d.dot().contains("ip4_lookup -> ip4_rewrite"));
    }

    /// Takes all frames.
    #[derive(Clone, Default)]
    struct Wire(Arc<Mutex<Vec<Vec<u8>>>>);

    impl TxQueue<HeapPacket> for Wire {
        fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
            let mut frames = self.0.lock().unwrap();
            let before = frames.len();
            frames.extend(batch.drain(..).map(|p| p.bytes()));
            frames.len() - before
        }
    }

    /// However many gateways are asked for at once, and however few questions fit into the queue to the only worker: each
    /// that answers is resolved before it is given up.
    #[test]
    fn thousands_of_gateways_are_all_asked_in_time() {
        const GATEWAYS: u32 = 6000;
        let gateway = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0100 + n);
        let (fib4, fib6) = (NaiveFib::<u32>::default(), NaiveFib::<u128>::default());
        let mut router = Router::new(Domain::new(), fib4, fib6, neighbor_options()).unwrap();
        let own = ["10.0.0.1/16".parse().unwrap()];
        let interfaces = vec![(0, Interface::new("wan", 0, [2, 0, 0, 0, 0, 1], 1500, &own))];
        let route = |n: u32| {
            let prefix =
                ipnet::Ipv4Net::new(std::net::Ipv4Addr::from_bits(0xc612_0000 + (n << 3)), 29).unwrap();
            (prefix.into(), Arc::new(RouteAction::via(gateway(n).into())))
        };
        let routes = (0..GATEWAYS).map(route).collect();
        router
            .apply(0, RouterConfig { interfaces, routes, neighbors: Vec::new(), vrfs: Vec::new() })
            .unwrap();
        let parts = RouterParts { plane: router.plane(), seed: 0, icmp_errors_per_second: 0, punt: None };
        let RouterGraph { mut on_tick, line, .. } = graph::<HeapPacket, _, _>(&parts).unwrap();
        let mut lines = RouterLines::default();
        lines.add(line);
        let (wire, counters, mut tx) = (Wire::default(), WorkerCounters::new(), TxBuffers::new());
        tx.attach(0, Box::new(wire.clone()));
        let answered = |router: &Router<_, _>| {
            router.neighbors().filter(|n| n.state == NeighborState::Reachable).count() as u32
        };
        let mut alloc = HeapAlloc::default();
        for now in (0..2900).map(|ms| ms * 1_000_000) {
            // A round of control is as frequent as it is without anything to do, the worker's ticks as ever.
            if now % 5_000_000 == 0 {
                lines.round(&mut router, now);
            }
            let (counters, alloc, tx) = (&counters, &mut alloc, &mut tx);
            on_tick(&mut Cx { now, cycles: || 0, counters, alloc, tx });
            tx.flush(counters);
            for frame in wire.0.lock().unwrap().drain(..) {
                let address =
                    std::net::Ipv4Addr::from_bits(u32::from_be_bytes(frame[38..42].try_into().unwrap()));
                let (mac, kind) = ([2, 0, 0, 0, 1, 1], linerate_router::event::ArpKind::Reply);
                router.event(now, RouterEvent::ArpSeen { interface: 0, address, mac, kind });
            }
        }
        let stats = router.stats().neighbor_events;
        assert_eq!((answered(&router), stats.failed, stats.probes_lost), (GATEWAYS, 0, 0));
    }
}

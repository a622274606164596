//! The router's graph on one worker, with the queues that join it to control.
//!
//! Which nodes there are and where each exit leads is said in [`linerate_router::graph::assemble`]. Here the graph gets
//! what only an engine has: bounded queues for events to control and for probes from it. Both ends are wait-free for
//! the worker; a queue that is full loses the event and counts it, and neighbour resolution asks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linerate_pipeline::graph::{GraphDescription, GraphError};
use linerate_pipeline::{Cx, Graph, HeapPacket, Packet};
use linerate_router::graph::{Events, Parts, assemble};
use linerate_router::naive::NaiveFib;
use linerate_router::neighbor::NeighborOptions;
use linerate_router::nodes::resolve::HoldLimits;
use linerate_router::nodes::{EventSink, solicit};
use linerate_router::{Plane, Probe, Router, RouterError, RouterEvent};
use linerate_tables::fib::Lookup;
use linerate_tables::qsbr::Domain;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::workers::OnTick;

/// Events of one kind that may wait for control: what arrives in the milliseconds between two of its rounds.
const EVENTS: usize = 1024;
/// Probes that may wait for one worker.
const PROBES: usize = 256;
/// Probes sent per tick at most, so that a flood of them does not hold packets up.
const PROBES_PER_TICK: usize = 32;

/// What all workers of a router have in common.
#[derive(Clone)]
pub struct RouterParts<R4, R6> {
    /// Tables, shared with control.
    pub plane: Plane<R4, R6>,
    /// Seed of the flow hash, the same on all workers.
    pub seed: u64,
    /// ICMP errors each worker sends per second at most.
    pub icmp_errors_per_second: u32,
}

/// One worker's graph and the ends of its queues.
pub struct RouterGraph<P: Packet> {
    /// The graph.
    pub graph: Graph<P>,
    /// What the worker does on each tick: it sends the probes that control asks for.
    pub on_tick: OnTick<P>,
    /// Control's end.
    pub line: RouterLine,
}

/// Control's end of the queues of one worker.
pub struct RouterLine {
    events: [Consumer<RouterEvent>; 3],
    probes: Producer<Probe>,
    lost: Arc<AtomicU64>,
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
    let graph = assemble(Parts {
        plane: parts.plane.clone(),
        seed: parts.seed,
        icmp_errors_per_second: parts.icmp_errors_per_second,
        hold: HoldLimits::default(),
        events: Events { arp, nd, resolve },
    })?;
    let (probes, mut probes_rx) = RingBuffer::<Probe>::new(PROBES);
    let (mut interfaces, next_hops) = (parts.plane.interfaces.clone(), parts.plane.next_hops.clone());
    let on_tick = move |cx: &mut Cx<'_, P>| {
        for _ in 0..PROBES_PER_TICK {
            let Ok(probe) = probes_rx.pop() else { break };
            solicit::send(cx, interfaces.get(), &next_hops, &probe);
        }
    };
    let line = RouterLine { events: [resolve_rx, arp_rx, nd_rx], probes, lost };
    Ok(RouterGraph { graph, on_tick: Box::new(on_tick), line })
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
    let parts = RouterParts { plane: router.plane(), seed: 0, icmp_errors_per_second: 0 };
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
    pub fn probe(&mut self, probe: Probe) -> bool {
        self.probes.push(probe).is_ok()
    }

    /// Events lost because control did not fetch them in time.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_can_be_described_without_a_router() {
        let d = description().unwrap();
        assert_eq!(d.nodes[0].name, "express");
        assert!(d.dot().contains("ip4_lookup -> ip4_rewrite"));
    }
}

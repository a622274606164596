//! From what the instance says to the messages of the API.

use linerate_pipeline::graph::Target as Leads;
use linerate_pipeline::trace::Hop;
use linerate_pipeline::{DropReason, PortId};

use super::sample::{Rates, packets};
use crate::dataplane::{Dataplane, WorkerView};
use crate::show::{self, WIRE_OVERHEAD};

pub(super) fn ports(plane: &dyn Dataplane, rates: &Rates) -> show::Ports {
    let workers = plane.workers();
    let one = |(id, p): (usize, crate::dataplane::PortView)| {
        let counters = || workers.iter().map(|w| w.counters.port(id as PortId));
        let [rx_pps, rx_bytes, tx_pps, tx_bytes] = rates.port(id);
        let traffic = |packets, bytes, pps: Option<f64>, bps: Option<f64>| show::ports::Traffic {
            packets,
            bytes,
            pps,
            l1_bps: pps.zip(bps).map(|(p, b)| 8.0 * (b + p * WIRE_OVERHEAD as f64)),
        };
        let sum = |f: fn(&linerate_pipeline::counters::PortCounters) -> u64| counters().map(f).sum::<u64>();
        show::ports::Port {
            rx: traffic(sum(|c| c.received.get()), sum(|c| c.rx_bytes.get()), rx_pps, rx_bytes),
            tx: traffic(sum(|c| c.tx_packets.get()), sum(|c| c.tx_bytes.get()), tx_pps, tx_bytes),
            dropped: sum(|c| c.dropped()),
            unaccounted: counters().map(|c| c.imbalance()).sum(),
            mac: mac(p.mac),
            name: p.name,
            device: p.device,
            driver: p.driver,
            up: p.up,
            speed_mbps: p.speed_mbps,
            mtu: p.mtu,
            promiscuous: p.promiscuous,
            rx_queues: p.rx_queues,
            tx_queues: p.tx_queues,
            rx_missed: p.rx_missed,
            rx_errors: p.rx_errors,
            rx_no_buffer: p.rx_no_buffer,
            tx_errors: p.tx_errors,
            notes: p.notes,
        }
    };
    show::Ports { ports: plane.ports().into_iter().enumerate().map(one).collect() }
}

pub(super) fn workers(plane: &dyn Dataplane, rates: &Rates) -> show::Workers {
    let ports = plane.ports();
    let mut queues = plane.queues();
    queues.sort_by_key(|q| (q.port, q.queue));
    let hz = plane.clock_hz().max(1);
    let one = |(id, w): (usize, WorkerView)| {
        let c = &w.counters;
        let (packets, busy) = (packets(c), c.busy_cycles.get());
        let of = queues.iter().filter(|q| q.worker == id);
        show::workers::Worker {
            id,
            cpu: w.cpu,
            thread: w.thread,
            queues: of.map(|q| format!("{}:{}", name(&ports, q.port), q.queue)).collect(),
            busy: rates.busy(id),
            busy_ever: busy as f64 / c.cycles.get().max(1) as f64,
            packets,
            pps: rates.worker(id),
            handed_over: c.ports.iter().map(|p| p.handed_over.get()).sum(),
            cycles_per_packet: (packets > 0).then(|| busy as f64 / packets as f64),
            longest_loop_ns: (u128::from(c.longest_loop.get()) * 1_000_000_000 / u128::from(hz)) as u64,
        }
    };
    show::Workers { workers: plane.workers().into_iter().enumerate().map(one).collect() }
}

pub(super) fn queues(plane: &dyn Dataplane, rates: &Rates) -> show::Queues {
    let ports = plane.ports();
    let mut queues = plane.queues();
    queues.sort_by_key(|q| (q.port, q.queue));
    let one = |q: &crate::dataplane::QueueView| show::queues::Queue {
        port: name(&ports, q.port),
        queue: q.queue,
        worker: q.worker,
        packets: q.packets,
        pps: rates.queue(q.port, q.queue),
    };
    show::Queues { queues: queues.iter().map(one).collect(), longest_gap_ns: plane.longest_gap() }
}

pub(super) fn drops(plane: &dyn Dataplane, rates: &Rates) -> show::Drops {
    let workers = plane.workers();
    let names = plane.ports();
    let one = |reason: &DropReason| {
        let by_port = |port: usize| {
            let of = |w: &WorkerView| w.counters.port(port as PortId).drops[usize::from(reason.code())].get();
            workers.iter().map(of).sum::<u64>()
        };
        let ports = (0..names.len())
            .map(|p| show::drops::PortDrops { port: names[p].name.clone(), packets: by_port(p) });
        show::drops::Drop {
            reason: reason.name().into(),
            explanation: reason.explain().into(),
            packets: workers.iter().map(|w| w.counters.drops(*reason)).sum(),
            pps: rates.drops(*reason),
            ports: ports.filter(|p| p.packets > 0).collect(),
        }
    };
    let mut drops: Vec<_> = DropReason::ALL.iter().map(one).filter(|d| d.packets > 0).collect();
    drops.sort_by_key(|d| std::cmp::Reverse(d.packets));
    let off = |port: usize| workers.iter().map(|w| w.counters.port(port as PortId).imbalance()).sum::<i64>();
    let unaccounted = names.iter().enumerate().map(|(id, p)| (p.name.clone(), off(id)));
    let unaccounted = unaccounted.filter(|(_, off)| *off != 0);
    show::Drops {
        total: drops.iter().map(|d| d.packets).sum(),
        drops,
        unaccounted: unaccounted.map(|(port, packets)| show::drops::Unaccounted { port, packets }).collect(),
    }
}

pub(super) fn graph(plane: &dyn Dataplane) -> show::Graph {
    let workers = plane.workers();
    let Some(first) = workers.first() else { return show::Graph::default() };
    let one = |(i, n): (usize, &linerate_pipeline::graph::NodeDescription)| {
        let nodes = || workers.iter().filter_map(|w| w.nodes.get(i));
        let packets: u64 = nodes().map(|n| n.packets.get()).sum();
        let batches: u64 = nodes().map(|n| n.batches.get()).sum();
        let cycles: u64 = nodes().map(|n| n.cycles.get()).sum();
        let exit = |e: &linerate_pipeline::graph::ExitDescription| show::graph::Exit {
            name: e.name.into(),
            leads_to: match e.leads_to {
                Leads::Node(n) => show::graph::Target::Node(n.into()),
                Leads::Drop(r) => show::graph::Target::Drop(r.name().into()),
            },
        };
        show::graph::Node {
            name: n.name.into(),
            packets,
            batches,
            cycles,
            packets_per_batch: (batches > 0).then(|| packets as f64 / batches as f64),
            // Some batches are timed, not all: before the first of them nothing is known.
            cycles_per_packet: (packets > 0 && cycles > 0).then(|| cycles as f64 / packets as f64),
            exits: n.exits.iter().map(exit).collect(),
        }
    };
    let nodes = first.description.nodes.iter().enumerate().map(one).collect();
    show::Graph { nodes, dot: first.description.dot() }
}

/// `lost`: hops that are missing.
pub(super) fn trace(plane: &dyn Dataplane, hops: Vec<(usize, Hop)>, lost: u64) -> show::Trace {
    let workers = plane.workers();
    let mut out: Vec<show::trace::TracedPacket> = Vec::new();
    let mut starts: Vec<u64> = Vec::new();
    for (worker, hop) in hops {
        let at = match out.iter().position(|p| p.worker == worker && p.packet == hop.packet) {
            Some(at) => at,
            None => {
                out.push(show::trace::TracedPacket { worker, packet: hop.packet, hops: Vec::new() });
                starts.push(hop.time);
                out.len() - 1
            }
        };
        let node = workers.get(worker).and_then(|w| w.description.nodes.get(usize::from(hop.node)));
        let exit = node.and_then(|n| n.exits.get(usize::from(hop.exit)));
        let to = exit.map(|e| match e.leads_to {
            Leads::Node(n) => n.to_owned(),
            Leads::Drop(r) => format!("drop:{}", r.name()),
        });
        out[at].hops.push(show::trace::TracedHop {
            after_ns: hop.time.saturating_sub(starts[at]),
            node: node.map_or_else(|| hop.node.to_string(), |n| n.name.into()),
            exit: match exit {
                Some(e) => e.name.into(),
                // The graph ends here: the packet waits for the device.
                None if hop.exit == Hop::KEPT && node.is_some_and(|n| n.exits.is_empty()) => "queued".into(),
                None if hop.exit == Hop::KEPT => "kept".into(),
                None => hop.exit.to_string(),
            },
            to: to.unwrap_or_default(),
            text: hop.text.to_string(),
        });
    }
    show::Trace { packets: out, lost }
}

/// Hops of traced packets lost so far, over all workers.
pub(super) fn trace_lost(plane: &dyn Dataplane) -> u64 {
    plane.workers().iter().map(|w| w.counters.trace_lost.get()).sum()
}

pub(super) fn router(plane: &dyn Dataplane) -> show::Router {
    let mut router = plane.router();
    router.lost.trace_hops = trace_lost(plane);
    router
}

/// `02:00:00:00:00:01`.
pub(crate) fn mac(octets: [u8; 6]) -> String {
    octets.map(|o| format!("{o:02x}")).join(":")
}

fn name(ports: &[crate::dataplane::PortView], port: PortId) -> String {
    ports.get(usize::from(port)).map_or_else(|| port.to_string(), |p| p.name.clone())
}

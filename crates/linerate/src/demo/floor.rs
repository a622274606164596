//! The I/O floor: the same rings, the same worker loop, and a graph that only moves packets from port to port.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use linerate_dpdk::{Eal, Mbuf, Pool, Port, PortConfig, RxQueue, Started, TxQueue, register_worker_thread};
use linerate_engine::clock::Clock;
use linerate_engine::desired::IdleSpec;
use linerate_engine::graphs::io;
use linerate_engine::workers::{Common, QueueCounters, RxSlot, WorkerSetup, Workers};
use linerate_pipeline::{PacketAlloc, PortId};
use linerate_tables::qsbr::Domain;

use super::measure::Ends;
use super::plan::{IN, PORTS};

/// Packets that a ring between tester and router holds: more than are ever under way.
pub(crate) const RING: u32 = 4096;

/// The port that the floor sends by.
pub(crate) const OUT: PortId = 1;

/// A running floor. Ports must outlive the queues taken from them, so they are kept here.
pub(crate) struct Floor {
    /// Its only worker.
    pub(crate) workers: Workers<Mbuf>,
    /// Devices stay open as long as they are.
    _ports: Vec<Port<Started>>,
}

impl Floor {
    /// Ends it; the tester's ends of its ports must be gone.
    pub(crate) fn stop(self) -> Result<()> {
        self.workers.stop().context("the I/O floor's worker did not stop")?;
        Ok(())
    }
}

struct FromPool(&'static Pool);

impl PacketAlloc<Mbuf> for FromPool {
    fn alloc(&mut self) -> Option<Mbuf> {
        self.0.alloc()
    }
}

/// Starts the floor on a CPU; returns it with the tester's ends of its ports.
pub(crate) fn start(
    eal: &'static Eal,
    pool: &'static Pool,
    clock: Clock,
    cpu: Option<usize>,
    idle: IdleSpec,
) -> Result<(Floor, Ends<RxQueue, TxQueue>)> {
    let config = PortConfig { mtu: super::plan::MTU, ..PortConfig::default() };
    let (mut ports, mut rx, mut tx) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ends_rx, mut ends_tx) = (Vec::new(), None);
    for (i, name) in PORTS.iter().enumerate() {
        let port = i as PortId;
        let (ours, theirs) = Port::ring_pair(eal, &format!("floor_{name}"), RING, 1, &config, pool)
            .context("the rings of the I/O floor")?;
        let (ours, our_rx, our_tx) = ours.start()?;
        let (theirs, their_rx, their_tx) = theirs.start()?;
        for mut queue in their_rx {
            queue.set_rx_port(port);
            rx.push(RxSlot {
                device: Box::new(queue),
                port,
                queue: 0,
                counters: Arc::new(QueueCounters::default()),
                spread: Arc::default(),
            });
        }
        tx.extend(their_tx.into_iter().map(|q| (port, Box::new(q) as _)));
        ends_rx.extend(our_rx.into_iter().map(|q| (port, q)));
        if port == IN {
            ends_tx = our_tx.into_iter().next();
        }
        ports.extend([ours, theirs]);
    }
    let setup = WorkerSetup {
        cpu,
        idle,
        graph: io::graph(&[OUT, IN, IN])?,
        alloc: Box::new(FromPool(pool)),
        rx,
        tx,
        on_tick: None,
    };
    let common = Common {
        clock,
        domain: Domain::new(),
        ring_capacity: 64,
        shared_cpu: cpu.is_none(),
        host_rings: false,
        on_thread: Arc::new(|_| match register_worker_thread() {
            Ok(guard) => Ok(Box::new(guard) as _),
            Err(e) => Err(e.to_string()),
        }),
    };
    let workers = Workers::start(vec![setup], &common)?;
    let tx = ends_tx.ok_or_else(|| anyhow!("a ring port came without a transmit queue"))?;
    Ok((Floor { workers, _ports: ports }, Ends { rx: ends_rx, tx }))
}

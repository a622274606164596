//! The device under test: an instance of the router as `linerate run` starts it, with ring ports.

use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use linerate_dpdk::{Eal, Pool, Port, RxQueue, Started, TxQueue};
use linerate_engine::clock::Clock;
use linerate_engine::desired::{Desired, DpdkSpec, IdleSpec, LinuxSpec, MemorySpec, PortSpec, WorkerSpec};
use linerate_engine::instance::{Instance, Product};
use linerate_pipeline::PortId;

use super::breaker::Break;
use super::cpus::Placement;
use super::floor::RING;
use super::measure::{Ends, Meter};
use super::plan::{self, IN, PORTS};
use super::tables::Tables;

/// MiB of ordinary memory for packet buffers and rings of everything in the process.
const MEMORY: u32 = 256;

/// The router, running.
pub(crate) struct Router {
    instance: Instance,
    /// The tester's ends of its ports: they must be gone before the instance stops.
    ports: Vec<Port<Started>>,
}

/// Starts a router with these tables and returns it with the seconds that it took from tables to polling workers.
/// The tester's ends of its ports follow by [`Router::ends`].
pub(crate) fn start(
    tables: &Tables,
    cpus: &Placement,
    idle: IdleSpec,
    broken: Option<Break>,
) -> Result<(Router, f64)> {
    start_with(tables, cpus, idle, broken, None)
}

/// The same, with Linux and FRR above it where `linux` says how.
pub(crate) fn start_with(
    tables: &Tables,
    cpus: &Placement,
    idle: IdleSpec,
    broken: Option<Break>,
    linux: Option<LinuxSpec>,
) -> Result<(Router, f64)> {
    let routes = match broken {
        Some(b) => {
            plan::routes(&b.table(&tables.ipv4, plan::NEXT_HOPS), &b.table(&tables.ipv6, plan::NEXT_HOPS))
        }
        None => plan::routes(&tables.ipv4, &tables.ipv6),
    };
    let desired = Desired {
        vrfs: Vec::new(),
        dpdk: DpdkSpec {
            file_prefix: format!("linerate-demo-{}", std::process::id()),
            memory: MemorySpec::NoHuge { megabytes: MEMORY },
            control_cpu: cpus.tester,
            ..DpdkSpec::default()
        },
        workers: vec![WorkerSpec { cpu: cpus.worker.unwrap_or(cpus.tester), idle }],
        ports: PORTS.iter().map(|name| port(name)).collect(),
        interfaces: plan::interfaces(),
        routes,
        neighbors: plan::neighbors(),
        acls: Vec::new(),
        multicast_routes: Vec::new(),
        linux,
        icmp_errors_per_second: 100,
    };
    let begin = Instant::now();
    let instance = Instance::start(&desired, Product::Router).context("the router cannot be started")?;
    Ok((Router { instance, ports: Vec::new() }, begin.elapsed().as_secs_f64()))
}

fn port(name: &str) -> PortSpec {
    PortSpec {
        name: name.into(),
        device: format!("ring:{name}"),
        rx_queues: 1,
        queue_workers: vec![0],
        spread: Vec::new(),
        rx_descriptors: RING as u16,
        tx_descriptors: RING as u16,
        mtu: plan::MTU,
        promiscuous: false,
    }
}

impl Router {
    /// The tester's ends of the router's ports.
    pub(crate) fn ends(&mut self, pool: &'static Pool) -> Result<Ends<RxQueue, TxQueue>> {
        let (mut rx, mut tx) = (Vec::new(), None);
        for (i, name) in PORTS.iter().enumerate() {
            let peer =
                self.instance.take_peer(name).ok_or_else(|| anyhow!("port {name} has no other end"))?;
            let (port, their_rx, their_tx) = peer.start(plan::MTU, pool)?;
            rx.extend(their_rx.into_iter().map(|q| (i as PortId, q)));
            if i == usize::from(IN) {
                tx = their_tx.into_iter().next();
            }
            self.ports.push(port);
        }
        Ok(Ends { rx, tx: tx.ok_or_else(|| anyhow!("the ring to the router has no transmit queue"))? })
    }

    /// What its worker says about itself.
    pub(crate) fn meter(&self) -> Result<Meter> {
        let worker = self.instance.workers().first().ok_or_else(|| anyhow!("the router has no worker"))?;
        Ok(Meter { counters: worker.counters.clone(), thread: worker.thread, clock: self.clock() })
    }

    /// The instance, to change it.
    pub(crate) fn instance(&self) -> &Instance {
        &self.instance
    }

    /// The clock of the data path.
    pub(crate) fn clock(&self) -> Clock {
        self.instance.clock()
    }

    /// What it dropped, by name, and how many packets it does not account for.
    pub(crate) fn account(&self) -> (Vec<(&'static str, u64)>, i64) {
        let drops = self.instance.drops().iter().map(|d| (d.reason.name(), d.packets)).collect();
        (drops, self.instance.imbalance().iter().map(|(_, _, off)| off.abs()).sum())
    }

    /// Ends it; all queues taken from it must be gone.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.ports.clear();
        self.instance.stop().context("the router did not stop cleanly")
    }
}

/// DPDK, which the router has started.
pub(crate) fn eal() -> Result<&'static Eal> {
    Eal::get().ok_or_else(|| anyhow!("DPDK is not running although the router is"))
}

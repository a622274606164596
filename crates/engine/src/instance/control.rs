//! The control thread: it starts DPDK and everything on it, watches over it, and ends it (DPDK wants the same thread at
//! both ends).

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use linerate_dpdk::{
    CleanupError, Eal, EalConfig, Mbuf, Memory, Pci, RxQueue, TxQueue, kept_buffers, register_worker_thread,
    tsc, tsc_hz,
};
use linerate_linux::links::LinkStates;
use linerate_linux::thread;
use linerate_pipeline::{Graph, PortId};
use linerate_tables::qsbr::Domain;

use super::buffers::{self, Need};
use super::check::{self, Machine};
use super::error::{StartError, StopError};
use super::ports::{self, Pools, PortState};
use super::router::{self, RouterHalf};
use super::spare::Spare;
use super::status::Load;
use super::turns::Turns;
use super::{Product, Shared, device, place};
use crate::clock::Clock;
use crate::desired::{Desired, MemorySpec};
use crate::graphs;
use crate::host::{Linux, Parts};
use crate::workers::{Common, OnTick, RxSlot, WorkerSetup, WorkerView, Workers};

/// Packets that a ring between two workers holds: what arrives at 20 million packets per second while a worker wakes
/// from its longest sleep of 50 µs, twice over.
const RING: usize = 2048;

/// Between two rounds of control logic.
const ROUND: Duration = Duration::from_millis(5);
/// The same after a round that had something to do: neighbours being resolved should not wait.
const BUSY_ROUND: Duration = Duration::from_millis(1);
/// Between two looks at the ports' links.
const LINKS: Duration = Duration::from_millis(100);
/// Over which loads are measured.
const LOADS: Duration = Duration::from_secs(1);

/// What callers ask of the control thread.
pub(super) enum Order {
    /// End everything.
    Stop,
}

/// What the checks before the start have found out.
#[derive(Clone, Copy)]
pub(super) struct Checked {
    need: Need,
    one_cpu: bool,
}

/// What can be checked before anything is touched.
pub(super) fn check(desired: &Desired, product: &Product) -> Result<Checked, StartError> {
    let machine = Machine::this()?;
    check::check(desired, &machine)?;
    if *product == Product::Router {
        check::check_routes(&desired.routes, desired.interfaces.len())?;
        router::check(desired)?;
    }
    let need = buffers::need(desired, place::rings(&desired.ports, desired.workers.len()), RING)?;
    Ok(Checked { need, one_cpu: machine.allowed.len() == 1 })
}

/// The whole life of an instance.
pub(super) fn run(
    desired: &Desired,
    product: &Product,
    checked: Checked,
    started: &Sender<Result<Arc<Shared>, StartError>>,
    orders: &Receiver<Order>,
) -> Result<(), StopError> {
    let eal = match prepare(desired) {
        Ok(eal) => eal,
        Err(error) => {
            let _ = started.send(Err(error));
            return Ok(());
        }
    };
    let shared = match bring_up(eal, desired, product, checked) {
        Ok(shared) => Arc::new(shared),
        Err(error) => {
            let _ = eal.cleanup();
            let _ = started.send(Err(error));
            return Ok(());
        }
    };
    let linux = match join_linux(desired, &shared) {
        Ok(linux) => linux,
        Err(error) => {
            let _ = take_down(eal, &shared);
            let _ = started.send(Err(error));
            return Ok(());
        }
    };
    if started.send(Ok(shared.clone())).is_ok() {
        watch(&shared, orders);
    }
    // Its threads hold packets and give them to workers.
    drop(linux);
    take_down(eal, &shared)
}

/// Joins the router to Linux, where that is wanted.
fn join_linux(desired: &Desired, shared: &Arc<Shared>) -> Result<Option<Linux>, StartError> {
    let (Some(spec), Some(&pool)) = (&desired.linux, shared.pools.first()) else { return Ok(None) };
    let Some(punts) = shared.with_router(|half, _| half.take_punts()) else { return Ok(None) };
    let parts = Parts {
        spec: spec.clone(),
        vrfs: router::tables(desired, spec.table),
        pool,
        punts,
        rings: shared.workers.take_host_rings(),
        statics: router::neighbors(desired)?,
    };
    let linux = Linux::start(shared, parts)?;
    let _ = shared.linux.set(linux.view.clone());
    Ok(Some(linux))
}

/// Starts DPDK, on the control CPU.
fn prepare(desired: &Desired) -> Result<&'static Eal, StartError> {
    let dpdk = &desired.dpdk;
    thread::pin(&[dpdk.control_cpu].into_iter().collect()).map_err(check::MachineError::from)?;
    let config = EalConfig {
        file_prefix: dpdk.file_prefix.clone(),
        memory: match dpdk.memory {
            MemorySpec::Hugepages { megabytes } => Memory::Hugepages { mb: megabytes },
            MemorySpec::NoHuge { megabytes } => Memory::NoHuge { mb: megabytes },
        },
        telemetry: dpdk.telemetry,
        pci: pci(desired),
        control_cpu: Some(dpdk.control_cpu),
        extra_args: dpdk.eal_args.clone(),
        ..EalConfig::default()
    };
    Ok(Eal::init(&config)?)
}

/// Which PCI devices DPDK looks at: those that are ports, as it would take every other one that it has a driver for. All of
/// them where a scan is asked for without such a port.
fn pci(desired: &Desired) -> Pci {
    let is_pci = |d: &&str| device::pci_address(device::name(d)).is_some();
    let ports: Vec<String> =
        desired.ports.iter().map(|p| p.device.as_str()).filter(is_pci).map(device::normal).collect();
    match (desired.dpdk.pci, ports.is_empty()) {
        (false, _) => Pci::Off,
        (true, true) => Pci::All,
        (true, false) => Pci::Named(ports),
    }
}

/// Pools, ports, graphs, workers.
fn bring_up(
    eal: &'static Eal,
    desired: &Desired,
    product: &Product,
    checked: Checked,
) -> Result<Shared, StartError> {
    let clock = Clock::new(tsc, tsc_hz());
    let domain = Domain::new();
    let mut pools = Pools::new(eal, desired, checked.need);
    let (opened, peers) = ports::open(eal, desired, &mut pools)?;
    let (ports, queues): (Vec<PortState>, Vec<_>) =
        opened.into_iter().map(|o| (o.state, (o.rx, o.tx))).unzip();
    let mut router = match product {
        Product::Router => Some(RouterHalf::new(desired, &ports, domain.clone(), clock.now())?),
        Product::Io { .. } => None,
    };
    if router.is_some() {
        // The tables are as large as the configuration makes them; what routes learned later add stays on small pages.
        linerate_dpdk::large_pages();
    }
    let seed = router::seed(&ports);
    let setups = deal(desired, queues, &mut pools, || match (product, &mut router) {
        (Product::Router, Some(router)) => {
            router.graph(desired, seed).map(|(graph, on_tick)| (graph, Some(on_tick)))
        }
        (Product::Io { to }, _) => Ok((graphs::io::graph(to)?, None)),
        (Product::Router, None) => Ok((graphs::io::graph(&[])?, None)),
    })?;
    let common = Common {
        clock,
        domain,
        ring_capacity: RING,
        shared_cpu: checked.one_cpu,
        host_rings: desired.linux.is_some(),
        on_thread: Arc::new(|_| match register_worker_thread() {
            Ok(registration) => Ok(Box::new(registration)),
            Err(error) => Err(error.to_string()),
        }),
    };
    let workers = Workers::start(setups, &common)?;
    Ok(Shared {
        loads: Mutex::new(vec![Load::default(); workers.views().len()]),
        workers,
        ports,
        router: Turns::new(router),
        pools: pools.all(),
        peers: Mutex::new(peers),
        clock,
        linux: OnceLock::new(),
    })
}

/// Deals the queues out to workers.
fn deal(
    desired: &Desired,
    queues: Vec<(Vec<RxQueue>, Vec<TxQueue>)>,
    pools: &mut Pools,
    mut graph: impl FnMut() -> Result<(Graph<Mbuf>, Option<OnTick<Mbuf>>), StartError>,
) -> Result<Vec<WorkerSetup<Mbuf>>, StartError> {
    let cpus = linerate_linux::cpus::Cpus::default();
    let mut setups = Vec::new();
    for spec in &desired.workers {
        let (graph, on_tick) = graph()?;
        let node = cpus.numa_node(spec.cpu).and_then(|n| u32::try_from(n).ok());
        setups.push(WorkerSetup {
            cpu: Some(spec.cpu),
            idle: spec.idle,
            graph,
            alloc: ports::alloc(pools.on(node)?),
            on_tick,
            rx: Vec::new(),
            tx: Vec::new(),
        });
    }
    let places = place::receive(&desired.ports, desired.workers.len());
    for (((id, (rx, tx)), spec), places) in queues.into_iter().enumerate().zip(&desired.ports).zip(places) {
        let port = id as PortId;
        let spread: Arc<[usize]> = spec.spread.as_slice().into();
        for ((queue, device), worker) in rx.into_iter().enumerate().zip(places) {
            setups[worker].rx.push(RxSlot {
                port,
                queue: queue as u16,
                device: Box::new(device),
                spread: spread.clone(),
                counters: Arc::default(),
            });
        }
        for (worker, device) in tx.into_iter().enumerate().take(setups.len()) {
            setups[worker].tx.push((port, Box::new(device)));
        }
    }
    Ok(setups)
}

/// Watches over neighbours, links and loads until told to stop.
fn watch(shared: &Shared, orders: &Receiver<Order>) {
    let mut links = Links(vec![None; shared.ports.len()]);
    let mut below = Below::open(&shared.ports);
    let mut meters: Vec<Meter> = shared.workers.views().iter().map(Meter::read).collect();
    let mut spare = Spare::default();
    let (mut links_at, mut loads_at) = (Instant::now(), Instant::now() + LOADS);
    let mut wait = ROUND;
    loop {
        match orders.recv_timeout(wait) {
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let busy = shared.router().as_mut().is_some_and(|r| r.round(shared.clock.now()));
        wait = if busy { BUSY_ROUND } else { ROUND };
        let now = Instant::now();
        let changed = below.as_mut().is_some_and(|below| below.follow(&shared.ports));
        if changed || now >= links_at {
            links_at = now + LINKS;
            links.look(|port| shared.ports[port].is_up(), |port, up| tell_link(shared, port as PortId, up));
        }
        if now >= loads_at {
            loads_at = now + LOADS;
            shared.with_router(|half, _| {
                if spare.look(half.router.prefixes()) {
                    half.router.compact(linerate_dpdk::discard);
                    linerate_dpdk::trim();
                }
            });
            let mut loads = shared.loads.lock().unwrap_or_else(PoisonError::into_inner);
            for ((load, meter), view) in loads.iter_mut().zip(&mut meters).zip(shared.workers.views()) {
                let next = Meter::read(view);
                *load = next.since(meter, shared.clock);
                *meter = next;
            }
        }
    }
}

/// Interfaces of Linux below ports whose drivers always say that the link is up.
struct Below(LinkStates);

impl Below {
    /// `None` where there are no such ports, or the kernel does not tell: then their links count as up.
    fn open(ports: &[PortState]) -> Option<Below> {
        let names: Vec<String> =
            ports.iter().filter_map(|p| Some(p.kernel_interface()?.to_owned())).collect();
        if names.is_empty() {
            return None;
        }
        let states = LinkStates::open(names);
        let below = states.map(Below).inspect_err(|error| {
            tracing::warn!("the states of Linux interfaces below ports cannot be followed: {error}");
        });
        let below = below.ok()?;
        below.tell(ports);
        Some(below)
    }

    /// Takes in what has changed, and whether anything has.
    fn follow(&mut self, ports: &[PortState]) -> bool {
        match self.0.follow() {
            Ok(false) => false,
            Ok(true) => {
                self.tell(ports);
                true
            }
            Err(error) => {
                tracing::debug!("{error}");
                false
            }
        }
    }

    fn tell(&self, ports: &[PortState]) {
        for port in ports {
            if let Some(running) = port.kernel_interface().and_then(|name| self.0.is_running(name)) {
                port.set_running_below(running);
            }
        }
    }
}

/// What workers and router were last told of each port's link. Nothing at first: a link may have come up, or gone, between
/// the moment at which the router was made and the first look.
struct Links(Vec<Option<bool>>);

impl Links {
    /// Asks for the state of each link and tells those that are not known yet. `tell` says whether that was possible;
    /// otherwise it is tried again the next time.
    fn look(&mut self, is_up: impl Fn(usize) -> bool, mut tell: impl FnMut(usize, bool) -> bool) {
        for (port, told) in self.0.iter_mut().enumerate() {
            let is = is_up(port);
            if *told != Some(is) && tell(port, is) {
                *told = Some(is);
            }
        }
    }
}

/// Tells workers and router of a link's state, which may be the one they know.
fn tell_link(shared: &Shared, port: PortId, up: bool) -> bool {
    let told = shared.workers.set_port_up(port, up).is_ok();
    if told && let Some(router) = shared.router().as_mut() {
        router.set_link(shared.clock.now(), port, up);
    }
    told
}

/// Ends everything, in the order of dependence. What fails does not keep the rest from being ended; the first failure
/// is reported.
fn take_down(eal: &'static Eal, shared: &Shared) -> Result<(), StopError> {
    let remains = shared.workers.stop().map_err(StopError::Workers)?;
    drop(remains);
    let mut failed = None;
    for port in &shared.ports {
        if let Err(error) = port.stop() {
            failed.get_or_insert(StopError::Port(error));
        }
    }
    let peers: HashMap<_, _> =
        std::mem::take(&mut *shared.peers.lock().unwrap_or_else(PoisonError::into_inner));
    drop(peers);
    for pool in shared.pools.iter().filter(|p| p.in_use() > kept_buffers()) {
        failed.get_or_insert(StopError::Leak { pool: pool.name().into(), packets: pool.in_use() });
    }
    if let Err(error) = eal.cleanup()
        && !matches!(error, CleanupError::NotRunning)
    {
        failed.get_or_insert(error.into());
    }
    failed.map_or(Ok(()), Err)
}

/// A reading of a worker's counters.
#[derive(Clone, Copy)]
struct Meter {
    cycles: u64,
    busy_cycles: u64,
    batches: u64,
    entered: u64,
    packets: u64,
}

impl Meter {
    fn read(view: &WorkerView) -> Self {
        let c = &view.counters;
        Meter {
            cycles: c.cycles.get(),
            busy_cycles: c.busy_cycles.get(),
            // The first node sees each burst as one batch.
            batches: view.nodes.first().map_or(0, |n| n.batches.get()),
            entered: view.nodes.first().map_or(0, |n| n.packets.get()),
            packets: c.ports.iter().map(|p| p.received.get() + p.handed_in.get()).sum(),
        }
    }

    fn since(&self, before: &Meter, clock: Clock) -> Load {
        let of = |f: fn(&Meter) -> u64| f(self).wrapping_sub(f(before)) as f64;
        let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let (cycles, busy) = (of(|m| m.cycles), of(|m| m.busy_cycles));
        let packets = of(|m| m.packets);
        Load {
            busy: per(busy, cycles),
            cycles_per_packet: per(busy, packets),
            packets_per_burst: per(of(|m| m.entered), of(|m| m.batches)),
            packets_per_second: per(packets, cycles / clock.hz() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn only_pci_devices_that_are_ports_are_taken() {
        let mut d = super::check::tests::desired();
        assert_eq!(pci(&d), Pci::Off);
        d.dpdk.pci = true;
        assert_eq!(pci(&d), Pci::All);
        d.ports[1].device = "1:00.0,x=1".into();
        assert_eq!(pci(&d), Pci::All, "not an address");
        d.ports[1].device = "C1:00.0,x=1".into();
        assert_eq!(pci(&d), Pci::Named(vec!["0000:c1:00.0,x=1".into()]));
    }

    #[test]
    fn a_link_that_came_up_while_the_instance_started_is_told() {
        let mut links = Links(vec![None; 2]);
        let (is, told) = (RefCell::new([true, false]), RefCell::new(Vec::new()));
        let mut look = |possible: bool| {
            links.look(
                |port| is.borrow()[port],
                |port, up| {
                    told.borrow_mut().push((port, up));
                    possible
                },
            );
            told.take()
        };
        assert_eq!(look(true), [(0, true), (1, false)], "whatever the router was made with");
        assert_eq!(look(true), [], "known");
        is.borrow_mut()[1] = true;
        assert_eq!((look(false), look(true), look(true)), (vec![(1, true)], vec![(1, true)], vec![]));
    }
}

//! `linerate bench forward`: the router's cost per packet beside the bare I/O of the same devices.
//!
//! Two `net_pcap` ports replay preloaded frames for ever and drop what they send, so one worker is never idle and nothing else
//! is needed. Per kind of traffic several workers share the ports and one CPU and take turns, all of them in every round: one
//! only moves packets (the I/O floor), the others are routers with tables of different size. The rate is packets sent per
//! second of CPU time that the worker's thread got. In each round every window of a router stands beside one of the floor.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linerate_dpdk::{
    Eal, EalConfig, Mbuf, Memory, Pci, Pool, PoolConfig, register_worker_thread, tsc, tsc_hz,
};
use linerate_engine::clock::Clock;
use linerate_engine::desired::IdleSpec;
use linerate_engine::graphs::{io, router as router_graph};
use linerate_engine::workers::{Common, QueueCounters, RxSlot, WorkerSetup, Workers};
use linerate_pipeline::{Batch, Graph, IfIndex, Interface, PacketAlloc, PortId};
use linerate_router::neighbor::NeighborOptions;
use linerate_router::{RouteAction, Router, RouterConfig, StaticNeighbor};
use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::prefix::Prefix;
use linerate_tables::qsbr::Domain;
use linerate_tester::flow::{Flows, Hop};
use linerate_tester::ip::Ip;
use linerate_tester::stats::Summary;
use linerate_tester::table::{self, NEXT_HOPS, Routes};
use serde_json::json;

use super::forward_io::{Pair, port_mac, write_pcap};
use super::report::{Host, Measured, Report};
use super::routes;

/// Frames per port where destinations are few, and where they are spread over a table: beyond the L2 cache.
const FRAMES: (usize, usize) = (4096, 32_768);

/// Routes of the large table.
const LARGE: usize = 4_000_000;

/// Buffers: two ports' preloaded frames and what a worker has in hand.
const BUFFERS: u32 = 2 * 32_768 + 8191;

/// Seed of tables and destinations.
const SEED: u64 = 1;

/// What `linerate bench forward` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct ForwardBenchArgs {
    /// A file with IPv4 routes: lines of `prefix nexthop` or MRT, plain, gzip or bzip2; without it a generated table of
    /// 612,927 routes
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// The same for IPv6; without it a generated table of 160,147 routes
    #[arg(long, value_name = "FILE")]
    routes6: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Rounds of every measurement; each contender has its turn once per round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Milliseconds per window; a turn has two
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u16).range(10..))]
    window: u16,
    /// CPU of the worker; the last allowed one by default
    #[arg(long)]
    cpu: Option<usize>,
    /// No table of 4 million routes, 64-byte frames only
    #[arg(long)]
    quick: bool,
}

/// Runs the benchmark.
pub(crate) fn run(args: ForwardBenchArgs) -> Result<()> {
    let _leaving = crate::interrupt::leave_nothing()?;
    let read4 = |p: &Path| routes::read::<u32>(p);
    let full4 = match &args.routes {
        Some(path) => prepared(read4(path)?),
        None => table::ipv4(SEED, table::IPV4_ROUTES, NEXT_HOPS),
    };
    let full6 = match &args.routes6 {
        Some(path) => prepared(routes::read::<u128>(path)?),
        None => table::ipv6(SEED, table::IPV6_ROUTES, NEXT_HOPS),
    };
    let mut bench = Bench::start(args.cpu, args.rounds, args.window)?;
    let few4 = few(0xc612_0000u32, 24);
    let few6 = few(0x2001_0db8u128 << 96, 64);
    let one4: Routes<u32> = Prefix::new(0, 0).map(|p| (p, 1)).into_iter().collect();
    let one6: Routes<u128> = Prefix::new(0, 0).map(|p| (p, 1)).into_iter().collect();
    let sizes: &[u16] = if args.quick { &[64] } else { &[64, 512, 1518] };

    for size in sizes {
        bench.group(&few4, FRAMES.0, *size, &[("16", &few4), ("1", &one4)])?;
    }
    for size in sizes {
        bench.group(&full4, FRAMES.1, *size, &[("full", &full4), ("1-spread", &one4)])?;
    }
    bench.group(&few6, FRAMES.0, 64, &[("16", &few6)])?;
    bench.group(&full6, FRAMES.1, 64, &[("full", &full6), ("1-spread", &one6)])?;
    if !args.quick {
        let large = prepared(routes::extended(&full4, LARGE));
        bench.group(&large, FRAMES.1, 64, &[("4M", &large), ("1-spread-4M", &one4)])?;
    }
    bench.finish(&args, (full4.len(), full6.len()))
}

/// Sorted, without duplicates, with next hops that the bench's network has.
fn prepared<A: Ip>(mut routes: Routes<A>) -> Routes<A> {
    routes.iter_mut().for_each(|r| r.1 = 1 + r.1.wrapping_sub(1) % NEXT_HOPS);
    routes.sort_by_key(|(p, _)| (p.first(), p.len()));
    routes.dedup_by_key(|(p, _)| *p);
    routes
}

/// 16 neighbouring networks.
pub(super) fn few<A: Ip>(base: A, len: u8) -> Routes<A> {
    (0..16u64).filter_map(|i| Some((Prefix::new(base.step(len, i)?, len)?, 1 + i as u32))).collect()
}

/// What all groups share.
pub(super) struct Bench {
    pub(super) eal: &'static Eal,
    pub(super) pool: &'static Pool,
    pub(super) clock: Clock,
    pub(super) cpu: usize,
    pub(super) rounds: u16,
    window: Duration,
    pub(super) dir: tempfile::TempDir,
    pub(super) serial: usize,
    pub(super) memory: &'static str,
    pub(super) results: Vec<Measured>,
}

/// A worker that takes turns with others.
pub(super) struct Contender {
    pub(super) name: &'static str,
    workers: Workers<Mbuf>,
    /// Packets per microsecond of CPU time, by window.
    pub(super) rates: Vec<f64>,
}

struct FromPool(&'static Pool);

impl PacketAlloc<Mbuf> for FromPool {
    fn alloc(&mut self) -> Option<Mbuf> {
        self.0.alloc()
    }

    fn alloc_bulk(&mut self, batch: &mut Batch<Mbuf>, n: usize) -> bool {
        self.0.alloc_bulk(batch, n)
    }
}

impl Bench {
    pub(super) fn start(cpu: Option<usize>, rounds: u16, window_ms: u16) -> Result<Self> {
        let allowed: Vec<usize> = linerate_linux::thread::allowed_cpus()?.iter().collect();
        let last = allowed.last().copied().unwrap_or(0);
        let mb = 320;
        let free = linerate_linux::memory::free_hugepages(Path::new("/sys")) >> 20;
        let (memory, pages) = match free >= u64::from(mb) {
            true => (Memory::Hugepages { mb }, "hugepages"),
            false => (Memory::NoHuge { mb }, "ordinary pages: rates are lower than with hugepages"),
        };
        let eal = Eal::init(&EalConfig {
            file_prefix: format!("linerate-bench-{}", std::process::id()),
            memory,
            pci: Pci::Off,
            control_cpu: allowed.first().copied(),
            ..EalConfig::default()
        })?;
        let dir = tempfile::tempdir().context("a directory for capture files")?;
        crate::interrupt::remove(dir.path());
        let config = PoolConfig { name: "bench".into(), size: BUFFERS, data_room: 2048, socket: None };
        Ok(Bench {
            eal,
            pool: Pool::create(eal, &config)?,
            clock: Clock::new(tsc, tsc_hz()),
            cpu: cpu.unwrap_or(last),
            rounds,
            window: Duration::from_millis(window_ms.into()),
            dir,
            serial: 0,
            memory: pages,
            results: Vec::new(),
        })
    }

    /// One kind of traffic: destinations inside `inside`, and routers with each of `tables` beside the floor.
    fn group<A: Table>(
        &mut self,
        inside: &Routes<A>,
        frames: usize,
        size: u16,
        tables: &[(&'static str, &Routes<A>)],
    ) -> Result<()> {
        let names = tables.iter().map(|t| t.0).collect::<Vec<_>>().join(", ");
        let mut real = size;
        let files = self.files(&format!("{}, {size} bytes: floor and {names}", A::NAME), |path, port| {
            let flows = Flows::pick(inside, hops(), frames, &[], SEED + u64::from(port))?;
            real = write_pcap(path, &flows.list, size, port)?;
            Ok(())
        })?;
        let pair = Pair::open(self.eal, self.pool, &files, self.serial)?;
        let mut contenders = vec![self.contender("io", &pair, 0, Domain::new(), io::graph(&[1, 0])?)?];
        let mut routers = Vec::new();
        for (i, (name, routes)) in tables.iter().enumerate() {
            let domain = Domain::new();
            let mut router = router(domain.clone(), A::routes(routes))?;
            let parts = router_graph::RouterParts {
                plane: router.plane(),
                seed: 7,
                icmp_errors_per_second: 10,
                punt: None,
            };
            let built = router_graph::graph(&parts)?;
            contenders.push(self.contender(name, &pair, i + 1, domain, built.graph)?);
            router.tick(self.clock.now());
            routers.push((router, built.line));
        }
        self.race(&pair, &mut contenders);
        self.note::<A>(real, &contenders);
        Self::end(contenders)
    }

    /// The capture files of a group, one for each port, as `write` makes them.
    pub(super) fn files(
        &mut self,
        title: &str,
        mut write: impl FnMut(&Path, PortId) -> Result<()>,
    ) -> Result<[PathBuf; 2]> {
        self.serial += 1;
        let _ = writeln!(std::io::stderr(), "{title} in turn");
        let file = |port: u8| self.dir.path().join(format!("{}-{port}.pcap", self.serial));
        let files = [file(0), file(1)];
        for (file, port) in files.iter().zip(0..) {
            write(file, port)?;
        }
        Ok(files)
    }

    /// All contenders take turns, all of them in every round.
    pub(super) fn race(&self, pair: &Pair, contenders: &mut [Contender]) {
        for _ in 0..self.rounds {
            for (i, c) in contenders.iter_mut().enumerate() {
                pair.turn(i);
                self.measure(c);
            }
        }
        pair.turn(usize::MAX);
    }

    /// Stops the contenders of a group. An error where one has dropped anything.
    pub(super) fn end(contenders: Vec<Contender>) -> Result<()> {
        contenders.into_iter().try_for_each(Contender::stop)
    }

    /// One turn of a contender: two windows, after a moment to get going.
    pub(super) fn measure(&self, c: &mut Contender) {
        thread::sleep(self.window / 4);
        for _ in 0..2 {
            let before = c.reading();
            thread::sleep(self.window);
            let after = c.reading();
            c.rates.push((after.0 - before.0) as f64 * 1e3 / (after.1 - before.1).max(1) as f64);
        }
    }

    pub(super) fn contender(
        &self,
        name: &'static str,
        pair: &Pair,
        me: usize,
        domain: Domain,
        graph: Graph<Mbuf>,
    ) -> Result<Contender> {
        let (rx, tx) = pair.queues(me);
        let slot = |(i, queue)| RxSlot {
            port: i as PortId,
            queue: 0,
            device: Box::new(queue) as _,
            spread: Arc::default(),
            counters: Arc::new(QueueCounters::default()),
        };
        let setup = WorkerSetup {
            cpu: Some(self.cpu),
            // Who has not the turn sleeps nearly all of the time.
            idle: IdleSpec::Sleep { max_microseconds: 5000 },
            graph,
            alloc: Box::new(FromPool(self.pool)),
            rx: rx.into_iter().enumerate().map(slot).collect(),
            tx: tx.into_iter().enumerate().map(|(i, q)| (i as PortId, Box::new(q) as _)).collect(),
            on_tick: None,
        };
        let common = Common {
            clock: self.clock,
            domain,
            ring_capacity: 64,
            shared_cpu: false,
            host_rings: false,
            on_thread: Arc::new(|_| match register_worker_thread() {
                Ok(guard) => Ok(Box::new(guard) as _),
                Err(e) => Err(e.to_string()),
            }),
        };
        Ok(Contender { name, workers: Workers::start(vec![setup], &common)?, rates: Vec::new() })
    }

    /// Takes the figures of a group down.
    fn note<A: Ip>(&mut self, size: u16, contenders: &[Contender]) {
        let Some((floor, routers)) = contenders.split_first() else { return };
        let floor_summary = Summary::of(&floor.rates);
        // Named after the traffic, which is the first table's.
        let traffic = routers.first().map_or("io", |c| c.name);
        let floor_id = format!("forward.{}.{traffic}.{size}.floor", A::ID);
        let floor_rate = Measured::new(&floor_id, "Mpps", &floor.rates);
        self.results.push(floor_rate.clone());
        for c in routers {
            let s = Summary::of(&c.rates);
            let id = |what: &str| format!("forward.{}.{}.{size}.{what}", A::ID, c.name);
            let mut rate = Measured::new(id("rate"), "Mpps", &c.rates);
            rate.floor = Some(floor_rate.value);
            rate.peer = Some(floor_id.clone());
            rate.ratio = Some(rate.value / floor_rate.value);
            let mut best = Measured::new(id("best"), "Mpps", &[s.best_tenth]);
            best.floor = Some(floor_summary.best_tenth);
            best.peer = Some(floor_id.clone());
            best.ratio = Some(s.best_tenth / floor_summary.best_tenth);
            let above =
                Measured::new(id("cost"), "ns", &[1e3 / s.best_tenth - 1e3 / floor_summary.best_tenth]);
            self.results.extend([rate, best, above]);
        }
    }

    fn finish(self, args: &ForwardBenchArgs, routes: (usize, usize)) -> Result<()> {
        let config = json!({
            "routes4": routes.0,
            "routes6": routes.1,
            "rounds": args.rounds,
            "window_ms": args.window,
            "cpu": self.cpu,
            "devices": "two net_pcap ports, infinite_rx, transmit drops",
            "rate": "packets sent per second of CPU time of the worker's thread; floor is the same ports with nothing in between",
        });
        self.report(config, args.json, targets)
    }

    /// Prints everything, with the targets that `note` knows of.
    pub(super) fn report(
        self,
        config: serde_json::Value,
        json: bool,
        note: impl FnOnce(&mut Report),
    ) -> Result<()> {
        let host = Host::here(self.memory.into());
        let mut report = Report { host, config, results: self.results, targets: Vec::new() };
        note(&mut report);
        let mut out = std::io::stdout().lock();
        match json {
            true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
            false => write!(out, "{}", report.text())?,
        }
        Ok(())
    }
}

/// What the router is measured by.
fn targets(report: &mut Report) {
    let of = |id: &str| report.results.iter().find(|r| r.id == id);
    let ratio = |id: &str| of(id).and_then(|r| r.ratio);
    let growth = |a: &str, b: &str| Some(of(a)?.value / of(b)?.value - 1.0);
    let targets = [
        ("IPv4, full table, 64 B: share of the floor", ratio("forward.ipv4.full.64.best"), 0.5, true),
        ("IPv4, 16 routes, 64 B: share of the floor", ratio("forward.ipv4.16.64.best"), 0.5, true),
        ("IPv6, full table, 66 B: share of the floor", ratio("forward.ipv6.full.66.best"), 0.4, true),
        ("IPv4, full table, 512 B: share of the floor", ratio("forward.ipv4.full.512.best"), 0.6, true),
        ("IPv4, full table, 1518 B: share of the floor", ratio("forward.ipv4.full.1518.best"), 0.6, true),
        (
            "cost per packet, 1 route to full table: growth",
            growth("forward.ipv4.1-spread.64.rate", "forward.ipv4.full.64.rate"),
            0.35,
            false,
        ),
        (
            "cost per packet, 1 route to 4 M: growth",
            growth("forward.ipv4.1-spread-4M.64.rate", "forward.ipv4.4M.64.rate"),
            0.60,
            false,
        ),
    ];
    for (what, measured, bar, at_least) in targets {
        report.target(what, measured, bar, at_least, "");
    }
}

impl Contender {
    /// Ends its worker, which must have sent everything.
    pub(super) fn stop(self) -> Result<()> {
        self.workers.stop()?;
        let views = self.workers.views();
        let lost = views.iter().flat_map(|v| &v.counters.ports).map(|p| p.dropped()).sum::<u64>();
        if lost > 0 || !self.workers.imbalance().is_empty() {
            return Err(anyhow!(
                "the worker of {} dropped {lost} packets; its figure would be wrong",
                self.name
            ));
        }
        Ok(())
    }

    /// Packets given to devices so far, and nanoseconds of CPU time the thread had.
    fn reading(&self) -> (u64, u64) {
        let view = &self.workers.views()[0];
        let sent = view.counters.ports.iter().map(|p| p.tx_packets.get()).sum();
        (sent, linerate_linux::thread::cpu_time(Path::new("/proc"), view.thread).unwrap_or(0))
    }
}

/// How a family's routes are given to the router.
pub(super) trait Table: Ip {
    fn routes(routes: &Routes<Self>) -> Vec<(IpNet, Arc<RouteAction>)>;
}

impl Table for u32 {
    fn routes(routes: &Routes<u32>) -> Vec<(IpNet, Arc<RouteAction>)> {
        let actions: Vec<_> = (0..=NEXT_HOPS).map(|n| Arc::new(RouteAction::via(gateway4(n)))).collect();
        let of = |(p, n): &(Prefix<u32>, u32)| {
            let net = Ipv4Net::new(p.first().into(), p.len()).ok()?;
            Some((IpNet::V4(net), actions.get(*n as usize)?.clone()))
        };
        routes.iter().filter_map(of).collect()
    }
}

impl Table for u128 {
    fn routes(routes: &Routes<u128>) -> Vec<(IpNet, Arc<RouteAction>)> {
        let actions: Vec<_> = (0..=NEXT_HOPS).map(|n| Arc::new(RouteAction::via(gateway6(n)))).collect();
        let of = |(p, n): &(Prefix<u128>, u32)| {
            let net = Ipv6Net::new(p.first().into(), p.len()).ok()?;
            Some((IpNet::V6(net), actions.get(*n as usize)?.clone()))
        };
        routes.iter().filter_map(of).collect()
    }
}

/// Next hop `n` is behind port `n mod 2`, in 172.31.PORT.0/24 and 2001:db8:fffe:PORT::/64.
fn gateway4(n: u32) -> std::net::IpAddr {
    std::net::Ipv4Addr::from_bits(0xac1f_000a + ((n % 2) << 8) + n).into()
}

fn gateway6(n: u32) -> std::net::IpAddr {
    let net = 0x2001_0db8_fffe_u128 << 80 | u128::from(n % 2) << 64;
    std::net::Ipv6Addr::from_bits(net | u128::from(10 + n)).into()
}

/// By next hop: only their number matters to the choice of destinations.
pub(super) fn hops() -> Arc<[Hop]> {
    (0..=NEXT_HOPS)
        .map(|n| Hop { port: (n % 2) as PortId, destination_mac: [2; 6], source_mac: [2; 6] })
        .collect()
}

/// A router between the two ports with 64 neighbours and these routes.
pub(super) fn router(
    domain: Domain,
    routes: Vec<(IpNet, Arc<RouteAction>)>,
) -> Result<Router<Ip4Fib, Ip6Fib>> {
    let (fib4, fib6) = (Ip4Fib::new(&domain)?, Ip6Fib::new(&domain)?);
    let mut router = Router::new(domain, fib4, fib6, NeighborOptions::default())?;
    let interfaces = (0..2u32)
        .map(|port| {
            let addresses = [
                IpNet::new(std::net::Ipv4Addr::from_bits(0xac1f_0001 + (port << 8)).into(), 24),
                IpNet::new(
                    std::net::Ipv6Addr::from_bits(0x2001_0db8_fffe_u128 << 80 | u128::from(port) << 64 | 1)
                        .into(),
                    64,
                ),
            ];
            let addresses: Vec<IpNet> = addresses.into_iter().flatten().collect();
            let port = port as PortId;
            (port as IfIndex, Interface::new(&format!("p{port}"), port, port_mac(port), 1500, &addresses))
        })
        .collect();
    let neighbors = (1..=NEXT_HOPS)
        .flat_map(|n| {
            [gateway4(n), gateway6(n)].map(|address| StaticNeighbor {
                interface: (n % 2) as IfIndex,
                address,
                mac: [0x02, 0, 0x5e, 0x10, 0, n as u8],
            })
        })
        .collect();
    router.apply(0, RouterConfig { interfaces, routes, neighbors, vrfs: Vec::new() })?;
    Ok(router)
}

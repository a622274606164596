//! `linerate demo`: tester and router in one process, joined by DPDK rings. No NIC, no root, no hugepages.
//!
//! The tester has one CPU and a real router worker the other. A full table is loaded, test frames go to random destinations
//! inside it, every packet that comes back is checked, and the same is done with a worker that only moves packets (the I/O
//! floor). Read [`plan`] for the network, [`station`] for the order of measurements, [`measure`] for one of them.

mod breaker;
pub(crate) mod cpus;
mod floor;
pub(crate) mod measure;
pub(crate) mod outcome;
pub(crate) mod plan;
mod report;
pub(crate) mod router;
pub(crate) mod station;
pub(crate) mod tables;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use linerate_dpdk::{Eal, Pool, PoolConfig};
use linerate_engine::desired::IdleSpec;
use linerate_tester::flow::Flows;
use linerate_tester::report::results::Results;
use linerate_tester::wire_rate::SIZES;

use breaker::{Break, Breaker};
use measure::{Ends, Meter, Timing};
use outcome::{Case, Outcome};
use station::{Frames, Schedule, Station};

/// Destinations per family.
const FLOWS: usize = 1 << 18;

/// Seed of tables and destinations: the demo is the same every time.
const SEED: u64 = 2544;

/// Packet buffers of the tester: what is under way, jumbo frames in five pieces, and room to lose some.
const BUFFERS: u32 = 16_383;

/// Bytes of frame data per buffer.
const BUFFER_SIZE: u16 = 2048;

/// Forward a full routing table in this process, check every packet, write a report.
///
/// Needs no NIC, no root and no hugepages: tester and router are threads of this process, joined by DPDK rings. Takes under a
/// minute. Exit code 0 only if every packet sent came back and was right.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Routing table to load instead of the built-in one: MRT TABLE_DUMP_V2 or lines of `prefix nexthop`, plain, gzip or
    /// bzip2
    #[arg(long, value_name = "FILE")]
    rib: Option<PathBuf>,

    /// A few seconds only: three sizes, short measurements
    #[arg(long)]
    quick: bool,

    /// Where to write the HTML report; the figures go beside it as .json
    #[arg(long, value_name = "PATH", default_value = "demo-report.html")]
    report: PathBuf,

    /// Print the figures as JSON instead of the tables
    #[arg(long)]
    json: bool,

    /// Make the router wrong on purpose: the demo must notice
    #[arg(long = "break", value_name = "WHAT", hide = true)]
    break_: Option<Break>,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let start = Instant::now();
    let _leaving = crate::interrupt::leave_nothing()?;
    let json_path = args.report.with_extension("json");
    // Before a minute of measuring is lost to a directory that cannot be written.
    for path in [&args.report, &json_path] {
        writable(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut progress = Progress::new();
    let schedule = |one_cpu| Schedule {
        sizes: if args.quick { vec![64, 1518, 9000] } else { SIZES.to_vec() },
        rounds: if args.quick { 2 } else { 4 },
        timing: Timing {
            warm_up: Duration::from_millis(if args.quick { 10 } else { 40 }),
            window: Duration::from_millis(if args.quick { 20 } else { 50 }),
            windows: if args.quick { 3 } else { 5 },
        },
        one_cpu,
    };
    let cpus = cpus::Placement::choose()?;
    let schedule = schedule(cpus.one());

    progress.step("making the routing table");
    let tables = tables::Tables::make(args.rib.as_deref(), SEED)?;
    let flows4 = Flows::pick(&tables.ipv4, plan::hops(), FLOWS, &plan::own4(), SEED);
    let flows6 = Flows::pick(&tables.ipv6, plan::hops(), FLOWS, &plan::own6(), SEED);
    let routes = (tables.ipv4.len(), tables.ipv6.len());
    progress.step(&format!(
        "loading {} IPv4 and {} IPv6 routes",
        outcome::thousands(routes.0 as u64),
        outcome::thousands(routes.1 as u64)
    ));
    let idle = if cpus.one() {
        IdleSpec::Sleep { max_microseconds: 50 }
    } else {
        // Router and floor share a CPU: the one that is not measured sleeps nearly all of the time.
        IdleSpec::Sleep { max_microseconds: 2000 }
    };
    let (mut router, load) = router::start(&tables, &cpus, idle, args.break_)?;
    drop(tables);
    let (eal, clock) = (router::eal()?, router.clock());
    let pool = Pool::create(
        eal,
        &PoolConfig { name: "tester".into(), size: BUFFERS, data_room: BUFFER_SIZE, socket: None },
    )?;
    let (floor, floor_ends) = floor::start(eal, pool, clock, cpus.worker, idle)?;
    let floor_meter = Meter {
        counters: floor.workers.views()[0].counters.clone(),
        thread: floor.workers.views()[0].thread,
        clock,
    };
    let router_ends = router.ends(pool)?;
    let router_ends = Ends {
        rx: router_ends.rx.into_iter().map(|(port, q)| (port, Breaker::new(q, args.break_))).collect(),
        tx: router_ends.tx,
    };
    let station = Station {
        frames: Frames(pool),
        router: (router_ends, router.meter()?),
        floor: (floor_ends, floor_meter),
        schedule: schedule.clone(),
    };
    let mut outcome = Outcome { routes, load, one_cpu: cpus.one(), ..Outcome::default() };
    outcome.tester_cpu = measure_all(
        station,
        flows4.as_ref().ok(),
        flows6.as_ref().ok(),
        &cpus,
        &mut progress,
        &mut outcome.cases,
    )?;
    progress.end();
    // A table of one family only is fine; one of neither is not.
    if let (Err(e), Err(_)) = (flows4, flows6) {
        return Err(e.into());
    }
    (outcome.drops, outcome.imbalance) = router.account();
    outcome.seconds = start.elapsed().as_secs_f64();
    // DPDK ends with the instance, so what else uses it must end before.
    floor.stop()?;
    router.stop()?;
    finish(args, &outcome, &schedule, &cpus, eal)
}

/// Runs the tester's thread, and shows how far it is. Returns the share of the time for which the thread had its CPU.
fn measure_all(
    mut station: Station,
    flows4: Option<&Flows<u32>>,
    flows6: Option<&Flows<u128>>,
    cpus: &cpus::Placement,
    progress: &mut Progress,
    cases: &mut Vec<Case>,
) -> Result<f64> {
    let (done, finished) = mpsc::channel();
    let cpu = cpus.tester;
    std::thread::scope(|scope| {
        let tester = std::thread::Builder::new().name("tester".into()).spawn_scoped(scope, move || {
            linerate_linux::thread::pin(&std::iter::once(cpu).collect())?;
            let _dpdk = linerate_dpdk::register_worker_thread()?;
            let used = || linerate_linux::thread::cpu_time(Path::new("/proc"), linerate_linux::thread::id());
            let (start, before) = (Instant::now(), used());
            if let Some(flows) = flows4 {
                station.family(flows, plan::source4(), |c| drop(done.send(c)))?;
            }
            if let Some(flows) = flows6 {
                station.family(flows, plan::source6(), |c| drop(done.send(c)))?;
            }
            let used = used().zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
            Ok(outcome::share(used as f64, start.elapsed().as_nanos() as f64))
        });
        for case in finished {
            progress.case(&report::line(&case));
            cases.push(case);
        }
        let tester = tester.context("the tester's thread cannot be started")?;
        tester.join().map_err(|_| anyhow!("the tester's thread ended early"))?
    })
}

/// Writes the reports, prints the result, and says by the exit code whether all was well.
fn finish(
    args: &DemoArgs,
    outcome: &Outcome,
    schedule: &Schedule,
    cpus: &cpus::Placement,
    eal: &Eal,
) -> Result<()> {
    let mut results = Results::default();
    crate::host::describe(&mut results);
    results.host("DPDK", eal.version());
    results.config(
        "table",
        match &args.rib {
            Some(file) => file.display().to_string(),
            None => format!("built-in, seed {SEED}"),
        },
    );
    results.config("IPv4 routes", outcome::thousands(outcome.routes.0 as u64));
    results.config("IPv6 routes", outcome::thousands(outcome.routes.1 as u64));
    results.config("next hops", plan::NEXT_HOPS);
    results.config("destinations per family", outcome::thousands(FLOWS as u64));
    results.config("tester on CPU", cpus.tester);
    results.config("router on CPU", cpus.worker.unwrap_or(cpus.tester));
    results.config("packets under way at most", station::WINDOW);
    results.config("ring size", floor::RING);
    results.config("memory", "ordinary pages (--no-huge)");
    let t = schedule.timing;
    results.config(
        "measured per size",
        format!(
            "{} rounds of floor and router in turn, each {} windows of {} ms",
            schedule.rounds,
            t.windows,
            t.window.as_millis()
        ),
    );
    results.config("duration", format!("{:.0} s", outcome.seconds));
    if let Some(b) = args.break_ {
        results.config("broken on purpose", format!("{b:?}"));
    }
    let results = report::results(outcome, results);
    let html = report::page(outcome, &results).html();
    let json = serde_json::to_string_pretty(&results)?;
    let json_path = args.report.with_extension("json");
    std::fs::write(&args.report, html).with_context(|| format!("cannot write {}", args.report.display()))?;
    std::fs::write(&json_path, &json).with_context(|| format!("cannot write {}", json_path.display()))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{json}")?;
    } else {
        writeln!(out, "{}", report::text(outcome))?;
        writeln!(out, "Report: {} and {}", args.report.display(), json_path.display())?;
    }
    if !outcome.passed() {
        bail!("the demo failed: {}", outcome.verdict());
    }
    Ok(())
}

/// Tries whether a file can be written, and leaves everything as it was.
fn writable(path: &Path) -> std::io::Result<()> {
    let new = !path.exists();
    std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    if new { std::fs::remove_file(path) } else { Ok(()) }
}

/// Tells on standard error what is going on.
struct Progress {
    start: Instant,
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Progress { start: Instant::now(), terminal: std::io::stderr().is_terminal() }
    }

    /// What is being done: overwritten by the next line on a terminal.
    fn step(&mut self, what: &str) {
        let (end, seconds) = (if self.terminal { "" } else { "\n" }, self.start.elapsed().as_secs_f64());
        let _ = write!(std::io::stderr(), "{}[{seconds:4.1} s] {what} …{end}", self.clear());
    }

    /// A size is done.
    fn case(&mut self, line: &str) {
        let _ = writeln!(
            std::io::stderr(),
            "{}[{:4.1} s] {line}",
            self.clear(),
            self.start.elapsed().as_secs_f64()
        );
        if self.terminal {
            self.step("measuring");
        }
    }

    fn end(&mut self) {
        let _ = write!(std::io::stderr(), "{}", self.clear());
    }

    fn clear(&self) -> &'static str {
        if self.terminal { "\r\x1b[2K" } else { "" }
    }
}

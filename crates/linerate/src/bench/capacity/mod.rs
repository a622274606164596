//! `linerate bench capacity`: millions of routes over FPM into the running router, and out again, while packets flow.
//!
//! The router as `linerate run` starts it, with its taps in a network namespace of its own and an FPM port there. One thread
//! writes what zebra would ([`feed`]), another sends packets and checks every one ([`traffic`]): while routes come and go, to
//! destinations whose routes were there first; when all are there, to destinations in the whole table. Two cycles or more:
//! memory must come back after each, and the next must not need more than the first.

mod feed;
mod traffic;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use linerate_dpdk::{Pool, PoolConfig};
use linerate_engine::desired::{IdleSpec, LinuxSpec};
use linerate_engine::instance::Instance;
use linerate_linux::{memory, thread};
use linerate_router::Source;
use linerate_router::show::{FamilyStats, RouterStats};
use linerate_tables::prefix::Prefix;
use linerate_tester::closed_loop::Trial;
use linerate_tester::flow::Flows;
use linerate_tester::ip::Ip;
use linerate_tester::oracle::Oracle;
use linerate_tester::rng::Rng;
use linerate_tester::table::{self, NEXT_HOPS, Routes};
use serde_json::json;

use self::feed::{Feed, Part, Table, Word};
use self::traffic::{Family, Mode, Switch, Traffic};
use super::report::{Host, Measured, Report};
use crate::demo::cpus::Placement;
use crate::demo::station::Frames;
use crate::demo::tables::Tables;
use crate::demo::{outcome, plan, router};

/// Destinations of each family while routes come and go: their routes come first and go last.
const KEPT: usize = 1 << 13;

/// Destinations of each family when all routes are there.
const WHOLE: usize = 1 << 18;

/// Packet buffers of the tester.
const BUFFERS: u32 = 8_191;

/// For so long packets go to the whole table in each cycle.
const SHOW: Duration = Duration::from_secs(3);

/// Nothing changes for so long: routes do not come any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// Memory has so long to come back.
const SETTLE: Duration = Duration::from_secs(3);

/// Seed of tables, destinations and order.
const SEED: u64 = 20_260;

/// What is left of what the routes took, at most: share, and bytes besides.
const LEFT: (f64, f64) = (0.05, 16e6);

/// Peak of a later cycle against that of the first, at most.
const PEAK: f64 = 1.02;

/// Where the router listens, in the namespace of the run.
const FPM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2620);

/// What `linerate bench capacity` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct CapacityArgs {
    /// IPv4 routes; k and M may follow the number
    #[arg(long, default_value = "2M", value_parser = count)]
    routes: usize,
    /// IPv6 routes
    #[arg(long, default_value = "1M", value_parser = count)]
    routes6: usize,
    /// How often all of them come and go
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    cycles: u8,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// A tenth of the routes
    #[arg(long)]
    quick: bool,
}

/// A number of routes: "200k", "4M".
fn count(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let number = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(factor));
    let fits = number.filter(|n| (20_000..=8_000_000).contains(n));
    fits.ok_or_else(|| format!("{text}: expected 20k to 8M routes"))
}

/// What one cycle came to.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    /// Seconds until all routes but the first, which are kept, were in the FIB, and CPU seconds of the thread that follows FRR.
    load: f64,
    load_cpu: f64,
    /// The same until they were gone.
    withdraw: f64,
    withdraw_cpu: f64,
    /// Bytes in memory: before, with all routes, at most, and after.
    before: u64,
    loaded: u64,
    peak: u64,
    after: u64,
}

/// Runs the benchmark; an error where a bar is not met.
pub(crate) fn run(args: &CapacityArgs) -> Result<()> {
    let _leaving = crate::interrupt::leave_nothing()?;
    let part = if args.quick { 10 } else { 1 };
    say("making the routing tables");
    let (ip4, family4) =
        table(table::ipv4(SEED, args.routes / part, NEXT_HOPS), plan::source4(), &plan::own4())?;
    let (ip6, family6) =
        table(table::ipv6(SEED, args.routes6 / part, NEXT_HOPS), plan::source6(), &plan::own6())?;
    let routes = (ip4.routes.len(), ip6.routes.len());
    ensure!(
        routes == (args.routes / part, args.routes6 / part),
        "only {} and {} routes could be made",
        routes.0,
        routes.1
    );
    let found = std::thread::scope(|scope| {
        let feed = Feed::start(scope, FPM, &ip4, &ip6)?;
        measure(scope, args, &feed, (&ip4, &ip6), (family4, family6))
    })?;
    finish(args, routes, &found)
}

fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what} …");
}

/// A table with its destinations, in the order in which it comes.
fn table<A: Ip>(routes: Routes<A>, source: A, own: &[Prefix<A>]) -> Result<(Table<A>, Family<A>)> {
    let kept = Flows::pick(&routes, plan::hops(), KEPT, own, SEED)?;
    let whole = Flows::pick(&routes, plan::hops(), WHOLE, own, SEED + 1)?;
    // An oracle that tells which route it is, not where it leads.
    let numbered = routes.iter().zip(1..).map(|((p, _), n)| (*p, n)).collect();
    let oracle = Oracle::new(&numbered);
    let by = kept.list.iter().filter_map(|f| oracle.lookup(f.destination).checked_sub(1));
    let mut first: Vec<u32> = by.collect();
    first.sort_unstable();
    first.dedup();
    let is_first = |n: &u32| first.binary_search(n).is_ok();
    let mut rest: Vec<u32> = (0..routes.len() as u32).filter(|n| !is_first(n)).collect();
    Rng::new(SEED).shuffle(&mut rest);
    let kept_routes = first.len();
    first.append(&mut rest);
    first.shrink_to_fit();
    Ok((Table { routes, order: first, kept: kept_routes }, Family::new(source, kept, whole)))
}

/// All that was found.
struct Found {
    cycles: Vec<Cycle>,
    /// Routes that come and go while the time is taken: all but those that are kept.
    moved: usize,
    trials: [Trial; 2],
    /// Routes, next-hop objects, actions and next hops that are left in the end and were not there in the beginning.
    left: usize,
    drops: Vec<(&'static str, u64)>,
    imbalance: i64,
}

fn measure<'s, 'e: 's>(
    scope: &'s std::thread::Scope<'s, 'e>,
    args: &CapacityArgs,
    feed: &Feed,
    (ip4, ip6): (&Table<u32>, &Table<u128>),
    families: (Family<u32>, Family<u128>),
) -> Result<Found> {
    let cpus = Placement::choose()?;
    let idle = if cpus.one() { IdleSpec::Sleep { max_microseconds: 50 } } else { IdleSpec::Spin };
    let linux = LinuxSpec {
        namespace: Some(feed.namespace().display().to_string()),
        fpm: Some(FPM),
        ..LinuxSpec::default()
    };
    let empty = Tables { ipv4: Vec::new(), ipv6: Vec::new() };
    let (mut router, _) = router::start_with(&empty, &cpus, idle, None, Some(linux))?;
    let pool = PoolConfig { name: "tester".into(), size: BUFFERS, data_room: 2048, socket: None };
    let pool = Pool::create(router::eal()?, &pool)?;
    let traffic = Traffic {
        ends: router.ends(pool)?,
        frames: Frames(pool),
        clock: router.clock(),
        ip4: families.0,
        ip6: families.1,
    };
    let switch = std::sync::Arc::new(Switch::default());
    let tester_cpu = cpus.tester;
    let thread = std::thread::Builder::new().name("tester".into()).spawn_scoped(scope, {
        let switch = switch.clone();
        move || {
            // However this thread ends, nobody waits for it.
            let _end = Ending(&switch);
            thread::pin(&std::iter::once(tester_cpu).collect())?;
            let _dpdk = linerate_dpdk::register_worker_thread()?;
            traffic.run(&switch)
        }
    })?;
    let instance = router.instance();
    let run = Run { feed, switch: &switch, instance, ip4, ip6 };
    let cycles = {
        let _end = Ending(&switch);
        // Until Linux has said what it has to say about new interfaces.
        std::thread::sleep(SETTLE);
        let start = run.left()?;
        let cycles = (1..=args.cycles).map(|n| run.cycle(n)).collect::<Result<Vec<_>>>();
        cycles.and_then(|cycles| Ok((cycles, run.left()?.abs_diff(start))))
    };
    let trials = thread.join().map_err(|_| anyhow!("the tester's thread ended early"))?;
    let ((cycles, left), trials) = (cycles?, trials?);
    let (drops, imbalance) = router.account();
    router.stop()?;
    let moved = ip4.count(Part::Rest) + ip6.count(Part::Rest);
    Ok(Found { cycles, moved, trials, left, drops, imbalance })
}

/// Tells the tester to end.
struct Ending<'a>(&'a Switch);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Run<'a> {
    feed: &'a Feed,
    switch: &'a Switch,
    instance: &'a Instance,
    ip4: &'a Table<u32>,
    ip6: &'a Table<u128>,
}

impl Run<'_> {
    /// All routes come, are used, and go.
    fn cycle(&self, number: u8) -> Result<Cycle> {
        let kept = (self.ip4.count(Part::Kept), self.ip6.count(Part::Kept));
        let rest = (self.ip4.count(Part::Rest), self.ip6.count(Part::Rest));
        let all = (kept.0 + rest.0, kept.1 + rest.1);
        let mut cycle = Cycle { before: resident()?, ..Cycle::default() };
        forget_peak();
        self.step(Word::Connect, (0, 0))?;
        self.step(Word::Announce(Part::Kept), kept)?;
        self.switch.set(Mode::Kept);
        let thousands = |n: usize| outcome::thousands(n as u64);
        say(&format!("cycle {number}: {} + {} routes come", thousands(rest.0), thousands(rest.1)));
        (cycle.load, cycle.load_cpu) = self.step(Word::Announce(Part::Rest), all)?;
        cycle.loaded = resident()?;
        self.switch.set(Mode::Whole);
        std::thread::sleep(SHOW);
        self.switch.set(Mode::Kept);
        say(&format!("cycle {number}: they go"));
        (cycle.withdraw, cycle.withdraw_cpu) = self.step(Word::Withdraw(Part::Rest), kept)?;
        self.switch.set(Mode::Idle);
        self.step(Word::Withdraw(Part::Kept), (0, 0))?;
        self.feed.say(Word::Close)?;
        self.feed.written()?;
        cycle.peak = peak()?;
        std::thread::sleep(SETTLE);
        cycle.after = resident()?;
        Ok(cycle)
    }

    /// Has something written and waits until the router has so many learned routes; the seconds, and those of the CPU.
    fn step(&self, word: Word, want: (usize, usize)) -> Result<(f64, f64)> {
        let (begin, cpu) = (Instant::now(), host_cpu());
        self.feed.say(word)?;
        let mut last = (self.learned()?, Instant::now());
        while last.0 != want {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.learned()?;
            if now != last.0 {
                last = (now, Instant::now());
            }
            if last.1.elapsed() > PATIENCE {
                bail!("the router has {now:?} routes, not {want:?}, and no more change");
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.feed.written()?;
        Ok((seconds, host_cpu() - cpu))
    }

    fn stats(&self) -> Result<RouterStats> {
        self.instance.with_router(|router, _| router.stats()).context("the instance has no router")
    }

    fn learned(&self) -> Result<(usize, usize)> {
        let of = |stats: &FamilyStats| {
            let of = Source::ALL.iter().zip(&stats.routes).find(|(s, _)| **s == Source::Learned);
            of.map_or(0, |(_, n)| *n)
        };
        let stats = self.stats()?;
        Ok((of(&stats.ip4), of(&stats.ip6)))
    }

    /// Everything that routes leave behind when they do.
    fn left(&self) -> Result<usize> {
        let stats = self.stats()?;
        let fpm = self.instance.linux().and_then(|l| l.status().fpm).map_or(0, |f| f.0.routes + f.0.objects);
        let routes: usize = stats.ip4.routes.iter().chain(&stats.ip6.routes).sum();
        Ok(routes + fpm + stats.actions + stats.neighbors)
    }
}

/// CPU seconds of the thread that follows Linux and FRR.
fn host_cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let named = tasks
        .filter(|t| std::fs::read_to_string(t.path().join("comm")).is_ok_and(|name| name.trim() == "linux"));
    let ids = named.filter_map(|t| t.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| thread::cpu_time(Path::new("/proc"), id)).sum::<u64>() as f64 / 1e9
}

fn resident() -> Result<u64> {
    memory::resident(Path::new("/proc")).context("/proc does not say what this process has in memory")
}

/// The most since [`forget_peak`].
fn peak() -> Result<u64> {
    memory::peak(Path::new("/proc")).context("/proc does not say what this process had in memory")
}

/// From now on. Where the kernel refuses, peaks are those of the whole run.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Prints what was found.
fn finish(args: &CapacityArgs, routes: (usize, usize), found: &Found) -> Result<()> {
    let mut report = Report {
        host: Host::here("ordinary pages".into()),
        config: json!({
            "routes4": routes.0,
            "routes6": routes.1,
            "routes_moved": found.moved,
            "next_hops": 2 * NEXT_HOPS,
            "cycles": found.cycles.len(),
            "drops": found.drops.iter().map(|(name, n)| json!({"reason": name, "packets": n})).collect::<Vec<_>>(),
            "faults": found.trials.iter().flat_map(|t| &t.tally.described).collect::<Vec<_>>(),
        }),
        results: results(routes, found),
        targets: Vec::new(),
    };
    targets(&mut report, found);
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => write!(out, "{}", report.text())?,
    }
    let missed: Vec<&str> = report.targets.iter().filter(|t| !t.met).map(|t| t.what.as_str()).collect();
    if !missed.is_empty() {
        bail!("not met: {}", missed.join("; "));
    }
    Ok(())
}

/// Packets that came back wrong, twice or out of order.
fn wrong(trials: &[Trial]) -> u64 {
    trials.iter().map(|t| t.tally.bad + t.tally.duplicates + t.tally.reordered).sum()
}

fn results(routes: (usize, usize), found: &Found) -> Vec<Measured> {
    let each = |what: &str, unit, f: &dyn Fn(&Cycle) -> f64| {
        let values: Vec<f64> = found.cycles.iter().map(f).collect();
        Measured::new(format!("router.capacity.{what}"), unit, &values)
    };
    let one = |what: &str, unit, value: f64| Measured::new(format!("router.capacity.{what}"), unit, &[value]);
    let (count, moved) = ((routes.0 + routes.1) as f64, found.moved as f64);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    vec![
        each("load", "s", &|c| c.load),
        each("load.rate", "routes/s", &|c| moved / c.load),
        each("load.cpu", "s", &|c| c.load_cpu),
        each("withdraw", "s", &|c| c.withdraw),
        each("withdraw.rate", "routes/s", &|c| moved / c.withdraw),
        each("withdraw.cpu", "s", &|c| c.withdraw_cpu),
        each("memory.before", "MiB", &|c| mib(c.before)),
        each("memory.loaded", "MiB", &|c| mib(c.loaded)),
        each("memory.peak", "MiB", &|c| mib(c.peak)),
        each("memory.after", "MiB", &|c| mib(c.after)),
        each("memory.route", "B", &|c| c.loaded.saturating_sub(c.before) as f64 / count),
        one("sent4", "packets", found.trials[0].sent as f64),
        one("sent6", "packets", found.trials[1].sent as f64),
        one("lost", "packets", found.trials.iter().map(|t| t.lost).sum::<u64>() as f64),
        one("wrong", "packets", wrong(&found.trials) as f64),
        one("unaccounted", "packets", found.imbalance as f64),
        one("left", "objects", found.left as f64),
    ]
}

fn targets(report: &mut Report, found: &Found) {
    let value = |report: &Report, what: &str| report.value(&format!("router.capacity.{what}"));
    // Where nothing was sent nothing is lost either.
    for (what, name) in [("IPv4 packets sent", "sent4"), ("IPv6 packets sent", "sent6")] {
        report.target(what, value(report, name), (found.cycles.len() * KEPT) as f64, true, "");
    }
    for (what, name) in [
        ("packets lost", "lost"),
        ("packets wrong in any way, doubled or out of order", "wrong"),
        ("packets not accounted for", "unaccounted"),
        ("routes, next hops and neighbours left", "left"),
    ] {
        report.target(what, value(report, name), 0.0, false, "");
    }
    let left = |c: &Cycle| {
        let (base, taken) = (c.before as f64, c.peak.saturating_sub(c.before) as f64);
        (c.after as f64 - base).max(0.0) / (LEFT.0 * taken + LEFT.1)
    };
    let worst = found.cycles.iter().map(left).fold(0.0, f64::max);
    let what = format!(
        "memory not given back, of {} % of what the routes took and {} MB",
        LEFT.0 * 100.0,
        LEFT.1 / 1e6
    );
    report.target(&what, Some(worst), 1.0, false, "");
    if let Some((first, later)) = found.cycles.split_first()
        && !later.is_empty()
    {
        let most = later.iter().map(|c| c.peak as f64 / first.peak as f64).fold(0.0, f64::max);
        report.target("peak memory of later cycles, of the first", Some(most), PEAK, false, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_routes() {
        assert_eq!((count("200k"), count("4M"), count("25000")), (Ok(200_000), Ok(4_000_000), Ok(25_000)));
        for bad in ["", "M", "9M", "100", "-1", "2m", "99999999999999999999M"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_of_the_routes_that_move_and_traffic_must_have_flowed() {
        let cycle = Cycle { load: 2.0, withdraw: 1.0, ..Cycle::default() };
        let found = |sent| Found {
            cycles: vec![cycle],
            moved: 900,
            trials: [sent, 1_000_000].map(|sent| Trial { sent, ..Trial::default() }),
            left: 0,
            drops: Vec::new(),
            imbalance: 0,
        };
        let report = |found: &Found| {
            let mut report = Report {
                host: Host::here(String::new()),
                config: json!({}),
                results: results((600, 400), found),
                targets: Vec::new(),
            };
            targets(&mut report, found);
            report
        };
        let good = report(&found(1_000_000));
        assert_eq!(good.value("router.capacity.load.rate"), Some(450.0));
        assert_eq!(good.value("router.capacity.withdraw.rate"), Some(900.0));
        assert!(
            good.targets.iter().all(|t| t.met),
            "{:?}",
            good.targets.iter().map(|t| &t.what).collect::<Vec<_>>()
        );
        let silent = report(&found(0));
        let missed: Vec<&str> = silent.targets.iter().filter(|t| !t.met).map(|t| t.what.as_str()).collect();
        assert_eq!(missed, ["IPv4 packets sent"]);
    }

    #[test]
    fn routes_that_traffic_goes_by_come_first() {
        let routes = table::ipv4(1, 20_000, NEXT_HOPS);
        let (table, family) = table(routes.clone(), plan::source4(), &plan::own4()).unwrap();
        assert_eq!(table.count(Part::Kept) + table.count(Part::Rest), 20_000);
        let mut first: Routes<u32> =
            table.order[..table.kept].iter().map(|n| table.routes[*n as usize]).collect();
        first.sort_unstable();
        let (some, all) = (Oracle::new(&first), Oracle::new(&routes));
        for flow in family.kept.list.iter() {
            assert_eq!(some.lookup(flow.destination), all.lookup(flow.destination));
        }
    }
}

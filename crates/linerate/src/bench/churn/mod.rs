//! `linerate bench churn`: routes change by the thousand while packets flow, and no packet may notice.
//!
//! The router as `linerate run` starts it, on ring ports, with a whole table from a routing daemon. The tester sends to
//! destinations whose routes never change and checks every packet in every byte ([`windows`]); another thread changes the
//! routes around them ([`updates`], [`changes`]). Windows with changes and without come in turn, so that what a shared machine
//! does to both is seen in both ([`judge`]).

mod changes;
mod judge;
mod updates;
mod windows;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use linerate_dpdk::{Pool, PoolConfig};
use linerate_engine::clock::Clock;
use linerate_engine::desired::IdleSpec;
use linerate_engine::instance::Instance;
use linerate_linux::thread;
use linerate_router::Source;
use linerate_router::plane::Plane;
use linerate_router::show::{FamilyStats, RouterStats};
use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::fib::{Fib, Lookup as _, NO_ROUTE, NextHopId};
use linerate_tables::prefix::Prefix;
use linerate_tester::closed_loop::{ClosedLoop, Trial};
use linerate_tester::flow::Flows;
use linerate_tester::frame::{FrameSpec, Template};
use linerate_tester::ip::Ip;
use linerate_tester::oracle::Oracle;
use linerate_tester::sink::{Expect, Fault};
use linerate_tester::table::Routes;
use serde_json::json;

use self::changes::Changes;
use self::judge::{HOLD_UP, Verdict, microseconds};
use self::updates::{Done, Learned, Pace, Switch};
use self::windows::{Presence, Round, Timing, Traffic};
use super::report::{Host, Measured, Report};
use super::stats::quantile;
use crate::demo::cpus::Placement;
use crate::demo::plan::{self, IN, TESTER_MAC, router_mac};
use crate::demo::station::Frames;
use crate::demo::tables::Tables;
use crate::demo::{outcome, router};

/// Destinations.
const FLOWS: usize = 1 << 16;

/// Packets under way at most: half of what a ring holds, so that none overflows and the worker has work for as long as the
/// tester's CPU is lent to the thread that changes routes.
const WINDOW: u32 = 2048;

/// Packet buffers of the tester.
const BUFFERS: u32 = 16_383;

/// Seed of destinations and changes.
const SEED: u64 = 4271;

/// Addresses that are looked up when all changes are made.
const PROBES: usize = 100_000;

/// Tells this program's frames from anything else.
const KEY: u64 = 0x6c69_6e65_6368_7572;

/// What `linerate bench churn` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChurnArgs {
    /// Routing table: lines of `prefix nexthop` or MRT, plain, gzip or bzip2; without it a generated one of full size
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Seconds for which routes change, in all
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    seconds: u16,
    /// Route changes per second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Changes that come together, as from a routing daemon
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Frame size in bytes, FCS included
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9000))]
    size: u16,
    /// IPv6 routes and traffic in place of IPv4's
    #[arg(long)]
    ipv6: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// A tenth of the time
    #[arg(long)]
    quick: bool,
}

impl ChurnArgs {
    /// Rounds of a second without changes and three with them; at least two.
    fn timing(&self) -> Timing {
        let window = Duration::from_millis(10);
        let seconds = if self.quick { self.seconds.div_ceil(10) } else { self.seconds };
        Timing { window, with: 300, without: 100, rounds: usize::from(seconds.div_ceil(3)).max(2) }
    }
}

/// What differs between the families.
trait Family: Ip {
    /// Routes of routing daemons that the router has.
    fn routes(stats: &RouterStats) -> usize;
    /// What the FIB says.
    fn lookup(plane: &Tables4And6, address: Self) -> NextHopId;
}

/// The router's tables, as workers read them.
type Tables4And6 = Plane<<Ip4Fib as Fib<u32>>::Reader, <Ip6Fib as Fib<u128>>::Reader>;

fn learned(stats: &FamilyStats) -> usize {
    let of = Source::ALL.iter().zip(&stats.routes).find(|(s, _)| **s == Source::Learned);
    of.map_or(0, |(_, n)| *n)
}

impl Family for u32 {
    fn routes(stats: &RouterStats) -> usize {
        learned(&stats.ip4)
    }

    fn lookup(plane: &Tables4And6, address: u32) -> NextHopId {
        plane.fib4.lookup(address)
    }
}

impl Family for u128 {
    fn routes(stats: &RouterStats) -> usize {
        learned(&stats.ip6)
    }

    fn lookup(plane: &Tables4And6, address: u128) -> NextHopId {
        plane.fib6.lookup(address)
    }
}

/// The tester's addresses.
struct Network<A> {
    source: A,
    own: Vec<Prefix<A>>,
}

/// All that was found.
struct Found {
    load: f64,
    untouched: usize,
    rounds: Vec<Round>,
    trial: Trial,
    done: Done,
    drops: Vec<(&'static str, u64)>,
    imbalance: i64,
    clock: Clock,
}

/// Runs the benchmark; an error where a bar is not met.
pub(crate) fn run(args: &ChurnArgs) -> Result<()> {
    let _leaving = crate::interrupt::leave_nothing()?;
    let cpus = Placement::choose()?;
    say("making the routing table");
    let tables = Tables::make(args.routes.as_deref(), SEED)?;
    let (routes, found) = if args.ipv6 {
        let network = Network { source: plan::source6(), own: plan::own6() };
        (tables.ipv6.len(), measure(tables.ipv6, &network, args, &cpus)?)
    } else {
        let network = Network { source: plan::source4(), own: plan::own4() };
        (tables.ipv4.len(), measure(tables.ipv4, &network, args, &cpus)?)
    };
    finish(args, &cpus, routes, &found)
}

fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what} …");
}

fn measure<A: Family>(
    routes: Routes<A>,
    network: &Network<A>,
    args: &ChurnArgs,
    cpus: &Placement,
) -> Result<Found> {
    let flows = Flows::pick(&routes, plan::hops(), FLOWS, &network.own, SEED)?;
    let idle = if cpus.one() { IdleSpec::Sleep { max_microseconds: 50 } } else { IdleSpec::Spin };
    let empty = Tables { ipv4: Vec::new(), ipv6: Vec::new() };
    let (mut router, _) = router::start(&empty, cpus, idle, None)?;
    let learned = Learned::new::<A>();
    say(&format!("loading {} {} routes", outcome::thousands(routes.len() as u64), A::NAME));
    let load = learned.load(router.instance(), &routes)?;
    let mut changes = Changes::new(routes, &flows.list, SEED);
    let untouched = changes.untouched();
    let pool = PoolConfig { name: "tester".into(), size: BUFFERS, data_room: 2048, socket: None };
    let pool = Pool::create(router::eal()?, &pool)?;
    let template = Template::new(
        FrameSpec::new::<A>(args.size).context("frame size")?,
        TESTER_MAC,
        router_mac(IN),
        network.source,
        KEY,
    );
    let traffic = Traffic {
        tester: ClosedLoop::new(template, flows, Expect::Routed, WINDOW, 0),
        ends: router.ends(pool)?,
        frames: Frames(pool),
        meter: router.meter()?,
        yielding: cpus.one(),
        presence: Presence::new(),
    };
    let clock = router.clock();
    let timing = args.timing();
    say(&format!(
        "{} rounds: {} s without changes, {} s with {} changes a second",
        timing.rounds,
        (timing.window * timing.without as u32).as_secs_f64(),
        (timing.window * timing.with as u32).as_secs_f64(),
        outcome::thousands(args.rate.into())
    ));
    let pace = Pace { rate: args.rate, batch: args.batch };
    let (rounds, trial, done) =
        together(traffic, timing, router.instance(), (&learned, &mut changes, pace), cpus)?;
    settled(router.instance(), &mut changes, &network.own)?;
    let (drops, imbalance) = router.account();
    router.stop()?;
    Ok(Found { load, untouched, rounds, trial, done, drops, imbalance, clock })
}

/// Traffic and changes at the same time.
fn together<A: Ip>(
    traffic: Traffic<A, linerate_dpdk::RxQueue, linerate_dpdk::TxQueue>,
    timing: Timing,
    instance: &Instance,
    (learned, changes, pace): (&Learned, &mut Changes<A>, Pace),
    cpus: &Placement,
) -> Result<(Vec<Round>, Trial, Done)> {
    let switch = Switch::default();
    let tester_cpu = cpus.tester;
    let control_cpu = control_cpu(&thread::allowed_cpus()?.iter().collect::<Vec<_>>(), cpus);
    std::thread::scope(|scope| {
        let switch = &switch;
        let tester = std::thread::Builder::new().name("tester".into()).spawn_scoped(scope, move || {
            // However this thread ends, the other must not wait for it.
            let _end = Ending(switch);
            thread::pin(&std::iter::once(tester_cpu).collect())?;
            let _dpdk = linerate_dpdk::register_worker_thread()?;
            anyhow::Ok(traffic.run(timing, switch))
        })?;
        let churn = std::thread::Builder::new().name("churn".into()).spawn_scoped(scope, move || {
            let _end = Ending(switch);
            thread::pin(&std::iter::once(control_cpu).collect())?;
            learned.churn(instance, changes, pace, switch)
        })?;
        let tester = tester.join().map_err(|_| anyhow!("the tester's thread ended early"))?;
        let churn = churn.join().map_err(|_| anyhow!("the thread that changes routes ended early"))?;
        let ((rounds, trial), done) = (tester?, churn?);
        Ok((rounds, trial, done))
    })
}

/// Tells both threads to end when one does.
struct Ending<'a>(&'a Switch);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Where routes are changed: a CPU of its own where there are three, else the tester's.
fn control_cpu(allowed: &[usize], cpus: &Placement) -> usize {
    let free = |c: &usize| *c != cpus.tester && Some(*c) != cpus.worker;
    allowed.iter().copied().find(free).unwrap_or(cpus.tester)
}

/// The router must have the routes that all changes together make: as many in the RIB, and in the FIB those that the slow and
/// obvious way finds, next hop by next hop.
fn settled<A: Family>(instance: &Instance, changes: &mut Changes<A>, own: &[Prefix<A>]) -> Result<()> {
    let want = changes.table();
    let oracle = Oracle::new(&want);
    let mut ids: HashMap<NextHopId, NextHopId> = HashMap::new();
    let checked = instance.with_router(|router, _| {
        let have = A::routes(&router.stats());
        ensure!(have == want.len(), "the router has {have} routes after all changes, not {}", want.len());
        let plane = router.plane();
        for address in changes.probes(PROBES) {
            if own.iter().any(|p| p.contains(address)) {
                continue;
            }
            let (want, found) = (oracle.lookup(address), A::lookup(&plane, address));
            let known = *ids.entry(want).or_insert(found);
            ensure!(
                known == found && (want == NO_ROUTE) == (found == NO_ROUTE),
                "after all changes {} does not lead to next hop {want}",
                address.to_ip()
            );
        }
        Ok(())
    });
    checked.unwrap_or_else(|| bail!("the instance has no router"))
}

/// Prints what was found.
fn finish(args: &ChurnArgs, cpus: &Placement, routes: usize, found: &Found) -> Result<()> {
    let verdict = Verdict::of(&found.rounds, found.clock).context("nothing was measured")?;
    let own_cpu = control_cpu(&thread::allowed_cpus()?.iter().collect::<Vec<_>>(), cpus) != cpus.tester;
    let mut report = Report {
        host: Host::here("ordinary pages".into()),
        config: json!({
            "routes": routes,
            "untouched_routes": found.untouched,
            "destinations": FLOWS,
            "frame_bytes": args.size,
            "changes_per_second": args.rate,
            "changes_per_batch": args.batch,
            "added": found.done.updated.added,
            "replaced": found.done.updated.replaced,
            "removed": found.done.updated.removed,
            "packets_under_way": WINDOW,
            "tester_cpu": cpus.tester,
            "worker_cpu": cpus.worker,
            "changes_on_own_cpu": own_cpu,
            "drops": found.drops.iter().map(|(name, n)| json!({"reason": name, "packets": n})).collect::<Vec<_>>(),
            "faults": found.trial.tally.described,
        }),
        results: results(args, found, &verdict),
        targets: Vec::new(),
    };
    targets(&mut report, args, &verdict, own_cpu);
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

/// Stable prefix of result ids.
fn id(args: &ChurnArgs, what: &str) -> String {
    format!("router.churn.{}{what}", if args.ipv6 { "ipv6." } else { "" })
}

/// Packets that came back by another port or to another next hop than their route's.
fn misrouted(trial: &Trial) -> u64 {
    [Fault::Port, Fault::DestinationMac, Fault::SourceMac].iter().map(|f| trial.tally.count(*f)).sum()
}

fn results(args: &ChurnArgs, found: &Found, v: &Verdict) -> Vec<Measured> {
    let one = |what: &str, unit, value: f64| Measured::new(id(args, what), unit, &[value]);
    let all = |what: &str, unit, values: &[f64]| Measured::new(id(args, what), unit, values);
    let beside = |what: &str, unit, with: &[f64], without: &[f64], ratios: &[f64]| {
        let peer = all(&format!("{what}.without"), unit, without);
        let mut with = all(what, unit, with);
        with.peer = Some(peer.id.clone());
        with.ratio = Some(super::stats::median(ratios));
        [with, peer]
    };
    let tally = &found.trial.tally;
    let share = |side: &judge::Side, share| microseconds(side.loops.quantile(share), found.clock);
    let mut results = vec![
        one("sent", "packets", found.trial.sent as f64),
        one("lost", "packets", found.trial.lost as f64),
        one("misrouted", "faults", misrouted(&found.trial) as f64),
        one("wrong", "packets", (tally.bad + tally.duplicates + tally.reordered) as f64),
        one("unaccounted", "packets", found.imbalance as f64),
        one("changes", "routes", found.done.changes as f64),
        one("changes.rate", "routes/s", found.done.changes as f64 / found.done.seconds.max(1e-9)),
        all("batch", "us", &found.done.batches),
        one("batch.p99", "us", quantile(&found.done.batches, 0.99)),
        one("load", "s", found.load),
    ];
    results.extend(beside("rate", "Mpps", &v.with.rates, &v.without.rates, &v.rate_ratios));
    results.extend(beside("capacity", "Mpps", &v.with.capacities, &v.without.capacities, &v.capacity_ratios));
    for (side, suffix) in [(&v.with, ""), (&v.without, ".without")] {
        results.push(one(&format!("windows{suffix}"), "windows", side.longest.len() as f64));
        results.push(one(&format!("undisturbed{suffix}"), "%", side.undisturbed * 100.0));
        results.push(one(&format!("longest_loop.any{suffix}"), "us", side.longest_any));
        results.push(all(&format!("longest_loop{suffix}"), "us", &side.longest));
        results.push(one(&format!("loop.p50{suffix}"), "us", share(side, 0.5)));
        results.push(one(&format!("loop.p99999{suffix}"), "us", share(side, 0.99999)));
        let seconds = side.beyond.len() as f64 * args.timing().window.as_secs_f64();
        results.push(one(
            &format!("beyond_50us{suffix}"),
            "loops/s",
            side.beyond.iter().sum::<f64>() / seconds,
        ));
    }
    results.push(one("beyond_50us.excess", "sigma", v.excess));
    results
}

fn targets(report: &mut Report, args: &ChurnArgs, v: &Verdict, own_cpu: bool) {
    let value = |report: &Report, what: &str| report.value(&id(args, what));
    for (what, name) in [
        ("packets lost", "lost"),
        ("packets misrouted", "misrouted"),
        ("packets wrong in any way, doubled or out of order", "wrong"),
        ("packets not accounted for", "unaccounted"),
    ] {
        report.target(what, value(report, name), 0.0, false, "");
    }
    report.target(
        "route changes per second",
        value(report, "changes.rate"),
        f64::from(args.rate) * 0.99,
        true,
        "",
    );
    let (what, ratios) = if own_cpu {
        ("rate with changes, of the rate without", &v.rate_ratios)
    } else {
        ("rate per busy second with changes, of that without", &v.capacity_ratios)
    };
    report.target(what, Some(super::stats::median(ratios)), 0.97, true, "");
    if v.longest() < HOLD_UP {
        report.target("longest hold-up with changes", Some(v.longest()), HOLD_UP, false, "us");
    } else {
        // Somebody else had the CPU: judged by what is there more with changes than without.
        let what = format!("hold-ups beyond {HOLD_UP} us, more with changes than without");
        report.target(&what, Some(v.excess), judge::EXCESS, false, "sigma");
    }
    debug_assert_eq!(v.holds(), report.targets.last().is_some_and(|t| t.met));
}

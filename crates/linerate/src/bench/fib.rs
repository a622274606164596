//! `linerate bench fib`: longest-prefix match against Poptrie and DPDK's FIBs, one process, one core, in turn.
//!
//! Times are CPU time of the one thread that measures. A sample is 2^18 keys looked up in batches of 256; each round
//! takes the median sample, the figure is the median of the rounds, a ratio the median of the rounds' ratios. All
//! tables are on the same kind of pages. Before anything is timed every answer is compared with the routes flattened
//! to ranges, and again after the updates.

use super::{
    fib_router, fib_updates,
    keys::{Drawn, Trace},
    race::{Contender, KeySet, Times, Work, floor, race, reader},
    report::{Host, Measured, Report},
    routes::{self, Parsed, Routes},
    stats::{self, Rng, timed},
};
use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_tables::{
    fib::{Fib, Lookup, ip4, ip6, oracle::Oracle},
    prefix::Prefix,
    qsbr::Domain,
};
use serde_json::json;
use std::path::PathBuf;

/// What `linerate bench fib` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct FibBenchArgs {
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
    /// Rounds of every measurement; figures are medians over them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Fewer keys and updates, no tables of 4 and 8 million routes
    #[arg(long)]
    quick: bool,
    /// Measure without DPDK's libraries
    #[arg(long)]
    no_peers: bool,
    /// Only this family
    #[arg(long)]
    family: Option<Family>,
    /// Only lookups
    #[arg(long)]
    lookups_only: bool,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Family {
    #[value(name = "4")]
    V4,
    #[value(name = "6")]
    V6,
}

/// How much to do.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    pub(super) rounds: usize,
    pub(super) keys: usize,
    pub(super) updates: usize,
    pub(super) quick: bool,
}

/// Runs the benchmark and prints its report. An error where an answer was wrong.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output and its progress")]
pub(crate) fn run(args: FibBenchArgs) -> Result<()> {
    let host = Host::here("4 KiB".into());
    let cpu = pin()?;
    let want = |family| args.family.is_none_or(|f| f == family);
    let table4 = if want(Family::V4) { table::<u32>(args.routes.as_ref(), 612_927)? } else { Vec::new() };
    let table6 = if want(Family::V6) { table::<u128>(args.routes6.as_ref(), 160_147)? } else { Vec::new() };
    let effort = Effort {
        rounds: args.rounds.into(),
        keys: if args.quick { 1 << 23 } else { 1 << 24 },
        updates: if args.quick { 100_000 } else { 1_000_000 },
        quick: args.quick,
    };
    let peers = !args.no_peers && cfg!(feature = "peers");
    #[cfg(feature = "peers")]
    if peers {
        super::fib_peers::start(table4.len(), table6.len(), cpu)?;
        pin()?;
    }
    let mut report = Report {
        host,
        config: json!({
            "routes4": table4.len(), "routes6": table6.len(), "rounds": effort.rounds, "keys": effort.keys,
            "batch": super::race::BATCH, "cpu": cpu, "peers": peers, "quick": args.quick,
            "table4": name(args.routes.as_ref()), "table6": name(args.routes6.as_ref()),
        }),
        results: Vec::new(),
        targets: Vec::new(),
    };
    let generated =
        (!table4.is_empty() && args.routes.is_none()) || (!table6.is_empty() && args.routes6.is_none());
    let mut wrong = 0;
    if !table4.is_empty() {
        eprintln!("IPv4, {} routes: lookups", table4.len());
        wrong += family4(&table4, name(args.routes.as_ref()), effort, peers, &args, &mut report)?;
    }
    if !table6.is_empty() {
        eprintln!("IPv6, {} routes: lookups", table6.len());
        wrong += family6(&table6, name(args.routes6.as_ref()), effort, peers, &args, &mut report)?;
    }
    report.results.push(Measured::new("fib.wrong_answers", "answers", &[wrong as f64]));
    report.target("wrong answers", Some(wrong as f64), 0.0, false, "");
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
        if generated {
            println!(
                "\nSpeed and memory are asked of real tables, which --routes and --routes6 take: generated ones differ."
            );
        }
    }
    if wrong > 0 {
        bail!("{wrong} answers differ from the flattened routes");
    }
    Ok(())
}

fn family4(
    routes: &Routes<u32>,
    table: &str,
    effort: Effort,
    #[cfg_attr(not(feature = "peers"), expect(unused_variables, reason = "nobody to race"))] peers: bool,
    args: &FibBenchArgs,
    report: &mut Report,
) -> Result<usize> {
    let domain = Domain::new();
    let mut ours = ip4::Ip4Fib::new(&domain)?;
    ours.load(routes.iter().copied())?;
    let prefix = format!("fib.v4.{table}");
    let bytes = ours.memory().lookup as f64;
    report.results.push(Measured::new(format!("{prefix}.compressed.bytes"), "bytes", &[bytes]));
    let mut wrong = 0;
    {
        let keys = KeySet::new(routes, effort.keys);
        let oracle = Oracle::new(routes.iter().copied());
        wrong += mistakes(&ours.reader(), &oracle);
        let mut contenders = vec![reader("compressed", ours.reader(), &keys)];
        for kernel in ip4::Kernel::available() {
            let other = ours.reader().with_kernel(kernel);
            wrong += mistakes(&other, &oracle);
            contenders.push(reader(kernel.name(), other, &keys));
        }
        #[cfg(feature = "poptrie")]
        {
            wrong += add_poptrie(routes, &keys, &prefix, &oracle, &mut contenders, report)?;
        }
        #[cfg(feature = "peers")]
        if peers {
            contenders.extend(super::fib_peers::ip4(routes, &keys)?);
        }
        measure(&mut contenders, &keys, &prefix, effort, report);
    }
    // What is asked for is asked of real tables.
    let real = args.routes.is_some();
    let ratio = |r: &Report, id: &str| r.results.iter().find(|m| m.id == format!("{prefix}.{id}"))?.ratio;
    let vs = |r: &Report, trace: &str, peer: &str| ratio(r, &format!("{trace}.{peer}"));
    for (what, trace, peer, bar) in [
        ("IPv4 R against Poptrie scalar", "R", "poptrie", 4.0),
        ("IPv4 R against rte_fib 2 B AVX-512", "R", "rte_fib2b_avx512", 1.3),
        ("IPv4 U against rte_fib 2 B AVX-512", "U", "rte_fib2b_avx512", 2.0),
        ("IPv4 Z against rte_fib 2 B AVX-512", "Z", "rte_fib2b_avx512", 1.0),
        ("IPv4 R with packet work against rte_fib 2 B AVX-512", "work.R", "rte_fib2b_avx512", 1.8),
    ] {
        let measured = vs(report, trace, peer).filter(|_| real);
        report.target(what, measured, bar, true, "x");
    }
    let portable = ratio(report, "R.portable_vs_poptrie").filter(|_| real);
    report.target("IPv4 R, portable, against Poptrie scalar", portable, 1.5, true, "x");
    let bar = if routes.len() <= 612_927 { 2.5 } else { 2.4 };
    if real && routes.len() <= 901_899 {
        report.target("IPv4 lookup bytes", Some(bytes / 1e6), bar, false, "MB");
    }
    if !args.lookups_only {
        let make = || Ok(ip4::Ip4Fib::new(&Domain::new())?);
        wrong += fib_updates::measure(&mut ours, &domain, routes, &prefix, effort, report, &make)?;
        fib_router::measure(routes, &prefix, effort, report)?;
        if real {
            fib_updates::build_targets(4, &prefix, report);
            fib_updates::targets4(&prefix, report);
            fib_router::targets4(&prefix, report);
        }
        if !effort.quick {
            for n in [4_000_000, 8_000_000] {
                wrong += big::<u32, ip4::Ip4Fib>(routes, n, effort, report, &make)?;
            }
        }
    }
    Ok(wrong)
}

fn family6(
    routes: &Routes<u128>,
    table: &str,
    effort: Effort,
    #[cfg_attr(not(feature = "peers"), expect(unused_variables, reason = "nobody to race"))] peers: bool,
    args: &FibBenchArgs,
    report: &mut Report,
) -> Result<usize> {
    let domain = Domain::new();
    let mut ours = ip6::Ip6Fib::new(&domain)?;
    ours.load(routes.iter().copied())?;
    let prefix = format!("fib.v6.{table}");
    let bytes = ours.memory().lookup as f64;
    report.results.push(Measured::new(format!("{prefix}.compressed.bytes"), "bytes", &[bytes]));
    let mut wrong = 0;
    {
        let keys = KeySet::new(routes, effort.keys / 4);
        let oracle = Oracle::new(routes.iter().copied());
        wrong += mistakes(&ours.reader(), &oracle);
        let mut contenders = vec![reader("compressed", ours.reader(), &keys)];
        for kernel in ip6::Kernel::available() {
            let other = ours.reader().with_kernel(kernel);
            wrong += mistakes(&other, &oracle);
            contenders.push(reader(kernel.name(), other, &keys));
        }
        #[cfg(feature = "poptrie")]
        {
            wrong += add_poptrie(routes, &keys, &prefix, &oracle, &mut contenders, report)?;
        }
        #[cfg(feature = "peers")]
        if peers {
            contenders.extend(super::fib_peers::ip6(routes, &keys)?);
        }
        measure(&mut contenders, &keys, &prefix, effort, report);
    }
    let of =
        |id: &str| report.results.iter().find(|m| m.id == format!("{prefix}.{id}")).and_then(|m| m.ratio);
    let real = args.routes6.is_some();
    let measured = of("R.rte_fib6_avx512").filter(|_| real);
    report.target("IPv6 R against rte_fib6 AVX-512", measured, 1.3, true, "x");
    if real && routes.len() <= 160_147 {
        report.target("IPv6 lookup bytes", Some(bytes / 1e6), 2.0, false, "MB");
    }
    if !args.lookups_only {
        let make = || Ok(ip6::Ip6Fib::new(&Domain::new())?);
        wrong += fib_updates::measure(&mut ours, &domain, routes, &prefix, effort, report, &make)?;
        fib_router::measure(routes, &prefix, effort, report)?;
        fib_updates::build_targets(6, &prefix, report);
        if !effort.quick {
            wrong += big::<u128, ip6::Ip6Fib>(routes, 1_000_000, effort, report, &make)?;
        }
    }
    Ok(wrong)
}

#[cfg(feature = "poptrie")]
fn add_poptrie<A: Drawn + linerate_tables::fib::poptrie::Bits>(
    routes: &Routes<A>,
    keys: &std::sync::Arc<KeySet<A>>,
    prefix: &str,
    oracle: &Oracle<A>,
    contenders: &mut Vec<Contender<'_>>,
    report: &mut Report,
) -> Result<usize> {
    let mut fib = linerate_tables::fib::poptrie::Poptrie::<A>::new(&Domain::new())?;
    fib.load(routes.iter().copied())?;
    let bytes = fib.memory().lookup as f64;
    report.results.push(Measured::new(format!("{prefix}.poptrie.bytes"), "bytes", &[bytes]));
    let wrong = mistakes(&fib.reader(), oracle);
    contenders.push(reader("poptrie", fib.reader(), keys));
    Ok(wrong)
}

/// Times the contenders, alone and with packet work between the batches. The first is the one ratios are about.
fn measure<A: Drawn>(
    contenders: &mut Vec<Contender<'_>>,
    keys: &KeySet<A>,
    prefix: &str,
    effort: Effort,
    report: &mut Report,
) {
    #[cfg(feature = "peers")]
    {
        let moved = super::fib_peers::large_pages();
        report.host.memory_pages = format!("2 MiB for all ({moved} MiB moved), 4 KiB for the rest");
    }
    let times = race(contenders, &Trace::ALL, keys.len(), effort.rounds, &mut Work::none());
    for (t, trace) in Trace::ALL.into_iter().enumerate() {
        add(contenders, &times, t, None, &format!("{prefix}.{}", trace.letter()), report);
    }
    contenders.push(floor());
    let work = race(contenders, &[Trace::Routed], keys.len(), effort.rounds, &mut Work::packets());
    let floor = contenders.len() - 1;
    add(contenders, &work, 0, Some(floor), &format!("{prefix}.work.R"), report);
    contenders.pop();
}

fn add(
    contenders: &[Contender<'_>],
    times: &Times,
    trace: usize,
    floor: Option<usize>,
    prefix: &str,
    report: &mut Report,
) {
    let find = |name: &str| contenders.iter().position(|c| c.name == name);
    for (i, contender) in contenders.iter().enumerate() {
        let mut figure = Measured::new(format!("{prefix}.{}", contender.name), "ns", times.of(trace, i));
        figure.floor = floor.filter(|&f| f != i).map(|f| stats::median(times.of(trace, f)));
        if i != 0 && Some(i) != floor {
            figure.peer = Some(format!("{prefix}.{}", contenders[0].name));
            figure.ratio = Some(stats::median(&times.ratios(trace, 0, i, floor)));
        }
        report.results.push(figure);
    }
    if let (Some(portable), Some(poptrie)) = (find("portable"), find("poptrie")) {
        let ratios = times.ratios(trace, portable, poptrie, floor);
        let mut figure = Measured::new(format!("{prefix}.portable_vs_poptrie"), "x", &ratios);
        figure.peer = Some(format!("{prefix}.poptrie"));
        figure.ratio = Some(stats::median(&ratios));
        report.results.push(figure);
    }
}

/// A table of `n` routes: loads, answers right, and how fast.
fn big<A: Parsed, F: Fib<A>>(
    routes: &Routes<A>,
    n: usize,
    effort: Effort,
    report: &mut Report,
    make: &dyn Fn() -> Result<F>,
) -> Result<usize> {
    let all = routes::extended(routes, n);
    let mut fib = make()?;
    let (ns, loaded) = timed(|| fib.load(all.iter().copied()));
    loaded.with_context(|| format!("loading {n} routes"))?;
    let prefix = format!("fib.v{}.{}m", A::FAMILY, n / 1_000_000);
    report.results.push(Measured::new(format!("{prefix}.load"), "s", &[ns / 1e9]));
    report.results.push(Measured::new(format!("{prefix}.bytes"), "bytes", &[fib.memory().lookup as f64]));
    let wrong = mistakes(&fib.reader(), &Oracle::new(all.iter().copied()));
    let keys = KeySet::new(&all, 1 << 20);
    let mut contenders = vec![reader("compressed", fib.reader(), &keys)];
    let times = race(&mut contenders, &[Trace::Routed], keys.len(), effort.rounds, &mut Work::none());
    report.results.push(Measured::new(format!("{prefix}.R.compressed"), "ns", times.of(0, 0)));
    let what = format!("IPv{} loads and forwards {n} routes: wrong answers", A::FAMILY);
    report.target(&what, Some(wrong as f64), 0.0, false, "");
    Ok(wrong)
}

/// Answers that differ from the flattened routes, at both ends of every range and at 2^18 random addresses.
pub(super) fn mistakes<A: Drawn>(reader: &impl Lookup<A>, oracle: &Oracle<A>) -> usize {
    let mut rng = Rng(0xc0ffee);
    let ends = oracle.ranges().iter().flat_map(|r| [(r.first, r.nh), (r.last, r.nh)]);
    let random = (0..1 << 18).map(|_| {
        let addr = A::any(&mut rng);
        (addr, oracle.lookup(addr))
    });
    let (addrs, expected): (Vec<A>, Vec<u32>) = ends.chain(random).unzip();
    let mut out = vec![0; addrs.len()];
    reader.lookup_batch(&addrs, &mut out);
    out.iter().zip(&expected).filter(|(got, want)| got != want).count()
}

fn table<A: Parsed>(file: Option<&PathBuf>, n: usize) -> Result<Vec<(Prefix<A>, u32)>> {
    file.map_or_else(|| Ok(routes::synthetic(n)), |path| routes::read(path))
}

fn name(file: Option<&PathBuf>) -> &'static str {
    if file.is_some() { "real" } else { "synthetic" }
}

/// Keeps this thread on the last CPU it may use; returns its number.
pub(super) fn pin() -> Result<usize> {
    use nix::{
        sched::{CpuSet, sched_getaffinity, sched_setaffinity},
        unistd::Pid,
    };
    static LAST: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).context("the CPUs this process may use cannot be read")?;
    let cpu = *LAST.get_or_init(|| {
        (0..CpuSet::count()).rev().find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).unwrap_or(0)
    });
    let mut set = CpuSet::new();
    set.set(cpu).context("the CPU number is out of range")?;
    sched_setaffinity(this, &set).with_context(|| format!("this thread cannot be kept on CPU {cpu}"))?;
    Ok(cpu)
}

//! Building and changing tables: times in every order of insertion, single updates, flaps.

use super::{
    fib::{Effort, mistakes},
    keys::Drawn,
    report::{Measured, Report},
    routes::Routes,
    stats::{Rng, cpu_ns, quantile, timed},
};
use anyhow::{Context, Result};
use linerate_tables::{
    fib::{Change, Fib, oracle::Oracle},
    prefix::Prefix,
    qsbr::{Domain, Reader},
};
use std::collections::BTreeMap;

/// Changes of a batch: less than a routing daemon puts into a full frame.
const BATCH: usize = 256;

/// Flaps per figure.
const FLAPS: usize = 51;

/// Builds in every order, then changes `fib`, which holds `routes`; returns the number of wrong answers.
pub(super) fn measure<A: Drawn, F: Fib<A>>(
    fib: &mut F,
    domain: &Domain,
    routes: &Routes<A>,
    prefix: &str,
    effort: Effort,
    report: &mut Report,
    make: &dyn Fn() -> Result<F>,
) -> Result<usize> {
    let mut wrong = builds(routes, prefix, effort, report, make)?;
    // A worker that is somewhere in its loop: replaced memory waits for it, as in a running router.
    let mut worker = domain.register();
    let mut model: BTreeMap<Prefix<A>, u32> = routes.iter().copied().collect();
    let before = fib.memory().lookup;
    single(fib, &mut worker, routes, &mut model, prefix, effort, report)?;
    wrong += check(fib, &model);
    flaps(fib, &mut worker, routes, &mut model, prefix, report)?;
    wrong += check(fib, &model);
    let growth = fib.memory().lookup as f64 / before as f64;
    report.results.push(Measured::new(format!("{prefix}.update.growth"), "x", &[growth]));
    Ok(wrong)
}

/// The bars for building a table of either family.
pub(super) fn build_targets(family: u8, prefix: &str, report: &mut Report) {
    for (kind, what) in [("load", "load"), ("apply", "changes in batches of 256")] {
        let worst = report.value(&format!("{prefix}.{kind}.worst"));
        report.target(&format!("IPv{family} {what}, slowest order"), worst, 0.5, false, "s");
        let spread = report.value(&format!("{prefix}.{kind}.spread"));
        report.target(&format!("IPv{family} {what}, slowest order over fastest"), spread, 2.0, false, "x");
    }
}

/// The bars for updates of the IPv4 table.
pub(super) fn targets4(prefix: &str, report: &mut Report) {
    let rate = report.value(&format!("{prefix}.update.rate"));
    report.target("IPv4 single updates", rate, 500_000.0, true, "/s");
    for (what, id, bar) in [
        ("IPv4 single update, p99", "update.p99", 10.0),
        ("IPv4 flap of the most covering /8", "flap.short", 1_000.0),
        ("IPv4 default route change", "flap.default", 10.0),
    ] {
        let value = report.value(&format!("{prefix}.{id}"));
        report.target(what, value, bar, false, "us");
    }
}

/// The same routes in orders that differ in what they do to a table: along the addresses, across them, covering routes
/// before or after what they cover.
fn orders<A: Drawn>(routes: &Routes<A>) -> Vec<(&'static str, Routes<A>)> {
    let mut sorted = routes.clone();
    sorted.sort_by_key(|&(p, _)| p);
    let mut shuffled = sorted.clone();
    Rng(0x0bde).shuffle(&mut shuffled);
    let by = |from: &Routes<A>, key: fn(&(Prefix<A>, u32)) -> i64| {
        let mut routes = from.clone();
        routes.sort_by_key(key);
        routes
    };
    let shorter = |(p, _): &(Prefix<A>, u32)| i64::from(p.len());
    let longer = |(p, _): &(Prefix<A>, u32)| -i64::from(p.len());
    vec![
        ("descending", sorted.iter().rev().copied().collect()),
        ("shortest_first_sorted", by(&sorted, shorter)),
        ("longest_first_sorted", by(&sorted, longer)),
        ("by_next_hop", by(&sorted, |&(_, nh)| nh.into())),
        ("shortest_first", by(&shuffled, shorter)),
        ("longest_first", by(&shuffled, longer)),
        ("sorted", sorted),
        ("shuffled", shuffled),
    ]
}

/// Builds in every order, all orders in turn in every round; a figure is the median of its order's rounds. At once, by
/// changes in batches (what daemons send, and what the bars are about), and by single changes (for comparison: they wait
/// for memory, so that their spread says as much about the third-level cache and its other users as about the table).
fn builds<A: Drawn, F: Fib<A>>(
    routes: &Routes<A>,
    prefix: &str,
    effort: Effort,
    report: &mut Report,
    make: &dyn Fn() -> Result<F>,
) -> Result<usize> {
    let orders = orders(routes);
    let rounds = effort.rounds.clamp(3, 5);
    let oracle = Oracle::new(routes.iter().copied());
    let mut wrong = 0;
    let changes: Vec<Vec<Change<A>>> = orders
        .iter()
        .map(|(_, routes)| routes.iter().map(|&(prefix, nh)| Change { prefix, next_hop: Some(nh) }).collect())
        .collect();
    for kind in ["load", "apply", "insert"] {
        let mut runs = vec![Vec::new(); orders.len()];
        for round in 0..rounds {
            for (((_, routes), changes), runs) in orders.iter().zip(&changes).zip(&mut runs) {
                let mut fib = make()?;
                let (ns, built) = timed(|| match kind {
                    "load" => fib.load(routes.iter().copied()),
                    "apply" => changes.chunks(BATCH).try_for_each(|b| fib.apply(b)).map_err(|e| e.error),
                    _ => routes.iter().try_for_each(|&(p, nh)| fib.insert(p, nh).map(drop)),
                });
                built.context("building the table")?;
                runs.push(ns / 1e9);
                if round == 0 {
                    wrong += mistakes(&fib.reader(), &oracle);
                }
            }
        }
        let figures: Vec<Measured> = orders
            .iter()
            .zip(&runs)
            .map(|((order, _), runs)| Measured::new(format!("{prefix}.{kind}.{order}"), "s", runs))
            .collect();
        let medians: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        report.results.extend(figures);
        let (worst, best) = (quantile(&medians, 1.0), quantile(&medians, 0.0));
        report.results.push(Measured::new(format!("{prefix}.{kind}.worst"), "s", &[worst]));
        report.results.push(Measured::new(format!("{prefix}.{kind}.spread"), "x", &[worst / best]));
    }
    Ok(wrong)
}

/// Withdraws and announces random routes, each announced with another next hop.
fn single<A: Drawn, F: Fib<A>>(
    fib: &mut F,
    worker: &mut Reader,
    routes: &Routes<A>,
    model: &mut BTreeMap<Prefix<A>, u32>,
    prefix: &str,
    effort: Effort,
    report: &mut Report,
) -> Result<()> {
    let mut rng = Rng(0xc4a6e);
    let picks: Vec<(Prefix<A>, u32)> = (0..effort.updates / 2)
        .map(|_| (routes[rng.below(routes.len())].0, 1 + (rng.next() % 64) as u32))
        .collect();
    let mut rates = Vec::new();
    for chunk in picks.chunks(picks.len().div_ceil(effort.rounds)) {
        let (ns, changed) = timed(|| {
            for (i, &(p, nh)) in chunk.iter().enumerate() {
                fib.withdraw(p);
                fib.insert(p, nh)?;
                if i % 32 == 0 {
                    worker.quiescent();
                }
            }
            Ok::<(), linerate_tables::fib::FibError>(())
        });
        changed.context("announcing a route again")?;
        rates.push(2.0 * chunk.len() as f64 / ns * 1e9);
    }
    report.results.push(Measured::new(format!("{prefix}.update.rate"), "/s", &rates));
    model.extend(picks);
    let mut each = Vec::new();
    for _ in 0..50_000 {
        let p = routes[rng.below(routes.len())].0;
        let nh = 1 + (rng.next() % 64) as u32;
        let start = cpu_ns();
        fib.withdraw(p);
        let between = cpu_ns();
        fib.insert(p, nh).context("announcing a route again")?;
        each.extend([between - start, cpu_ns() - between].map(|ns| ns / 1e3));
        model.insert(p, nh);
        worker.quiescent();
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let id = format!("{prefix}.update.{name}");
        report.results.push(Measured::new(id, "us", &[quantile(&each, share)]));
    }
    Ok(())
}

/// The default route, and the short route above most others.
fn flaps<A: Drawn, F: Fib<A>>(
    fib: &mut F,
    worker: &mut Reader,
    routes: &Routes<A>,
    model: &mut BTreeMap<Prefix<A>, u32>,
    prefix: &str,
    report: &mut Report,
) -> Result<()> {
    let short = if A::FAMILY == 4 { 8 } else { 12 };
    let mut under: BTreeMap<Prefix<A>, usize> = BTreeMap::new();
    for covering in routes.iter().filter_map(|(p, _)| Prefix::new(p.first(), short)) {
        *under.entry(covering).or_default() += 1;
    }
    let busiest = under.iter().max_by_key(|&(_, n)| n).map(|(&p, &n)| (p, n));
    let everything = Prefix::new(A::mask(0), 0).map(|p| (p, routes.len()));
    for (name, target) in [("default", everything), ("short", busiest)] {
        let Some((target, covered)) = target else { continue };
        let mut runs = Vec::new();
        for nh in 0..FLAPS as u32 {
            let before = model.get(&target).copied();
            let start = cpu_ns();
            fib.insert(target, 100 + nh).context("announcing a covering route")?;
            fib.withdraw(target);
            runs.push((cpu_ns() - start) / 2e3);
            if let Some(before) = before {
                fib.insert(target, before).context("announcing a covering route")?;
            }
            worker.quiescent();
        }
        report.results.push(Measured::new(format!("{prefix}.flap.{name}"), "us", &runs));
        let id = format!("{prefix}.flap.{name}.covered");
        report.results.push(Measured::new(id, "routes", &[covered as f64]));
    }
    Ok(())
}

fn check<A: Drawn, F: Fib<A>>(fib: &F, model: &BTreeMap<Prefix<A>, u32>) -> usize {
    mistakes(&fib.reader(), &Oracle::new(model.iter().map(|(&p, &nh)| (p, nh))))
}

//! `linerate bench fpm`: a whole table as FRR's zebra sends it over FPM, from its bytes to the FIB, in this process.
//!
//! The messages are those of `dplane_fpm_nl` for IPv4 routes by BGP: next-hop objects first, then one message a route that
//! names its object. What FRR and TCP take stays out of it; `bench/frr-table.sh` measures with both.

use std::hint::black_box;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_engine::host::FpmRoutes;
use linerate_linux::fpm::{FpmEvent, FrameDecoder};
use linerate_router::Source;
use linerate_tester::table::NEXT_HOPS;
use serde_json::json;

use super::report::{Host, Measured, Report};
use super::routes::{self, Routes};
use super::stats::timed;
use super::{fib_router, fpm_messages as messages};

/// Index of the outgoing interface in Linux.
const TAP: u32 = 7;

/// Routes a second from bytes to FIB: what a full table within a second takes.
const BAR: f64 = 1e6;

/// What `linerate bench fpm` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct FpmBenchArgs {
    /// Routing table: lines of `prefix nexthop` or MRT, plain, gzip or bzip2; without it a generated one of 900,000 routes
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Times that the table is taken; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// A smaller table, twice
    #[arg(long)]
    quick: bool,
}

/// Runs the benchmark; an error where the bar is not met.
pub(crate) fn run(args: &FpmBenchArgs) -> Result<()> {
    let routes = match &args.routes {
        Some(path) => routes::read::<u32>(path)?,
        None => routes::synthetic::<u32>(if args.quick { 100_000 } else { 900_000 }),
    };
    let stream = stream(&routes);
    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..if args.quick { 2 } else { args.rounds } {
        for (stage, rates) in [Stage::Decode, Stage::Resolve, Stage::Publish].into_iter().zip(&mut rates) {
            let (ns, taken) = timed(|| take(&stream, stage));
            let taken = taken?;
            ensure!(taken == routes.len(), "{taken} of {} routes were taken", routes.len());
            rates.push(routes.len() as f64 * 1e9 / ns);
        }
    }
    let mut report = Report {
        host: Host::here("ordinary pages".into()),
        config: json!({ "routes": routes.len(), "bytes": stream.len(), "next_hops": NEXT_HOPS }),
        results: Vec::new(),
        targets: Vec::new(),
    };
    for (name, rates) in ["decode", "resolve", "publish"].iter().zip(&rates) {
        report.results.push(Measured::new(format!("router.fpm.{name}"), "routes/s", rates));
    }
    report.target("from message to FIB", report.value("router.fpm.publish"), BAR, true, "routes/s");
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => write!(out, "{}", report.text())?,
    }
    if report.targets.iter().any(|t| !t.met) {
        bail!("from message to FIB: fewer than {BAR} routes a second");
    }
    Ok(())
}

/// How far a message goes; each stage includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Understood.
    Decode,
    /// In the router's terms.
    Resolve,
    /// In the FIB.
    Publish,
}

/// Takes a stream as the connection would hand it over; returns how many routes came through.
fn take(stream: &[u8], stage: Stage) -> Result<usize> {
    let mut router = fib_router::router()?;
    let mut known = FpmRoutes::new([(TAP, 0)]);
    let mut decoder = FrameDecoder::new();
    let (mut rest, mut taken, mut events) = (stream, 0, Vec::new());
    while !rest.is_empty() {
        let space = decoder.space();
        let n = space.len().min(rest.len());
        space[..n].copy_from_slice(&rest[..n]);
        decoder.decode(n, |event| events.push(FpmEvent::Event(event)))?;
        rest = &rest[n..];
        if stage == Stage::Decode {
            let routes = |e: &FpmEvent| matches!(e, FpmEvent::Event(linerate_linux::route::Event::Route(..)));
            taken += black_box(&events).iter().filter(|e| routes(e)).count();
            events.clear();
            continue;
        }
        let changes = known.take(&mut events);
        taken += match stage {
            Stage::Publish => {
                router.update(0, linerate_pipeline::VRF_DEFAULT, Source::Learned, &changes).added
            }
            _ => black_box(changes).iter().filter(|(_, action)| action.is_some()).count(),
        };
    }
    Ok(taken)
}

/// The bytes of a whole table.
fn stream(routes: &Routes<u32>) -> Vec<u8> {
    let mut out = Vec::with_capacity(routes.len() * 56);
    for n in 0..NEXT_HOPS {
        messages::object(&mut out, n + 1, fib_router::gateway4(n).into(), TAP);
    }
    for (prefix, next_hop) in routes {
        messages::route(&mut out, *prefix, Some(next_hop % NEXT_HOPS + 1));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_stream_reaches_the_fib() {
        let routes = routes::synthetic::<u32>(3_000);
        let stream = stream(&routes);
        for stage in [Stage::Decode, Stage::Resolve, Stage::Publish] {
            assert_eq!(take(&stream, stage).unwrap(), 3_000, "{stage:?}");
        }
        let objects = stream.len() - 3_000 * 56;
        assert_eq!(
            take(&stream[..objects + 1_000 * 56 + 20], Stage::Publish).unwrap(),
            1_000,
            "the rest is cut off"
        );
    }
}

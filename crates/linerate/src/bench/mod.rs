//! `linerate bench`: micro-benchmarks of linerate's own structures, next to their peers in the same run.

pub(crate) mod fib;
#[cfg(feature = "peers")]
mod fib_peers;
mod fib_updates;
mod keys;
mod race;
mod report;
mod routes;
mod stats;

use clap::Subcommand;

use crate::exit::Failure;

/// What can be measured.
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    /// Longest-prefix match, against Poptrie and DPDK's FIBs
    Fib(fib::FibBenchArgs),
}

/// Runs one benchmark.
pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Fib(args) => Ok(fib::run(args)?),
    }
}

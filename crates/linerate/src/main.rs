//! The binary.

mod bench;

use clap::{Parser, Subcommand};

/// A carrier-class software data plane.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Micro-benchmarks of linerate's own structures
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Longest-prefix match, against Poptrie and DPDK's FIBs
    Fib(bench::fib::FibBenchArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Bench(Bench::Fib(args)) => bench::fib::run(args),
    }
}

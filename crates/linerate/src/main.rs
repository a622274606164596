//! The binary.

mod bench;
mod demo;
mod host;

use std::process::ExitCode;

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
    Demo(demo::DemoArgs),
}

#[derive(Subcommand)]
enum Bench {
    /// Longest-prefix match, against Poptrie and DPDK's FIBs
    Fib(bench::fib::FibBenchArgs),
    /// The router's cost per packet, beside the bare I/O of the same devices
    Forward(bench::forward::ForwardBenchArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Bench(Bench::Fib(args)) => bench::fib::run(args).map(|()| ExitCode::SUCCESS),
        Command::Bench(Bench::Forward(args)) => bench::forward::run(args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo::run(&args),
    }
}

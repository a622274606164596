//! The `linerate` command: one module per subcommand below [`cmd`]; what they have in common is in [`client`] and [`exit`].
//! [`shell`] is the same commands line by line; [`demo`] and [`mod@bench`] are programs of their own on the same engine.
//!
//! May depend on every crate, and no crate on it: what another program could need belongs below. Read `cmd/run.rs` first.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod cmd;
mod demo;
mod exit;
mod host;
mod interrupt;
mod shell;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// A carrier-class software data plane: router and tester on DPDK.
#[derive(Parser, Debug)]
#[command(name = "linerate", version, max_term_width = 110, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Check a configuration without touching a device
    Check(cmd::check::CheckArgs),
    /// Run the data plane in the foreground until SIGTERM or SIGINT
    Run(cmd::run::RunArgs),
    /// Look at a running instance
    Show(cmd::show::ShowArgs),
    /// Follow a few packets of a running instance through its graph
    Trace(cmd::trace::TraceArgs),
    /// Change receive queues of a running instance
    Queue(cmd::queue::QueueArgs),
    Shell(shell::ShellArgs),
    Demo(demo::DemoArgs),
    /// Micro-benchmarks of linerate's own structures, next to their peers
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    exit::code(match Cli::parse().command {
        Command::Check(args) => cmd::check::run(&args),
        Command::Run(args) => cmd::run::run(&args),
        Command::Show(args) => cmd::show::run(&args),
        Command::Trace(args) => cmd::trace::run(&args),
        Command::Queue(args) => cmd::queue::run(&args),
        Command::Shell(args) => shell::run(&args, &Cli::command()),
        Command::Demo(args) => demo::run(&args).map_err(exit::Failure::from),
        Command::Bench(bench) => bench::run(bench),
    })
}

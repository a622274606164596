//! `linerate bench`: micro-benchmarks of linerate's own structures, next to their peers in the same run.

pub(crate) mod acl;
mod acl_forward;
#[cfg(feature = "peers")]
mod acl_peers;
pub(crate) mod capacity;
pub(crate) mod churn;
pub(crate) mod fib;
#[cfg(feature = "peers")]
mod fib_peers;
mod fib_router;
mod fib_updates;
pub(crate) mod forward;
mod forward_io;
pub(crate) mod fpm;
mod fpm_messages;
mod keys;
pub(crate) mod multicast;
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
    /// Wildcard rules, against DPDK's rte_acl and a linear scan
    Acl(acl::AclBenchArgs),
    /// Millions of routes over FPM in and out again, while packets flow
    Capacity(capacity::CapacityArgs),
    /// Packets lost, misrouted or held up while routes change
    Churn(churn::ChurnArgs),
    /// A whole table from FPM messages to the FIB
    Fpm(fpm::FpmBenchArgs),
    /// The router's cost per packet, beside the bare I/O of the same devices
    Forward(forward::ForwardBenchArgs),
    /// One multicast stream to eight interfaces: the cost per copy beside that of a unicast packet
    Multicast(multicast::MulticastBenchArgs),
}

/// Runs one benchmark.
pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Fib(args) => Ok(fib::run(args)?),
        Bench::Acl(args) => Ok(acl::run(args)?),
        Bench::Capacity(args) => Ok(capacity::run(&args)?),
        Bench::Churn(args) => Ok(churn::run(&args)?),
        Bench::Fpm(args) => Ok(fpm::run(&args)?),
        Bench::Forward(args) => Ok(forward::run(args)?),
        Bench::Multicast(args) => Ok(multicast::run(args)?),
    }
}

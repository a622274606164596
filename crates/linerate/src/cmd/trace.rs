//! `linerate trace`.

use clap::Args;
use linerate_control::show::{Trace, TraceRequest};

use crate::client::Target;
use crate::exit::Failure;

/// Follow a few packets of a running instance through its graph.
///
/// Every worker takes the next packets it receives and notes what each node saw of them and by which exit they left. Tracing
/// ends by itself when they have been seen or the time is over.
#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    /// Packets per worker
    #[arg(value_name = "PACKETS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    packets: u32,

    /// Only packets received by this port
    #[arg(long, value_name = "PORT")]
    port: Option<String>,

    /// How long to wait for packets, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=5000))]
    wait: u64,

    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &TraceArgs) -> Result<(), Failure> {
    let request = TraceRequest { packets: args.packets, port: args.port.clone(), wait_ms: args.wait };
    let trace: Trace = args.target.client()?.post("/v1/trace", &request)?;
    args.target.print(&trace)
}

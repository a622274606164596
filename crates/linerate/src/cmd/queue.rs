//! `linerate queue`.

use clap::{Args, Subcommand};
use linerate_control::show::{MoveQueue, QueueMoved};

use crate::client::Target;
use crate::exit::Failure;

/// Change receive queues of a running instance.
#[derive(Args, Debug)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,

    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand, Debug)]
enum QueueCommand {
    /// Move a receive queue to another worker
    ///
    /// Packets go on flowing: none is lost, doubled or overtaken. See `linerate show queues` for what is where.
    Move {
        /// Name of the port
        port: String,
        /// Number of the queue on the port, counted from 0
        queue: u16,
        /// The worker that shall poll it, counted from 0
        worker: usize,
    },
}

pub(crate) fn run(args: &QueueArgs) -> Result<(), Failure> {
    let QueueCommand::Move { port, queue, worker } = &args.command;
    let request = MoveQueue { port: port.clone(), queue: *queue, worker: *worker };
    let moved: QueueMoved = args.target.client()?.post("/v1/queues/move", &request)?;
    args.target.print(&moved)
}

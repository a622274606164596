//! What a running instance can be asked: one serde type per message, used by the API's server and by its clients, with
//! the text form people read.
//!
//! Rates are per second over the last sampling interval (about one second); they are absent until an instance has run
//! for one. Bytes are without FCS, as the data path counts them; bits per second are layer 1: every frame with its
//! preamble, FCS and gap, 24 bytes more.

pub mod acls;
pub mod conflicts;
pub mod drops;
pub mod fib;
pub mod graph;
pub mod interfaces;
pub mod linux;
pub mod multicast;
pub mod neighbors;
pub mod ports;
pub mod queues;
pub mod router;
pub mod routes;
pub mod status;
mod text;
pub mod trace;
pub mod vrfs;
pub mod workers;

pub use acls::{AclLog, Acls};
pub use conflicts::Conflicts;
pub use drops::Drops;
pub use fib::Fibs;
pub use graph::Graph;
pub use interfaces::Interfaces;
pub use linux::{Linux, Punt};
pub use multicast::MulticastRoutes;
pub use neighbors::Neighbors;
pub use ports::Ports;
pub use queues::{MoveQueue, QueueMoved, Queues};
pub use router::Router;
pub use routes::Routes;
pub use status::Status;
pub use trace::{Trace, TraceRequest};
pub use vrfs::Vrfs;
pub use workers::Workers;

/// A message with a form for people.
pub trait Text {
    /// Aligned columns, thousands separated, a newline after every line.
    fn text(&self) -> String;
}

/// Bytes that a frame takes on the wire beyond those the data path counts: FCS 4, preamble 8, gap 12.
pub(crate) const WIRE_OVERHEAD: u64 = 24;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

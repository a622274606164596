//! `linerate bench`: micro-benchmarks of linerate's own structures, next to their peers in the same run.

pub(crate) mod fib;
#[cfg(feature = "peers")]
mod fib_peers;
mod fib_updates;
pub(crate) mod forward;
mod forward_io;
mod keys;
mod race;
mod report;
mod routes;
mod stats;

//! Lookup structures shared by control and workers: one writer, any number of wait-free readers.
//!
//! Depends on nothing of ours but `wire`. No sockets, threads, files or clocks. Read [`fib`] first.

pub mod fib;
pub mod prefix;
pub mod qsbr;
pub mod snapshot;

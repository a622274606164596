//! Lookup structures shared by control and workers: one writer, any number of wait-free readers.
//!
//! Depends on nothing of ours but `wire`, and knows no packets. No sockets, threads, files or clocks. Read [`fib`] first
//! (the contract), then [`qsbr`].

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::print_stderr,
        reason = "a test fails by panicking, and says loudly what it skips"
    )
)]

pub mod classifier;
pub mod fib;
pub mod prefix;
pub mod qsbr;
pub mod snapshot;
pub mod snapshot_map;

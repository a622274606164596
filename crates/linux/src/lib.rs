//! What is read from and asked of Linux: CPUs, NUMA nodes, affinity, threads, memory; routes, interfaces, neighbours, taps.
//!
//! Everything read from `/sys` and `/proc` takes the root directory as a parameter, so that a test describes a machine
//! by a few files. Knows nothing of packets, DPDK or products. Read [`cpus`] first; a route's way begins in [`fpm`] (FRR)
//! or [`netlink`] (the kernel) and ends as a [`route::Event`].

#![forbid(unsafe_code)]

pub mod cpus;
pub mod fpm;
pub mod links;
pub mod memory;
pub mod netlink;
pub mod readiness;
pub mod route;
pub mod tap;
pub mod taps;
pub mod thread;
pub mod watch;

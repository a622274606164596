//! What is read from and asked of Linux: CPUs, NUMA nodes, affinity, threads, memory.
//!
//! Everything read from `/sys` and `/proc` takes the root directory as a parameter, so that a test describes a machine
//! by a few files. Knows nothing of packets, DPDK or products. Read [`cpus`] first.

#![forbid(unsafe_code)]

pub mod cpus;
pub mod memory;
pub mod thread;

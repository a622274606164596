//! Workers, queues, graphs, publication, lifecycle: the crate that joins devices, products and threads.
//!
//! * [`desired`] is what an instance is told to be.
//! * [`workers`] is the data path's machinery: threads that poll queues and run graphs, on any kind of packet.
//! * [`instance`] is a whole data plane: DPDK, ports, workers and control from start to stop. `control`, `demo` and
//!   `bench` use it; a program in the same process gets the other ends of its `ring:` ports.
//! * [`host`] joins the router to Linux: taps, punted packets, routes of the kernel and of FRR.
//! * [`graphs`] puts the nodes of each product together, one readable file per product.
//!
//! Nothing here parses configuration or serves an API, and nothing may depend on `control`, which does. Read
//! `src/workers/worker.rs` first for the loop that every packet passes, then [`instance`].

#![forbid(unsafe_code)]

pub mod clock;
pub mod desired;
pub mod graphs;
pub mod host;
pub mod instance;
pub mod tester;
pub mod workers;

//! Workers, queues, graphs, publication, lifecycle: the crate that joins devices, products and threads.
//!
//! * [`desired`] is what an instance is told to be.
//! * [`workers`] is the data path's machinery: threads that poll queues and run graphs, on any kind of packet.
//! * [`graphs`] puts the nodes of each product together, one readable file per product.
//!
//! Nothing here parses configuration or serves an API: `control` does.

#![forbid(unsafe_code)]

pub mod clock;
pub mod desired;
pub mod graphs;
pub mod workers;

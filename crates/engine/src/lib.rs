//! Workers, queues, graphs, publication, lifecycle: the crate that joins devices, products and threads.
//!
//! Read [`desired`] for what an instance is told to be.

#![forbid(unsafe_code)]

pub mod desired;

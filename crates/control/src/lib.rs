//! Configuration, show models, HTTP API: everything between a person and the engine.
//!
//! Depends on the engine and what lies below it, but never on DPDK, and never touches what a worker owns: it hands over a
//! desired state and asks. Read [`config`] first, then [`dataplane`].
//!
//! [`config`] reads and validates a file into the engine's desired state; [`rib`] reads route tables; [`show`] has one
//! type per message of the API; [`api`] serves them and is their client; [`dataplane`] is what the API asks the
//! running instance, and [`instance`] answers for the engine.

#![forbid(unsafe_code)]

pub mod api;
pub mod config;
pub mod dataplane;
#[cfg(test)]
mod fake;
pub mod instance;
pub mod rib;
pub mod show;

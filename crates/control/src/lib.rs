//! Configuration, show models, HTTP API: everything between a person and the engine.
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

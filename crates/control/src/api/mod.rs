//! The HTTP API: JSON over a Unix socket, and over TCP with a token when configured.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`](crate::show::Status) |
//! | `GET /v1/ports`, `workers`, `queues`, `interfaces`, `neighbors`, `drops`, `graph`, `fib` | the type of that name in [`show`](crate::show) |
//! | `GET /v1/routes?prefix=&longer=&longest=&via=&source=&offset=&limit=` | [`Routes`](crate::show::Routes) |
//! | `POST /v1/queues/move` with [`MoveQueue`](crate::show::MoveQueue) | [`QueueMoved`](crate::show::QueueMoved) |
//! | `POST /v1/trace` with [`TraceRequest`](crate::show::TraceRequest) | [`Trace`](crate::show::Trace) |
//!
//! Errors are `{"error": "…"}` with a matching status. [`listen`] takes the sockets, which fails before anything else is
//! touched; [`server`] serves on a thread of its own on the control CPU; [`client`] is what the command line uses. The
//! server never takes a lock that a worker waits for, and bounds connections, request sizes and times, so that no client
//! can reach the data path.

pub mod client;
pub mod listen;
mod routes;
mod sample;
pub mod server;
mod views;

pub use client::{Client, ClientError};
pub use listen::{ListenError, Listeners};
pub use server::{About, Server};

pub(crate) use views::mac;

use serde::{Deserialize, Serialize};

/// Body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One sentence.
    pub error: String,
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! The router: RIB to FIB, next hops, neighbours, ICMP and their packet nodes.
//!
//! * [`plane`]: what control and workers share. Nodes get a [`plane::Plane`]; read this first.
//! * [`router`]: the control logic, [`Router`]. Desired state and events go in, the plane follows, probes come out.
//! * [`graph`] joins the [`nodes`] and is where to read a packet's way.
//! * [`event`]: what workers tell control and the other way round.
//! * [`model`]: routes, actions, static neighbours, errors. [`show`]: what views print.
//! * [`neighbor`]: ARP and neighbour discovery as a state machine.
//! * [`nodes`]: the packet nodes; [`graph`] joins them and is where to read a packet's way.
//!
//! ```text
//!   control thread                                            workers
//!   Router::apply / insert / withdraw / set_link ──> plane ──> nodes: fib.lookup_batch, next_hops.resolve, adjacency
//!   Router::event  <── bounded queue of RouterEvent ────────── nodes: a packet waits, ARP or ND was heard
//!   Router::probes ─── bounded queue of Probe ───────────────> nodes: send an ARP request or a solicitation
//!   Router::tick, every 100 ms at least
//! ```

#![forbid(unsafe_code)]

mod action;
mod connected;
pub mod event;
pub mod graph;
pub mod model;
pub mod naive;
pub mod neighbor;
pub mod nodes;
pub mod plane;
mod rib;
pub mod router;
pub mod show;
mod sync;
mod table;
pub mod testbed;

pub use event::{Probe, RouterEvent};
pub use model::{Path, RouteAction, RouterConfig, RouterError, Source, StaticNeighbor};
pub use plane::{NextHop, NextHops, Plane};
pub use router::Router;

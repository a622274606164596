//! The router: RIB to FIB, next hops, neighbours, ICMP and their packet nodes.
//!
//! Depends on `wire`, `tables` and `pipeline`, and never on another product, DPDK or the engine. No sockets, threads,
//! files or clocks: time is a parameter. Read [`graph`] first for the way of packets, [`plane`] for that of routes.
//!
//! * [`plane`]: what control and workers share. Nodes get a [`plane::Plane`].
//! * [`acl`]: access lists of interfaces.
//! * [`router`]: the control logic, [`Router`]. Desired state and events go in, the plane follows, probes come out.
//! * [`update`]: routes by the batch, as routing daemons send them.
//! * [`event`]: what workers tell control and the other way round.
//! * [`model`]: routes, actions, static neighbours, errors. [`show`]: what views print.
//! * [`vrf`]: several routing tables in one router.
//! * [`neighbor`]: ARP and neighbour discovery as a state machine.
//! * [`punt`]: what goes up to Linux, by class.
//! * [`nodes`]: the packet nodes; [`graph`] joins them and is where to read a packet's way.
//!
//! ```text
//!   control thread                                            workers
//!   Router::apply / update / insert / withdraw   ──> plane ──> nodes: fib.lookup_batch, next_hops.resolve, adjacency
//!   Router::event  <── bounded queue of RouterEvent ────────── nodes: a packet waits, ARP or ND was heard
//!   Router::probes ─── bounded queue of Probe ───────────────> nodes: send an ARP request or a solicitation
//!   Router::tick, every 100 ms at least
//! ```

#![forbid(unsafe_code)]

pub mod acl;
mod action;
mod check;
pub mod conflict;
mod connected;
pub mod event;
pub mod fuzz;
pub mod graph;
pub mod model;
pub mod multicast;
pub mod naive;
pub mod neighbor;
pub mod nodes;
pub mod plane;
pub mod punt;
mod rib;
pub mod router;
pub mod show;
mod sync;
mod table;
pub mod testbed;
pub mod update;
pub mod vrf;

pub use event::{Probe, RouterEvent};
pub use model::{Path, RouteAction, RouterConfig, RouterError, Source, StaticNeighbor, VrfConfig};
pub use multicast::{Mroute, MrouteError, MrouteKey, MrouteOrigin, MrouteOutput, MrouteView};
pub use plane::{NextHop, NextHops, Plane};
pub use router::Router;
pub use update::Updated;

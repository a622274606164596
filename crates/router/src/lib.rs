//! The router: RIB to FIB, next hops, neighbours, ICMP and their packet nodes.
//!
//! [`plane`] is what control and workers share: nodes get a [`plane::Plane`]. [`event`] is what they tell each other.
//! [`graph`] joins the [`nodes`] and is where to read a packet's way.

#![forbid(unsafe_code)]

pub mod event;
pub mod fuzz;
pub mod graph;
pub mod naive;
pub mod nodes;
pub mod plane;
pub mod testbed;

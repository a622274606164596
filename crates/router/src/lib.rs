//! The router: RIB to FIB, next hops, neighbours, ICMP and their packet nodes.
//!
//! [`plane`] is what control and workers share: nodes get a [`plane::Plane`]. [`event`] is what they tell each other.

#![forbid(unsafe_code)]

pub mod event;
pub mod naive;
pub mod plane;

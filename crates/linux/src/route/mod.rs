//! What Linux and FRR say about routes: owned, typed events from netlink messages.
//!
//! The same messages come from two places: the kernel ([`crate::netlink`]) and FRR's zebra over FPM ([`crate::fpm`],
//! module `dplane_fpm_nl`). [`Decoder`] turns bytes into [`Event`]s. What they say is applied in two ways: the kernel's
//! routes by [`RouteTable`], which knows the ways of its messages; FRR's one by one, with a [`Sweep`] after it restarts.

mod decode;
mod decode_interface;
mod decode_nexthop;
mod decode_route;
mod decode_rule;
mod fault;
mod interface;
mod model;
mod sweep;
mod table;
pub(crate) mod wire;

pub use decode::{Decoder, fuzz};
pub use fault::{Fault, Faults};
pub use interface::{Address, Link, LinkDetail, Mac, Neighbor, NeighborState};
pub use model::{
    Change, Encap, Event, Members, MulticastRoute, NextHop, Nexthop, NexthopAction, Protocol, Resilience,
    Route, RouteKind, RuleSeen, Scope, Unsupported,
};
pub use sweep::{AWAY, QUIET, Sweep};
pub use table::{RouteChange, RouteTable};

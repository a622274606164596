//! FRR's Forwarding Plane Manager interface: zebra (module `dplane_fpm_nl`) connects by TCP and sends routes as netlink
//! messages in frames of at most 64 KB.
//!
//! What FRR 8.4 does, and what follows for whoever applies the events:
//!
//! * After it connects it sends all next-hop objects, then all routes, without a mark at the end. Routes that are not
//!   sent again within a hold time are gone ([`Sweep`](crate::route::Sweep)). A group may come before its members.
//! * A changed route is a delete and a new one in the same frame. [`FrameDecoder`] makes a replacement of the two, so that
//!   forwarding is not interrupted.
//! * A route's identity is table and prefix. The metric is always 20 and IPv6 routes lack the replace flag; each route is
//!   therefore reported as [`Change::Replace`](crate::route::Change).
//! * Connected routes and those that zebra learned from the kernel come too (protocol
//!   [`KERNEL`](crate::route::Protocol::KERNEL)), and `fe80::/64` once per interface though a prefix has one route:
//!   take these from [`crate::netlink`].
//! * A zebra that was killed leaves its routes in the kernel. The next one sweeps those with next hops, but takes over
//!   those that drop and sends them here as its own.
//! * Objects on an interface that goes down are not always deleted.
//! * IPv4 by an IPv6 link-local next hop (RFC 8950) arrives as such only with next-hop groups, FRR's default; see
//!   [`NextHop::gateway`](crate::route::NextHop).

mod frame;
mod server;

pub use frame::{FrameDecoder, fuzz};
pub use server::{Counters, Disconnect, FpmError, FpmEvent, FpmServer};

/// Where FRR connects by default, on the loopback.
pub const PORT: u16 = 2620;

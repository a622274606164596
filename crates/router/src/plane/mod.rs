//! What control and workers share: next hops, ECMP groups, adjacencies, interfaces and the two FIBs of each VRF.
//!
//! ```text
//!   FIB lookup ──> NextHopId ──> word ─┬─ Forward(adjacency) ──> adjacency: interface, port, MTU, Ethernet header
//!                                      ├─ group of 2^n buckets ─(flow hash)─> NextHopId of a member ──> word ──> …
//!                                      ├─ Table(VRF): look the destination up again there
//!                                      └─ Local, Glean, Resolve(adjacency), Unreachable, Prohibit, Blackhole, None
//! ```
//!
//! Everything is an array addressed by index. A record is complete before the one store that publishes it, never
//! changes afterwards, and its index is used again only after every worker has passed a quiescent point
//! ([`linerate_tables::qsbr`]); hence nothing is ever seen half-made. A neighbour that changes its MAC address, a
//! member or a next hop that goes down: one store each, whatever the number of routes that use it.
//!
//! Indices ([`NextHopId`], [`AdjacencyIndex`]) are good until the worker's next quiescent point: use them within the
//! pass through the graph that looked them up, and look up again for packets that were held.
//!
//! Workers hold [`Plane`]; control owns [`PlaneWriter`].

mod adjacency;
mod asked;
mod buckets;
mod fibs;
mod next_hops;
mod ranges;
mod sources;
mod words;
mod writer;

use linerate_pipeline::interface::Interfaces;

use crate::acl::Acls;
use crate::multicast::Multicast;

pub use adjacency::{Adjacency, AdjacencyIndex, MAX_HEADER, Plain};
pub use fibs::{FibSet, VrfFibs};
pub use linerate_tables::fib::NextHopId;
pub use next_hops::{Arrays, NextHop, NextHops};
pub use sources::Backing;
pub(crate) use writer::Limits;
pub use writer::{
    MAX_ADJACENCIES, MAX_GROUP_MEMBERS, MAX_NEXT_HOPS, Member, PlaneError, PlaneUse, PlaneWriter,
};

/// The reading half: what the nodes of one worker get when the graph is assembled. Clone it for each node.
///
/// `R4` and `R6` are the readers of the two FIBs ([`linerate_tables::fib::Lookup`]).
#[derive(Clone, Debug)]
pub struct Plane<R4, R6> {
    /// IPv4 longest-prefix match of the default VRF.
    pub fib4: R4,
    /// IPv6 longest-prefix match of the default VRF.
    pub fib6: R6,
    /// IPv4 longest-prefix match by VRF.
    pub vrfs4: VrfFibs<R4>,
    /// IPv6 longest-prefix match by VRF.
    pub vrfs6: VrfFibs<R6>,
    /// Next hops, groups, adjacencies, and the generation that tells when to look again at held packets.
    pub next_hops: NextHops,
    /// Logical interfaces.
    pub interfaces: Interfaces,
    /// Access lists.
    pub acls: Acls,
    /// Multicast routes, and how copies leave by each interface.
    pub multicast: Multicast,
}

//! Multicast forwarding: which interfaces packets of a stream leave by, and the nodes that make the copies.
//!
//! ```text
//!   control                                          workers
//!   Router::set_mroute ──> map (S,G) -> Entry ──────> ip4_multicast, ip6_multicast: one lookup per run of packets
//!   interfaces ──────────> egress: header templates ─>   of a stream, then for each output a header per packet,
//!   Router::mroutes <───── counters of the entry <────   with the payload shared behind it
//! ```
//!
//! Membership and trees are none of this module's business: routing daemons (PIM, IGMP, MLD) keep those and say what
//! becomes of a stream, or the configuration does. So control traffic leaves the nodes untouched, for the host system, and
//! with it the packets that daemons want to see: the first ones of an unknown stream, some that came in by the wrong
//! interface (PIM asserts), and one a second of each stream, by which the system's own counters tell that it is alive.
//!
//! * [`model`]: routes as control sees them. [`control`]: the methods of [`Router`](crate::Router) for them.
//! * [`table`]: entries and templates as workers see them.
//! * `node.rs`: the packet node, for both families; `family.rs` has what differs between them, `way.rs` what becomes of
//!   packets whose route is known, `lists.rs` which of its copies the outgoing access lists refuse.
//!
//! Sources: RFC 1112 (IPv4 multicast), RFC 2464 7 (IPv6 over Ethernet), RFC 4291 2.7 (scopes), RFC 4443 2.4 e (Packet Too
//! Big), RFC 5771 4 (224.0.0.0/24), RFC 7761 4.2 (forwarding rules of PIM-SM), RFC 2113 and 2711 (router alert).

pub mod control;
mod copies;
pub(crate) mod family;
mod first;
pub(crate) mod lists;
pub mod model;
pub(crate) mod node;
pub mod table;
mod way;

pub use model::{Mroute, MrouteError, MrouteKey, MrouteOrigin, MrouteOutput, MrouteView};
pub use table::Multicast;

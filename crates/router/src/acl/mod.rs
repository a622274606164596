//! Access lists: what may come in by an interface, and what may leave by it.
//!
//! [`Acl`] is a list as an operator means it, [`parse_line`] reads its rules from text. [`AclWriter`], owned by the router's
//! control logic, compiles lists ([`linerate_tables::classifier`]) and publishes all of them with their bindings at once;
//! a worker's [`Acls`] reads them. A batch meets one state of the lists: the one before a change, or the one after it.
//!
//! On the regular way the input nodes ask the incoming list once a header is known to be sound, and the lookup nodes the
//! outgoing list once the interface to leave by is known (`filter.rs`). On the express way both are asked for whole batches
//! there (`nodes/express/filter.rs`); what is not plainly permitted takes the regular way and is asked about again, which
//! counts, logs and drops it. The multicast nodes ask the outgoing list of each interface that a copy would leave by.
//!
//! * Packets for the router itself, multicasts and broadcasts pass the incoming list too. ARP does not: it is not IP.
//! * What the router itself sends (answers, ICMP errors) is not asked about on its way out, as in IOS.
//! * Fragments but the first have no ports: rules with ports, flags or types do not match them.
//! * What hides what a list asks about is dropped as `acl_undetermined`.
//! * Every list ends by denying the rest, unless it says otherwise, and before that permits neighbour discovery (as in IOS).

mod filter;
mod key;
mod log;
mod rule;
mod table;
#[cfg(test)]
mod tests;
mod text;
pub mod words;

pub(crate) use filter::{Filter, Refused, Source};
pub(crate) use key::{CHAIN, PacketKey, TRANSPORT, is_plain, key4, key6};
pub use log::{AclHit, AclLogEntry, KEPT, SAMPLES_PER_SECOND};
pub(crate) use log::{AclLog, AclLogBook};
pub use rule::{
    Acl, AclAction, AclFamily, AclRule, AclRuleError, ESTABLISHED, FLAGS, Family, PORT_PROTOCOLS, TcpMatch,
};
pub use table::{
    AclBinding, AclError, AclRuleView, AclTable, AclView, AclWriter, Acls, Direction, MAX_ACL_RULES,
};
pub(crate) use table::{Decision, ListOf, Row, Worker};
pub use text::{AclLine, AclTextError, parse_line, parse_rules};

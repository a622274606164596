//! The kernel's routing tables, interfaces, addresses and neighbours: [`Monitor`] follows them, [`Writer`] changes them.
//!
//! Sockets belong to the network namespace of the thread that opens them and stay there whatever the thread does later;
//! [`in_namespace`] opens them elsewhere.

mod encode;
mod links;
mod monitor;
mod namespace;
mod socket;
mod writer;

pub(crate) use links::Links;
pub use monitor::{Filter, Monitor, MonitorEvent, Section};
pub use namespace::{enter_new, in_namespace};
pub use socket::NetlinkError;
pub use writer::{LinkSettings, Operation, Rule, RuleTarget, Writer};

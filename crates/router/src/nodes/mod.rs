//! The router's packet nodes, one a file. [`crate::graph`] joins them.

pub mod arp;
pub mod express;
pub mod icmp4_error;
pub mod icmp6_error;
pub mod ip4_fragment;
pub mod ip4_input;
pub mod ip4_rewrite;
pub mod ip6_input;
pub mod ip6_rewrite;
pub(crate) mod l2;
mod limit;
pub mod local;
pub mod lookup;
pub mod nd;
mod payload;
pub mod punt;
pub mod redirect;
pub mod resolve;
pub mod solicit;
pub mod source;

pub use limit::ErrorLimit;

use crate::event::RouterEvent;

/// Where a node puts what control should know. Must not block: a full queue loses the event and counts that.
pub type EventSink = Box<dyn FnMut(RouterEvent) + Send>;

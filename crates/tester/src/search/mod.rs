//! Searching for the highest load that a device forwards.
//!
//! [`Search`] is MLRsearch (RFC 9971): one engine, whose goals are data. [`Goal`] has the usual ones: RFC 2544, binary search with loss
//! verification, NDR, PDR. Classification of loads and conditional throughput ([`classify`]) are those of its appendices A and B; what
//! load is tried next is this module's own choice (`chase.rs`) on a grid of loads a goal's width apart (`grid.rs`).
//!
//! [`BinarySearch`] is the plain one of RFC 2544 and that of ETSI TST009 with loss verification, for comparison and for burst lengths.
//!
//! Loads are frames per second per sending port.

pub mod classify;

mod binary;
mod bisect;
mod chase;
mod engine;
mod goal;
mod grid;
mod ledger;
mod method;

pub use binary::{BinaryResult, BinarySearch};
pub use bisect::Bisect;
pub use classify::{Class, Criterion, Entry, Sums};
pub use engine::{Bound, GoalResult, Search, SearchResult};
pub use goal::{Goal, GoalError};
pub use method::{Found, Method, MethodResult, Regularity};

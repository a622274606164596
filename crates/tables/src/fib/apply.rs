//! Changes in batches: what a routing daemon sends in one go.
//!
//! A change in a full table waits for memory several times in a row: each line it reads says where the next one is. Two
//! changes need not wait one after the other, though, so [`Fib::apply`] asks for the lines of those that
//! come while it makes those that are due.

use super::{Fib, FibError, NextHopId};
use crate::prefix::{Address, Prefix};

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<A: Address> {
    /// The route.
    pub prefix: Prefix<A>,
    /// The next hop it shall have; `None` withdraws it.
    pub next_hop: Option<NextHopId>,
}

/// A batch ended early: changes before this one are made, it and those behind it are not.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("change {at} of the batch was refused: {error}")]
pub struct Refused {
    /// Index of the change that was refused.
    pub at: usize,
    /// Why.
    #[source]
    pub error: FibError,
}

/// Makes changes one after the other.
pub(super) fn one_by_one<A: Address>(fib: &mut impl Fib<A>, changes: &[Change<A>]) -> Result<(), Refused> {
    in_order(changes, |change| match change.next_hop {
        Some(nh) => fib.insert(change.prefix, nh).map(drop),
        None => {
            fib.withdraw(change.prefix);
            Ok(())
        }
    })
}

/// Makes changes in order up to the first that is refused.
pub(super) fn in_order<A: Address>(
    changes: &[Change<A>],
    mut make: impl FnMut(&Change<A>) -> Result<(), FibError>,
) -> Result<(), Refused> {
    changes
        .iter()
        .enumerate()
        .try_for_each(|(at, change)| make(change).map_err(|error| Refused { at, error }))
}

//! A batch: the packets that pass through a node together.

use arrayvec::ArrayVec;

/// The most packets in a batch, and the size of a receive burst.
pub const BURST: usize = 64;

/// At most [`BURST`] packets, in order of arrival. No allocation.
pub type Batch<P> = ArrayVec<P, BURST>;

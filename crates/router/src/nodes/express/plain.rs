//! What plain packets of both families share.

use linerate_tables::fib::NextHopId;

use super::Way;
use crate::plane::Plain;

/// Four bytes at `at`, the first in the lowest bits.
#[inline(always)]
pub(super) fn word<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w))
}

/// The plain adjacency that a next hop leads to; `None` where it is not plain. `hash`: of the packet's flow, asked for where it
/// is a group.
#[inline(always)]
pub(super) fn way_out(id: NextHopId, way: &Way<'_>, hash: impl FnOnce() -> Option<u32>) -> Option<Plain> {
    match way.arrays.forward(id) {
        Some(index) => way.arrays.plain(index),
        None => by_group(id, way, hash),
    }
}

/// Where the next hop is a group: by the member that the packet's flow belongs to, hashed as the regular nodes do. Out of line,
/// for most next hops are none.
#[inline(never)]
fn by_group(id: NextHopId, way: &Way<'_>, hash: impl FnOnce() -> Option<u32>) -> Option<Plain> {
    way.next_hops.forward_member(id, hash).and_then(|index| way.arrays.plain(index))
}

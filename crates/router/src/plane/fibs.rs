//! The FIBs of all VRFs, as workers find them by number.

use std::fmt;

use linerate_pipeline::VrfId;
use linerate_tables::snapshot::Snapshot;

/// A node's handle on the FIBs of one address family, by VRF. Read it at least once per tick: what a node still holds of
/// it keeps the table of a deleted VRF in memory.
pub type VrfFibs<R> = Snapshot<FibSet<R>>;

/// The FIBs of one address family at one moment. The default VRF's is among them.
#[derive(Clone)]
pub struct FibSet<R>(Vec<Option<R>>);

impl<R> FibSet<R> {
    /// These readers, by VRF; `None`: there is no such VRF.
    pub fn new(readers: impl IntoIterator<Item = Option<R>>) -> Self {
        FibSet(readers.into_iter().collect())
    }

    /// The FIB of a VRF; `None` where there is no such VRF.
    #[inline]
    pub fn get(&self, vrf: VrfId) -> Option<&R> {
        self.0.get(usize::from(vrf))?.as_ref()
    }
}

impl<R> fmt::Debug for FibSet<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FibSet({})", self.0.iter().flatten().count())
    }
}

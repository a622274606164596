//! VRFs: several routing tables in one router, made and given up while it runs.
//!
//! Each has a RIB and a FIB per address family. Next hops, groups, adjacencies and neighbours are shared by all: the
//! actions of routes are the same thing in every table, and a neighbour belongs to its interface. So a route may leave by
//! an interface of another VRF, look its gateway up in another VRF, or send packets on to another VRF's table.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

use linerate_pipeline::policy::MAX_VRFS;
use linerate_pipeline::{IfIndex, InterfaceTable, VRF_DEFAULT, VrfId};
use linerate_tables::fib::{Discard, Fib, FibError};
use linerate_tables::prefix::Address;

use crate::connected::{Links, OwnRoutes};
use crate::model::{RouterError, Source, VrfConfig};
use crate::plane::FibSet;
use crate::router::Router;
use crate::table::Table;

/// The longest name of a VRF.
pub const MAX_NAME: usize = 64;

/// Makes the FIBs of a VRF. They must use the router's QSBR domain.
pub(crate) struct Factory<F4, F6>(pub(crate) Option<Make<F4, F6>>);

type Make<F4, F6> = Box<dyn FnMut() -> Result<(F4, F6), FibError> + Send>;

impl<F4, F6> fmt::Debug for Factory<F4, F6> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Factory")
    }
}

/// One VRF.
#[derive(Debug)]
pub(crate) struct Vrf<F4, F6> {
    pub(crate) name: String,
    pub(crate) v4: Table<u32, F4>,
    pub(crate) v6: Table<u128, F6>,
    /// The routes that its interfaces contribute.
    pub(crate) own: OwnRoutes,
    /// How long the prefixes are that neighbours can be in.
    pub(crate) links: Links,
}

impl<F4: Fib<u32>, F6: Fib<u128>> Vrf<F4, F6> {
    pub(crate) fn new(name: &str, fib4: F4, fib6: F6) -> Self {
        Vrf {
            name: name.into(),
            v4: Table::new(fib4),
            v6: Table::new(fib6),
            own: OwnRoutes::default(),
            links: Links::default(),
        }
    }
}

/// The table of an address family, by the type of its addresses.
pub(crate) trait Family<A: Address> {
    type Fib: Fib<A>;
    fn table(&self, vrf: VrfId) -> Option<&Table<A, Self::Fib>>;
    fn table_mut(&mut self, vrf: VrfId) -> Option<&mut Table<A, Self::Fib>>;
}

impl<F4: Fib<u32>, F6: Fib<u128>> Family<u32> for Router<F4, F6> {
    type Fib = F4;
    fn table(&self, vrf: VrfId) -> Option<&Table<u32, F4>> {
        self.vrf(vrf).map(|v| &v.v4)
    }
    fn table_mut(&mut self, vrf: VrfId) -> Option<&mut Table<u32, F4>> {
        self.vrf_mut(vrf).map(|v| &mut v.v4)
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Family<u128> for Router<F4, F6> {
    type Fib = F6;
    fn table(&self, vrf: VrfId) -> Option<&Table<u128, F6>> {
        self.vrf(vrf).map(|v| &v.v6)
    }
    fn table_mut(&mut self, vrf: VrfId) -> Option<&mut Table<u128, F6>> {
        self.vrf_mut(vrf).map(|v| &mut v.v6)
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> fmt::Debug for Router<F4, F6> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Lets the router have VRFs besides the default one, whose FIBs `make` makes: empty, and with the QSBR domain that
    /// [`new`](Self::new) was given.
    #[must_use]
    pub fn with_vrfs(mut self, make: impl FnMut() -> Result<(F4, F6), FibError> + Send + 'static) -> Self {
        self.factory = Factory(Some(Box::new(make)));
        self
    }

    /// Adds a VRF, without interfaces and routes. Its number is the caller's choice; paths of routes that name it come to
    /// life.
    pub fn create_vrf(&mut self, now: u64, vrf: VrfId, name: &str) -> Result<(), RouterError> {
        self.check_vrf(vrf, name)?;
        if self.vrf(vrf).is_some() {
            return Err(RouterError::VrfExists { vrf });
        }
        if self.vrfs().any(|(_, n)| n == name) {
            return Err(RouterError::VrfNameTaken { name: name.into() });
        }
        self.now = now;
        self.add_vrf(vrf, name)?;
        self.finish();
        Ok(())
    }

    /// Removes a VRF with all its routes; no interface may be in it. What it costs is one pass over its routes, and its
    /// memory is given back as soon as no worker is in its tables any more, at a later [`tick`](Self::tick). Routes of
    /// other VRFs that name it stay, without the paths that lead there.
    pub fn delete_vrf(&mut self, now: u64, vrf: VrfId) -> Result<(), RouterError> {
        if vrf == VRF_DEFAULT {
            return Err(RouterError::DefaultVrf);
        }
        if self.vrf(vrf).is_none() {
            return Err(RouterError::NoVrf { vrf });
        }
        if let Some((_, i)) = self.interfaces.current().iter().find(|(_, i)| i.vrf == vrf) {
            return Err(RouterError::VrfInUse { vrf, interface: i.name.clone() });
        }
        self.now = now;
        self.remove_vrf(vrf);
        self.finish();
        Ok(())
    }

    /// Gives back the memory of routes that once were, in all VRFs. For a quiet moment after many have gone: see
    /// [`Fib::compact`].
    pub fn compact(&mut self, discard: Discard) {
        for vrf in std::iter::once(&mut self.default_vrf).chain(self.other_vrfs.iter_mut().flatten()) {
            vrf.v4.rib.compact();
            vrf.v6.rib.compact();
            vrf.v4.fib.compact(discard);
            vrf.v6.fib.compact(discard);
        }
    }

    /// Prefixes with a route, in all VRFs.
    pub fn prefixes(&self) -> usize {
        let all = std::iter::once(&self.default_vrf).chain(self.other_vrfs.iter().flatten());
        all.map(|vrf| vrf.v4.rib.len() + vrf.v6.rib.len()).sum()
    }

    /// The VRFs there are, in order of their numbers, with their names. The default one's is `default`.
    pub fn vrfs(&self) -> impl Iterator<Item = (VrfId, &str)> {
        let others = self.other_vrfs.iter().zip(1..);
        let others = others.filter_map(|(vrf, at)| Some((at, vrf.as_ref()?.name.as_str())));
        std::iter::once((VRF_DEFAULT, self.default_vrf.name.as_str())).chain(others)
    }

    pub(crate) fn vrf(&self, vrf: VrfId) -> Option<&Vrf<F4, F6>> {
        match usize::from(vrf) {
            0 => Some(&self.default_vrf),
            at => self.other_vrfs.get(at - 1)?.as_ref(),
        }
    }

    pub(crate) fn vrf_mut(&mut self, vrf: VrfId) -> Option<&mut Vrf<F4, F6>> {
        match usize::from(vrf) {
            0 => Some(&mut self.default_vrf),
            at => self.other_vrfs.get_mut(at - 1)?.as_mut(),
        }
    }

    /// The VRF of an interface; the default one for an interface that does not exist.
    pub(crate) fn vrf_of(&self, interface: IfIndex) -> VrfId {
        self.interfaces.current().get(interface).map_or(VRF_DEFAULT, |i| i.vrf)
    }

    /// Whether the interfaces' VRFs are among these, besides the default one.
    pub(crate) fn check_interface_vrfs(
        table: &InterfaceTable,
        exists: impl Fn(VrfId) -> bool,
    ) -> Result<(), RouterError> {
        let lost = table.iter().map(|(_, i)| i).find(|i| i.vrf != VRF_DEFAULT && !exists(i.vrf));
        lost.map_or(Ok(()), |i| Err(RouterError::InterfaceVrf { interface: i.name.clone(), vrf: i.vrf }))
    }

    /// Whether these VRFs can stand together in this router.
    pub(crate) fn check_vrfs(&self, wanted: &[VrfConfig]) -> Result<(), RouterError> {
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::from(["default"]));
        for VrfConfig { vrf, name, .. } in wanted {
            self.check_vrf(*vrf, name)?;
            if !ids.insert(*vrf) {
                return Err(RouterError::VrfExists { vrf: *vrf });
            }
            if !names.insert(name) {
                return Err(RouterError::VrfNameTaken { name: name.clone() });
            }
        }
        Ok(())
    }

    fn check_vrf(&self, vrf: VrfId, name: &str) -> Result<(), RouterError> {
        if vrf == VRF_DEFAULT {
            return Err(RouterError::DefaultVrf);
        }
        if usize::from(vrf) >= MAX_VRFS {
            return Err(RouterError::VrfNumber { vrf });
        }
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(RouterError::VrfName { vrf, name: name.chars().take(MAX_NAME).collect() });
        }
        if self.factory.0.is_none() {
            return Err(RouterError::OneVrfOnly);
        }
        Ok(())
    }

    /// Makes a VRF that there is not, and tells workers of its tables before anything leads there.
    pub(crate) fn add_vrf(&mut self, vrf: VrfId, name: &str) -> Result<(), RouterError> {
        let make = self.factory.0.as_mut().ok_or(RouterError::OneVrfOnly)?;
        let (fib4, fib6) = make()?;
        let at = usize::from(vrf).saturating_sub(1);
        if self.other_vrfs.len() <= at {
            self.other_vrfs.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.other_vrfs.get_mut(at) {
            *slot = Some(Vrf::new(name, fib4, fib6));
        }
        self.publish_fibs();
        self.actions.mark_vrf(vrf);
        self.settle();
        Ok(())
    }

    /// Takes a VRF out that no interface is in.
    pub(crate) fn remove_vrf(&mut self, vrf: VrfId) {
        let at = usize::from(vrf).wrapping_sub(1);
        let Some(gone) = self.other_vrfs.get_mut(at).and_then(Option::take) else { return };
        let used = self.other_vrfs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.other_vrfs.truncate(used);
        self.publish_fibs();
        // Neighbours' host routes are not counted as uses; there are none left.
        let four = gone.v4.rib.iter_from(Bound::Unbounded).flat_map(|(_, all)| all);
        let six = gone.v6.rib.iter_from(Bound::Unbounded).flat_map(|(_, all)| all);
        for candidate in four.chain(six).filter(|c| c.source != Source::Neighbor) {
            self.release(candidate.id);
        }
        self.actions.mark_vrf(vrf);
        self.stirred = true;
        self.settle();
    }

    /// Renames a VRF.
    pub(crate) fn name_vrf(&mut self, vrf: VrfId, name: String) {
        if let Some(vrf) = self.vrf_mut(vrf) {
            vrf.name = name;
        }
    }

    fn publish_fibs(&mut self) {
        let all = || (0..=self.other_vrfs.len() as VrfId).map(|vrf| self.vrf(vrf));
        let four = FibSet::new(all().map(|v| v.map(|v| v.v4.fib.reader())));
        let six = FibSet::new(all().map(|v| v.map(|v| v.v6.fib.reader())));
        self.fibs4.publish(four);
        self.fibs6.publish(six);
    }
}

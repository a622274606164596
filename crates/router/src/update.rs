//! Route changes in batches: what a routing daemon sends in one go.
//!
//! The same as [`Router::insert`] and [`Router::withdraw`] one by one, in order, but what does not depend on the single route
//! is done once: each action is made once, the FIB is changed in batches, actions and neighbours are brought up to
//! date at the end. Where a change concerns what others depend on (the network of a gateway or of a neighbour), everything
//! before it is brought up to date first, so that no route of the batch leads anywhere it would not lead one by one.

use std::collections::HashMap;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::VrfId;
use linerate_tables::fib::{Change, Fib, FibError, NextHopId};
use linerate_tables::prefix::{Address, Prefix};

use crate::action::Key;
use crate::model::{RouteAction, RouterError, Source};
use crate::rib::Step;
use crate::router::Router;
use crate::vrf::Family;

/// Most refusals of one batch that are told with their reason.
pub const MAX_REFUSED: usize = 32;

/// Changes whose actions are held at a time: what bounds the memory of a batch, however long it is.
const CHUNK: usize = 1024;

/// What a batch did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Updated {
    /// Routes that were not there before.
    pub added: usize,
    /// Routes with another action than before.
    pub replaced: usize,
    /// Routes that are gone.
    pub removed: usize,
    /// Changes that asked for what was so already.
    pub unchanged: usize,
    /// Changes that were refused: the route, if there was one, is as before.
    pub refused: usize,
    /// The first [`MAX_REFUSED`] of them, and why.
    pub reasons: Vec<(IpNet, RouterError)>,
}

impl Updated {
    fn refuse(&mut self, prefix: IpNet, error: RouterError) {
        self.refused += 1;
        if self.reasons.len() < MAX_REFUSED {
            self.reasons.push((prefix, error));
        }
    }

    fn count(&mut self, had: Option<NextHopId>, has: Option<NextHopId>) {
        *match (had, has) {
            (had, has) if had == has => &mut self.unchanged,
            (None, _) => &mut self.added,
            (Some(_), Some(_)) => &mut self.replaced,
            (Some(_), None) => &mut self.removed,
        } += 1;
    }
}

/// A route, the action it was given (with one use) or `None`, and what that did to the RIB.
type Noted<A> = (Prefix<A>, Option<NextHopId>, Step);

/// Changes of one family that are in the RIB and not yet in the FIB.
struct Pending<A: Address> {
    changes: Vec<Noted<A>>,
    /// Those that change what forwards, and which of `changes` each is.
    fib: Vec<Change<A>>,
    of: Vec<usize>,
}

/// Changes that the FIB has not made.
struct Rest<A: Address> {
    /// Why not the first of them.
    error: FibError,
    changes: Vec<Noted<A>>,
}

/// Actions of a batch that are known already, with one use each of the batch's own: the address of the action, and
/// whether the route is IPv4.
type Known = HashMap<(*const RouteAction, bool), NextHopId>;

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Changes routes of one source (a routing daemon's) in one VRF, in order: `Some` adds a route or replaces its action, `None`
    /// removes it. Routes with the same action should share one `Arc`. What is refused (an impossible gateway, a full
    /// table) leaves its route as it was and stops nothing else.
    pub fn update(
        &mut self,
        now: u64,
        vrf: VrfId,
        source: Source,
        changes: &[(IpNet, Option<Arc<RouteAction>>)],
    ) -> Updated {
        self.now = now;
        let mut updated = Updated::default();
        if self.vrf(vrf).is_none() {
            changes.iter().for_each(|(prefix, _)| updated.refuse(*prefix, RouterError::NoVrf { vrf }));
            return updated;
        }
        for chunk in changes.chunks(CHUNK) {
            self.update_chunk(vrf, source, chunk, &mut updated);
        }
        self.finish();
        updated
    }

    fn update_chunk(
        &mut self,
        vrf: VrfId,
        source: Source,
        chunk: &[(IpNet, Option<Arc<RouteAction>>)],
        updated: &mut Updated,
    ) {
        let mut known = Known::new();
        let ids: Vec<Result<Option<NextHopId>, RouterError>> = chunk
            .iter()
            .map(|(prefix, action)| {
                action.as_ref().map(|action| self.intern_known(vrf, *prefix, action, &mut known)).transpose()
            })
            .collect();
        // New actions get their meaning before a route names them.
        self.settle();
        let (mut v4, mut v6) = (Pending::<u32>::default(), Pending::<u128>::default());
        for ((prefix, _), id) in chunk.iter().zip(ids) {
            match (prefix, id) {
                (prefix, Err(error)) => updated.refuse(*prefix, error),
                (IpNet::V4(p), Ok(id)) => self.note(vrf, &mut v4, (*p).into(), source, id),
                (IpNet::V6(p), Ok(id)) => self.note(vrf, &mut v6, (*p).into(), source, id),
            }
            if self.is_unsettled() {
                self.bring_in(vrf, &mut v4, &mut v6, source, updated);
                self.settle();
            }
        }
        self.bring_in(vrf, &mut v4, &mut v6, source, updated);
        known.into_values().for_each(|id| self.release(id));
    }

    /// The next hop of an action with one more use.
    fn intern_known(
        &mut self,
        vrf: VrfId,
        prefix: IpNet,
        action: &Arc<RouteAction>,
        known: &mut Known,
    ) -> Result<NextHopId, RouterError> {
        // A host route by an interface alone means something else for each host, a default route something of its own.
        let host = prefix.prefix_len() == prefix.max_prefix_len();
        let shared = prefix.prefix_len() > 0 && !(host && action.has_links());
        let key = (Arc::as_ptr(action), matches!(prefix, IpNet::V4(_)));
        if let Some(id) = known.get(&key).filter(|_| shared) {
            self.actions.hold(*id);
            return Ok(*id);
        }
        let table = self.interfaces.current();
        action.check(prefix, |i| table.get(i).is_some())?;
        let id = self.intern(Key::of(action, vrf, prefix))?;
        if shared {
            self.actions.hold(id);
            known.insert(key, id);
        }
        Ok(id)
    }

    /// Changes one route in the RIB, and notes what the FIB is to follow and what depends on it.
    fn note<A: Address>(
        &mut self,
        vrf: VrfId,
        pending: &mut Pending<A>,
        prefix: Prefix<A>,
        source: Source,
        id: Option<NextHopId>,
    ) where
        Self: Family<A>,
    {
        let Some(table) = self.table_mut(vrf) else { return };
        let step = table.rib.set(prefix, source, id);
        self.follow(vrf, prefix, source, id, step);
        let (before, after) = (step.before.map(|c| c.id), step.after.map(|c| c.id));
        if before != after {
            pending.of.push(pending.changes.len());
            pending.fib.push(Change { prefix, next_hop: after });
        }
        pending.changes.push((prefix, id, step));
    }

    /// Brings the FIBs up to date with the RIBs. Nothing else may change routes before both are: giving up an action can
    /// change the host route of a neighbour, of either family.
    fn bring_in(
        &mut self,
        vrf: VrfId,
        v4: &mut Pending<u32>,
        v6: &mut Pending<u128>,
        source: Source,
        updated: &mut Updated,
    ) {
        let mut gone = Vec::with_capacity(v4.changes.len() + v6.changes.len());
        let rest4 = self.apply_pending(vrf, v4, source, &mut gone, updated);
        let rest6 = self.apply_pending(vrf, v6, source, &mut gone, updated);
        gone.into_iter().for_each(|id| self.release(id));
        self.one_by_one(vrf, rest4, source, updated);
        self.one_by_one(vrf, rest6, source, updated);
    }

    /// Brings one FIB up to date. What it refuses, and what is behind that, goes out of the RIB again and is returned.
    fn apply_pending<A: Address>(
        &mut self,
        vrf: VrfId,
        pending: &mut Pending<A>,
        source: Source,
        gone: &mut Vec<NextHopId>,
        updated: &mut Updated,
    ) -> Option<Rest<A>>
    where
        Self: Family<A>,
    {
        let refused = self.table_mut(vrf)?.fib.apply(&pending.fib).err();
        let made = match &refused {
            Some(refused) => pending.of.get(refused.at).copied().unwrap_or(0),
            None => pending.changes.len(),
        };
        let changes = pending.changes.split_off(made);
        for (_, id, step) in pending.changes.drain(..) {
            updated.count(step.had, id);
            gone.extend(step.had);
        }
        pending.fib.clear();
        pending.of.clear();
        let error = refused?.error;
        // Back to where the FIB is, last change first.
        for (prefix, id, step) in changes.iter().rev() {
            self.table_mut(vrf)?.rib.set(*prefix, source, step.had);
            self.unfollow(vrf, *prefix, source, *id, *step);
        }
        Some(Rest { error, changes })
    }

    /// Refuses the first of these changes and makes the others, each as if it came alone.
    fn one_by_one<A: Address>(
        &mut self,
        vrf: VrfId,
        rest: Option<Rest<A>>,
        source: Source,
        updated: &mut Updated,
    ) where
        Self: Family<A>,
    {
        let Some(Rest { error, changes }) = rest else { return };
        let mut error = Some(error);
        for (prefix, id, _) in changes {
            let changed = match error.take() {
                Some(error) => Err(error.into()),
                None => self.change(vrf, prefix, source, id),
            };
            match changed {
                Ok(step) => updated.count(step.had, id),
                Err(error) => {
                    id.into_iter().for_each(|id| self.release(id));
                    if let Ok(net) = IpNet::new(prefix.first().to_ip(), prefix.len()) {
                        updated.refuse(net, error);
                    }
                }
            }
        }
    }
}

impl<A: Address> Default for Pending<A> {
    fn default() -> Self {
        Pending { changes: Vec::new(), fib: Vec::new(), of: Vec::new() }
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;

//! What a neighbour's state means for the plane: its next hop, its adjacency, its host route, and the routes that use
//! it.

use std::net::IpAddr;

use linerate_pipeline::{IfIndex, VrfId};
use linerate_tables::fib::Fib;
use linerate_tables::prefix::{Address, Prefix};

use crate::action::{Key, Target};
use crate::model::{RouterError, Source};
use crate::neighbor::{EntryIndex, NeighborState, SECOND};
use crate::plane::{Adjacency, NextHop, NextHopId, PlaneError};
use crate::router::Router;
use crate::vrf::Family;

/// How long a neighbour that found the tables full waits before it tries again.
const STARVED: u64 = SECOND;

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Brings the plane up to date with one neighbour.
    pub(crate) fn sync(&mut self, at: EntryIndex) {
        self.connect(at);
        let wanted = self.may_have_host_route(at);
        self.set_host_route(at, wanted);
        if self.neighbors.get(at).is_some_and(|e| e.state.is_none()) {
            self.neighbors.reap(at);
        }
    }

    /// Gives a neighbour the next hop that its state asks for, or takes it out of the plane where nothing needs it.
    pub(crate) fn connect(&mut self, at: EntryIndex) {
        let Some(entry) = self.neighbors.get(at) else { return };
        let state = entry.state.filter(|_| self.is_up(entry.interface));
        let used = !entry.link.users.is_empty();
        let wanted = match state {
            // Packets for it wait at the next hop of the network it is in: no entry of its own is needed yet.
            Some(NeighborState::Incomplete) => used || entry.link.id.is_some(),
            Some(_) => true,
            None => used,
        };
        if !wanted {
            self.unlink(at);
        } else if let Err(error) = self.link(at, state) {
            self.starve(at, error);
        }
    }

    /// Lets those try again that found the tables full.
    pub(crate) fn feed_starved(&mut self) {
        if self.now >= self.starved_until {
            for at in std::mem::take(&mut self.starved) {
                self.neighbors.touch(at);
            }
        }
    }

    /// Gives a neighbour the next hop its state asks for.
    fn link(&mut self, at: EntryIndex, state: Option<NeighborState>) -> Result<(), PlaneError> {
        let Some(entry) = self.neighbors.get_mut(at) else { return Ok(()) };
        let fresh = entry.link.id.is_none();
        let id = match entry.link.id {
            Some(id) => id,
            None => self.plane.add(NextHop::Unreachable)?,
        };
        entry.link.id = Some(id);
        if fresh {
            entry.link.next_hop = NextHop::Unreachable;
        }
        let (next_hop, old) = self.next_hop_for(at, state)?;
        self.mean(at, id, next_hop, fresh);
        if let Some(old) = old {
            self.plane.remove_adjacency(old);
        }
        Ok(())
    }

    /// Makes this what a neighbour's next hop says, and tells the actions that use it.
    fn mean(&mut self, at: EntryIndex, id: NextHopId, next_hop: NextHop, fresh: bool) {
        let Some(entry) = self.neighbors.get_mut(at) else { return };
        let before = std::mem::replace(&mut entry.link.next_hop, next_hop);
        if before == next_hop && !fresh {
            return;
        }
        let users: Vec<NextHopId> = entry.link.users.iter().copied().collect();
        self.plane.set(id, next_hop);
        self.stirred = true;
        let life = fresh || (before == NextHop::Unreachable) != (next_hop == NextHop::Unreachable);
        for user in users {
            // A group names the neighbour's next hop and has followed already; it is dealt anew where one comes or
            // goes.
            let single = self.actions.get(user).is_some_and(|a| a.targets.len() < 2);
            if single || life {
                self.publish(user);
            }
        }
    }

    /// The tables are full: a neighbour that routes use cannot be reached until there is room. Nothing may name its old
    /// adjacency when that is given back.
    fn starve(&mut self, at: EntryIndex, error: PlaneError) {
        self.neighbors.stats.plane_full += 1;
        self.full = Some(error);
        let Some(entry) = self.neighbors.get_mut(at) else { return };
        if entry.link.users.is_empty() {
            return self.unlink(at);
        }
        if self.starved.is_empty() {
            self.starved_until = self.now + STARVED;
        }
        self.starved.push(at);
        entry.link.rebuild = true;
        let built = entry.link.built.take();
        if let Some(id) = entry.link.id {
            self.mean(at, id, NextHop::Unreachable, false);
        }
        if let Some((adjacency, _)) = built {
            self.plane.remove_adjacency(adjacency);
        }
    }

    /// The next hop for a state, with a new adjacency where the present one does not fit; then also the old one, to
    /// be given back when nobody names it any more.
    fn next_hop_for(
        &mut self,
        at: EntryIndex,
        state: Option<NeighborState>,
    ) -> Result<(NextHop, Option<u32>), PlaneError> {
        let Some(entry) = self.neighbors.get_mut(at) else { return Ok((NextHop::Unreachable, None)) };
        if matches!(state, None | Some(NeighborState::Failed)) {
            let old = entry.link.built.take().map(|(a, _)| a);
            return Ok((NextHop::Unreachable, old));
        }
        let mac = entry.mac;
        let wrap = |a| if mac.is_some() { NextHop::Forward(a) } else { NextHop::Resolve(a) };
        let fits = |built: &(u32, Option<[u8; 6]>)| built.1 == mac && !entry.link.rebuild;
        if let Some((adjacency, _)) = entry.link.built.filter(fits) {
            return Ok((wrap(adjacency), None));
        }
        let (index, address) = (entry.interface, entry.address);
        let Some(interface) = self.interfaces.current().get(index) else {
            return Ok((NextHop::Unreachable, None));
        };
        let new = self.plane.add_adjacency(&Adjacency::new(index, interface, mac), Some(address))?;
        entry.link.rebuild = false;
        let old = entry.link.built.replace((new, mac)).map(|(a, _)| a);
        Ok((wrap(new), old))
    }

    /// Takes a neighbour that nothing uses out of the plane.
    fn unlink(&mut self, at: EntryIndex) {
        self.set_host_route(at, false);
        let Some(entry) = self.neighbors.get_mut(at) else { return };
        let (id, built) = (entry.link.id.take(), entry.link.built.take());
        entry.link.next_hop = NextHop::None;
        if let Some(id) = id {
            self.plane.remove(id);
            self.stirred = true;
        }
        if let Some((adjacency, _)) = built {
            self.plane.remove_adjacency(adjacency);
        }
    }

    /// Whether packets to a neighbour's address go by its interface's link, and not by a more specific route. Where the
    /// route has other paths too it has its host route only while it can be reached: for a destination that is on one
    /// of several links, that is where it has answered.
    fn may_have_host_route(&self, at: EntryIndex) -> bool {
        let Some(entry) = self.neighbors.get(at) else { return false };
        let alive = matches!(entry.link.next_hop, NextHop::Forward(_));
        entry.state.is_some_and(|_| self.is_up(entry.interface))
            && self.on_link(entry.interface, entry.address).is_some_and(|alone| alone || alive)
    }

    /// An action that means this neighbour and nothing else gives its host route the next hop: so that a gateway, which
    /// has both, counts once among those that a FIB can tell apart.
    fn host_next_hop(&self, at: EntryIndex) -> Option<NextHopId> {
        let link = &self.neighbors.get(at)?.link;
        let same = |user: &&NextHopId| {
            self.actions
                .get(**user)
                .filter(|a| !matches!(a.key, Key::Default(_)))
                .is_some_and(|a| matches!(a.targets[..], [(t, _)] if t == Target::Neighbor(at)))
        };
        // The one it has, so that it changes only where it must.
        let kept = link.hosted.as_ref().filter(|id| link.users.contains(id)).filter(same);
        kept.or_else(|| link.users.iter().find(same)).copied().or(link.id)
    }

    /// Gives a neighbour's host route another next hop where it has that of `user`, which no longer means the same.
    pub(crate) fn rehost(&mut self, at: EntryIndex, user: NextHopId) {
        if self.neighbors.get(at).is_some_and(|e| e.link.hosted == Some(user)) {
            self.set_host_route(at, true);
        }
    }

    fn set_host_route(&mut self, at: EntryIndex, wanted: bool) {
        let id = if wanted { self.host_next_hop(at) } else { None };
        let Some(entry) = self.neighbors.get(at) else { return };
        let (vrf, had_in) = (self.vrf_of(entry.interface), entry.link.hosted_in);
        if entry.link.hosted == id && (id.is_none() || had_in == vrf) {
            return;
        }
        let address = entry.address;
        let moved = entry.link.hosted.is_some() && had_in != vrf;
        let steps = [moved.then_some((had_in, None)), Some((vrf, id))];
        for (vrf, id) in steps.into_iter().flatten() {
            match address {
                IpAddr::V4(a) => self.host_route(at, vrf, a.to_bits(), id),
                IpAddr::V6(a) => self.host_route(at, vrf, a.to_bits(), id),
            }
        }
    }

    fn host_route<A: Address>(&mut self, at: EntryIndex, vrf: VrfId, address: A, id: Option<NextHopId>)
    where
        Self: Family<A>,
    {
        let Some(prefix) = Prefix::new(address, A::BITS) else { return };
        let Some(entry) = self.neighbors.get_mut(at) else { return };
        let had = std::mem::replace(&mut entry.link.hosted, id);
        entry.link.hosted_in = vrf;
        // Another interface's neighbour of the same address may have taken the place already.
        let there = self.table(vrf).and_then(|table| table.rib.get(prefix, Source::Neighbor));
        let ours = had.is_some() && there == had;
        let result = match id {
            None if !ours => return,
            id => self.change(vrf, prefix, Source::Neighbor, id),
        };
        let left = id.is_none() || result.is_err();
        if result.is_err() {
            self.neighbors.stats.plane_full += 1;
            if let Some(entry) = self.neighbors.get_mut(at) {
                entry.link.hosted = None;
            }
            // Taking out always works. What it had may mean something else soon.
            let _: Result<_, RouterError> =
                if ours { self.change(vrf, prefix, Source::Neighbor, None).map(drop) } else { Ok(()) };
        }
        if left && ours {
            self.offer_place(at, vrf, prefix.first().to_ip());
        }
    }

    /// A host route is gone: another interface's neighbour of the same address, displaced by it, takes its place.
    fn offer_place(&mut self, at: EntryIndex, vrf: VrfId, address: IpAddr) {
        let others: Vec<EntryIndex> = self.neighbors.between(address, address).filter(|o| *o != at).collect();
        for other in others {
            if let Some(entry) = self.neighbors.get_mut(other).filter(|e| e.link.hosted_in == vrf)
                && entry.link.hosted.take().is_some()
            {
                self.neighbors.touch(other);
            }
        }
    }

    /// Whether packets to an address go by this interface's link without a gateway; `Some(true)`: and by that alone.
    pub(crate) fn on_link(&self, interface: IfIndex, address: IpAddr) -> Option<bool> {
        let route = self.longest(self.vrf_of(interface), address)?;
        self.actions.get(route.id)?.key.on_link(interface)
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Brings actions and neighbours up to date with what changed.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(id) = self.actions.dirty.pop_first() {
                self.resolve(id);
            } else if let Some(at) = self.neighbors.take_changed() {
                self.sync(at);
            } else {
                return;
            }
        }
    }

    /// Ends a change. Only now are workers told to look again at packets they hold: all of it is in the tables, and no
    /// other change need follow for them to see it.
    pub(crate) fn finish(&mut self) {
        self.settle();
        if std::mem::take(&mut self.stirred) {
            self.plane.wake();
        }
        self.plane.commit();
    }
}

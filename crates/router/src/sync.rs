//! What a neighbour's state means for the plane: its next hop, its adjacency, its host route, and the routes that use
//! it.

use std::net::IpAddr;

use linerate_tables::fib::Fib;
use linerate_tables::prefix::Prefix;

use crate::action::Key;
use crate::model::Source;
use crate::neighbor::{EntryIndex, NeighborState};
use crate::plane::{Adjacency, NextHop, NextHopId, PlaneError};
use crate::router::Router;

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Brings the plane up to date with one neighbour.
    pub(crate) fn sync(&mut self, at: EntryIndex) {
        let Some(entry) = self.neighbors.get(at) else { return };
        let (interface, address, gone) = (entry.interface, entry.address, entry.state.is_none());
        let state = entry.state.filter(|_| self.is_up(interface));
        let used = !entry.link.users.is_empty();
        let wanted = match state {
            // Packets for it wait at the connected network's own next hop: no entry of its own is needed yet.
            Some(NeighborState::Incomplete) => used || entry.link.id.is_some(),
            Some(_) => true,
            None => used,
        };
        if !wanted {
            self.unlink(at);
        } else if self.link(at, state).is_err() {
            self.neighbors.stats.plane_full += 1;
            self.unlink(at);
        } else {
            let hosted = state.is_some() && self.may_have_host_route(interface, address);
            self.set_host_route(at, hosted);
        }
        if gone {
            self.neighbors.reap(at);
        }
    }

    /// Gives a neighbour the next hop its state asks for.
    fn link(&mut self, at: EntryIndex, state: Option<NeighborState>) -> Result<(), PlaneError> {
        let (next_hop, old) = self.next_hop_for(at, state)?;
        let Some(entry) = self.neighbors.get_mut(at) else { return Ok(()) };
        let link = &mut entry.link;
        let before = std::mem::replace(&mut link.next_hop, next_hop);
        match link.id {
            None => link.id = Some(self.plane.add(next_hop)?),
            Some(id) if before != next_hop => self.plane.set(id, next_hop),
            Some(_) => return Ok(()),
        }
        let life = (before == NextHop::Unreachable) != (next_hop == NextHop::Unreachable);
        let users: Vec<NextHopId> = link.users.iter().copied().collect();
        for user in users {
            // A group names the neighbour's next hop and has followed already; it is dealt anew where one comes or
            // goes.
            let single = self.actions.get(user).is_some_and(|a| a.targets.len() < 2);
            if single || life {
                self.publish(user);
            }
        }
        if let Some(old) = old {
            self.plane.remove_adjacency(old);
        }
        self.plane.wake();
        Ok(())
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
        let rebuild = std::mem::take(&mut entry.link.rebuild);
        if let Some((adjacency, _)) = entry.link.built.filter(|(_, made_for)| *made_for == mac && !rebuild) {
            return Ok((wrap(adjacency), None));
        }
        let (index, address) = (entry.interface, entry.address);
        let Some(interface) = self.interfaces.current().get(index) else {
            return Ok((NextHop::Unreachable, None));
        };
        let new = self.plane.add_adjacency(&Adjacency::new(index, interface, mac), Some(address))?;
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
            self.plane.wake();
        }
        if let Some((adjacency, _)) = built {
            self.plane.remove_adjacency(adjacency);
        }
    }

    /// Whether packets to this address go to the interface's connected network, and not by a more specific route.
    fn may_have_host_route(&self, interface: u16, address: IpAddr) -> bool {
        self.longest(address).is_some_and(|c| {
            c.source == Source::Connected
                && self.actions.get(c.id).is_some_and(|a| a.key == Key::Glean(interface))
        })
    }

    fn set_host_route(&mut self, at: EntryIndex, wanted: bool) {
        let Some(entry) = self.neighbors.get_mut(at) else { return };
        let (had, id, address) = (entry.link.host_route, entry.link.id, entry.address);
        if had == wanted {
            return;
        }
        entry.link.host_route = wanted;
        let result = match address {
            IpAddr::V4(a) => Prefix::new(a.to_bits(), 32).map(|p| {
                // Another interface's neighbour of the same address may have taken the place already.
                let ours = self.v4.rib.get(p, Source::Neighbor) == id;
                if wanted || ours {
                    self.change(p, Source::Neighbor, id.filter(|_| wanted)).map(|_| ())
                } else {
                    Ok(())
                }
            }),
            IpAddr::V6(a) => Prefix::new(a.to_bits(), 128).map(|p| {
                let ours = self.v6.rib.get(p, Source::Neighbor) == id;
                if wanted || ours {
                    self.change(p, Source::Neighbor, id.filter(|_| wanted)).map(|_| ())
                } else {
                    Ok(())
                }
            }),
        };
        if let Some(Err(_)) = result {
            self.neighbors.stats.plane_full += 1;
            if let Some(entry) = self.neighbors.get_mut(at) {
                entry.link.host_route = false;
            }
        }
    }
}

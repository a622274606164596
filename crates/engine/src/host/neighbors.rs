//! What Linux was told of the router's neighbours.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_linux::netlink::Operation;
use linerate_linux::route::NeighborState;
use linerate_pipeline::IfIndex;

/// A neighbour: the interface and its address there.
pub(super) type Key = (IfIndex, IpAddr);
/// Its MAC address and state.
pub(super) type Known = ([u8; 6], NeighborState);

/// Neighbours that Linux knows from us.
#[derive(Debug, Default)]
pub(super) struct Neighbors(HashMap<Key, Known>);

impl Neighbors {
    /// Tells what differs from `now`. What `tell` could not tell is told the next time.
    pub(super) fn tell(
        &mut self,
        now: &HashMap<Key, Known>,
        mut tell: impl FnMut(Operation, Key, Known) -> bool,
    ) {
        for (key, known) in now {
            if self.0.get(key) != Some(known) && tell(Operation::Replace, *key, *known) {
                self.0.insert(*key, *known);
            }
        }
        self.0.retain(|key, known| now.contains_key(key) || !tell(Operation::Delete, *key, *known));
    }

    /// Linux has an entry of its own there, or none any more: it does not know this one from us.
    pub(super) fn lost(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// The tap of an interface is another one: Linux knows nobody there.
    pub(super) fn forget(&mut self, interface: IfIndex) {
        self.0.retain(|(of, _), _| *of != interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(interface: IfIndex) -> Key {
        (interface, IpAddr::from([10, 0, 0, 1]))
    }

    fn told(neighbors: &mut Neighbors, now: &[(Key, Known)], works: bool) -> Vec<(Operation, IfIndex)> {
        let mut all = Vec::new();
        neighbors.tell(&now.iter().copied().collect(), |operation, (interface, _), _| {
            all.push((operation, interface));
            works
        });
        all.sort_by_key(|(_, interface)| *interface);
        all
    }

    #[test]
    fn what_could_not_be_told_is_told_again() {
        let mut n = Neighbors::default();
        let known = ([2, 0, 0, 0, 0, 1], NeighborState::Reachable);
        let both = [(key(0), known), (key(1), known)];
        let add = [(Operation::Replace, 0), (Operation::Replace, 1)];
        assert_eq!(told(&mut n, &both, false), add);
        assert_eq!(told(&mut n, &both, true), add);
        assert_eq!(told(&mut n, &both, true), []);
        let stale = [(key(0), (known.0, NeighborState::Stale)), both[1]];
        assert_eq!(told(&mut n, &stale, false), add[..1]);
        assert_eq!(told(&mut n, &stale, true), add[..1]);
        assert_eq!(told(&mut n, &stale[..1], false), [(Operation::Delete, 1)]);
        assert_eq!(told(&mut n, &stale[..1], true), [(Operation::Delete, 1)]);
        assert_eq!(told(&mut n, &stale[..1], true), []);
    }

    #[test]
    fn what_linux_has_lost_is_told_again_and_what_is_its_own_is_left_alone() {
        let mut n = Neighbors::default();
        let both = [0, 1].map(|i| (key(i), ([2, 0, 0, 0, 0, 1], NeighborState::Permanent)));
        told(&mut n, &both, true);
        n.lost(&key(0));
        assert_eq!(told(&mut n, &both, true), [(Operation::Replace, 0)]);
        n.lost(&key(1));
        assert_eq!(told(&mut n, &both[..1], true), []);
    }

    #[test]
    fn a_tap_made_anew_is_told_all() {
        let mut n = Neighbors::default();
        let known = ([2, 0, 0, 0, 0, 1], NeighborState::Reachable);
        let both = [(key(0), known), (key(1), known)];
        told(&mut n, &both, true);
        n.forget(1);
        assert_eq!(told(&mut n, &both, true), [(Operation::Replace, 1)]);
    }
}

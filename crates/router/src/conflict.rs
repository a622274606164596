//! Other stations that use this router's addresses (RFC 5227 2.4, RFC 4862 5.4), and what is heard without being asked.

use std::net::IpAddr;

use linerate_pipeline::IfIndex;
use linerate_tables::fib::Fib;

use crate::neighbor::SECOND;
use crate::router::Router;

/// Between two notices about one address, at least.
const NOTICE: u64 = 60 * SECOND;

/// What was heard of others that claim an address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// The MAC address of who claimed it last.
    pub mac: [u8; 6],
    /// Messages that claimed it.
    pub count: u64,
    /// When the last came, nanoseconds of the router's clock.
    pub last: u64,
    /// When somebody was last told; `None`: not yet.
    told: Option<u64>,
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Duplicate addresses noticed, by interface, of those that interfaces have now.
    pub fn conflicts(&self) -> impl Iterator<Item = (IfIndex, &Conflict)> {
        let table = self.interfaces();
        let own = move |i: IfIndex, address| table.get(i).is_some_and(|f| f.owns(address));
        self.conflicts.iter().filter(move |(key, _)| own(key.0, key.1)).map(|(key, c)| (key.0, c))
    }

    /// Those that an operator should be told of now: new ones at once, others once a minute while they last. Counts as
    /// having told.
    pub fn conflicts_to_tell(&mut self) -> Vec<(IfIndex, Conflict)> {
        let now = self.now;
        let due =
            |c: &Conflict| c.told.is_none_or(|told| c.last > told && now.saturating_sub(told) >= NOTICE);
        let mut all = Vec::new();
        for ((interface, _), conflict) in self.conflicts.iter_mut().filter(|(_, c)| due(c)) {
            conflict.told = Some(now);
            all.push((*interface, *conflict));
        }
        all
    }

    pub(crate) fn note_conflict(&mut self, interface: IfIndex, address: IpAddr, mac: [u8; 6]) {
        self.neighbors.stats.duplicates += 1;
        let key = (interface, address);
        if !self.conflicts.contains_key(&key) {
            // Those of addresses that have gone make room: there are never more than addresses.
            let table = self.interfaces.current();
            self.conflicts.retain(|(i, address), _| table.get(*i).is_some_and(|f| f.owns(*address)));
        }
        let new = Conflict { address, mac, count: 0, last: 0, told: None };
        let conflict = self.conflicts.entry(key).or_insert(new);
        (conflict.mac, conflict.last) = (mac, self.now);
        conflict.count += 1;
    }

    /// Whether stations that announce themselves on an interface become neighbours.
    pub(crate) fn learns_gratuitous(&self, interface: IfIndex) -> bool {
        self.interfaces().get(interface).is_some_and(|i| i.policy.learn_gratuitous)
    }

    /// Whether an answer was asked for: then it makes a neighbour even where the question was forgotten, as happens while
    /// somebody scans a network.
    pub(crate) fn was_asked(&self, interface: IfIndex, address: IpAddr) -> bool {
        self.plane.reader().asked_recently(self.now, interface, address)
    }
}

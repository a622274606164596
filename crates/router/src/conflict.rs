//! Other stations that use this router's addresses (RFC 5227 2.4, RFC 4862 5.4), and what is heard without being asked.

use std::net::IpAddr;

use linerate_pipeline::IfIndex;
use linerate_tables::fib::Fib;

use crate::neighbor::SECOND;
use crate::router::Router;

/// Between two notices about one interface, at least.
const NOTICE: u64 = 60 * SECOND;

/// What was heard on one interface of others that claim its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address claimed last.
    pub address: IpAddr,
    /// The MAC address of who claimed it.
    pub mac: [u8; 6],
    /// Messages that claimed an address, since the start.
    pub count: u64,
    /// When the last came, nanoseconds of the router's clock.
    pub last: u64,
    /// When somebody was last told; `None`: not yet.
    told: Option<u64>,
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Duplicate addresses noticed, by interface.
    pub fn conflicts(&self) -> impl Iterator<Item = (IfIndex, &Conflict)> {
        self.conflicts.iter().map(|(i, c)| (*i, c))
    }

    /// Those that an operator should be told of now: new ones at once, others once a minute while they last. Counts as
    /// having told.
    pub fn conflicts_to_tell(&mut self) -> Vec<(IfIndex, Conflict)> {
        let now = self.now;
        let due =
            |c: &Conflict| c.told.is_none_or(|told| c.last > told && now.saturating_sub(told) >= NOTICE);
        let mut all = Vec::new();
        for (interface, conflict) in self.conflicts.iter_mut().filter(|(_, c)| due(c)) {
            conflict.told = Some(now);
            all.push((*interface, *conflict));
        }
        all
    }

    pub(crate) fn note_conflict(&mut self, interface: IfIndex, address: IpAddr, mac: [u8; 6]) {
        self.neighbors.stats.duplicates += 1;
        let new = Conflict { address, mac, count: 0, last: 0, told: None };
        let conflict = self.conflicts.entry(interface).or_insert(new);
        (conflict.address, conflict.mac, conflict.last) = (address, mac, self.now);
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

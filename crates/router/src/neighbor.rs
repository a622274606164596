//! The neighbour table: ARP and neighbour discovery as one state machine (RFC 826, RFC 1122 2.3.2.1, RFC 4861 7.3).
//!
//! Pure: time is a parameter, probes to send and entries that changed are collected for the caller. What an entry
//! means for the FIB is the router's business (`sync.rs`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;

use linerate_pipeline::{IfIndex, VrfId};

use crate::event::Probe;
use crate::plane::{AdjacencyIndex, NextHop, NextHopId};

/// One second in the unit of time here.
pub const SECOND: u64 = 1_000_000_000;

/// Timers and bounds. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborOptions {
    /// Between two probes (RFC 4861 RETRANS_TIMER; RFC 1122 asks for no more than one ARP request a second).
    pub retransmit: u64,
    /// Probes before giving up (RFC 4861 MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT).
    pub tries: u8,
    /// How long an answer counts before a neighbour in use is asked again.
    pub reachable: u64,
    /// How long an unused neighbour is remembered after that.
    pub forget: u64,
    /// How long a silent neighbour's packets are refused before it may be asked for again.
    pub refuse: u64,
    /// How often a silent gateway of a route is asked again.
    pub retry_gateway: u64,
    /// Entries at most, gateways of routes and static ones not counted.
    pub max_entries: usize,
    /// Of these, entries of one interface at most: whoever is on a link cannot take the room of all others.
    pub max_interface_entries: usize,
    /// Entries without an answer at most: what a scan of a connected network can occupy.
    pub max_unresolved: usize,
    /// Of these, entries of one interface at most.
    pub max_interface_unresolved: usize,
    /// Probes that wait to be fetched at most.
    pub max_probes: usize,
}

impl Default for NeighborOptions {
    fn default() -> Self {
        NeighborOptions {
            retransmit: SECOND,
            tries: 3,
            reachable: 60 * SECOND,
            forget: 600 * SECOND,
            refuse: 3 * SECOND,
            retry_gateway: 5 * SECOND,
            max_entries: 32_768,
            max_interface_entries: 24_576,
            max_unresolved: 4096,
            max_interface_unresolved: 3072,
            max_probes: 4096,
        }
    }
}

/// State of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighborState {
    /// Asked for, no answer yet: packets wait.
    Incomplete,
    /// Answered not long ago.
    Reachable,
    /// Known, not confirmed for a while, not in use (or told by itself without being asked).
    Stale,
    /// Known and being asked whether it is still there; packets flow.
    Probe,
    /// Does not answer: packets are told "host unreachable".
    Failed,
    /// Configured.
    Static,
}

impl NeighborState {
    /// As views show it.
    pub fn name(self) -> &'static str {
        match self {
            NeighborState::Incomplete => "incomplete",
            NeighborState::Reachable => "reachable",
            NeighborState::Stale => "stale",
            NeighborState::Probe => "probe",
            NeighborState::Failed => "failed",
            NeighborState::Static => "static",
        }
    }
}

/// What happened in the table since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighborStats {
    /// Neighbours that answered for the first time, or again after being given up.
    pub resolved: u64,
    /// Neighbours given up.
    pub failed: u64,
    /// MAC addresses that changed.
    pub mac_changes: u64,
    /// Messages that claimed an address of this router from another station.
    pub duplicates: u64,
    /// Messages that contradicted a static neighbour.
    pub static_conflicts: u64,
    /// Messages or requests about addresses that cannot be neighbours on that interface.
    pub ignored: u64,
    /// Neighbours not taken in because the table was full.
    pub refused: u64,
    /// Probes lost because too many waited to be fetched.
    pub probes_lost: u64,
    /// Neighbours or paths left out because next hops, adjacencies or the FIB were full.
    pub plane_full: u64,
}

/// What a message says about its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// It may make a new entry.
    pub(crate) create: bool,
    /// It proves that the sender hears us.
    pub(crate) confirm: bool,
    /// It is the answer to a question, not a question of the sender's own.
    pub(crate) answer: bool,
    /// It may replace another MAC address.
    pub(crate) replace: bool,
}

/// What the router keeps with an entry.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) id: Option<NextHopId>,
    pub(crate) next_hop: NextHop,
    /// The adjacency and for which MAC address it was made.
    pub(crate) built: Option<(AdjacencyIndex, Option<[u8; 6]>)>,
    /// Actions of routes that use it.
    pub(crate) users: BTreeSet<NextHopId>,
    /// The next hop of its host route in the FIB: its own, or that of an action that means the same.
    pub(crate) hosted: Option<NextHopId>,
    /// The VRF of that route.
    pub(crate) hosted_in: VrfId,
    /// The interface has changed: the adjacency must be made again.
    pub(crate) rebuild: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) interface: IfIndex,
    pub(crate) address: IpAddr,
    /// `None`: gone, to be reaped.
    pub(crate) state: Option<NeighborState>,
    pub(crate) mac: Option<[u8; 6]>,
    /// When the state was entered.
    pub(crate) since: u64,
    pub(crate) link: Link,
    tries: u8,
    pinned: bool,
    /// It has answered a question of ours, or packets have left to it. Until then it is no more than somebody's word.
    relied: bool,
    dirty: bool,
    due: u64,
    /// Earliest timer in the heap; `u64::MAX`: none.
    queued: u64,
}

/// Index of an entry; indices are used again, stamps tell timers of former users apart.
pub(crate) type EntryIndex = u32;

#[derive(Debug, Default)]
struct Slot {
    stamp: u32,
    entry: Option<Entry>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Neighbors {
    options: NeighborOptions,
    slots: Vec<Slot>,
    free: Vec<EntryIndex>,
    index: BTreeMap<(IpAddr, IfIndex), EntryIndex>,
    timers: BinaryHeap<Reverse<(u64, EntryIndex, u32)>>,
    /// Who makes room for others, first the first: of all, and of each interface.
    givers: BTreeSet<(Rank, u64, EntryIndex)>,
    givers_on: BTreeSet<(IfIndex, Rank, u64, EntryIndex)>,
    changed: VecDeque<EntryIndex>,
    probes: VecDeque<Probe>,
    total: Count,
    on: HashMap<IfIndex, Count>,
    pub(crate) stats: NeighborStats,
}

/// Whether packets left by an adjacency since this was last asked.
pub(crate) type Used<'a> = &'a mut dyn FnMut(AdjacencyIndex) -> bool;

/// Entries that count against the bounds: all but gateways of routes and static ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    entries: usize,
    unresolved: usize,
}

/// Who makes room where there is none, these first. Whom packets leave to never does, whatever others claim to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It does not answer.
    Failed,
    /// It says that it is there: it never had to answer a question, and nothing was sent to it.
    Claimed,
    /// It was there, and has not been used for a while.
    Idle,
}

/// What of an entry the table keeps account of.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    interface: IfIndex,
    counts: bool,
    unresolved: bool,
    gives: Option<(Rank, u64)>,
}

impl Standing {
    fn of(entry: &Entry) -> Self {
        use NeighborState::{Failed, Incomplete, Probe, Reachable, Stale, Static};
        let state = entry.state.filter(|s| *s != Static && !entry.pinned);
        let rank = match state {
            Some(Failed) => Some(Rank::Failed),
            Some(Reachable | Stale) if !entry.relied => Some(Rank::Claimed),
            Some(Stale) => Some(Rank::Idle),
            Some(Incomplete | Probe | Reachable | Static) | None => None,
        };
        Standing {
            interface: entry.interface,
            counts: state.is_some(),
            unresolved: matches!(state, Some(Incomplete | Failed)),
            gives: rank.map(|rank| (rank, entry.since)),
        }
    }
}

impl Neighbors {
    pub(crate) fn new(options: NeighborOptions) -> Self {
        Neighbors {
            options,
            slots: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            timers: BinaryHeap::new(),
            givers: BTreeSet::new(),
            givers_on: BTreeSet::new(),
            changed: VecDeque::new(),
            probes: VecDeque::new(),
            total: Count::default(),
            on: HashMap::new(),
            stats: NeighborStats::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn get(&self, at: EntryIndex) -> Option<&Entry> {
        self.slots.get(at as usize)?.entry.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: EntryIndex) -> Option<&mut Entry> {
        self.slots.get_mut(at as usize)?.entry.as_mut()
    }

    pub(crate) fn find(&self, interface: IfIndex, address: IpAddr) -> Option<EntryIndex> {
        self.index.get(&(address, interface)).copied()
    }

    /// Entries whose address lies between two, in order.
    pub(crate) fn between(&self, first: IpAddr, last: IpAddr) -> impl Iterator<Item = EntryIndex> {
        self.index.range((first, 0)..=(last, IfIndex::MAX)).map(|(_, at)| *at)
    }

    /// Entries in order of address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryIndex, &Entry)> {
        self.index.values().filter_map(|at| Some((*at, self.get(*at)?)))
    }

    /// A packet waits for this neighbour, which a worker has `asked` for already, or not.
    pub(crate) fn unresolved(
        &mut self,
        now: u64,
        interface: IfIndex,
        address: IpAddr,
        asked: bool,
        used: Used<'_>,
    ) {
        if self.find(interface, address).is_some() || !self.make_room(now, interface, true, used) {
            return;
        }
        let at = self.insert(now, interface, address);
        self.enter(at, now, NeighborState::Incomplete);
        if !asked {
            return self.fire(at, now, &mut |_| false);
        }
        // The worker's question was the first.
        if let Some(entry) = self.get_mut(at) {
            entry.tries = 1;
        }
        self.schedule(at, now + self.options.retransmit);
    }

    /// A message from this neighbour that tells no MAC address but answers a question: the one it has is right still.
    pub(crate) fn confirmed(&mut self, now: u64, interface: IfIndex, address: IpAddr) {
        let Some(at) = self.find(interface, address) else { return };
        let known = |e: &Entry| e.mac.is_some() && e.state.is_some_and(|s| s != NeighborState::Static);
        if self.get(at).is_some_and(known) {
            self.answered(at);
            self.enter(at, now, NeighborState::Reachable);
        }
    }

    /// A message from this neighbour.
    pub(crate) fn heard(
        &mut self,
        now: u64,
        interface: IfIndex,
        address: IpAddr,
        mac: [u8; 6],
        how: Heard,
        used: Used<'_>,
    ) {
        let state = if how.confirm { NeighborState::Reachable } else { NeighborState::Stale };
        let at = match self.find(interface, address) {
            Some(at) => at,
            None if how.create && self.make_room(now, interface, false, used) => {
                let at = self.insert(now, interface, address);
                self.alter(at, |e| e.relied = how.answer);
                at
            }
            None => return,
        };
        if how.confirm {
            self.answered(at);
        }
        let Some(entry) = self.get_mut(at) else { return };
        let known = entry.mac.filter(|_| entry.state.is_some());
        match (entry.state, known) {
            (Some(NeighborState::Static), _) => {
                self.stats.static_conflicts += u64::from(known != Some(mac));
            }
            (_, None) => {
                entry.mac = Some(mac);
                self.stats.resolved += 1;
                self.enter(at, now, state);
            }
            (_, Some(old)) if old == mac && !how.confirm => {}
            (_, Some(old)) if old == mac => self.enter(at, now, NeighborState::Reachable),
            (_, Some(_)) if how.replace => {
                entry.mac = Some(mac);
                self.stats.mac_changes += 1;
                self.enter(at, now, state);
            }
            (Some(NeighborState::Reachable), Some(_)) => self.enter(at, now, NeighborState::Stale),
            _ => {}
        }
    }

    /// A route's action begins to use this neighbour: it is resolved without waiting for a packet and kept.
    pub(crate) fn pin(&mut self, now: u64, interface: IfIndex, address: IpAddr) -> EntryIndex {
        if let Some(at) = self.find(interface, address) {
            self.set_pinned(at, true);
            return at;
        }
        let at = self.insert(now, interface, address);
        self.set_pinned(at, true);
        self.enter(at, now, NeighborState::Incomplete);
        self.fire(at, now, &mut |_| false);
        at
    }

    /// No route's action uses this neighbour any more.
    pub(crate) fn unpin(&mut self, now: u64, at: EntryIndex) {
        self.set_pinned(at, false);
        self.touch(at);
        if self.get(at).and_then(|e| e.state) == Some(NeighborState::Failed) {
            self.enter(at, now, NeighborState::Failed);
        }
    }

    /// Makes a neighbour static.
    pub(crate) fn set_static(&mut self, now: u64, interface: IfIndex, address: IpAddr, mac: [u8; 6]) {
        let at = self.find(interface, address).unwrap_or_else(|| self.insert(now, interface, address));
        if let Some(entry) = self.get_mut(at) {
            entry.mac = Some(mac);
            self.enter(at, now, NeighborState::Static);
        }
    }

    /// Ends a neighbour's being static: forgotten, or asked for where a route needs it.
    pub(crate) fn unset_static(&mut self, now: u64, interface: IfIndex, address: IpAddr) {
        let Some(at) = self.find(interface, address) else { return };
        match self.get_mut(at) {
            Some(e) if e.state != Some(NeighborState::Static) => {}
            Some(e) if e.pinned => {
                e.mac = None;
                self.enter(at, now, NeighborState::Incomplete);
                self.fire(at, now, &mut |_| false);
            }
            _ => self.remove(at),
        }
    }

    /// Somebody who should know says that this neighbour does not answer: all on the link are asked for it, and packets wait
    /// meanwhile. Static ones stay.
    pub(crate) fn distrust(&mut self, now: u64, interface: IfIndex, address: IpAddr) {
        let Some(at) = self.find(interface, address) else { return };
        let known = [NeighborState::Reachable, NeighborState::Stale, NeighborState::Probe];
        if let Some(entry) = self.get_mut(at).filter(|e| e.state.is_some_and(|s| known.contains(&s))) {
            entry.mac = None;
            self.enter(at, now, NeighborState::Incomplete);
            self.fire(at, now, &mut |_| false);
        }
    }

    /// Entries of these interfaces, which are sorted.
    pub(crate) fn on(&self, interfaces: &[IfIndex]) -> Vec<EntryIndex> {
        let of = |e: &Entry| interfaces.binary_search(&e.interface).is_ok();
        self.iter().filter(|(_, e)| of(e)).map(|(at, _)| at).collect()
    }

    /// Forgets an entry, unless it is static or a route's action uses it.
    pub(crate) fn forget(&mut self, at: EntryIndex) {
        if self.get(at).is_some_and(|e| !e.pinned && e.state != Some(NeighborState::Static)) {
            self.remove(at);
        }
    }

    /// Lets the timers run that are due. `used` says whether packets left by an adjacency since it was last asked.
    pub(crate) fn tick(&mut self, now: u64, used: Used<'_>) {
        while let Some(Reverse((time, at, stamp))) = self.timers.peek().copied()
            && time <= now
        {
            self.timers.pop();
            let Some(slot) = self.slots.get_mut(at as usize).filter(|s| s.stamp == stamp) else { continue };
            let Some(entry) = slot.entry.as_mut().filter(|e| e.state.is_some()) else { continue };
            if entry.queued == time {
                entry.queued = u64::MAX;
            }
            if entry.due > now {
                let due = entry.due;
                self.schedule(at, due);
            } else {
                self.fire(at, now, used);
            }
        }
    }

    /// When [`tick`](Self::tick) next has something to do.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.timers.peek().map(|t| t.0.0)
    }

    pub(crate) fn take_probe(&mut self) -> Option<Probe> {
        self.probes.pop_front()
    }

    /// Whether any entry changed since it was last returned.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The next entry that changed since it was last returned. One without a state must be [reaped](Self::reap).
    pub(crate) fn take_changed(&mut self) -> Option<EntryIndex> {
        let at = self.changed.pop_front()?;
        if let Some(entry) = self.get_mut(at) {
            entry.dirty = false;
        }
        Some(at)
    }

    /// Frees the slot of an entry that is gone.
    pub(crate) fn reap(&mut self, at: EntryIndex) {
        if let Some(slot) = self.slots.get_mut(at as usize)
            && slot.entry.take().is_some()
        {
            slot.stamp = slot.stamp.wrapping_add(1);
            self.free.push(at);
        }
    }

    /// What is due for an entry.
    fn fire(&mut self, at: EntryIndex, now: u64, used: Used<'_>) {
        let options = self.options;
        let Some(entry) = self.get_mut(at) else { return };
        let used = entry.link.built.is_some_and(|(adjacency, _)| used(adjacency)) || entry.pinned;
        match entry.state {
            Some(NeighborState::Incomplete) if entry.tries < options.tries => self.probe(at, now, None),
            Some(NeighborState::Incomplete) => {
                self.stats.failed += 1;
                self.enter(at, now, NeighborState::Failed);
            }
            Some(NeighborState::Reachable | NeighborState::Stale) if used => self.check(at, now),
            Some(NeighborState::Reachable) => self.enter(at, now, NeighborState::Stale),
            Some(NeighborState::Stale) if now.saturating_sub(entry.since) >= options.forget => {
                self.remove(at)
            }
            Some(NeighborState::Stale) => self.schedule(at, now + stale_check(&options)),
            Some(NeighborState::Probe) if entry.tries < options.tries => {
                let mac = entry.mac;
                self.probe(at, now, mac);
            }
            Some(NeighborState::Probe) => {
                // Silent at the address it had: it may have moved, so all are asked, and packets wait meanwhile.
                entry.mac = None;
                self.enter(at, now, NeighborState::Incomplete);
                self.fire(at, now, &mut |_| false);
            }
            Some(NeighborState::Failed) if entry.pinned => {
                self.probe(at, now, None);
                self.schedule(at, now + options.retry_gateway);
            }
            Some(NeighborState::Failed) => self.remove(at),
            Some(NeighborState::Static) | None => {}
        }
    }

    /// Asks a neighbour that packets leave to whether it is still there.
    fn check(&mut self, at: EntryIndex, now: u64) {
        self.alter(at, |e| e.relied = true);
        self.enter(at, now, NeighborState::Probe);
        self.fire(at, now, &mut |_| false);
    }

    /// A message came that can be an answer: it is one if there was a question.
    fn answered(&mut self, at: EntryIndex) {
        let asked = [Some(NeighborState::Incomplete), Some(NeighborState::Probe)];
        self.alter(at, |e| e.relied |= asked.contains(&e.state));
    }

    fn probe(&mut self, at: EntryIndex, now: u64, unicast: Option<[u8; 6]>) {
        let Some(entry) = self.get_mut(at) else { return };
        entry.tries = entry.tries.saturating_add(1);
        let probe = Probe { interface: entry.interface, address: entry.address, unicast };
        if self.probes.len() < self.options.max_probes {
            self.probes.push_back(probe);
        } else {
            self.stats.probes_lost += 1;
        }
        self.schedule(at, now + self.options.retransmit);
    }

    fn enter(&mut self, at: EntryIndex, now: u64, state: NeighborState) {
        let options = self.options;
        let Some(pinned) = self.get(at).map(|e| e.pinned) else { return };
        let wait = match state {
            NeighborState::Reachable => Some(options.reachable),
            NeighborState::Stale => Some(stale_check(&options)),
            NeighborState::Failed if pinned => Some(options.retry_gateway),
            NeighborState::Failed => Some(options.refuse),
            NeighborState::Incomplete | NeighborState::Probe | NeighborState::Static => None,
        };
        self.alter(at, |entry| {
            (entry.state, entry.since, entry.tries) = (Some(state), now, 0);
            if state == NeighborState::Failed {
                (entry.mac, entry.relied) = (None, false);
            }
        });
        if let Some(wait) = wait {
            self.schedule(at, now + wait);
        }
        self.touch(at);
    }

    /// Changes an entry and keeps account of it.
    fn alter(&mut self, at: EntryIndex, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.get_mut(at) else { return };
        let was = Standing::of(entry);
        change(entry);
        let is = Standing::of(entry);
        if was == is {
            return;
        }
        if let Some((rank, since)) = was.gives {
            self.givers.remove(&(rank, since, at));
            self.givers_on.remove(&(was.interface, rank, since, at));
        }
        if let Some((rank, since)) = is.gives {
            self.givers.insert((rank, since, at));
            self.givers_on.insert((is.interface, rank, since, at));
        }
        for count in [&mut self.total, self.on.entry(is.interface).or_default()] {
            count.entries = count.entries + usize::from(is.counts) - usize::from(was.counts);
            count.unresolved = count.unresolved + usize::from(is.unresolved) - usize::from(was.unresolved);
        }
    }

    fn insert(&mut self, now: u64, interface: IfIndex, address: IpAddr) -> EntryIndex {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as EntryIndex - 1
        });
        self.slots[at as usize].entry = Some(Entry {
            interface,
            address,
            state: None,
            mac: None,
            since: now,
            link: Link::default(),
            tries: 0,
            pinned: false,
            relied: false,
            dirty: false,
            due: u64::MAX,
            queued: u64::MAX,
        });
        self.index.insert((address, interface), at);
        at
    }

    fn remove(&mut self, at: EntryIndex) {
        self.alter(at, |e| e.state = None);
        let Some(entry) = self.get(at) else { return };
        let key = (entry.address, entry.interface);
        self.index.remove(&key);
        self.touch(at);
    }

    fn set_pinned(&mut self, at: EntryIndex, pinned: bool) {
        self.alter(at, |e| e.pinned = pinned);
        self.touch(at);
    }

    /// Marks an entry as changed.
    pub(crate) fn touch(&mut self, at: EntryIndex) {
        if let Some(entry) = self.get_mut(at)
            && !std::mem::replace(&mut entry.dirty, true)
        {
            self.changed.push_back(at);
        }
    }

    /// Sets when an entry is due. At most one timer per entry is in the heap for each time that gets earlier, so that
    /// a flood of messages that renew an entry does not pile up timers.
    fn schedule(&mut self, at: EntryIndex, due: u64) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        let (Some(entry), stamp) = (slot.entry.as_mut(), slot.stamp) else { return };
        entry.due = due;
        if due < entry.queued {
            entry.queued = due;
            self.timers.push(Reverse((due, at, stamp)));
        }
    }

    /// Whether one more entry of an interface fits, others making room by their [rank](Rank). Where the interface has its
    /// share, those who do are there as well.
    fn make_room(&mut self, now: u64, interface: IfIndex, unresolved: bool, used: Used<'_>) -> bool {
        loop {
            let (o, all) = (self.options, self.total);
            let on = self.on.get(&interface).copied().unwrap_or_default();
            let (only_here, last) = if unresolved && on.unresolved >= o.max_interface_unresolved {
                (true, Rank::Failed)
            } else if unresolved && all.unresolved >= o.max_unresolved {
                (false, Rank::Failed)
            } else if on.entries >= o.max_interface_entries {
                (true, Rank::Idle)
            } else if all.entries >= o.max_entries {
                (false, Rank::Idle)
            } else {
                return true;
            };
            let Some(at) = self.first_giver(only_here.then_some(interface), last) else {
                self.stats.refused += 1;
                return false;
            };
            let Some(entry) = self.get(at) else { return false };
            match (entry.state, entry.link.built) {
                // Packets left to it and nobody has looked since: it is one of those that stay.
                (Some(NeighborState::Stale), Some((adjacency, _))) if used(adjacency) => self.check(at, now),
                (_, Some((adjacency, _))) if used(adjacency) => self.alter(at, |e| e.relied = true),
                _ => self.remove(at),
            }
        }
    }

    /// The first to make room, of all or of one interface, if it is of this rank or one before.
    fn first_giver(&self, interface: Option<IfIndex>, last: Rank) -> Option<EntryIndex> {
        let (rank, at) = match interface {
            None => self.givers.first().map(|(rank, _, at)| (*rank, *at))?,
            Some(i) => {
                let range = (i, Rank::Failed, 0, 0)..=(i, Rank::Idle, u64::MAX, EntryIndex::MAX);
                self.givers_on.range(range).next().map(|(_, rank, _, at)| (*rank, *at))?
            }
        };
        (rank <= last).then_some(at)
    }
}

/// How often an unused neighbour is looked at.
fn stale_check(options: &NeighborOptions) -> u64 {
    (options.reachable / 8).clamp(1, 5 * SECOND)
}

#[cfg(test)]
#[path = "neighbor_tests.rs"]
mod tests;

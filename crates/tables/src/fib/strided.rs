//! The writer that the stride-based structures share: routes, slots of the direct table, and all-or-nothing changes.
//!
//! What differs between them — how a node looks to readers and how a change is published — is an [`Encoding`].

use super::{
    Change, FibError, NO_ROUTE, NextHopId, Refused,
    apply::in_order,
    simd::prefetch,
    tree::{NONE, NodeId, Touched, Tree, Walker, top_bits},
};
use crate::prefix::{Address, Prefix};
use arrayvec::ArrayVec;
use std::{
    collections::{BTreeMap, HashMap},
    mem,
    ops::Range,
};

/// Changes of a batch whose memory is asked for together.
const GROUP: usize = 32;

/// Slots of the direct table: up to two ranges.
pub(crate) type SlotRanges = [Range<usize>; 2];

/// A route's address bits, left-aligned, and its length.
pub(crate) type Key = (u128, u8);

/// How one structure shows the tree to readers.
pub(crate) trait Encoding {
    /// What a node remembers of its encoding.
    type Place: Clone + Default;
    /// Slots of the direct table.
    const SLOTS: usize;
    /// See [`Tree::new`].
    const DENSE_TO: u8;

    /// The slot of an address and how many bits it decides.
    fn slot_of(bits: u128) -> (usize, u8);
    /// The slots a prefix fills; none if it ends below them.
    fn covered(key: Key) -> SlotRanges;
    /// Encodes `top` and makes what is above lead to it with one store. On an error nothing is changed.
    fn publish_subtree(&mut self, tree: &mut Tree<Self::Place>, top: NodeId) -> Result<(), FibError>;
    /// Encodes what is dirty below each slot and makes every slot right, each with one store. On an error nothing is
    /// changed.
    fn publish_slots(
        &mut self,
        tree: &mut Tree<Self::Place>,
        slots: &Slots,
        which: &[Range<usize>],
    ) -> Result<(), FibError>;
    /// Asks for the cache lines of an encoding that is about to be read.
    fn ask(&self, place: &Self::Place);
    /// The value leaves hold for a next hop, for one more route.
    fn acquire(&mut self, nh: NextHopId) -> Result<u32, FibError>;
    /// One route less.
    fn release(&mut self, value: u32);
    /// The next hop a value stands for.
    fn id(&self, value: u32) -> NextHopId;
    /// Publishes the default route's next hop.
    fn set_default(&mut self, nh: NextHopId);
    /// Sets apart, or opens up, the last of the memory: what only withdrawals may use, so that they find room where
    /// insertions find none.
    fn set_apart(&mut self, apart: bool);
}

/// What the writer knows of each slot. Zero at first: the kernel commits the arrays page by page.
pub(crate) struct Slots {
    /// Root of the tree below, [`NONE`] without one.
    pub(crate) root: Vec<NodeId>,
    /// What the longest route that fills the slot says; 0 without one.
    pub(crate) value: Vec<u32>,
    /// Its length.
    len: Vec<u8>,
}

/// Routes and everything derived from them.
pub(crate) struct Writer<E: Encoding> {
    pub(crate) encoding: E,
    tree: Tree<E::Place>,
    slots: Slots,
    /// Routes that fill whole slots; all others are in the tree.
    short: HashMap<Key, u32>,
    default: Option<NextHopId>,
    len: usize,
    /// Slots that could not be published for want of memory after a withdrawal, each with the places of nodes that are gone
    /// but that readers still see. They are published whole, and tried again with every change.
    stale: BTreeMap<usize, Vec<E::Place>>,
    /// Values of withdrawn routes that readers may still see there: they mean what they did until all slots are published.
    held: Vec<u32>,
}

impl<E: Encoding> Writer<E> {
    /// No routes.
    pub(crate) fn new(mut encoding: E) -> Self {
        let slots = Slots { root: vec![0; E::SLOTS], value: vec![0; E::SLOTS], len: vec![0; E::SLOTS] };
        encoding.set_apart(true);
        Writer {
            encoding,
            tree: Tree::new(E::DENSE_TO),
            slots,
            short: HashMap::new(),
            default: None,
            len: 0,
            stale: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// Number of routes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The next hop of exactly this prefix.
    pub(crate) fn get(&self, key: Key) -> Option<NextHopId> {
        if key.1 == 0 {
            return self.default;
        }
        self.value(key).map(|value| self.encoding.id(value))
    }

    /// See [`super::Fib::insert`].
    pub(crate) fn insert(&mut self, key: Key, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        if nh == NO_ROUTE {
            return Err(FibError::ReservedNextHop);
        }
        if key.1 == 0 {
            return Ok(self.set_default(Some(nh)));
        }
        self.retry_stale();
        let value = self.encoding.acquire(nh)?;
        let old = self.set(key, value).inspect_err(|_| self.encoding.release(value))?;
        Ok(old.map(|old| self.give_back(old)))
    }

    /// See [`super::Fib::withdraw`]. Where no memory is left for the smaller record, not even that which is set apart for it,
    /// readers see the change with the first one that finds some.
    pub(crate) fn withdraw(&mut self, key: Key) -> Option<NextHopId> {
        if key.1 == 0 {
            return self.set_default(None);
        }
        self.value(key)?;
        self.retry_stale();
        let (old, slots, touched) = self.change(key, None, false);
        let old = old?;
        let id = self.encoding.id(old);
        self.len -= 1;
        self.encoding.set_apart(false);
        if self.publish(&slots, touched).is_ok() {
            self.encoding.release(old);
        } else {
            self.held.push(old);
            self.defer(&slots, touched);
        }
        self.encoding.set_apart(true);
        Some(id)
    }

    /// See [`super::Fib::load`].
    pub(crate) fn load(&mut self, mut routes: Vec<(Key, NextHopId)>) -> Result<(), FibError> {
        if routes.iter().any(|&(_, nh)| nh == NO_ROUTE) {
            return Err(FibError::ReservedNextHop);
        }
        self.retry_stale();
        // Covering routes come first. The sort is stable: later entries for a prefix stay behind earlier ones.
        routes.sort_by_key(|&(key, _)| key);
        let mut undo: Vec<(Key, Option<u32>)> = Vec::with_capacity(routes.len());
        let mut slots = Vec::new();
        let mut default = None;
        let result = self.load_sorted(&routes, &mut undo, &mut slots, &mut default);
        if result.is_ok() {
            self.len += undo.iter().filter(|(_, old)| old.is_none()).count();
            for old in undo.into_iter().filter_map(|(_, old)| old) {
                self.encoding.release(old);
            }
            if default.is_some() {
                self.set_default(default);
            }
            return Ok(());
        }
        for (key, old) in undo.into_iter().rev() {
            if let (Some(new), ..) = self.change(key, old, true) {
                self.encoding.release(new);
            }
            self.tree.dead.clear();
        }
        result
    }

    /// See [`super::Fib::apply`].
    pub(crate) fn apply<A: Address>(
        &mut self,
        changes: &[Change<A>],
        key: impl Fn(Prefix<A>) -> Key,
    ) -> Result<(), Refused> {
        for (n, group) in changes.chunks(GROUP).enumerate() {
            self.ask(group.iter().map(|change| key(change.prefix)));
            let done = in_order(group, |change| match change.next_hop {
                Some(nh) => self.insert(key(change.prefix), nh).map(drop),
                None => {
                    self.withdraw(key(change.prefix));
                    Ok(())
                }
            });
            done.map_err(|refused| Refused { at: n * GROUP + refused.at, ..refused })?;
        }
        Ok(())
    }

    /// Asks for what changing these routes is going to read, level by level: while one waits for memory, so do all others.
    fn ask(&self, keys: impl Iterator<Item = Key> + Clone) {
        for (bits, _) in keys.clone() {
            prefetch(&self.slots.root[E::slot_of(bits).0]);
        }
        let mut walkers: ArrayVec<Walker, GROUP> = keys
            .take(GROUP)
            .map(|(bits, len)| self.tree.set_out(self.slots.root[E::slot_of(bits).0], bits, len))
            .collect();
        // The first `going` of them are still on their way.
        let mut going = walkers.len();
        while going > 0 {
            let mut i = 0;
            while i < going {
                if self.tree.step(&mut walkers[i]) {
                    i += 1;
                } else {
                    going -= 1;
                    walkers.swap(i, going);
                }
            }
        }
        for walker in &walkers {
            self.encoding.ask(self.tree.place(walker.at));
            self.encoding.ask(self.tree.place(walker.above));
        }
    }

    /// Gives back the memory of routes that once were, on the writer's side.
    pub(crate) fn compact(&mut self) {
        self.retry_stale();
        self.tree.compact(&mut self.slots.root);
        self.short.shrink_to_fit();
    }

    /// Bytes of routes, tree and slots.
    pub(crate) fn control_bytes(&self) -> usize {
        let slots = E::SLOTS * (mem::size_of::<NodeId>() + mem::size_of::<u32>() + 1);
        self.tree.memory() + slots + self.short.capacity() * mem::size_of::<(Key, u32)>()
    }

    fn load_sorted(
        &mut self,
        routes: &[(Key, NextHopId)],
        undo: &mut Vec<(Key, Option<u32>)>,
        slots: &mut Vec<Range<usize>>,
        default: &mut Option<NextHopId>,
    ) -> Result<(), FibError> {
        for &(key, nh) in routes {
            if key.1 == 0 {
                *default = Some(nh);
                continue;
            }
            let value = self.encoding.acquire(nh)?;
            let (old, shows_in, touched) = self.change(key, Some(value), true);
            undo.push((key, old));
            if touched != Touched::Nothing {
                push_slots(slots, shows_in);
            }
        }
        self.encoding.publish_slots(&mut self.tree, &self.slots, slots)
    }

    fn set_default(&mut self, nh: Option<NextHopId>) -> Option<NextHopId> {
        let old = mem::replace(&mut self.default, nh);
        self.len = self.len + usize::from(nh.is_some()) - usize::from(old.is_some());
        self.encoding.set_default(nh.unwrap_or(NO_ROUTE));
        old
    }

    fn give_back(&mut self, value: u32) -> NextHopId {
        let id = self.encoding.id(value);
        self.encoding.release(value);
        id
    }

    /// Sets one route and publishes it. On an error everything is as before.
    fn set(&mut self, key: Key, value: u32) -> Result<Option<u32>, FibError> {
        let (old, slots, touched) = self.change(key, Some(value), false);
        if let Err(e) = self.publish(&slots, touched) {
            // What readers see stays in use: never give it back. The whole path counts as stale from here on.
            self.tree.dead.clear();
            self.change(key, old, true);
            self.tree.dead.clear();
            return Err(e);
        }
        self.len += usize::from(old.is_none());
        Ok(old)
    }

    /// Makes readers see what a change touched. On an error they see nothing of it.
    fn publish(&mut self, slots: &SlotRanges, touched: Touched) -> Result<(), FibError> {
        match touched {
            Touched::Nothing => Ok(()),
            Touched::Subtree(top) if !self.stale.contains_key(&slots[0].start) => {
                self.encoding.publish_subtree(&mut self.tree, top)
            }
            // What readers see of this slot is older than what is above `top` in the tree: it is written whole.
            Touched::Subtree(top) => {
                self.tree.set_dirty_up(top);
                self.encoding.publish_slots(&mut self.tree, &self.slots, slots)
            }
            Touched::RootGone | Touched::Slots => {
                self.encoding.publish_slots(&mut self.tree, &self.slots, slots)
            }
        }
    }

    /// A withdrawal's slots could not be published together: each is by itself, now if there is room, or else later.
    fn defer(&mut self, slots: &SlotRanges, touched: Touched) {
        if let Touched::Subtree(top) = touched {
            self.tree.set_dirty_up(top);
        }
        let dead = mem::take(&mut self.tree.dead);
        for slot in slots.iter().cloned().flatten() {
            self.stale.entry(slot).or_default();
        }
        // Only a change inside one slot ends nodes.
        self.stale.entry(slots[0].start).or_default().extend(dead);
        self.publish_stale();
    }

    /// Publishes what could not be before, as far as there is memory by now.
    fn retry_stale(&mut self) {
        if !self.stale.is_empty() {
            self.encoding.set_apart(false);
            self.publish_stale();
            self.encoding.set_apart(true);
        }
    }

    fn publish_stale(&mut self) {
        for (slot, gone) in mem::take(&mut self.stale) {
            self.tree.dead = gone;
            let only = slot..slot + 1;
            if self.encoding.publish_slots(&mut self.tree, &self.slots, &[only]).is_err() {
                self.stale.insert(slot, mem::take(&mut self.tree.dead));
            }
        }
        if self.stale.is_empty() {
            mem::take(&mut self.held).into_iter().for_each(|value| self.encoding.release(value));
        }
    }

    /// Changes the writer's picture only. Returns the old value, the slots it shows in and what became stale.
    fn change(
        &mut self,
        key: Key,
        value: Option<u32>,
        whole_path: bool,
    ) -> (Option<u32>, SlotRanges, Touched) {
        let slots = E::covered(key);
        if slots.iter().any(|range| !range.is_empty()) {
            let old = match value {
                Some(value) => self.short.insert(key, value),
                None => self.short.remove(&key),
            };
            if old == value {
                return (old, slots, Touched::Nothing);
            }
            self.fill_slots(key, value, &slots);
            return (old, slots, Touched::Slots);
        }
        let (slot, depth) = E::slot_of(key.0);
        let root = self.slots.root[slot];
        let (old, touched) = match value {
            Some(value) => {
                let root = if root == NONE {
                    self.slots.root[slot] = self.tree.new_node(key.0, depth, self.slots.value[slot]);
                    self.slots.root[slot]
                } else {
                    root
                };
                self.tree.insert(root, key.0, key.1, value, whole_path)
            }
            None if root == NONE => (None, Touched::Nothing),
            None => self.tree.remove(root, key.0, key.1),
        };
        if touched == Touched::RootGone {
            self.slots.root[slot] = NONE;
        }
        (old, [slot..slot + 1, 0..0], touched)
    }

    /// A short route came, changed or went: what its slots say where no longer short route hides it.
    fn fill_slots(&mut self, (bits, len): Key, value: Option<u32>, slots: &SlotRanges) {
        let (new_len, new_value) = match value {
            Some(value) => (len, value),
            None => (1..len)
                .rev()
                .find_map(|l| Some((l, *self.short.get(&(bits & top_bits(l), l))?)))
                .unwrap_or((0, NO_ROUTE)),
        };
        for slot in slots.iter().cloned().flatten() {
            let shown = self.slots.len[slot];
            if shown == len || value.is_some() && shown < len {
                self.slots.len[slot] = new_len;
                self.slots.value[slot] = new_value;
                if self.slots.root[slot] != NONE {
                    self.tree.set_cover(self.slots.root[slot], new_value);
                }
            }
        }
    }

    /// The value of exactly this prefix.
    fn value(&self, key: Key) -> Option<u32> {
        if let Some(&value) = self.short.get(&key) {
            return Some(value);
        }
        let (slot, depth) = E::slot_of(key.0);
        let root = self.slots.root[slot];
        if root == NONE || key.1 <= depth {
            return None;
        }
        self.tree.get(root, key.0, key.1)
    }
}

/// Adds slots to a list of ranges; routes come sorted, so mostly to the end of the last one.
fn push_slots(list: &mut Vec<Range<usize>>, slots: SlotRanges) {
    for new in slots.into_iter().filter(|range| !range.is_empty()) {
        match list.last_mut() {
            Some(last) if last.start <= new.start && new.start <= last.end => {
                last.end = last.end.max(new.end)
            }
            _ => list.push(new),
        }
    }
}

//! Nodes as records: encodes what became stale, publishes with one store per slot, retires what was replaced.

use super::{
    Shared,
    record::{DENSE_TO, Encoded, INDEX, LABELLED, RECORD, ROOT_WORDS, SKIP_HEADER, SKIPPING, rank},
    slots::{SLOTS, covered, slot_of},
};
use crate::{
    fib::{
        Discard, FibError, FibMemory, NO_ROUTE, NextHopId,
        arena::{Arena, zeroed},
        labels::{Label, Labels},
        strided::{Encoding, Key, SlotRanges, Slots},
        tree::{NONE, Node, NodeId, Tree, cell},
    },
    qsbr::Domain,
};
use std::{
    mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// What stands for a node in the record above: an item that names its record, or, where all its cells agree, a leaf and
/// no record at all.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    item: u32,
    /// Words of the record; 0 without one.
    words: u8,
}

/// The T6 encoding and the memory it lives in.
pub(super) struct Records {
    pub(super) shared: Arc<Shared>,
    arena: Arena,
    labels: Labels,
}

/// Where the item of an encoded subtree goes.
#[derive(Clone, Copy)]
enum Target {
    Slot(usize),
    /// Half a word of a record: shifted by this.
    Word(u32, u32),
}

/// What one change is about to publish.
#[derive(Default)]
struct Plan {
    /// Nodes encoded so far and what stood for them before.
    encoded: Vec<(NodeId, Place)>,
    stores: Vec<(Target, u32)>,
}

impl Records {
    pub(super) fn new(domain: Domain) -> Result<Self, FibError> {
        let arena = Arena::new(domain.clone())?;
        let labels = Labels::new(domain)?;
        let shared = Shared {
            direct: zeroed(SLOTS)?,
            words: Arc::clone(arena.words()),
            labels: Arc::clone(labels.table()),
            default: AtomicU32::new(NO_ROUTE),
        };
        Ok(Records { shared: Arc::new(shared), arena, labels })
    }

    /// See [`super::Ip6Fib::reclaim`].
    pub(super) fn reclaim(&mut self) {
        self.arena.reclaim();
    }

    /// See [`Fib::compact`](crate::fib::Fib::compact).
    pub(super) fn compact(&mut self, discard: Discard) {
        self.arena.compact(discard);
    }

    /// Bytes, of which the direct table counts once the table has routes.
    pub(super) fn memory(&self, has_routes: bool) -> FibMemory {
        let direct = if has_routes { SLOTS * 4 } else { 0 };
        FibMemory {
            lookup: direct + self.arena.live_bytes() + self.labels.lookup_bytes(),
            control: self.labels.control_bytes() + self.arena.control_bytes(),
            retired: self.arena.retired_bytes(),
        }
    }

    /// Bytes of the label table, which stays as large as it once had to be.
    #[cfg(all(test, not(loom)))]
    pub(super) fn label_bytes(&self) -> usize {
        self.labels.lookup_bytes()
    }

    /// Lets the records have no more than so many words.
    #[cfg(all(test, not(loom)))]
    pub(super) fn limit(&mut self, words: usize) {
        self.arena.limit(words);
    }

    /// Writes records for the dirty nodes from `id` down; returns what stands for `id`.
    fn encode(&mut self, tree: &mut Tree<Place>, id: NodeId, plan: &mut Plan) -> Result<u32, FibError> {
        if !tree.is_dirty(id) {
            return Ok(tree.place(id).item);
        }
        let mut cells = tree.paint(id);
        let mut kids = tree.node(id).kids;
        for i in 0..kids.count_ones() as usize {
            let kid = tree.kid_ids(id)[i];
            cells[kids.trailing_zeros() as usize & 63] = self.encode(tree, kid, plan)?;
            kids &= kids - 1;
        }
        let record = Encoded::new(&cells);
        let node = tree.node(id);
        let place = match record.single_leaf() {
            // A skipping record also says what holds where the skipped bits differ.
            Some(leaf) if node.depth <= DENSE_TO || leaf == node.cover => Place { item: leaf, words: 0 },
            _ if node.parent == NONE => self.write_root(&cells)?,
            _ => self.write(node, &record)?,
        };
        tree.set_dirty(id, false);
        plan.encoded.push((id, mem::replace(tree.place_mut(id), place)));
        Ok(place.item)
    }

    fn write(&mut self, node: &Node, record: &Encoded) -> Result<Place, FibError> {
        let header = if node.depth > DENSE_TO { SKIP_HEADER } else { 0 };
        let words = header as usize + record.words();
        let at = self.arena.alloc(words)?;
        if header != 0 {
            self.arena.set(at, u64::from(node.cover) | u64::from(node.depth) << 32);
            self.arena.set(at + 1, node.key as u64);
        }
        for (i, word) in (at + header..).zip(record.iter()) {
            self.arena.set(i, word);
        }
        let item = RECORD | if header != 0 { SKIPPING } else { 0 } | at;
        Ok(Place { item, words: words as u8 })
    }

    fn write_root(&mut self, cells: &[u32; 64]) -> Result<Place, FibError> {
        let at = self.arena.alloc(ROOT_WORDS)?;
        for (i, word) in (at..).zip(Encoded::root(cells)) {
            self.arena.set(i, word);
        }
        Ok(Place { item: RECORD | at, words: ROOT_WORDS as u8 })
    }

    /// Encodes `top`, and nodes above it as far as they say something else because of it.
    fn plan_subtree(
        &mut self,
        tree: &mut Tree<Place>,
        mut top: NodeId,
        plan: &mut Plan,
    ) -> Result<(), FibError> {
        loop {
            let item = self.encode(tree, top, plan)?;
            let node = tree.node(top);
            if node.parent == NONE {
                plan.stores.push((Target::Slot(slot_of((node.key >> 64) as u64).0), item));
                return Ok(());
            }
            let (up, place) = (tree.node(node.parent), *tree.place(node.parent));
            let (word, shift) = self.item_at(up, place, cell(node.key, up.depth));
            let now = if place.words == 0 { place.item } else { (self.arena.get(word) >> shift) as u32 };
            if now == item && !tree.is_dirty(node.parent) {
                return Ok(());
            }
            // Both name records: the cell has an item to itself.
            if now & item & RECORD != 0 && place.words != 0 {
                plan.stores.push((Target::Word(word, shift), item));
                return Ok(());
            }
            top = node.parent;
            tree.set_dirty(top, true);
        }
    }

    /// Publishes and retires, or takes everything back.
    fn finish(
        &mut self,
        tree: &mut Tree<Place>,
        plan: Plan,
        encoded: Result<(), FibError>,
    ) -> Result<(), FibError> {
        if let Err(e) = encoded {
            for (id, old) in plan.encoded.into_iter().rev() {
                tree.set_dirty(id, true);
                let unused = mem::replace(tree.place_mut(id), old);
                if unused.words != 0 {
                    self.arena.retire(unused.item & INDEX, unused.words.into());
                }
            }
            return Err(e);
        }
        for (target, item) in plan.stores {
            match target {
                // Release: a reader that sees the item sees the records below it.
                Target::Slot(slot) => self.shared.direct[slot].store(item, Ordering::Release),
                Target::Word(word, shift) => self.store_item(word, shift, item),
            }
        }
        let replaced = plan.encoded.into_iter().map(|(_, old)| old).chain(mem::take(&mut tree.dead));
        for place in replaced.filter(|place| place.words != 0) {
            self.arena.retire(place.item & INDEX, place.words.into());
        }
        Ok(())
    }

    /// Makes a cell of a published record name another record.
    fn store_item(&self, word: u32, shift: u32, item: u32) {
        let other_half = self.arena.get(word) & !(u64::from(u32::MAX) << shift);
        self.arena.set(word, other_half | u64::from(item) << shift);
    }

    /// Word and shift of a cell's item in a node's record.
    fn item_at(&self, node: &Node, place: Place, cell: u8) -> (u32, u32) {
        let at = place.item & INDEX;
        if node.parent == NONE {
            return (at + u32::from(cell) / 2, u32::from(cell) % 2 * 32);
        }
        let at = at + if place.item & SKIPPING != 0 { SKIP_HEADER } else { 0 };
        let r = rank(self.arena.get(at), cell.into());
        (at + r.div_ceil(2), (!r & 1) * 32)
    }
}

impl Encoding for Records {
    type Place = Place;
    const SLOTS: usize = SLOTS;
    const DENSE_TO: u8 = DENSE_TO;

    fn slot_of(bits: u128) -> (usize, u8) {
        slot_of((bits >> 64) as u64)
    }

    fn covered(key: Key) -> SlotRanges {
        covered(key)
    }

    fn publish_subtree(&mut self, tree: &mut Tree<Place>, top: NodeId) -> Result<(), FibError> {
        // The item that will lead to it is far away in memory, and needed only after it is encoded.
        let above = tree.place(tree.node(top).parent).item & INDEX;
        self.arena.prefetch(above);
        self.arena.prefetch(above + 8);
        let mut plan = Plan::default();
        let encoded = self.plan_subtree(tree, top, &mut plan);
        self.finish(tree, plan, encoded)
    }

    fn publish_slots(
        &mut self,
        tree: &mut Tree<Place>,
        slots: &Slots,
        which: &[Range<usize>],
    ) -> Result<(), FibError> {
        let mut plan = Plan::default();
        let mut encoded = Ok(());
        for slot in which.iter().cloned().flatten() {
            let root = slots.root[slot];
            let item = if root == NONE { Ok(slots.value[slot]) } else { self.encode(tree, root, &mut plan) };
            match item {
                Ok(item) if self.shared.direct[slot].load(Ordering::Relaxed) == item => {}
                Ok(item) => plan.stores.push((Target::Slot(slot), item)),
                Err(e) => {
                    encoded = Err(e);
                    break;
                }
            }
        }
        self.finish(tree, plan, encoded)
    }

    fn ask(&self, place: &Place) {
        let at = place.item & INDEX;
        self.arena.prefetch(at);
        self.arena.prefetch(at + 8);
    }

    fn acquire(&mut self, nh: NextHopId) -> Result<u32, FibError> {
        if nh < LABELLED { Ok(nh) } else { Ok(LABELLED + u32::from(self.labels.acquire(nh)?)) }
    }

    fn release(&mut self, value: u32) {
        if value >= LABELLED {
            self.labels.release((value - LABELLED) as Label);
        }
    }

    fn id(&self, value: u32) -> NextHopId {
        if value >= LABELLED { self.labels.id((value - LABELLED) as Label) } else { value }
    }

    fn set_default(&mut self, nh: NextHopId) {
        self.shared.default.store(nh, Ordering::Release);
    }

    fn set_apart(&mut self, apart: bool) {
        self.arena.set_apart(apart);
    }
}

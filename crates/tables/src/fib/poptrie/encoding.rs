//! Nodes and leaves as readers see them, and how a change of them is published.

use super::Shared;
use crate::{
    fib::{
        FibError, FibMemory, NextHopId,
        arena::{Arena, zeroed},
        labels::{Label, Labels},
        strided::{Encoding, Key, SlotRanges, Slots},
        tree::{NONE, NodeId, Tree, top_bits},
    },
    qsbr::Domain,
};
use std::{
    mem,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

/// Address bits the direct table decides.
pub(super) const DIRECT_BITS: u32 = 18;

/// Set in direct entries that name a node.
pub(super) const NODE: u32 = 1 << 31;

/// Words of a node.
const NODE_WORDS: usize = 3;

/// Where a node is, 0 for nowhere yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    at: u32,
    /// A node below a slot has a block of its own; all others share one with their siblings.
    root: bool,
    leaves: Block,
    nodes: Block,
}

/// A block of the arena; no words is no block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Block {
    at: u32,
    words: u8,
}

/// A node's words, not yet anywhere.
#[derive(Clone, Copy)]
struct Words {
    vector: u64,
    leafvec: u64,
    leaves: Block,
    nodes: Block,
}

/// The Poptrie encoding and the memory it lives in.
pub(super) struct Nodes {
    pub(super) shared: Arc<Shared>,
    arena: Arena,
    labels: Labels,
}

/// What one change is about to publish, give back and remember.
#[derive(Default)]
struct Plan {
    fresh: Vec<Block>,
    replaced: Vec<Block>,
    places: Vec<(NodeId, Place)>,
    bases: Vec<(u32, u64)>,
    slots: Vec<(usize, u32)>,
}

impl Place {
    /// What a root's words occupy; nothing for other nodes.
    fn own_block(self) -> Block {
        Block { at: self.at, words: if self.root { NODE_WORDS as u8 } else { 0 } }
    }
}

impl Words {
    fn bases(&self) -> u64 {
        u64::from(self.leaves.at) | u64::from(self.nodes.at) << 32
    }
}

impl Nodes {
    pub(super) fn new(domain: Domain) -> Result<Self, FibError> {
        let arena = Arena::new(domain.clone())?;
        let labels = Labels::new(domain)?;
        let shared = Shared {
            direct: zeroed(1 << DIRECT_BITS)?,
            words: Arc::clone(arena.words()),
            labels: Arc::clone(labels.table()),
        };
        Ok(Nodes { shared: Arc::new(shared), arena, labels })
    }

    /// Bytes, of which the direct table counts once the table has routes.
    pub(super) fn memory(&self, has_routes: bool) -> FibMemory {
        let direct = if has_routes { 4 << DIRECT_BITS } else { 0 };
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

    /// Lets nodes and leaves have no more than so many words.
    #[cfg(all(test, not(loom)))]
    pub(super) fn limit(&mut self, words: usize) {
        self.arena.limit(words);
    }

    fn alloc(&mut self, words: usize, plan: &mut Plan) -> Result<Block, FibError> {
        if words == 0 {
            return Ok(Block::default());
        }
        let block = Block { at: self.arena.alloc(words)?, words: words as u8 };
        plan.fresh.push(block);
        Ok(block)
    }

    /// Writes leaves and nodes below `id` where they are stale; the words of `id` itself are the caller's to place.
    fn encode(&mut self, tree: &Tree<Place>, id: NodeId, plan: &mut Plan) -> Result<Words, FibError> {
        let (node, place) = (tree.node(id), *tree.place(id));
        if !tree.is_dirty(id) {
            return Ok(self.words_at(place));
        }
        let (leafvec, leaves) = self.encode_leaves(node.kids, &tree.paint(id), plan)?;
        let kid_ids = tree.kid_ids(id);
        let same_kids = place.at != 0
            && self.arena.get(place.at) == node.kids
            && kid_ids.iter().all(|&kid| !tree.is_dirty(kid) && tree.place(kid).at != 0);
        let nodes = if same_kids { place.nodes } else { self.encode_nodes(tree, kid_ids, None, plan)? };
        plan.replaced.extend([place.leaves].into_iter().chain((!same_kids).then_some(place.nodes)));
        Ok(Words { vector: node.kids, leafvec, leaves, nodes })
    }

    /// One block with the words of `kids`, except that of the one given, whose words are at hand.
    fn encode_nodes(
        &mut self,
        tree: &Tree<Place>,
        kids: &[NodeId],
        given: Option<(NodeId, Words)>,
        plan: &mut Plan,
    ) -> Result<Block, FibError> {
        let block = self.alloc(kids.len() * NODE_WORDS, plan)?;
        for (&kid, at) in kids.iter().zip((block.at..).step_by(NODE_WORDS)) {
            let words = match given {
                Some((id, words)) if id == kid => words,
                _ => self.encode(tree, kid, plan)?,
            };
            self.place(kid, at, words, plan);
        }
        Ok(block)
    }

    /// Leaves of the cells that lead to no node, equal neighbours merged.
    fn encode_leaves(
        &mut self,
        kids: u64,
        cells: &[u32; 64],
        plan: &mut Plan,
    ) -> Result<(u64, Block), FibError> {
        let (mut leafvec, mut leaves, mut n, mut last) = (0u64, [0u64; 16], 0, None);
        for (c, &label) in cells.iter().enumerate() {
            if kids >> c & 1 == 0 && last != Some(label) {
                leafvec |= 1 << c;
                leaves[n / 4] |= u64::from(label) << (n % 4 * 16);
                n += 1;
                last = Some(label);
            }
        }
        let block = self.alloc(n.div_ceil(4), plan)?;
        for (at, &word) in (block.at..).zip(&leaves[..n.div_ceil(4)]) {
            self.arena.set(at, word);
        }
        Ok((leafvec, block))
    }

    /// Writes a node's words to where they are going to be.
    fn place(&self, id: NodeId, at: u32, words: Words, plan: &mut Plan) {
        self.arena.set(at, words.vector);
        self.arena.set(at + 1, words.leafvec);
        self.arena.set(at + 2, words.bases());
        plan.places.push((id, Place { at, root: false, leaves: words.leaves, nodes: words.nodes }));
    }

    fn words_at(&self, place: Place) -> Words {
        let (vector, leafvec) = (self.arena.get(place.at), self.arena.get(place.at + 1));
        Words { vector, leafvec, leaves: place.leaves, nodes: place.nodes }
    }

    /// Plans the one store where a published node keeps its two vectors. Returns whether it does.
    fn in_place(&self, id: NodeId, place: Place, words: Words, plan: &mut Plan) -> bool {
        let now = self.words_at(place);
        let same = place.at != 0 && now.vector == words.vector && now.leafvec == words.leafvec;
        if same {
            plan.bases.push((place.at + 2, words.bases()));
            plan.places.push((id, Place { leaves: words.leaves, nodes: words.nodes, ..place }));
        }
        same
    }

    /// Plans a slot that leads to `root`.
    fn plan_root(
        &mut self,
        tree: &Tree<Place>,
        slot: usize,
        root: NodeId,
        plan: &mut Plan,
    ) -> Result<(), FibError> {
        if !tree.is_dirty(root) {
            return Ok(());
        }
        let words = self.encode(tree, root, plan)?;
        let place = *tree.place(root);
        if !self.in_place(root, place, words, plan) {
            let block = self.alloc(NODE_WORDS, plan)?;
            self.place(root, block.at, words, plan);
            if let Some((_, place)) = plan.places.last_mut() {
                place.root = true;
            }
            plan.slots.push((slot, NODE | block.at));
            if place.at != 0 {
                plan.replaced.push(place.own_block());
            }
        }
        Ok(())
    }

    fn plan_subtree(
        &mut self,
        tree: &Tree<Place>,
        top: NodeId,
        parent: NodeId,
        plan: &mut Plan,
    ) -> Result<(), FibError> {
        let words = self.encode(tree, top, plan)?;
        if self.in_place(top, *tree.place(top), words, plan) {
            return Ok(());
        }
        let up = *tree.place(parent);
        let block = self.encode_nodes(tree, tree.kid_ids(parent), Some((top, words)), plan)?;
        plan.replaced.push(up.nodes);
        let bases = Words { nodes: block, ..self.words_at(up) }.bases();
        plan.bases.push((up.at + 2, bases));
        plan.places.push((parent, Place { nodes: block, ..up }));
        Ok(())
    }

    /// Publishes and retires, or takes everything back.
    fn finish(
        &mut self,
        tree: &mut Tree<Place>,
        plan: Plan,
        planned: Result<(), FibError>,
        keep_dirty: NodeId,
    ) -> Result<(), FibError> {
        if let Err(e) = planned {
            for block in plan.fresh {
                self.arena.retire(block.at, block.words.into());
            }
            return Err(e);
        }
        for (at, bases) in plan.bases {
            self.arena.set(at, bases);
        }
        for (slot, entry) in plan.slots {
            // Release: a reader that sees the entry sees the nodes below it.
            self.shared.direct[slot].store(entry, Ordering::Release);
        }
        for (id, place) in plan.places {
            *tree.place_mut(id) = place;
            if id != keep_dirty {
                tree.set_dirty(id, false);
            }
        }
        let dead = mem::take(&mut tree.dead);
        let gone = dead.into_iter().flat_map(|place| [place.own_block(), place.leaves, place.nodes]);
        for block in plan.replaced.into_iter().chain(gone).filter(|block| block.words != 0) {
            self.arena.retire(block.at, block.words.into());
        }
        Ok(())
    }
}

impl Encoding for Nodes {
    type Place = Place;
    const SLOTS: usize = 1 << DIRECT_BITS;
    const DENSE_TO: u8 = u8::MAX - 6;

    fn slot_of(bits: u128) -> (usize, u8) {
        ((bits >> (128 - DIRECT_BITS)) as usize, DIRECT_BITS as u8)
    }

    fn covered((bits, len): Key) -> SlotRanges {
        if u32::from(len) > DIRECT_BITS {
            return [0..0, 0..0];
        }
        [Self::slot_of(bits).0..Self::slot_of(bits | !top_bits(len)).0 + 1, 0..0]
    }

    fn publish_subtree(&mut self, tree: &mut Tree<Place>, mut top: NodeId) -> Result<(), FibError> {
        // Nodes that were never placed (they came back when a change failed) are written with those above them.
        while tree.node(top).parent != NONE && tree.place(tree.node(top).parent).at == 0 {
            top = tree.node(top).parent;
        }
        let mut plan = Plan::default();
        let parent = tree.node(top).parent;
        let planned = if parent == NONE {
            self.plan_root(tree, Self::slot_of(tree.node(top).key).0, top, &mut plan)
        } else {
            self.plan_subtree(tree, top, parent, &mut plan)
        };
        // The parent only got new bases: if its own content is stale (after a change that failed), it stays so.
        self.finish(tree, plan, planned, parent)
    }

    fn publish_slots(
        &mut self,
        tree: &mut Tree<Place>,
        slots: &Slots,
        which: &[Range<usize>],
    ) -> Result<(), FibError> {
        let mut plan = Plan::default();
        let mut planned = Ok(());
        for slot in which.iter().cloned().flatten() {
            let root = slots.root[slot];
            if root != NONE {
                planned = self.plan_root(tree, slot, root, &mut plan);
                if planned.is_err() {
                    break;
                }
            } else if self.shared.direct[slot].load(Ordering::Relaxed) != slots.value[slot] {
                plan.slots.push((slot, slots.value[slot]));
            }
        }
        self.finish(tree, plan, planned, NONE)
    }

    fn ask(&self, place: &Place) {
        self.arena.prefetch(place.at);
    }

    fn acquire(&mut self, nh: NextHopId) -> Result<u32, FibError> {
        Ok(self.labels.acquire(nh)?.into())
    }

    fn release(&mut self, value: u32) {
        self.labels.release(value as Label);
    }

    fn id(&self, value: u32) -> NextHopId {
        self.labels.id(value as Label)
    }

    fn set_default(&mut self, nh: NextHopId) {
        self.shared.labels[0].store(nh, Ordering::Release);
    }

    fn set_apart(&mut self, apart: bool) {
        self.arena.set_apart(apart);
    }
}

//! The writer's picture of a 64-ary trie: routes grouped into strides of six bits.
//!
//! Readers never see this. It answers, after every change, which records a lookup structure has to write again and
//! what each of their 64 cells says: [`super::ip6`] and the Poptrie are two encodings of the same tree.
//!
//! Addresses are `u128` with the first bit on top, whatever the family ("left-aligned"), so one tree serves both.

use super::{
    lists::{Item, Lists},
    simd::prefetch,
};
use std::ops::Range;

/// Address bits one node decides.
pub(crate) const STRIDE: u8 = 6;

/// Index of a node; [`NONE`] is no node.
pub(crate) type NodeId = u32;

/// No node.
pub(crate) const NONE: NodeId = 0;

/// One stride of the trie: the routes that end in it and the nodes below it. All that the way down reads of most nodes is
/// one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Node {
    /// The address bits above the node; the rest is zero.
    pub(crate) key: u128,
    /// Cells that hold a node.
    pub(crate) kids: u64,
    /// Those nodes, in the order of their cells, if they are few: see [`Lists`].
    kid_ids: [NodeId; 3],
    /// Routes that end here, by position, if they are few.
    routes: [Route; 2],
    /// The node above; [`NONE`] above a root.
    pub(crate) parent: NodeId,
    /// What the best route above the node says: the value of cells no route of the node covers.
    pub(crate) cover: u32,
    /// How many address bits are above the node.
    pub(crate) depth: u8,
    route_count: u8,
}

/// A route in its node.
#[derive(Clone, Copy, Default)]
struct Route {
    value: u32,
    /// As in a binary heap: 1 `r` bits, shorter first.
    heap: u8,
}

impl Item for Route {
    fn from_position(at: u32) -> Self {
        Route { value: at, heap: 0 }
    }

    fn position(self) -> u32 {
        self.value
    }
}

/// What a change asks the lookup structure to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Nothing a reader could see changed.
    Nothing,
    /// Encode the dirty nodes from this one down, then let its parent (or the slot, where it has none) name it.
    Subtree(NodeId),
    /// A route that fills whole slots changed.
    Slots,
    /// The root lost its last route and is gone; the slot falls back to its short route.
    RootGone,
}

/// Somebody on the way down to where a prefix belongs, who never waits: a step asks for what the next one reads.
#[derive(Clone, Copy)]
pub(crate) struct Walker {
    pub(crate) key: u128,
    pub(crate) len: u8,
    /// The node that was asked for.
    pub(crate) at: NodeId,
    /// The one above; [`NONE`] above a root.
    pub(crate) above: NodeId,
    /// The list of the nodes below was asked for as well.
    listed: bool,
}

/// A forest of nodes. Roots are kept by the caller.
pub(crate) struct Tree<P> {
    nodes: Vec<Node>,
    /// Where each node's encoding lives: the business of the lookup structure. Apart from the nodes, since encoding a node
    /// asks for those of all nodes below it.
    places: Vec<P>,
    /// Whose encoding is older than the content.
    dirty: Vec<bool>,
    kid_lists: Lists<NodeId>,
    route_lists: Lists<Route>,
    free: Vec<NodeId>,
    /// Nodes up to this depth sit exactly one stride below their parent; deeper ones skip bits all their routes share.
    dense_to: u8,
    /// Places of nodes that were removed: to be retired once the change is published.
    pub(crate) dead: Vec<P>,
}

impl<P: Clone + Default> Tree<P> {
    /// An empty forest; `dense_to` is the depth below which chains of single nodes are skipped.
    pub(crate) fn new(dense_to: u8) -> Self {
        Tree {
            nodes: vec![Node::default()],
            places: vec![P::default()],
            dirty: vec![false],
            kid_lists: Lists::default(),
            route_lists: Lists::default(),
            free: Vec::new(),
            dense_to,
            dead: Vec::new(),
        }
    }

    /// The node with that index.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// The nodes below a node, in the order of their cells.
    pub(crate) fn kid_ids(&self, id: NodeId) -> &[NodeId] {
        let node = self.node(id);
        self.kid_lists.get(&node.kid_ids, node.kids.count_ones() as usize)
    }

    /// Where a node's encoding lives.
    pub(crate) fn place(&self, id: NodeId) -> &P {
        &self.places[id as usize]
    }

    /// Where a node's encoding lives, to change.
    pub(crate) fn place_mut(&mut self, id: NodeId) -> &mut P {
        &mut self.places[id as usize]
    }

    /// Whether a node's encoding is older than its content.
    pub(crate) fn is_dirty(&self, id: NodeId) -> bool {
        self.dirty[id as usize]
    }

    /// Notes whether it is.
    pub(crate) fn set_dirty(&mut self, id: NodeId, dirty: bool) {
        self.dirty[id as usize] = dirty;
    }

    /// Notes that a node and all above it have an encoding older than their content.
    pub(crate) fn set_dirty_up(&mut self, mut id: NodeId) {
        while id != NONE {
            self.set_dirty(id, true);
            id = self.node(id).parent;
        }
    }

    /// A new, dirty, empty node.
    pub(crate) fn new_node(&mut self, key: u128, depth: u8, cover: u32) -> NodeId {
        let node = Node { key: key & top_bits(depth), depth, cover, ..Node::default() };
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            self.dirty[id as usize] = true;
            return id;
        }
        self.nodes.push(node);
        self.places.push(P::default());
        self.dirty.push(true);
        (self.nodes.len() - 1) as NodeId
    }

    /// The value of every cell: the longest route of the node over it, else what the routes above say.
    pub(crate) fn paint(&self, id: NodeId) -> [u32; 64] {
        let mut out = [self.node(id).cover; 64];
        // Shorter routes come first in heap order, so longer ones paint over them.
        for route in self.routes(id) {
            let r = cells(route.heap);
            out[usize::from(r.start)..usize::from(r.end)].fill(route.value);
        }
        out
    }

    /// The value of exactly this prefix in the tree below `root`.
    pub(crate) fn get(&self, root: NodeId, key: u128, len: u8) -> Option<u32> {
        let mut at = root;
        loop {
            let node = self.node(at);
            if (node.key ^ key) & top_bits(node.depth) != 0 || len <= node.depth {
                return None;
            }
            if len <= node.depth + STRIDE {
                let routes = self.routes(at);
                return find(routes, heap_index(key, node.depth, len)).ok().map(|i| routes[i].value);
            }
            at = self.kid(at, cell(key, node.depth))?;
        }
    }

    /// Sets the value of a prefix longer than the root's depth. With `whole_path` every node on the way is marked
    /// dirty, for a load that encodes all at the end.
    pub(crate) fn insert(
        &mut self,
        root: NodeId,
        key: u128,
        len: u8,
        value: u32,
        whole_path: bool,
    ) -> (Option<u32>, Touched) {
        let mut touched = None;
        let mut at = root;
        loop {
            if whole_path {
                self.dirty[at as usize] = true;
            }
            let depth = self.node(at).depth;
            if len <= depth + STRIDE {
                break;
            }
            let c = cell(key, depth);
            let Some(kid) = self.kid(at, c) else {
                let below =
                    if depth + STRIDE <= self.dense_to { depth + STRIDE } else { aligned(depth, len - 1) };
                self.dirty[at as usize] = true;
                let cover = self.value_of(at, c);
                touched.get_or_insert(at);
                let new = self.new_node(key, below, cover);
                self.put_kid(at, c, new);
                at = new;
                continue;
            };
            let (kid_key, kid_depth, cover) = {
                let k = self.node(kid);
                (k.key, k.depth, k.cover)
            };
            let shared = ((kid_key ^ key).leading_zeros() as u8).min(len - 1);
            if shared >= kid_depth {
                at = kid;
                continue;
            }
            // The kid skips bits in which the new prefix differs (or ends): a node goes in between.
            let between = self.new_node(key, aligned(depth, shared), cover);
            self.put_kid(between, cell(kid_key, aligned(depth, shared)), kid);
            self.put_kid(at, c, between);
            touched.get_or_insert(between);
            at = between;
        }
        let h = heap_index(key, self.node(at).depth, len);
        let found = find(self.routes(at), h);
        let node = &mut self.nodes[at as usize];
        let count = usize::from(node.route_count);
        let old = match found {
            Ok(i) => {
                let route = self.route_lists.item_mut(&mut node.routes, count, i);
                Some(std::mem::replace(&mut route.value, value))
            }
            Err(i) => {
                self.route_lists.insert(&mut node.routes, count, i, Route { value, heap: h });
                node.route_count += 1;
                None
            }
        };
        if old == Some(value) {
            return (old, Touched::Nothing);
        }
        self.dirty[at as usize] = true;
        self.push_down(at, cells(h));
        (old, Touched::Subtree(touched.unwrap_or(at)))
    }

    /// Removes a prefix and every node that held nothing else.
    pub(crate) fn remove(&mut self, root: NodeId, key: u128, len: u8) -> (Option<u32>, Touched) {
        let mut at = root;
        loop {
            let node = self.node(at);
            if (node.key ^ key) & top_bits(node.depth) != 0 || len <= node.depth {
                return (None, Touched::Nothing);
            }
            if len <= node.depth + STRIDE {
                break;
            }
            match self.kid(at, cell(key, node.depth)) {
                Some(kid) => at = kid,
                None => return (None, Touched::Nothing),
            }
        }
        let h = heap_index(key, self.node(at).depth, len);
        let Ok(i) = find(self.routes(at), h) else { return (None, Touched::Nothing) };
        let node = &mut self.nodes[at as usize];
        let old = self.route_lists.remove(&mut node.routes, node.route_count.into(), i).value;
        node.route_count -= 1;
        self.dirty[at as usize] = true;
        self.push_down(at, cells(h));
        (Some(old), self.prune(at))
    }

    /// Tells a node what the best route above it now says; goes on down wherever that shows through.
    pub(crate) fn set_cover(&mut self, id: NodeId, value: u32) {
        let node = &mut self.nodes[id as usize];
        if node.cover != value {
            node.cover = value;
            self.dirty[id as usize] = true;
            self.push_down(id, 0..64);
        }
    }

    /// Sets out from a root, which may be [`NONE`].
    #[inline]
    pub(crate) fn set_out(&self, root: NodeId, key: u128, len: u8) -> Walker {
        self.ask(root);
        Walker { key, len, at: root, above: NONE, listed: false }
    }

    /// One step down; returns whether there may be more. The tree may change between steps: a walker may lose its way, and
    /// what it asked for is of no use then, nothing worse.
    #[inline]
    pub(crate) fn step(&self, walker: &mut Walker) -> bool {
        let node = self.node(walker.at);
        let (c, count) = (cell(walker.key, node.depth), node.kids.count_ones() as usize);
        if !walker.listed {
            // Also where the list is in the node itself: cheaper than a branch nobody can foresee.
            self.kid_lists.prefetch(&node.kid_ids, count, node.rank(c));
            walker.listed = true;
            return true;
        }
        let goes_on = (node.key ^ walker.key) & top_bits(node.depth) == 0
            && walker.len > node.depth + STRIDE
            && node.kids >> c & 1 == 1;
        if goes_on {
            let kid = self.kid_ids(walker.at)[node.rank(c)];
            self.ask(kid);
            (walker.above, walker.at, walker.listed) = (walker.at, kid, false);
        }
        goes_on
    }

    #[inline]
    fn ask(&self, id: NodeId) {
        prefetch(&self.nodes[id as usize]);
        prefetch(&self.places[id as usize]);
        prefetch(&self.dirty[id as usize]);
    }

    /// Moves the nodes below these roots together, which are all there are, and gives back the memory of those that once were.
    pub(crate) fn compact(&mut self, roots: &mut [NodeId]) {
        let mut new = Tree { dead: std::mem::take(&mut self.dead), ..Tree::new(self.dense_to) };
        let mut ids = vec![NONE; self.nodes.len()];
        let mut todo = Vec::new();
        for root in roots.iter_mut().filter(|root| **root != NONE) {
            todo.push(*root);
            while let Some(old) = todo.pop() {
                ids[old as usize] = new.nodes.len() as NodeId;
                new.nodes.push(*self.node(old));
                new.places.push(std::mem::take(self.place_mut(old)));
                new.dirty.push(self.is_dirty(old));
                todo.extend(self.kid_ids(old));
            }
            *root = ids[*root as usize];
        }
        let Tree { nodes, kid_lists, route_lists, .. } = &mut new;
        for node in nodes.iter_mut().skip(1) {
            node.parent = ids[node.parent as usize];
            let (kids, routes) = (node.kid_ids, node.routes);
            for (i, kid) in self.kid_lists.get(&kids, node.kids.count_ones() as usize).iter().enumerate() {
                kid_lists.insert(&mut node.kid_ids, i, i, ids[*kid as usize]);
            }
            for (i, route) in self.route_lists.get(&routes, node.route_count.into()).iter().enumerate() {
                route_lists.insert(&mut node.routes, i, i, *route);
            }
        }
        *self = new;
    }

    /// Bytes the forest occupies.
    pub(crate) fn memory(&self) -> usize {
        let nodes = self.nodes.capacity() * size_of::<Node>() + self.places.capacity() * size_of::<P>();
        let lists = self.kid_lists.memory() + self.route_lists.memory();
        nodes + self.dirty.capacity() + self.free.capacity() * size_of::<NodeId>() + lists
    }

    /// Hands the values of `range` to the nodes in it.
    fn push_down(&mut self, id: NodeId, range: Range<u8>) {
        let node = self.node(id);
        let within = (u64::MAX >> (64 - range.len())) << range.start;
        let mut left = node.kids & within;
        if left == 0 {
            return;
        }
        let paint = self.paint(id);
        while left != 0 {
            let c = left.trailing_zeros() as u8;
            left &= left - 1;
            if let Some(kid) = self.kid(id, c) {
                self.set_cover(kid, paint[usize::from(c)]);
            }
        }
    }

    /// Removes nodes from `at` upwards that hold nothing, and a skipping node that only leads to one other.
    fn prune(&mut self, mut at: NodeId) -> Touched {
        loop {
            let node = self.node(at);
            let (key, depth, parent) = (node.key, node.depth, node.parent);
            if node.route_count > 0 || node.kids.count_ones() > 1 {
                return Touched::Subtree(at);
            }
            match self.kid_ids(at).first().copied() {
                None if parent == NONE => {
                    self.discard(at);
                    return Touched::RootGone;
                }
                None => {
                    self.discard(at);
                    self.drop_kid(parent, cell(key, self.node(parent).depth));
                    self.dirty[parent as usize] = true;
                    at = parent;
                }
                Some(kid) if parent != NONE && depth > self.dense_to => {
                    self.discard(at);
                    let c = cell(key, self.node(parent).depth);
                    self.put_kid(parent, c, kid);
                    return Touched::Subtree(kid);
                }
                Some(_) => return Touched::Subtree(at),
            }
        }
    }

    /// The node in a cell.
    #[inline]
    fn kid(&self, id: NodeId, c: u8) -> Option<NodeId> {
        let node = self.node(id);
        (node.kids >> c & 1 == 1).then(|| self.kid_ids(id)[node.rank(c)])
    }

    fn put_kid(&mut self, id: NodeId, c: u8, kid: NodeId) {
        self.nodes[kid as usize].parent = id;
        let node = &mut self.nodes[id as usize];
        let (at, count) = (node.rank(c), node.kids.count_ones() as usize);
        if node.kids >> c & 1 == 1 {
            *self.kid_lists.item_mut(&mut node.kid_ids, count, at) = kid;
        } else {
            self.kid_lists.insert(&mut node.kid_ids, count, at, kid);
            node.kids |= 1 << c;
        }
    }

    fn drop_kid(&mut self, id: NodeId, c: u8) {
        let node = &mut self.nodes[id as usize];
        let (at, count) = (node.rank(c), node.kids.count_ones() as usize);
        self.kid_lists.remove(&mut node.kid_ids, count, at);
        node.kids &= !(1 << c);
    }

    #[inline]
    fn routes(&self, id: NodeId) -> &[Route] {
        let node = self.node(id);
        self.route_lists.get(&node.routes, node.route_count.into())
    }

    fn value_of(&self, id: NodeId, c: u8) -> u32 {
        let best = self.routes(id).iter().rev().find(|route| cells(route.heap).contains(&c));
        best.map_or(self.node(id).cover, |route| route.value)
    }

    fn discard(&mut self, id: NodeId) {
        let node = std::mem::take(&mut self.nodes[id as usize]);
        self.kid_lists.clear(&node.kid_ids, node.kids.count_ones() as usize);
        self.route_lists.clear(&node.routes, node.route_count.into());
        self.dead.push(std::mem::take(&mut self.places[id as usize]));
        self.dirty[id as usize] = false;
        self.free.push(id);
    }
}

impl Node {
    /// How many nodes sit in lower cells.
    fn rank(&self, c: u8) -> usize {
        (self.kids & ((1u64 << c) - 1)).count_ones() as usize
    }
}

fn find(routes: &[Route], heap: u8) -> Result<usize, usize> {
    routes.binary_search_by_key(&heap, |route| route.heap)
}

/// The cell of a node at `depth` that an address falls into. Bits past the end of the address read as zero.
pub(crate) fn cell(key: u128, depth: u8) -> u8 {
    ((key << depth) >> (128 - STRIDE)) as u8
}

/// A mask of the first `n` bits, `n` up to 128.
pub(crate) fn top_bits(n: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(n)).unwrap_or(0)
}

/// The last depth at or above `limit` that is a whole number of strides below `depth`.
fn aligned(depth: u8, limit: u8) -> u8 {
    depth + (limit - depth) / STRIDE * STRIDE
}

/// Position of a prefix of `len` bits in a node at `depth`, as in a binary heap: 2 and 3 are the halves.
fn heap_index(key: u128, depth: u8, len: u8) -> u8 {
    let r = len - depth;
    1 << r | cell(key, depth) >> (STRIDE - r)
}

/// The cells a heap position covers.
fn cells(h: u8) -> Range<u8> {
    let r = h.ilog2() as u8;
    let width = 1 << (STRIDE - r);
    let first = (h - (1 << r)) * width;
    first..first + width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> u128 {
        text.parse::<std::net::Ipv6Addr>().unwrap().to_bits()
    }

    #[test]
    fn heap_positions_cover_their_cells() {
        assert_eq!((cells(2), cells(3), cells(64), cells(127)), (0..32, 32..64, 0..1, 63..64));
        assert_eq!(heap_index(key("2001:db8::"), 20, 26), 64 | 0b110110);
        assert_eq!(top_bits(0), 0);
        assert_eq!(top_bits(128), u128::MAX);
    }

    #[test]
    fn long_prefixes_skip_shared_bits_and_split_where_they_differ() {
        let mut t = Tree::<()>::new(62);
        let root = t.new_node(key("2001:d00::"), 20, 0);
        t.insert(root, key("2001:db8::1"), 128, 7, false);
        let used = |t: &Tree<()>| t.nodes.len() - t.free.len() - 1;
        assert_eq!(used(&t), 9, "20, 26, … 62, then one node at 122");
        let (old, touched) = t.insert(root, key("2001:db8::8000:0:0:1"), 128, 8, false);
        assert_eq!((old, used(&t)), (None, 10), "the hosts part in the node at 62");
        assert!(matches!(touched, Touched::Subtree(_)));
        t.insert(root, key("2001:db8::1:0:0:1"), 128, 9, false);
        assert_eq!(used(&t), 12, "a node at 74 leads to both");
        assert_eq!(t.get(root, key("2001:db8::1"), 128), Some(7));
        assert_eq!(t.get(root, key("2001:db8::1:0:0:1"), 128), Some(9));
        assert_eq!(t.remove(root, key("2001:db8::1:0:0:1"), 128).0, Some(9));
        assert_eq!(used(&t), 10, "and goes when one is left");
        t.remove(root, key("2001:db8::1"), 128);
        let (old, touched) = t.remove(root, key("2001:db8::8000:0:0:1"), 128);
        assert_eq!((old, touched, used(&t)), (Some(8), Touched::RootGone, 0));
    }

    #[test]
    fn covering_routes_show_through_to_the_depth_where_nothing_hides_them() {
        let mut t = Tree::<()>::new(128);
        let root = t.new_node(key("2001::"), 20, 1);
        t.insert(root, key("2001:db8::"), 48, 5, false);
        t.insert(root, key("2001:db8::"), 32, 2, false);
        let at_44 = {
            let mut at = root;
            for _ in 0..4 {
                at = t.kid(at, cell(key("2001:db8::"), t.node(at).depth)).unwrap();
            }
            at
        };
        assert_eq!((t.node(at_44).depth, t.node(at_44).cover), (44, 2));
        t.set_cover(root, 9);
        assert_eq!(t.node(at_44).cover, 2, "hidden by the /32");
        t.remove(root, key("2001:db8::"), 32);
        assert_eq!(t.node(at_44).cover, 9);
        assert_eq!(t.paint(at_44)[0], 5);
        assert_eq!(size_of::<Node>(), 64, "one cache line");
    }
}

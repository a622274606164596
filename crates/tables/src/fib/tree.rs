//! The writer's picture of a 64-ary trie: routes grouped into strides of six bits.
//!
//! Readers never see this. It answers, after every change, which records a lookup structure has to write again and
//! what each of their 64 cells says: [`super::ip6`] and the Poptrie are two encodings of the same tree.
//!
//! Addresses are `u128` with the first bit on top, whatever the family ("left-aligned"), so one tree serves both.

use std::ops::Range;

/// Address bits one node decides.
pub(crate) const STRIDE: u8 = 6;

/// Index of a node; [`NONE`] is no node.
pub(crate) type NodeId = u32;

/// No node.
pub(crate) const NONE: NodeId = 0;

/// One stride of the trie: the routes that end in it and the nodes below it.
#[derive(Clone, Default)]
pub(crate) struct Node<P> {
    /// The address bits above the node; the rest is zero.
    pub(crate) key: u128,
    /// The node above; [`NONE`] above a root.
    pub(crate) parent: NodeId,
    /// How many address bits are above the node.
    pub(crate) depth: u8,
    /// The encoding is older than the content.
    pub(crate) dirty: bool,
    /// What the best route above the node says: the value of cells no route of the node covers.
    pub(crate) cover: u32,
    /// Cells that hold a node.
    pub(crate) kids: u64,
    /// Those nodes, in the order of their cells.
    pub(crate) kid_ids: Vec<NodeId>,
    /// Routes that end here: position as in a binary heap (1 `r` bits, shorter first) and value.
    routes: Vec<(u8, u32)>,
    /// Where the encoding lives: the business of the lookup structure.
    pub(crate) place: P,
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

/// A forest of nodes. Roots are kept by the caller.
pub(crate) struct Tree<P> {
    nodes: Vec<Node<P>>,
    free: Vec<NodeId>,
    /// Nodes up to this depth sit exactly one stride below their parent; deeper ones skip bits all their routes share.
    dense_to: u8,
    /// Places of nodes that were removed: to be retired once the change is published.
    pub(crate) dead: Vec<P>,
}

impl<P: Clone + Default> Tree<P> {
    /// An empty forest; `dense_to` is the depth below which chains of single nodes are skipped.
    pub(crate) fn new(dense_to: u8) -> Self {
        Tree { nodes: vec![Node::default()], free: Vec::new(), dense_to, dead: Vec::new() }
    }

    /// The node with that index.
    pub(crate) fn node(&self, id: NodeId) -> &Node<P> {
        &self.nodes[id as usize]
    }

    /// The node with that index.
    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node<P> {
        &mut self.nodes[id as usize]
    }

    /// A new, dirty, empty node.
    pub(crate) fn new_node(&mut self, key: u128, depth: u8, cover: u32) -> NodeId {
        let node = Node { key: key & top_bits(depth), depth, dirty: true, cover, ..Node::default() };
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as NodeId
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
                let h = heap_index(key, node.depth, len);
                return node.find(h).ok().map(|i| node.routes[i].1);
            }
            at = node.kid(cell(key, node.depth))?;
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
            let node = &mut self.nodes[at as usize];
            node.dirty |= whole_path;
            let depth = node.depth;
            if len <= depth + STRIDE {
                break;
            }
            let c = cell(key, depth);
            let Some(kid) = node.kid(c) else {
                let below =
                    if depth + STRIDE <= self.dense_to { depth + STRIDE } else { aligned(depth, len - 1) };
                node.dirty = true;
                let cover = node.value_of(c);
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
        let node = self.node_mut(at);
        let h = heap_index(key, node.depth, len);
        let old = match node.find(h) {
            Ok(i) => Some(std::mem::replace(&mut node.routes[i].1, value)),
            Err(i) => {
                node.routes.insert(i, (h, value));
                None
            }
        };
        if old == Some(value) {
            return (old, Touched::Nothing);
        }
        node.dirty = true;
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
            match node.kid(cell(key, node.depth)) {
                Some(kid) => at = kid,
                None => return (None, Touched::Nothing),
            }
        }
        let node = self.node_mut(at);
        let h = heap_index(key, node.depth, len);
        let Ok(i) = node.find(h) else { return (None, Touched::Nothing) };
        let (_, old) = node.routes.remove(i);
        node.dirty = true;
        self.push_down(at, cells(h));
        (Some(old), self.prune(at))
    }

    /// Tells a node what the best route above it now says; goes on down wherever that shows through.
    pub(crate) fn set_cover(&mut self, id: NodeId, value: u32) {
        let node = self.node_mut(id);
        if node.cover != value {
            node.cover = value;
            node.dirty = true;
            self.push_down(id, 0..64);
        }
    }

    /// Bytes the forest occupies.
    pub(crate) fn memory(&self) -> usize {
        let lists: usize =
            self.nodes.iter().map(|n| n.kid_ids.capacity() * 4 + n.routes.capacity() * 8).sum();
        self.nodes.capacity() * size_of::<Node<P>>() + self.free.capacity() * size_of::<NodeId>() + lists
    }

    /// Hands the values of `range` to the nodes in it.
    fn push_down(&mut self, id: NodeId, range: Range<u8>) {
        let node = self.node(id);
        let within = (u64::MAX >> (64 - range.len())) << range.start;
        let mut left = node.kids & within;
        if left == 0 {
            return;
        }
        let paint = node.paint();
        while left != 0 {
            let c = left.trailing_zeros() as u8;
            left &= left - 1;
            if let Some(kid) = self.node(id).kid(c) {
                self.set_cover(kid, paint[usize::from(c)]);
            }
        }
    }

    /// Removes nodes from `at` upwards that hold nothing, and a skipping node that only leads to one other.
    fn prune(&mut self, mut at: NodeId) -> Touched {
        loop {
            let node = self.node(at);
            let (key, depth, parent) = (node.key, node.depth, node.parent);
            if !node.routes.is_empty() || node.kid_ids.len() > 1 {
                return Touched::Subtree(at);
            }
            match node.kid_ids.first().copied() {
                None if parent == NONE => {
                    self.discard(at);
                    return Touched::RootGone;
                }
                None => {
                    self.discard(at);
                    let up = self.node_mut(parent);
                    let c = cell(key, up.depth);
                    up.drop_kid(c);
                    up.dirty = true;
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

    fn put_kid(&mut self, id: NodeId, c: u8, kid: NodeId) {
        self.node_mut(kid).parent = id;
        self.node_mut(id).put_kid(c, kid);
    }

    fn discard(&mut self, id: NodeId) {
        let node = std::mem::take(self.node_mut(id));
        self.dead.push(node.place);
        self.free.push(id);
    }
}

impl<P> Node<P> {
    /// The node in a cell.
    pub(crate) fn kid(&self, c: u8) -> Option<NodeId> {
        (self.kids >> c & 1 == 1).then(|| self.kid_ids[self.rank(c)])
    }

    /// How many nodes sit in lower cells.
    pub(crate) fn rank(&self, c: u8) -> usize {
        (self.kids & ((1u64 << c) - 1)).count_ones() as usize
    }

    /// The value of every cell: the longest route of this node over it, else what the routes above say.
    pub(crate) fn paint(&self) -> [u32; 64] {
        let mut out = [self.cover; 64];
        // Shorter routes come first in heap order, so longer ones paint over them.
        for &(h, value) in &self.routes {
            let r = cells(h);
            out[usize::from(r.start)..usize::from(r.end)].fill(value);
        }
        out
    }

    fn value_of(&self, c: u8) -> u32 {
        let best = self.routes.iter().rev().find(|&&(h, _)| cells(h).contains(&c));
        best.map_or(self.cover, |&(_, value)| value)
    }

    fn find(&self, h: u8) -> Result<usize, usize> {
        self.routes.binary_search_by_key(&h, |&(h, _)| h)
    }

    fn put_kid(&mut self, c: u8, id: NodeId) {
        let at = self.rank(c);
        if self.kids >> c & 1 == 1 {
            self.kid_ids[at] = id;
        } else {
            self.kids |= 1 << c;
            self.kid_ids.insert(at, id);
        }
    }

    fn drop_kid(&mut self, c: u8) {
        let at = self.rank(c);
        self.kids &= !(1 << c);
        self.kid_ids.remove(at);
    }
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
                at = t.node(at).kid(cell(key("2001:db8::"), t.node(at).depth)).unwrap();
            }
            at
        };
        assert_eq!((t.node(at_44).depth, t.node(at_44).cover), (44, 2));
        t.set_cover(root, 9);
        assert_eq!(t.node(at_44).cover, 2, "hidden by the /32");
        t.remove(root, key("2001:db8::"), 32);
        assert_eq!(t.node(at_44).cover, 9);
        assert_eq!(t.node(at_44).paint()[0], 5);
    }
}

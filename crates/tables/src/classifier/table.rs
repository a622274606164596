//! The compiled form: what readers touch. Immutable once built.
//!
//! ```text
//!   root nodes (every key visits each)        node: (key & mask) * multiplier >> shift = which cell
//!   ┌────┐ ┌────┐ ┌────┐                      cell: nothing | a rule | a list of rules | a node
//!   │    │ │    │ │    │  ...  rest           rule: bits and port ranges, one line (IPv4) or two (IPv6)
//!   └─┬──┘ └─┬──┘ └─┬──┘
//!   cells  cells  cells ──> rules, lists, further nodes
//! ```

use super::{
    bits::Bits,
    key::{Shape, Words},
    lanes::Lanes,
    rule::{ActionId, Pattern, port_words},
};

/// One step: picks bits of a key and mixes them into the number of a cell.
///
/// Where the bits lie side by side the multiplier is a power of two and moves them to the top: the cell's number is then
/// the bits themselves, and a rule with a range there can be in each cell it reaches. Otherwise the product is a hash.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Node {
    /// Bits of the two words named by `words` that count.
    pub(super) mask: [u64; 2],
    /// Odd numbers (hash), or a power of two and 0.
    pub(super) multiplier: [u64; 2],
    /// Indices of the two key words.
    pub(super) words: [u8; 2],
    /// The cell's number is the product shifted right by this: 64 less the binary logarithm of the number of cells.
    pub(super) shift: u32,
    /// Where the cells begin.
    pub(super) base: u32,
    /// Rules that do not ask for all these bits: what to visit besides.
    pub(super) rest: Cell,
    /// The first of the rules behind it: who has an earlier one already need not visit it.
    pub(super) first: u32,
    /// Where its displacements begin; see [`Node::group`].
    pub(super) groups: u32,
    /// How a product becomes the number of a displacement; 0 where there are none.
    pub(super) group_shift: u32,
}

/// Multiplier of [`Node::group`].
pub(super) const GROUPS: u64 = 0x9fb2_1c65_1e98_df25;

/// What a node leads to: 2 bits of kind, 6 bits of tag, 24 bits of index. 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Cell(pub(super) u32);

/// What a cell names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bits = 0,
    Rule = 1,
    List = 2,
    Node = 3,
}

/// Bits of an index.
pub(super) const INDEX: u32 = (1 << 24) - 1;

/// The tag that every key passes.
pub(super) const ANY_TAG: u32 = 63;

/// Set in the last element of a list.
pub(super) const LAST: u32 = 1 << 31;

impl Cell {
    pub(super) const NOTHING: Cell = Cell(0);

    pub(super) fn new(kind: Kind, index: usize) -> Self {
        Cell((kind as u32) << 30 | ANY_TAG << 24 | index as u32 & INDEX)
    }

    /// The same for keys with this tag only. Bit vectors keep letting all in: theirs, with tag 0, could be nothing.
    pub(super) fn tagged(self, tag: u32) -> Self {
        if self.is(Kind::Bits) { self } else { Cell(self.0 & !(63 << 24) | tag << 24) }
    }

    #[inline(always)]
    pub(super) fn is(self, kind: Kind) -> bool {
        self.0 >> 30 == kind as u32
    }
}

impl Node {
    /// Mixes a key's bits.
    #[inline(always)]
    pub(super) fn product(&self, words: &[u64]) -> u64 {
        let word = |i: usize| words.get(usize::from(self.words[i])).copied().unwrap_or(0) & self.mask[i];
        word(0).wrapping_mul(self.multiplier[0]).wrapping_add(word(1).wrapping_mul(self.multiplier[1]))
    }

    /// The cell's number.
    ///
    /// Products of one group are moved by the same displacement, chosen so that no two products of rules share a cell (hash
    /// and displace: Belazzougui, Botelho, Dietzfelbinger, ESA 2009).
    #[inline(always)]
    pub(super) fn cell(&self, product: u64, displacements: &[u32]) -> usize {
        let moved = match self.group_shift {
            0 => 0,
            shift => displacements.get(self.group(product, shift)).copied().unwrap_or(0),
        };
        self.base as usize + ((product >> (self.shift & 63)) as u32 ^ moved) as usize
    }

    /// Which displacement is a product's. From other bits than its cell is.
    #[inline(always)]
    pub(super) fn group(&self, product: u64, shift: u32) -> usize {
        self.groups as usize + ((product ^ product >> 32).wrapping_mul(GROUPS) >> (shift & 63)) as usize
    }

    /// Six more bits of the product: a key whose tag is not the cell's has other bits than the rules there.
    #[inline(always)]
    pub(super) fn tag(&self, product: u64) -> u32 {
        ((product >> ((self.shift & 63) - 6)) as u32 & 63).min(ANY_TAG - 1)
    }

    /// Whether a cell is for keys with this tag.
    #[inline(always)]
    pub(super) fn admits(cell: u32, tag: u32) -> bool {
        let of = cell >> 24 & 63;
        (of == tag || of == ANY_TAG) && cell != 0
    }
}

/// A rule as the lookup compares it, in lanes of 16 bits: one vector operation each step.
///
/// Lanes hold either bits of which some count, or a port and the length of its range: never both, so that mask and length share
/// their memory. An IPv4 rule is one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Record<L> {
    /// Bits that count; in a port's lane, the length of the range less one; in the spare word, where keys are 0, the action.
    pub(super) mask: L,
    /// What they are; the first port.
    pub(super) value: L,
}

impl<L: Lanes> Record<L> {
    pub(super) fn new<W: Words>(pattern: &Pattern<W>, action: ActionId) -> Self {
        let (mut mask, mut value) = (pattern.mask, pattern.value);
        for (range, word) in pattern.ports.iter().zip(port_words::<W>()) {
            mask.get_mut()[word] |= u64::from(range.last - range.first) << 48;
            value.get_mut()[word] |= u64::from(range.first) << 48;
        }
        let mut record = Record { mask: L::new(mask.get()), value: L::new(value.get()) };
        *record.mask.spare_mut() = action.into();
        record
    }

    /// What keys get whose first rule it is.
    #[inline(always)]
    pub(super) fn action(&self) -> ActionId {
        self.mask.spare() as ActionId
    }
}

/// A compiled list of rules.
#[derive(Debug)]
pub(super) struct Table<A: Shape> {
    /// Nodes that every key visits.
    pub(super) root: Vec<Node>,
    /// Where copies of the root nodes begin in `nodes`.
    pub(super) root_copies: usize,
    /// The rules that no root node takes.
    pub(super) rest: Option<Bits>,
    /// The first of the rules that the first root node does not take.
    pub(super) first_left: u32,
    pub(super) nodes: Vec<Node>,
    pub(super) cells: Vec<u32>,
    pub(super) displacements: Vec<u32>,
    pub(super) lists: Vec<u32>,
    pub(super) bits: Vec<Bits>,
    pub(super) rows: Vec<u64>,
    /// By rule; one more at the end for keys that match none.
    pub(super) records: Vec<Record<A::Lanes>>,
}

impl<A: Shape> Table<A> {
    /// Bytes that lookups may touch.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.root[..])
            + size_of_val(&self.nodes[..])
            + size_of_val(&self.cells[..])
            + size_of_val(&self.displacements[..])
            + size_of_val(&self.lists[..])
            + size_of_val(&self.bits[..])
            + size_of_val(&self.rows[..])
            + size_of_val(&self.records[..])
    }
}

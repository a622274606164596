//! Lookup: 64 keys at a time, worklists instead of one key after the other.
//!
//! What is still to do for a key (a node to visit, a rule to compare) is an item of a list; items are appended without
//! branches on what was found, so that many loads are under way at once and next to nothing is mispredicted.

use super::{
    bits::{self, Bits},
    build::STEPS,
    kernel::Steps,
    key::{Key, Shape, Words},
    lanes::Lanes,
    rule::ActionId,
    table::{Cell, INDEX, Kind, LAST, Node, Table},
};

/// Keys treated together.
pub(super) const LANES: usize = 64;

/// One word of each key.
pub(super) type Column = [u64; LANES];

/// Items of a list at most: a round takes up to [`LANES`] nodes and adds up to twice as many, for each step down.
const ITEMS: usize = LANES * (STEPS + 8);

/// Sets of candidates of one round at most.
const SETS: usize = 16 * LANES;

/// Cells to look at, each for a key: the cell, and the key's lane. Never grows beyond its memory.
#[derive(Debug)]
struct List {
    cells: Box<[u32; ITEMS]>,
    lanes: Box<[u32; ITEMS]>,
    len: usize,
}

/// A list being written to. A value of its own so that its end stays in a register.
pub(super) struct End<'a> {
    cells: &'a mut [u32; ITEMS],
    lanes: &'a mut [u32; ITEMS],
    len: usize,
}

/// Where cells go, by kind.
pub(super) struct Sinks<'a> {
    pub(super) bits: End<'a>,
    pub(super) rules: End<'a>,
    pub(super) lists: End<'a>,
    pub(super) nodes: End<'a>,
}

/// Rules of which one bit each says that they are still to be compared, for a key.
#[derive(Clone, Copy, Debug, Default)]
struct Candidates {
    bits: u64,
    /// Where the slots of the bits' rules are in the lists.
    slots: u32,
    lane: u32,
}

/// Worklists; one for each worker, so that a lookup need not clear memory.
#[derive(Debug)]
pub(super) struct Scratch<A: Shape> {
    columns: Box<[Column; 6]>,
    keys: Box<[A::Lanes; LANES]>,
    work: Work,
    candidates: Box<[Candidates; SETS]>,
    /// The best rule so far, by lane.
    best: Box<[u32; LANES]>,
}

/// What is to be done.
#[derive(Debug)]
struct Work {
    bits: List,
    rules: List,
    lists: List,
    nodes: List,
    candidates: usize,
}

impl List {
    fn new() -> Self {
        List { cells: Box::new([0; ITEMS]), lanes: Box::new([0; ITEMS]), len: 0 }
    }

    #[inline(always)]
    fn end(&mut self) -> End<'_> {
        End { cells: &mut self.cells, lanes: &mut self.lanes, len: self.len }
    }

    #[inline(always)]
    fn items(&self) -> impl Iterator<Item = (u32, usize)> {
        let lanes = self.lanes.iter().map(|&lane| lane as usize % LANES);
        self.cells.iter().copied().zip(lanes).take(self.len)
    }
}

impl End<'_> {
    /// Writes a cell behind the others; it stays if `keep`.
    #[inline(always)]
    fn push(&mut self, cell: u32, lane: u32, keep: bool) {
        if self.len < ITEMS {
            (self.cells[self.len], self.lanes[self.len]) = (cell, lane);
            self.len += usize::from(keep);
        }
    }

    /// Writes 16 cells behind the others, of which `n` stay.
    #[inline(always)]
    pub(super) fn append(&mut self, cells: &[u32; 16], lanes: &[u32; 16], n: usize) {
        let to = self.len..self.len + 16;
        if let (Some(to_cells), Some(to_lanes)) = (self.cells.get_mut(to.clone()), self.lanes.get_mut(to)) {
            to_cells.copy_from_slice(cells);
            to_lanes.copy_from_slice(lanes);
            self.len += n;
        }
    }
}

impl Sinks<'_> {
    /// Sorts cells, none of which is nothing.
    #[inline(always)]
    pub(super) fn sort(&mut self, cells: &[u32], lanes: &[u32]) {
        for (&cell, &lane) in cells.iter().zip(lanes) {
            let of = Cell(cell);
            self.rules.push(cell, lane, of.is(Kind::Rule));
            self.lists.push(cell, lane, of.is(Kind::List));
            self.nodes.push(cell, lane, of.is(Kind::Node));
            self.bits.push(cell, lane, of.is(Kind::Bits));
        }
    }
}

impl Work {
    #[inline(always)]
    fn fill(&mut self, fill: impl FnOnce(&mut Sinks<'_>)) {
        let Work { bits, rules, lists, nodes, .. } = self;
        let mut sinks =
            Sinks { bits: bits.end(), rules: rules.end(), lists: lists.end(), nodes: nodes.end() };
        fill(&mut sinks);
        let ends = [sinks.bits.len, sinks.rules.len, sinks.lists.len, sinks.nodes.len];
        [self.bits.len, self.rules.len, self.lists.len, self.nodes.len] = ends;
    }
}

impl<A: Shape> Scratch<A> {
    pub(super) fn new() -> Self {
        Scratch {
            columns: Box::new([[0; LANES]; 6]),
            keys: Box::new([A::Lanes::default(); LANES]),
            work: Work {
                bits: List::new(),
                rules: List::new(),
                lists: List::new(),
                nodes: List::new(),
                candidates: 0,
            },
            candidates: Box::new([Candidates::default(); SETS]),
            best: Box::new([0; LANES]),
        }
    }
}

/// Classifies `keys[i]` into `out[i]`.
#[inline(always)]
pub(super) fn lookup<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch<A>,
    keys: &[Key<A>],
    out: &mut [ActionId],
) {
    for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
        *scratch.best = [table.records.len() as u32; LANES];
        transpose(keys, &mut scratch.columns, &mut scratch.keys);
        let Scratch { work, columns, .. } = &mut *scratch;
        work.fill(|sinks| {
            for node in &table.root {
                steps.visit(node, &table.cells, columns, keys.len(), sinks);
            }
        });
        if scratch.work.nodes.len > 0 {
            descend(steps, table, scratch, keys);
        }
        compare(steps, table, scratch);
        compare_lists(steps, table, scratch);
        compare_bits(steps, table, scratch, keys);
        if let Some(bits) = table.rest {
            match bits.width {
                1 => filter::<A, 1>(table, scratch, &bits, keys.len()),
                2 => filter::<A, 2>(table, scratch, &bits, keys.len()),
                4 => filter::<A, 4>(table, scratch, &bits, keys.len()),
                8 => filter::<A, 8>(table, scratch, &bits, keys.len()),
                _ => (0..keys.len()).for_each(|lane| filter_one(steps, table, scratch, &bits, lane, keys)),
            }
            compare_candidates(steps, table, scratch);
        }
        for (out, &best) in out.iter_mut().zip(scratch.best.iter()) {
            *out = table.actions.get(best as usize).copied().unwrap_or_default();
        }
    }
}

/// Keys into columns of words, and into lanes.
#[inline(always)]
fn transpose<A: Shape>(keys: &[Key<A>], columns: &mut [Column; 6], lanes: &mut [A::Lanes; LANES]) {
    for (lane, key) in keys.iter().enumerate() {
        lanes[lane % LANES] = A::Lanes::new(key.words.get());
        for (column, word) in columns.iter_mut().zip(key.words.get()) {
            column[lane % LANES] = *word;
        }
    }
}

/// Nodes below the root, until none is left.
#[inline(always)]
fn descend<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch<A>, keys: &[Key<A>]) {
    while scratch.work.nodes.len > 0 {
        let (mut cells, mut lanes, mut kept) = ([0u32; 2 * LANES], [0u32; 2 * LANES], 0);
        let nodes = &mut scratch.work.nodes;
        let n = nodes.len.min(LANES);
        nodes.len -= n;
        for i in nodes.len..nodes.len + n {
            let (cell, lane) = (nodes.cells[i % ITEMS], nodes.lanes[i % ITEMS]);
            let (Some(node), Some(key)) = (table.nodes.get((cell & INDEX) as usize), keys.get(lane as usize))
            else {
                continue;
            };
            let product = node.product(key.words.get());
            let cell = table.cells.get(node.cell(product)).copied().unwrap_or(0);
            (cells[kept % (2 * LANES)], lanes[kept % (2 * LANES)]) = (cell, lane);
            kept += usize::from(Node::admits(cell, node.tag(product)));
            (cells[kept % (2 * LANES)], lanes[kept % (2 * LANES)]) = (node.rest.0, lane);
            kept += usize::from(node.rest != Cell::NOTHING);
        }
        scratch.work.fill(|sinks| sinks.sort(&cells[..kept], &lanes[..kept]));
        // Room for another round in each list.
        const FULL: usize = ITEMS - 3 * LANES;
        if scratch.work.rules.len > FULL {
            compare(steps, table, scratch);
        }
        if scratch.work.lists.len > FULL {
            compare_lists(steps, table, scratch);
        }
        if scratch.work.bits.len > FULL {
            compare_bits(steps, table, scratch, keys);
        }
    }
}

/// Single rules.
#[inline(always)]
fn compare<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch<A>) {
    let best = &mut scratch.best;
    for (cell, lane) in scratch.work.rules.items() {
        let slot = cell & INDEX;
        let Some(record) = table.records.get(slot as usize) else { continue };
        let found = if steps.matches(&scratch.keys[lane], record) { slot } else { u32::MAX };
        best[lane] = best[lane].min(found);
    }
    scratch.work.rules.len = 0;
}

/// Lists of rules: one rule of each list in a round, until it matches, or cannot be better, or was the last.
#[inline(always)]
fn compare_lists<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch<A>) {
    let best = &mut scratch.best;
    let End { cells, lanes, len } = scratch.work.lists.end();
    let mut left = len;
    while left > 0 {
        let mut kept = 0;
        for i in 0..left.min(ITEMS) {
            let (cell, lane) = (cells[i], lanes[i] as usize % LANES);
            let element = table.lists.get((cell & INDEX) as usize).copied().unwrap_or(LAST | INDEX);
            let slot = element & !LAST;
            let Some(record) = table.records.get(slot as usize) else { continue };
            let matches = steps.matches(&scratch.keys[lane], record);
            let go_on = !matches & (element & LAST == 0) & (slot < best[lane]);
            best[lane] = best[lane].min(if matches { slot } else { u32::MAX });
            (cells[kept % ITEMS], lanes[kept % ITEMS]) = (cell + 1, lane as u32);
            kept += usize::from(go_on);
        }
        left = kept;
    }
    scratch.work.lists.len = 0;
}

/// Bit vectors below the root.
#[inline(always)]
fn compare_bits<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch<A>, keys: &[Key<A>]) {
    if scratch.work.bits.len == 0 {
        return;
    }
    for i in 0..scratch.work.bits.len.min(ITEMS) {
        let (cell, lane) = (scratch.work.bits.cells[i], scratch.work.bits.lanes[i]);
        if let Some(bits) = table.bits.get((cell & INDEX) as usize) {
            filter_one(steps, table, scratch, bits, lane as usize, keys);
        }
    }
    scratch.work.bits.len = 0;
    compare_candidates(steps, table, scratch);
}

/// The rules that bytes of the keys leave, for rows of `W` words.
#[inline(always)]
fn filter<A: Shape, const W: usize>(table: &Table<A>, scratch: &mut Scratch<A>, bits: &Bits, n: usize) {
    let mut left = [[u64::MAX; W]; LANES];
    let bytes = &bits.bytes[..usize::from(bits.count).min(bits::BYTES)];
    let rows = table.rows.get(bits.base as usize..).unwrap_or(&[]).as_chunks::<W>().0;
    for (&(word, shift), rows) in bytes.iter().zip(rows.as_chunks::<256>().0) {
        let Some(column) = scratch.columns.get(usize::from(word)) else { continue };
        for (left, word) in left.iter_mut().zip(column) {
            let row = &rows[(word >> (shift & 63)) as usize % 256];
            for (left, row) in left.iter_mut().zip(row) {
                *left &= row;
            }
        }
    }
    let mut kept = scratch.work.candidates;
    for (lane, left) in left.iter().enumerate().take(n) {
        // Mostly at most one word is not zero: that goes without branches, what else there is after it.
        let (mut bits_of, mut first, mut words) = (0, 0, 0);
        for (i, &word) in left.iter().enumerate().rev() {
            let some = word != 0;
            (bits_of, first) = if some { (word, i) } else { (bits_of, first) };
            words += usize::from(some);
        }
        let mut put = |bits_of: u64, word: usize| {
            let slots = bits.slots + 64 * word as u32;
            let at = (slots + bits_of.trailing_zeros()) as usize;
            let slot = table.lists.get(at).copied().unwrap_or(LAST) & !LAST;
            scratch.candidates[kept % SETS] = Candidates { bits: bits_of, slots, lane: lane as u32 };
            kept += usize::from((bits_of != 0) & (slot < scratch.best[lane]));
        };
        put(bits_of, first);
        if words > 1 {
            for (i, &word) in left.iter().enumerate().skip(first + 1) {
                put(word, i);
            }
        }
    }
    scratch.work.candidates = kept;
}

/// The rules that a key's bytes leave, for any number of them.
fn filter_one<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch<A>,
    bits: &Bits,
    lane: usize,
    keys: &[Key<A>],
) {
    let Some(key) = keys.get(lane) else { return };
    let width = bits.width as usize;
    let mut at = [0usize; bits::BYTES];
    let mut base = bits.base as usize;
    let count = usize::from(bits.count).min(bits::BYTES);
    for (at, &(word, shift)) in at.iter_mut().zip(&bits.bytes[..count]) {
        let word = key.words.get().get(usize::from(word)).copied().unwrap_or(0);
        *at = base + (word >> (shift & 63)) as usize % 256 * width;
        base += 256 * width;
    }
    for word in 0..width {
        let mut left = u64::MAX;
        for at in &at[..count] {
            left &= table.rows.get(at + word).copied().unwrap_or(0);
        }
        if left != 0 {
            if scratch.work.candidates >= SETS {
                compare_candidates(steps, table, scratch);
            }
            let slots = bits.slots + 64 * word as u32;
            scratch.candidates[scratch.work.candidates % SETS] =
                Candidates { bits: left, slots, lane: lane as u32 };
            scratch.work.candidates += 1;
        }
    }
}

/// Rules that bit vectors leave: one of each set in a round, until it matches, or cannot be better, or was the last.
#[inline(always)]
fn compare_candidates<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch<A>) {
    let best = &mut scratch.best;
    let mut left = scratch.work.candidates;
    while left > 0 {
        let mut kept = 0;
        for i in 0..left.min(SETS) {
            let item = scratch.candidates[i];
            let lane = item.lane as usize % LANES;
            let element = (item.slots + item.bits.trailing_zeros()) as usize;
            let slot = table.lists.get(element).copied().unwrap_or(INDEX) & !LAST;
            let Some(record) = table.records.get(slot as usize) else { continue };
            let matches = steps.matches(&scratch.keys[lane], record);
            let bits = item.bits & item.bits.wrapping_sub(1);
            let go_on = !matches & (bits != 0) & (slot < best[lane]);
            best[lane] = best[lane].min(if matches { slot } else { u32::MAX });
            scratch.candidates[kept % SETS] = Candidates { bits, ..item };
            kept += usize::from(go_on);
        }
        left = kept;
    }
    scratch.work.candidates = 0;
}

//! Lookup: 64 keys at a time, worklists instead of one key after the other.
//!
//! What is still to do for a key (a node to visit, a rule to compare) is an item of a list; items are appended without
//! branches on what was found, so that many loads are under way at once and next to nothing is mispredicted.

use super::{
    bits::{self, Bits},
    build::{ROOT_NODES, STEPS},
    kernel::{Cells, Steps},
    key::{Key, Shape},
    rule::ActionId,
    table::{Cell, INDEX, Kind, LAST, Node, Record, Table},
};

/// Keys treated together.
pub(super) const LANES: usize = 64;

/// One word of each key.
pub(super) type Column = [u64; LANES];

/// Items of a list at most: each root may add a node for each key before any is entered, and a round takes up to [`LANES`]
/// nodes and adds up to twice as many, for each step down.
const ITEMS: usize = LANES * (ROOT_NODES + STEPS + 8);

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
pub(super) struct Scratch {
    columns: Box<[Column; 6]>,
    /// Columns that are filled: a bit each.
    known: u8,
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

impl Scratch {
    pub(super) fn new() -> Self {
        Scratch {
            columns: Box::new([[0; LANES]; 6]),
            known: 0,
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

/// Keys for which what is left after the first root node is looked up one by one.
const FEW: u32 = 10;

/// Classifies `keys[i]` into `out[i]`.
///
/// The first root node takes most rules. What comes after it is for keys only that have no earlier rule by then: few, where
/// general rules stand behind special ones.
#[inline(always)]
pub(super) fn lookup<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch,
    keys: &[Key<A>],
    out: &mut [ActionId],
) {
    for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
        *scratch.best = [table.records.len().saturating_sub(1) as u32; LANES];
        scratch.known = 0;
        let all = u64::MAX >> (LANES - keys.len().clamp(1, LANES));
        let others = match table.root.split_first() {
            Some((first, others)) => {
                visit(steps, table, scratch, keys, first, all);
                settle(steps, table, scratch, keys);
                others
            }
            None => &[],
        };
        let open = steps.above(&scratch.best, table.first_left) & all;
        if open.count_ones() > FEW {
            look_up_left(steps, table, scratch, keys, others, open);
        } else if open != 0 {
            look_up_few(steps, table, scratch, keys, open);
        }
        for (out, &best) in out.iter_mut().zip(scratch.best.iter()) {
            *out = table.records.get(best as usize).map_or(0, Record::action);
        }
    }
}

/// What the first root node does not take, for the keys whose bits are set.
#[inline(always)]
fn look_up_left<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch,
    keys: &[Key<A>],
    others: &[Node],
    open: u64,
) {
    for node in others {
        let wanted = steps.above(&scratch.best, node.first) & open;
        if wanted != 0 {
            visit(steps, table, scratch, keys, node, wanted);
        }
    }
    settle(steps, table, scratch, keys);
    let Some(bits) = &table.rest else { return };
    let open = steps.above(&scratch.best, first_of(table, bits)) & open;
    if open == 0 {
        return;
    }
    for &(word, _) in &bits.bytes[..usize::from(bits.count).min(bits::BYTES)] {
        fill_column(scratch, keys, word);
    }
    match bits.width {
        1 => filter::<A, 1>(table, scratch, bits, open),
        2 => filter::<A, 2>(table, scratch, bits, open),
        4 => filter::<A, 4>(table, scratch, bits, open),
        8 => filter::<A, 8>(table, scratch, bits, open),
        _ => each(open, |lane| filter_one(steps, table, scratch, bits, lane, keys)),
    }
    compare_candidates(steps, table, scratch, keys);
}

/// The same, key by key.
#[inline(always)]
fn look_up_few<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch,
    keys: &[Key<A>],
    open: u64,
) {
    scratch.work.fill(|sinks| {
        for number in 1..table.root.len() {
            let cell = Cell::new(Kind::Node, table.root_copies + number).0;
            each(open, |lane| sinks.nodes.push(cell, lane as u32, true));
        }
    });
    settle(steps, table, scratch, keys);
    let Some(bits) = &table.rest else { return };
    let open = steps.above(&scratch.best, first_of(table, bits)) & open;
    each(open, |lane| filter_one(steps, table, scratch, bits, lane, keys));
    compare_candidates(steps, table, scratch, keys);
}

/// Calls `f` with the number of each bit that is set.
#[inline(always)]
fn each(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// The first rule of bit vectors.
#[inline(always)]
fn first_of<A: Shape>(table: &Table<A>, bits: &Bits) -> u32 {
    table.lists.get(bits.slots as usize).map_or(0, |first| first & !LAST)
}

/// A root node, for the keys whose bits are set.
#[inline(always)]
fn visit<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch,
    keys: &[Key<A>],
    node: &Node,
    wanted: u64,
) {
    fill_column(scratch, keys, node.words[0]);
    if node.mask[1] != 0 {
        fill_column(scratch, keys, node.words[1]);
    }
    let Scratch { work, columns, .. } = scratch;
    let cells = Cells { cells: &table.cells, displacements: &table.displacements };
    work.fill(|sinks| steps.visit(node, cells, columns, wanted, sinks));
}

/// One word of each key into its column, unless it is there already.
#[inline(always)]
fn fill_column<A: Shape>(scratch: &mut Scratch, keys: &[Key<A>], word: u8) {
    if scratch.known >> (word & 7) & 1 == 0
        && let Some(column) = scratch.columns.get_mut(usize::from(word))
    {
        scratch.known |= 1 << (word & 7);
        for (to, key) in column.iter_mut().zip(keys) {
            *to = key.words().get(usize::from(word)).copied().unwrap_or(0);
        }
    }
}

/// All that is to be done.
#[inline(always)]
fn settle<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>]) {
    compare(steps, table, scratch, keys);
    if scratch.work.nodes.len > 0 {
        descend(steps, table, scratch, keys);
        compare(steps, table, scratch, keys);
    }
    compare_lists(steps, table, scratch, keys);
    compare_bits(steps, table, scratch, keys);
}

/// Nodes below the root, until none is left.
#[inline(always)]
fn descend<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>]) {
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
            let wanted = node.first < scratch.best[lane as usize % LANES];
            let product = node.product(key.words());
            let cell = table.cells.get(node.cell(product, &table.displacements)).copied().unwrap_or(0);
            (cells[kept % (2 * LANES)], lanes[kept % (2 * LANES)]) = (cell, lane);
            kept += usize::from(wanted & Node::admits(cell, node.tag(product)));
            (cells[kept % (2 * LANES)], lanes[kept % (2 * LANES)]) = (node.rest.0, lane);
            kept += usize::from(wanted & (node.rest != Cell::NOTHING));
        }
        scratch.work.fill(|sinks| sinks.sort(&cells[..kept], &lanes[..kept]));
        // Room for another round in each list.
        const FULL: usize = ITEMS - 3 * LANES;
        if scratch.work.rules.len > FULL {
            compare(steps, table, scratch, keys);
        }
        if scratch.work.lists.len > FULL {
            compare_lists(steps, table, scratch, keys);
        }
        if scratch.work.bits.len > FULL {
            compare_bits(steps, table, scratch, keys);
        }
    }
}

/// Single rules.
#[inline(always)]
fn compare<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>]) {
    let best = &mut scratch.best;
    for (cell, lane) in scratch.work.rules.items() {
        let slot = cell & INDEX;
        let (Some(record), Some(key)) = (table.records.get(slot as usize), keys.get(lane)) else { continue };
        let found = if steps.matches(&key.lanes, record) { slot } else { u32::MAX };
        best[lane] = best[lane].min(found);
    }
    scratch.work.rules.len = 0;
}

/// Lists of rules: two rules of each list in a round, until one matches, or none can be better, or they were the last.
#[inline(always)]
fn compare_lists<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>]) {
    let best = &mut scratch.best;
    let End { cells, lanes, len } = scratch.work.lists.end();
    let mut left = len;
    while left > 0 {
        let mut kept = 0;
        for i in 0..left.min(ITEMS) {
            let (cell, lane) = (cells[i], lanes[i] as usize % LANES);
            let pair = table.lists.get((cell & INDEX) as usize..).and_then(|list| list.first_chunk());
            let (Some(&[first, second]), Some(key)) = (pair, keys.get(lane)) else { continue };
            let (first, last, second) = (first & !LAST, second & LAST != 0, second & !LAST);
            let records = (table.records.get(first as usize), table.records.get(second as usize));
            let (Some(one), Some(other)) = records else { continue };
            let one = if steps.matches(&key.lanes, one) { first } else { u32::MAX };
            let other = if steps.matches(&key.lanes, other) { second } else { u32::MAX };
            let found = one.min(other);
            let go_on = (found == u32::MAX) & !last & (second < best[lane]);
            best[lane] = best[lane].min(found);
            (cells[kept % ITEMS], lanes[kept % ITEMS]) = (cell + 2, lane as u32);
            kept += usize::from(go_on);
        }
        left = kept;
    }
    scratch.work.lists.len = 0;
}

/// Bit vectors below the root.
#[inline(always)]
fn compare_bits<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>]) {
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
    compare_candidates(steps, table, scratch, keys);
}

/// The rules that bytes of the keys leave, for rows of `W` words and the keys whose bits are set.
#[inline(always)]
fn filter<A: Shape, const W: usize>(table: &Table<A>, scratch: &mut Scratch, bits: &Bits, open: u64) {
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
    // Mostly nothing is left.
    let some = left.iter().rev().fold(0, |some, left| some << 1 | u64::from(left.iter().any(|w| *w != 0)));
    let mut kept = scratch.work.candidates;
    each(some & open, |lane| {
        for (word, &bits_of) in left[lane % LANES].iter().enumerate() {
            let slots = bits.slots + 64 * word as u32;
            let at = (slots + bits_of.trailing_zeros() % 64) as usize;
            let slot = table.lists.get(at).copied().unwrap_or(LAST) & !LAST;
            scratch.candidates[kept % SETS] = Candidates { bits: bits_of, slots, lane: lane as u32 };
            kept += usize::from((bits_of != 0) & (slot < scratch.best[lane % LANES]));
        }
    });
    scratch.work.candidates = kept;
}

/// The rules that a key's bytes leave, for any number of them.
fn filter_one<A: Shape>(
    steps: impl Steps,
    table: &Table<A>,
    scratch: &mut Scratch,
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
        let word = key.words().get(usize::from(word)).copied().unwrap_or(0);
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
                compare_candidates(steps, table, scratch, keys);
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
fn compare_candidates<A: Shape>(steps: impl Steps, table: &Table<A>, scratch: &mut Scratch, keys: &[Key<A>]) {
    let best = &mut scratch.best;
    let mut left = scratch.work.candidates;
    while left > 0 {
        let mut kept = 0;
        for i in 0..left.min(SETS) {
            let item = scratch.candidates[i];
            let lane = item.lane as usize % LANES;
            let element = (item.slots + item.bits.trailing_zeros()) as usize;
            let slot = table.lists.get(element).copied().unwrap_or(INDEX) & !LAST;
            let (Some(record), Some(key)) = (table.records.get(slot as usize), keys.get(lane)) else {
                continue;
            };
            let matches = steps.matches(&key.lanes, record);
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

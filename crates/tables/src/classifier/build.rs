//! From rules to nodes: greedy, with budgets for memory and time.
//!
//! A set of rules becomes a node by the extractor that promises the cheapest lookup; rules that leave too many of its
//! bits open go on, together, to a further node that the key visits as well. Where nothing promises better than comparing
//! one rule after the other, or a budget is used up, the set becomes a list.

use super::{
    bits::{self, Bits},
    candidates, displace,
    extract::Extractor,
    key::{Shape, Words},
    rule::{ActionId, Pattern, Range},
    table::{Cell, Kind, LAST, Node, Record, Table},
};
use std::collections::HashSet;

/// Root nodes at most: what every key pays for.
pub(super) const ROOT_NODES: usize = 16;

/// Nodes on a way below the root at most; bounds the lookup's worklist.
pub(super) const STEPS: usize = 24;

/// The same rule in this many cells of one node at most.
const WAYS: u64 = 64;

/// What a build may use; each is proportional to the number of rules.
struct Budget {
    /// Cells, 4 bytes each; a node counts as [`NODE_CELLS`].
    cells: usize,
    /// Rules in more than one place: additional list elements or cells.
    copies: usize,
    /// Rules looked at.
    work: usize,
    /// Words of bit vectors, 8 bytes each.
    rows: usize,
}

/// What a node takes, in cells.
const NODE_CELLS: usize = size_of::<Node>() / size_of::<u32>();

/// From so many different products on a root node has displacements.
const DISPLACED: usize = 16;

/// Lists longer than this become bit vectors.
const LONG_LIST: usize = 32;

impl Budget {
    fn new(n: usize) -> Self {
        Budget {
            cells: 32 * n + 4_096,
            copies: 8 * n + 1_024,
            work: 4_000 * n + 1_000_000,
            rows: 16 * n + 8_192,
        }
    }
}

/// Bytes of a table of `n` rules at most.
pub(super) fn bytes_at_most<A: Shape>(n: usize) -> usize {
    let Budget { cells, copies, rows, .. } = Budget::new(n);
    // Each rule once in a list below the root and once in the root's, besides the copies.
    // Lists are padded to even lengths.
    let lists = 2 * (2 * n + copies);
    let root_rows = n.div_ceil(64).next_power_of_two().min(n.div_ceil(64) + 8) * 256 * bits::BYTES;
    let words = rows + root_rows;
    let rules = (n + 1) * size_of::<Record<A::Lanes>>();
    // A bit vector takes part of the rows' budget that is far more than its head.
    4 * (cells + lists) + 9 * words + rules + 2 * ROOT_NODES * size_of::<Node>()
}

struct Builder<'a, A: Shape> {
    patterns: &'a [Pattern<A::Words>],
    nodes: Vec<Node>,
    cells: Vec<u32>,
    displacements: Vec<u32>,
    lists: Vec<u32>,
    bits: Vec<Bits>,
    rows: Vec<u64>,
    budget: Budget,
    at_root: bool,
    /// Scratch of [`Builder::cost`]: rules by cell, and whether a rule fills the cell.
    counts: Vec<u32>,
    costs: Vec<f32>,
}

/// A rule in a cell.
#[derive(Clone, Copy)]
struct Placed {
    product: u64,
    bits: [u64; 2],
    slot: u32,
}

/// An extractor and what it promises.
#[derive(Clone, Copy)]
struct Choice {
    extractor: Extractor,
    cost: f32,
    left: usize,
}

/// Set in a count where a rule fills the cell: later ones cannot match there.
const FULL: u32 = 1 << 31;

/// Compiles rules in order of precedence.
pub(super) fn build<A: Shape>(
    rules: impl Iterator<Item = (Pattern<A::Words>, ActionId)>,
    no_match: ActionId,
) -> Table<A> {
    let (patterns, actions) = distinct(rules);
    let everything = Pattern { mask: A::Words::ZERO, value: A::Words::ZERO, ports: [Range::ALL; 2] };
    let n = patterns.len();
    let mut builder: Builder<'_, A> = Builder {
        patterns: &patterns,
        nodes: Vec::new(),
        cells: Vec::new(),
        displacements: Vec::new(),
        lists: Vec::new(),
        bits: Vec::new(),
        rows: Vec::new(),
        budget: Budget::new(n),
        counts: Vec::new(),
        costs: costs(n),
        at_root: true,
    };
    let mut left: Vec<u32> = (0..n as u32).collect();
    let mut root = Vec::new();
    let mut first_left = 0;
    while root.len() < ROOT_NODES && left.len() > 1 {
        let Some(choice) = builder.choose(&left, &everything, STEPS) else { break };
        if bits_cost(left.len()) <= choice.cost.min(0.8 + bits_cost(choice.left)) {
            break;
        }
        let Some((node, rest)) = builder.node(choice, &left, &everything, STEPS) else { break };
        root.push(node);
        left = rest;
        if root.len() == 1 {
            first_left = left.first().copied().unwrap_or(n as u32);
        }
    }
    let rest = (!left.is_empty()).then(|| builder.bits(&left));
    let Builder { mut nodes, cells, displacements, lists, bits, rows, .. } = builder;
    let root_copies = nodes.len();
    nodes.extend(&root);
    Table {
        root,
        root_copies,
        rest,
        first_left,
        nodes,
        cells,
        displacements,
        lists,
        bits,
        rows,
        records: patterns
            .iter()
            .zip(actions)
            .chain([(&everything, no_match)])
            .map(|(pattern, action)| Record::new(pattern, action))
            .collect(),
    }
}

/// Drops rules that equal an earlier one, and what comes after a rule that matches everything.
fn distinct<W: Words>(
    rules: impl Iterator<Item = (Pattern<W>, ActionId)>,
) -> (Vec<Pattern<W>>, Vec<ActionId>) {
    let mut seen = HashSet::new();
    let (mut patterns, mut actions) = (Vec::new(), Vec::new());
    for (pattern, action) in rules {
        let ports = pattern.ports.map(|r| (r.first, r.last));
        if seen.insert((pattern.mask, pattern.value, ports)) {
            patterns.push(pattern);
            actions.push(action);
            if pattern.mask == W::ZERO && pattern.ports == [Range::ALL; 2] {
                break;
            }
        }
    }
    (patterns, actions)
}

/// What a lookup in a set of so many rules is expected to cost, in units of one rule compared.
fn costs(n: usize) -> Vec<f32> {
    let cost = |n: usize| match n {
        0 => 0.0,
        1 => 1.0,
        2..=4 => 0.8 + 0.4 * n as f32,
        _ => 2.4 + 2.0 * (n as f32 / 4.0).log2(),
    };
    (0..=n).map(cost).collect()
}

/// What one rule after the other costs on average.
fn list_cost(n: usize) -> f32 {
    0.8 + 0.4 * n as f32
}

impl<A: Shape> Builder<'_, A> {
    /// A set of rules, ascending, as a cell.
    fn set(&mut self, rules: Vec<u32>, region: &Pattern<A::Words>, steps: usize) -> Cell {
        let rules = self.unshadowed(rules, region);
        match rules[..] {
            [] => return Cell::NOTHING,
            [slot] => return Cell::new(Kind::Rule, slot as usize),
            _ => {}
        }
        if rules.len() > 2
            && steps > 0
            && let Some(choice) = self.choose(&rules, region, steps)
            && let Some((mut node, rest)) = self.node(choice, &rules, region, steps)
        {
            node.rest = self.set(rest, region, steps - 1);
            node.first = rules.first().copied().unwrap_or_default();
            self.nodes.push(node);
            return Cell::new(Kind::Node, self.nodes.len() - 1);
        }
        if rules.len() > LONG_LIST && self.budget.rows >= bits_words(rules.len()) {
            let bits = self.bits(&rules);
            self.bits.push(bits);
            Cell::new(Kind::Bits, self.bits.len() - 1)
        } else {
            self.list(&rules)
        }
    }

    /// Rules as bit vectors.
    fn bits(&mut self, rules: &[u32]) -> Bits {
        self.budget.rows = self.budget.rows.saturating_sub(bits_words(rules.len()));
        let slots = self.lists.len();
        self.list(rules);
        bits::build(rules, self.patterns, &mut self.rows, slots)
    }

    /// Rules as a list. Two are compared at a time: where their number is odd, the last one is there twice.
    fn list(&mut self, rules: &[u32]) -> Cell {
        let at = self.lists.len();
        self.lists.extend(rules);
        if rules.len() % 2 == 1 {
            self.lists.extend(rules.last());
        }
        if let Some(last) = self.lists.last_mut() {
            *last |= LAST;
        }
        Cell::new(Kind::List, at)
    }

    /// Without the rules that cannot be the first to match in a region.
    fn unshadowed(&mut self, rules: Vec<u32>, region: &Pattern<A::Words>) -> Vec<u32> {
        if rules.len() < 2 {
            return rules;
        }
        let mut kept: Vec<u32> = Vec::with_capacity(rules.len());
        // Against the first few only: a rule that shadows much comes early or is worth little.
        const AGAINST: usize = 24;
        for slot in rules {
            let Some(rule) = self.patterns.get(slot as usize) else { continue };
            let shadowed = kept
                .iter()
                .take(AGAINST)
                .any(|&k| self.patterns.get(k as usize).is_some_and(|k| k.covers(rule, region)));
            if !shadowed {
                kept.push(slot);
            }
        }
        kept
    }

    /// A node for a set of rules and the rules it leaves over; `None` where a list is better.
    fn node(
        &mut self,
        choice: Choice,
        rules: &[u32],
        region: &Pattern<A::Words>,
        steps: usize,
    ) -> Option<(Node, Vec<u32>)> {
        let extractor = choice.extractor;
        let was = std::mem::replace(&mut self.at_root, false);
        let (placed, rest) = self.place(rules, region, &extractor);
        let mut products: Vec<u64> = placed.iter().map(|p| p.product).collect();
        products.sort_unstable();
        products.dedup();
        let displaced = was && extractor.window.is_none() && products.len() >= DISPLACED;
        let log2 = match extractor.window {
            Some(width) => width,
            None if displaced => displace::cells_log2(products.len()),
            None => (2 * products.len()).next_power_of_two().trailing_zeros().clamp(1, 20),
        };
        let cells = (1usize << log2) + if displaced { displace::groups(log2) } else { 0 };
        let extra = placed.len().saturating_sub(rules.len() - rest.len());
        let base = self.cells.len();
        if cells + NODE_CELLS > self.budget.cells || extra > self.budget.copies || base + cells > 1 << 24 {
            return None;
        }
        self.budget.cells -= cells + NODE_CELLS;
        self.budget.copies -= extra;
        self.cells.resize(base + (1 << log2), 0);
        let mut node = extractor.node(log2, base);
        node.first = placed.iter().map(|p| p.slot).min().unwrap_or_default();
        if displaced {
            displace::displace(&mut node, &products, log2, &mut self.displacements);
        }
        self.fill(placed, &extractor, region, (&node, log2), steps);
        self.at_root = was;
        Some((node, rest))
    }

    /// Turns the rules of each cell into a set.
    fn fill(
        &mut self,
        placed: Vec<Placed>,
        extractor: &Extractor,
        region: &Pattern<A::Words>,
        (node, log2): (&Node, u32),
        steps: usize,
    ) {
        let mut placed: Vec<(usize, Placed)> =
            placed.into_iter().map(|p| (node.cell(p.product, &self.displacements), p)).collect();
        // Stable: rules of a cell stay in their order.
        placed.sort_by_key(|(at, _)| *at);
        for cell in placed.chunk_by(|a, b| a.0 == b.0) {
            let (at, first) = cell[0];
            let cell = || cell.iter().map(|(_, p)| p);
            let one = cell().all(|p| p.product == first.product && p.bits == first.bits);
            let narrowed = if one { extractor.narrow(region, first.bits) } else { *region };
            let mut rules: Vec<u32> = cell().map(|p| p.slot).collect();
            rules.sort_unstable();
            rules.dedup();
            let mut set = self.set(rules, &narrowed, steps - 1);
            if cell().all(|p| Extractor::tag(log2, p.product) == Extractor::tag(log2, first.product)) {
                set = set.tagged(Extractor::tag(log2, first.product));
            }
            if let Some(to) = self.cells.get_mut(at) {
                *to = set.0;
            }
        }
    }

    /// Puts the rules into cells; those with too many ways are left over.
    fn place(
        &mut self,
        rules: &[u32],
        region: &Pattern<A::Words>,
        extractor: &Extractor,
    ) -> (Vec<Placed>, Vec<u32>) {
        let (mut placed, mut rest) = (Vec::with_capacity(rules.len()), Vec::new());
        let mut full = vec![false; extractor.window.map_or(0, |width| 1 << width)];
        for &slot in rules {
            let Some(rule) = self.patterns.get(slot as usize) else { continue };
            if extractor.ways(rule, region) > ways(rules.len(), extractor) {
                rest.push(slot);
                continue;
            }
            extractor.each(rule, region, |p| {
                let cell = extractor.window.map_or(0, |width| (p.product >> (64 - width)) as usize);
                if let Some(full) = full.get_mut(cell) {
                    if *full {
                        return;
                    }
                    *full = extractor.fills(rule, region, p.bits);
                }
                placed.push(Placed { product: p.product, bits: p.bits, slot });
            });
        }
        (placed, rest)
    }

    /// The extractor with the cheapest lookup, if it beats a list.
    fn choose(&mut self, rules: &[u32], region: &Pattern<A::Words>, steps: usize) -> Option<Choice> {
        let mut best: Option<Choice> = None;
        let mut hashes = Vec::new();
        for extractor in candidates::address_hashes::<A>(rules, self.patterns, region, steps) {
            if let Some(choice) = self.weigh(rules, region, extractor) {
                hashes.push(choice);
            }
        }
        hashes.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        let mut more = candidates::with_options::<A>(None, steps);
        for choice in hashes.iter().take(4) {
            more.extend(candidates::with_options::<A>(Some(choice.extractor), steps));
        }
        more.extend(candidates::windows::<A>(rules, self.patterns, region));
        for extractor in more {
            if let Some(choice) = self.weigh(rules, region, extractor) {
                hashes.push(choice);
            }
        }
        for choice in hashes {
            if best.is_none_or(|best| choice.cost < best.cost) {
                best = Some(choice);
            }
        }
        best.filter(|best| best.cost < list_cost(rules.len()))
    }

    fn weigh(&mut self, rules: &[u32], region: &Pattern<A::Words>, extractor: Extractor) -> Option<Choice> {
        if self.budget.work < rules.len() {
            return None;
        }
        self.budget.work -= rules.len();
        self.cost(rules, region, &extractor).map(|(cost, left)| Choice { extractor, cost, left })
    }

    /// Expected cost of a lookup in a node with this extractor, over keys that match a rule of the set, each rule alike;
    /// `None` where the node gets nowhere or takes too much memory.
    fn cost(
        &mut self,
        rules: &[u32],
        region: &Pattern<A::Words>,
        extractor: &Extractor,
    ) -> Option<(f32, usize)> {
        let n = rules.len();
        let log2 = extractor.window.unwrap_or(((4 * n).next_power_of_two().trailing_zeros()).clamp(4, 20));
        self.counts.clear();
        self.counts.resize(1 << log2, 0);
        let most = ways(n, extractor);
        let (mut left, mut copies) = (0usize, 0usize);
        let node_cost = if self.at_root { 0.8 } else { 2.2 };
        let mut looked_at = 0;
        for &slot in rules {
            let rule = self.patterns.get(slot as usize)?;
            let ways = extractor.ways(rule, region);
            if ways > most {
                left += 1;
                continue;
            }
            looked_at += ways as usize;
            // Too many copies, or too much time to find out.
            if copies > 2 * n + 8 || looked_at > 64 * n + 4_096 {
                self.budget.work = self.budget.work.saturating_sub(looked_at / 8);
                return None;
            }
            let counts = &mut self.counts;
            extractor.each(rule, region, |p| {
                let Some(count) = counts.get_mut((p.product >> (64 - log2)) as usize) else { return };
                if *count & FULL == 0 {
                    *count += 1;
                    copies += 1;
                    if extractor.window.is_some() && extractor.fills(rule, region, p.bits) {
                        *count |= FULL;
                    }
                }
            });
        }
        let fit = n - left;
        let extra = copies.saturating_sub(fit);
        self.budget.work = self.budget.work.saturating_sub(looked_at / 8);
        if fit == 0 || extra > self.budget.copies || extra > fit + 8 || self.budget.cells < 1 << log2 {
            return None;
        }
        let (mut largest, mut sum, mut total) = (0, 0.0, 0usize);
        for count in &self.counts {
            let count = (count & !FULL) as usize;
            largest = largest.max(count);
            total += count;
            sum += count as f32 * self.costs.get(count).copied().unwrap_or(f32::MAX);
        }
        if largest >= n || (left > 0 && left + n / 16 >= n) || total == 0 {
            return None;
        }
        let inside = sum / total as f32;
        let share = (fit as f32 / n as f32).min(0.98);
        let further = 0.7
            * if left < 3 {
                0.6 * left as f32
            } else {
                node_cost * (left as f32 / 2.0).ln() / -(1.0 - share).ln()
            };
        Some((node_cost + inside + further + 0.05 * extra as f32 / n as f32, left))
    }
}

/// What bit vectors of so many rules cost, in the same units.
fn bits_cost(n: usize) -> f32 {
    match n {
        0 => 0.0,
        1..=64 => 2.0,
        65..=128 => 3.0,
        129..=256 => 5.0,
        _ => n as f32 / 50.0,
    }
}

/// Words of their rows at most.
fn bits_words(n: usize) -> usize {
    n.div_ceil(64) * 256 * bits::BYTES
}

/// In how many cells the same rule may be.
fn ways(rules: usize, extractor: &Extractor) -> u64 {
    match extractor.window {
        Some(width) => 1 << width,
        None => WAYS.min(rules as u64 / 16).max(1),
    }
}

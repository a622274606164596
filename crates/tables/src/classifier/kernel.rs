//! The two steps that CPUs differ in, and the choice between them.

use super::{
    lanes::Lanes,
    lookup::{Column, LANES, Sinks},
    table::{Node, Record},
};

/// A way to look up. All give the same answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// For any CPU.
    Portable,
    /// Rules are compared with AVX2.
    Avx2,
    /// The root's nodes are visited with AVX-512, eight keys at a time; on CPUs with slow gathers cells are loaded one by
    /// one.
    Avx512,
}

impl Kernel {
    /// The kernels that this CPU can run, the best one last.
    pub fn available() -> Vec<Kernel> {
        let mut all = vec![Kernel::Portable];
        if super::simd::has_avx2() {
            all.push(Kernel::Avx2);
        }
        if super::simd::has_avx512() {
            all.push(Kernel::Avx512);
        }
        all
    }

    /// The one to use on this CPU.
    pub fn best() -> Kernel {
        Self::available().pop().unwrap_or(Kernel::Portable)
    }

    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
            Kernel::Avx2 => "avx2",
            Kernel::Avx512 => "avx512",
        }
    }
}

/// The steps.
pub(super) trait Steps: Copy {
    /// Whether a key matches a rule.
    fn matches<L: Lanes>(self, key: &L, record: &Record<L>) -> bool;
    /// A node, for the keys whose bits are set.
    fn visit(self, node: &Node, cells: Cells<'_>, columns: &[Column; 6], wanted: u64, to: &mut Sinks<'_>);
    /// The lanes with a number above this one: a bit each.
    fn above(self, numbers: &[u32; LANES], than: u32) -> u64;
}

/// What nodes lead to.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub(super) cells: &'a [u32],
    pub(super) displacements: &'a [u32],
}

/// Nothing but Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Steps for Portable {
    #[inline(always)]
    fn matches<L: Lanes>(self, key: &L, record: &Record<L>) -> bool {
        let mut differs = 0;
        let mut within = true;
        let words = key.words().iter().zip(record.mask.words()).zip(record.value.words());
        for (((key, mask), value), ports) in words.zip(L::PORTS.words()) {
            differs |= (key & mask ^ value) & !ports;
            if *ports != 0 {
                let port = ((key >> 48) as u16).wrapping_sub((value >> 48) as u16);
                within &= port <= (mask >> 48) as u16;
            }
        }
        (differs == 0) & within
    }

    #[inline(always)]
    fn visit(self, node: &Node, cells: Cells<'_>, columns: &[Column; 6], wanted: u64, to: &mut Sinks<'_>) {
        let column = |i: usize| columns.get(usize::from(node.words[i])).unwrap_or(&[0; LANES]);
        let (a, b) = (column(0), column(1));
        let (mut products, mut tags) = ([0u64; LANES], [0u32; LANES]);
        for lane in 0..LANES {
            let product = (a[lane] & node.mask[0])
                .wrapping_mul(node.multiplier[0])
                .wrapping_add((b[lane] & node.mask[1]).wrapping_mul(node.multiplier[1]));
            products[lane] = product;
            tags[lane] = node.tag(product);
        }
        let (mut hits, mut lanes, mut kept) = ([0u32; LANES], [0u32; LANES], 0);
        for lane in 0..LANES {
            let cell = cells.cells.get(node.cell(products[lane], cells.displacements)).copied().unwrap_or(0);
            (hits[kept % LANES], lanes[kept % LANES]) = (cell, lane as u32);
            kept += usize::from(Node::admits(cell, tags[lane])) & (wanted >> lane) as usize;
        }
        to.sort(&hits[..kept], &lanes[..kept]);
    }

    #[inline(always)]
    fn above(self, numbers: &[u32; LANES], than: u32) -> u64 {
        numbers.iter().rev().fold(0, |bits, &number| bits << 1 | u64::from(number > than))
    }
}

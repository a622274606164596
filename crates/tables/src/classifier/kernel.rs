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
    /// A node, for the first `n` keys.
    fn visit(self, node: &Node, cells: &[u32], columns: &[Column; 6], n: usize, to: &mut Sinks<'_>);
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
    fn visit(self, node: &Node, cells: &[u32], columns: &[Column; 6], n: usize, to: &mut Sinks<'_>) {
        let column = |i: usize| columns.get(usize::from(node.words[i])).unwrap_or(&[0; LANES]);
        let (a, b) = (column(0), column(1));
        let (mut at, mut tags) = ([0u32; LANES], [0u32; LANES]);
        for lane in 0..LANES {
            let product = (a[lane] & node.mask[0])
                .wrapping_mul(node.multiplier[0])
                .wrapping_add((b[lane] & node.mask[1]).wrapping_mul(node.multiplier[1]));
            at[lane] = node.base + (product >> (node.shift & 63)) as u32;
            tags[lane] = node.tag(product);
        }
        let (mut hits, mut lanes, mut kept) = ([0u32; LANES], [0u32; LANES], 0);
        for lane in 0..n.min(LANES) {
            let cell = cells.get(at[lane] as usize).copied().unwrap_or(0);
            (hits[kept % LANES], lanes[kept % LANES]) = (cell, lane as u32);
            kept += usize::from(Node::admits(cell, tags[lane]));
        }
        to.sort(&hits[..kept], &lanes[..kept]);
    }
}

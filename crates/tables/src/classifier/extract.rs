//! Which bits of a key a node looks at, and which of its cells a rule belongs to.

use super::{
    key::Words,
    rule::{Pattern, Range, port_words},
    table::{ANY_TAG, Node},
};

/// The bits a node picks, before it has cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extractor {
    /// Two words of a key.
    pub(super) words: [u8; 2],
    /// Bits of them.
    pub(super) mask: [u64; 2],
    /// See [`Node::multiplier`].
    pub(super) multiplier: [u64; 2],
    /// Width of a window, where the bits lie side by side and number the cells themselves.
    pub(super) window: Option<u32>,
}

/// One way for a rule to have all the bits of an extractor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    pub(super) product: u64,
    /// The bits themselves.
    pub(super) bits: [u64; 2],
}

/// Multipliers of hashes: odd, half of their bits set. Different ones for a node and the nodes below it.
const MULTIPLIERS: [[u64; 2]; 4] = [
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f],
    [0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f],
    [0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3],
    [0x5899_65cc_7537_4cc3, 0xff51_afd7_ed55_8ccd],
];

impl Extractor {
    /// A hash of these bits.
    pub(super) fn hash(words: [usize; 2], mask: [u64; 2], seed: usize) -> Self {
        let words = words.map(|w| w as u8);
        Extractor { words, mask, multiplier: MULTIPLIERS[seed % MULTIPLIERS.len()], window: None }
    }

    /// `width` bits of a word, the lowest being bit `low`.
    pub(super) fn window(word: usize, low: u32, width: u32) -> Self {
        Extractor {
            words: [word as u8; 2],
            mask: [((1 << width) - 1) << low, 0],
            multiplier: [1 << (64 - low - width), 0],
            window: Some(width),
        }
    }

    /// A node without cells yet.
    pub(super) fn node(&self, cells_log2: u32, base: usize) -> Node {
        Node {
            mask: self.mask,
            multiplier: self.multiplier,
            words: self.words,
            shift: 64 - cells_log2,
            base: base as u32,
            ..Node::default()
        }
    }

    /// The tag of a product; see [`Node::tag`].
    pub(super) fn tag(cells_log2: u32, product: u64) -> u32 {
        ((product >> (64 - cells_log2 - 6)) as u32 & 63).min(ANY_TAG - 1)
    }

    fn product(&self, bits: [u64; 2]) -> u64 {
        let [a, b] = [0, 1].map(|i| bits[i].wrapping_mul(self.multiplier[i]));
        a.wrapping_add(b)
    }

    /// How many ways there are for a rule to have all the bits, within a region.
    #[inline]
    pub(super) fn ways<W: Words>(&self, rule: &Pattern<W>, region: &Pattern<W>) -> u64 {
        let [a, b] = [0, 1].map(|i| Ways::new(self, i, rule, region).count());
        a.saturating_mul(b)
    }

    /// Calls `place` for each way.
    #[inline]
    pub(super) fn each<W: Words>(
        &self,
        rule: &Pattern<W>,
        region: &Pattern<W>,
        mut place: impl FnMut(Placement),
    ) {
        Ways::new(self, 0, rule, region).each(|a| {
            Ways::new(self, 1, rule, region).each(|b| {
                let bits = [a, b];
                place(Placement { product: self.product(bits), bits });
            });
        });
    }

    /// The part of a region whose keys have these bits.
    pub(super) fn narrow<W: Words>(&self, region: &Pattern<W>, bits: [u64; 2]) -> Pattern<W> {
        let mut region = *region;
        for (i, &bits) in bits.iter().enumerate() {
            let word = usize::from(self.words[i]);
            let ports = port_bits::<W>(word) & self.mask[i];
            region.mask.get_mut()[word] |= self.mask[i] & !port_bits::<W>(word);
            region.value.get_mut()[word] |= bits & !port_bits::<W>(word);
            if ports != 0 {
                let range = &mut region.ports[port_index::<W>(word)];
                *range = range.and(window_of(ports, bits));
            }
        }
        region
    }

    /// Whether a rule matches every key of the region with these bits.
    pub(super) fn fills<W: Words>(&self, rule: &Pattern<W>, region: &Pattern<W>, bits: [u64; 2]) -> bool {
        let words = rule.mask.get().iter().zip(region.mask.get()).enumerate();
        for (w, (mask, known)) in words {
            let mut open = mask & !known;
            for i in 0..2 {
                if usize::from(self.words[i]) == w {
                    open &= !self.mask[i];
                }
            }
            if open != 0 {
                return false;
            }
        }
        let mut within = region.ports;
        for (i, &bits) in bits.iter().enumerate() {
            let word = usize::from(self.words[i]);
            let ports = port_bits::<W>(word) & self.mask[i];
            if ports != 0 {
                let range = &mut within[port_index::<W>(word)];
                *range = range.and(window_of(ports, bits));
            }
        }
        rule.ports[0].contains(within[0]) && rule.ports[1].contains(within[1])
    }
}

/// The bits of a word that are a port.
pub(super) fn port_bits<W: Words>(word: usize) -> u64 {
    if port_words::<W>().contains(&word) { 0xffff << 48 } else { 0 }
}

/// 0 for the word with the source port, 1 for that with the destination port.
fn port_index<W: Words>(word: usize) -> usize {
    usize::from(word != port_words::<W>()[0])
}

/// Ports with the given upper bits.
fn window_of(ports: u64, bits: u64) -> Range {
    let (mask, first) = ((ports >> 48) as u16, (bits & ports) >> 48);
    Range { first: first as u16, last: first as u16 | !mask }
}

/// The ways of one word.
struct Ways {
    /// Bits that are given.
    value: u64,
    /// Bits that the rule leaves open: each combination is a way.
    open: u64,
    /// First and last value of the upper port bits, and the distance of two neighbours.
    ports: [u64; 2],
    step: u64,
}

impl Ways {
    #[inline]
    fn new<W: Words>(extractor: &Extractor, i: usize, rule: &Pattern<W>, region: &Pattern<W>) -> Self {
        let (word, mask) = (usize::from(extractor.words[i]), extractor.mask[i]);
        let ports = port_bits::<W>(word) & mask;
        let bits = mask & !port_bits::<W>(word);
        let known = rule.mask.get()[word] | region.mask.get()[word];
        let value = (rule.value.get()[word] | region.value.get()[word]) & bits;
        let mut ways = Ways { value, open: bits & !known, ports: [0; 2], step: 1 };
        if ports != 0 {
            let range = rule.ports[port_index::<W>(word)].and(region.ports[port_index::<W>(word)]);
            ways.ports = [u64::from(range.first) << 48 & ports, u64::from(range.last) << 48 & ports];
            ways.step = 1 << ports.trailing_zeros();
        }
        ways
    }

    #[inline]
    fn count(&self) -> u64 {
        let windows = (self.ports[1].wrapping_sub(self.ports[0])) / self.step + 1;
        windows << self.open.count_ones().min(40)
    }

    #[inline]
    fn each(&self, mut way: impl FnMut(u64)) {
        let mut port = self.ports[0];
        loop {
            let mut open = 0u64;
            loop {
                way(self.value | port | open);
                // The next combination of the open bits.
                open = open.wrapping_sub(self.open) & self.open;
                if open == 0 {
                    break;
                }
            }
            if port >= self.ports[1] {
                return;
            }
            port = port.wrapping_add(self.step);
        }
    }
}

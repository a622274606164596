//! Bit vectors for rules that no hash tells apart: for a few bytes of the key, the set of rules that each value leaves.
//!
//! Of a handful of bytes of the key each names a row of one bit a rule; the rules whose bit is in all rows are compared.
//! Costs little per rule, but something for each: for what is left over, and as the last resort for rules that overlap
//! without end. The idea is Lakshman's and Stiliadis's (SIGCOMM 1998), on bytes instead of ranges.

use super::{
    extract::port_bits,
    key::Words,
    rule::{Pattern, Range, port_words},
};

/// Bytes of the key at most.
pub(super) const BYTES: usize = 8;

/// Keys that the choice of bytes is made for.
const SAMPLES: usize = 64;

/// Rules told apart by bytes of the key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bits {
    /// Word and shift of each byte.
    pub(super) bytes: [(u8, u8); BYTES],
    /// How many of them count.
    pub(super) count: u8,
    /// 64-bit words of a row.
    pub(super) width: u32,
    /// Where the rows begin: 256 for each byte.
    pub(super) base: u32,
    /// Where the list of the rules' slots begins, in the order of their bits.
    pub(super) slots: u32,
}

/// Whether some key that matches the rule has this value in the byte.
fn may<W: Words>(rule: &Pattern<W>, (word, shift): (usize, u32), value: u8) -> bool {
    let ports = port_bits::<W>(word) >> shift & 0xff;
    if ports == 0 {
        let (mask, wanted) = (rule.mask.get()[word] >> shift, rule.value.get()[word] >> shift);
        return u64::from(value) & mask & 0xff == wanted & 0xff;
    }
    let Range { first, last } = rule.ports[usize::from(word != port_words::<W>()[0])];
    if shift == 56 {
        return (first >> 8..=last >> 8).contains(&u16::from(value));
    }
    // The low byte: any, if the range spans a whole turn of it.
    let (low, span) = (first as u8, last - first);
    span >= 255 || u16::from(value.wrapping_sub(low)) <= span
}

/// The bytes of a key that can matter.
fn positions<W: Words>() -> impl Iterator<Item = (usize, u32)> {
    (0..W::COUNT)
        .flat_map(|word| (0..8).map(move |byte| (word, 8 * byte)))
        .filter(|&(word, shift)| word + 1 < W::COUNT || shift >= 48)
}

/// Chooses bytes and writes the rows. `rules` ascending; their slots are at `slots` of the lists.
pub(super) fn build<W: Words>(
    rules: &[u32],
    patterns: &[Pattern<W>],
    rows: &mut Vec<u64>,
    slots: usize,
) -> Bits {
    let rules: Vec<&Pattern<W>> = rules.iter().filter_map(|&slot| patterns.get(slot as usize)).collect();
    // A power of two where the lookup has a loop of its own for it.
    let width = match rules.len().div_ceil(64) {
        width @ 0..=8 => width.next_power_of_two(),
        width => width,
    };
    let mut bits =
        Bits { width: width as u32, base: rows.len() as u32, slots: slots as u32, ..Bits::default() };
    for (word, shift) in choose(&rules, width) {
        bits.bytes[usize::from(bits.count)] = (word as u8, shift as u8);
        bits.count += 1;
        for value in 0..=255 {
            let at = rows.len();
            rows.resize(at + width, 0);
            for (i, rule) in rules.iter().enumerate() {
                if may(rule, (word, shift), value) {
                    rows[at + i / 64] |= 1 << (i % 64);
                }
            }
        }
    }
    bits
}

/// Greedy: the byte that leaves fewest rules for a sample of keys, then the next, while it helps.
fn choose<W: Words>(rules: &[&Pattern<W>], width: usize) -> Vec<(usize, u32)> {
    let samples = samples(rules);
    let mut open: Vec<(usize, u32)> = positions::<W>().collect();
    let mut chosen = Vec::new();
    let mut left = vec![u64::MAX; samples.len() * width];
    for (i, left) in left.iter_mut().enumerate() {
        let tail = rules.len().saturating_sub(64 * (i % width));
        if tail < 64 {
            *left = (1 << tail) - 1;
        }
    }
    let mut now = rules.len() * samples.len();
    while chosen.len() < BYTES && now > samples.len() / 16 {
        let weighed = open.iter().map(|&position| {
            let sets = sets(rules, &samples, position, width);
            (
                left.iter().zip(&sets).map(|(a, b)| (a & b).count_ones() as usize).sum::<usize>(),
                position,
                sets,
            )
        });
        let Some((then, position, sets)) = weighed.min_by_key(|(then, ..)| *then) else { break };
        // A row costs about as much as comparing a fifth of a rule; and one byte there must be.
        if !chosen.is_empty() && (now - then) * 5 < samples.len() {
            break;
        }
        now = then;
        left.iter_mut().zip(sets).for_each(|(a, b)| *a &= b);
        open.retain(|&p| p != position);
        chosen.push(position);
    }
    if chosen.is_empty() {
        chosen.extend(open.first());
    }
    chosen
}

/// For each sample the rules that its byte leaves.
fn sets<W: Words>(rules: &[&Pattern<W>], samples: &[W], at: (usize, u32), width: usize) -> Vec<u64> {
    let mut sets = vec![0u64; samples.len() * width];
    for (sample, set) in samples.iter().zip(sets.chunks_exact_mut(width)) {
        let value = (sample.get()[at.0] >> at.1) as u8;
        for (i, rule) in rules.iter().enumerate() {
            set[i / 64] |= u64::from(may(rule, at, value)) << (i % 64);
        }
    }
    sets
}

/// Keys that match rules, evenly over the rules; what a rule leaves open is mixed.
fn samples<W: Words>(rules: &[&Pattern<W>]) -> Vec<W> {
    let n = SAMPLES.min(rules.len());
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ state >> 32
    };
    (0..n)
        .map(|i| {
            let rule = rules[i * rules.len() / n];
            let mut key = rule.mask.map2(rule.value, |m, v| m & v);
            for (w, (word, mask)) in key.get_mut().iter_mut().zip(rule.mask.get()).enumerate() {
                *word |= random() & !mask & !port_bits::<W>(w);
            }
            for (range, w) in rule.ports.iter().zip(port_words::<W>()) {
                let port = u64::from(range.first) + random() % (u64::from(range.last - range.first) + 1);
                key.get_mut()[w] |= port << 48;
            }
            key
        })
        .collect()
}

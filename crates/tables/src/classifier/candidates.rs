//! Which extractors are worth trying for a set of rules.

use super::{
    extract::{Extractor, port_bits},
    key::{AddressPlace, Shape, Words, opt},
    rule::{Pattern, Range},
};

/// What the rules of a set have in common, found in one pass.
struct Survey<W> {
    /// Bits in which two rules that give them differ.
    differ: W,
    /// For each bit of each word, by how many rules it is given.
    given: Vec<[u32; 64]>,
    /// How many rules name source and destination ports.
    ranges: [u32; 2],
}

/// Hashes of both addresses' first bits, in the lengths that rules of the set have.
pub(super) fn address_hashes<A: Shape>(
    rules: &[u32],
    patterns: &[Pattern<A::Words>],
    region: &Pattern<A::Words>,
    seed: usize,
) -> Vec<Extractor> {
    let [src, dst] = A::ADDRESSES.map(|place| lengths(rules, patterns, settle(place, region)));
    let mut all = Vec::new();
    for &(a_word, a_mask) in &src {
        for &(b_word, b_mask) in &dst {
            if a_mask | b_mask == 0 {
                continue;
            }
            all.push(if a_word == b_word {
                Extractor::hash([a_word; 2], [a_mask | b_mask, 0], seed)
            } else {
                Extractor::hash([a_word, b_word], [a_mask, b_mask], seed)
            });
        }
    }
    all
}

/// The same hash with protocol, flags or ports besides; for no address hash, those alone.
pub(super) fn with_options<A: Shape>(hash: Option<Extractor>, seed: usize) -> Vec<Extractor> {
    let options = A::Words::COUNT - 2;
    let port = 0xffff_u64 << opt::PORT;
    let protocol = 0xff_u64 << opt::PROTOCOL;
    let flags = 0xff_u64 << opt::FLAGS;
    let vlan = 0x1fff_u64 << opt::VLAN;
    let dscp = 63_u64 << opt::DSCP;
    let (word, mask) = match hash {
        Some(hash) if hash.mask[1] == 0 => (hash.words[0].into(), hash.mask[0]),
        Some(hash) if hash.mask[0] == 0 => (hash.words[1].into(), hash.mask[1]),
        Some(_) => return Vec::new(),
        None => (options + 1, 0),
    };
    let mut all: Vec<Extractor> = [protocol, port, port | protocol, vlan]
        .map(|bits| Extractor::hash([word, options], [mask, bits], seed))
        .into();
    all.push(Extractor::hash([word, options + 1], [mask, 0xffff << 48], seed));
    if hash.is_none() {
        all.push(Extractor::hash([options, options + 1], [protocol, 0xffff << 48], seed));
        all.push(Extractor::hash([options, options + 1], [port | protocol, 0xffff << 48], seed));
        all.push(Extractor::hash([word, options], [0, protocol | flags], seed));
        all.push(Extractor::hash([word, options], [0, dscp | protocol], seed));
        all.push(Extractor::hash([word, options], [0, port | protocol | flags], seed));
    }
    all
}

/// Windows on each field that enough rules name, below what they have in common.
pub(super) fn windows<A: Shape>(
    rules: &[u32],
    patterns: &[Pattern<A::Words>],
    region: &Pattern<A::Words>,
) -> Vec<Extractor> {
    let survey = survey(rules, patterns);
    let enough = (rules.len() as u32).div_ceil(8);
    let options = A::Words::COUNT - 2;
    let mut all = Vec::new();
    let widths = match rules.len() {
        0..64 => &[2, 4, 6][..],
        64..1024 => &[4, 6, 8],
        _ => &[6, 8, 10],
    };
    let mut field = |word: usize, low: u32, bits: u32| {
        let mask = (u64::MAX >> (64 - bits)) << low;
        let unknown = survey.differ.get()[word] & mask & !region.mask.get()[word];
        if unknown == 0 {
            return;
        }
        let top = 63 - unknown.leading_zeros();
        if survey.given[word][top as usize] < enough {
            return;
        }
        for &width in widths {
            let width = width.min(top - low + 1);
            let window = Extractor::window(word, top + 1 - width, width);
            if !all.contains(&window) {
                all.push(window);
            }
        }
    };
    for place in A::ADDRESSES {
        field(place.word, place.low, place.bits);
        if place.bits == 64 {
            field(place.word + 1, 0, 64);
        }
    }
    for (low, bits) in [(opt::PROTOCOL, 8), (opt::FLAGS, 8), (opt::VLAN, 13), (opt::DSCP, 6), (9, 4)] {
        field(options, low, bits);
    }
    for (i, word) in [options + 1, options].into_iter().enumerate() {
        if survey.ranges[i] < enough {
            continue;
        }
        let Range { first, last } = region.ports[i];
        let open = 16 - (first ^ last).leading_zeros();
        for &width in widths.iter().filter(|_| open > 0) {
            let width = width.min(open);
            let window = Extractor::window(word, 48 + open - width, width);
            if !all.contains(&window) {
                all.push(window);
            }
        }
    }
    all
}

/// The part of an address that the region leaves open: its second word once the first is known.
fn settle<W: Words>(place: AddressPlace, region: &Pattern<W>) -> AddressPlace {
    if place.bits == 64 && region.mask.get()[place.word] == u64::MAX {
        AddressPlace { word: place.word + 1, ..place }
    } else {
        place
    }
}

/// Masks for the lengths at certain shares of the rules, with the word they are for; no bits at all among them.
fn lengths<W: Words>(rules: &[u32], patterns: &[Pattern<W>], place: AddressPlace) -> Vec<(usize, u64)> {
    let field = (u64::MAX >> (64 - place.bits)) << place.low;
    let mut count = [0usize; 65];
    for pattern in rules.iter().filter_map(|&slot| patterns.get(slot as usize)) {
        count[(pattern.mask.get()[place.word] & field).count_ones() as usize] += 1;
    }
    let mut masks = vec![(place.word, 0)];
    let mut covered = 0;
    let mut next = 0;
    // From the longest down: at each length, the share of rules that are at least as long.
    const SHARES: [usize; 8] = [20, 35, 50, 65, 80, 90, 97, 100];
    for len in (1..=place.bits as usize).rev() {
        covered += count[len];
        let mut taken = false;
        while next < SHARES.len() && covered * 100 >= rules.len() * SHARES[next] {
            taken = true;
            next += 1;
        }
        if taken && count[len] > 0 {
            let bits = (u64::MAX << (place.bits as usize - len)) & (u64::MAX >> (64 - place.bits));
            masks.push((place.word, bits << place.low));
        }
    }
    masks
}

fn survey<W: Words>(rules: &[u32], patterns: &[Pattern<W>]) -> Survey<W> {
    let mut survey = Survey { differ: W::ZERO, given: vec![[0; 64]; W::COUNT], ranges: [0; 2] };
    let (mut ones, mut zeros) = (W::ZERO, W::ZERO);
    for pattern in rules.iter().filter_map(|&slot| patterns.get(slot as usize)) {
        ones = ones.map2(pattern.value, |a, v| a | v);
        zeros = zeros.map2(pattern.mask.map2(pattern.value, |m, v| m & !v), |a, z| a | z);
        for (w, mask) in pattern.mask.get().iter().enumerate() {
            let mut left = mask & !port_bits::<W>(w);
            while left != 0 {
                survey.given[w][left.trailing_zeros() as usize] += 1;
                left &= left - 1;
            }
        }
        for i in 0..2 {
            survey.ranges[i] += u32::from(pattern.ports[i] != Range::ALL);
        }
    }
    survey.differ = ones.map2(zeros, |a, b| a & b);
    survey
}

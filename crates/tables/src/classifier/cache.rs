//! What was found for recent keys, in front of a classifier: one cache line instead of a lookup.
//!
//! Exact: an entry holds the whole key and which rules it was found for, so that it never answers for another key, nor after the
//! rules have changed. Two entries to a bucket, of which a new one replaces either. Where traffic has more keys
//! than there is room for, most questions would miss: then the cache rests for a while and costs nothing.

use super::key::{Key, Shape, Words};
use super::{ActionId, Compiled, Workspace};

/// Bytes of a cache.
const BYTES: usize = 4 << 20;

/// Keys treated together.
const LANES: usize = 64;

/// Questions after which the share of answers is looked at.
const TRIAL: u32 = 4096;

/// Questions for which a cache rests that answers too few.
const REST: u32 = 32 * TRIAL;

/// It goes on where at least one question in so many is answered.
const WORTH: u32 = 4;

/// Words of a cache line.
const LINE: usize = 8;

/// A cache for one worker and address family.
#[derive(Debug)]
pub struct Cache<A: Shape> {
    /// Buckets of two entries, from `begin` on, so that they lie on cache lines. An entry is a key's words, the action, and
    /// what is missing to 4 or 8 words. Zeroed memory, of which nothing is touched before it is used.
    words: Vec<u64>,
    begin: usize,
    /// The bucket's number is the hash shifted right by this.
    shift: u32,
    asked: u32,
    answered: u32,
    resting: u32,
    /// Random numbers, of a simple kind.
    draw: u32,
    missing: Box<Missing<A>>,
}

/// Keys of a batch that were not found.
#[derive(Debug)]
struct Missing<A: Shape> {
    keys: [Key<A>; LANES],
    lanes: [u8; LANES],
    found: [ActionId; LANES],
}

impl<A: Shape> Default for Cache<A> {
    fn default() -> Self {
        let bucket = 2 * Self::ENTRY;
        let buckets = BYTES / 8 / bucket;
        let words = vec![0u64; buckets * bucket + LINE - 1];
        let begin = words.as_ptr().align_offset(8 * LINE).min(LINE - 1);
        let none = Key { words: A::Words::ZERO };
        Cache {
            words,
            begin,
            shift: 64 - buckets.trailing_zeros(),
            asked: 0,
            answered: 0,
            resting: 0,
            draw: 1,
            missing: Box::new(Missing { keys: [none; LANES], lanes: [0; LANES], found: [0; LANES] }),
        }
    }
}

impl<A: Shape> Cache<A> {
    /// Words of an entry.
    const ENTRY: usize = (A::Words::COUNT + 1).next_power_of_two();

    /// As [`Workspace::lookup_batch`], answered from the cache where it can be. `version` (48 bits) names the rules: another one
    /// for others, and for the same after any change.
    #[inline]
    pub fn lookup_batch(
        &mut self,
        workspace: &mut Workspace<A>,
        rules: &Compiled<A>,
        version: u64,
        keys: &[Key<A>],
        out: &mut [ActionId],
    ) {
        if self.resting > 0 {
            self.resting = self.resting.saturating_sub(keys.len() as u32);
            return workspace.lookup_batch(rules, keys, out);
        }
        for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let missing = self.ask(version, keys, out);
            if missing > 0 {
                self.fill(workspace, rules, version, missing, out);
            }
            self.asked += keys.len() as u32;
            self.answered += (keys.len() - missing) as u32;
        }
        if self.asked >= TRIAL {
            if self.answered < self.asked / WORTH {
                self.resting = REST;
            }
            (self.asked, self.answered) = (0, 0);
        }
    }

    /// Answers what it can; notes the keys it cannot, and returns how many these are.
    #[inline(always)]
    fn ask(&mut self, version: u64, keys: &[Key<A>], out: &mut [ActionId]) -> usize {
        let buckets = self.words.get(self.begin..).unwrap_or_default();
        let Missing { keys: missing, lanes, .. } = &mut *self.missing;
        let mut n = 0;
        for (i, (key, out)) in keys.iter().zip(out).enumerate() {
            let at = Self::bucket(self.shift, key);
            let (mut is, mut action) = ([false; 2], [0; 2]);
            if let Some((a, b)) =
                buckets.get(at..at + 2 * Self::ENTRY).and_then(|b| b.split_at_checked(Self::ENTRY))
            {
                for (entry, (is, action)) in [a, b].into_iter().zip(is.iter_mut().zip(&mut action)) {
                    *is = same(entry, key, version);
                    *action = entry.get(A::Words::COUNT).copied().unwrap_or_default();
                }
            }
            *out = if is[0] { action[0] } else { action[1] } as ActionId;
            (missing[n % LANES], lanes[n % LANES]) = (*key, i as u8);
            n += usize::from(!(is[0] | is[1]));
        }
        n
    }

    /// Looks the missing keys up and keeps what was found.
    #[inline(never)]
    fn fill(
        &mut self,
        workspace: &mut Workspace<A>,
        rules: &Compiled<A>,
        version: u64,
        n: usize,
        out: &mut [ActionId],
    ) {
        let Missing { keys, lanes, found } = &mut *self.missing;
        workspace.lookup_batch(rules, keys.get(..n).unwrap_or_default(), &mut found[..]);
        let buckets = self.words.get_mut(self.begin..).unwrap_or_default();
        for ((key, lane), action) in keys.iter().zip(lanes).zip(found).take(n) {
            if let Some(out) = out.get_mut(usize::from(*lane)) {
                *out = *action;
            }
            let at = Self::bucket(self.shift, key);
            let bucket = buckets.get_mut(at..at + 2 * Self::ENTRY);
            let Some((a, b)) = bucket.and_then(|b| b.split_at_mut_checked(Self::ENTRY)) else { continue };
            // By chance: of keys that come round and round, more than there is room for, some then still meet themselves.
            self.draw = self.draw.wrapping_mul(0x915f_77f5).wrapping_add(1);
            let entry = if self.draw >> 31 == 0 { a } else { b };
            write(entry, key, version, *action);
        }
    }

    /// Where a key's bucket begins.
    #[inline(always)]
    fn bucket(shift: u32, key: &Key<A>) -> usize {
        let mut hash = 0u64;
        for word in key.words.get() {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        }
        let number = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (shift & 63);
        number as usize * 2 * Self::ENTRY
    }
}

/// Whether an entry is of this key and these rules.
#[inline(always)]
fn same<A: Shape>(entry: &[u64], key: &Key<A>, version: u64) -> bool {
    let mut differs = 0;
    for (i, (entry, word)) in entry.iter().zip(key.words.get()).enumerate() {
        // The last word has the source port on top and room below it.
        let word = if i + 1 == A::Words::COUNT { word | version } else { *word };
        differs |= entry ^ word;
    }
    differs == 0
}

#[inline(always)]
fn write<A: Shape>(entry: &mut [u64], key: &Key<A>, version: u64, action: ActionId) {
    for (entry, word) in entry.iter_mut().zip(key.words.get()) {
        *entry = *word;
    }
    if let Some(last) = entry.get_mut(A::Words::COUNT - 1) {
        *last |= version;
    }
    if let Some(place) = entry.get_mut(A::Words::COUNT) {
        *place = u64::from(action);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rule;
    use super::super::synthetic::{self, Profile, Rng};
    use super::*;

    fn keys(rules: &[Rule<u32>], n: usize, rng: &mut Rng) -> Vec<Key<u32>> {
        (0..n).map(|_| synthetic::key_in(&rules[rng.below(rules.len())], rng)).collect()
    }

    /// Few keys that come again, many that do not, and rules that change: always the answer of the rules.
    #[test]
    fn answers_are_those_of_the_rules() {
        let mut rng = Rng::new(3);
        let sets = [1, 2].map(|seed| synthetic::rules::<u32>(Profile::Acl, 300, seed, true));
        let compiled = sets.each_ref().map(|rules| Compiled::new(rules, 0).unwrap());
        let (mut cache, mut workspace) = (Cache::default(), Workspace::default());
        let again = keys(&sets[0], 5_000, &mut rng);
        for round in 0..60u64 {
            let which = (round / 7 % 2) as usize;
            let fresh = keys(&sets[which], 3_000, &mut rng);
            for keys in [&again, &fresh] {
                let (mut got, mut want) = (vec![0; keys.len()], vec![0; keys.len()]);
                cache.lookup_batch(&mut workspace, &compiled[which], round / 7 + 1, keys, &mut got);
                workspace.lookup_batch(&compiled[which], keys, &mut want);
                assert!(got == want, "round {round}");
            }
        }
    }

    #[test]
    fn keys_that_come_again_are_answered_and_a_flood_of_others_lets_it_rest() {
        let mut rng = Rng::new(4);
        let rules = synthetic::rules::<u32>(Profile::Acl, 100, 1, false);
        let compiled = Compiled::new(&rules, 0).unwrap();
        let (mut cache, mut workspace) = (Cache::default(), Workspace::default());
        let again = keys(&rules, 10_000, &mut rng);
        let mut out = vec![0; again.len()];
        for _ in 0..2 {
            cache.lookup_batch(&mut workspace, &compiled, 1, &again, &mut out);
        }
        let missing: usize = again.chunks(LANES).map(|keys| cache.ask(1, keys, &mut out)).sum();
        assert!(missing < again.len() / 10, "{missing}");
        assert_eq!(
            again.chunks(LANES).map(|k| cache.ask(2, k, &mut out)).sum::<usize>(),
            again.len(),
            "other rules"
        );
        while cache.resting == 0 {
            let others = keys(&rules, 1_000, &mut rng);
            let anywhere: Vec<Key<u32>> = others.iter().map(|_| synthetic::key_anywhere(&mut rng)).collect();
            cache.lookup_batch(&mut workspace, &compiled, 1, &anywhere, &mut out[..1_000]);
        }
    }
}

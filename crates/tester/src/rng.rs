//! A small seeded generator: the same numbers on every machine, for ever.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 random bits.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "an endless generator, not an iterator over a collection"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; 0 where `n` is 0. The bias is below 2⁻³² for every `n` used here.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// True in `permille` of 1000 cases.
    #[inline]
    pub fn chance(&mut self, permille: u16) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// A number below `n` that prefers small ones: the smaller of two draws.
    #[inline]
    pub fn below_skewed(&mut self, n: u64) -> u64 {
        self.below(n).min(self.below(n))
    }

    /// Puts a slice into random order (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Mixes the bits of a word so that every input bit reaches every output bit.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs of SplitMix64 for seed 1234567, as the reference implementation prints them.
        let mut r = Rng::new(1_234_567);
        assert_eq!(r.next(), 6_457_827_717_110_365_317);
        assert_eq!(r.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn bounds_hold_and_a_shuffle_loses_nothing() {
        let mut r = Rng::new(1);
        assert!((0..1000).all(|_| r.below(7) < 7 && r.below_skewed(3) < 3));
        assert_eq!(r.below(0), 0);
        let mut v: Vec<u32> = (0..100).collect();
        r.shuffle(&mut v);
        assert_ne!(v, (0..100).collect::<Vec<_>>());
        v.sort_unstable();
        assert_eq!(v, (0..100).collect::<Vec<_>>());
    }
}

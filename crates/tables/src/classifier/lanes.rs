//! Keys and rules in lanes of 16 bits.

/// Words padded to whole vectors of 32 bytes.
pub trait Lanes: Copy + Default + Eq + std::fmt::Debug + std::hash::Hash + Send + Sync + 'static {
    /// All ones in the lanes of ports.
    const PORTS: Self;
    /// From words.
    fn new(words: &[u64]) -> Self;
    /// The last word, which no key uses.
    fn spare(&self) -> u64;
    /// The same, to be written to.
    fn spare_mut(&mut self) -> &mut u64;
    /// As words, four for each vector.
    fn words(&self) -> &[u64];
    /// The same, to be written to.
    fn words_mut(&mut self) -> &mut [u64];
}

/// `N` words and what is missing to whole vectors; the last but one and the last with a port on top.
macro_rules! lanes {
    ($name:ident, $words:literal, $padded:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(C, align(32))]
        pub struct $name([u64; $padded]);

        impl Lanes for $name {
            const PORTS: Self = {
                let mut words = [0; $padded];
                words[$words - 1] = 0xffff << 48;
                words[$words - 2] = 0xffff << 48;
                $name(words)
            };

            #[inline(always)]
            fn new(words: &[u64]) -> Self {
                let mut padded = [0; $padded];
                for (padded, word) in padded.iter_mut().zip(words) {
                    *padded = *word;
                }
                $name(padded)
            }

            #[inline(always)]
            fn spare(&self) -> u64 {
                self.0[$padded - 1]
            }

            #[inline(always)]
            fn spare_mut(&mut self) -> &mut u64 {
                &mut self.0[$padded - 1]
            }

            #[inline(always)]
            fn words(&self) -> &[u64] {
                &self.0
            }

            #[inline(always)]
            fn words_mut(&mut self) -> &mut [u64] {
                &mut self.0
            }
        }
    };
}

lanes!(Lanes4, 3, 4, "The lanes of an IPv4 key.");
lanes!(Lanes6, 6, 8, "The lanes of an IPv6 key.");

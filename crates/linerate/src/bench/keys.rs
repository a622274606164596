//! What is looked up: uniform keys, keys inside routed prefixes, hot flows.

use super::stats::Rng;
use linerate_tables::prefix::{Address, Prefix};

/// A key pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    /// Uniform over the address space (IPv6: over `2000::/3`).
    Uniform,
    /// A route at random, then random host bits in it.
    Routed,
    /// Zipf with exponent 1 over 2^20 destinations drawn as [`Trace::Routed`].
    Zipf,
}

impl Trace {
    pub(super) const ALL: [Trace; 3] = [Trace::Uniform, Trace::Routed, Trace::Zipf];

    /// The letter in result ids.
    pub(super) fn letter(self) -> &'static str {
        match self {
            Trace::Uniform => "U",
            Trace::Routed => "R",
            Trace::Zipf => "Z",
        }
    }
}

/// Addresses that can be drawn.
pub(super) trait Drawn: Address {
    /// `4` or `6`.
    const FAMILY: u8;
    /// Any address, uniform.
    fn any(rng: &mut Rng) -> Self;
    /// Uniform over the space that is in use at all.
    fn uniform(rng: &mut Rng) -> Self;
    /// Mixed into 64 bits.
    fn mixed(self) -> u64;
}

impl Drawn for u32 {
    const FAMILY: u8 = 4;
    fn any(rng: &mut Rng) -> Self {
        rng.next() as u32
    }
    fn uniform(rng: &mut Rng) -> Self {
        Self::any(rng)
    }
    fn mixed(self) -> u64 {
        Rng(self.into()).next()
    }
}

impl Drawn for u128 {
    const FAMILY: u8 = 6;
    fn any(rng: &mut Rng) -> Self {
        u128::from(rng.next()) << 64 | u128::from(rng.next())
    }
    fn uniform(rng: &mut Rng) -> Self {
        Self::any(rng) >> 3 | 1 << 125
    }
    fn mixed(self) -> u64 {
        Rng((self >> 64) as u64 ^ Rng(self as u64).next()).next()
    }
}

/// `n` keys of a pattern.
pub(super) fn draw<A: Drawn>(trace: Trace, routes: &[(Prefix<A>, u32)], n: usize) -> Vec<A> {
    let mut rng = Rng(0x5eed ^ u64::from(A::FAMILY) << 32 ^ trace as u64);
    let routed = |rng: &mut Rng| inside(routes[rng.below(routes.len())].0, rng);
    match trace {
        Trace::Uniform => (0..n).map(|_| A::uniform(&mut rng)).collect(),
        Trace::Routed => (0..n).map(|_| routed(&mut rng)).collect(),
        Trace::Zipf => {
            let flows: Vec<A> = (0..1usize << 20).map(|_| routed(&mut rng)).collect();
            // With exponent 1 the rank is (nearly) exponential in a uniform number.
            let harmonic = (flows.len() as f64).ln();
            (0..n)
                .map(|_| {
                    flows[((rng.unit() * harmonic).exp() as usize).saturating_sub(1).min(flows.len() - 1)]
                })
                .collect()
        }
    }
}

/// A random address inside a prefix.
pub(super) fn inside<A: Drawn>(prefix: Prefix<A>, rng: &mut Rng) -> A {
    prefix.first().or(A::any(rng).and(A::mask(prefix.len()).not()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_where_they_should_and_repeat() {
        let routes =
            vec![(Prefix::new(0x0a00_0000u32, 8).unwrap(), 1), (Prefix::new(0xc612_0000, 15).unwrap(), 2)];
        for trace in [Trace::Routed, Trace::Zipf] {
            let keys = draw(trace, &routes, 10_000);
            assert!(keys.iter().all(|&k| routes.iter().any(|(p, _)| p.contains(k))));
            assert_eq!(keys, draw(trace, &routes, 10_000));
        }
        let global: Vec<u128> = draw(Trace::Uniform, &[], 1_000);
        assert!(global.iter().all(|k| k >> 125 == 1));
    }

    #[test]
    fn zipf_keys_are_hot() {
        let routes = vec![(Prefix::new(0u128, 0).unwrap(), 1)];
        let mut keys = draw(Trace::Zipf, &routes, 100_000);
        keys.sort_unstable();
        let hottest = keys.chunk_by(|a, b| a == b).map(<[u128]>::len).max().unwrap();
        // The first of 2^20 ranks has 1/(ln 2^20) = 7 % of the weight in the continuous form, ln 2 of that here.
        assert!((3_000..7_500).contains(&hottest), "{hottest}");
    }
}

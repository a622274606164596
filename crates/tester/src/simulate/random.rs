//! Random losses.

use crate::rng::Rng;

/// A number in 0..1.
fn unit(rng: &mut Rng) -> f64 {
    (rng.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// Of `frames` frames, how many are lost where each is with probability `share`: Poisson for few, normal for many.
pub(super) fn losses(rng: &mut Rng, frames: u64, share: f64) -> u64 {
    let mean = frames as f64 * share;
    if mean <= 0.0 {
        return 0;
    }
    if share >= 1.0 {
        return frames;
    }
    let drawn = if mean < 30.0 {
        let (mut n, mut product, floor) = (0u64, unit(rng), (-mean).exp());
        while product > floor {
            n += 1;
            product *= unit(rng);
        }
        n
    } else {
        let radius = (-2.0 * (1.0 - unit(rng)).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * unit(rng)).cos();
        (mean + normal * (mean * (1.0 - share)).max(0.0).sqrt()).round().max(0.0) as u64
    };
    drawn.min(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_variances_are_those_of_chance() {
        let mut rng = Rng::new(7);
        for mean in [0.5, 12.0, 500.0] {
            let n = 4000;
            let drawn: Vec<f64> = (0..n).map(|_| losses(&mut rng, 1_000_000, mean / 1e6) as f64).collect();
            let average = drawn.iter().sum::<f64>() / f64::from(n);
            let variance = drawn.iter().map(|d| (d - average).powi(2)).sum::<f64>() / f64::from(n);
            assert!((average / mean - 1.0).abs() < 0.06, "{mean}: {average}");
            assert!((variance / mean - 1.0).abs() < 0.12, "{mean}: {variance}");
        }
        assert_eq!((losses(&mut rng, 1000, 0.0), losses(&mut rng, 3, 1.0)), (0, 3));
    }
}

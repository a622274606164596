//! Summary of repeated measurements.

use serde::Serialize;

/// What a figure measured several times comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The middle value (mean of the two middle ones for an even number).
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// The value that nine tenths stay below: what the machine does when its neighbours are quiet.
    pub best_tenth: f64,
    /// How many values.
    pub runs: usize,
}

impl Summary {
    /// Of any number of values; all zero for none. Values that are not finite are left out.
    pub fn of(values: &[f64]) -> Self {
        let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        v.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (v.first(), v.last()) else { return Self::default() };
        Summary {
            median: quantile(&v, 0.5),
            min: *min,
            max: *max,
            best_tenth: quantile(&v, 0.9),
            runs: v.len(),
        }
    }
}

/// Quantile `q` (0 to 1) of sorted values, interpolated between neighbours; 0 for none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0, f64::NAN]);
        assert_eq!((s.median, s.min, s.max, s.runs), (2.5, 1.0, 4.0, 4));
        assert!((s.best_tenth - 3.7).abs() < 1e-9);
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(Summary::of(&[7.0]).best_tenth, 7.0);
    }
}

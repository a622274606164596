//! Loads that are tried: equal ratios apart, so that widths are whole numbers of steps and halving is exact.

/// Loads from the lowest to the highest, both included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    min: f64,
    max: f64,
    /// Logarithm of the ratio of two neighbours.
    step: f64,
    last: u32,
}

impl Grid {
    /// Loads no further apart than `width`, a share of the upper one. All are above 0, `min <= max`, `width` in 10⁻⁶ to 1.
    pub(super) fn new(min: f64, max: f64, width: f64) -> Self {
        let range = (max / min).ln();
        // A little closer, so that rounding never makes a step wider than asked.
        let last =
            (range / (-(-width).ln_1p() * 0.999_999)).ceil().clamp(0.0, f64::from(u32::MAX / 4)) as u32;
        Grid { min, max, step: if last == 0 { 0.0 } else { range / f64::from(last) }, last }
    }

    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// Load of a place; the ends are exact.
    pub(super) fn load(&self, at: u32) -> f64 {
        match at {
            _ if at >= self.last => self.max,
            0 => self.min,
            _ => self.min * (self.step * f64::from(at)).exp(),
        }
    }

    /// The highest place whose load is not above.
    pub(super) fn below(&self, load: f64) -> u32 {
        if !(load > self.min && self.last > 0) {
            return 0;
        }
        if load >= self.max {
            return self.last;
        }
        let mut at = (((load / self.min).ln() / self.step) as u32).min(self.last);
        while at > 0 && self.load(at) > load {
            at -= 1;
        }
        while at < self.last && self.load(at + 1) <= load {
            at += 1;
        }
        at
    }

    /// Steps that two bounds may be apart, at least 1.
    pub(super) fn width(&self, width: f64) -> u32 {
        if self.last == 0 {
            return 1;
        }
        // Whole multiples of the narrowest width come out whole.
        ((-(-width).ln_1p() / self.step + 1e-6) as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_within_the_width_and_places_are_found_again() {
        let g = Grid::new(9001.0, 148_809_523.0, 0.005);
        assert_eq!((g.load(0), g.load(g.last())), (9001.0, 148_809_523.0));
        for at in 0..g.last() {
            let (low, high) = (g.load(at), g.load(at + 1));
            assert!(low < high && high - low <= 0.005 * high, "{at}");
            assert_eq!((g.below(low), g.below((low + high) / 2.0)), (at, at));
        }
        assert_eq!((g.width(0.005), g.width(1.0 - 0.995f64.powi(2)), g.width(1e-9)), (1, 2, 1));
        assert_eq!((g.below(1.0), g.below(1e12)), (0, g.last()));
    }

    #[test]
    fn one_load_is_a_grid_too() {
        let g = Grid::new(5.0, 5.0, 0.005);
        assert_eq!((g.last(), g.load(0), g.below(5.0), g.width(0.1)), (0, 5.0, 0, 1));
    }
}

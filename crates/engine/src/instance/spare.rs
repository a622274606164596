//! When to give memory back: in a quiet moment after many routes have gone.

/// Fewer routes take too little to bother.
const WORTH: usize = 10_000;

/// Looks at the number of routes about once a second.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// The most there were since memory was last given back.
    most: usize,
    /// How many there were a moment ago.
    last: usize,
}

impl Spare {
    /// Whether now is the time: at most half of the routes are left, and they have stopped going.
    pub(super) fn look(&mut self, routes: usize) -> bool {
        self.most = self.most.max(routes);
        let quiet = routes.abs_diff(self.last) <= self.most / 256;
        self.last = routes;
        let due = quiet && self.most >= WORTH && routes <= self.most / 2;
        if due {
            self.most = routes;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_after_half_of_the_routes_have_gone() {
        let mut spare = Spare::default();
        let seen = [0, 500_000, 1_000_000, 1_000_000, 700_000, 300_000, 1_000, 990, 990, 990, 4_000, 0, 0];
        let due: Vec<usize> = (0..seen.len()).filter(|i| spare.look(seen[*i])).collect();
        assert_eq!(due, [7], "not while they go, once, and not for a few");
        for routes in [900_000, 450_000, 449_000] {
            assert_eq!(spare.look(routes), routes == 449_000);
        }
    }
}

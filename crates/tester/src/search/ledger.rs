//! All trials of a search by load, and the bounds that follow from them.

use std::collections::BTreeMap;

use super::classify::{Class, Criterion, Entry};

/// Trials by place on the grid.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(BTreeMap<u32, Vec<Entry>>);

impl Ledger {
    pub(super) fn add(&mut self, at: u32, entry: Entry) {
        self.0.entry(at).or_default().push(entry);
    }

    pub(super) fn at(&self, at: u32) -> &[Entry] {
        self.0.get(&at).map_or(&[], Vec::as_slice)
    }

    /// The relevant bounds (RFC 9971): the lowest upper one, and the highest lower one below it.
    pub(super) fn bounds(&self, criterion: &Criterion) -> (Option<u32>, Option<u32>) {
        let mut lower = None;
        for (at, entries) in &self.0 {
            match criterion.class(&criterion.sums(entries)) {
                Class::Lower => lower = Some(*at),
                Class::Upper => return (lower, Some(*at)),
                Class::Undecided => {}
            }
        }
        (lower, None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::goal::Goal;
    use super::*;

    #[test]
    fn what_is_good_above_what_is_bad_is_no_bound() {
        let strict = Goal::rfc2544().criterion();
        let mut l = Ledger::default();
        let entry = |loss| Entry { intended: 60.0, effective: 60.0, loss };
        l.add(10, entry(0.0));
        l.add(30, entry(0.0));
        assert_eq!(l.bounds(&strict), (Some(30), None));
        l.add(20, entry(0.1));
        assert_eq!(l.bounds(&strict), (Some(10), Some(20)));
        l.add(10, entry(0.1));
        assert_eq!(l.bounds(&strict), (None, Some(10)));
        assert_eq!(l.at(10).len(), 2);
    }
}

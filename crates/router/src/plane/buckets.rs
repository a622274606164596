//! Dealing the buckets of an ECMP group to its members.

use std::collections::HashMap;

use linerate_tables::fib::NextHopId;

use super::writer::Member;

/// log2 of the most buckets of one group.
pub(super) const MAX_LOG2: u8 = 12;

/// log2 of the fewest.
const MIN_LOG2: u8 = 4;

/// How many buckets (log2) a group of these members gets: eight per member and two per unit of weight at least, so
/// that shares are right to a few percent, as far as [`MAX_LOG2`] allows.
pub(super) fn log2_for(members: &[Member]) -> u8 {
    let least = members.iter().map(|m| m.weight).min().unwrap_or(1).max(1);
    let units: usize = members.iter().map(|m| usize::from(m.weight).div_ceil(usize::from(least))).sum();
    let equal = members.iter().all(|m| m.weight == least);
    let wanted = if equal { 8 * members.len() } else { (8 * members.len()).max(2 * units) };
    (wanted.next_power_of_two().trailing_zeros() as u8).clamp(MIN_LOG2, MAX_LOG2)
}

/// Deals `buckets` to `members` by weight: each gets its exact share rounded up or down, and at least one. A bucket
/// stays with the member that has it wherever that one is still entitled to it: losing a member moves its own flows
/// only, gaining one moves no more than its share. Each member is named once. With no members the buckets stay.
pub(super) fn deal(buckets: &mut [NextHopId], members: &[Member]) {
    let total: u64 = members.iter().map(|m| u64::from(m.weight.max(1))).sum::<u64>().max(1);
    let count = buckets.len() as u64;
    let mut hands: Vec<Hand> = members.iter().map(|m| Hand::new(m, total, count)).collect();
    let of: HashMap<NextHopId, usize> = members.iter().enumerate().map(|(i, m)| (m.id, i)).collect();
    let mut empty = Vec::new();
    for (at, bucket) in buckets.iter().enumerate() {
        match of.get(bucket).and_then(|m| hands.get_mut(*m)).filter(|h| h.held.len() < h.most) {
            Some(hand) => hand.held.push(at),
            None => empty.push(at),
        }
    }
    // First what members lack to their least, taken from those with most above their share where no bucket is empty.
    for poor in 0..hands.len() {
        while hands[poor].held.len() < hands[poor].least {
            let taken = empty.pop().or_else(|| {
                let rich = hands.iter_mut().filter(|h| h.held.len() > 1).max_by_key(|h| h.surplus(total));
                rich.and_then(|h| h.held.pop())
            });
            let Some(at) = taken else { break };
            hands[poor].held.push(at);
        }
    }
    // Then the rest, to those furthest below their share.
    for at in empty {
        if let Some(hand) = hands.iter_mut().min_by_key(|h| h.surplus(total)) {
            hand.held.push(at);
        }
    }
    for (hand, member) in hands.iter().zip(members) {
        for at in &hand.held {
            buckets[*at] = member.id;
        }
    }
}

/// The buckets of one member while they are dealt.
struct Hand {
    held: Vec<usize>,
    /// Exact share times the total weight.
    exact: u64,
    least: usize,
    most: usize,
}

impl Hand {
    fn new(member: &Member, total: u64, count: u64) -> Self {
        let exact = u64::from(member.weight.max(1)) * count;
        let least = ((exact / total) as usize).max(1);
        Hand { held: Vec::new(), exact, least, most: (exact.div_ceil(total) as usize).max(1) }
    }

    /// How much it has above its exact share, times the total weight.
    fn surplus(&self, total: u64) -> i64 {
        (self.held.len() as u64 * total) as i64 - self.exact as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(weights: &[u16]) -> Vec<Member> {
        weights.iter().enumerate().map(|(i, &weight)| Member { id: i as u32 + 1, weight }).collect()
    }

    fn dealt(members: &[Member]) -> Vec<NextHopId> {
        let mut buckets = vec![0; 1 << log2_for(members)];
        deal(&mut buckets, members);
        buckets
    }

    fn share(buckets: &[NextHopId], id: NextHopId) -> usize {
        buckets.iter().filter(|b| **b == id).count()
    }

    #[test]
    fn shares_follow_the_weights() {
        for weights in [&[1u16, 1, 1][..], &[1, 256], &[3, 5, 7, 11], &[256; 64], &[1; 512], &[9]] {
            let m = members(weights);
            let buckets = dealt(&m);
            let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            for m in &m {
                let exact = buckets.len() as f64 * f64::from(m.weight) / total;
                let got = share(&buckets, m.id) as f64;
                assert!((got - exact).abs() <= 1.0, "{weights:?}: {} of {} for {m:?}", got, buckets.len());
                assert!(got >= 1.0);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn a_lost_member_moves_only_its_own_flows_and_comes_back_to_its_share(
            weights in proptest::collection::vec(1u16..=256, 2..40),
            lost in 0usize..40,
        ) {
            let all = members(&weights);
            let lost = lost % all.len();
            let before = dealt(&all);
            let mut left = all.clone();
            let gone = left.remove(lost);
            let mut after = before.clone();
            deal(&mut after, &left);
            for (b, a) in before.iter().zip(&after) {
                proptest::prop_assert!(*a != gone.id);
                proptest::prop_assert!(*b == gone.id || a == b);
            }
            deal(&mut after, &all);
            proptest::prop_assert!(share(&after, gone.id).abs_diff(share(&before, gone.id)) <= 1);
        }
    }

    #[test]
    fn without_members_nothing_changes() {
        let mut buckets = [7, 8];
        deal(&mut buckets, &[]);
        assert_eq!(buckets, [7, 8]);
    }
}

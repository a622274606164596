//! The writer's side of next hops, groups and adjacencies: one owner, on a control thread.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use linerate_tables::fib::NextHopId;
use linerate_tables::qsbr::{Domain, Epoch};

use super::adjacency::{self, Adjacency, AdjacencyIndex};
use super::buckets;
use super::next_hops::{DEFAULT, NextHop, NextHops, Shared, decode_group, encode_group};
use super::ranges::Ranges;

/// Next hops there can be at once, [`NO_ROUTE`](linerate_tables::fib::NO_ROUTE) included: distinct actions of routes,
/// and neighbours.
pub const MAX_NEXT_HOPS: usize = 1 << 18;

/// Adjacencies there can be at once, replaced ones that workers may still look at included.
pub const MAX_ADJACENCIES: usize = 1 << 17;

/// Members one group can have.
pub const MAX_GROUP_MEMBERS: usize = 512;

/// log2 of the buckets of all groups together.
const BUCKETS_LOG2: u8 = 22;

/// Buckets of all groups together.
pub(super) const MAX_BUCKETS: usize = 1 << BUCKETS_LOG2;

/// How many indices a writer gives out at most; less than the maximum in tests only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) next_hops: usize,
    pub(crate) adjacencies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { next_hops: MAX_NEXT_HOPS, adjacencies: MAX_ADJACENCIES }
    }
}

/// A member of a group: a next hop that is not a group itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The next hop.
    pub id: NextHopId,
    /// Its share relative to the other members, 1 to 256.
    pub weight: u16,
}

/// How much of the shared tables is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneUse {
    /// Next hops.
    pub next_hops: usize,
    /// Adjacencies.
    pub adjacencies: usize,
    /// Buckets of groups.
    pub buckets: usize,
    /// Given back, but workers may still look at them.
    pub retired: usize,
}

/// Why the shared tables refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaneError {
    /// The next-hop table is full.
    #[error("all {} next hops are in use; fewer distinct gateways or neighbours are needed", MAX_NEXT_HOPS - 1)]
    TooManyNextHops,
    /// The adjacency table is full.
    #[error("all {MAX_ADJACENCIES} adjacencies are in use; fewer neighbours are needed")]
    TooManyAdjacencies,
    /// The buckets of all groups together are used up.
    #[error(
        "the {MAX_BUCKETS} hash buckets for multipath routes are used up; fewer distinct path sets are needed"
    )]
    TooManyGroups,
    /// One group is too large.
    #[error("a multipath route has {0} paths; {MAX_GROUP_MEMBERS} is the most")]
    TooManyMembers(usize),
    /// The system has no memory.
    #[error("the system cannot give {0} bytes for the next-hop tables")]
    NoMemory(usize),
}

/// The writing half. Changes are seen by readers one store at a time, at once; what they replace is recycled by
/// [`commit`](Self::commit) once every worker has been quiescent.
#[derive(Debug)]
pub struct PlaneWriter {
    shared: NextHops,
    domain: Domain,
    next_hops: Slots,
    adjacencies: Slots,
    buckets: Ranges,
    /// Given back since the last commit.
    pending: Vec<Retired>,
    /// Waiting for an epoch to pass, oldest first.
    waiting: VecDeque<(Epoch, Vec<Retired>)>,
}

#[derive(Debug)]
enum Retired {
    NextHop(NextHopId),
    Adjacency(AdjacencyIndex),
    Buckets(u32, u8),
}

/// Indices given out: recycled ones first, then fresh ones.
#[derive(Debug)]
struct Slots {
    fresh: u32,
    first: u32,
    end: u32,
    free: Vec<u32>,
}

impl Slots {
    fn new(first: u32, end: usize) -> Self {
        Slots { fresh: first, first, end: end as u32, free: Vec::new() }
    }

    fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            (self.fresh < self.end).then(|| {
                self.fresh += 1;
                self.fresh - 1
            })
        })
    }

    fn used(&self) -> usize {
        (self.fresh - self.first) as usize - self.free.len()
    }
}

impl PlaneWriter {
    /// Empty tables whose memory is recycled when the readers of `domain` allow it.
    pub fn new(domain: Domain) -> Result<Self, PlaneError> {
        Self::with_limits(domain, Limits::default())
    }

    pub(crate) fn with_limits(domain: Domain, limits: Limits) -> Result<Self, PlaneError> {
        Ok(PlaneWriter {
            shared: NextHops(Arc::new(Shared::new()?)),
            domain,
            next_hops: Slots::new(1, limits.next_hops.min(MAX_NEXT_HOPS)),
            adjacencies: Slots::new(0, limits.adjacencies.min(MAX_ADJACENCIES)),
            buckets: Ranges::new(BUCKETS_LOG2),
            pending: Vec::new(),
            waiting: VecDeque::new(),
        })
    }

    /// A reader.
    pub fn reader(&self) -> NextHops {
        self.shared.clone()
    }

    /// A new next hop.
    pub fn add(&mut self, next_hop: NextHop) -> Result<NextHopId, PlaneError> {
        self.add_word(next_hop.encode())
    }

    /// A new next hop that only default routes use: no source address is validated by it where those do not count. That
    /// stays so whatever it becomes.
    pub fn add_default(&mut self, next_hop: NextHop) -> Result<NextHopId, PlaneError> {
        self.add_word(next_hop.encode() | DEFAULT)
    }

    fn add_word(&mut self, word: u64) -> Result<NextHopId, PlaneError> {
        let id = self.take(|w| w.next_hops.take()).ok_or(PlaneError::TooManyNextHops)?;
        if let Some(w) = self.shared.0.words.get(id as usize) {
            w.store(word, Release);
        }
        Ok(id)
    }

    /// Changes a next hop: one store, which all routes and groups that use it follow.
    pub fn set(&mut self, id: NextHopId, next_hop: NextHop) {
        let old = self.load(id);
        self.store(id, next_hop.encode());
        self.retire_group(old);
    }

    /// Makes a next hop a group of `live` members, its buckets dealt so that as few flows as possible move. `all` are
    /// the members the group would have if each was up: they decide how many buckets there are, which therefore
    /// stays the same while members go down and come back. Where no member is live all of them share, so that the
    /// state of a member (unreachable, say) is the group's.
    pub fn set_group(&mut self, id: NextHopId, all: &[Member], live: &[Member]) -> Result<(), PlaneError> {
        if all.len() > MAX_GROUP_MEMBERS || live.len() > MAX_GROUP_MEMBERS {
            return Err(PlaneError::TooManyMembers(all.len().max(live.len())));
        }
        let live = merge(if live.is_empty() { all } else { live });
        let old = self.load(id);
        let wanted = buckets::log2_for(&merge(all));
        // Fewer buckets would move flows of members that stay: only a group that shrinks a lot gives room back.
        let log2 = decode_group(old)
            .map_or(wanted, |(_, log2)| if wanted + 4 < log2 { wanted } else { wanted.max(log2) });
        let mut dealt = self.scaled(old, log2);
        buckets::deal(&mut dealt, &live);
        let first = match decode_group(old) {
            Some((first, old_log2)) if old_log2 == log2 => first,
            _ => self.take(|w| w.buckets.take(log2)).ok_or(PlaneError::TooManyGroups)?,
        };
        for (bucket, member) in self.shared.0.buckets.iter().skip(first as usize).zip(dealt) {
            bucket.store(member, Release);
        }
        let new = encode_group(first, log2);
        if new != old {
            self.store(id, new);
            self.retire_group(old);
        }
        Ok(())
    }

    /// Gives a next hop back. Nothing that readers can reach may still name it; packets on their way keep what it
    /// says until the index is used again.
    pub fn remove(&mut self, id: NextHopId) {
        let old = self.load(id);
        self.retire_group(old);
        self.pending.push(Retired::NextHop(id));
    }

    /// Stores a new adjacency. Name it by a next hop to publish it.
    pub fn add_adjacency(
        &mut self,
        adjacency: &Adjacency,
        next_hop: Option<IpAddr>,
    ) -> Result<AdjacencyIndex, PlaneError> {
        let index = self.take(|w| w.adjacencies.take()).ok_or(PlaneError::TooManyAdjacencies)?;
        if let Some(record) = self.shared.0.record(index) {
            adjacency.store(next_hop, record);
        }
        Ok(index)
    }

    /// Gives an adjacency back that no next hop names any more.
    pub fn remove_adjacency(&mut self, index: AdjacencyIndex) {
        self.pending.push(Retired::Adjacency(index));
    }

    /// Whether packets left by this adjacency since the last call.
    pub fn take_used(&mut self, index: AdjacencyIndex) -> bool {
        self.shared.0.record(index).is_some_and(|r| r[adjacency::USED].swap(0, Relaxed) != 0)
    }

    /// Tells nodes to look again at packets they hold.
    pub fn wake(&self) {
        self.shared.bump();
    }

    /// Ends a set of changes: what was given back before it will be used again after the workers' next quiescent
    /// points.
    pub fn commit(&mut self) {
        if !self.pending.is_empty() {
            let epoch = self.domain.advance();
            self.waiting.push_back((epoch, std::mem::take(&mut self.pending)));
        }
        self.collect();
    }

    /// How much is in use.
    pub fn in_use(&self) -> PlaneUse {
        PlaneUse {
            next_hops: self.next_hops.used(),
            adjacencies: self.adjacencies.used(),
            buckets: self.buckets.used(),
            retired: self.pending.len() + self.waiting.iter().map(|(_, r)| r.len()).sum::<usize>(),
        }
    }

    fn collect(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let passed = self.domain.passed();
        while self.waiting.front().is_some_and(|(epoch, _)| *epoch <= passed) {
            for retired in self.waiting.pop_front().into_iter().flat_map(|(_, r)| r) {
                match retired {
                    Retired::NextHop(id) => self.next_hops.free.push(id),
                    Retired::Adjacency(index) => self.adjacencies.free.push(index),
                    Retired::Buckets(first, log2) => self.buckets.give(first, log2),
                }
            }
        }
    }

    /// Something from one of the tables; where it is used up, tries once more with what the workers have let go.
    fn take(&mut self, from: impl Fn(&mut Self) -> Option<u32>) -> Option<u32> {
        from(self).or_else(|| {
            self.commit();
            from(self)
        })
    }

    /// The buckets a group has now, doubled or thinned out to `1 << log2`: a bucket is numbered by the top bits of
    /// the hash, so most flows keep their member. All zero where there is no group yet.
    fn scaled(&self, word: u64, log2: u8) -> Vec<NextHopId> {
        let old = decode_group(word);
        (0..1u32 << log2)
            .map(|at| {
                let (first, old_log2) = old?;
                let at = u64::from(at) << old_log2 >> log2;
                self.shared.0.buckets.get(first as usize + at as usize).map(|b| b.load(Relaxed))
            })
            .map(Option::unwrap_or_default)
            .collect()
    }

    fn retire_group(&mut self, word: u64) {
        if let Some((first, log2)) = decode_group(word) {
            self.pending.push(Retired::Buckets(first, log2));
        }
    }

    fn load(&self, id: NextHopId) -> u64 {
        self.shared.0.words.get(id as usize).map_or(0, |w| w.load(Relaxed) & !DEFAULT)
    }

    fn store(&self, id: NextHopId, word: u64) {
        if let Some(w) = self.shared.0.words.get(id as usize) {
            w.store(word | w.load(Relaxed) & DEFAULT, Release);
        }
    }
}

/// Members with the same next hop count as one with the sum of their weights.
fn merge(members: &[Member]) -> Vec<Member> {
    let mut merged: Vec<Member> = members.to_vec();
    merged.sort_by_key(|m| m.id);
    merged.dedup_by(|b, a| {
        let same = a.id == b.id;
        if same {
            a.weight = a.weight.saturating_add(b.weight);
        }
        same
    });
    merged
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;

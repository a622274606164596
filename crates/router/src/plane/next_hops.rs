//! The readers' side of next hops, groups and adjacencies.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use linerate_pipeline::{IfIndex, VrfId};
use linerate_tables::fib::NextHopId;

use super::adjacency::{self, Adjacency, AdjacencyIndex, Plain};
use super::asked::Asked;
use super::words::{Words, zeroed_u32};
use super::writer::{MAX_ADJACENCIES, MAX_BUCKETS, MAX_NEXT_HOPS, PlaneError};

/// How many further buckets a packet tries when the member of its bucket is down, until control has dealt the buckets
/// anew.
const TRIES: u32 = 16;

/// What to do with a packet: the answer of the next-hop table, groups already resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// No route covers the destination: ICMP "network unreachable" (RFC 1812 4.3.3.1).
    #[default]
    None,
    /// Send it out with this adjacency's header.
    Forward(AdjacencyIndex),
    /// One of this router's own addresses (also the all-zeros and directed broadcast addresses of its networks).
    Local,
    /// In a network this interface is attached to, but the neighbour is not known yet: hold the packet and ask for
    /// the destination itself.
    Glean(IfIndex),
    /// Discard silently.
    Blackhole,
    /// ICMP "communication administratively prohibited".
    Prohibit,
    /// ICMP "host unreachable": the neighbour does not answer, or the route says so.
    Unreachable,
    /// The adjacency's neighbour is not resolved yet: hold the packet and ask for
    /// [`NextHops::next_hop_ip`] on the adjacency's interface.
    Resolve(AdjacencyIndex),
    /// Look the destination up again, in the table of this VRF.
    Table(VrfId),
}

// Layout of a next hop's word: kind in bits 0–7, log2 of the number of buckets in bits 8–15 (groups), value in bits
// 32–63 (adjacency, interface, VRF, or first bucket).
const NONE: u64 = 0;
const FORWARD: u64 = 1;
const LOCAL: u64 = 2;
const GLEAN: u64 = 3;
const BLACKHOLE: u64 = 4;
const PROHIBIT: u64 = 5;
const UNREACHABLE: u64 = 6;
const RESOLVE: u64 = 7;
const GROUP: u64 = 8;
const TABLE: u64 = 9;

/// In a next hop's word: only default routes use it.
pub(super) const DEFAULT: u64 = 1 << 16;

impl NextHop {
    pub(super) fn encode(self) -> u64 {
        match self {
            NextHop::None => NONE,
            NextHop::Forward(a) => FORWARD | u64::from(a) << 32,
            NextHop::Local => LOCAL,
            NextHop::Glean(i) => GLEAN | u64::from(i) << 32,
            NextHop::Blackhole => BLACKHOLE,
            NextHop::Prohibit => PROHIBIT,
            NextHop::Unreachable => UNREACHABLE,
            NextHop::Resolve(a) => RESOLVE | u64::from(a) << 32,
            NextHop::Table(vrf) => TABLE | u64::from(vrf) << 32,
        }
    }

    /// Groups decode to [`NextHop::None`]: whoever may meet one asks [`decode_group`] first.
    #[inline(always)]
    pub(super) fn decode(word: u64) -> Self {
        let value = (word >> 32) as u32;
        match word & 0xff {
            FORWARD => NextHop::Forward(value),
            LOCAL => NextHop::Local,
            GLEAN => NextHop::Glean(value as IfIndex),
            BLACKHOLE => NextHop::Blackhole,
            PROHIBIT => NextHop::Prohibit,
            UNREACHABLE => NextHop::Unreachable,
            RESOLVE => NextHop::Resolve(value),
            TABLE => NextHop::Table(value as VrfId),
            _ => NextHop::None,
        }
    }
}

pub(super) fn encode_group(first: u32, log2: u8) -> u64 {
    GROUP | u64::from(log2) << 8 | u64::from(first) << 32
}

/// First bucket and log2 of their number, where the word is a group's.
#[inline(always)]
pub(super) fn decode_group(word: u64) -> Option<(u32, u8)> {
    (word & 0xff == GROUP).then_some(((word >> 32) as u32, (word >> 8) as u8))
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) words: Words,
    pub(super) adjacencies: Words,
    pub(super) buckets: Box<[AtomicU32]>,
    pub(super) asked: Asked,
    generation: Generation,
}

/// On a cache line of its own: it changes with every change of a route, and what lies beside it is read for every
/// packet.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Generation(AtomicU64);

impl Shared {
    pub(super) fn new() -> Result<Self, PlaneError> {
        Ok(Shared {
            words: Words::zeroed(MAX_NEXT_HOPS)?,
            adjacencies: Words::zeroed(MAX_ADJACENCIES * adjacency::WORDS)?,
            buckets: zeroed_u32(MAX_BUCKETS)?,
            asked: Asked::new()?,
            generation: Generation::default(),
        })
    }

    #[inline(always)]
    pub(super) fn record(&self, index: AdjacencyIndex) -> Option<&[AtomicU64; adjacency::WORDS]> {
        self.adjacencies.chunk(index as usize * adjacency::WORDS)
    }
}

/// Next hops and adjacencies as they lie in memory, for loops over many packets: borrow it once per batch.
#[derive(Clone, Copy, Debug)]
pub struct Arrays<'a> {
    words: &'a [AtomicU64],
    adjacencies: &'a [[AtomicU64; adjacency::WORDS]],
}

impl Arrays<'_> {
    /// As [`NextHops::forward`].
    #[inline(always)]
    pub fn forward(&self, id: NextHopId) -> Option<AdjacencyIndex> {
        let word = self.words.get(id as usize)?.load(Acquire);
        (word & 0xff == FORWARD).then_some((word >> 32) as u32)
    }

    /// As [`NextHops::plain`].
    #[inline(always)]
    pub fn plain(&self, index: AdjacencyIndex) -> Option<Plain> {
        self.adjacencies.get(index as usize).and_then(Plain::load)
    }
}

/// A worker's handle on next hops, groups and adjacencies: wait-free reads, cheap to clone.
#[derive(Clone, Debug)]
pub struct NextHops(pub(super) Arc<Shared>);

impl NextHops {
    /// Resolves what a batch of FIB lookups returned, groups included: `out[i]` for `ids[i]` (the shorter slice
    /// counts). `hash(i)` is the flow hash of packet `i`; it is asked for only where the next hop is a group.
    /// Returns how many of them are [`NextHop::Forward`]: a caller that gets all of them can skip sorting the rest.
    #[inline]
    pub fn resolve(
        &self,
        ids: &[NextHopId],
        mut hash: impl FnMut(usize) -> u32,
        out: &mut [NextHop],
    ) -> usize {
        let mut forward = 0;
        for (i, (id, out)) in ids.iter().zip(out).enumerate() {
            let word = self.word(*id);
            *out = if word & 0xff == FORWARD {
                forward += 1;
                NextHop::Forward((word >> 32) as u32)
            } else if let Some((first, log2)) = decode_group(word) {
                let member = self.member(first, log2, hash(i));
                forward += usize::from(matches!(member, NextHop::Forward(_)));
                member
            } else {
                NextHop::decode(word)
            };
        }
        forward
    }

    /// Resolves one next hop with the packet's flow hash.
    pub fn resolve_one(&self, id: NextHopId, hash: u32) -> NextHop {
        self.resolve_with(id, || hash)
    }

    /// Resolves one next hop; `hash` is asked for only where it is a group.
    #[inline]
    pub fn resolve_with(&self, id: NextHopId, hash: impl FnOnce() -> u32) -> NextHop {
        let word = self.word(id);
        match decode_group(word) {
            Some((first, log2)) => self.member(first, log2, hash()),
            None => NextHop::decode(word),
        }
    }

    /// The arrays behind this handle.
    #[inline(always)]
    pub fn arrays(&self) -> Arrays<'_> {
        Arrays { words: self.0.words.all(), adjacencies: self.0.adjacencies.all().as_chunks().0 }
    }

    /// The adjacency of a next hop that is one, which is the common case; `None` for everything else, groups included:
    /// ask [`resolve_with`](Self::resolve_with).
    #[inline(always)]
    pub fn forward(&self, id: NextHopId) -> Option<AdjacencyIndex> {
        let word = self.word(id);
        (word & 0xff == FORWARD).then_some((word >> 32) as u32)
    }

    /// The adjacency of the group's member that this flow goes by; `None` where the next hop is no group, or the member
    /// cannot be sent to.
    #[inline]
    pub fn forward_member(
        &self,
        id: NextHopId,
        hash: impl FnOnce() -> Option<u32>,
    ) -> Option<AdjacencyIndex> {
        let (first, log2) = decode_group(self.word(id))?;
        match self.member(first, log2, hash()?) {
            NextHop::Forward(adjacency) => Some(adjacency),
            _ => None,
        }
    }

    /// An adjacency as a value: a handful of loads from one cache line. Indices that were never given out read as an
    /// incomplete adjacency with an empty header.
    #[inline(always)]
    pub fn adjacency(&self, index: AdjacencyIndex) -> Adjacency {
        self.0.record(index).map_or(Adjacency::default(), Adjacency::load)
    }

    /// What the common packet needs of an adjacency, for a packet that will be sent by it: counts as
    /// [used](Self::mark_used). `None` where the neighbour is unknown or the header has tags: use
    /// [`adjacency`](Self::adjacency).
    #[inline(always)]
    pub fn plain(&self, index: AdjacencyIndex) -> Option<Plain> {
        self.0.record(index).and_then(Plain::load)
    }

    /// Notes that packets leave by this adjacency, which keeps its neighbour from ageing. Costs a load of a line that
    /// [`adjacency`](Self::adjacency) has fetched already; the store happens once per ageing period.
    #[inline(always)]
    pub fn mark_used(&self, index: AdjacencyIndex) {
        if let Some(record) = self.0.record(index)
            && record[adjacency::USED].load(Relaxed) == 0
        {
            record[adjacency::USED].store(1, Relaxed);
        }
    }

    /// The neighbour's IP address: what to ask for while the adjacency is incomplete.
    pub fn next_hop_ip(&self, index: AdjacencyIndex) -> Option<IpAddr> {
        self.0.record(index).and_then(Adjacency::load_next_hop)
    }

    /// Changes after a neighbour was resolved or given up, or a route or an interface changed: packets that are held
    /// should be looked up again. All that changed is in the tables by then, the FIBs included.
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.0.generation.0.load(Acquire)
    }

    pub(super) fn bump(&self) {
        self.0.generation.0.fetch_add(1, Release);
    }

    /// Whether a worker may ask for a neighbour now: nobody has for a second (RFC 4861 7.2.2, RFC 1122 2.3.2.1). Where
    /// it may, this counts as asking.
    pub fn may_ask(&self, now: u64, interface: IfIndex, address: IpAddr) -> bool {
        self.0.asked.claim(now, interface, address)
    }

    /// Whether a neighbour was asked for within the last seconds, by whomever.
    pub fn asked_recently(&self, now: u64, interface: IfIndex, address: IpAddr) -> bool {
        self.0.asked.recently(now, interface, address)
    }

    /// Notes that a neighbour is asked for at control's request.
    pub fn note_asked(&self, now: u64, interface: IfIndex, address: IpAddr) {
        self.0.asked.note(now, interface, address);
    }

    #[inline(always)]
    pub(super) fn word(&self, id: NextHopId) -> u64 {
        // Acquire: what the word points at was stored before it.
        self.0.words.get(id as usize).map_or(NONE, |w| w.load(Acquire))
    }

    #[inline]
    fn member(&self, first: u32, log2: u8, hash: u32) -> NextHop {
        // Multiplying by an odd constant near 2^32/φ moves every bit of the hash into the top ones, which number the
        // bucket: queue selection has used the low ones already.
        let mixed = (hash ^ hash >> 15).wrapping_mul(0x9e37_79b1);
        let mask = (1u32 << (log2 & 31)) - 1;
        let mut at = (u64::from(mixed) << (log2 & 31) >> 32) as u32;
        let mut answer = NextHop::Unreachable;
        // A step that is odd visits all buckets of a power of two.
        let step = mixed << 1 | 1;
        for _ in 0..=TRIES {
            // Acquire: a bucket may be dealt to a member that was made after the group was published.
            let id = self.0.buckets.get((first + (at & mask)) as usize).map_or(0, |b| b.load(Acquire));
            answer = NextHop::decode(self.word(id));
            if !matches!(answer, NextHop::Unreachable | NextHop::None) {
                return answer;
            }
            at = at.wrapping_add(step);
        }
        if answer == NextHop::None { NextHop::Unreachable } else { answer }
    }
}

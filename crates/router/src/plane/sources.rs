//! Whether a route speaks for a source address (RFC 3704).

use std::sync::atomic::Ordering::Acquire;

use linerate_pipeline::{IfIndex, VrfId};
use linerate_tables::fib::NextHopId;

use super::next_hops::{DEFAULT, NextHop, NextHops, decode_group};

/// What a route says of packets from where it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// They are plausible.
    Yes,
    /// They are not.
    No,
    /// It leads nowhere at the moment.
    Dead,
    /// Ask the table of this VRF.
    Table(VrfId),
}

impl NextHops {
    /// Whether a route with this next hop, found for a source address, speaks for it: with an `interface`, where one of its
    /// usable paths leaves by that (strict); without, where it forwards and is no default route (loose).
    pub fn backs(&self, id: NextHopId, interface: Option<IfIndex>) -> Backing {
        let word = self.word(id);
        if interface.is_none() && word & DEFAULT != 0 {
            return Backing::No;
        }
        let Some((first, log2)) = decode_group(word) else { return self.backs_one(word, interface) };
        let buckets = self.0.buckets.get(first as usize..).unwrap_or_default();
        // Members lie in runs, where they are many; the same one twice says the same.
        let (mut last, mut answer) = (0, Backing::No);
        for bucket in buckets.iter().take(1 << (log2 & 31)) {
            // Acquire: a bucket may be dealt to a member that was made after the group was published.
            let member = bucket.load(Acquire);
            if member == last {
                continue;
            }
            last = member;
            match self.backs_one(self.word(member), interface) {
                Backing::Yes => return Backing::Yes,
                Backing::No => {}
                other => answer = other,
            }
        }
        answer
    }

    fn backs_one(&self, word: u64, interface: Option<IfIndex>) -> Backing {
        let out = match NextHop::decode(word) {
            NextHop::Forward(a) | NextHop::Resolve(a) => self.adjacency(a).interface,
            NextHop::Glean(interface) => interface,
            NextHop::Table(vrf) => return Backing::Table(vrf),
            NextHop::Unreachable => return Backing::Dead,
            _ => return Backing::No,
        };
        if interface.is_none_or(|i| i == out) { Backing::Yes } else { Backing::No }
    }
}

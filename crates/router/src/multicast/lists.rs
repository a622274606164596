//! Outgoing access lists for copies: each output's interface has its own list, which is asked about the packets of a run
//! that would leave by it.

use linerate_pipeline::meta::flags;
use linerate_pipeline::{BURST, Batch, DropReason, Packet};

use super::family::Family;
use super::node::MulticastExit;
use super::table::{Egress, Entry};
use crate::acl::{Direction, Filter, ListOf, PacketKey, Refused, Source};

/// Outputs that room is made for from the start; routes with more of them get it when they are met.
const OUTPUTS: usize = 256;

/// Why a list refuses a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refuse {
    Denied,
    Rejected,
    Undetermined,
}

impl Refuse {
    pub(super) const ALL: [Refuse; 3] = [Refuse::Denied, Refuse::Rejected, Refuse::Undetermined];

    /// The packets of a run that are refused like this.
    fn of(self, refused: &Refused) -> u64 {
        match self {
            Refuse::Denied => refused.denied,
            Refuse::Rejected => refused.rejected,
            Refuse::Undetermined => refused.undetermined,
        }
    }

    /// What a copy is counted as that is not made.
    pub(super) fn reason(self) -> DropReason {
        match self {
            Refuse::Denied => DropReason::AclOutDenied,
            Refuse::Rejected => DropReason::AclRejected,
            Refuse::Undetermined => DropReason::AclUndetermined,
        }
    }

    /// How a packet leaves that no list lets out.
    pub(super) fn exit(self) -> MulticastExit {
        match self {
            Refuse::Denied => MulticastExit::AclDenied,
            Refuse::Rejected => MulticastExit::AclRejected,
            Refuse::Undetermined => MulticastExit::AclUndetermined,
        }
    }
}

/// Asks the lists, and remembers the answer for one run.
pub(super) struct Lists<A: ListOf> {
    filter: Filter<A>,
    answers: Vec<Refused>,
}

impl<A: ListOf + PacketKey + Into<Source>> Lists<A> {
    pub(super) fn new(filter: Filter<A>) -> Self {
        Lists { filter, answers: Vec::with_capacity(OUTPUTS) }
    }

    /// Whether any interface has an outgoing list.
    #[inline(always)]
    pub(super) fn are_on(&mut self) -> bool {
        self.filter.is_on(Direction::Out)
    }

    /// Asks the list of each output about those packets of a run that have the hops for it. All outputs meet one state of
    /// the lists, unless it changes within the run.
    #[inline(never)]
    pub(super) fn ask<P: Packet, F: Family<Address = A>>(
        &mut self,
        now: u64,
        entry: &Entry,
        egress: &Egress,
        packets: &mut Batch<P>,
    ) -> Refusals<'_> {
        self.answers.clear();
        let mut hops = [0u8; BURST];
        for (hops, packet) in hops.iter_mut().zip(packets.iter()) {
            *hops = F::judge(packet).map_or(0, |stream| stream.ttl);
        }
        let n = packets.len();
        let mut any = false;
        for output in &entry.outputs {
            let mut refused = Refused::default();
            if egress.get(output.interface).is_some() {
                let with_hops =
                    hops.iter().take(n).enumerate().filter(|(_, h)| **h > output.threshold.max(1));
                let wanted = with_hops.fold(0, |bits, (i, _)| bits | 1 << i);
                refused = self.filter.ask(now, Direction::Out, packets, wanted, |_| output.interface, 0);
                // Another output may take what this one rejects, and no error is due.
                Refused::each(refused.rejected, |i| {
                    if let Some(packet) = packets.get_mut(i) {
                        packet.meta_mut().flags &= !flags::FILTERED;
                    }
                });
            }
            any |= refused != Refused::default();
            self.answers.push(refused);
        }
        Refusals(if any { &self.answers } else { &[] })
    }
}

/// Which packets of a run are refused by the lists of a route's outputs, in the order of those; empty: none by none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals<'a>(&'a [Refused]);

impl Refusals<'_> {
    /// Whether an output refuses the packets of a bit.
    #[inline(always)]
    pub(super) fn has(&self, output: usize, bit: u64) -> bool {
        self.0.get(output).is_some_and(|r| (r.denied | r.rejected | r.undetermined) & bit != 0)
    }

    /// Outputs that refuse the packet of a bit for this reason.
    pub(super) fn count(&self, why: Refuse, bit: u64) -> usize {
        self.0.iter().filter(|r| why.of(r) & bit != 0).count()
    }

    /// Whether each output says the same of all `packets` of the run.
    pub(super) fn are_uniform(&self, packets: usize) -> bool {
        let all = u64::MAX.checked_shr((BURST.saturating_sub(packets)) as u32).unwrap_or(0);
        let same = |r: &Refused| Refuse::ALL.iter().all(|why| matches!(why.of(r), 0) || why.of(r) == all);
        self.0.iter().all(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_outputs_say_of_all_packets_alike_is_told_from_the_rest() {
        let refused = |denied, rejected, undetermined| Refused { denied, rejected, undetermined };
        let none = Refused::default();
        assert!(Refusals::default().are_uniform(64) && Refusals::default().count(Refuse::Denied, 1) == 0);
        let all = [refused(0b111, 0, 0), none, refused(0, 0b111, 0), refused(0, 0, 0b111)];
        assert!(Refusals(&all).are_uniform(3) && !Refusals(&all).are_uniform(4));
        assert_eq!(Refuse::ALL.map(|why| Refusals(&all).count(why, 0b10)), [1, 1, 1]);
        assert_eq!([0, 1, 2, 3, 4].map(|o| Refusals(&all).has(o, 0b100)), [true, false, true, true, false]);
        assert!(Refusals(&[refused(u64::MAX, 0, 0)]).are_uniform(64));
        assert!(!Refusals(&[refused(0b011, 0b100, 0)]).are_uniform(3), "one is told, the others are not");
    }
}

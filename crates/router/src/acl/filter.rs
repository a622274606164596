//! Lists on the regular way: every packet, whatever it holds.

use std::net::IpAddr;

use linerate_pipeline::meta::flags;
use linerate_pipeline::{BURST, Batch, IfIndex, Packet};
use linerate_tables::classifier::{ActionId, Key, Workspace};
use linerate_tables::prefix::Prefix;

use super::key::{PacketKey, Undetermined};
use super::log::{AclHit, AclLog, Verdict};
use super::rule::AclAction;
use super::table::{Acls, Decision, Direction, ListOf};

/// Asks the lists for packets of one address family.
pub(crate) struct Filter<A: ListOf> {
    acls: Acls,
    log: AclLog,
    workspace: Workspace<A>,
    keys: Box<[Key<A>; BURST]>,
    /// Positions of the packets that the keys are of.
    packets: Box<[u8; BURST]>,
}

/// Packets of a batch that do not go on: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Denied silently.
    pub(crate) denied: u64,
    /// An ICMP error is due; it is noted in the metadata.
    pub(crate) rejected: u64,
    /// They hide what the list asks about.
    pub(crate) undetermined: u64,
}

impl Refused {
    /// The positions of a set of bits.
    pub(crate) fn each(mut bits: u64, mut f: impl FnMut(usize)) {
        while bits != 0 {
            f(bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

impl<A: ListOf + PacketKey + Into<Source>> Filter<A> {
    pub(crate) fn new(acls: Acls, log: AclLog) -> Self {
        let zero = Prefix::<A>::all().first();
        let keys = Box::new([Key::new(zero, zero, 0); BURST]);
        Filter { acls, log, workspace: Workspace::default(), keys, packets: Box::new([0; BURST]) }
    }

    /// Whether any list is bound that way.
    #[inline(always)]
    pub(crate) fn is_on(&mut self, direction: Direction) -> bool {
        let (table, _) = self.acls.get();
        match direction {
            Direction::In => table.filters_input(),
            Direction::Out => table.filters_output(),
        }
    }

    /// Asks the lists about the packets whose bits are set in `wanted`; `interface` says which one each goes by.
    /// `prohibited` is the ICMP error that rejected packets get.
    #[inline(never)]
    pub(crate) fn ask<P: Packet>(
        &mut self,
        now: u64,
        direction: Direction,
        batch: &mut Batch<P>,
        wanted: u64,
        interface: impl Fn(&P) -> IfIndex,
        prohibited: u16,
    ) -> Refused {
        let mut refused = Refused::default();
        let Filter { acls, log, workspace, keys, packets } = self;
        let (table, worker) = acls.get();
        let number = |packet: &P| table.bound(direction, interface(packet));
        let mut left = wanted;
        // One list after the other; nearly always there is one.
        while left != 0 {
            let Some(first) = batch.get(left.trailing_zeros() as usize) else { break };
            let bound = number(first);
            let (mut n, mut others) = (0, 0u64);
            Refused::each(left, |i| {
                let Some(packet) = batch.get(i) else { return };
                if number(packet) != bound {
                    others |= 1 << i;
                } else if bound.is_some() {
                    match A::key(packet) {
                        Ok(key) => {
                            (keys[n % BURST], packets[n % BURST]) = (key, i as u8);
                            n += 1;
                        }
                        Err(Undetermined) => refused.undetermined |= 1 << i,
                    }
                }
            });
            left = others;
            let Some((bound, list)) = bound.and_then(|number| Some((number, table.list(number)?))) else {
                continue;
            };
            let mut found: [ActionId; BURST] = [0; BURST];
            let keys = keys.get(..n).unwrap_or_default();
            workspace.lookup_batch(A::of(list), keys, &mut found);
            let row = list.row(worker);
            for (i, action) in packets.iter().zip(found).take(n) {
                let (i, decision) = (usize::from(*i), Decision::of(action));
                let Some(packet) = batch.get_mut(i) else { continue };
                row.add(decision, packet.len());
                if decision.log() {
                    let (generation, interface) = (table.generation(), interface(packet));
                    let verdict = Verdict { generation, list: bound, decision, direction, interface };
                    log.note(now, || AclHit::of::<A, P>(packet, verdict));
                }
                match decision.action() {
                    AclAction::Permit => {}
                    AclAction::Deny => refused.denied |= 1 << i,
                    AclAction::Reject => {
                        refused.rejected |= 1 << i;
                        let meta = packet.meta_mut();
                        meta.icmp = prohibited;
                        meta.flags |= flags::FILTERED;
                    }
                }
            }
        }
        refused
    }
}

/// An address of either family.
pub(crate) struct Source(pub(crate) IpAddr);

impl From<u32> for Source {
    fn from(a: u32) -> Self {
        Source(IpAddr::V4(a.into()))
    }
}

impl From<u128> for Source {
    fn from(a: u128) -> Self {
        Source(IpAddr::V6(a.into()))
    }
}

//! Samples of what rules with `log` match.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use linerate_pipeline::{IfIndex, Packet};
use linerate_tables::classifier::Key;

use super::filter::Source;
use super::key::PacketKey;
use super::rule::AclAction;
use super::table::{AclWriter, Decision, Direction};
use crate::event::RouterEvent;
use crate::nodes::{ErrorLimit, EventSink};

/// Samples that one worker takes per second at most.
pub const SAMPLES_PER_SECOND: u32 = 10;

/// Samples that are kept for views.
pub const KEPT: usize = 256;

/// A packet that a rule with `log` matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclHit {
    /// Which state of all lists it met.
    pub generation: u32,
    /// Number of the list.
    pub list: u16,
    /// The rule's place in it.
    pub rule: u32,
    /// What became of the packet.
    pub action: AclAction,
    /// Whether it came in or would have left.
    pub direction: Direction,
    /// By which interface.
    pub interface: IfIndex,
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source and destination port, where it has them.
    pub ports: Option<(u16, u16)>,
    /// Bytes, without FCS.
    pub bytes: u32,
}

/// One worker's way of telling control. Clones share the limit and the queue; they must not leave their worker.
#[derive(Clone)]
pub(crate) struct AclLog {
    limit: ErrorLimit,
    /// Locked by one worker alone, and no oftener than the limit allows.
    sink: Arc<Mutex<EventSink>>,
}

impl AclLog {
    pub(crate) fn new(sink: EventSink) -> Self {
        AclLog { limit: ErrorLimit::new(SAMPLES_PER_SECOND), sink: Arc::new(Mutex::new(sink)) }
    }

    /// Tells control of a packet, unless enough were told of lately.
    #[inline(never)]
    pub(crate) fn note(&self, now: u64, hit: impl FnOnce() -> Option<AclHit>) {
        if self.limit.allow(now)
            && let Some(hit) = hit()
            && let Ok(mut sink) = self.sink.try_lock()
        {
            sink(RouterEvent::AclHit(hit));
        }
    }
}

/// What a list decided, and where.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    pub(crate) generation: u32,
    pub(crate) list: u16,
    pub(crate) decision: Decision,
    pub(crate) direction: Direction,
    pub(crate) interface: IfIndex,
}

impl AclHit {
    /// Of a packet with a sound header.
    pub(crate) fn of<A: PacketKey + Into<Source>, P: Packet>(packet: &P, verdict: Verdict) -> Option<Self> {
        let key: Key<A> = A::key(packet).ok()?;
        let (src, dst): (Source, Source) = (key.src().into(), key.dst().into());
        Some(AclHit {
            generation: verdict.generation,
            list: verdict.list,
            rule: verdict.decision.rule() as u32,
            action: verdict.decision.action(),
            direction: verdict.direction,
            interface: verdict.interface,
            src: src.0,
            dst: dst.0,
            protocol: key.protocol(),
            ports: key.ports(),
            bytes: packet.len() as u32,
        })
    }
}

/// A sample with names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclLogEntry {
    /// Nanoseconds of the router's clock.
    pub at: u64,
    /// Name of the list.
    pub list: String,
    /// The rule as text.
    pub rule: String,
    /// The packet.
    pub hit: AclHit,
}

/// The last samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct AclLogBook(VecDeque<AclLogEntry>);

impl AclLogBook {
    /// Takes a sample in. One of lists that have been replaced since is forgotten: its numbers mean others now.
    pub(crate) fn add(&mut self, at: u64, hit: AclHit, lists: &AclWriter) {
        if let Some((list, rule)) = lists.names(&hit) {
            if self.0.len() == KEPT {
                self.0.pop_front();
            }
            self.0.push_back(AclLogEntry { at, list, rule, hit });
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &AclLogEntry> {
        self.0.iter()
    }
}

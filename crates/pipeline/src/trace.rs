//! Sampled packet trace: what each node saw of a packet and by which exit it left.
//!
//! The worker writes hops into a fixed buffer; the control side takes them out afterwards. With no trace armed the cost
//! is one test per batch and node.

use arrayvec::{ArrayString, ArrayVec};

use crate::PortId;

/// Most hops kept until they are taken.
pub const MAX_HOPS: usize = 512;

/// One packet at one node.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Which traced packet: 1, 2, 3 … since the process began, per worker.
    pub packet: u32,
    /// Time in nanoseconds (the worker's clock).
    pub time: u64,
    /// Index of the node in the graph's description.
    pub node: u16,
    /// Code of the exit taken at this node, or [`Hop::KEPT`].
    pub exit: u8,
    /// What the node had to say.
    pub text: ArrayString<120>,
}

impl Hop {
    /// In [`exit`](Self::exit): the node has no exits, the packet ended its way here (it was sent).
    pub const KEPT: u8 = u8::MAX;
}

/// Trace state of one graph.
#[derive(Debug, Default)]
pub struct Tracer {
    armed: u32,
    port: Option<PortId>,
    next: u32,
    hops: ArrayVec<Hop, MAX_HOPS>,
    /// Hops that found the buffer full.
    pub lost: u64,
}

impl Tracer {
    /// Traces the next `packets` received, on one port or on any.
    pub fn arm(&mut self, packets: u32, port: Option<PortId>) {
        self.armed = packets;
        self.port = port;
    }

    /// Whether packets are still to be picked.
    #[inline(always)]
    pub fn is_armed(&self) -> bool {
        self.armed > 0
    }

    /// The trace id for a packet just received by `port`: 0 where it is not picked.
    pub fn pick(&mut self, port: PortId) -> u32 {
        if self.armed == 0 || self.port.is_some_and(|p| p != port) {
            return 0;
        }
        self.armed -= 1;
        self.next = self.next.wrapping_add(1).max(1);
        self.next
    }

    /// Adds a hop; counts it as lost where the buffer is full.
    pub fn record(&mut self, hop: Hop) {
        if self.hops.try_push(hop).is_err() {
            self.lost += 1;
        }
    }

    /// Takes the hops recorded so far.
    pub fn take(&mut self) -> impl Iterator<Item = Hop> + '_ {
        self.hops.drain(..)
    }

    /// Whether there are hops to take.
    pub fn has_hops(&self) -> bool {
        !self.hops.is_empty()
    }
}

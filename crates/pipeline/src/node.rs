//! The node contract.
//!
//! A node is one file: an enum of its exits, a struct with its state, and [`Node::process`] over a batch. It decides
//! for each packet by which exit it leaves; where an exit leads is said in one place per product
//! (the router's is `graph.rs` in `linerate-router`), so that the same node serves several products.

use std::fmt;
use std::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::tx::TxBuffers;
use crate::{BURST, Batch, Packet, PacketAlloc, WorkerCounters};

/// The exits of a node, drops included: an enum made by [`exits!`](crate::exits).
pub trait Exit: Copy + 'static {
    /// All exits, in the order of their codes.
    const ALL: &'static [Self];
    /// The exit's code: its position in [`Self::ALL`].
    fn code(self) -> u8;
    /// The exit's name as the graph shows it.
    fn name(self) -> &'static str;
}

/// Declares a node's exits: an enum with documented variants that implements [`Exit`].
///
/// ```
/// linerate_pipeline::exits! {
///     /// Where packets go from `ttl_check`.
///     pub enum TtlExit {
///         /// Alive.
///         Pass,
///         /// TTL ran out.
///         Expired,
///     }
/// }
/// ```
#[macro_export]
macro_rules! exits {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $( $(#[$vmeta:meta])* $variant:ident ),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        $vis enum $name { $( $(#[$vmeta])* $variant, )+ }

        impl $crate::node::Exit for $name {
            const ALL: &'static [Self] = &[$($name::$variant),+];
            #[inline(always)]
            fn code(self) -> u8 {
                self as u8
            }
            fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)+ }
            }
        }
    };
}

/// The exits of a node that keeps every packet (an output): none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoExit {}

impl Exit for NoExit {
    const ALL: &'static [Self] = &[];
    fn code(self) -> u8 {
        match self {}
    }
    fn name(self) -> &'static str {
        match self {}
    }
}

/// A packet-processing step.
pub trait Node<P: Packet>: Send + 'static {
    /// Where packets can go from here.
    type Exit: Exit;

    /// Processes a batch of 1 to [`BURST`] packets.
    ///
    /// For each packet left in `batch` afterwards, `out.set(i, exit)` must have been called with its final position
    /// `i`. A node may take packets out of the batch (to send or to hold them); it then accounts for them
    /// ([`TxBuffers`] does, [`Cx::hold`] does).
    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Self::Exit>);

    /// Called now and then (at least every few milliseconds, also without traffic) for timers: released or
    /// timed-out packets leave by [`Exits::emit`].
    fn tick(&mut self, _cx: &mut Cx<'_, P>, _out: &mut Exits<'_, P, Self::Exit>) {}

    /// Whether [`tick`](Self::tick) has anything to do for this node: asked once, when the graph is built.
    fn wants_tick(&self) -> bool {
        false
    }

    /// Whether [`tick`](Self::tick) should run before the next batch enters the graph: for a node that has packets to
    /// let go which those of the batch must not overtake. Asked before every batch, so it must be cheap.
    fn is_due(&self, _now: u64) -> bool {
        false
    }

    /// Called once when the graph is taken out of service: packets still held are released and counted as
    /// [`DropReason::Shutdown`](crate::DropReason::Shutdown).
    fn stop(&mut self, _cx: &mut Cx<'_, P>) {}

    /// Writes what a packet trace should show of the packet at this node, in a few words.
    fn trace(&self, _packet: &P, _f: &mut dyn fmt::Write) -> fmt::Result {
        Ok(())
    }
}

/// What a node may use besides its own state.
pub struct Cx<'a, P> {
    /// Monotonic time in nanoseconds, read once per worker loop.
    pub now: u64,
    /// Time-stamp counter, for the graph's cycle accounting.
    pub cycles: fn() -> u64,
    /// The worker's counters.
    pub counters: &'a WorkerCounters,
    /// Where new packets come from.
    pub alloc: &'a mut dyn PacketAlloc<P>,
    /// The worker's transmit side.
    pub tx: &'a mut TxBuffers<P>,
}

impl<P: Packet> Cx<'_, P> {
    /// Accounts for a packet that a node keeps beyond this pass.
    pub fn hold(&self, packet: &P) {
        self.counters.port(packet.rx_port()).held.add(1);
    }

    /// Accounts for a packet that a node lets go again (it must be emitted).
    pub fn release(&self, packet: &P) {
        let held = &self.counters.port(packet.rx_port()).held;
        held.set(held.get().saturating_sub(1));
    }

    /// Accounts for a packet that a node made (its `rx_port` must be set: the port that it answers to).
    pub fn generated(&self, packet: &mut P) {
        packet.meta_mut().flags |= crate::meta::flags::GENERATED;
        self.counters.port(packet.rx_port()).generated.add(1);
    }
}

/// Exits chosen for a batch, untyped: the graph owns one and lends it to each node in turn.
pub struct ExitBuffer<P> {
    pub(crate) codes: [u8; BURST],
    pub(crate) emitted: ArrayVec<(P, u8), BURST>,
}

impl<P> Default for ExitBuffer<P> {
    fn default() -> Self {
        ExitBuffer { codes: [0; BURST], emitted: ArrayVec::new() }
    }
}

impl<P> ExitBuffer<P> {
    /// Whether the first `n` packets all leave by the exit of packet 0. Eight comparisons of eight codes each, whatever
    /// `n`: a loop over `n` bytes costs more than a small node.
    #[inline]
    pub(crate) fn all_take_the_first(&mut self, n: usize) -> bool {
        let first = self.codes[0];
        if let Some(rest) = self.codes.get_mut(n..) {
            rest.fill(first);
        }
        let wanted = u64::from_ne_bytes([first; 8]);
        let (eights, _) = self.codes.as_chunks::<8>();
        eights.iter().fold(0, |m, c| m | (u64::from_ne_bytes(*c) ^ wanted)) == 0
    }
}

/// Where a node writes its decisions.
pub struct Exits<'a, P, E> {
    buffer: &'a mut ExitBuffer<P>,
    exits: PhantomData<E>,
}

impl<'a, P: Packet, E: Exit> Exits<'a, P, E> {
    /// A typed view of the graph's buffer (also for node tests).
    pub fn new(buffer: &'a mut ExitBuffer<P>) -> Self {
        Exits { buffer, exits: PhantomData }
    }

    /// Packet `i` of the batch leaves by `exit`.
    #[inline(always)]
    pub fn set(&mut self, i: usize, exit: E) {
        self.buffer.codes[i % BURST] = exit.code();
    }

    /// By which exit packet `i` leaves, as far as that has been said.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Option<E> {
        E::ALL.get(usize::from(self.buffer.codes[i % BURST])).copied()
    }

    /// All packets of the batch leave by `exit`; single packets may be set differently afterwards.
    #[inline(always)]
    pub fn set_all(&mut self, exit: E) {
        self.buffer.codes = [exit.code(); BURST];
    }

    /// A packet that was not in the batch (made here, or held until now) leaves by `exit`. Gives the packet back
    /// where more than [`BURST`] are emitted in one call: the node keeps it for the next tick or drops it by name.
    pub fn emit(&mut self, packet: P, exit: E) -> Result<(), P> {
        self.buffer.emitted.try_push((packet, exit.code())).map_err(|full| full.element().0)
    }

    /// How many more packets [`emit`](Self::emit) takes in this call.
    pub fn room(&self) -> usize {
        self.buffer.emitted.remaining_capacity()
    }
}

/// The exits a node chose in a test: code per packet left in the batch, then the emitted packets.
#[derive(Debug)]
pub struct Outcome<P, E> {
    /// Each packet left in the batch with its exit.
    pub passed: Vec<(P, E)>,
    /// Each emitted packet with its exit.
    pub emitted: Vec<(P, E)>,
}

/// Runs one node over packets without a graph: the harness for node tests.
pub fn run_alone<P: Packet, N: Node<P>>(
    node: &mut N,
    cx: &mut Cx<'_, P>,
    packets: Vec<P>,
) -> Outcome<P, N::Exit> {
    let mut outcome = Outcome { passed: Vec::new(), emitted: Vec::new() };
    let mut rest = packets.into_iter().peekable();
    while rest.peek().is_some() {
        let mut batch: Batch<P> = rest.by_ref().take(BURST).collect();
        let mut buffer = ExitBuffer::default();
        node.process(cx, &mut batch, &mut Exits::new(&mut buffer));
        let exit = |code: u8| N::Exit::ALL[usize::from(code)];
        outcome.passed.extend(batch.drain(..).zip(buffer.codes).map(|(p, c)| (p, exit(c))));
        outcome.emitted.extend(buffer.emitted.drain(..).map(|(p, c)| (p, exit(c))));
    }
    outcome
}

/// Lets a node's timers run once in a test; returns what it emitted.
pub fn tick_alone<P: Packet, N: Node<P>>(node: &mut N, cx: &mut Cx<'_, P>) -> Vec<(P, N::Exit)> {
    let mut buffer = ExitBuffer::default();
    node.tick(cx, &mut Exits::new(&mut buffer));
    buffer.emitted.drain(..).map(|(p, c)| (p, N::Exit::ALL[usize::from(c)])).collect()
}

//! The graph: nodes joined exit by exit, run batch by batch.
//!
//! A product builds its graph in one function: declare the nodes in the order packets meet them, then define each with a
//! `match` from its exits to [`Join`]s. A forgotten exit does not compile; a forgotten node is a [`GraphError`].
//! [`Graph::describe`] tells names, exits and joins to `show graph` and to the picture in the docs.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::counters::NodeCounters;
use crate::node::{Cx, Exit, ExitBuffer, Exits, Node};
use crate::trace::{Hop, Tracer};
use crate::{BURST, Batch, DropReason, Packet};

/// Most nodes in a graph: the pending set is one machine word pair.
const MAX_NODES: usize = 128;

/// How many batches one pass may run before what is left counts as a loop.
const MAX_STEPS: usize = 2048;

/// Bursts that a node may let go before a batch enters: more than the packets a node of ours holds.
const MAX_DUE: usize = 32;

/// One pass in so many reads the time-stamp counter around each node; what it shows stands for all of them. Reading it
/// costs as much as a node spends on several packets.
const TIMED: u32 = 8;

/// Packets that may wait in front of a node beyond one batch. A pass starts with one burst, so only generated packets
/// get there.
const BACKLOG: usize = 256;

/// A node declared in a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef(usize);

/// Where an exit leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// To another node.
    To(NodeRef),
    /// The packet is dropped and counted.
    Drop(DropReason),
}

impl From<NodeRef> for Join {
    fn from(node: NodeRef) -> Self {
        Join::To(node)
    }
}

impl From<DropReason> for Join {
    fn from(reason: DropReason) -> Self {
        Join::Drop(reason)
    }
}

/// Why a graph could not be built.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GraphError {
    /// Declared, but [`GraphBuilder::define`] was not called for it.
    #[error("graph node `{0}` is declared but not defined")]
    Undefined(&'static str),
    /// Too many nodes.
    #[error("a graph can have at most {MAX_NODES} nodes")]
    TooManyNodes,
    /// No node at all.
    #[error("a graph needs at least one node")]
    Empty,
}

/// Puts a graph together.
pub struct GraphBuilder<P: Packet> {
    nodes: Vec<(&'static str, Option<Defined<P>>)>,
    traced_entry: usize,
}

struct Defined<P: Packet> {
    node: Box<dyn AnyNode<P>>,
    joins: Vec<Join>,
    exits: Vec<&'static str>,
}

impl<P: Packet> Default for GraphBuilder<P> {
    fn default() -> Self {
        GraphBuilder { nodes: Vec::new(), traced_entry: 0 }
    }
}

impl<P: Packet> GraphBuilder<P> {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces a node. Nodes run in the order of declaration: declare them in the order packets meet them. The
    /// first one is where received packets enter.
    pub fn declare(&mut self, name: &'static str) -> NodeRef {
        self.nodes.push((name, None));
        NodeRef(self.nodes.len() - 1)
    }

    /// Says what a declared node is and where each of its exits leads.
    pub fn define<N: Node<P>>(&mut self, at: NodeRef, node: N, join: impl Fn(N::Exit) -> Join) {
        let joins = N::Exit::ALL.iter().map(|e| join(*e)).collect();
        let exits = N::Exit::ALL.iter().map(|e| e.name()).collect();
        self.nodes[at.0].1 = Some(Defined { node: Box::new(node), joins, exits });
    }

    /// Bursts that packets are traced of enter here instead of at the first node: past a node that does in one step what
    /// a trace should show step by step.
    pub fn enter_traced_at(&mut self, node: NodeRef) {
        self.traced_entry = node.0;
    }

    /// The finished graph.
    pub fn build(self) -> Result<Graph<P>, GraphError> {
        if self.nodes.is_empty() {
            return Err(GraphError::Empty);
        }
        if self.nodes.len() > MAX_NODES {
            return Err(GraphError::TooManyNodes);
        }
        let counters = self.nodes.iter().map(|_| NodeCounters::default()).collect::<Arc<[_]>>();
        let (mut slots, mut tickers) = (Vec::new(), Vec::new());
        let mut nodes = Vec::new();
        let names: Vec<_> = self.nodes.iter().map(|n| n.0).collect();
        for (name, defined) in self.nodes {
            let Defined { node, joins, exits } = defined.ok_or(GraphError::Undefined(name))?;
            let exits = exits
                .into_iter()
                .zip(&joins)
                .map(|(name, join)| ExitDescription {
                    name,
                    leads_to: match join {
                        Join::To(n) => Target::Node(names[n.0]),
                        Join::Drop(r) => Target::Drop(*r),
                    },
                })
                .collect();
            nodes.push(NodeDescription { name, exits });
            if node.wants_tick() {
                tickers.push(slots.len());
            }
            slots.push(Slot {
                node,
                joins,
                input: Box::default(),
                backlog: VecDeque::with_capacity(BACKLOG),
            });
        }
        Ok(Graph {
            slots,
            tickers,
            pending: 0,
            spare: Some(Box::default()),
            exits: ExitBuffer::default(),
            dropped: Box::default(),
            counters,
            description: Arc::new(GraphDescription { nodes }),
            tracer: Tracer::default(),
            traced_entry: self.traced_entry,
            tracing: false,
            passes: 0,
        })
    }
}

/// What a graph consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphDescription {
    /// Nodes in the order they run.
    pub nodes: Vec<NodeDescription>,
}

/// One node of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescription {
    /// The node's name.
    pub name: &'static str,
    /// Its exits, in the order of their codes.
    pub exits: Vec<ExitDescription>,
}

/// One exit of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitDescription {
    /// The exit's name.
    pub name: &'static str,
    /// Where it leads.
    pub leads_to: Target,
}

/// Where an exit of a description leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the node of this name.
    Node(&'static str),
    /// Dropped for this reason.
    Drop(DropReason),
}

impl GraphDescription {
    /// The graph in the DOT language: nodes as boxes, drops left out.
    pub fn dot(&self) -> String {
        let mut s =
            String::from("digraph linerate {\n  rankdir=LR;\n  node [shape=box, fontname=\"monospace\"];\n");
        for n in &self.nodes {
            let _ = writeln!(s, "  {};", n.name);
            for e in &n.exits {
                if let Target::Node(to) = e.leads_to {
                    let _ = writeln!(s, "  {} -> {} [label=\"{}\"];", n.name, to, e.name);
                }
            }
        }
        s.push_str("}\n");
        s
    }
}

/// A graph, owned by one worker.
pub struct Graph<P: Packet> {
    slots: Vec<Slot<P>>,
    /// Nodes with timers.
    tickers: Vec<usize>,
    /// Bit per node with packets waiting.
    pending: u128,
    /// The batch that is being processed changes places with this one.
    spare: Option<Box<Batch<P>>>,
    exits: ExitBuffer<P>,
    dropped: Box<Batch<P>>,
    counters: Arc<[NodeCounters]>,
    description: Arc<GraphDescription>,
    tracer: Tracer,
    /// Index of the node where bursts with traced packets enter.
    traced_entry: usize,
    /// Whether any packet in flight is traced.
    tracing: bool,
    /// Passes so far, to time some of them.
    passes: u32,
}

struct Slot<P: Packet> {
    node: Box<dyn AnyNode<P>>,
    joins: Vec<Join>,
    input: Box<Batch<P>>,
    backlog: VecDeque<P>,
}

/// The one dynamic call per node and batch.
trait AnyNode<P: Packet>: Send {
    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, exits: &mut ExitBuffer<P>);
    fn tick(&mut self, cx: &mut Cx<'_, P>, exits: &mut ExitBuffer<P>);
    fn wants_tick(&self) -> bool;
    fn is_due(&self, now: u64) -> bool;
    fn stop(&mut self, cx: &mut Cx<'_, P>);
    fn trace(&self, packet: &P, f: &mut dyn std::fmt::Write) -> std::fmt::Result;
}

impl<P: Packet, N: Node<P>> AnyNode<P> for N {
    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, exits: &mut ExitBuffer<P>) {
        Node::process(self, cx, batch, &mut Exits::new(exits));
    }
    fn tick(&mut self, cx: &mut Cx<'_, P>, exits: &mut ExitBuffer<P>) {
        Node::tick(self, cx, &mut Exits::new(exits));
    }
    fn wants_tick(&self) -> bool {
        Node::wants_tick(self)
    }
    fn is_due(&self, now: u64) -> bool {
        Node::is_due(self, now)
    }
    fn stop(&mut self, cx: &mut Cx<'_, P>) {
        Node::stop(self, cx);
    }
    fn trace(&self, packet: &P, f: &mut dyn std::fmt::Write) -> std::fmt::Result {
        Node::trace(self, packet, f)
    }
}

impl<P: Packet> Graph<P> {
    /// What the graph consists of.
    pub fn describe(&self) -> Arc<GraphDescription> {
        self.description.clone()
    }

    /// Counters by node, in the order of the description.
    pub fn counters(&self) -> Arc<[NodeCounters]> {
        self.counters.clone()
    }

    /// The packet trace.
    pub fn tracer(&mut self) -> &mut Tracer {
        &mut self.tracer
    }

    /// Takes a received batch through the graph until every packet has left it. `batch` is empty afterwards (it is
    /// boxed because it changes places with the first node's empty input: no packet pointer is copied).
    #[inline]
    pub fn run(&mut self, cx: &mut Cx<'_, P>, batch: &mut Box<Batch<P>>) {
        for at in 0..self.tickers.len() {
            let i = self.tickers[at];
            if self.slots[i].node.is_due(cx.now) {
                self.let_go(i, cx);
            }
        }
        if self.tracer.is_armed() {
            for p in batch.iter_mut() {
                let id = self.tracer.pick(p.rx_port());
                p.set_trace_id(id);
                self.tracing |= id != 0;
            }
        }
        let entry = if self.tracing { self.traced_entry } else { 0 };
        std::mem::swap(&mut self.slots[entry].input, batch);
        self.pending |= 1 << entry;
        self.drain(cx);
    }

    /// Lets nodes with timers run, and takes what they emit through the graph.
    pub fn tick(&mut self, cx: &mut Cx<'_, P>) {
        for at in 0..self.tickers.len() {
            let i = self.tickers[at];
            self.slots[i].node.tick(cx, &mut self.exits);
            self.tracing |= self.exits.emitted.iter().any(|(p, _)| p.trace_id() != 0);
            self.dispatch_emitted(i, cx);
        }
        self.drain(cx);
    }

    /// Lets a node's packets go before a batch enters: a burst at a time, so many times at most that a node which always
    /// has something due cannot hold up the worker.
    #[cold]
    fn let_go(&mut self, i: usize, cx: &mut Cx<'_, P>) {
        for _ in 0..MAX_DUE {
            self.slots[i].node.tick(cx, &mut self.exits);
            self.tracing |= self.exits.emitted.iter().any(|(p, _)| p.trace_id() != 0);
            self.dispatch_emitted(i, cx);
            self.drain(cx);
            if !self.slots[i].node.is_due(cx.now) {
                return;
            }
        }
    }

    /// Takes the graph out of service: nodes let go of what they hold, each packet counted as
    /// [`DropReason::Shutdown`].
    pub fn stop(&mut self, cx: &mut Cx<'_, P>) {
        self.slots.iter_mut().for_each(|s| s.node.stop(cx));
    }

    fn drain(&mut self, cx: &mut Cx<'_, P>) {
        let mut steps = 0;
        self.passes = self.passes.wrapping_add(1);
        let timed = self.passes.is_multiple_of(TIMED);
        let mut before = if timed { (cx.cycles)() } else { 0 };
        while self.pending != 0 {
            let i = self.pending.trailing_zeros() as usize;
            let mut work = self.spare.take().unwrap_or_default();
            std::mem::swap(&mut self.slots[i].input, &mut work);
            self.refill(i);
            steps += 1;
            if steps > MAX_STEPS {
                self.drop_batch(&mut work, DropReason::GraphLoop, cx);
                self.spare = Some(work);
                continue;
            }
            let n = work.len() as u64;
            if self.tracing && self.slots[i].joins.is_empty() {
                // Nothing will be left of the batch afterwards.
                self.exits.codes = [Hop::KEPT; BURST];
                self.trace(i, &work, cx.now);
            }
            self.slots[i].node.process(cx, &mut work, &mut self.exits);
            if self.tracing {
                self.trace(i, &work, cx.now);
            }
            self.dispatch(i, &mut work, cx);
            self.spare = Some(work);
            let c = &self.counters[i];
            c.packets.add(n);
            c.batches.add(1);
            if timed {
                let after = (cx.cycles)();
                c.cycles.add(after.wrapping_sub(before).wrapping_mul(u64::from(TIMED)));
                before = after;
            }
        }
        self.tracing = false;
    }

    /// Moves waiting packets into the input that was just taken, and keeps the pending bit right.
    fn refill(&mut self, i: usize) {
        let slot = &mut self.slots[i];
        while !slot.input.is_full() {
            let Some(p) = slot.backlog.pop_front() else { break };
            slot.input.push(p);
        }
        if slot.input.is_empty() {
            self.pending &= !(1 << i);
        }
    }

    fn dispatch(&mut self, from: usize, work: &mut Box<Batch<P>>, cx: &mut Cx<'_, P>) {
        let n = work.len();
        if n > 0 {
            let first = self.exits.codes[0];
            if !self.exits.all_take_the_first(n) {
                for (k, p) in work.drain(..).enumerate() {
                    let join = self.slots[from].joins[usize::from(self.exits.codes[k])];
                    Self::pass(&mut self.slots, &mut self.pending, &mut self.dropped, join, p, cx);
                }
            } else {
                match self.slots[from].joins[usize::from(first)] {
                    Join::Drop(reason) => self.drop_batch(work, reason, cx),
                    Join::To(NodeRef(to)) if self.slots[to].input.is_empty() => {
                        std::mem::swap(&mut self.slots[to].input, work);
                        self.pending |= 1 << to;
                    }
                    join => work.drain(..).for_each(|p| {
                        Self::pass(&mut self.slots, &mut self.pending, &mut self.dropped, join, p, cx);
                    }),
                }
            }
        }
        if !self.exits.emitted.is_empty() {
            self.dispatch_emitted(from, cx);
        }
        if !self.dropped.is_empty() {
            P::free_bulk(&mut self.dropped);
        }
    }

    fn dispatch_emitted(&mut self, from: usize, cx: &mut Cx<'_, P>) {
        for (p, code) in self.exits.emitted.drain(..) {
            let join = self.slots[from].joins[usize::from(code)];
            Self::pass(&mut self.slots, &mut self.pending, &mut self.dropped, join, p, cx);
        }
        P::free_bulk(&mut self.dropped);
    }

    /// Moves one packet to where a join leads.
    #[inline]
    fn pass(
        slots: &mut [Slot<P>],
        pending: &mut u128,
        dropped: &mut Batch<P>,
        join: Join,
        packet: P,
        cx: &Cx<'_, P>,
    ) {
        let reason = match join {
            Join::To(NodeRef(to)) => {
                let slot = &mut slots[to];
                *pending |= 1 << to;
                if slot.backlog.is_empty() && !slot.input.is_full() {
                    return slot.input.push(packet);
                }
                if slot.backlog.len() < BACKLOG {
                    return slot.backlog.push_back(packet);
                }
                (DropReason::GraphOverflow, packet)
            }
            Join::Drop(reason) => (reason, packet),
        };
        cx.counters.dropped(reason.1.rx_port(), reason.0, 1);
        if dropped.is_full() {
            P::free_bulk(dropped);
        }
        dropped.push(reason.1);
    }

    fn drop_batch(&self, batch: &mut Batch<P>, reason: DropReason, cx: &Cx<'_, P>) {
        batch.iter().for_each(|p| cx.counters.dropped(p.rx_port(), reason, 1));
        P::free_bulk(batch);
    }

    #[cold]
    fn trace(&mut self, i: usize, work: &Batch<P>, now: u64) {
        let seen = work.iter().zip(self.exits.codes);
        let emitted = self.exits.emitted.iter().map(|(p, c)| (p, *c));
        for (p, code) in seen.chain(emitted).filter(|(p, _)| p.trace_id() != 0) {
            let mut text = arrayvec::ArrayString::new();
            let _ = self.slots[i].node.trace(p, &mut text);
            self.tracer.record(Hop { packet: p.trace_id(), time: now, node: i as u16, exit: code, text });
        }
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;

//! Packets that wait for a neighbour's MAC address: held, asked for, released in order or given up.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use linerate_pipeline::interface::MAX_INTERFACES;
use linerate_pipeline::{Batch, Cx, DropReason, Exits, IfIndex, Node, Packet};
use linerate_tables::fib::Lookup;
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::Ip6Header;
use linerate_wire::{Header, eth, icmp, icmpv6};

use super::lookup::{NO_ADJACENCY, Tables, icmp_error};
use super::{EventSink, ip4_input, ip6_input, solicit};
use crate::event::{Probe, RouterEvent};
use crate::plane::{NextHop, Plane};

linerate_pipeline::exits! {
    /// Where packets go from `resolve`.
    pub enum ResolveExit {
        /// Look an IPv4 packet up again.
        Lookup4,
        /// Look an IPv6 packet up again.
        Lookup6,
        /// The neighbour did not answer (IPv4); `Meta::icmp` says so.
        Unreachable4,
        /// The neighbour did not answer (IPv6); `Meta::icmp` says so.
        Unreachable6,
        /// Enough packets wait for this neighbour already. The ones that wait stay: the first of a flow is not lost.
        QueueFull,
        /// The worker's space for waiting packets, or for neighbours to wait for, is used up.
        TableFull,
        /// The adjacency is no longer there.
        AdjacencyGone,
    }
}

/// Most packets that wait for one neighbour.
pub const PER_NEIGHBOR: usize = 32;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Neighbours, on one worker.
    pub neighbors: usize,
    /// Packets for all of them together, on one worker.
    pub packets: usize,
}

impl Default for HoldLimits {
    fn default() -> Self {
        HoldLimits { neighbors: 512, packets: 1024 }
    }
}

/// Time after which control is told again, in nanoseconds: between two questions for the same neighbour (RFC 1122
/// 2.3.2.1, RFC 4861 RETRANS_TIMER).
pub const RETRY: u64 = 1_000_000_000;

/// Nanoseconds per waiting neighbour between two looks out of turn: some ten times what a look takes, so that changes of
/// routes that never end cannot keep a worker busy with looking.
const REST: u64 = 1000;

/// How many such times packets wait for a neighbour that control says nothing about (RFC 4861 MAX_MULTICAST_SOLICIT).
pub const TRIES: u32 = 3;

/// Holds packets by neighbour and tells control ([`RouterEvent::Unresolved`]), which asks for the neighbour until it
/// answers or is given up. Only the first question for a neighbour on the link goes out from here, at once, where no
/// worker has asked for it within a second. When tables change, looks whether packets may go; those that may go before
/// any that come in later. All memory is taken when the node is made.
pub struct Resolve<P, R4, R6> {
    plane: Plane<R4, R6>,
    seed: u64,
    events: EventSink,
    limits: HoldLimits,
    waiting: Waiting<P>,
    /// Destinations on links among them, which make room for others.
    gleans: Gleans,
    held: usize,
    /// Whether packets whose fate is decided are still here.
    leaving: bool,
    /// Generation of the tables at the last look, and when that was.
    generation: u64,
    looked_at: u64,
}

/// A neighbour: where it should be, and its address.
type Key = (IfIndex, IpAddr);

/// Keyed without random state: the table is small and its size bounded, so collisions cannot hurt.
type Waiting<P> = HashMap<Key, Queue<P>, BuildHasherDefault<DefaultHasher>>;

struct Queue<P> {
    packets: ArrayVec<P, PER_NEIGHBOR>,
    told_at: u64,
    tries: u32,
    /// Where the packets go, once that is decided.
    fate: Option<Fate>,
    /// Tells one stay of a destination on a link from another; 0: a gateway's.
    stamp: u64,
}

/// Destinations on links that wait, in the order in which they came. A scan of a network may not keep others from being
/// asked for: where all places are taken, one of the interface that has most gives way to the next.
struct Gleans {
    order: VecDeque<(Key, u64)>,
    /// How many wait by interface.
    counts: Vec<u16>,
    /// When the questions that may go out by each interface will be all there again, as in [`super::ErrorLimit`].
    questions: Vec<u64>,
    stamp: u64,
    most: usize,
}

/// Nanoseconds per question that goes out by an interface from here, and how many may go at once: what is asked for by
/// packets is bounded, however many addresses somebody tries.
const QUESTION: u64 = 1_000_000;
const QUESTIONS: u64 = 256;

impl Gleans {
    fn new(places: usize) -> Self {
        Gleans {
            order: VecDeque::with_capacity(2 * places + 2),
            counts: vec![0; MAX_INTERFACES],
            questions: vec![0; MAX_INTERFACES],
            stamp: 0,
            most: places,
        }
    }

    /// Nothing waits any more.
    fn clear(&mut self) {
        self.order.clear();
        self.counts.fill(0);
    }

    fn count(&self, interface: IfIndex) -> usize {
        self.counts.get(usize::from(interface)).copied().map_or(0, usize::from)
    }

    /// One more, which gets this stamp.
    fn add<P>(&mut self, key: Key, waiting: &Waiting<P>) -> u64 {
        if self.order.len() > 2 * self.most {
            self.order.retain(|(key, stamp)| waiting.get(key).is_some_and(|q| q.stamp == *stamp));
        }
        self.stamp += 1;
        self.order.push_back((key, self.stamp));
        if let Some(count) = self.counts.get_mut(usize::from(key.0)) {
            *count += 1;
        }
        self.stamp
    }

    fn removed(&mut self, interface: IfIndex) {
        if let Some(count) = self.counts.get_mut(usize::from(interface)) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whose place a new one takes: the oldest one that a single packet waits for, as a scan leaves them, else the oldest.
    fn victim<P>(&mut self, new: Option<IfIndex>, waiting: &Waiting<P>) -> Option<Key> {
        let packets = |(key, stamp): &(Key, u64)| {
            let queue = waiting.get(key).filter(|q| q.stamp == *stamp && q.fate.is_none());
            queue.map_or(0, |q| q.packets.len())
        };
        while self.order.front().is_some_and(|first| packets(first) == 0) {
            self.order.pop_front();
        }
        let gives_way = |entry: &&(Key, u64)| {
            let its = entry.0.0;
            new.is_none_or(|i| i == its || self.count(its) > self.count(i))
        };
        let all = || self.order.iter().filter(gives_way);
        let found = all().find(|e| packets(e) == 1).or_else(|| all().find(|e| packets(e) > 0));
        found.map(|entry| entry.0)
    }

    /// Takes one question of those that may go out by an interface.
    fn may_ask(&mut self, now: u64, interface: IfIndex) -> bool {
        let Some(full_at) = self.questions.get_mut(usize::from(interface)) else { return false };
        let then = (*full_at).max(now);
        let allowed = then - now <= QUESTION * (QUESTIONS - 1);
        if allowed {
            *full_at = then + QUESTION;
        }
        allowed
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    LookUp,
    GiveUp,
}

impl<P: Packet, R4: Lookup<u32>, R6: Lookup<u128>> Resolve<P, R4, R6> {
    /// A node that reads these tables; `seed` is the lookup nodes' one.
    pub fn new(plane: Plane<R4, R6>, seed: u64, limits: HoldLimits, events: EventSink) -> Self {
        let generation = plane.next_hops.generation();
        // With room for twice as many the map clears away the marks of what was removed in place, instead of growing.
        let waiting = HashMap::with_capacity_and_hasher(2 * limits.neighbors, BuildHasherDefault::default());
        let gleans = Gleans::new(limits.neighbors);
        let (held, leaving, looked_at) = (0, false, 0);
        Resolve { plane, seed, events, limits, waiting, gleans, held, leaving, generation, looked_at }
    }

    /// The neighbour that the lookup found missing.
    fn key(&self, packet: &P) -> Option<Key> {
        let meta = packet.meta();
        if on_link(packet) {
            return Some((meta.tx_if, destination(packet)?));
        }
        let ip = self.plane.next_hops.next_hop_ip(meta.adjacency)?;
        Some((self.plane.next_hops.adjacency(meta.adjacency).interface, ip))
    }

    /// Takes the packet in, or says why not and gives it back.
    fn hold(&mut self, cx: &mut Cx<'_, P>, packet: P) -> Result<(), (P, ResolveExit)> {
        let Some(key) = self.key(&packet) else { return Err((packet, ResolveExit::AdjacencyGone)) };
        let new = !self.waiting.contains_key(&key);
        let glean = on_link(&packet).then_some(key.0);
        if self.held >= self.limits.packets {
            // No room to wait, but whoever comes again shall find the neighbour known.
            if new && glean.is_some() && self.ask(cx, key) {
                let (interface, address) = key;
                (self.events)(RouterEvent::Unresolved { interface, address, asked: true });
            }
            return Err((packet, ResolveExit::TableFull));
        }
        if new && self.waiting.len() >= self.limits.neighbors && !self.make_room(cx, glean) {
            return Err((packet, ResolveExit::TableFull));
        }
        if let Some(queue) = self.waiting.get_mut(&key) {
            let rx_port = packet.rx_port();
            queue.packets.try_push(packet).map_err(|full| (full.element(), ResolveExit::QueueFull))?;
            cx.counters.port(rx_port).held.add(1);
        } else {
            cx.hold(&packet);
            let on_link = on_link(&packet);
            let stamp = if on_link { self.gleans.add(key, &self.waiting) } else { 0 };
            // Control knows the neighbour that an adjacency waits for, and is asking for it.
            let asked = on_link && self.ask(cx, key);
            let mut packets = ArrayVec::new();
            packets.push(packet);
            self.waiting.insert(key, Queue { packets, told_at: cx.now, tries: 1, fate: None, stamp });
            let (interface, address) = key;
            (self.events)(RouterEvent::Unresolved { interface, address, asked });
        }
        self.held += 1;
        Ok(())
    }

    /// Gives up a place for a new neighbour: a destination on a link that is nobody's gateway, on this interface (`glean`) or
    /// one that has more of them; gateways (`None`) may take any such place. `false` where there is none.
    fn make_room(&mut self, cx: &mut Cx<'_, P>, glean: Option<IfIndex>) -> bool {
        let Some(victim) = self.gleans.victim(glean, &self.waiting) else { return false };
        let Some(queue) = self.waiting.remove(&victim) else { return false };
        self.gleans.removed(victim.0);
        for packet in queue.packets {
            cx.release(&packet);
            self.held -= 1;
            cx.counters.dropped(packet.rx_port(), DropReason::NeighborTableFull, 1);
        }
        true
    }

    /// Whether the neighbour has been asked for, by this worker now or by another one within a second.
    fn ask(&mut self, cx: &mut Cx<'_, P>, (interface, address): Key) -> bool {
        let Plane { interfaces, next_hops, .. } = &mut self.plane;
        if !self.gleans.may_ask(cx.now, interface) {
            return false;
        }
        !next_hops.may_ask(cx.now, interface, address)
            || solicit::send(cx, interfaces.get(), next_hops, &Probe { interface, address, unicast: None })
    }

    /// Whether the packet would have to wait for this neighbour if it came now.
    fn must_wait(plane: &mut Plane<R4, R6>, seed: u64, packet: &P, key: &Key) -> bool {
        let Some(destination) = destination(packet) else { return false };
        let (vrf, next_hops) = (packet.meta().vrf, &plane.next_hops);
        let (next_hop, _) = match destination {
            IpAddr::V4(a) => {
                let tables = Tables { vrfs: plane.vrfs4.get(), next_hops };
                tables.follow(vrf, a.to_bits(), ip4_input::flow_hash(packet, seed))
            }
            IpAddr::V6(a) => {
                let tables = Tables { vrfs: plane.vrfs6.get(), next_hops };
                tables.follow(vrf, a.to_bits(), ip6_input::flow_hash(packet, seed))
            }
        };
        match next_hop {
            NextHop::Glean(interface) => *key == (interface, destination),
            NextHop::Resolve(a) => plane.next_hops.next_hop_ip(a) == Some(key.1),
            _ => false,
        }
    }

    /// Lets packets go whose fate is decided, as many as the exits take.
    fn release(&mut self, cx: &Cx<'_, P>, out: &mut Exits<'_, P, ResolveExit>) {
        let (held, leaving, gleans) = (&mut self.held, &mut self.leaving, &mut self.gleans);
        *leaving = false;
        self.waiting.retain(|key, queue| {
            let Some(fate) = queue.fate else { return true };
            let n = queue.packets.len().min(out.room());
            for mut packet in queue.packets.drain(..n) {
                cx.release(&packet);
                *held -= 1;
                let exit = leave(&mut packet, fate);
                // There is room: it was counted.
                if let Err(packet) = out.emit(packet, exit) {
                    cx.counters.dropped(packet.rx_port(), DropReason::GraphOverflow, 1);
                }
            }
            *leaving |= !queue.packets.is_empty();
            if queue.packets.is_empty() && queue.stamp != 0 {
                gleans.removed(key.0);
            }
            !queue.packets.is_empty()
        });
    }
}

/// Sets what the exit promises.
fn leave<P: Packet>(packet: &mut P, fate: Fate) -> ResolveExit {
    let is_ip4 = packet.meta().ethertype == eth::ETHERTYPE_IP4;
    match (fate, is_ip4) {
        (Fate::LookUp, true) => ResolveExit::Lookup4,
        (Fate::LookUp, false) => ResolveExit::Lookup6,
        (Fate::GiveUp, true) => {
            packet.meta_mut().icmp = icmp_error(icmp::UNREACHABLE, icmp::unreachable::HOST);
            ResolveExit::Unreachable4
        }
        (Fate::GiveUp, false) => {
            packet.meta_mut().icmp = icmp_error(icmpv6::UNREACHABLE, icmpv6::unreachable::ADDRESS);
            ResolveExit::Unreachable6
        }
    }
}

/// Whether the destination itself is the neighbour.
fn on_link<P: Packet>(packet: &P) -> bool {
    packet.meta().adjacency == NO_ADJACENCY
}

fn destination<P: Packet>(packet: &P) -> Option<IpAddr> {
    let (head, l3) = (packet.head(), usize::from(packet.meta().l3));
    Some(match packet.meta().ethertype {
        eth::ETHERTYPE_IP4 => Ipv4Addr::from_bits(Ip4Header::view_at(head, l3)?.dst.get()).into(),
        _ => Ipv6Addr::from(Ip6Header::view_at(head, l3)?.dst).into(),
    })
}

impl<P, R4, R6> Node<P> for Resolve<P, R4, R6>
where
    P: Packet,
    R4: Lookup<u32> + 'static,
    R6: Lookup<u128> + 'static,
{
    type Exit = ResolveExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, ResolveExit>) {
        for packet in std::mem::take(batch) {
            if let Err((packet, exit)) = self.hold(cx, packet) {
                out.set(batch.len(), exit);
                batch.push(packet);
            }
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, P>, out: &mut Exits<'_, P, ResolveExit>) {
        // Whether there is anything to do or not: nothing that was replaced stays in memory because of this node.
        self.plane.vrfs4.get();
        self.plane.vrfs6.get();
        if self.waiting.is_empty() {
            return;
        }
        let generation = self.plane.next_hops.generation();
        let changed = std::mem::replace(&mut self.generation, generation) != generation;
        self.looked_at = cx.now;
        for (key, queue) in self.waiting.iter_mut().filter(|(_, q)| q.fate.is_none()) {
            let Some(first) = queue.packets.first() else { continue };
            if changed && !Self::must_wait(&mut self.plane, self.seed, first, key) {
                queue.fate = Some(Fate::LookUp);
            } else if cx.now.saturating_sub(queue.told_at) >= RETRY {
                if queue.tries >= TRIES {
                    queue.fate = Some(Fate::GiveUp);
                } else {
                    (queue.told_at, queue.tries) = (cx.now, queue.tries + 1);
                    let (interface, address) = *key;
                    // The first event may have been lost.
                    (self.events)(RouterEvent::Unresolved { interface, address, asked: false });
                }
            }
        }
        self.release(cx, out);
    }

    fn is_due(&self, now: u64) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let rested = now.saturating_sub(self.looked_at) >= REST * self.waiting.len() as u64;
        self.leaving || rested && self.plane.next_hops.generation() != self.generation
    }

    fn wants_tick(&self) -> bool {
        true
    }

    fn stop(&mut self, cx: &mut Cx<'_, P>) {
        for packet in self.waiting.drain().flat_map(|(_, queue)| queue.packets) {
            cx.release(&packet);
            cx.counters.dropped(packet.rx_port(), DropReason::Shutdown, 1);
        }
        self.held = 0;
        self.gleans.clear();
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        match self.key(packet) {
            Some((interface, address)) => write!(f, "{address} on interface {interface}"),
            None => f.write_str("no neighbour"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive::NaiveFib;
    use crate::neighbor::NeighborOptions;
    use linerate_pipeline::HeapPacket;
    use linerate_tables::qsbr::Domain;

    /// A long scan: neighbours come and go, and the worker never asks for memory.
    #[test]
    fn the_table_of_waiting_neighbours_never_grows() {
        let (fib4, fib6) = (NaiveFib::default(), NaiveFib::default());
        let router = crate::Router::new(Domain::new(), fib4, fib6, NeighborOptions::default()).unwrap();
        let limits = HoldLimits::default();
        let mut node: Resolve<HeapPacket, _, _> = Resolve::new(router.plane(), 1, limits, Box::new(|_| ()));
        let room = node.waiting.capacity();
        let key = |n: u32| (1, IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        for n in 0..200_000 {
            let queue = Queue { packets: ArrayVec::new(), told_at: 0, tries: 1, fate: None, stamp: 0 };
            node.waiting.insert(key(n), queue);
            // One leaves before the next comes, at times all of them.
            if node.waiting.len() >= limits.neighbors {
                node.waiting.remove(&key(n + 1 - limits.neighbors as u32));
            }
            if n % 10_007 == 0 {
                node.waiting.retain(|k, _| *k == key(n));
            }
            assert!(node.waiting.capacity() <= room, "after {n}");
        }
    }
}

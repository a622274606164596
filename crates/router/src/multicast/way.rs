//! What becomes of a run of packets whose route is known.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use arrayvec::ArrayVec;
use linerate_pipeline::{BURST, Batch, Cx, DropReason, Packet, PortId};
use linerate_wire::{eth, icmpv6, ip6};

use super::copies::copy;
use super::family::Family;
use super::lists::{Refusals, Refuse};
use super::model::MrouteOutput;
use super::node::{About, Left, MulticastExit, Run, l3_len};
use super::table::{Egress, Entry, SAMPLE_EVERY, WRONG_EVERY};
use crate::nodes::ip4_fragment::{Ip4Fragment, Ip4FragmentExit};
use crate::nodes::lookup::icmp_error;
use crate::nodes::{ErrorLimit, l2};
use crate::plane::Adjacency;

/// Bursts of at least this length go to a device in one call; shorter ones wait for company.
const WHOLE_BURST: usize = 16;

/// A run's route and what is needed to follow it.
pub(super) struct Way<'a, P, F: Family> {
    pub(super) about: About<F::Key>,
    pub(super) entry: &'a Entry,
    pub(super) egress: &'a Egress,
    pub(super) members: &'a ErrorLimit,
    pub(super) cut: &'a mut Ip4Fragment<P>,
    /// What the outgoing lists say of the run.
    pub(super) refusals: Refusals<'a>,
    /// The place in the run, as a bit, of the packet that is being sent; where the lists say the same of all, the first.
    pub(super) bit: u64,
    pub(super) family: PhantomData<F>,
}

impl<'a, P: Packet, F: Family> Way<'a, P, F> {
    /// Takes the run where its route says.
    pub(super) fn go(&mut self, cx: &mut Cx<'_, P>, left: &mut Left<'_, '_, P>, mut run: Run<P, F::Key>) {
        let entry = self.entry;
        if entry.input != self.about.rx_if {
            return self.wrong(cx, left, run);
        }
        entry.counters.count(run.packets.len() as u64, run.bytes, cx.now);
        if entry.sampled
            && !entry.to_host
            && entry.counters.sample.take(cx.now, SAMPLE_EVERY)
            && let Some(packet) = run.packets.first()
        {
            let sample = copy(cx.alloc, packet, packet.len());
            left.emit(cx, sample, self.about.rx_port, MulticastExit::Sample);
        }
        self.bit = 1;
        let live = self.outputs().fold((0, u16::MAX), |(n, mtu), (_, a)| (n + 1, mtu.min(a.mtu)));
        let (outputs, mtu) = live;
        let is_plain = run.ttl > entry.threshold.max(1)
            && run.longest <= usize::from(mtu)
            && self.refusals.are_uniform(run.packets.len());
        if outputs > 0 && is_plain && !entry.to_host {
            self.refused(cx, run.packets.len(), None);
            return self.send(cx, left, &mut run.packets, outputs, |_, _| true);
        }
        for (i, packet) in run.packets.into_iter().enumerate() {
            self.bit = 1 << i;
            self.one(cx, left, packet);
        }
    }

    /// The outputs that are up and whose lists let the packet out.
    #[inline(always)]
    fn outputs(&self) -> impl Iterator<Item = (&'a MrouteOutput, &'a Adjacency)> + use<'a, P, F> {
        let (egress, refusals, bit) = (self.egress, self.refusals, self.bit);
        let outputs = self.entry.outputs.iter().enumerate().filter(move |(i, _)| !refusals.has(*i, bit));
        outputs.filter_map(move |(_, o)| Some((o, egress.get(o.interface)?)))
    }

    /// Counts the copies that lists refuse of the packet at hand, or of `packets` that they say the same of; all but one of
    /// them where the packet itself is `the_one` that is lost.
    fn refused(&self, cx: &Cx<'_, P>, packets: usize, the_one: Option<Refuse>) {
        for why in Refuse::ALL {
            let copies = self.refusals.count(why, self.bit) * packets;
            let copies = copies - usize::from(the_one == Some(why));
            if copies > 0 {
                self.lost(cx, why.reason(), copies);
            }
        }
    }

    /// Packets that came in by another interface than the route's.
    #[cold]
    fn wrong(&mut self, cx: &Cx<'_, P>, left: &mut Left<'_, '_, P>, run: Run<P, F::Key>) {
        let counters = &self.entry.counters;
        counters.wrong_interface.fetch_add(run.packets.len() as u64, Relaxed);
        counters.last_used.store(cx.now.max(1), Relaxed);
        for packet in run.packets {
            let show = counters.wrong.take(cx.now, WRONG_EVERY);
            left.leave(
                packet,
                if show { MulticastExit::WrongInterface } else { MulticastExit::WrongInterfaceDrop },
            );
        }
    }

    /// A packet that needs a closer look: not every output takes it, or the router itself wants it too.
    #[inline(never)]
    fn one(&mut self, cx: &mut Cx<'_, P>, left: &mut Left<'_, '_, P>, packet: P) {
        let ttl = F::judge(&packet).map_or(0, |stream| stream.ttl);
        let len = l3_len(&packet);
        let (mut fit, mut long, mut mtu) = (0, 0, u16::MAX);
        for (_, adjacency) in self.outputs().filter(|(o, _)| ttl > o.threshold.max(1)) {
            if len <= usize::from(adjacency.mtu) {
                fit += 1;
            } else {
                long += 1;
                mtu = mtu.min(adjacency.mtu);
            }
        }
        if self.entry.to_host {
            if fit + long == 0 {
                let shown = self.members.allow(cx.now);
                self.refused(cx, 1, None);
                return left
                    .leave(packet, if shown { MulticastExit::Member } else { MulticastExit::MemberLimit });
            }
            self.show(cx, left, &packet);
        }
        if fit + long == 0
            && let Some(why) = Refuse::ALL.into_iter().find(|why| self.refusals.count(*why, self.bit) > 0)
        {
            self.refused(cx, 1, Some(why));
            return left.leave(packet, why.exit());
        }
        self.refused(cx, 1, None);
        match (fit, long) {
            (0, 0) if self.outputs().next().is_none() => left.leave(packet, MulticastExit::NoOutput),
            (0, 0) => left.leave(packet, MulticastExit::TtlExpired),
            (_, 0) => self.send_fitting(cx, left, packet, ttl, fit),
            _ => self.too_long(cx, left, packet, TooLong { ttl, fit, long, mtu }),
        }
    }

    /// A copy for this router itself.
    fn show(&mut self, cx: &mut Cx<'_, P>, left: &mut Left<'_, '_, P>, packet: &P) {
        if self.members.allow(cx.now) {
            let copy = copy(cx.alloc, packet, packet.len());
            left.emit(cx, copy, self.about.rx_port, MulticastExit::Member);
        } else {
            self.lost(cx, DropReason::MulticastMemberLimit, 1);
        }
    }

    /// Sends a packet by those outputs that take it as it is.
    fn send_fitting(
        &mut self,
        cx: &mut Cx<'_, P>,
        left: &mut Left<'_, '_, P>,
        packet: P,
        ttl: u8,
        fit: usize,
    ) {
        let len = l3_len(&packet);
        let mut one = Batch::new();
        one.push(packet);
        self.send(cx, left, &mut one, fit, |o, a| ttl > o.threshold.max(1) && len <= usize::from(a.mtu));
    }

    /// A packet that is longer than what some outputs take.
    #[cold]
    fn too_long(&mut self, cx: &mut Cx<'_, P>, left: &mut Left<'_, '_, P>, mut packet: P, about: TooLong) {
        let TooLong { ttl, fit, long, mtu } = about;
        let len = l3_len(&packet);
        if F::may_cut(packet.head(), usize::from(packet.meta().l3)) {
            let takes =
                |(o, a): &(&MrouteOutput, &Adjacency)| ttl > o.threshold.max(1) && len > usize::from(a.mtu);
            // Where no output takes it as it is, the last one gets the packet itself.
            let copies = if fit == 0 { long - 1 } else { long };
            let mut outputs = self.outputs().filter(takes);
            for (_, adjacency) in outputs.by_ref().take(copies) {
                cx.counters.port(self.about.rx_port).generated.add(1);
                match copy(cx.alloc, &packet, packet.len()) {
                    Some(copy) => self.fragments(cx, copy, adjacency),
                    None => cx.counters.dropped(self.about.rx_port, DropReason::PoolExhausted, 1),
                }
            }
            match outputs.next() {
                Some((_, adjacency)) => self.fragments(cx, packet, adjacency),
                None => self.send_fitting(cx, left, packet, ttl, fit),
            }
            return;
        }
        // RFC 4443 2.4 e: IPv6 tells the sender, once for all outputs; IPv4 must not (RFC 1122 3.2.2).
        // A link that IPv6 cannot use at all is nobody's path MTU.
        let tell = F::ETHERTYPE == eth::ETHERTYPE_IP6 && mtu >= ip6::MIN_MTU;
        let itself = fit == 0;
        self.lost(cx, DropReason::MtuExceeded, long - usize::from(tell || itself));
        match (itself, tell) {
            (true, false) => left.leave(packet, MulticastExit::TooLong),
            (true, true) => {
                ask_for_less(&mut packet, mtu);
                left.leave(packet, MulticastExit::PacketTooBig);
            }
            (false, _) => {
                if tell {
                    // As much of it as an error quotes.
                    let quoted = usize::from(packet.meta().l3) + usize::from(ip6::MIN_MTU);
                    let mut copy = copy(cx.alloc, &packet, quoted);
                    copy.iter_mut().for_each(|copy| ask_for_less(copy, mtu));
                    left.emit(cx, copy, self.about.rx_port, MulticastExit::PacketTooBig);
                }
                self.send_fitting(cx, left, packet, ttl, fit);
            }
        }
    }

    /// Sends a packet in pieces that an output takes.
    fn fragments(&mut self, cx: &mut Cx<'_, P>, packet: P, adjacency: &Adjacency) {
        let adjacency = self.addressed(adjacency);
        if let Err((packet, exit)) = self.cut.send(cx, packet, &adjacency) {
            let why = match exit {
                Ip4FragmentExit::PoolExhausted => DropReason::PoolExhausted,
                Ip4FragmentExit::NoHeadroom => DropReason::NoHeadroom,
                Ip4FragmentExit::Unsendable => DropReason::MtuExceeded,
            };
            cx.counters.dropped(packet.rx_port(), why, 1);
        }
    }

    /// Copies that could not be made or sent.
    fn lost(&self, cx: &Cx<'_, P>, why: DropReason, n: usize) {
        cx.counters.port(self.about.rx_port).generated.add(n as u64);
        cx.counters.dropped(self.about.rx_port, why, n as u64);
    }

    /// The template of an output with the group's address, and the priority that the packets came with (as the unicast
    /// rewrite keeps it).
    #[inline]
    fn addressed(&self, template: &Adjacency) -> Adjacency {
        let mut adjacency = *template;
        adjacency.header[..6].copy_from_slice(&F::mac(self.about.key));
        if adjacency.header_len > 14 {
            adjacency.header[14] |= (self.about.priority >> 8) as u8;
        }
        adjacency
    }

    /// Sends all `packets` by all outputs that `wants` names, `outputs` in number. With one output it is the packets
    /// themselves that go.
    fn send(
        &mut self,
        cx: &mut Cx<'_, P>,
        left: &mut Left<'_, '_, P>,
        packets: &mut Batch<P>,
        outputs: usize,
        wants: impl Fn(&MrouteOutput, &Adjacency) -> bool,
    ) {
        let rx_port = self.about.rx_port;
        let mut wanting = self.outputs().filter(|(o, a)| wants(o, a));
        if outputs == 1 {
            if let Some((_, adjacency)) = wanting.next() {
                self.send_themselves(cx, left, packets, adjacency);
            }
            return;
        }
        let mut payloads = ArrayVec::<P::Shared, BURST>::new();
        for mut packet in packets.drain(..) {
            let l3 = usize::from(packet.meta().l3);
            F::age(packet.head_mut(), l3);
            if packet.trim_front(l3) {
                payloads.push(packet.share(outputs as u16));
            } else {
                left.leave(packet, MulticastExit::NoHeadroom);
            }
        }
        let n = payloads.len();
        cx.counters.port(rx_port).generated.add((n * (outputs - 1)) as u64);
        for (_, template) in wanting {
            let adjacency = self.addressed(template);
            let mut copies = Batch::new();
            let why = if !cx.alloc.alloc_bulk(&mut copies, n) {
                DropReason::PoolExhausted
            } else if !fill(&mut copies, &mut payloads, &adjacency, rx_port, F::ETHERTYPE) {
                DropReason::NoHeadroom
            } else {
                hand_out(cx, adjacency.port, &mut copies, rx_port);
                continue;
            };
            cx.counters.dropped(rx_port, why, n as u64);
        }
    }

    fn send_themselves(
        &mut self,
        cx: &mut Cx<'_, P>,
        left: &mut Left<'_, '_, P>,
        packets: &mut Batch<P>,
        adjacency: &Adjacency,
    ) {
        let adjacency = self.addressed(adjacency);
        let mut ready = Batch::new();
        for mut packet in packets.drain(..) {
            if l2::write(&mut packet, &adjacency, F::ETHERTYPE) {
                let l3 = usize::from(packet.meta().l3);
                F::age(packet.head_mut(), l3);
                ready.push(packet);
            } else {
                left.leave(packet, MulticastExit::NoHeadroom);
            }
        }
        hand_out(cx, adjacency.port, &mut ready, self.about.rx_port);
    }
}

/// What is known of a packet that some outputs do not take: its TTL, how many outputs take it and how many do not, and the
/// smallest MTU of the latter.
struct TooLong {
    ttl: u8,
    fit: usize,
    long: usize,
    mtu: u16,
}

/// Makes empty packets the copies for one output: its header, and the payload behind. `false` where one has no room for
/// that, and then none may be sent.
#[inline(always)]
fn fill<P: Packet>(
    copies: &mut Batch<P>,
    payloads: &mut [P::Shared],
    adjacency: &Adjacency,
    rx_port: PortId,
    ethertype: u16,
) -> bool {
    let mut all = true;
    for (copy, payload) in copies.iter_mut().zip(payloads) {
        copy.set_rx_port(rx_port);
        let room = copy.prepend(usize::from(adjacency.header_len));
        all &= room.is_some_and(|room| adjacency.write(room, ethertype)) && copy.attach(payload);
    }
    all
}

/// Gives packets that came in by one port to another's transmit buffer.
#[inline]
fn hand_out<P: Packet>(cx: &mut Cx<'_, P>, port: PortId, packets: &mut Batch<P>, rx_port: PortId) {
    if packets.len() >= WHOLE_BURST {
        return cx.tx.send_batch(port, packets, cx.counters);
    }
    let mut sender = cx.tx.sender(rx_port, cx.counters);
    packets.drain(..).for_each(|packet| sender.send(port, packet));
}

/// Notes the ICMPv6 error that is due.
fn ask_for_less<P: Packet>(packet: &mut P, mtu: u16) {
    let meta = packet.meta_mut();
    meta.icmp = icmp_error(icmpv6::PACKET_TOO_BIG, 0);
    meta.mtu = mtu;
}

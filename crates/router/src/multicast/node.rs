//! The node that forwards multicast: finds a stream's route and sends a copy by each of its outputs.
//!
//! Packets of one stream come in runs. Each run is looked up once; then, output by output, it becomes a burst of small
//! packets that have the output's Ethernet header, with the packet itself, shared by all, behind it. A run that is of one
//! piece, with the hops and the size that every output wants, does so without a test per packet; where a packet falls out
//! of line the run is taken packet by packet.

use std::fmt;
use std::marker::PhantomData;

use linerate_pipeline::meta::flags;
use linerate_pipeline::{Batch, Cx, DropReason, Exits, IfIndex, Node, Packet, PortId};
use linerate_tables::snapshot::Snapshot;
use linerate_wire::vlan::PRIORITY_MASK;

use super::family::{Family, Stream};
use super::first::FirstPackets;
use super::lists::{Lists, Refusals};
use super::table::{Egress, Entry, Multicast};
use super::way::Way;
use crate::acl::Filter;
use crate::nodes::ErrorLimit;
use crate::nodes::ip4_fragment::Ip4Fragment;

linerate_pipeline::exits! {
    /// Where packets go from the multicast nodes that do not leave.
    pub(crate) enum MulticastExit {
        // For the host system.
        /// IGMP, MLD, PIM, to a group that stays on its link, or with a router alert: nothing to forward, as it came.
        Control,
        /// Of a stream that has no route: one of the few that daemons learn of it by.
        FirstPacket,
        /// Came in by the wrong interface: one of the few that daemons settle by who forwards (asserts).
        WrongInterface,
        /// One a second of a stream that was forwarded, for the counters of the host system.
        Sample,
        /// For this router itself as a member.
        Member,
        // For an ICMP error.
        /// Longer than what an output takes (IPv6): `Meta::icmp` and `Meta::mtu` say so.
        PacketTooBig,
        // Lost.
        /// Of a stream that has no route.
        Unrouted,
        /// Came in by the wrong interface.
        WrongInterfaceDrop,
        /// Its route has no output that is up.
        NoOutput,
        /// No hops left, or fewer than every output wants.
        TtlExpired,
        /// Longer than what any output takes (IPv4), and not to be fragmented.
        TooLong,
        /// The source address is no sender's.
        BadSource,
        /// The source address has no meaning on other links (RFC 4291 2.5.6).
        LinkLocalSource,
        /// For this router itself, of which there is more than it wants to see.
        MemberLimit,
        /// No room for the Ethernet header.
        NoHeadroom,
        // Lost because no output's access list lets it out.
        /// Denied.
        AclDenied,
        /// Rejected; nobody is told, for multicasts get no such error (RFC 1122 3.2.2, RFC 4443 2.4 e).
        AclRejected,
        /// It hides what a list asks about.
        AclUndetermined,
    }
}

/// First packets of streams that the host system gets to see per second, worker and family.
const FIRST_PER_SECOND: u32 = 1000;

/// Packets for this router itself as a member, per second, worker and family: each is copied.
const MEMBER_PER_SECOND: u32 = 20_000;

/// Forwards the multicast packets of one family.
pub(crate) struct MulticastNode<P, F: Family> {
    tables: Multicast,
    egress: Snapshot<Egress>,
    first: FirstPackets,
    members: ErrorLimit,
    cut: Ip4Fragment<P>,
    lists: Lists<F::Address>,
    family: PhantomData<F>,
}

impl<P: Packet, F: Family> MulticastNode<P, F> {
    /// A node that reads these tables. `cut` cuts what is too long for an output, `filter` asks outgoing access lists.
    pub(crate) fn new(tables: &Multicast, cut: Ip4Fragment<P>, filter: Filter<F::Address>) -> Self {
        MulticastNode {
            tables: tables.clone(),
            egress: tables.egress.clone(),
            first: FirstPackets::new(FIRST_PER_SECOND),
            members: ErrorLimit::new(MEMBER_PER_SECOND),
            cut,
            lists: Lists::new(filter),
            family: PhantomData,
        }
    }
}

impl<P: Packet, F: Family> Node<P> for MulticastNode<P, F> {
    type Exit = MulticastExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, MulticastExit>) {
        let packets = std::mem::take(batch);
        let mut left = Left { batch, out };
        let mut run: Run<P, F::Key> = Run::new();
        for packet in packets {
            match F::judge(&packet) {
                Ok(stream) => {
                    let about = About::of(&packet, stream.key);
                    if run.about != Some(about) {
                        self.run(cx, &mut left, &mut run);
                        run.about = Some(about);
                    }
                    run.push(packet, stream);
                }
                Err(exit) => left.leave(packet, exit),
            }
        }
        self.run(cx, &mut left, &mut run);
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        F::write(packet, f)
    }
}

/// Packets that stay in the batch, each with its exit.
pub(super) struct Left<'a, 'b, P> {
    batch: &'a mut Batch<P>,
    out: &'a mut Exits<'b, P, MulticastExit>,
}

impl<P: Packet> Left<'_, '_, P> {
    pub(super) fn leave(&mut self, packet: P, exit: MulticastExit) {
        self.out.set(self.batch.len(), exit);
        // As many as came in at most.
        let _ = self.batch.try_push(packet);
    }

    /// A copy that leaves beside its original.
    pub(super) fn emit(&mut self, cx: &Cx<'_, P>, copy: Option<P>, rx_port: PortId, exit: MulticastExit) {
        cx.counters.port(rx_port).generated.add(1);
        match copy.map(|copy| self.out.emit(copy, exit)) {
            Some(Ok(())) => {}
            Some(Err(_)) => cx.counters.dropped(rx_port, DropReason::GraphOverflow, 1),
            None => cx.counters.dropped(rx_port, DropReason::PoolExhausted, 1),
        }
    }
}

/// What the packets of a run have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct About<K> {
    pub(super) key: K,
    pub(super) rx_if: IfIndex,
    pub(super) rx_port: PortId,
    /// Priority bits of the tag they came with, in place.
    pub(super) priority: u16,
}

impl<K> About<K> {
    #[inline(always)]
    fn of<P: Packet>(packet: &P, key: K) -> Self {
        let meta = packet.meta();
        let tag = if meta.flags & flags::VLAN != 0 { meta.vlan_tci } else { 0 };
        About { key, rx_if: meta.rx_if, rx_port: packet.rx_port(), priority: tag & PRIORITY_MASK }
    }
}

/// Packets of one stream that came one after the other.
pub(super) struct Run<P, K> {
    about: Option<About<K>>,
    pub(super) packets: Batch<P>,
    /// The smallest TTL.
    pub(super) ttl: u8,
    /// The longest packet, in bytes of layer 3.
    pub(super) longest: usize,
    /// Bytes of layer 3 in all.
    pub(super) bytes: u64,
}

impl<P: Packet, K> Run<P, K> {
    fn new() -> Self {
        Run { about: None, packets: Batch::new(), ttl: u8::MAX, longest: 0, bytes: 0 }
    }

    #[inline(always)]
    fn push(&mut self, packet: P, stream: Stream<K>) {
        let len = l3_len(&packet);
        self.ttl = self.ttl.min(stream.ttl);
        self.longest = self.longest.max(len);
        self.bytes += len as u64;
        // A run is a part of a batch.
        let _ = self.packets.try_push(packet);
    }
}

#[inline(always)]
pub(super) fn l3_len<P: Packet>(packet: &P) -> usize {
    packet.len().saturating_sub(usize::from(packet.meta().l3))
}

impl<P: Packet, F: Family> MulticastNode<P, F> {
    /// Takes a run out of the way, whatever becomes of it.
    fn run(&mut self, cx: &mut Cx<'_, P>, left: &mut Left<'_, '_, P>, run: &mut Run<P, F::Key>) {
        let Some(about) = run.about.take() else { return };
        let run = std::mem::replace(run, Run::new());
        let MulticastNode { tables, egress, first, members, cut, lists, .. } = self;
        let egress = egress.get();
        // Taken by the first route that is found.
        let mut waiting = Some(run);
        let mut found = |entry: &Entry| {
            if let Some(mut run) = waiting.take() {
                let refusals = match entry.input == about.rx_if && lists.are_on() {
                    true => lists.ask::<P, F>(cx.now, entry, egress, &mut run.packets),
                    false => Refusals::default(),
                };
                let mut way =
                    Way::<P, F> { about, entry, egress, members, cut, refusals, bit: 0, family: PhantomData };
                way.go(cx, left, run);
            }
        };
        let routes = F::routes(tables);
        if routes
            .find(&about.key, &mut found)
            .or_else(|| routes.find(&F::any_source(about.key), &mut found))
            .is_none()
        {
            for packet in waiting.into_iter().flat_map(|run| run.packets) {
                let show = first.allow(&about.key, cx.now);
                left.leave(packet, if show { MulticastExit::FirstPacket } else { MulticastExit::Unrouted });
            }
        }
    }
}

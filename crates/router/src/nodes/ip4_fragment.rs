//! IPv4 fragmentation (RFC 791 3.2, RFC 1812 5.2.6).

use linerate_pipeline::{Batch, Cx, Exits, Node, Packet};
use linerate_wire::checksum::Sum;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::{Header, U16};

use super::ip4_rewrite::{self, Ip4RewriteExit};
use crate::plane::{Adjacency, NextHops};

linerate_pipeline::exits! {
    /// Where packets go from `ip4_fragment` that do not leave.
    pub enum Ip4FragmentExit {
        /// The pool was empty, or its buffers too small for any fragment.
        PoolExhausted,
        /// No headroom for the outgoing Ethernet header.
        NoHeadroom,
        /// The adjacency is gone, its MTU leaves no room for payload behind the header, or the packet is a fragment that ends
        /// beyond the 65,535 bytes of any datagram.
        Unsendable,
    }
}

/// The most fragments one packet is cut into: a 9216-byte packet for the smallest MTU that IPv4 knows (68 bytes, of
/// which 60 may be header).
const MAX_FRAGMENTS: usize = 1152;

/// Cuts packets into fragments that fit the MTU, rewrites those and sends them. Packets that fit have been rewritten
/// already and came along so as not to overtake: they are sent as they are, all in the order of the batch.
///
/// The packet itself becomes the first fragment; the others are new packets. Where a buffer of the pool holds less than
/// the MTU, fragments are as large as the buffer. Either all fragments are handed to the transmit buffer or none.
#[derive(Debug)]
pub struct Ip4Fragment<P> {
    next_hops: NextHops,
    /// Fragments behind the first of the packet in work; never reallocated.
    rest: Vec<P>,
}

impl<P> Ip4Fragment<P> {
    /// A node that reads these adjacencies.
    pub fn new(next_hops: NextHops) -> Self {
        Ip4Fragment { next_hops, rest: Vec::with_capacity(MAX_FRAGMENTS) }
    }
}

impl<P: Packet> Node<P> for Ip4Fragment<P> {
    type Exit = Ip4FragmentExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, out: &mut Exits<'_, P, Ip4FragmentExit>) {
        let packets = std::mem::take(batch);
        for packet in packets {
            let index = packet.meta().adjacency;
            let adjacency = self.next_hops.adjacency(index);
            if fits(&packet, &adjacency) {
                cx.tx.send(packet.meta().tx_port, packet, cx.counters);
                continue;
            }
            match self.send(cx, packet, &adjacency) {
                Ok(()) => self.next_hops.mark_used(index),
                Err((packet, exit)) => {
                    out.set(batch.len(), exit);
                    batch.push(packet);
                }
            }
        }
    }
}

impl<P: Packet> Ip4Fragment<P> {
    /// Cuts a packet and sends all its fragments; gives it back where that cannot be.
    pub(crate) fn send(
        &mut self,
        cx: &mut Cx<'_, P>,
        mut packet: P,
        adjacency: &Adjacency,
    ) -> Result<(), (P, Ip4FragmentExit)> {
        if let Err(exit) = self.cut(cx, &mut packet, adjacency) {
            self.rest.clear();
            return Err((packet, exit));
        }
        cx.tx.send(adjacency.port, packet, cx.counters);
        for mut fragment in self.rest.drain(..) {
            cx.generated(&mut fragment);
            cx.tx.send(adjacency.port, fragment, cx.counters);
        }
        Ok(())
    }

    /// Makes `packet` the first fragment and fills `rest` with the others, all ready to be sent.
    fn cut(
        &mut self,
        cx: &mut Cx<'_, P>,
        packet: &mut P,
        adjacency: &Adjacency,
    ) -> Result<(), Ip4FragmentExit> {
        let l3 = usize::from(packet.meta().l3);
        let header = Ip4Header::view_at(packet.head(), l3).copied().ok_or(Ip4FragmentExit::Unsendable)?;
        let header_len = header.header_len();
        let mtu = usize::from(adjacency.mtu);
        let mut options = [0; ip4::MAX_OPTIONS];
        let given = packet.head().get(l3 + Ip4Header::LEN..l3 + header_len).unwrap_or_default();
        let kept = ip4::copied_options(given, &mut options);
        let options = options.get(..kept).unwrap_or_default();
        let later_len = Ip4Header::LEN + kept;

        let payload = usize::from(header.total_len.get()).saturating_sub(header_len);
        let first = mtu.saturating_sub(header_len) & !7;
        let most = mtu.saturating_sub(later_len) & !7;
        if first == 0 || most == 0 {
            return Err(Ip4FragmentExit::Unsendable);
        }
        let field = header.fragment.get();
        let (base, more) = (field & ip4::OFFSET, field & ip4::MF);
        // Itself a fragment that ends beyond any datagram: offsets of its parts would begin at 0 again, and overwrite the
        // start of the datagram, ports included, behind a filter that has let that pass.
        if usize::from(base) * 8 + payload + Ip4Header::LEN > usize::from(u16::MAX) {
            return Err(Ip4FragmentExit::Unsendable);
        }
        let mut at = first;
        while at < payload {
            if self.rest.len() == self.rest.capacity() {
                return Err(Ip4FragmentExit::Unsendable);
            }
            let mut fragment = cx.alloc.alloc().ok_or(Ip4FragmentExit::PoolExhausted)?;
            let size = reserve(&mut fragment, l3 + later_len, (payload - at).min(most))?;
            *fragment.meta_mut() = *packet.meta();
            let (head, meta) = fragment.split_mut();
            meta.l4 = (l3 + later_len) as u16;
            let body = head.get_mut(l3..).unwrap_or_default();
            packet.copy_out(l3 + header_len + at, body.get_mut(later_len..).unwrap_or_default());
            let last = at + size == payload;
            let flags = if last { more } else { ip4::MF };
            let mut h = header;
            h.version_ihl = 0x40 | (later_len / 4) as u8;
            h.total_len = U16::new((later_len + size) as u16);
            h.fragment = U16::new(base.wrapping_add((at / 8) as u16) & ip4::OFFSET | flags);
            write_header(body, h, options);
            at += size;
            send_off(&mut fragment, adjacency)?;
            self.rest.push(fragment);
        }
        let mut h = header;
        h.total_len = U16::new((header_len + first) as u16);
        h.fragment = U16::new(base | ip4::MF);
        // The first fragment keeps all options; they are in place, but the checksum covers them.
        let mut own = [0; ip4::MAX_OPTIONS];
        let given = packet.head().get(l3 + Ip4Header::LEN..l3 + header_len).unwrap_or_default();
        let own = own.get_mut(..given.len()).ok_or(Ip4FragmentExit::Unsendable)?;
        own.copy_from_slice(given);
        packet.truncate(l3 + header_len + first);
        write_header(packet.head_mut().get_mut(l3..).unwrap_or_default(), h, own);
        send_off(packet, adjacency)
    }
}

/// Whether the packet needs no cutting, which means that it has been rewritten.
fn fits<P: Packet>(packet: &P, adjacency: &Adjacency) -> bool {
    let header = Ip4Header::view_at(packet.head(), usize::from(packet.meta().l3));
    header.is_some_and(|h| h.total_len.get() <= adjacency.mtu)
}

/// Makes room for headers and `wanted` bytes of payload, or as much of it as the buffer holds (a multiple of 8).
fn reserve<P: Packet>(fragment: &mut P, headers: usize, wanted: usize) -> Result<usize, Ip4FragmentExit> {
    let mut size = wanted;
    while fragment.append(headers + size).is_none() {
        size = (size / 2) & !7;
        if size == 0 {
            return Err(Ip4FragmentExit::PoolExhausted);
        }
    }
    Ok(size)
}

/// Writes a header with options and its checksum to the start of `l3`.
fn write_header(l3: &mut [u8], mut header: Ip4Header, options: &[u8]) {
    use zerocopy::IntoBytes;
    header.checksum = U16::new(0);
    header.checksum = U16::new(Sum::new().over(header.as_bytes()).over(options).checksum());
    if let Some((to, rest)) = l3.split_at_mut_checked(Ip4Header::LEN) {
        to.copy_from_slice(header.as_bytes());
        if let Some(to) = rest.get_mut(..options.len()) {
            to.copy_from_slice(options);
        }
    }
}

/// TTL and Ethernet header, as for any packet.
fn send_off<P: Packet>(fragment: &mut P, adjacency: &Adjacency) -> Result<(), Ip4FragmentExit> {
    match ip4_rewrite::rewrite(fragment, adjacency) {
        Ip4RewriteExit::Output => Ok(()),
        Ip4RewriteExit::NoHeadroom => Err(Ip4FragmentExit::NoHeadroom),
        _ => Err(Ip4FragmentExit::Unsendable),
    }
}

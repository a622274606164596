//! IPv4 on the express way.

use linerate_pipeline::interface::OwnFilter;
use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::{Packet, PortId};
use linerate_tables::classifier::Key;
use linerate_tables::fib::{Lookup, NextHopId};
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::{Header, checksum, flow};

use super::plain::{self, word};
use super::{Left, Way};
use crate::acl::{TRANSPORT, key4};
use crate::plane::Plain;

/// Length of the headers: Ethernet without tags, IPv4 without options.
const PLAIN: usize = ETH + Ip4Header::LEN;
const ETH: usize = 14;

/// Notes the destinations of packets, from the first one on, as long as they are plainly plain: what [`destination`] gives for
/// them. Stops at the first one that needs a closer look; how many went before it. The FIB's memory is asked for ahead of the
/// lookup, which comes when all are known. `note` sees each packet with its number.
///
/// Early exits, for they are foreseen, and no call in the loop: all that it needs stays in registers.
#[inline(never)]
pub(super) fn run<P: Packet>(
    packets: &[P],
    to: &mut [u32],
    to_us: ToUs,
    own: OwnFilter<'_>,
    fib: &impl Lookup<u32>,
    mut note: impl FnMut(usize, &P),
) -> usize {
    let address = to_us.likely(packets.first().and_then(|p| p.head().first_chunk()));
    let mut n = 0;
    for (packet, to) in packets.iter().zip(to) {
        let Some(head) = packet.head().first_chunk::<PLAIN>() else { break };
        let (first, _) = head.split_at(8);
        let Some(h) = head.get(ETH..).and_then(Ip4Header::view) else { break };
        let frame = first.first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
        // Ethertype, version and header length.
        if word(head, 12) & 0x00ff_ffff != 0x0045_0008
            || !to_us.is_at(address, frame, packet.rx_port())
            || usize::from(h.total_len.get()) + ETH != packet.len()
            || !checksum::ip4_header_valid(zerocopy::transmute_ref!(h))
            || h.ttl <= 1
        {
            break;
        }
        let (src, dst) = (h.src.get(), h.dst.get());
        fib.prefetch(dst);
        if ip4::may_be_suspect(src) | ip4::may_be_suspect(dst) || own.suspects4(src) {
            break;
        }
        *to = dst;
        note(n, packet);
        n += 1;
    }
    n
}

/// The destination of a plain IPv4 packet with hops left; `None` for any other. Cuts off padding behind the total length.
#[inline(never)]
pub(super) fn destination<P: Packet>(packet: &mut P, to_us: ToUs, own: OwnFilter<'_>) -> Option<u32> {
    let (len, rx_port) = (packet.len(), packet.rx_port());
    let head = packet.head().first_chunk::<PLAIN>()?;
    // Ethertype, version and header length.
    if word(head, 12) & 0x00ff_ffff != 0x0045_0008 {
        return None;
    }
    let (first, _) = head.split_first_chunk::<8>()?;
    let h = Ip4Header::view(head.get(ETH..)?)?;
    let total = usize::from(h.total_len.get()) + ETH;
    let dst = h.dst.get();
    let is_sound = to_us.frame(u64::from_le_bytes(*first), rx_port)
        & checksum::ip4_header_valid(zerocopy::transmute_ref!(h))
        & (h.ttl > 1)
        & !ip4::is_suspect(h.src.get())
        // What may not be a source may not be a unicast destination either: 0/8, 127/8, 169.254/16, 224/4, 240/4.
        & !ip4::is_suspect(dst)
        & !own.owns4(h.src.get());
    if is_sound && (total == len || cut(packet, total)) { Some(dst) } else { None }
}

/// The source of a packet whose [`destination`] has been taken.
#[inline(always)]
pub(super) fn source<P: Packet>(packet: &P) -> u32 {
    Ip4Header::view_at(packet.head(), ETH).map_or(0, |h| h.src.get())
}

/// Cuts off Ethernet padding. `false` where the packet is shorter than its header says, or the length cannot be.
#[inline(never)]
fn cut<P: Packet>(packet: &mut P, total: usize) -> bool {
    let fits = total >= PLAIN && total < packet.len();
    if fits {
        packet.truncate(total);
    }
    fits
}

/// What access lists are asked with; `None` where a packet hides it, or has not all of it in its first segment.
#[inline(always)]
pub(super) fn key<P: Packet>(packet: &P) -> Option<Key<u32>> {
    let head = packet.head();
    let (h, l4) = head.get(ETH..)?.split_at_checked(Ip4Header::LEN)?;
    let h = Ip4Header::view(h)?;
    // Nearly all: a whole datagram with as much behind its header as rules can ask about.
    if let Some(&[a, b, c, d, .., flags]) = l4.first_chunk::<TRANSPORT>()
        && h.fragment.get() & (ip4::MF | ip4::OFFSET) == 0
    {
        return Some(Key::whole(h.src.get(), h.dst.get(), h.protocol, h.tos >> 2, [a, b, c, d], flags));
    }
    if l4.len() < TRANSPORT && head.len() < packet.len() {
        return None;
    }
    key4(h, l4).ok()
}

/// Takes one off the TTL (RFC 1812 5.3.1), updates the checksum (RFC 1624) and writes the next hop's Ethernet header. The
/// port to leave by, or (and no change) why it is left.
#[inline(always)]
pub(super) fn rewrite<P: Packet>(packet: &mut P, id: NextHopId, way: &Way<'_>) -> Result<PortId, Left> {
    let plain = way_out(packet, id, way).ok_or(Left::Other)?;
    apply(packet, plain)
}

/// The plain adjacency that a packet leaves by; `None` where it is not plain.
#[inline(always)]
pub(super) fn way_out<P: Packet>(packet: &P, id: NextHopId, way: &Way<'_>) -> Option<Plain> {
    plain::way_out(id, way, || {
        let (h, l4) = packet.head().get(ETH..)?.split_at_checked(Ip4Header::LEN)?;
        Some(flow::hash4(Ip4Header::view(h)?, l4, way.seed))
    })
}

/// Makes a packet ready to leave by an adjacency. The port, or (and no change) why it is left.
#[inline(always)]
pub(super) fn apply<P: Packet>(packet: &mut P, plain: Plain) -> Result<PortId, Left> {
    let head = packet.head_mut().first_chunk_mut::<PLAIN>();
    let Some((eth, l3)) = head.and_then(|head| head.split_first_chunk_mut::<ETH>()) else {
        return Err(Left::Other);
    };
    let total = Ip4Header::view(l3).map_or(0, |h| h.total_len.get());
    let (Some(word), Some(addresses)) =
        (l3.get_mut(8..).and_then(<[u8]>::first_chunk_mut), eth.first_chunk_mut())
    else {
        return Err(Left::Other);
    };
    if total > plain.mtu() {
        return Err(Left::TooLong);
    }
    *word = checksum::decrement_ttl_word(u32::from_le_bytes(*word)).to_le_bytes();
    plain.write(addresses);
    Ok(plain.port())
}

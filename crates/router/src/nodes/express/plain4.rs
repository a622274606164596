//! IPv4 on the express way.

use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::{Packet, PortId};
use linerate_tables::fib::NextHopId;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::{Header, checksum, flow};

use super::Way;

/// Length of the headers: Ethernet without tags, IPv4 without options.
const PLAIN: usize = ETH + Ip4Header::LEN;
const ETH: usize = 14;

/// The destination of a plain IPv4 packet with hops left; `None` for any other. Cuts off padding behind the total length.
#[inline(always)]
pub(super) fn destination<P: Packet>(packet: &mut P, to_us: &ToUs) -> Option<u32> {
    let (len, rx_port) = (packet.len(), packet.rx_port());
    let (eth, l3) = packet.head().first_chunk::<PLAIN>()?.split_first_chunk::<ETH>()?;
    let h = Ip4Header::view(l3)?;
    if (eth[12], eth[13], h.version_ihl) != (0x08, 0x00, 0x45) {
        return None;
    }
    let (first, _) = eth.split_first_chunk::<8>()?;
    let total = usize::from(h.total_len.get()) + ETH;
    let dst = h.dst.get();
    let is_sound = to_us.frame(u64::from_le_bytes(*first), rx_port)
        & checksum::ip4_header_valid(zerocopy::transmute_ref!(h))
        & (h.ttl > 1)
        & !ip4::is_martian_source(h.src.get())
        // What may not be a source may not be a unicast destination either: 0/8, 127/8, 224/4, 240/4.
        & !ip4::is_martian_source(dst);
    if is_sound && (total == len || cut(packet, total)) { Some(dst) } else { None }
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

/// Takes one off the TTL (RFC 1812 5.3.1), updates the checksum (RFC 1624) and writes the next hop's Ethernet header. The
/// port to leave by; `None` (and no change) where it takes more than that.
#[inline(always)]
pub(super) fn rewrite<P: Packet>(packet: &mut P, id: NextHopId, way: &Way<'_>) -> Option<PortId> {
    let head = packet.head_mut();
    let plain = way.adjacency(id, || hash(head, way.seed))?;
    let (eth, l3) = head.first_chunk_mut::<PLAIN>()?.split_first_chunk_mut::<ETH>()?;
    let h = Ip4Header::view_mut(l3)?;
    if h.total_len.get() > plain.mtu() {
        return None;
    }
    h.ttl = h.ttl.wrapping_sub(1);
    h.checksum.set(checksum::decrement_ttl(h.checksum.get()));
    plain.write(eth.first_chunk_mut()?);
    Some(plain.port())
}

/// The flow hash, as the regular nodes compute it.
#[inline(never)]
fn hash(head: &[u8], seed: u64) -> Option<u32> {
    let (h, l4) = head.get(ETH..)?.split_at_checked(Ip4Header::LEN)?;
    Some(flow::hash4(Ip4Header::view(h)?, l4, seed))
}

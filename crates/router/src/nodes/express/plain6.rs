//! IPv6 on the express way.

use linerate_pipeline::interface::OwnFilter;
use linerate_pipeline::nodes::eth_input::ToUs;
use linerate_pipeline::{Packet, PortId};
use linerate_tables::classifier::Key;
use linerate_tables::fib::NextHopId;
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, flow};

use super::plain::{self, word};
use super::{Left, Way};
use crate::acl::{CHAIN, TRANSPORT, is_plain, key6};
use crate::plane::Plain;

/// Length of the headers: Ethernet without tags, IPv6 without extensions (which pass untouched).
const PLAIN: usize = ETH + Ip6Header::LEN;
const ETH: usize = 14;

/// As for [IPv4](super::plain4::run).
#[inline(never)]
pub(super) fn run<P: Packet>(
    packets: &[P],
    to: &mut [u128],
    to_us: ToUs,
    own: OwnFilter<'_>,
    mut note: impl FnMut(usize, &P),
) -> usize {
    let address = to_us.likely(packets.first().and_then(|p| p.head().first_chunk()));
    let mut n = 0;
    for (packet, to) in packets.iter().zip(to) {
        let Some(head) = packet.head().first_chunk::<PLAIN>() else { break };
        let lengths = word(head, 18);
        let payload = u16::from_be(lengths as u16);
        // Ethertype and version.
        if word(head, 12) & 0x00f0_ffff != 0x0060_dd86
            || !to_us.is_at(address, long(head, 0), packet.rx_port())
            || usize::from(payload) + PLAIN != packet.len()
            // Hops left.
            || lengths >> 25 == 0
            // Its length must be checked.
            || lengths >> 16 & 0xff == u32::from(ip6::HOP_BY_HOP)
        {
            break;
        }
        // In halves: bytes of a whole would be looked at one by one.
        let address = |at| [u64::from_be(long(head, at)), u64::from_be(long(head, at + 8))];
        let (src, dst) = (address(22), address(38));
        if src[0] >> 61 != 1 || dst[0] >> 61 != 1 || own.suspects6(src[0], src[1]) {
            break;
        }
        *to = u128::from(dst[0]) << 64 | u128::from(dst[1]);
        note(n, packet);
        n += 1;
    }
    n
}

/// The destination of a plain IPv6 packet with hops left, between addresses of 2000::/3, where all global unicast
/// addresses are today; `None` for any other. Cuts off padding behind the payload length.
#[inline(never)]
pub(super) fn destination<P: Packet>(packet: &mut P, to_us: ToUs, own: OwnFilter<'_>) -> Option<u128> {
    let (len, rx_port) = (packet.len(), packet.rx_port());
    let head = packet.head().first_chunk::<PLAIN>()?;
    // Ethertype and version.
    if word(head, 12) & 0x00f0_ffff != 0x0060_dd86 {
        return None;
    }
    let (first, _) = head.split_first_chunk::<8>()?;
    let h = Ip6Header::view(head.get(ETH..)?)?;
    let total = usize::from(h.payload_len.get()) + PLAIN;
    let dst = u128::from_be_bytes(h.dst);
    let is_sound = to_us.frame(u64::from_le_bytes(*first), rx_port)
        & (h.hop_limit > 1)
        & (h.src[0] >> 5 == 1)
        & (h.dst[0] >> 5 == 1)
        // Its length must be checked.
        & (h.next_header != ip6::HOP_BY_HOP)
        & !own.owns6(u128::from_be_bytes(h.src));
    if is_sound && (total == len || cut(packet, total)) { Some(dst) } else { None }
}

/// The source of a packet whose [`destination`] has been taken.
#[inline(always)]
pub(super) fn source<P: Packet>(packet: &P) -> u128 {
    Ip6Header::view_at(packet.head(), ETH).map_or(0, |h| u128::from_be_bytes(h.src))
}

/// Eight bytes at `at`, the first in the lowest bits.
#[inline(always)]
fn long(head: &[u8; PLAIN], at: usize) -> u64 {
    head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u64::from_le_bytes(*w))
}

/// Cuts off Ethernet padding. `false` where the packet is shorter than its header says.
#[inline(never)]
fn cut<P: Packet>(packet: &mut P, total: usize) -> bool {
    let fits = total < packet.len();
    if fits {
        packet.truncate(total);
    }
    fits
}

/// What access lists are asked with; `None` where a packet hides it, or has not all of it in its first segment.
#[inline(always)]
pub(super) fn key<P: Packet>(packet: &P) -> Option<Key<u128>> {
    let head = packet.head();
    let (h, rest) = head.get(ETH..)?.split_at_checked(Ip6Header::LEN)?;
    let h = Ip6Header::view(h)?;
    // Nearly all: no extension headers, and as much behind the header as rules can ask about.
    if let Some(&[a, b, c, d, .., flags]) = rest.first_chunk::<TRANSPORT>()
        && is_plain(h.next_header)
    {
        let (src, dst) = (u128::from_be_bytes(h.src), u128::from_be_bytes(h.dst));
        return Some(Key::whole(src, dst, h.next_header, h.traffic_class() >> 2, [a, b, c, d], flags));
    }
    let want = if is_plain(h.next_header) { TRANSPORT } else { CHAIN };
    if rest.len() < want && head.len() < packet.len() {
        return None;
    }
    key6(h, rest.get(..want).unwrap_or(rest)).ok()
}

/// Takes one off the hop limit and writes the next hop's Ethernet header. The port to leave by, or, where it takes more than
/// that (and no change), why it is left.
#[inline(always)]
pub(super) fn rewrite<P: Packet>(packet: &mut P, id: NextHopId, way: &Way<'_>) -> Result<PortId, Left> {
    let plain = way_out(packet, id, way).ok_or(Left::Other)?;
    apply(packet, plain)
}

/// The plain adjacency that a packet leaves by; `None` where it is not plain.
#[inline(always)]
pub(super) fn way_out<P: Packet>(packet: &P, id: NextHopId, way: &Way<'_>) -> Option<Plain> {
    plain::way_out(id, way, || {
        let (h, l4) = packet.head().get(ETH..)?.split_at_checked(Ip6Header::LEN)?;
        Some(flow::hash6(Ip6Header::view(h)?, l4, way.seed))
    })
}

/// Makes a packet ready to leave by an adjacency. The port, or (and no change) why it is left.
#[inline(always)]
pub(super) fn apply<P: Packet>(packet: &mut P, plain: Plain) -> Result<PortId, Left> {
    let head = packet.head_mut().first_chunk_mut::<PLAIN>();
    let Some((eth, l3)) = head.and_then(|head| head.split_first_chunk_mut::<ETH>()) else {
        return Err(Left::Other);
    };
    let (Some(h), Some(addresses)) = (Ip6Header::view_mut(l3), eth.first_chunk_mut()) else {
        return Err(Left::Other);
    };
    if usize::from(h.payload_len.get()) + Ip6Header::LEN > usize::from(plain.mtu()) {
        return Err(Left::Other);
    }
    h.hop_limit = h.hop_limit.wrapping_sub(1);
    plain.write(addresses);
    Ok(plain.port())
}

//! The flow hash: which of several paths, and which worker, a packet goes by.
//!
//! All packets of a flow get the same value. Fragments have no ports beyond the first, so every fragment hashes on
//! addresses only; that keeps a datagram together. Not symmetric and not cryptographic; the seed keeps routers in a
//! row from all making the same choice (polarisation).

use crate::Header;
use crate::ip4::{self, Ip4Header};
use crate::ip6::{self, Ip6Header};

const K1: u64 = 0x9e37_79b9_7f4a_7c15;
const K2: u64 = 0xd6e8_feb8_6659_fd93;

/// Hash of an IPv4 packet; `l4` is what follows its header, as much as is at hand.
#[inline]
pub fn hash4(header: &Ip4Header, l4: &[u8], seed: u64) -> u32 {
    let addresses = u64::from(header.src.get()) << 32 | u64::from(header.dst.get());
    let ports = if header.is_fragment() { 0 } else { u64::from(ports(header.protocol, l4)) << 8 | 1 };
    mix(addresses ^ K1, ports << 8 | u64::from(header.protocol), seed)
}

/// Hash of an IPv6 packet; `rest` is what follows the fixed header, as much as is at hand. Extension headers are
/// walked; a chain that cannot be followed hashes on addresses only.
#[inline]
pub fn hash6(header: &Ip6Header, rest: &[u8], seed: u64) -> u32 {
    let half = |a: &[u8; 16], i: usize| {
        u64::from_ne_bytes([a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7]])
    };
    let upper = match header.next_header {
        p @ (ip4::TCP | ip4::UDP | ip6::ICMPV6) => u64::from(ports(p, rest)) << 16 | 1 << 8 | u64::from(p),
        first => behind_extensions(first, rest),
    };
    let src = fold(half(&header.src, 0) ^ K1, half(&header.src, 8) ^ K2);
    let dst = fold(half(&header.dst, 0) ^ K2, half(&header.dst, 8) ^ K1.rotate_left(17));
    mix(src.wrapping_add(dst.rotate_left(23)), upper, seed)
}

/// Which of `n` equal shares a hash falls into: 0 to `n - 1` (0 for `n` = 0).
#[inline(always)]
pub fn share(hash: u32, n: u32) -> u32 {
    ((u64::from(hash) * u64::from(n)) >> 32) as u32
}

/// Hash of a whole frame from its Ethernet header on, VLAN tags skipped: for spreading frames over workers before
/// any node has seen them. Frames that are neither IPv4 nor IPv6 give 0, so they stay in order on one worker.
pub fn hash_frame(frame: &[u8], seed: u64) -> u32 {
    use crate::eth::{ETHERTYPE_IP4, ETHERTYPE_IP6, ETHERTYPE_QINQ, ETHERTYPE_VLAN};
    let mut at = 12;
    for _ in 0..3 {
        let Some(&[hi, lo]) = frame.get(at..).and_then(|f| f.first_chunk()) else { return 0 };
        let l3 = frame.get(at + 2..).unwrap_or_default();
        match u16::from_be_bytes([hi, lo]) {
            ETHERTYPE_IP4 => {
                return Ip4Header::view(l3)
                    .map_or(0, |h| hash4(h, l3.get(h.header_len()..).unwrap_or_default(), seed));
            }
            ETHERTYPE_IP6 => return Ip6Header::view(l3).map_or(0, |h| hash6(h, &l3[Ip6Header::LEN..], seed)),
            ETHERTYPE_VLAN | ETHERTYPE_QINQ => at += 4,
            _ => return 0,
        }
    }
    0
}

/// Source and destination port of protocols that have them in their first four bytes; 0 otherwise.
#[inline(always)]
fn ports(protocol: u8, l4: &[u8]) -> u32 {
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    match (protocol, l4.first_chunk::<4>()) {
        (ip4::TCP | ip4::UDP | SCTP | UDP_LITE, Some(ports)) => u32::from_ne_bytes(*ports),
        _ => 0,
    }
}

#[cold]
fn behind_extensions(first: u8, rest: &[u8]) -> u64 {
    match ip6::walk(first, rest) {
        Ok(u) if !u.is_fragment() => {
            let l4 = rest.get(u.offset..).unwrap_or_default();
            u64::from(ports(u.protocol, l4)) << 16 | 1 << 8 | u64::from(u.protocol)
        }
        _ => 0,
    }
}

#[inline(always)]
fn mix(addresses: u64, upper: u64, seed: u64) -> u32 {
    let x = fold(addresses ^ seed, upper ^ K2);
    let x = fold(x ^ K1, seed ^ K2.rotate_left(29));
    (x >> 32) as u32 ^ x as u32
}

/// Multiplies to 128 bits and folds the halves together: every input bit reaches every output bit.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide >> 64) as u64 ^ wide as u64
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn packet(src: u32, dst: u32, sport: u16, dport: u16) -> (Ip4Header, [u8; 4]) {
        let mut l4 = [0; 4];
        l4[..2].copy_from_slice(&sport.to_be_bytes());
        l4[2..].copy_from_slice(&dport.to_be_bytes());
        (Ip4Header::new(src, dst, ip4::UDP, 64, 8), l4)
    }

    /// Largest deviation from an even spread over `n` shares, in standard deviations.
    fn unevenness(hashes: impl Iterator<Item = u32>, n: usize) -> f64 {
        let mut counts = vec![0u32; n];
        hashes.for_each(|h| counts[share(h, n as u32) as usize] += 1);
        let mean = f64::from(counts.iter().sum::<u32>()) / n as f64;
        counts.iter().map(|c| (f64::from(*c) - mean).abs() / mean.sqrt()).fold(0.0, f64::max)
    }

    #[test]
    fn spreads_evenly_when_only_one_field_varies() {
        type Vary = fn(u32) -> (u32, u32, u16, u16);
        let vary: [Vary; 5] = [
            |i| (0x0a00_0000 + i, 0x0b00_0001, 1, 2),
            |i| (0x0a00_0001, 0x0b00_0000 + (i << 8), 1, 2),
            |i| (0x0a00_0001, 0x0b00_0001, i as u16, 2),
            |i| (0x0a00_0001, 0x0b00_0001, 1, i as u16),
            |i| (0x0a00_0000 + i, 0x0b00_0000 + i, i as u16, i as u16),
        ];
        for (k, v) in vary.iter().enumerate() {
            for seed in [0, 1, u64::MAX] {
                for n in [2, 3, 8, 64] {
                    let hashes = (0..60_000u32).map(|i| {
                        let (s, d, sp, dp) = v(i);
                        let (h, l4) = packet(s, d, sp, dp);
                        hash4(&h, &l4, seed)
                    });
                    assert!(unevenness(hashes, n) < 5.0, "field {k}, seed {seed}, {n} shares");
                }
            }
        }
    }

    #[test]
    fn every_input_bit_moves_half_of_the_output_bits() {
        let base = Ip6Header::new([0x20; 16], [0x30; 16], ip4::TCP, 64, 20);
        let l4 = [0, 80, 0x30, 0x39];
        let reference = hash6(&base, &l4, 7);
        for bit in 0..256 {
            let mut flipped = [0; 40];
            flipped.copy_from_slice(base.as_bytes());
            flipped[8 + bit / 8] ^= 1 << (bit % 8);
            let h = hash6(Ip6Header::view(&flipped).unwrap(), &l4, 7);
            let moved = (h ^ reference).count_ones();
            assert!((5..=27).contains(&moved), "bit {bit} moved {moved}");
        }
    }

    #[test]
    fn fragments_of_a_datagram_stay_together_and_seeds_differ() {
        let (mut first, l4) = packet(1, 2, 3, 4);
        let whole = hash4(&first, &l4, 0);
        first.fragment.set(ip4::MF);
        let mut later = first;
        later.fragment.set(100);
        assert_eq!(hash4(&first, &l4, 0), hash4(&later, &[9, 9, 9, 9], 0));
        assert_ne!(whole, hash4(&first, &l4, 0));
        assert_ne!(hash4(&first, &l4, 1), hash4(&first, &l4, 0));
        let h6 = Ip6Header::new([1; 16], [2; 16], ip6::FRAGMENT, 64, 100);
        let f = |offset: u8, more, data| [17, 0, 0, offset << 3 | more, 0, 0, 0, 1, data, 2, 3, 4];
        assert_eq!(hash6(&h6, &f(0, 1, 1), 0), hash6(&h6, &f(9, 0, 99), 0));
        let atomic = hash6(&h6, &f(0, 0, 1), 0);
        assert_ne!(atomic, hash6(&h6, &f(0, 0, 2), 0), "an atomic fragment hashes on its ports");
    }

    #[test]
    fn frames_hash_as_their_packets_whatever_their_tags() {
        let (h, l4) = packet(1, 2, 3, 4);
        let untagged = [&[0; 12][..], &[8, 0], h.as_bytes(), &l4].concat();
        let tagged = [&[0; 12][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], h.as_bytes(), &l4].concat();
        assert_eq!(hash_frame(&untagged, 3), hash4(&h, &l4, 3));
        assert_eq!(hash_frame(&tagged, 3), hash4(&h, &l4, 3));
        assert!((0..26).all(|cut| hash_frame(&tagged[..cut], 0) == 0), "cut off before the addresses");
        assert_eq!(hash_frame(&[0; 60], 0), 0);
    }
}

//! The Internet checksum (RFC 1071), its incremental update (RFC 1624) and pseudo-headers.

/// A ones' complement sum over bytes that may come in pieces of any length, odd ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The sum folded to 16 bits, in memory order (RFC 1071 2(B): the sum does not depend on byte order).
    sum: u32,
    /// Whether an odd number of bytes was added so far.
    odd: bool,
}

impl Sum {
    /// The empty sum.
    #[inline]
    pub const fn new() -> Self {
        Sum { sum: 0, odd: false }
    }

    /// The pseudo-header of TCP, UDP over IPv4 (RFC 793 3.1): `len` is the length of transport header and payload.
    pub fn pseudo4(src: u32, dst: u32, protocol: u8, len: u16) -> Self {
        let mut b = [0; 12];
        b[..4].copy_from_slice(&src.to_be_bytes());
        b[4..8].copy_from_slice(&dst.to_be_bytes());
        b[9] = protocol;
        b[10..].copy_from_slice(&len.to_be_bytes());
        Self::new().over(&b)
    }

    /// The pseudo-header of TCP, UDP, ICMPv6 over IPv6 (RFC 8200 8.1).
    pub fn pseudo6(src: &[u8; 16], dst: &[u8; 16], protocol: u8, len: u32) -> Self {
        let mut b = [0; 8];
        b[..4].copy_from_slice(&len.to_be_bytes());
        b[7] = protocol;
        Self::new().over(src).over(dst).over(&b)
    }

    /// Adds bytes that follow those added before.
    #[inline]
    #[must_use]
    pub fn over(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut acc = 0u64;
        for w in words {
            let w = u64::from_ne_bytes(*w);
            acc += (w & 0xffff_ffff) + (w >> 32);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let w = u64::from_ne_bytes(last);
        acc += (w & 0xffff_ffff) + (w >> 32);
        let piece = fold(acc);
        // Bytes at odd positions sit in the other half of their 16-bit word.
        let piece = if self.odd { piece.swap_bytes() } else { piece };
        Sum {
            sum: u32::from(fold(u64::from(self.sum) + u64::from(piece))),
            odd: self.odd ^ (bytes.len() % 2 == 1),
        }
    }

    /// The checksum to write into the header (whose checksum field was zero when it was added).
    #[inline]
    pub fn checksum(self) -> u16 {
        !u16::from_be(self.sum as u16)
    }

    /// Whether data that includes its checksum field is intact.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.sum == 0xffff
    }
}

/// The checksum of an IPv4 header without options, whatever its checksum field holds.
#[inline]
pub fn ip4_header(header: &[u8; 20]) -> u16 {
    let old = u16::from_be_bytes([header[10], header[11]]);
    let sum = ip4_sum(header) + u64::from(!old.to_be());
    !u16::from_be(fold(sum))
}

/// Whether an IPv4 header without options is intact: a handful of additions, no loop.
#[inline(always)]
pub fn ip4_header_valid(header: &[u8; 20]) -> bool {
    let sum = ip4_sum(header);
    // Adding a number to itself with its halves exchanged leaves the end-around sum of the halves in the upper one.
    let half = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    half.wrapping_add(half.rotate_left(16)) >> 16 == 0xffff
}

#[inline(always)]
fn ip4_sum(h: &[u8; 20]) -> u64 {
    let word = |i: usize| u64::from(u32::from_ne_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]));
    word(0) + word(4) + word(8) + word(12) + word(16)
}

/// The checksum after one 16-bit word of what it covers changed (RFC 1624 equation 3).
#[inline]
pub fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    !fold(u64::from(sum))
}

/// The checksum after one 32-bit word, at an even offset, changed.
#[inline]
pub fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    let half = |v: u32| ((v >> 16) as u16, v as u16);
    let ((oh, ol), (nh, nl)) = (half(old), half(new));
    update16(update16(checksum, oh, nh), ol, nl)
}

/// The IPv4 header checksum after the TTL went down by one. What [`update16`] gives for that change, in three
/// instructions: the sum grows by 0x0100, and both 0xffff and a carry wrap (RFC 1624 3, the 0x0000/0xffff case).
#[inline(always)]
pub fn decrement_ttl(checksum: u16) -> u16 {
    let sum = u32::from(checksum) + 0x0100;
    (sum + u32::from(sum >= 0xffff)) as u16
}

/// The third 32-bit word of an IPv4 header (TTL, protocol, checksum; the TTL in the lowest bits) after the TTL, which must
/// not be zero, went down by one: [`decrement_ttl`] in the byte order of the wire, which the sum does not depend on.
#[inline(always)]
pub const fn decrement_ttl_word(word: u32) -> u32 {
    // One less below; 0x0100 more above, which is 1 in this order, and one again where that wraps.
    word.wrapping_add(0xffff).wrapping_add(((word >= 0xfffe_0000) as u32) << 16)
}

/// Folds a sum of words to 16 bits. Never turns a non-zero sum into zero.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 word by word: slow and plain.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn noise(len: usize, mut x: u64) -> Vec<u8> {
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (x >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let s = Sum::new().over(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(s.checksum(), !0xddf2);
    }

    #[test]
    fn any_split_gives_the_sum_of_the_whole() {
        for len in [0, 1, 2, 3, 7, 8, 9, 31, 64, 1500, 9001] {
            let data = noise(len, len as u64);
            assert_eq!(Sum::new().over(&data).checksum(), naive(&data), "{len}");
            for cut in [0, 1, 2, 5, len / 2, len] {
                let (a, b) = data.split_at(cut.min(len));
                let (b, c) = b.split_at(b.len() / 3);
                assert_eq!(Sum::new().over(a).over(b).over(c).checksum(), naive(&data), "{len} {cut}");
            }
        }
        assert_eq!(Sum::new().over(&[0xff; 65_536]).checksum(), 0);
    }

    #[test]
    fn header_form_agrees_with_the_general_one() {
        for seed in 0..1000 {
            let mut h: [u8; 20] = noise(20, seed).try_into().unwrap();
            let wanted = {
                let mut z = h;
                z[10..12].fill(0);
                naive(&z)
            };
            assert_eq!(ip4_header(&h), wanted);
            h[10..12].copy_from_slice(&wanted.to_be_bytes());
            assert!(ip4_header_valid(&h) && Sum::new().over(&h).is_valid());
            h[3] ^= 1;
            assert!(!ip4_header_valid(&h) && !Sum::new().over(&h).is_valid());
        }
    }

    #[test]
    fn every_ttl_step_matches_a_fresh_checksum() {
        // Over all 65,536 sums: the identification field makes the checksum take every value.
        for id in 0..=u16::MAX {
            let mut h = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 8, 7];
            h[4..6].copy_from_slice(&id.to_be_bytes());
            let before = ip4_header(&h);
            h[8] -= 1;
            let after = ip4_header(&h);
            assert_eq!(decrement_ttl(before), after, "id {id:#x}");
            assert_eq!(update16(before, 64 << 8 | 17, 63 << 8 | 17), after, "id {id:#x}");
            let word = |ttl, sum: u16| u32::from_le_bytes([ttl, 17, (sum >> 8) as u8, sum as u8]);
            assert_eq!(decrement_ttl_word(word(64, before)), word(63, after), "id {id:#x}");
        }
    }

    #[test]
    fn the_corner_cases_of_rfc_1624() {
        // Section 4: checksum 0xdd2f, a field goes from 0x5555 to 0x3285; equation 2 gave 0xffff, equation 3 gives 0.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(decrement_ttl(0xfeff), 0x0000);
        assert_eq!(decrement_ttl(0xff00), 0x0001);
        assert_eq!(decrement_ttl(0xffff), 0x0100);
        assert_eq!(update32(0x1234, 0x0102_0304, 0x0102_0304), 0x1234);
    }
}

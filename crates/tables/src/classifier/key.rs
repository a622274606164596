//! What is classified: the header fields of one packet, packed into the words that the lookup masks and multiplies.

use super::lanes::{Lanes, Lanes4, Lanes6};
use crate::prefix::Address;

/// Words of an address family: how the fields of a [`Key`] lie in 64-bit words.
///
/// The last word but one holds the options (see [`opt`]), the last one the source port alone: rules rarely name it,
/// and the options would not fit with it.
pub trait Shape: Address + sealed::Sealed {
    /// The words: three for IPv4, six for IPv6.
    type Words: Words;

    /// The words as the lookup compares them.
    #[doc(hidden)]
    type Lanes: Lanes;

    /// Addresses into their words; options and source port are left zero.
    fn words(src: Self, dst: Self) -> Self::Words;

    /// Source and destination as they are in the words.
    fn addresses(words: &[u64]) -> [Self; 2];

    /// Index of the word and lowest bit in it of the first (most significant) address word of source and destination,
    /// with the number of its bits that lie there.
    const ADDRESSES: [AddressPlace; 2];

    /// The number of the ICMP protocol of this family.
    const ICMP: u8;
}

/// Where an address begins: its most significant bits are `bits` bits from bit `low` of word `word` on, and what does not fit
/// there is the whole next word.
#[derive(Clone, Copy, Debug)]
pub struct AddressPlace {
    /// Index of the word.
    pub word: usize,
    /// Its lowest bit that belongs to the address.
    pub low: u32,
    /// How many bits belong to the address.
    pub bits: u32,
}

/// A small array of words.
pub trait Words: Copy + Eq + std::fmt::Debug + std::hash::Hash + Send + Sync + 'static {
    /// How many there are.
    const COUNT: usize;
    /// All zero.
    const ZERO: Self;
    /// As a slice of [`Self::COUNT`] words.
    fn get(&self) -> &[u64];
    /// As a slice to write to.
    fn get_mut(&mut self) -> &mut [u64];
    /// Word by word.
    #[inline(always)]
    fn map2(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        let mut out = self;
        for (out, other) in out.get_mut().iter_mut().zip(other.get()) {
            *out = f(*out, *other);
        }
        out
    }
}

impl<const N: usize> Words for [u64; N] {
    const COUNT: usize = N;
    const ZERO: Self = [0; N];
    #[inline(always)]
    fn get(&self) -> &[u64] {
        self
    }
    #[inline(always)]
    fn get_mut(&mut self) -> &mut [u64] {
        self
    }
}

/// What a transport protocol's first bytes are.
struct Transport {
    /// All ones in the destination port's place, where it has one or an ICMP type and code.
    second: u64,
    /// All ones in the source port's place.
    first: u64,
    /// All ones where it has TCP's flags.
    flags: u64,
    has: u64,
    /// How far the first four bytes are rotated for what belongs in the destination port's place.
    rotate: u64,
}

impl Transport {
    const ALL: [Transport; 4] = {
        const PORT: u64 = 0xffff << opt::PORT;
        const NONE: Transport = Transport { second: 0, first: 0, flags: 0, has: opt::INITIAL, rotate: 0 };
        const PORTS: Transport =
            Transport { second: PORT, first: PORT, has: opt::INITIAL | opt::HAS_PORTS, ..NONE };
        [
            NONE,
            PORTS,
            Transport { flags: 0xff << opt::FLAGS, ..PORTS },
            Transport { second: PORT, has: opt::INITIAL | opt::HAS_ICMP, rotate: 16, ..NONE },
        ]
    };

    /// Which of them each protocol is: TCP, those that have ports only (UDP, DCCP, SCTP, UDP-Lite), and ICMP.
    const fn kinds(icmp: u8) -> [u8; 256] {
        let mut kinds = [0; 256];
        kinds[6] = 2;
        kinds[17] = 1;
        kinds[33] = 1;
        kinds[132] = 1;
        kinds[136] = 1;
        kinds[icmp as usize] = 3;
        kinds
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

impl Shape for u32 {
    type Words = [u64; 3];
    type Lanes = Lanes4;
    fn addresses(words: &[u64]) -> [u32; 2] {
        [(words[0] >> 32) as u32, words[0] as u32]
    }
    const ADDRESSES: [AddressPlace; 2] =
        [AddressPlace { word: 0, low: 32, bits: 32 }, AddressPlace { word: 0, low: 0, bits: 32 }];
    const ICMP: u8 = 1;
    #[inline(always)]
    fn words(src: u32, dst: u32) -> [u64; 3] {
        [u64::from(src) << 32 | u64::from(dst), 0, 0]
    }
}

impl Shape for u128 {
    type Words = [u64; 6];
    type Lanes = Lanes6;
    fn addresses(words: &[u64]) -> [u128; 2] {
        let whole = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        [whole(words[0], words[1]), whole(words[2], words[3])]
    }
    const ADDRESSES: [AddressPlace; 2] =
        [AddressPlace { word: 0, low: 0, bits: 64 }, AddressPlace { word: 2, low: 0, bits: 64 }];
    const ICMP: u8 = 58;
    #[inline(always)]
    fn words(src: u128, dst: u128) -> [u64; 6] {
        [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, 0, 0]
    }
}

/// The option word: lowest bits of its fields.
pub(super) mod opt {
    /// Destination port, or ICMP type and code: 16 bits.
    pub(crate) const PORT: u32 = 48;
    /// Protocol: 8 bits.
    pub(crate) const PROTOCOL: u32 = 40;
    /// TCP flags: 8 bits.
    pub(crate) const FLAGS: u32 = 32;
    /// VLAN id, 12 bits, and above it whether there is a tag.
    pub(crate) const VLAN: u32 = 19;
    /// DSCP: 6 bits.
    pub(crate) const DSCP: u32 = 13;
    /// Part of a fragmented datagram.
    pub(crate) const FRAGMENT: u64 = 1 << 12;
    /// Holds the start of the datagram: whole, or its first fragment.
    pub(crate) const INITIAL: u64 = 1 << 11;
    /// The packet has ports, and they are in the key.
    pub(crate) const HAS_PORTS: u64 = 1 << 10;
    /// The packet has an ICMP type and code, and they are in the key.
    pub(crate) const HAS_ICMP: u64 = 1 << 9;
}

/// The header fields of one packet. Make one with [`Key::new`] and add what the packet has.
///
/// A field that the packet has not (ports of a fragment that is not the first, say) is left out: a rule that asks for
/// it then does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Key<A: Shape> {
    /// The words, as rules are compared with them.
    pub(super) lanes: A::Lanes,
}

impl<A: Shape> Key<A> {
    /// A whole datagram without VLAN tag, with DSCP 0, of which nothing above the network layer is known.
    #[inline]
    pub fn new(src: A, dst: A, protocol: u8) -> Self {
        let mut lanes = A::Lanes::new(A::words(src, dst).get());
        lanes.words_mut()[A::Words::COUNT - 2] = u64::from(protocol) << opt::PROTOCOL | opt::INITIAL;
        Key { lanes }
    }

    /// A whole datagram without VLAN tag, with the first bytes of what follows the network layer: `ports` are bytes 0 to 3 (ports,
    /// or ICMP type and code), `flags` byte 13. Those the protocol has not are left out. The same as [`Key::new`] and the methods
    /// for each field, without a branch.
    #[inline(always)]
    pub fn whole(src: A, dst: A, protocol: u8, dscp: u8, ports: [u8; 4], flags: u8) -> Self {
        let kind = &Transport::ALL[usize::from(Self::KINDS[usize::from(protocol)] & 3)];
        let both = u64::from(u32::from_be_bytes(ports).rotate_left(kind.rotate as u32));
        let mut lanes = A::Lanes::new(A::words(src, dst).get());
        let words = lanes.words_mut();
        words[A::Words::COUNT - 2] = both << opt::PORT & kind.second
            | u64::from(protocol) << opt::PROTOCOL
            | u64::from(flags) << opt::FLAGS & kind.flags
            | u64::from(dscp & 63) << opt::DSCP
            | kind.has;
        words[A::Words::COUNT - 1] = both << 32 & kind.first;
        Key { lanes }
    }

    /// Kinds of transport protocols of this family.
    const KINDS: [u8; 256] = Transport::kinds(A::ICMP);

    /// With transport ports (UDP, TCP, SCTP, DCCP, UDP-Lite: whatever begins with them).
    #[inline]
    pub fn with_ports(mut self, src: u16, dst: u16) -> Self {
        *self.options() |= u64::from(dst) << opt::PORT | opt::HAS_PORTS;
        self.lanes.words_mut()[A::Words::COUNT - 1] = u64::from(src) << 48;
        self
    }

    /// With TCP's flags: CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the highest bit down, as in the header.
    #[inline]
    pub fn with_tcp_flags(mut self, flags: u8) -> Self {
        *self.options() |= u64::from(flags) << opt::FLAGS;
        self
    }

    /// With an ICMP (ICMPv6) type and code.
    #[inline]
    pub fn with_icmp(mut self, kind: u8, code: u8) -> Self {
        *self.options() |= u64::from(kind) << (opt::PORT + 8) | u64::from(code) << opt::PORT | opt::HAS_ICMP;
        self
    }

    /// As a fragment; `first` where it holds the start of the datagram.
    #[inline]
    pub fn with_fragment(mut self, first: bool) -> Self {
        let initial = if first { opt::INITIAL } else { 0 };
        let options = self.options();
        *options = *options & !opt::INITIAL | opt::FRAGMENT | initial;
        self
    }

    /// With an outer VLAN tag of this id (the low 12 bits count).
    #[inline]
    pub fn with_vlan(mut self, id: u16) -> Self {
        *self.options() |= (u64::from(id & 0xfff) | 1 << 12) << opt::VLAN;
        self
    }

    /// With a DSCP (the low 6 bits count).
    #[inline]
    pub fn with_dscp(mut self, dscp: u8) -> Self {
        *self.options() |= u64::from(dscp & 63) << opt::DSCP;
        self
    }

    /// The source address.
    pub fn src(&self) -> A {
        A::addresses(self.words())[0]
    }

    /// The destination address.
    pub fn dst(&self) -> A {
        A::addresses(self.words())[1]
    }

    /// The protocol.
    pub fn protocol(&self) -> u8 {
        (self.words()[A::Words::COUNT - 2] >> opt::PROTOCOL) as u8
    }

    /// Source and destination port, where it has them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let options = self.words()[A::Words::COUNT - 2];
        let src = self.words()[A::Words::COUNT - 1] >> 48;
        (options & opt::HAS_PORTS != 0).then_some((src as u16, (options >> opt::PORT) as u16))
    }

    /// The words, and zeros behind them.
    #[inline(always)]
    pub(super) fn words(&self) -> &[u64] {
        self.lanes.words()
    }

    #[inline(always)]
    fn options(&mut self) -> &mut u64 {
        &mut self.lanes.words_mut()[A::Words::COUNT - 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_keys_are_those_made_field_by_field() {
        let (ports, flags) = ([0x12, 0x34, 0xab, 0xcd], 0x5a);
        fn check<A: Shape>(src: A, dst: A, ports: [u8; 4], flags: u8) {
            for protocol in 0..=255u8 {
                let mut key = Key::new(src, dst, protocol).with_dscp(46);
                if [6, 17, 33, 132, 136].contains(&protocol) {
                    key = key.with_ports(0x1234, 0xabcd);
                }
                if protocol == 6 {
                    key = key.with_tcp_flags(flags);
                }
                if protocol == A::ICMP {
                    key = key.with_icmp(0x12, 0x34);
                }
                assert_eq!(Key::whole(src, dst, protocol, 46, ports, flags), key, "{protocol}");
                assert_eq!((key.src(), key.dst(), key.protocol()), (src, dst, protocol));
            }
        }
        check(0x0a00_0001u32, 0xc612_0009, ports, flags);
        check(0x2001_0db8u128 << 96 | 7, u128::MAX - 5, ports, flags);
    }
}

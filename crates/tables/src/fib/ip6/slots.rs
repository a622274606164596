//! The direct tables: which slot an address enters through, which slots a short prefix fills.

use crate::fib::{
    strided::{Key, SlotRanges},
    tree::top_bits,
};

/// Slots of global unicast space.
const GLOBAL: usize = 1 << 17;

/// All slots.
pub(super) const SLOTS: usize = GLOBAL + 256;

/// Address bits a slot of global unicast space decides.
const GLOBAL_DEPTH: u8 = 20;

/// Address bits any other slot decides.
const OTHER_DEPTH: u8 = 8;

/// Slot of an address, and how many bits it decides.
#[inline(always)]
pub(super) fn slot_of(high: u64) -> (usize, u8) {
    if high >> 61 == 1 {
        ((high >> 44) as usize & (GLOBAL - 1), GLOBAL_DEPTH)
    } else {
        (GLOBAL + (high >> 56) as usize, OTHER_DEPTH)
    }
}

/// The slots a prefix covers in full: one range in each table, either may be empty. A prefix that ends inside a slot
/// covers none.
pub(super) fn covered((bits, len): Key) -> SlotRanges {
    let (first, last) = ((bits >> 64) as u64, ((bits | !top_bits(len)) >> 64) as u64);
    let global = if len <= 3 && (first..=last).contains(&(0x2000 << 48)) {
        0..GLOBAL
    } else if first >> 61 == 1 && len <= GLOBAL_DEPTH {
        slot_of(first).0..slot_of(last).0 + 1
    } else {
        0..0
    };
    let outside = first >> 61 != 1;
    let other = if len <= OTHER_DEPTH && outside {
        GLOBAL + (first >> 56) as usize..GLOBAL + (last >> 56) as usize + 1
    } else {
        0..0
    };
    [global, other]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> SlotRanges {
        let net = text.parse::<ipnet::Ipv6Net>().unwrap();
        covered((net.addr().to_bits(), net.prefix_len()))
    }

    #[test]
    fn prefixes_cover_the_slots_they_fill() {
        let none = 0..0;
        assert_eq!(of("::/1"), [0..GLOBAL, GLOBAL..GLOBAL + 128]);
        assert_eq!(of("::/2"), [0..GLOBAL, GLOBAL..GLOBAL + 64]);
        assert_eq!(of("::/3"), [none.clone(), GLOBAL..GLOBAL + 32]);
        assert_eq!(of("2000::/3"), [0..GLOBAL, none.clone()]);
        assert_eq!(of("3000::/4"), [GLOBAL / 2..GLOBAL, none.clone()]);
        assert_eq!(of("2001:d00::/20"), [0x10..0x11, none.clone()]);
        assert_eq!(of("2001:d00::/21"), [none.clone(), none.clone()]);
        assert_eq!(of("8000::/1"), [none.clone(), GLOBAL + 128..GLOBAL + 256]);
        assert_eq!(of("fc00::/7"), [none.clone(), GLOBAL + 0xfc..GLOBAL + 0xfe]);
        assert_eq!(of("fe80::/10"), [none.clone(), none]);
    }
}

//! Sequence numbers of one stream: loss, duplicates, reordering (RFC 4689 §3.3).

/// How far back a number is still told apart as duplicate or late: numbers.
const WINDOW: u32 = 8192;

/// What the sequence numbers of one stream said.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// One above the highest number seen.
    next: u32,
    /// A bit per number of the window below `next`.
    seen: Box<[u64; (WINDOW / 64) as usize]>,
    /// Distinct numbers received.
    pub received: u64,
    /// Numbers received a second time.
    pub duplicates: u64,
    /// Numbers lower than an earlier arrival (RFC 4689 §3.3.4): a gap alone never counts here.
    pub reordered: u64,
}

impl Default for Sequence {
    fn default() -> Self {
        Sequence {
            next: 0,
            seen: Box::new([0; (WINDOW / 64) as usize]),
            received: 0,
            duplicates: 0,
            reordered: 0,
        }
    }
}

impl Sequence {
    /// Takes in the number of an arrived packet. Numbers wrap at 2³². A number so late that the window has forgotten
    /// it counts as received and reordered.
    #[inline]
    pub fn arrived(&mut self, number: u32) {
        if number == self.next {
            self.advance(number);
            self.received += 1;
        } else {
            self.out_of_step(number);
        }
    }

    /// A stream that begins with this number instead of 0.
    pub fn starting_at(number: u32) -> Self {
        Sequence { next: number, ..Sequence::default() }
    }

    /// One above the highest number received: what is outstanding is the number sent minus this (modulo 2³²).
    pub fn expected(&self) -> u32 {
        self.next
    }

    #[cold]
    fn out_of_step(&mut self, number: u32) {
        let ahead = number.wrapping_sub(self.next);
        if ahead < u32::MAX / 2 {
            // A gap: the numbers in between are missing until they arrive.
            for n in 0..ahead.min(WINDOW) {
                self.clear(self.next.wrapping_add(n));
            }
            self.advance(number);
            self.received += 1;
            return;
        }
        let behind = self.next.wrapping_sub(number);
        if behind >= WINDOW {
            self.received += 1;
            self.reordered += 1;
        } else if self.is_set(number) {
            self.duplicates += 1;
        } else {
            self.set(number);
            self.received += 1;
            self.reordered += 1;
        }
    }

    /// Every slot of the window was set by its number's arrival or cleared as a gap, so no stale bit is ever read.
    #[inline]
    fn advance(&mut self, number: u32) {
        self.set(number);
        self.next = number.wrapping_add(1);
    }

    #[inline]
    fn set(&mut self, number: u32) {
        let at = number % WINDOW;
        self.seen[(at / 64) as usize] |= 1 << (at % 64);
    }

    fn clear(&mut self, number: u32) {
        let at = number % WINDOW;
        self.seen[(at / 64) as usize] &= !(1 << (at % 64));
    }

    fn is_set(&self, number: u32) -> bool {
        let at = number % WINDOW;
        self.seen[(at / 64) as usize] & (1 << (at % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: &[u32]) -> (u64, u64, u64) {
        let mut s = Sequence::default();
        numbers.iter().for_each(|n| s.arrived(*n));
        (s.received, s.duplicates, s.reordered)
    }

    #[test]
    fn in_order_gap_duplicate_and_reordering_are_told_apart() {
        assert_eq!(after(&[0, 1, 2, 3]), (4, 0, 0));
        assert_eq!(after(&[0, 1, 5, 6]), (4, 0, 0), "loss alone is not reordering");
        assert_eq!(after(&[0, 1, 1, 2]), (3, 1, 0));
        assert_eq!(after(&[10, 15, 11]), (3, 0, 1), "the late one lowers the loss");
        assert_eq!(after(&[0, 2, 1, 1]), (3, 1, 1));
        assert_eq!(after(&[0, 9000, 1]), (3, 0, 1), "beyond the window");
    }

    #[test]
    fn the_window_forgets_nothing_and_wraps_around() {
        let mut s = Sequence::default();
        (0..20_000u32).for_each(|n| s.arrived(n));
        (15_000..20_000u32).for_each(|n| s.arrived(n));
        assert_eq!((s.received, s.duplicates, s.reordered), (20_000, 5_000, 0));

        let mut s = Sequence { next: u32::MAX - 1, ..Sequence::default() };
        [u32::MAX - 1, u32::MAX, 0, 2, 1, 2].iter().for_each(|n| s.arrived(*n));
        assert_eq!((s.received, s.duplicates, s.reordered, s.expected()), (5, 1, 1, 3));
    }

    #[test]
    fn a_gap_larger_than_the_window_leaves_no_stale_marks() {
        let mut s = Sequence::default();
        (0..WINDOW).for_each(|n| s.arrived(n));
        s.arrived(3 * WINDOW);
        s.arrived(3 * WINDOW - 5);
        assert_eq!((s.duplicates, s.reordered), (0, 1));
    }
}

//! Changes in batches: what one change reads is asked for while those before it are made.

use super::{Change, Ip4Fib, Refused, layout::SLOTS, rib::Rib};
use crate::fib::{apply::in_order, simd::prefetch};

/// How many changes ahead of its own the words of a change's slot are asked for.
const FAR: usize = 12;

/// How many changes ahead what those words name is asked for: its routes and its record.
const NEAR: usize = 6;

/// Slots of a short prefix that are asked for; those of longer ones are rare.
const MOST_SLOTS: usize = 4;

impl Ip4Fib {
    /// See [`Fib::apply`](crate::fib::Fib::apply).
    pub(super) fn apply_all(&mut self, changes: &[Change<u32>]) -> Result<(), Refused> {
        for change in changes.iter().take(FAR) {
            self.ask_words(change);
        }
        for change in changes.iter().take(NEAR) {
            self.ask_named(change);
        }
        let mut far = changes.iter().skip(FAR);
        let mut near = changes.iter().skip(NEAR);
        in_order(changes, |change| {
            if let Some(change) = far.next() {
                self.ask_words(change);
            }
            if let Some(change) = near.next() {
                self.ask_named(change);
            }
            match change.next_hop {
                Some(nh) => self.put_route(change.prefix, nh).map(drop),
                None => {
                    self.take_route(change.prefix);
                    Ok(())
                }
            }
        })
    }

    /// Asks for the words of the slot: its entry, and what the writer knows of it.
    fn ask_words(&self, change: &Change<u32>) {
        let (addr, len) = (change.prefix.first(), change.prefix.len());
        self.rib.prefetch_words(addr, len);
        if let Some(entry) = self.shared.direct().get((addr >> 14) as usize) {
            prefetch(entry);
        }
    }

    /// Asks for the routes of the slot and its record.
    fn ask_named(&self, change: &Change<u32>) {
        let (addr, len) = (change.prefix.first(), change.prefix.len());
        if !Rib::is_short(len) {
            return self.prefetch((addr >> 14) as usize);
        }
        for slot in Rib::slots_under(addr, len.max(1)).take(MOST_SLOTS).filter(|&slot| slot < SLOTS) {
            self.prefetch(slot);
        }
    }
}

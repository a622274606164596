//! The routes themselves, as the writer keeps them: what each record is painted from.

use super::layout::SLOTS;
use crate::fib::{FibError, arena::zeroed};

/// Longest prefix that covers whole slots.
const SHORT: u8 = 18;
/// Longest prefix that covers whole /24s.
const MID: u8 = 24;

/// A route below a slot: position of its first cell (8 bits), relative length (5 bits), next hop's index (19 bits).
/// As integers they sort so that a route comes after every route that covers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed(u32);

impl Packed {
    const INDEX_BITS: u32 = 19;

    fn new(position: u32, relative_len: u8, index: u32) -> Self {
        Packed(position << 24 | u32::from(relative_len) << Self::INDEX_BITS | index)
    }

    fn key(self) -> u32 {
        self.0 >> Self::INDEX_BITS
    }

    pub(crate) fn index(self) -> u32 {
        self.0 & ((1 << Self::INDEX_BITS) - 1)
    }

    /// First cell and number of cells, in a group of `cells` cells whose prefix has relative length -1.
    pub(crate) fn span(self, cells: usize) -> (usize, usize) {
        ((self.0 >> 24) as usize, cells >> ((self.0 >> Self::INDEX_BITS & 0x1f) + 1))
    }
}

/// Routes longer than /18 below one /18.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// /19 to /24.
    pub(crate) mid: Vec<Packed>,
    /// /24s that have longer routes, ascending.
    pub(crate) deep: Vec<Deep>,
}

/// Routes longer than /24 below one /24.
#[derive(Debug)]
pub(crate) struct Deep {
    /// Which /24 of the slot.
    pub(crate) cell: u8,
    /// /25 to /32.
    pub(crate) routes: Vec<Packed>,
    /// The quad in the arena; 0 before it is first published.
    pub(crate) quad: u32,
    /// The index painted under the routes.
    pub(crate) base: u32,
}

/// All routes of a table but the default route.
#[derive(Debug)]
pub(crate) struct Rib {
    /// Routes up to /18 as a binary tree in an array: node `1 << len | address bits`; index + 1, 0 = no route.
    short: Box<[u32]>,
    /// Longest short route over each slot: length (5 bits), index (19 bits); 0 = none.
    cover: Box<[u32]>,
    /// Number of the slot's [`Slot`] + 1; 0 = no longer routes.
    slot_of: Box<[u32]>,
    slots: Vec<Slot>,
    unused: Vec<u32>,
}

impl Rib {
    pub(crate) fn new() -> Result<Self, FibError> {
        Ok(Rib {
            short: zeroed(2 * SLOTS)?,
            cover: zeroed(SLOTS)?,
            slot_of: zeroed(SLOTS)?,
            slots: Vec::new(),
            unused: Vec::new(),
        })
    }

    /// Whether a prefix of this length covers whole slots.
    pub(crate) fn is_short(len: u8) -> bool {
        len <= SHORT
    }

    /// The slots a short prefix covers.
    pub(crate) fn slots_under(addr: u32, len: u8) -> std::ops::Range<usize> {
        let first = (addr >> 14) as usize;
        first..first + (SLOTS >> len)
    }

    /// The index of exactly this route.
    pub(crate) fn get(&self, addr: u32, len: u8) -> Option<u32> {
        if Self::is_short(len) {
            return self.short.get(node(addr, len)).and_then(|index| index.checked_sub(1));
        }
        let slot = self.slot((addr >> 14) as usize)?;
        if len <= MID {
            let key = Packed::new(addr >> 8 & 63, len - SHORT - 1, 0).key();
            return find(&slot.mid, key).ok().and_then(|i| slot.mid.get(i)).map(|r| r.index());
        }
        let cell = cell(addr);
        let deep = slot.deep.binary_search_by_key(&cell, |d| d.cell).ok().and_then(|i| slot.deep.get(i))?;
        let key = Packed::new(addr & 255, len - MID - 1, 0).key();
        find(&deep.routes, key).ok().and_then(|i| deep.routes.get(i)).map(|r| r.index())
    }

    /// Adds or replaces a route; returns the index it had. Covers are not touched.
    pub(crate) fn set(&mut self, addr: u32, len: u8, index: u32) -> Option<u32> {
        if Self::is_short(len) {
            let node = self.short.get_mut(node(addr, len))?;
            return std::mem::replace(node, index + 1).checked_sub(1);
        }
        let slot = self.slot_or_new((addr >> 14) as usize)?;
        if len <= MID {
            return put(&mut slot.mid, Packed::new(addr >> 8 & 63, len - SHORT - 1, index));
        }
        let cell = cell(addr);
        let at = match slot.deep.last() {
            Some(last) if last.cell == cell => slot.deep.len() - 1,
            _ => match slot.deep.binary_search_by_key(&cell, |d| d.cell) {
                Ok(at) => at,
                Err(at) => {
                    slot.deep.insert(at, Deep { cell, routes: Vec::new(), quad: 0, base: 0 });
                    at
                }
            },
        };
        put(&mut slot.deep.get_mut(at)?.routes, Packed::new(addr & 255, len - MID - 1, index))
    }

    /// Removes a route; returns its index. A /24 left without longer routes stays as an empty [`Deep`], a slot left
    /// without routes as an empty [`Slot`], until they are unpublished.
    pub(crate) fn remove(&mut self, addr: u32, len: u8) -> Option<u32> {
        if Self::is_short(len) {
            return self.short.get_mut(node(addr, len)).and_then(|node| std::mem::take(node).checked_sub(1));
        }
        let slot = self.slot_mut((addr >> 14) as usize)?;
        let (routes, key) = if len <= MID {
            (&mut slot.mid, Packed::new(addr >> 8 & 63, len - SHORT - 1, 0).key())
        } else {
            let at = slot.deep.binary_search_by_key(&cell(addr), |d| d.cell).ok()?;
            (&mut slot.deep.get_mut(at)?.routes, Packed::new(addr & 255, len - MID - 1, 0).key())
        };
        let at = find(routes, key).ok()?;
        Some(routes.remove(at).index())
    }

    /// A short route has appeared or changed: returns whether `slot` now follows it.
    pub(crate) fn cover_with(&mut self, slot: usize, len: u8, index: u32) -> bool {
        match self.cover.get_mut(slot) {
            Some(cover) if *cover >> Packed::INDEX_BITS <= u32::from(len) => {
                *cover = u32::from(len) << Packed::INDEX_BITS | index;
                true
            }
            _ => false,
        }
    }

    /// A short route has gone: slots that followed it follow `parent` (length and index) instead.
    pub(crate) fn uncover(&mut self, slot: usize, len: u8, parent: (u8, u32)) -> bool {
        match self.cover.get_mut(slot) {
            Some(cover) if *cover >> Packed::INDEX_BITS == u32::from(len) => {
                *cover = u32::from(parent.0) << Packed::INDEX_BITS | parent.1;
                true
            }
            _ => false,
        }
    }

    /// Length and index of the longest route over `addr` shorter than `len` (itself short); (0, 0) where none is.
    pub(crate) fn parent(&self, addr: u32, len: u8) -> (u8, u32) {
        (1..len).rev().find_map(|len| Some((len, self.get(addr, len)?))).unwrap_or((0, 0))
    }

    /// Recomputes every cover after many short routes have changed.
    pub(crate) fn recover(&mut self) {
        self.cover.fill(0);
        for len in 1..=SHORT {
            let size = SLOTS >> len;
            for (i, &node) in self.short.iter().skip(1 << len).take(1 << len).enumerate() {
                let Some(index) = node.checked_sub(1) else { continue };
                if let Some(slots) = self.cover.get_mut(i * size..(i + 1) * size) {
                    slots.fill(u32::from(len) << Packed::INDEX_BITS | index);
                }
            }
        }
    }

    /// The index under the slot's own routes: that of its longest short route, 0 (default) without one.
    pub(crate) fn base(&self, slot: usize) -> u32 {
        self.cover.get(slot).map_or(0, |cover| cover & ((1 << Packed::INDEX_BITS) - 1))
    }

    /// The routes below a slot, if there are any.
    pub(crate) fn slot(&self, slot: usize) -> Option<&Slot> {
        let number = self.slot_of.get(slot)?.checked_sub(1)?;
        self.slots.get(number as usize)
    }

    pub(crate) fn slot_mut(&mut self, slot: usize) -> Option<&mut Slot> {
        let number = self.slot_of.get(slot)?.checked_sub(1)?;
        self.slots.get_mut(number as usize)
    }

    /// Forgets a slot that has no routes left.
    pub(crate) fn drop_if_empty(&mut self, slot: usize) {
        if self.slot(slot).is_some_and(|s| s.mid.is_empty() && s.deep.is_empty())
            && let Some(number) = self.slot_of.get_mut(slot)
        {
            let number = std::mem::take(number) - 1;
            if let Some(slot) = self.slots.get_mut(number as usize) {
                *slot = Slot::default();
            }
            self.unused.push(number);
        }
    }

    /// Bytes in use, counting the sparse arrays in full once any slot is used.
    pub(crate) fn bytes(&self) -> usize {
        let arrays = (self.short.len() + self.cover.len() + self.slot_of.len()) * 4;
        let of = |slot: &Slot| {
            let deep: usize = slot.deep.iter().map(|d| d.routes.capacity() * 4).sum();
            slot.mid.capacity() * 4 + slot.deep.capacity() * size_of::<Deep>() + deep
        };
        let slots: usize = self.slots.iter().map(of).sum();
        arrays + slots + self.slots.capacity() * size_of::<Slot>() + self.unused.capacity() * 4
    }

    fn slot_or_new(&mut self, slot: usize) -> Option<&mut Slot> {
        let number = self.slot_of.get_mut(slot)?;
        if *number == 0 {
            *number = match self.unused.pop() {
                Some(number) => number + 1,
                None => {
                    self.slots.push(Slot::default());
                    self.slots.len() as u32
                }
            };
        }
        self.slots.get_mut(*number as usize - 1)
    }
}

impl Slot {
    /// Most words that records painted from here can take, `more` routes added.
    pub(crate) fn most_words(&self, more: usize) -> usize {
        let deep: usize = self.deep.iter().map(|d| deep_words(d.routes.len())).sum();
        super::layout::RECORD_WORDS.min(2 * (self.mid.len() + self.deep.len() + more) + 4)
            + deep
            + more * deep_words(1)
    }
}

/// Most words of a quad and its records for so many routes.
fn deep_words(routes: usize) -> usize {
    2 + (4 * super::layout::RECORD_WORDS).min(4 * routes + 8)
}

fn node(addr: u32, len: u8) -> usize {
    1 << len | (u64::from(addr) >> (32 - len)) as usize
}

fn cell(addr: u32) -> u8 {
    (addr >> 8 & 63) as u8
}

fn find(routes: &[Packed], key: u32) -> Result<usize, usize> {
    routes.binary_search_by_key(&key, |r| r.key())
}

fn put(routes: &mut Vec<Packed>, new: Packed) -> Option<u32> {
    if routes.last().is_none_or(|last| last.key() < new.key()) {
        routes.push(new);
        return None;
    }
    match find(routes, new.key()) {
        Ok(at) => routes.get_mut(at).map(|old| std::mem::replace(old, new).index()),
        Err(at) => {
            routes.insert(at, new);
            None
        }
    }
}

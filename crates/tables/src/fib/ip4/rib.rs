//! The routes themselves, as the writer keeps them: what each record is painted from.

use super::{
    below::{At, Blocks},
    layout::SLOTS,
};
use crate::fib::{FibError, arena::zeroed, simd::prefetch};
use zerocopy::FromZeros;

/// Longest prefix that covers whole slots.
const SHORT: u8 = 18;
/// Longest prefix that covers whole /24s.
const MID: u8 = 24;

/// A route below a slot: position of its first cell (8 bits), relative length (5 bits), next hop's index (19 bits).
/// As integers they sort so that a route comes after every route that covers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed(pub(super) u32);

impl Packed {
    const INDEX_BITS: u32 = 19;

    pub(super) fn new(position: u32, relative_len: u8, index: u32) -> Self {
        Packed(position << 24 | u32::from(relative_len) << Self::INDEX_BITS | index)
    }

    #[inline]
    pub(super) fn key(self) -> u32 {
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
pub(crate) struct Slot<'a> {
    /// /19 to /24.
    pub(crate) mid: &'a [Packed],
    /// /24s that have longer routes, ascending.
    pub(crate) deep: &'a [Deep],
}

/// The same, to note down where longer routes are published.
pub(crate) struct SlotMut<'a> {
    pub(crate) mid: &'a [Packed],
    pub(crate) deep: &'a mut [Deep],
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
    /// What is around each slot: one cache line answers both questions.
    slots: Box<[Around]>,
    blocks: Blocks,
    /// Lists of /24s with longer routes: few slots have any.
    deep: Vec<Vec<Deep>>,
    /// Lists that no slot uses.
    unused: Vec<u32>,
}

#[derive(Clone, Copy, Debug, FromZeros)]
struct Around {
    /// Longest short route over the slot: length (5 bits), index (19 bits); 0 = none.
    cover: u32,
    /// Block of the routes below it; 0 = no longer routes.
    below: At,
}

impl Rib {
    pub(crate) fn new() -> Result<Self, FibError> {
        Ok(Rib {
            short: zeroed(2 * SLOTS)?,
            slots: zeroed(SLOTS)?,
            blocks: Blocks::new(),
            deep: Vec::new(),
            unused: Vec::new(),
        })
    }

    /// Asks for the cache lines that a change below a slot reads first.
    #[inline]
    pub(crate) fn prefetch(&self, slot: usize) {
        self.blocks.prefetch(self.below(slot));
    }

    /// Asks for the words that say where to find those lines.
    #[inline]
    pub(crate) fn prefetch_words(&self, addr: u32, len: u8) {
        if let Some(around) = self.slots.get((addr >> 14) as usize) {
            prefetch(around);
        }
        if Self::is_short(len)
            && let Some(index) = self.short.get(node(addr, len))
        {
            prefetch(index);
        }
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
            return find(slot.mid, key).and_then(|i| slot.mid.get(i)).map(|r| r.index());
        }
        let cell = cell(addr);
        let deep = slot.deep.binary_search_by_key(&cell, |d| d.cell).ok().and_then(|i| slot.deep.get(i))?;
        let key = Packed::new(addr & 255, len - MID - 1, 0).key();
        find(&deep.routes, key).and_then(|i| deep.routes.get(i)).map(|r| r.index())
    }

    /// Adds or replaces a route; returns the index it had. Covers are not touched.
    pub(crate) fn set(&mut self, addr: u32, len: u8, index: u32) -> Option<u32> {
        if Self::is_short(len) {
            let node = self.short.get_mut(node(addr, len))?;
            return std::mem::replace(node, index + 1).checked_sub(1);
        }
        let around = self.slots.get_mut((addr >> 14) as usize)?;
        if len <= MID {
            let new = Packed::new(addr >> 8 & 63, len - SHORT - 1, index);
            return self.blocks.put(&mut around.below, new).map(Packed::index);
        }
        let number = match self.blocks.header(around.below).deep() {
            0 => {
                let number = self.unused.pop().unwrap_or_else(|| {
                    self.deep.push(Vec::new());
                    self.deep.len() as u32
                });
                self.blocks.set_deep(&mut around.below, number);
                number
            }
            number => number,
        };
        let deep = self.deep.get_mut(number as usize - 1)?;
        let cell = cell(addr);
        let at = match deep.last() {
            Some(last) if last.cell == cell => deep.len() - 1,
            _ => match deep.binary_search_by_key(&cell, |d| d.cell) {
                Ok(at) => at,
                Err(at) => {
                    deep.insert(at, Deep { cell, routes: Vec::new(), quad: 0, base: 0 });
                    at
                }
            },
        };
        put(&mut deep.get_mut(at)?.routes, Packed::new(addr & 255, len - MID - 1, index))
    }

    /// Removes a route; returns its index. A /24 left without longer routes stays as an empty [`Deep`], a slot left
    /// without routes as an empty [`Slot`], until they are unpublished.
    pub(crate) fn remove(&mut self, addr: u32, len: u8) -> Option<u32> {
        if Self::is_short(len) {
            return self.short.get_mut(node(addr, len)).and_then(|node| std::mem::take(node).checked_sub(1));
        }
        let slot = (addr >> 14) as usize;
        if len <= MID {
            let key = Packed::new(addr >> 8 & 63, len - SHORT - 1, 0).key();
            return self.blocks.take(self.below(slot), key).map(Packed::index);
        }
        let deep = self.deep_mut(slot)?;
        let at = deep.binary_search_by_key(&cell(addr), |d| d.cell).ok()?;
        let routes = &mut deep.get_mut(at)?.routes;
        let at = find(routes, Packed::new(addr & 255, len - MID - 1, 0).key())?;
        Some(routes.remove(at).index())
    }

    /// A short route has appeared or changed: returns whether `slot` now follows it.
    pub(crate) fn cover_with(&mut self, slot: usize, len: u8, index: u32) -> bool {
        match self.slots.get_mut(slot) {
            Some(Around { cover, .. }) if *cover >> Packed::INDEX_BITS <= u32::from(len) => {
                *cover = u32::from(len) << Packed::INDEX_BITS | index;
                true
            }
            _ => false,
        }
    }

    /// A short route has gone: slots that followed it follow `parent` (length and index) instead.
    pub(crate) fn uncover(&mut self, slot: usize, len: u8, parent: (u8, u32)) -> bool {
        match self.slots.get_mut(slot) {
            Some(Around { cover, .. }) if *cover >> Packed::INDEX_BITS == u32::from(len) => {
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
        self.slots.iter_mut().for_each(|slot| slot.cover = 0);
        for len in 1..=SHORT {
            let size = SLOTS >> len;
            for (i, &node) in self.short.iter().skip(1 << len).take(1 << len).enumerate() {
                let Some(index) = node.checked_sub(1) else { continue };
                for slot in self.slots.iter_mut().skip(i * size).take(size) {
                    slot.cover = u32::from(len) << Packed::INDEX_BITS | index;
                }
            }
        }
    }

    /// The index under the slot's own routes: that of its longest short route, 0 (default) without one.
    pub(crate) fn base(&self, slot: usize) -> u32 {
        self.slots.get(slot).map_or(0, |slot| slot.cover & ((1 << Packed::INDEX_BITS) - 1))
    }

    /// The routes below a slot, if there are any.
    pub(crate) fn slot(&self, slot: usize) -> Option<Slot<'_>> {
        let at = self.below(slot);
        (at != 0).then(|| Slot { mid: self.blocks.routes(at), deep: self.deep(at) })
    }

    /// The routes below a slot, if there are any.
    pub(crate) fn slot_mut(&mut self, slot: usize) -> Option<SlotMut<'_>> {
        let at = self.below(slot);
        if at == 0 {
            return None;
        }
        let deep = match self.blocks.header(at).deep() {
            0 => None,
            number => self.deep.get_mut(number as usize - 1),
        };
        Some(SlotMut { mid: self.blocks.routes(at), deep: deep.map_or(&mut [], Vec::as_mut_slice) })
    }

    /// The slot's /24s with longer routes, to take some out.
    pub(crate) fn deep_mut(&mut self, slot: usize) -> Option<&mut Vec<Deep>> {
        let number = self.blocks.header(self.below(slot)).deep();
        self.deep.get_mut(number.checked_sub(1)? as usize)
    }

    /// Forgets a slot that has no routes left.
    pub(crate) fn drop_if_empty(&mut self, slot: usize) {
        let at = self.below(slot);
        if at == 0 || !self.deep(at).is_empty() {
            return;
        }
        let mut below = at;
        if self.blocks.header(at).deep() != 0 {
            self.unused.push(self.blocks.header(at).deep());
            self.blocks.set_deep(&mut below, 0);
        }
        if self.blocks.routes(at).is_empty()
            && let Some(around) = self.slots.get_mut(slot)
        {
            around.below = 0;
            self.blocks.free(at);
        }
    }

    /// Moves the blocks together, and gives back the memory of routes that once were.
    pub(crate) fn compact(&mut self) {
        let old = std::mem::replace(&mut self.blocks, Blocks::new());
        for around in self.slots.iter_mut().filter(|around| around.below != 0) {
            around.below = self.blocks.adopt(&old, around.below);
        }
        for list in &mut self.deep {
            list.shrink_to_fit();
            list.iter_mut().for_each(|deep| deep.routes.shrink_to_fit());
        }
    }

    /// Bytes in use, counting the sparse arrays in full once any slot is used.
    pub(crate) fn bytes(&self) -> usize {
        let arrays = self.short.len() * 4 + self.slots.len() * size_of::<Around>();
        let of = |list: &Vec<Deep>| {
            let routes: usize = list.iter().map(|d| d.routes.capacity() * 4).sum();
            list.capacity() * size_of::<Deep>() + routes
        };
        let deep: usize = self.deep.iter().map(of).sum();
        let lists = self.deep.capacity() * size_of::<Vec<Deep>>() + self.unused.capacity() * 4;
        arrays + self.blocks.bytes() + deep + lists
    }

    #[inline]
    fn below(&self, slot: usize) -> At {
        self.slots.get(slot).map_or(0, |slot| slot.below)
    }

    fn deep(&self, at: At) -> &[Deep] {
        match self.blocks.header(at).deep() {
            0 => &[],
            number => self.deep.get(number as usize - 1).map_or(&[], Vec::as_slice),
        }
    }
}

impl Slot<'_> {
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

/// Where a route is or belongs. Counts instead of searching: a list has twenty routes on average, and a search in it would
/// branch on what the processor cannot foresee.
#[inline]
pub(super) fn position(routes: &[Packed], new: Packed) -> usize {
    let least = new.key() << Packed::INDEX_BITS;
    routes.iter().map(|route| u32::from(route.0 < least)).sum::<u32>() as usize
}

pub(super) fn find(routes: &[Packed], key: u32) -> Option<usize> {
    let at = position(routes, Packed(key << Packed::INDEX_BITS));
    routes.get(at).is_some_and(|route| route.key() == key).then_some(at)
}

fn put(routes: &mut Vec<Packed>, new: Packed) -> Option<u32> {
    let at = position(routes, new);
    match routes.get_mut(at).filter(|old| old.key() == new.key()) {
        Some(old) => Some(std::mem::replace(old, new).index()),
        None => {
            routes.insert(at, new);
            None
        }
    }
}

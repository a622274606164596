//! IPv4: a direct table over 18 bits, and bitmap-compressed records of 64 cells below it.
//!
//! ```text
//!  address   18 bits              6 bits        2 bits      6 bits
//!            │                    │             │           │
//!  direct ───▼── 2^18 entries     │             │           │        an entry is a leaf (next hop's index)
//!  table  [ leaf ][ ptr ][leaf]…  │             │           │        or points at a record
//!                   │             │             │           │
//!                   └► record ────▼───────┐     │           │        change word: bit i set = cell i starts
//!                      [change word][i0 i1 i2…] │           │        a new run; one item per run, 1, 2 or
//!                                          │    │           │        4 bytes each. Nearly all cells differ:
//!                        4-byte items only ▼    │           │        a plain array of 64 items instead
//!                                         quad ─▼───┐       │
//!                                         [e0 e1 e2 e3]     │        a /24 with longer routes: one entry per
//!                                                   │       │        /26, each a leaf or a record of 64
//!                                                   └► record        addresses
//! ```
//!
//! Lookup: entry; change word; population count of the word up to the cell; item. Mostly word and item share a cache
//! line. Index 0 means "whatever the default route says" and is resolved last, so changing the default route is one
//! store ([`NextHops`]).
//!
//! Updates repaint one record from the slot's routes, write it to a fresh block and publish it with one store of its
//! entry; the old block is retired through [QSBR](crate::qsbr). `docs/fib.md` has the figures and what else was tried.

mod apply;
pub(crate) mod batch;
mod below;
pub(crate) mod layout;
mod load;
mod portable;
mod reader;
mod rib;

pub use reader::{Ip4Reader, Kernel};

use super::{
    Change, Discard, Fib, FibError, FibMemory, NO_ROUTE, NextHopId, Refused,
    arena::{Arena, HEADROOM},
    next_hops::NextHops,
};
use crate::{prefix::Prefix, qsbr::Domain};
use layout::{CELLS, Encoded, Entry, Painted, QUAD_WORDS, SLOTS};
use reader::Shared;
use rib::{Deep, Rib};
use std::{
    mem,
    sync::{Arc, atomic::Ordering},
};

/// Direct-table entries per memory page, the unit in which an almost empty table costs memory.
const PAGE_ENTRIES: usize = 1024;

/// An IPv4 FIB: the writer.
#[derive(Debug)]
pub struct Ip4Fib {
    shared: Arc<Shared>,
    arena: Arena,
    hops: NextHops,
    rib: Rib,
    default: NextHopId,
    routes: usize,
    /// Entries other than "default" in each page of the direct table.
    page_use: Vec<u16>,
    /// Slots whose record could not be replaced for want of memory; tried again with every update.
    stale: Vec<usize>,
    kernel: Kernel,
}

/// What of a slot has to be painted again.
#[derive(Clone, Copy)]
enum Changed {
    /// Cells of the slot's own record, and everything below if its base has changed.
    Slot,
    /// These addresses (first and last) of one /24.
    Deep { cell: u8, first: u8, last: u8 },
    /// Everything.
    All,
}

impl Ip4Fib {
    /// An empty table whose replaced blocks are reclaimed through `domain`. Costs address space (some 4 MB), hardly
    /// any memory.
    pub fn new(domain: &Domain) -> Result<Self, FibError> {
        let arena = Arena::new(domain.clone())?;
        let hops = NextHops::new(domain.clone())?;
        let shared = Arc::new(Shared::new(Arc::clone(arena.words()), Arc::clone(hops.shared()))?);
        Ok(Ip4Fib {
            shared,
            arena,
            hops,
            rib: Rib::new()?,
            default: NO_ROUTE,
            routes: 0,
            page_use: vec![0; SLOTS / PAGE_ENTRIES],
            stale: Vec::new(),
            kernel: Kernel::best(),
        })
    }

    /// The kernel that readers of this table use unless told otherwise.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// Makes replaced blocks whose readers have moved on available again. Updates do it by themselves when they need
    /// memory; this is for looking at [`memory`](Fib::memory) afterwards.
    pub fn reclaim(&mut self) {
        self.arena.reclaim();
    }

    /// Asks for the cache lines that changing one slot is going to read: they are far apart, and each step that waits for
    /// one of them would otherwise come after the step before.
    fn prefetch(&self, slot: usize) {
        self.rib.prefetch(slot);
        // A leaf's "record" is asked for as well: cheaper than a branch nobody can foresee.
        let at = self.entry(slot).at();
        self.arena.prefetch(at);
        self.arena.prefetch(at + 8);
    }

    fn set_default(&mut self, nh: NextHopId) -> Option<NextHopId> {
        self.hops.set_default(nh);
        let old = mem::replace(&mut self.default, nh);
        (old != NO_ROUTE).then_some(old)
    }

    /// [`insert`](Fib::insert), its memory asked for.
    fn put_route(&mut self, prefix: Prefix<u32>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        if nh == NO_ROUTE {
            return Err(FibError::ReservedNextHop);
        }
        let (addr, len) = (prefix.first(), prefix.len());
        if len == 0 {
            let old = self.set_default(nh);
            self.routes += usize::from(old.is_none());
            return Ok(old);
        }
        if self.rib.get(addr, len).is_some_and(|index| self.hops.id(index) == nh) {
            return Ok(Some(nh));
        }
        self.retry_stale();
        self.arena.reserve(self.most_words(addr, len) + HEADROOM)?;
        let index = self.hops.acquire(nh)?;
        let old = self.rib.set(addr, len, index);
        if Rib::is_short(len) {
            for slot in Rib::slots_under(addr, len) {
                if self.rib.cover_with(slot, len, index) {
                    self.publish_or_defer(slot, Changed::Slot);
                }
            }
        } else {
            self.publish_or_defer((addr >> 14) as usize, changed_by(prefix));
        }
        self.routes += usize::from(old.is_none());
        Ok(old.map(|index| {
            let id = self.hops.id(index);
            self.hops.release(index);
            id
        }))
    }

    /// [`withdraw`](Fib::withdraw), its memory asked for.
    fn take_route(&mut self, prefix: Prefix<u32>) -> Option<NextHopId> {
        let (addr, len) = (prefix.first(), prefix.len());
        if len == 0 {
            let old = self.set_default(NO_ROUTE);
            self.routes -= usize::from(old.is_some());
            return old;
        }
        let index = self.rib.remove(addr, len)?;
        self.retry_stale();
        if Rib::is_short(len) {
            let parent = self.rib.parent(addr, len);
            for slot in Rib::slots_under(addr, len) {
                if self.rib.uncover(slot, len, parent) {
                    self.publish_or_defer(slot, Changed::Slot);
                }
            }
        } else {
            let slot = (addr >> 14) as usize;
            self.publish_or_defer(slot, changed_by(prefix));
            self.rib.drop_if_empty(slot);
        }
        self.routes -= 1;
        let id = self.hops.id(index);
        self.hops.release(index);
        Some(id)
    }

    /// What publishing a change to this prefix can take at most.
    fn most_words(&self, addr: u32, len: u8) -> usize {
        if Rib::is_short(len) {
            Rib::slots_under(addr, len).filter_map(|slot| self.rib.slot(slot)).map(|s| s.most_words(0)).sum()
        } else {
            self.rib.slot((addr >> 14) as usize).map_or(256, |s| s.most_words(1))
        }
    }

    fn retry_stale(&mut self) {
        for slot in mem::take(&mut self.stale) {
            self.publish_or_defer(slot, Changed::All);
        }
    }

    fn publish_or_defer(&mut self, slot: usize, changed: Changed) {
        if self.publish(slot, changed).is_err() {
            self.stale.push(slot);
        }
    }

    /// Brings what readers see of a slot up to date with its routes.
    fn publish(&mut self, slot: usize, changed: Changed) -> Result<(), FibError> {
        let base = self.rib.base(slot);
        let Some(routes) = self.rib.slot_mut(slot) else {
            self.set_entry(slot, Entry::leaf(base));
            return Ok(());
        };
        // Routes below a /24 that had such routes before: its quad changes in place, the slot's record does not.
        if let Changed::Deep { cell, first, last } = changed
            && let Ok(at) = routes.deep.binary_search_by_key(&cell, |d| d.cell)
            && let Some(deep) = routes.deep.get_mut(at)
            && deep.quad != 0
            && !deep.routes.is_empty()
        {
            return paint_deep(&mut self.arena, deep, deep.base, first, last);
        }
        let mut cells = [base; CELLS];
        for route in routes.mid {
            let (first, count) = route.span(CELLS);
            if let Some(cells) = cells.get_mut(first..first + count) {
                cells.fill(route.index());
            }
        }
        let mut emptied = false;
        for deep in routes.deep {
            let Some(cell) = cells.get_mut(usize::from(deep.cell)) else { continue };
            if deep.routes.is_empty() {
                emptied = true;
                continue;
            }
            if deep.quad == 0 || deep.base != *cell || matches!(changed, Changed::All) {
                paint_deep(&mut self.arena, deep, *cell, 0, 255)?;
            }
            *cell = Entry::quad(deep.quad).0;
        }
        self.set_cells(slot, &cells)?;
        if emptied {
            self.drop_emptied(slot);
        }
        Ok(())
    }

    /// Publishes a slot's painted cells.
    fn set_cells(&mut self, slot: usize, cells: &[u32; CELLS]) -> Result<(), FibError> {
        let mut record = Encoded::default();
        let entry = match record.encode(cells) {
            Painted::Uniform(entry) => entry,
            Painted::Record => {
                let old = self.entry(slot);
                if is_same(&self.arena, old, &record) {
                    return Ok(());
                }
                store(&mut self.arena, &record)?
            }
        };
        self.set_entry(slot, entry);
        Ok(())
    }

    /// Forgets /24s whose last longer route has gone, now that no record points at their quads.
    fn drop_emptied(&mut self, slot: usize) {
        let Some(deep) = self.rib.deep_mut(slot) else { return };
        let arena = &mut self.arena;
        deep.retain(|deep| {
            if deep.routes.is_empty() && deep.quad != 0 {
                for part in 0..4 {
                    retire_record(arena, quad_entry(arena, deep.quad, part));
                }
                arena.retire(deep.quad, QUAD_WORDS);
            }
            !deep.routes.is_empty()
        });
        self.rib.drop_if_empty(slot);
    }

    fn entry(&self, slot: usize) -> Entry {
        self.shared.direct().get(slot).map_or(Entry::DEFAULT, |entry| Entry(entry.load(Ordering::Relaxed)))
    }

    /// The one store that publishes a slot; retires the record it replaces.
    fn set_entry(&mut self, slot: usize, entry: Entry) {
        let old = self.entry(slot);
        if old == entry {
            return;
        }
        if let Some(word) = self.shared.direct().get(slot) {
            // Release: who sees the entry sees the record's words.
            word.store(entry.0, Ordering::Release);
        }
        if let Some(used) = self.page_use.get_mut(slot / PAGE_ENTRIES) {
            *used += u16::from(old == Entry::DEFAULT);
            *used -= u16::from(entry == Entry::DEFAULT);
        }
        retire_record(&mut self.arena, old);
    }
}

impl Fib<u32> for Ip4Fib {
    type Reader = Ip4Reader;

    fn reader(&self) -> Ip4Reader {
        Ip4Reader::new(Arc::clone(&self.shared), self.kernel)
    }

    fn insert(&mut self, prefix: Prefix<u32>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        if !Rib::is_short(prefix.len()) {
            self.prefetch((prefix.first() >> 14) as usize);
        }
        self.put_route(prefix, nh)
    }

    fn withdraw(&mut self, prefix: Prefix<u32>) -> Option<NextHopId> {
        if !Rib::is_short(prefix.len()) {
            self.prefetch((prefix.first() >> 14) as usize);
        }
        self.take_route(prefix)
    }

    fn apply(&mut self, changes: &[Change<u32>]) -> Result<(), Refused> {
        self.apply_all(changes)
    }

    fn get(&self, prefix: Prefix<u32>) -> Option<NextHopId> {
        if prefix.len() == 0 {
            return (self.default != NO_ROUTE).then_some(self.default);
        }
        self.rib.get(prefix.first(), prefix.len()).map(|index| self.hops.id(index))
    }

    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<u32>, NextHopId)>) -> Result<(), FibError> {
        self.load_all(routes.into_iter().collect())
    }

    fn len(&self) -> usize {
        self.routes
    }

    fn memory(&self) -> FibMemory {
        let pages = self.page_use.iter().filter(|&&used| used > 0).count();
        let direct = pages * PAGE_ENTRIES * mem::size_of::<u32>();
        FibMemory {
            lookup: direct + self.arena.live_bytes() + self.hops.lookup_bytes(),
            control: self.rib.bytes() + self.hops.control_bytes() + self.arena.control_bytes(),
            retired: self.arena.retired_bytes(),
        }
    }

    fn compact(&mut self, discard: Discard) {
        self.rib.compact();
        self.arena.compact(discard);
    }
}

/// What a route longer than /18 touches.
fn changed_by(prefix: Prefix<u32>) -> Changed {
    if prefix.len() <= 24 {
        return Changed::Slot;
    }
    let cell = (prefix.first() >> 8 & 63) as u8;
    Changed::Deep { cell, first: prefix.first() as u8, last: prefix.last() as u8 }
}

/// Paints the addresses of a /24 and replaces the quad's entries for those parts that hold `first..=last`.
fn paint_deep(arena: &mut Arena, deep: &mut Deep, base: u32, first: u8, last: u8) -> Result<(), FibError> {
    let mut cells = [[base; CELLS]; 4];
    let flat = cells.as_flattened_mut();
    for route in &deep.routes {
        let (first, count) = route.span(4 * CELLS);
        if let Some(cells) = flat.get_mut(first..first + count) {
            cells.fill(route.index());
        }
    }
    if deep.quad == 0 {
        let quad = arena.alloc(QUAD_WORDS)?;
        arena.set(quad, 0);
        arena.set(quad + 1, 0);
        deep.quad = quad;
    }
    let mut record = Encoded::default();
    for (part, cells) in
        cells.iter().enumerate().take(usize::from(last) / 64 + 1).skip(usize::from(first) / 64)
    {
        let old = quad_entry(arena, deep.quad, part);
        let new = match record.encode(cells) {
            Painted::Uniform(entry) => entry,
            Painted::Record if is_same(arena, old, &record) => continue,
            Painted::Record => store(arena, &record)?,
        };
        if new != old {
            set_quad_entry(arena, deep.quad, part, new);
            retire_record(arena, old);
        }
    }
    deep.base = base;
    Ok(())
}

fn quad_entry(arena: &Arena, quad: u32, part: usize) -> Entry {
    Entry((arena.get(quad + part as u32 / 2) >> (part % 2 * 32)) as u32)
}

fn set_quad_entry(arena: &Arena, quad: u32, part: usize, entry: Entry) {
    let (at, shift) = (quad + part as u32 / 2, part % 2 * 32);
    arena.set(at, arena.get(at) & !(u64::from(u32::MAX) << shift) | u64::from(entry.0) << shift);
}

/// Writes a record into a fresh block.
fn store(arena: &mut Arena, record: &Encoded) -> Result<Entry, FibError> {
    let at = arena.alloc(record.words().len())?;
    for (i, &word) in record.words().iter().enumerate() {
        arena.set(at + i as u32, word);
    }
    Ok(record.entry(at))
}

/// Whether `entry` already points at an equal record.
fn is_same(arena: &Arena, entry: Entry, record: &Encoded) -> bool {
    record.same_shape(entry)
        && record.words().iter().enumerate().all(|(i, &word)| arena.get(entry.at() + i as u32) == word)
}

/// Gives the record an unlinked entry pointed at back after a grace period.
fn retire_record(arena: &mut Arena, entry: Entry) {
    if entry.is_pointer() {
        let words = entry.record_words(arena.get(entry.at()));
        arena.retire(entry.at(), words);
    }
}

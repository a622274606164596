//! Short lists whose first items lie in their owner, the rest in one allocation.
//!
//! Most nodes of a routing tree have one route and one node below. A vector each would put those into cache lines (and
//! memory pages) of their own, and a change in a full table waits for every line it touches. The owner keeps an array
//! and the number of items; a list that outgrows the array moves to a block, and the array's first item then says where.

use super::simd::prefetch;

/// What lists can hold: anything that can hold a position instead.
pub(crate) trait Item: Copy + Default {
    /// An item that holds a position.
    fn from_position(at: u32) -> Self;
    /// That position.
    fn position(self) -> u32;
}

impl Item for u32 {
    fn from_position(at: u32) -> Self {
        at
    }

    fn position(self) -> u32 {
        self
    }
}

/// The items of all lists that do not fit into their owners, in blocks of a power of two each.
#[derive(Default)]
pub(crate) struct Lists<T> {
    items: Vec<T>,
    /// Unused blocks, by the logarithm of their size.
    free: [Vec<u32>; 8],
}

impl<T: Item> Lists<T> {
    /// The items of a list.
    #[inline]
    pub(crate) fn get<'a, const N: usize>(&'a self, own: &'a [T; N], len: usize) -> &'a [T] {
        if len <= N {
            return &own[..len];
        }
        let at = own[0].position() as usize;
        &self.items[at..at + len]
    }

    /// Asks for the cache line of an item that is not in its owner.
    #[inline]
    pub(crate) fn prefetch<const N: usize>(&self, own: &[T; N], len: usize, i: usize) {
        if let Some(item) = self.get(own, len).get(i) {
            prefetch(item);
        }
    }

    /// One item of a list.
    #[inline]
    pub(crate) fn item_mut<'a, const N: usize>(
        &'a mut self,
        own: &'a mut [T; N],
        len: usize,
        i: usize,
    ) -> &'a mut T {
        if len <= N { &mut own[i] } else { &mut self.items[own[0].position() as usize + i] }
    }

    /// Puts an item in front of the one at `i`.
    pub(crate) fn insert<const N: usize>(&mut self, own: &mut [T; N], len: usize, i: usize, new: T) {
        if len < N {
            own.copy_within(i..len, i + 1);
            own[i] = new;
            return;
        }
        if len == N {
            let to = self.alloc(len + 1);
            self.items[to..to + len].copy_from_slice(own);
            own[0] = T::from_position(to as u32);
        } else if len.is_power_of_two() {
            self.move_block(own, len, len + 1);
        }
        let at = own[0].position() as usize;
        let list = &mut self.items[at..=at + len];
        list.copy_within(i..len, i + 1);
        list[i] = new;
    }

    /// Takes the item at `i` out.
    pub(crate) fn remove<const N: usize>(&mut self, own: &mut [T; N], len: usize, i: usize) -> T {
        if len <= N {
            let old = own[i];
            own.copy_within(i + 1..len, i);
            return old;
        }
        let at = own[0].position() as usize;
        let list = &mut self.items[at..at + len];
        let old = list[i];
        list.copy_within(i + 1.., i);
        let left = len - 1;
        if left == N {
            own.copy_from_slice(&list[..left]);
            self.free[class(len)].push(at as u32);
        } else if left.is_power_of_two() {
            self.move_block(own, len, left);
        }
        old
    }

    /// Gives back what a list has besides its owner's array.
    pub(crate) fn clear<const N: usize>(&mut self, own: &[T; N], len: usize) {
        if len > N {
            self.free[class(len)].push(own[0].position());
        }
    }

    /// Bytes in use and free.
    pub(crate) fn memory(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.items.capacity() * size_of::<T>() + free * size_of::<u32>()
    }

    /// Moves a list from the block for `from` items to one for `to` items.
    fn move_block<const N: usize>(&mut self, own: &mut [T; N], from: usize, to: usize) {
        let (old, new) = (own[0].position() as usize, self.alloc(to));
        self.items.copy_within(old..old + from.min(to), new);
        self.free[class(from)].push(old as u32);
        own[0] = T::from_position(new as u32);
    }

    fn alloc(&mut self, len: usize) -> usize {
        if let Some(at) = self.free[class(len)].pop() {
            return at as usize;
        }
        let at = self.items.len();
        self.items.resize(at + len.next_power_of_two(), T::default());
        at
    }
}

/// The logarithm of the size of the block that holds so many items, 128 at most.
fn class(len: usize) -> usize {
    len.next_power_of_two().ilog2() as usize & 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_vectors_and_their_blocks_come_back() {
        let mut lists = Lists::<u32>::default();
        let mut bytes = 0;
        for round in 0..4usize {
            let (mut own, mut model) = ([0u32; 3], Vec::new());
            for n in 0..128usize {
                let i = n * (7 + round) % (n + 1);
                lists.insert(&mut own, n, i, n as u32);
                model.insert(i, n as u32);
                *lists.item_mut(&mut own, n + 1, i) += 1_000;
                model[i] += 1_000;
                assert_eq!(lists.get(&own, n + 1), model);
            }
            for n in (1..=128usize).rev() {
                let i = n * 11 % n;
                assert_eq!(lists.remove(&mut own, n, i), model.remove(i));
                assert_eq!(lists.get(&own, n - 1), model);
            }
            for n in 0..50 {
                lists.insert(&mut own, n, n, 1);
            }
            lists.clear(&own, 50);
            bytes = if round == 0 { lists.items.len() } else { bytes };
            assert_eq!(lists.items.len(), bytes, "round {round}");
        }
    }
}

//! A hash map that control changes entry by entry and workers read without locks.
//!
//! Built of many small immutable shards, each replaced as a whole like a [snapshot](crate::snapshot): a change copies the
//! few keys of one shard and none of the values, whatever the size of the map. A worker never frees anything: the
//! publisher keeps each replaced shard until no reader has it any more. (The first lookup of a thread allocates `arc-swap`'s
//! record of that thread, once.)

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Something to look up by.
pub trait MapKey: Copy + Eq {
    /// A hash of which every bit depends on every bit of the key, and on the seed in a way that whoever chooses keys
    /// cannot foresee.
    fn hash(&self, seed: u64) -> u64;
}

impl MapKey for u64 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        mix(mix(*self, seed), seed)
    }
}

impl<const N: usize> MapKey for [u64; N] {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        self.iter().fold(seed, |hash, word| mix(*word, hash))
    }
}

/// Folds a product of 128 bits: two odd constants keep zero from swallowing the other side.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64
}

type Shard<K, V> = Vec<(K, Arc<V>)>;

#[derive(Debug)]
struct Shards<K, V> {
    shards: Box<[ArcSwap<Shard<K, V>>]>,
    seed: u64,
}

impl<K: MapKey, V> Shards<K, V> {
    #[inline]
    fn of(&self, key: &K) -> Option<&ArcSwap<Shard<K, V>>> {
        // The number of shards is a power of two.
        self.shards.get(key.hash(self.seed) as usize & (self.shards.len() - 1))
    }
}

/// The writing side: one owner, on a control thread.
#[derive(Debug)]
pub struct MapPublisher<K, V> {
    shards: Arc<Shards<K, V>>,
    len: usize,
    /// What all shards without an entry are.
    empty: Arc<Shard<K, V>>,
    /// Replaced shards that a reader may still hold.
    old: Vec<Arc<Shard<K, V>>>,
}

impl<K: MapKey, V> MapPublisher<K, V> {
    /// An empty map of at least `shards` shards: a change costs as much as there are entries per shard. Different maps
    /// should have different seeds.
    pub fn new(shards: usize, seed: u64) -> Self {
        let empty = Arc::new(Vec::new());
        let shards = (0..shards.max(1).next_power_of_two()).map(|_| ArcSwap::new(Arc::clone(&empty)));
        let shards = Arc::new(Shards { shards: shards.collect(), seed });
        MapPublisher { shards, len: 0, empty, old: Vec::new() }
    }

    /// Adds an entry or replaces its value; returns the value that was there. Readers see it from their next lookup on.
    pub fn insert(&mut self, key: K, value: Arc<V>) -> Option<Arc<V>> {
        let had = self.change(&key, Some(value));
        self.len += usize::from(had.is_none());
        had
    }

    /// Removes an entry; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<Arc<V>> {
        let had = self.change(key, None);
        self.len -= usize::from(had.is_some());
        had
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let shard = self.shards.of(key)?.load();
        shard.iter().find(|(k, _)| k == key).map(|(_, value)| Arc::clone(value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops the replaced shards that no reader holds any more; returns how many remain.
    pub fn collect(&mut self) -> usize {
        self.old.retain(|shard| Arc::strong_count(shard) > 1);
        self.old.len()
    }

    /// A reader.
    pub fn reader(&self) -> MapReader<K, V> {
        MapReader(Arc::clone(&self.shards))
    }

    fn change(&mut self, key: &K, value: Option<Arc<V>>) -> Option<Arc<V>> {
        let slot = self.shards.of(key)?;
        let mut shard = Vec::clone(&slot.load());
        let at = shard.iter().position(|(k, _)| k == key);
        let had = match (at, value) {
            (Some(at), Some(value)) => shard.get_mut(at).map(|e| std::mem::replace(&mut e.1, value)),
            (Some(at), None) => Some(shard.swap_remove(at).1),
            (None, Some(value)) => {
                shard.push((*key, value));
                None
            }
            (None, None) => return None,
        };
        let shard = if shard.is_empty() { Arc::clone(&self.empty) } else { Arc::new(shard) };
        let replaced = slot.swap(shard);
        if !Arc::ptr_eq(&replaced, &self.empty) {
            self.old.push(replaced);
        }
        if self.old.len() >= COLLECT {
            self.collect();
        }
        had
    }
}

/// So many replaced shards make a change look which of them can go.
const COLLECT: usize = 64;

/// The reading side: one per worker and node, cheap to clone.
#[derive(Debug)]
pub struct MapReader<K, V>(Arc<Shards<K, V>>);

impl<K, V> Clone for MapReader<K, V> {
    fn clone(&self) -> Self {
        MapReader(Arc::clone(&self.0))
    }
}

impl<K: MapKey, V> MapReader<K, V> {
    /// Calls `then` with the value of a key, where it has one. The value stays alive meanwhile, whatever control does.
    #[inline]
    pub fn find<T>(&self, key: &K, then: impl FnOnce(&V) -> T) -> Option<T> {
        let shard = self.0.of(key)?.load();
        shard.iter().find(|(k, _)| k == key).map(|(_, value)| then(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_shards_with_many_entries_and_many_with_few() {
        for shards in [1, 64, 1000] {
            let mut map = MapPublisher::new(shards, 7);
            let reader = map.reader();
            for i in 0..5000u64 {
                assert!(map.insert(i << 32 | 5, Arc::new(i)).is_none());
            }
            assert_eq!(map.insert(5, Arc::new(77)).as_deref(), Some(&0));
            assert_eq!((map.len(), reader.find(&5, |v| *v), reader.find(&6, |v| *v)), (5000, Some(77), None));
            for i in 1..5000u64 {
                assert_eq!(reader.find(&(i << 32 | 5), |v| *v), Some(i));
                assert_eq!(map.remove(&(i << 32 | 5)).as_deref(), Some(&i));
            }
            assert!(map.remove(&6).is_none() && !map.is_empty());
            assert_eq!((map.collect(), map.len(), map.get(&5).as_deref()), (0, 1, Some(&77)));
        }
    }

    #[test]
    fn keys_that_differ_in_one_bit_spread() {
        for seed in [0, 1, 0xffff_ffff_ffff_ffff] {
            let mut used = [0u32; 256];
            for i in 0..64u64 {
                for base in [0u64, 0x0a00_0001_e801_0101] {
                    used[(base ^ 1 << i).hash(seed) as usize & 255] += 1;
                    used[[base, 1 << i, 0, 0].hash(seed) as usize & 255] += 1;
                    used[[0, 0, base, 1 << i].hash(seed) as usize & 255] += 1;
                }
            }
            assert!(used.iter().all(|n| *n < 10), "{seed}: {used:?}");
        }
    }

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_publisher_alone_drops_and_everything_is_dropped() {
        let drops = Arc::<AtomicUsize>::default();
        let mut map = MapPublisher::new(4, 1);
        let reader = map.reader();
        map.insert(1u64, Arc::new(Counted(drops.clone())));
        reader.find(&1, |_| {
            map.remove(&1);
            map.collect();
            assert_eq!(drops.load(Relaxed), 0, "a reader looks at it");
        });
        assert_eq!(drops.load(Relaxed), 0);
        assert_eq!((map.collect(), drops.load(Relaxed)), (0, 1));
        for i in 0..1000 {
            map.insert(i % 3, Arc::new(Counted(drops.clone())));
        }
        drop((map, reader));
        assert_eq!(drops.load(Relaxed), 1001);
    }

    #[test]
    fn readers_see_each_entry_whole_while_it_is_replaced() {
        let mut map = MapPublisher::new(2, 3);
        for key in 0..8u64 {
            map.insert(key, Arc::new([key, 0, 0]));
        }
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = map.reader();
                std::thread::spawn(move || {
                    let mut last = 0;
                    while last < 20_000 {
                        let [key, a, b] = reader.find(&3, |v| *v).unwrap();
                        assert_eq!((key, a), (3, b));
                        assert!(a >= last);
                        last = a;
                        assert!(reader.find(&(a % 8), |v| v[0] == a % 8).unwrap_or(true));
                    }
                })
            })
            .collect();
        for i in 1..=20_000 {
            map.insert(3, Arc::new([3, i, i]));
            map.remove(&(4 + i % 4));
            map.insert(4 + i % 4, Arc::new([4 + i % 4, i, i]));
        }
        readers.into_iter().for_each(|r| r.join().unwrap());
        assert_eq!(map.collect(), 0);
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..40u64, prop::option::of(0..1000u64)), 0..300)) {
            let (mut map, mut naive) = (MapPublisher::new(8, 5), HashMap::new());
            let reader = map.reader();
            for (key, value) in steps {
                let had = match value {
                    Some(value) => (map.insert([key, 1, key, 2], Arc::new(value)), naive.insert(key, value)),
                    None => (map.remove(&[key, 1, key, 2]), naive.remove(&key)),
                };
                prop_assert_eq!(had.0.as_deref(), had.1.as_ref());
                for key in 0..40 {
                    prop_assert_eq!(reader.find(&[key, 1, key, 2], |v| *v), naive.get(&key).copied());
                }
            }
            prop_assert_eq!(map.len(), naive.len());
        }
    }
}

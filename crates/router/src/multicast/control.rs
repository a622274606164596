//! The control half: which multicast routes there are, and what workers see of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use linerate_pipeline::{IfIndex, InterfaceTable};
use linerate_tables::fib::Fib;
use linerate_tables::snapshot::Publisher;
use linerate_tables::snapshot_map::MapPublisher;

use super::model::{Mroute, MrouteError, MrouteKey, MrouteOrigin, MrouteView};
use super::table::{Counters, Egress, Entry, Multicast, Stream4, Stream6, stream4, stream6};
use crate::router::Router;

/// Shards of the table of each family: with tens of thousands of streams a change copies a handful of keys.
const SHARDS: usize = 8192;

/// Seeds of the tables' hashes. Streams come from hosts that join them, but where two collide costs a comparison of keys
/// that lie side by side.
const SEEDS: (u64, u64) = (0x6d63_6173_7434, 0x6d63_6173_7436);

/// Multicast routes and their tables.
#[derive(Debug)]
pub struct MulticastControl {
    routes: BTreeMap<MrouteKey, Slot>,
    ip4: MapPublisher<Stream4, Entry>,
    ip6: MapPublisher<Stream6, Entry>,
    egress: Publisher<Egress>,
}

/// What is wanted for a stream, and by whom.
#[derive(Debug, Default)]
struct Slot {
    configured: Option<Mroute>,
    learned: Option<Mroute>,
    /// Go on when the route changes.
    counters: Arc<Counters>,
}

impl Slot {
    fn best(&self) -> Option<(MrouteOrigin, &Mroute)> {
        let configured = self.configured.as_ref().map(|r| (MrouteOrigin::Static, r));
        configured.or_else(|| self.learned.as_ref().map(|r| (MrouteOrigin::Learned, r)))
    }

    fn of(&mut self, origin: MrouteOrigin) -> &mut Option<Mroute> {
        match origin {
            MrouteOrigin::Static => &mut self.configured,
            MrouteOrigin::Learned => &mut self.learned,
        }
    }
}

impl Default for MulticastControl {
    fn default() -> Self {
        MulticastControl {
            routes: BTreeMap::new(),
            ip4: MapPublisher::new(SHARDS, SEEDS.0),
            ip6: MapPublisher::new(SHARDS, SEEDS.1),
            egress: Publisher::new(Egress::default()),
        }
    }
}

impl MulticastControl {
    /// What workers get.
    pub fn reader(&self) -> Multicast {
        Multicast { ip4: self.ip4.reader(), ip6: self.ip6.reader(), egress: self.egress.reader() }
    }

    /// Follows the interfaces: copies leave by those that are up. Routes lose outputs whose interface is gone or another
    /// one now, and go with their input. Where an input has another VRF now, configured routes follow it there, and learned
    /// ones go: who taught them knows nothing of the other VRF.
    pub fn use_interfaces(&mut self, old: &InterfaceTable, new: &InterfaceTable) {
        let is_gone = |(i, interface): &(IfIndex, &linerate_pipeline::Interface)| {
            new.get(*i).is_none_or(|now| now.name != interface.name)
        };
        let gone: Vec<IfIndex> = old.iter().filter(is_gone).map(|(i, _)| i).collect();
        let has_moved = |(i, interface): &(IfIndex, &linerate_pipeline::Interface)| {
            new.get(*i).is_some_and(|now| now.name == interface.name && now.vrf != interface.vrf)
        };
        let moved: Vec<IfIndex> = old.iter().filter(has_moved).map(|(i, _)| i).collect();
        self.egress.publish(Egress::new(new));
        if gone.is_empty() && moved.is_empty() {
            return;
        }
        let mut follow = Vec::new();
        let keys: Vec<MrouteKey> = self.routes.keys().copied().collect();
        for key in keys {
            for origin in [MrouteOrigin::Static, MrouteOrigin::Learned] {
                let Some(route) = self.routes.get_mut(&key).and_then(|slot| slot.of(origin).clone()) else {
                    continue;
                };
                let is_gone = gone.contains(&route.input);
                if is_gone || moved.contains(&route.input) {
                    self.set(key, origin, None);
                }
                if is_gone {
                    continue;
                }
                if moved.contains(&route.input) {
                    if let (MrouteOrigin::Static, Some(input)) = (origin, new.get(route.input)) {
                        follow.push((MrouteKey { vrf: input.vrf, ..key }, route));
                    }
                } else if route.outputs.iter().any(|o| gone.contains(&o.interface)) {
                    let outputs =
                        route.outputs.iter().filter(|o| !gone.contains(&o.interface)).copied().collect();
                    self.set(key, origin, Some(Mroute { outputs, ..route }));
                }
            }
        }
        for (key, mut route) in follow {
            route.outputs.retain(|o| !gone.contains(&o.interface));
            self.set(key, MrouteOrigin::Static, Some(route));
        }
    }

    /// Adds, replaces or removes a route; returns whether one was there.
    pub fn set(&mut self, key: MrouteKey, origin: MrouteOrigin, route: Option<Mroute>) -> bool {
        let slot = self.routes.entry(key).or_default();
        let before = slot.best().map(|(origin, route)| (origin, route.clone()));
        let had = std::mem::replace(slot.of(origin), route.map(Mroute::canonical)).is_some();
        let best = slot.best();
        if before.as_ref().map(|(origin, route)| (*origin, route)) != best {
            let entry =
                best.map(|(origin, route)| Arc::new(Entry::new(route, origin, slot.counters.clone())));
            match (key.source, key.group) {
                (source, IpAddr::V4(group)) => {
                    let source = if let Some(IpAddr::V4(s)) = source { s.to_bits() } else { 0 };
                    publish(&mut self.ip4, stream4(key.vrf, source, group.to_bits()), entry);
                }
                (source, IpAddr::V6(group)) => {
                    let source = if let Some(IpAddr::V6(s)) = source { s.to_bits() } else { 0 };
                    publish(&mut self.ip6, stream6(key.vrf, source, group.to_bits()), entry);
                }
            }
        }
        if self.routes.get(&key).is_some_and(|slot| slot.best().is_none()) {
            self.routes.remove(&key);
        }
        had
    }

    /// Lets go of what no worker reads any more.
    pub fn collect(&mut self) {
        self.ip4.collect();
        self.ip6.collect();
        self.egress.collect();
    }

    fn views(&self) -> impl Iterator<Item = MrouteView> + '_ {
        self.routes.iter().filter_map(|(key, slot)| {
            let (origin, route) = slot.best()?;
            let c = &slot.counters;
            Some(MrouteView {
                key: *key,
                origin,
                route: route.clone(),
                packets: c.packets.load(Relaxed),
                bytes: c.bytes.load(Relaxed),
                wrong_interface: c.wrong_interface.load(Relaxed),
                last_used: Some(c.last_used.load(Relaxed)).filter(|at| *at != 0),
            })
        })
    }
}

fn publish<K: linerate_tables::snapshot_map::MapKey>(
    map: &mut MapPublisher<K, Entry>,
    key: K,
    entry: Option<Arc<Entry>>,
) {
    match entry {
        Some(entry) => drop(map.insert(key, entry)),
        None => drop(map.remove(&key)),
    }
}

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Sets the learned multicast route of a stream, or of a group: adds it, or replaces what it does; its counters go on.
    pub fn set_mroute(&mut self, now: u64, key: MrouteKey, route: Mroute) -> Result<(), MrouteError> {
        key.check()?;
        route.check(key, self.interfaces.current())?;
        self.now = now;
        self.multicast.set(key, MrouteOrigin::Learned, Some(route));
        Ok(())
    }

    /// Removes a learned multicast route. Returns whether it was there.
    pub fn remove_mroute(&mut self, now: u64, key: MrouteKey) -> bool {
        self.now = now;
        self.multicast.set(key, MrouteOrigin::Learned, None)
    }

    /// Makes these the configured multicast routes; only what differs is touched. All are checked before anything changes.
    pub fn set_static_mroutes(
        &mut self,
        now: u64,
        routes: Vec<(MrouteKey, Mroute)>,
    ) -> Result<(), MrouteError> {
        for (key, route) in &routes {
            key.check()?;
            route.check(*key, self.interfaces.current())?;
        }
        self.now = now;
        let wanted: BTreeMap<MrouteKey, Mroute> = routes.into_iter().collect();
        let configured = self.multicast.routes.iter().filter(|(_, slot)| slot.configured.is_some());
        let gone: Vec<MrouteKey> =
            configured.map(|(key, _)| *key).filter(|key| !wanted.contains_key(key)).collect();
        for key in gone {
            self.multicast.set(key, MrouteOrigin::Static, None);
        }
        for (key, route) in wanted {
            self.multicast.set(key, MrouteOrigin::Static, Some(route));
        }
        Ok(())
    }

    /// The multicast routes in use by group and source, with what they counted.
    pub fn mroutes(&self) -> impl Iterator<Item = MrouteView> + '_ {
        self.multicast.views()
    }
}

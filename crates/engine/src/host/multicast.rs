//! Multicast routes of the kernel (its MFC, which `pimd` fills) in the router's terms.
//!
//! The kernel keeps its routes and forwards what it gets; the data plane does the same with everything else. So that
//! nothing goes out twice, [`Forwarded`] names the streams that the data plane forwards: of these the kernel gets samples
//! only, and its copies are discarded. A stream that comes to the kernel by an interface that is none of the router's (the
//! register tunnel of a rendezvous point) is the kernel's to forward, and so is what programs on this system send: it never
//! meets the data plane's receive side.
//!
//! The kernel has several multicast tables, as it has several of unicast: those of VRFs have their numbers, and the one that is
//! there without anybody asking is the default VRF's. A route forwards what comes in by interfaces of its own VRF, and to those;
//! what leads elsewhere stays the kernel's. Tables that are no VRF's are nobody's business here.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::PoisonError;

use linerate_linux::netlink::{MonitorEvent, Section};
use linerate_linux::route::{Change, Event, MulticastRoute};
use linerate_pipeline::{IfIndex, VRF_DEFAULT, VrfId};
use linerate_router::{Mroute, MrouteKey, MrouteOutput};

use super::packets::Forwarded;

/// What the kernel knows an entry by.
type Key = (bool, u32, Option<IpAddr>, Option<IpAddr>);

/// The multicast tables that are there without VRFs: `default` of IPv4, `main` of IPv6.
const UNASKED: [u32; 2] = [253, 254];

/// The kernel's multicast routes.
pub(super) struct Groups {
    /// VRFs by their table in Linux.
    vrfs: HashMap<u32, VrfId>,
    entries: BTreeMap<Key, MulticastRoute>,
    /// What a listing under way has not named yet.
    stale: BTreeSet<Key>,
    /// By their index in Linux, each with its VRF.
    interfaces: HashMap<u32, (IfIndex, VrfId)>,
    /// The router's own addresses.
    own: HashSet<(VrfId, IpAddr)>,
    /// Entries whose route in the router is not what it should be.
    dirty: BTreeSet<Key>,
    forwarded: Forwarded,
}

/// A multicast route of the router: what it does from now on; `None`: it is gone.
pub(super) type GroupChange = (MrouteKey, Option<Mroute>);

impl Groups {
    pub(super) fn new(vrfs: HashMap<u32, VrfId>, forwarded: Forwarded) -> Self {
        Groups {
            vrfs,
            entries: BTreeMap::new(),
            stale: BTreeSet::new(),
            interfaces: HashMap::new(),
            own: HashSet::new(),
            dirty: BTreeSet::new(),
            forwarded,
        }
    }

    /// Which interfaces there are, by their index in Linux, each with its VRF.
    pub(super) fn set_interfaces(&mut self, interfaces: HashMap<u32, (IfIndex, VrfId)>) {
        if interfaces != self.interfaces {
            self.interfaces = interfaces;
            self.dirty.extend(self.entries.keys().copied());
        }
    }

    /// Which addresses are the router's own.
    pub(super) fn set_own(&mut self, own: HashSet<(VrfId, IpAddr)>) {
        if own != self.own {
            self.own = own;
            self.dirty.extend(self.entries.keys().copied());
        }
    }

    /// What the kernel said.
    pub(super) fn apply(&mut self, event: &MonitorEvent) {
        let of = |section: Section| match section {
            Section::MulticastV4 => Some(false),
            Section::MulticastV6 => Some(true),
            _ => None,
        };
        match event {
            MonitorEvent::Begin(section) => {
                if let Some(v6) = of(*section) {
                    self.stale.extend(self.entries.keys().filter(|k| k.0 == v6));
                }
            }
            MonitorEvent::End(section) => {
                if let Some(v6) = of(*section) {
                    let gone: Vec<Key> = self.stale.iter().filter(|k| k.0 == v6).copied().collect();
                    for key in gone {
                        self.stale.remove(&key);
                        self.entries.remove(&key);
                        self.dirty.insert(key);
                    }
                }
            }
            MonitorEvent::Event(Event::Multicast(change, route)) => {
                let key = (route.v6, route.table, route.source, route.group);
                self.stale.remove(&key);
                match change {
                    Change::Delete => drop(self.entries.remove(&key)),
                    _ => drop(self.entries.insert(key, route.clone())),
                }
                self.dirty.insert(key);
            }
            _ => {}
        }
    }

    /// What has changed since the last call.
    pub(super) fn changes(&mut self) -> Vec<GroupChange> {
        let dirty = std::mem::take(&mut self.dirty);
        let mut forwarded = self.forwarded.lock().unwrap_or_else(PoisonError::into_inner);
        let change = |key: Key| {
            let (_, table, source, group) = key;
            let (vrf, group) = (self.vrf_of(table)?, group?);
            let route = self.entries.get(&key).and_then(|route| self.translate(vrf, route));
            if let Some(source) = source {
                match route {
                    Some(_) => forwarded.insert((vrf, source, group)),
                    None => forwarded.remove(&(vrf, source, group)),
                };
            }
            let key = MrouteKey { vrf, group, source };
            key.check().is_ok().then_some((key, route))
        };
        dirty.into_iter().filter_map(change).collect()
    }

    fn vrf_of(&self, table: u32) -> Option<VrfId> {
        let found = self.vrfs.get(&table).copied();
        found.or_else(|| UNASKED.contains(&table).then_some(VRF_DEFAULT))
    }

    /// `None`: the data plane has nothing to do with such a stream.
    fn translate(&self, vrf: VrfId, route: &MulticastRoute) -> Option<Mroute> {
        if route.source.is_some_and(|source| self.own.contains(&(vrf, source))) {
            return None;
        }
        let here = |index: u32| self.interfaces.get(&index).filter(|(_, of)| *of == vrf).map(|(i, _)| *i);
        let input = here(route.input?)?;
        let output = |(index, threshold): &(u32, u8)| {
            Some(MrouteOutput { interface: here(*index)?, threshold: *threshold })
        };
        let outputs: Vec<MrouteOutput> = route.outputs.iter().filter_map(output).collect();
        Some(Mroute { input, to_host: outputs.len() < route.outputs.len(), outputs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(change: Change, input: Option<u32>, outputs: &[(u32, u8)]) -> MonitorEvent {
        in_table(253, change, input, outputs)
    }

    fn in_table(table: u32, change: Change, input: Option<u32>, outputs: &[(u32, u8)]) -> MonitorEvent {
        MonitorEvent::Event(Event::Multicast(
            change,
            MulticastRoute {
                v6: false,
                table,
                source: Some("10.0.0.9".parse().unwrap()),
                group: Some("239.1.1.1".parse().unwrap()),
                input,
                outputs: outputs.to_vec(),
            },
        ))
    }

    #[test]
    fn streams_between_taps_are_the_data_planes() {
        let forwarded = Forwarded::default();
        let mut g = Groups::new([(254, 0)].into(), forwarded.clone());
        g.set_interfaces([(10, (0, 0)), (11, (1, 0)), (12, (2, 0))].into());
        let said = |g: &mut Groups| {
            let all = g.changes();
            all.into_iter().map(|(_, r)| r.map(|r| (r.input, r.outputs.len(), r.to_host))).collect::<Vec<_>>()
        };
        g.apply(&event(Change::Add, None, &[]));
        assert_eq!(said(&mut g), [None], "not resolved yet");
        g.apply(&event(Change::Add, Some(10), &[(11, 1), (12, 1)]));
        assert_eq!(said(&mut g), [Some((0, 2, false))]);
        assert_eq!(forwarded.lock().unwrap().len(), 1);
        assert_eq!(said(&mut g), []);
        // The register tunnel is no interface of the router's.
        g.apply(&event(Change::Replace, Some(10), &[(11, 1), (99, 1)]));
        assert_eq!(said(&mut g), [Some((0, 1, true))]);
        g.apply(&event(Change::Replace, Some(99), &[(11, 1)]));
        assert_eq!(said(&mut g), [None]);
        assert!(forwarded.lock().unwrap().is_empty(), "decapsulated by Linux, forwarded by Linux");
        g.apply(&event(Change::Replace, Some(10), &[(11, 1)]));
        // A program on this system sends: all copies are Linux's to make, until the address is somebody else's.
        g.set_own([(0, "10.0.0.9".parse().unwrap())].into());
        assert_eq!(said(&mut g), [None]);
        assert!(forwarded.lock().unwrap().is_empty());
        g.set_own([(1, "10.0.0.9".parse().unwrap())].into());
        assert_eq!(said(&mut g), [Some((0, 1, false))]);
        g.set_interfaces([(10, (0, 0))].into());
        assert_eq!(said(&mut g), [Some((0, 0, true))]);
        g.apply(&MonitorEvent::Begin(Section::MulticastV4));
        g.apply(&MonitorEvent::End(Section::MulticastV4));
        assert_eq!(said(&mut g), [None]);
    }

    #[test]
    fn each_table_is_its_vrfs() {
        let forwarded = Forwarded::default();
        let mut g = Groups::new([(254, 0), (100, 1)].into(), forwarded.clone());
        g.set_interfaces([(10, (0, 0)), (11, (1, 0)), (20, (2, 1)), (21, (3, 1))].into());
        let said = |g: &mut Groups| {
            let all = g.changes().into_iter();
            all.map(|(k, r)| (k.vrf, r.map(|r| (r.input, r.outputs.len(), r.to_host)))).collect::<Vec<_>>()
        };
        // The same stream in two VRFs.
        g.apply(&event(Change::Add, Some(10), &[(11, 1)]));
        g.apply(&in_table(100, Change::Add, Some(20), &[(21, 1)]));
        assert_eq!(said(&mut g), [(1, Some((2, 1, false))), (0, Some((0, 1, false)))]);
        let flow = |vrf| (vrf, "10.0.0.9".parse().unwrap(), "239.1.1.1".parse().unwrap());
        assert_eq!(*forwarded.lock().unwrap(), [flow(0), flow(1)].into());
        // By an interface of another VRF: Linux does that itself, as it does it with outputs that are elsewhere.
        g.apply(&in_table(100, Change::Replace, Some(10), &[(21, 1)]));
        assert_eq!(said(&mut g), [(1, None)]);
        assert_eq!(*forwarded.lock().unwrap(), [flow(0)].into());
        g.apply(&in_table(100, Change::Replace, Some(20), &[(21, 1), (11, 1)]));
        assert_eq!(said(&mut g), [(1, Some((2, 1, true)))]);
        // The tap is another VRF's now.
        g.set_interfaces([(10, (0, 0)), (11, (1, 0)), (20, (2, 0)), (21, (3, 1))].into());
        assert_eq!(said(&mut g), [(1, None), (0, Some((0, 1, false)))]);
        g.apply(&in_table(7, Change::Add, Some(10), &[(11, 1)]));
        assert_eq!(said(&mut g), [], "no VRF's table");
    }
}

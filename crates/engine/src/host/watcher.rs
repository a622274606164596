//! Keeps the router and Linux in step: what changes on one side is done on the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::iter::Peekable;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use linerate_linux::fpm::FpmEvent;
use linerate_linux::netlink::{LinkSettings, MonitorEvent, Operation, Writer};
use linerate_linux::route::{Address, Change, Event, Mac, Neighbor, NeighborState};
use linerate_linux::tap::Tap;
use linerate_linux::watch::{Status, Watcher};
use linerate_pipeline::{IfIndex, PortId, VrfId};
use linerate_router::neighbor;
use linerate_router::update::Updated;
use linerate_router::{RouteAction, Source, StaticNeighbor};
use tracing::{debug, info, warn};

use super::announce::Announcements;
use super::kernel::{Kernel, View};
use super::multicast::Groups;
use super::neighbors::{Key, Known, Neighbors};
use super::packets::{Forwarded, Order};
use super::routes::{FpmState, RouterChange, Routes};
use super::rules::{MAIN, Member, OURS, Tables};
use super::{HostError, sysctl};
use crate::desired::LinuxSpec;
use crate::instance::Shared;

/// How often neighbours and links are compared, in ticks.
const NEIGHBORS: u32 = 2;
/// Between two attempts to make a tap that could not be made, in ticks.
const RETRY: u32 = 20;
/// How long an interface must stay as it is until a tap made anew would be like that, in ticks.
const SETTLED: u32 = 2;
/// Most routes that are changed before others have their turn at the router: links, timers and neighbours do not wait for
/// a whole table. That many take some milliseconds.
const PIECE: usize = 4096;

/// When what FRR told became part of the tables that workers read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// When a change of FRR was last published; `None`: never.
    pub at: Option<SystemTime>,
    /// From the messages of a batch at hand to all of it published: the last batch that changed anything.
    pub last: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Publication {
    /// A batch that was at hand at `begin` is published now.
    fn done(&mut self, begin: Instant) {
        self.at = Some(SystemTime::now());
        self.last = begin.elapsed();
        self.longest = self.longest.max(self.last);
    }
}

/// What views show of the way to Linux.
#[derive(Clone, Debug, Default)]
pub struct HostStatus {
    /// FRR's session; `None`: FPM is not served.
    pub fpm: Option<(FpmState, linerate_linux::fpm::Counters)>,
    /// How fast what FRR tells is published.
    pub publication: Publication,
    /// Routes of the kernel's tables, those of FRR not counted where FPM is served.
    pub kernel_routes: usize,
    /// How often the kernel's messages were lost and all was listed again.
    pub resyncs: u64,
    /// What was skipped of what came, by kind: kernel, then FRR.
    pub faults: Vec<(String, u64)>,
    /// Routes that the router refused, and the last reason.
    pub refused: (u64, Option<String>),
}

/// One interface and its tap.
struct Mirror {
    name: String,
    port: PortId,
    /// The table of its VRF in Linux.
    table: u32,
    /// Index of the tap in Linux.
    tap: Option<u32>,
    /// Addresses that the tap is made with, as the three below.
    addresses: Vec<IpNet>,
    mac: [u8; 6],
    mtu: u16,
    up: bool,
    carrier: Option<bool>,
    /// What Linux last said.
    view: Option<View>,
    /// For how many ticks that has not changed.
    age: u32,
}

impl Mirror {
    /// A tick is over: what has stayed is what a new tap is made with. Not every word of Linux is: before an interface is
    /// deleted it is set down and loses its addresses one by one, which nobody asked for.
    fn settle(&mut self) {
        let (Some(view), Some(_)) = (&self.view, self.tap) else { return };
        self.age = self.age.saturating_add(1);
        if self.age != SETTLED {
            return;
        }
        self.up = view.up;
        self.mtu = u16::try_from(view.mtu).unwrap_or(u16::MAX);
        self.mac = view.mac.unwrap_or(self.mac);
        // Those that the kernel makes itself it makes again.
        let made = |a: &IpNet| matches!(a.addr(), IpAddr::V6(a) if a.is_unicast_link_local());
        self.addresses = view.addresses.iter().copied().filter(|a| !made(a)).collect();
    }
}

pub(super) struct Host {
    shared: Arc<Shared>,
    spec: LinuxSpec,
    /// VRFs by their table in Linux.
    vrfs: HashMap<u32, VrfId>,
    writer: Writer,
    tables: Tables,
    mirrors: BTreeMap<IfIndex, Mirror>,
    /// Interfaces by their tap.
    by_tap: HashMap<u32, IfIndex>,
    /// Interfaces that are not yet what Linux says of them.
    behind: BTreeSet<IfIndex>,
    taps: mpsc::Sender<Order>,
    kernel: Kernel,
    routes: Routes,
    groups: Groups,
    changes: Vec<RouterChange>,
    /// Static neighbours of the configuration, and which they are.
    statics: Vec<StaticNeighbor>,
    configured: HashSet<Key>,
    /// Neighbours that Linux was told.
    told: Neighbors,
    announcements: Announcements,
    ticks: u32,
    status: Arc<Mutex<HostStatus>>,
    refused: (u64, Option<String>),
    /// Why the router does not take over what Linux says of interfaces and of neighbours: it is asked again.
    refusals: (Option<String>, Option<String>),
    publication: Publication,
}

impl Host {
    /// Makes the taps, in the namespace of this thread.
    pub(super) fn new(
        shared: Arc<Shared>,
        spec: LinuxSpec,
        vrfs: HashMap<u32, VrfId>,
        statics: Vec<StaticNeighbor>,
        taps: mpsc::Sender<Order>,
        forwarded: Forwarded,
        status: Arc<Mutex<HostStatus>>,
    ) -> Result<Self, HostError> {
        let mirrors = shared.with_router(|half, _| {
            let of = |(index, i): (IfIndex, &linerate_pipeline::Interface)| {
                let mut addresses: Vec<IpNet> = i.ip4.iter().map(|a| IpNet::from(*a)).collect();
                addresses.extend(i.ip6.iter().map(|a| IpNet::from(*a)));
                let mirror = Mirror {
                    name: i.name.clone(),
                    port: i.port,
                    table: vrfs.iter().find(|(_, vrf)| **vrf == i.vrf).map_or(MAIN, |(table, _)| *table),
                    tap: None,
                    addresses,
                    mac: i.mac,
                    mtu: i.mtu,
                    up: half.is_admin_up(index),
                    carrier: None,
                    view: None,
                    age: 0,
                };
                (index, mirror)
            };
            half.router.interfaces().iter().map(of).collect()
        });
        let hold = spec.hold;
        let mut host = Host {
            shared,
            spec,
            groups: Groups::new(vrfs.clone(), forwarded),
            vrfs,
            writer: Writer::open()?,
            tables: Tables::default(),
            mirrors: mirrors.unwrap_or_default(),
            by_tap: HashMap::new(),
            behind: BTreeSet::new(),
            taps,
            kernel: Kernel::default(),
            routes: Routes::new(hold),
            changes: Vec::new(),
            configured: statics.iter().map(|n| (n.interface, n.address)).collect(),
            statics,
            told: Neighbors::default(),
            announcements: Announcements::default(),
            ticks: 0,
            status,
            refused: (0, None),
            refusals: (None, None),
            publication: Publication::default(),
        };
        sysctl::namespace();
        let indices: Vec<IfIndex> = host.mirrors.keys().copied().collect();
        for index in indices {
            host.make_tap(index)?;
        }
        host.use_interfaces();
        Ok(host)
    }

    /// Makes the tap of an interface with all that is known of it.
    fn make_tap(&mut self, index: IfIndex) -> Result<(), HostError> {
        let Some(mirror) = self.mirrors.get_mut(&index) else { return Ok(()) };
        let tap = Tap::open(&mirror.name)?;
        let carrier = self.shared.ports.get(usize::from(mirror.port)).is_some_and(|p| p.is_up());
        sysctl::interface(&mirror.name);
        let settings = LinkSettings {
            up: Some(mirror.up),
            mtu: Some(mirror.mtu.into()),
            mac: Some(Mac(mirror.mac)),
            carrier: Some(carrier),
            ..LinkSettings::default()
        };
        tap.configure(&mut self.writer, &settings)?;
        for address in &mirror.addresses {
            let address = Address {
                interface: tap.index(),
                address: *address,
                peer: None,
                tentative: false,
                duplicate: false,
                secondary: false,
            };
            // A tap that was there before may have it already.
            match self.writer.address(Operation::Add, &address) {
                Err(error) if !error.exists() => return Err(error.into()),
                _ => {}
            }
        }
        // What Linux was told of the tap before went with it.
        self.told.forget(index);
        self.announcements.made(Instant::now(), index, &mirror.addresses);
        mirror.tap = Some(tap.index());
        self.by_tap.insert(tap.index(), index);
        self.behind.insert(index);
        mirror.carrier = Some(carrier);
        mirror.view = None;
        let _ = self.taps.send(Order::Use(index, tap));
        Ok(())
    }

    fn use_interfaces(&mut self) {
        let by_tap = self.by_tap.clone();
        let with_vrfs = self.shared.with_router(|half, _| {
            let table = half.router.interfaces();
            let of = |(tap, index): (&u32, &IfIndex)| Some((*tap, (*index, table.get(*index)?.vrf)));
            by_tap.iter().filter_map(of).collect()
        });
        self.groups.set_interfaces(with_vrfs.unwrap_or_default());
        self.use_addresses();
        self.routes.set_interfaces(by_tap, &mut self.changes);
        self.publish();
        self.publish_groups();
    }

    /// Tells those who must know them the router's own addresses.
    fn use_addresses(&mut self) {
        let own = self.shared.with_router(|half, _| {
            let all = half.router.interfaces().iter();
            all.flat_map(|(_, i)| {
                let (ip4, ip6) =
                    (i.ip4.iter().map(|n| n.addr().into()), i.ip6.iter().map(|n| n.addr().into()));
                ip4.chain(ip6).map(|address: IpAddr| (i.vrf, address))
            })
            .collect()
        });
        self.groups.set_own(own.unwrap_or_default());
    }

    fn index_of(&self, tap: u32) -> Option<IfIndex> {
        self.by_tap.get(&tap).copied()
    }

    /// Takes over what Linux says of interfaces.
    fn follow_interfaces(&mut self) {
        if !self.kernel.is_listed() {
            return;
        }
        let mut gone = false;
        let mut changed = Vec::new();
        let touched = self.kernel.take_touched();
        let mut concerned = std::mem::take(&mut self.behind);
        concerned.extend(touched.iter().filter_map(|tap| self.by_tap.get(tap)));
        for index in concerned {
            let Some(mirror) = self.mirrors.get_mut(&index) else { continue };
            let Some(tap) = mirror.tap else { continue };
            let Some(view) = self.kernel.view(tap) else {
                // Linux has not come to speak of a new one yet.
                if !touched.contains(&tap) {
                    continue;
                }
                warn!("the tap of interface {} was deleted in Linux; it is made again", mirror.name);
                mirror.tap = None;
                self.by_tap.remove(&tap);
                gone = true;
                continue;
            };
            if mirror.view.as_ref() != Some(&view) {
                changed.push((index, view));
            }
        }
        if !changed.is_empty() {
            self.behind.extend(changed.iter().map(|(index, _)| *index));
            let shared = self.shared.clone();
            let result = shared
                .with_router(|half, now| take_over(changed, |views| half.follow(now, &shared.ports, views)));
            let (taken, error) = result.unwrap_or_default();
            for (index, view) in taken {
                let Some(mirror) = self.mirrors.get_mut(&index) else { continue };
                (mirror.view, mirror.age) = (Some(view), 0);
                self.behind.remove(&index);
            }
            note_refusal(&mut self.refusals.0, "interfaces", error);
            self.use_addresses();
        } else {
            self.refusals.0 = None;
        }
        self.routes.set_loopback(self.spec.table, self.kernel.loopback(), &mut self.changes);
        self.follow_tables();
        if gone {
            self.remake_taps();
        }
        self.publish();
    }

    /// Leads what is of the taps to the tables of their VRFs.
    fn follow_tables(&mut self) {
        let Host { mirrors, tables, writer, .. } = self;
        let members = mirrors.values().filter_map(|m| {
            let addresses = m.view.as_ref().filter(|v| v.up).map_or(&[][..], |v| &v.addresses);
            Some(Member { name: &m.name, tap: m.tap?, table: m.table, addresses })
        });
        tables.follow(writer, members);
    }

    /// Tells Linux the addresses of new taps once more, as they are.
    fn announce_again(&mut self, now: Instant) {
        let Host { announcements, mirrors, kernel, writer, .. } = self;
        announcements.due(now, |index, ours| {
            let Some(tap) = mirrors.get(&index).and_then(|m| m.tap) else { return };
            for address in kernel.addresses(tap).filter(|a| ours(&a.address) && !a.tentative && !a.duplicate)
            {
                if let Err(error) = writer.address(Operation::Replace, address) {
                    debug!("an address cannot be told again: {error}");
                }
            }
        });
    }

    /// Makes the taps anew that are missing.
    fn remake_taps(&mut self) {
        let missing: Vec<IfIndex> =
            self.mirrors.iter().filter(|(_, m)| m.tap.is_none()).map(|(index, _)| *index).collect();
        for index in missing {
            if let Err(error) = self.make_tap(index) {
                warn!("{error}; it is tried again");
            }
        }
        self.use_interfaces();
    }

    fn follow_neighbors(&mut self) {
        let mut all = self.statics.clone();
        for (tap, address, mac) in self.kernel.permanent() {
            let Some(interface) = self.index_of(tap) else { continue };
            if !self.configured.contains(&(interface, address)) {
                all.push(StaticNeighbor { interface, address, mac });
                // What Linux knew from us is its own now.
                self.told.lost(&(interface, address));
            }
        }
        let refused = self.shared.with_router(|half, now| half.router.set_neighbors_that_can_be(now, all));
        note_refusal(&mut self.refusals.1, "neighbours", list(&refused.unwrap_or_default()));
    }

    /// What Linux found to be silent when it asked for itself is asked for anew.
    fn follow_failures(&mut self) {
        let failed = self.kernel.take_failed().into_iter();
        let known: Vec<_> = failed.filter_map(|(tap, ip)| Some((self.index_of(tap)?, ip))).collect();
        if !known.is_empty() {
            self.shared.with_router(|half, now| {
                known.iter().for_each(|(index, ip)| half.router.distrust_neighbor(now, *index, *ip));
            });
        }
    }

    /// Gives the router the routes that have changed.
    fn publish(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let mut changes = std::mem::take(&mut self.changes).into_iter().peekable();
        while let Some((source, table, piece)) = next_piece(&mut changes) {
            // Of tables that are no VRF's, which FRR tells of as well, nothing is taken over.
            let Some(&vrf) = self.vrfs.get(&table) else { continue };
            let updated = self.shared.with_router(|half, now| half.router.update(now, vrf, source, &piece));
            if let Some(updated) = updated {
                self.note_refused(&updated);
            }
            if changes.peek().is_some() {
                self.shared.give_way();
            }
        }
    }

    /// Gives the router the multicast routes that have changed.
    fn publish_groups(&mut self) {
        let changes = self.groups.changes();
        if changes.is_empty() {
            return;
        }
        let refused = self.shared.with_router(|half, now| {
            let mut refused = None;
            for (key, route) in changes {
                match route {
                    Some(route) => refused = half.router.set_mroute(now, key, route).err().or(refused),
                    None => drop(half.router.remove_mroute(now, key)),
                }
            }
            refused
        });
        if let Some(Some(error)) = refused {
            warn!("a multicast route of Linux cannot be taken over: {error}");
        }
    }

    fn note_refused(&mut self, updated: &Updated) {
        let Some((_, reason)) = updated.reasons.last() else { return };
        let reason = reason.to_string();
        if self.refused.0 == 0 {
            warn!("routes of Linux or FRR are refused: {reason}");
        }
        self.refused = (self.refused.0 + updated.refused as u64, Some(reason));
    }

    /// Tells Linux of neighbours and links.
    fn tell_linux(&mut self) {
        let neighbors = self.shared.with_router(|half, _| {
            let known = |n: neighbor::NeighborState| match n {
                neighbor::NeighborState::Reachable => Some(NeighborState::Reachable),
                neighbor::NeighborState::Static => Some(NeighborState::Permanent),
                neighbor::NeighborState::Stale | neighbor::NeighborState::Probe => Some(NeighborState::Stale),
                neighbor::NeighborState::Incomplete | neighbor::NeighborState::Failed => None,
            };
            let all = half.router.neighbors();
            all.filter_map(|n| Some(((n.interface, n.address), (n.mac?, known(n.state)?))))
                .collect::<HashMap<_, _>>()
        });
        let Some(mut neighbors) = neighbors else { return };
        // Of the static ones it has those already that are none of the configuration's: it told us.
        neighbors
            .retain(|key, (_, state)| *state != NeighborState::Permanent || self.configured.contains(key));
        let mut told = std::mem::take(&mut self.told);
        told.tell(&neighbors, |operation, key, known| self.tell_neighbor(operation, key, known));
        self.told = told;
        for mirror in self.mirrors.values_mut() {
            let up = self.shared.ports.get(usize::from(mirror.port)).is_some_and(|p| p.is_up());
            if let (Some(tap), true) = (mirror.tap, mirror.carrier != Some(up)) {
                let settings = LinkSettings { carrier: Some(up), ..LinkSettings::default() };
                if self.writer.set_link(tap, &settings).is_ok() {
                    info!("interface {}: link {}", mirror.name, if up { "up" } else { "down" });
                    mirror.carrier = Some(up);
                }
            }
        }
    }

    /// Whether Linux knows that now. What it refuses is of no importance meanwhile: it resolves neighbours by itself as well.
    fn tell_neighbor(
        &mut self,
        operation: Operation,
        (interface, address): Key,
        (mac, state): Known,
    ) -> bool {
        let Some(tap) = self.mirrors.get(&interface).and_then(|m| m.tap) else { return false };
        let neighbor = Neighbor {
            interface: tap,
            address,
            mac: Some(Mac(mac)),
            state,
            router: false,
            proxy: false,
            external: true,
        };
        match (operation, self.writer.neighbor(operation, &neighbor)) {
            (Operation::Delete, Ok(())) => {
                self.kernel.deleted(tap, address);
                true
            }
            (Operation::Delete, Err(error)) => error.absent(),
            (_, result) => result.is_ok(),
        }
    }
}

/// Changes of routes of one source and one table.
type Piece = (Source, u32, Vec<(IpNet, Option<Arc<RouteAction>>)>);

/// Takes the next changes that are of one source and one table, at most [`PIECE`]: these the router makes in one go.
fn next_piece(changes: &mut Peekable<impl Iterator<Item = RouterChange>>) -> Option<Piece> {
    let (source, table) = changes.peek().map(|c| (c.0, c.1))?;
    let run = std::iter::from_fn(|| changes.next_if(|c| (c.0, c.1) == (source, table)));
    let piece = run.take(PIECE).map(|(_, _, prefix, action)| (prefix, action)).collect();
    Some((source, table, piece))
}

/// Gives the router all that has changed at once, or, if it does not take that, each half by itself, and so on, so that one that
/// cannot be keeps no other back: each call costs what there is of interfaces, and there are few for few that cannot be.
/// Answers what was taken, and why the rest was not.
fn take_over<E>(
    changed: Vec<(IfIndex, View)>,
    mut follow: impl FnMut(&[(IfIndex, View)]) -> Result<(), E>,
) -> (Vec<(IfIndex, View)>, Option<E>) {
    let (mut taken, mut last) = (Vec::with_capacity(changed.len()), None);
    let mut todo = vec![&changed[..]];
    while let Some(some) = todo.pop() {
        match follow(some) {
            Ok(()) => taken.extend_from_slice(some),
            Err(error) if some.len() < 2 => last = Some(error),
            Err(_) => {
                let (first, second) = some.split_at(some.len() / 2);
                todo.extend([second, first]);
            }
        }
    }
    (taken, last)
}

/// The first reasons of several, in one sentence.
fn list(errors: &[impl Display]) -> Option<String> {
    const MOST: usize = 5;
    let mut text: Vec<String> = errors.iter().take(MOST).map(|e| e.to_string()).collect();
    text.extend((errors.len() > MOST).then(|| format!("and {} more", errors.len() - MOST)));
    (!text.is_empty()).then(|| text.join("; "))
}

/// Says why something of Linux is not taken over, once as long as it is the same.
fn note_refusal(known: &mut Option<String>, what: &str, error: Option<impl Display>) {
    let error = error.map(|e| e.to_string());
    if let (Some(error), true) = (&error, error != *known) {
        warn!("what Linux says of {what} cannot be taken over: {error}; it is tried again");
    }
    *known = error;
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tables.clear(&mut self.writer);
    }
}

impl Watcher for Host {
    fn kernel(&mut self, events: &mut Vec<MonitorEvent>) {
        let (mut interfaces, mut neighbors, mut lost) = (false, false, false);
        for event in events.drain(..) {
            if let MonitorEvent::Event(Event::Route(Change::Delete, route)) = &event
                && route.protocol == OURS
            {
                lost |= self.tables.lost(route);
            }
            match &event {
                MonitorEvent::Event(Event::Rule(Change::Delete, rule)) => lost |= self.tables.lost_rule(rule),
                MonitorEvent::Event(Event::Neighbor(Change::Delete, n)) => {
                    if let Some(index) = self.index_of(n.interface) {
                        self.told.lost(&(index, n.address));
                    }
                }
                MonitorEvent::Synced => {
                    self.kernel.settle(self.by_tap.keys().copied());
                    self.tables.doubt_rules();
                    (interfaces, lost) = (true, true);
                }
                _ => {}
            }
            let changed = self.kernel.apply(&event);
            interfaces |= changed.interfaces;
            neighbors |= changed.neighbors;
            self.groups.apply(&event);
            self.routes.kernel(event, &mut self.changes);
        }
        if interfaces {
            self.follow_interfaces();
        }
        if interfaces || neighbors {
            self.follow_neighbors();
        }
        self.follow_failures();
        if lost {
            self.follow_tables();
        }
        self.publish();
        self.publish_groups();
    }

    fn fpm(&mut self, events: &mut Vec<FpmEvent>) {
        let begin = Instant::now();
        self.routes.fpm(begin, events, &mut self.changes);
        if !self.changes.is_empty() {
            self.publish();
            self.publication.done(begin);
        }
    }

    fn tick(&mut self, now: Instant, status: &Status<'_>) {
        self.ticks = self.ticks.wrapping_add(1);
        self.routes.tick(now, &mut self.changes);
        self.publish();
        if self.ticks.is_multiple_of(NEIGHBORS) {
            self.tell_linux();
        }
        self.mirrors.values_mut().for_each(Mirror::settle);
        self.announce_again(now);
        if self.ticks.is_multiple_of(RETRY) && self.mirrors.values().any(|m| m.tap.is_none()) {
            self.remake_taps();
        }
        if self.ticks.is_multiple_of(RETRY) && self.refusals != (None, None) {
            self.follow_interfaces();
            self.follow_neighbors();
        }
        let faults = [status.kernel_faults, status.fpm_faults].into_iter().flatten();
        let faults = faults.flat_map(|f| f.iter().map(|(fault, n)| (fault.to_string(), n))).collect();
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = HostStatus {
            fpm: status.fpm.map(|counters| (self.routes.state, counters)),
            publication: self.publication,
            kernel_routes: self.routes.kernel_routes(),
            resyncs: status.kernel_resyncs,
            faults,
            refused: self.refused.clone(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_tap_is_made_as_the_old_one_was_before_it_was_taken_apart() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let whole = View {
            up: true,
            mac: Some([2, 0, 0, 0, 0, 7]),
            mtu: 9000,
            addresses: vec![net("198.18.1.1/24"), net("fe80::7/64"), net("2001:db8::1/64")],
            virtuals: Vec::new(),
        };
        let mut mirror = Mirror {
            table: MAIN,
            name: "lan".into(),
            port: 0,
            tap: Some(5),
            addresses: Vec::new(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            up: false,
            carrier: None,
            view: Some(whole.clone()),
            age: 0,
        };
        for _ in 0..SETTLED {
            assert!(!mirror.up);
            mirror.settle();
        }
        let expected = (true, 9000, [2, 0, 0, 0, 0, 7], vec![net("198.18.1.1/24"), net("2001:db8::1/64")]);
        assert_eq!((mirror.up, mirror.mtu, mirror.mac, mirror.addresses.clone()), expected);
        // Set down, addresses taken, gone: all within a tick.
        (mirror.view, mirror.age) = (Some(View { up: false, addresses: Vec::new(), ..whole }), 0);
        mirror.settle();
        mirror.tap = None;
        (0..5).for_each(|_| mirror.settle());
        assert_eq!((mirror.up, mirror.mtu, mirror.mac, mirror.addresses), expected);
    }
    #[test]
    fn a_whole_table_is_changed_in_pieces_in_order() {
        let net = |i: u32| IpNet::new(IpAddr::from((0x0a00_0000 + i).to_be_bytes()), 32).unwrap();
        let all: Vec<RouterChange> = (0..10_000)
            .map(|i| (Source::Learned, MAIN, net(i), None))
            .chain((0..3).map(|i| (Source::Kernel, MAIN, net(i), None)))
            .chain((3..5).map(|i| (Source::Kernel, 10, net(i), None)))
            .collect();
        let mut changes = all.clone().into_iter().peekable();
        let (mut sizes, mut got) = (Vec::new(), Vec::new());
        while let Some((source, table, piece)) = next_piece(&mut changes) {
            sizes.push(piece.len());
            got.extend(piece.into_iter().map(|(prefix, action)| (source, table, prefix, action)));
        }
        assert_eq!(sizes, [4096, 4096, 1808, 3, 2]);
        assert!(got == all);
    }
    #[test]
    fn what_the_router_does_not_take_is_kept_and_keeps_no_other_back() {
        let view = View { up: true, mac: None, mtu: 1500, addresses: Vec::new(), virtuals: Vec::new() };
        let all: Vec<(IfIndex, View)> = (0..3).map(|i| (i, view.clone())).collect();
        let follow = |views: &[(IfIndex, View)]| {
            if views.iter().any(|(i, _)| *i == 1) { Err("the address is another's") } else { Ok(()) }
        };
        let (taken, error) = take_over(all.clone(), follow);
        assert_eq!(taken, [all[0].clone(), all[2].clone()]);
        assert_eq!(error, Some("the address is another's"));
        assert_eq!(take_over(vec![all[1].clone()], follow), (Vec::new(), error));
        // Of a thousand, too, and with few attempts.
        let (many, mut calls) = ((0..1000).map(|i| (i, view.clone())).collect(), 0);
        let (taken, error) = take_over(many, |views| {
            calls += 1;
            follow(views)
        });
        assert_eq!(
            (taken.len(), error, calls <= 21),
            (999, Some("the address is another's"), true),
            "{calls}"
        );
        assert!(taken.is_sorted_by_key(|(i, _)| *i));
        assert_eq!(take_over(taken.clone(), follow), (taken, None));
        let mut known = None;
        note_refusal(&mut known, "interfaces", error);
        assert_eq!(known.as_deref(), error);
        note_refusal(&mut known, "interfaces", None::<&str>);
        assert_eq!((list(&[""; 0]), list(&["a", "b"])), (None, Some("a; b".into())));
        assert_eq!(list(&["a"; 7]), Some("a; a; a; a; a; and 2 more".into()));
        assert_eq!(known, None);
    }
}

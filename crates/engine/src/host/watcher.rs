//! Keeps the router and Linux in step: what changes on one side is done on the other.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;

use ipnet::IpNet;
use linerate_linux::fpm::FpmEvent;
use linerate_linux::netlink::{LinkSettings, MonitorEvent, Operation, Writer};
use linerate_linux::route::{Address, Mac, Neighbor, NeighborState};
use linerate_linux::tap::Tap;
use linerate_linux::watch::{Status, Watcher};
use linerate_pipeline::{IfIndex, PortId};
use linerate_router::StaticNeighbor;
use linerate_router::neighbor;
use tracing::{info, warn};

use super::kernel::{Kernel, View};
use super::packets::Order;
use super::routes::{FpmState, RouterChange, Routes};
use super::{HostError, sysctl};
use crate::desired::LinuxSpec;
use crate::instance::Shared;

/// How often neighbours and links are compared, in ticks.
const NEIGHBORS: u32 = 2;
/// How often it is counted which of FRR's routes cannot be used, in ticks.
const UNUSABLE: u32 = 50;
/// Between two attempts to make a tap that could not be made, in ticks.
const RETRY: u32 = 20;

/// What views show of the way to Linux.
#[derive(Clone, Debug, Default)]
pub struct HostStatus {
    /// FRR's session; `None`: FPM is not served.
    pub fpm: Option<(FpmState, linerate_linux::fpm::Counters)>,
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
    /// Index of the tap in Linux.
    tap: Option<u32>,
    /// Addresses that the tap is made with.
    addresses: Vec<IpNet>,
    mac: [u8; 6],
    mtu: u16,
    up: bool,
    carrier: Option<bool>,
    /// What Linux last said.
    view: Option<View>,
}

pub(super) struct Host {
    shared: Arc<Shared>,
    spec: LinuxSpec,
    writer: Writer,
    mirrors: BTreeMap<IfIndex, Mirror>,
    taps: mpsc::Sender<Order>,
    kernel: Kernel,
    routes: Routes,
    changes: Vec<RouterChange>,
    /// Static neighbours of the configuration.
    statics: Vec<StaticNeighbor>,
    /// Neighbours that Linux was told.
    told: HashMap<(IfIndex, IpAddr), ([u8; 6], NeighborState)>,
    loopback: Vec<IpAddr>,
    ticks: u32,
    status: Arc<Mutex<HostStatus>>,
    refused: (u64, Option<String>),
}

impl Host {
    /// Makes the taps, in the namespace of this thread.
    pub(super) fn new(
        shared: Arc<Shared>,
        spec: LinuxSpec,
        statics: Vec<StaticNeighbor>,
        taps: mpsc::Sender<Order>,
        status: Arc<Mutex<HostStatus>>,
    ) -> Result<Self, HostError> {
        let mirrors = shared.with_router(|half, _| {
            let of = |(index, i): (IfIndex, &linerate_pipeline::Interface)| {
                let mut addresses: Vec<IpNet> = i.ip4.iter().map(|a| IpNet::from(*a)).collect();
                addresses.extend(i.ip6.iter().map(|a| IpNet::from(*a)));
                let mirror = Mirror {
                    name: i.name.clone(),
                    port: i.port,
                    tap: None,
                    addresses,
                    mac: i.mac,
                    mtu: i.mtu,
                    up: half.is_admin_up(index),
                    carrier: None,
                    view: None,
                };
                (index, mirror)
            };
            half.router.interfaces().iter().map(of).collect()
        });
        let hold = spec.hold;
        let mut host = Host {
            shared,
            spec,
            writer: Writer::open()?,
            mirrors: mirrors.unwrap_or_default(),
            taps,
            kernel: Kernel::default(),
            routes: Routes::new(hold),
            changes: Vec::new(),
            statics,
            told: HashMap::new(),
            loopback: Vec::new(),
            ticks: 0,
            status,
            refused: (0, None),
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
        mirror.tap = Some(tap.index());
        mirror.carrier = Some(carrier);
        mirror.view = None;
        let _ = self.taps.send(Order::Use(index, tap));
        Ok(())
    }

    fn use_interfaces(&mut self) {
        let by_tap = self.mirrors.iter().filter_map(|(index, m)| Some((m.tap?, *index))).collect();
        self.routes.set_interfaces(by_tap, &mut self.changes);
        self.publish();
    }

    fn index_of(&self, tap: u32) -> Option<IfIndex> {
        self.mirrors.iter().find(|(_, m)| m.tap == Some(tap)).map(|(index, _)| *index)
    }

    /// Takes over what Linux says of interfaces.
    fn follow_interfaces(&mut self) {
        if !self.kernel.is_listed() {
            return;
        }
        let mut gone = false;
        let mut changed = Vec::new();
        for (index, mirror) in &mut self.mirrors {
            let Some(tap) = mirror.tap else { continue };
            let Some(view) = self.kernel.view(tap) else {
                warn!("the tap of interface {} was deleted in Linux; it is made again", mirror.name);
                mirror.tap = None;
                gone = true;
                continue;
            };
            if mirror.view.as_ref() != Some(&view) {
                mirror.view = Some(view.clone());
                mirror.up = view.up;
                mirror.mtu = u16::try_from(view.mtu).unwrap_or(u16::MAX);
                mirror.mac = view.mac.unwrap_or(mirror.mac);
                mirror.addresses = view.addresses.clone();
                // Those that the kernel makes itself it makes again.
                mirror.addresses.retain(|a| !matches!(a.addr(), IpAddr::V6(a) if a.is_unicast_link_local()));
                changed.push((*index, view));
            }
        }
        if !changed.is_empty() {
            let shared = self.shared.clone();
            let result = shared.with_router(|half, now| half.follow(now, &shared.ports, &changed));
            if let Some(Err(error)) = result {
                warn!("what Linux says of interfaces cannot be taken over: {error}");
            }
        }
        let loopback: Vec<IpAddr> = self.kernel.loopback().collect();
        for (now_there, addresses) in [
            (false, self.loopback.iter().filter(|a| !loopback.contains(a)).collect::<Vec<_>>()),
            (true, loopback.iter().filter(|a| !self.loopback.contains(a)).collect()),
        ] {
            let action = now_there.then(|| Arc::new(linerate_router::RouteAction::Local));
            for address in addresses {
                let change =
                    (linerate_router::Source::Kernel, self.spec.table, (*address).into(), action.clone());
                self.changes.push(change);
            }
        }
        self.loopback = loopback;
        if gone {
            self.remake_taps();
        }
        self.publish();
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
            let configured = |n: &StaticNeighbor| (n.interface, n.address) == (interface, address);
            if !self.statics.iter().any(configured) {
                all.push(StaticNeighbor { interface, address, mac });
            }
        }
        let result = self.shared.with_router(|half, now| {
            let table = half.router.interfaces();
            all.retain(|n| {
                table.get(n.interface).is_some_and(|i| !i.owns(n.address)) && !n.address.is_unspecified()
            });
            half.router.set_neighbors(now, all)
        });
        if let Some(Err(error)) = result {
            warn!("a neighbour of Linux cannot be taken over: {error}");
        }
    }

    /// Gives the router the routes that have changed.
    fn publish(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        let table = self.spec.table;
        let refused = self.shared.with_router(|half, now| {
            let (mut refused, mut last) = (0, None);
            for (source, of_table, prefix, action) in &changes {
                if *of_table != table {
                    continue;
                }
                let result = match action {
                    Some(action) => half.router.insert(now, *source, *prefix, action),
                    None => half.router.withdraw(now, *source, *prefix).map(|_| ()),
                };
                if let Err(error) = result {
                    refused += 1;
                    last = Some(error.to_string());
                }
            }
            (refused, last)
        });
        if let Some((n @ 1.., last)) = refused {
            if self.refused.0 == 0 {
                warn!("routes of Linux or FRR are refused: {}", last.as_deref().unwrap_or_default());
            }
            self.refused = (self.refused.0 + n, last);
        }
    }

    /// Tells Linux of neighbours and links.
    fn tell_linux(&mut self) {
        let neighbors = self.shared.with_router(|half, _| {
            let known = |n: neighbor::NeighborState| match n {
                neighbor::NeighborState::Reachable | neighbor::NeighborState::Static => {
                    Some(NeighborState::Reachable)
                }
                neighbor::NeighborState::Stale | neighbor::NeighborState::Probe => Some(NeighborState::Stale),
                neighbor::NeighborState::Incomplete | neighbor::NeighborState::Failed => None,
            };
            let all = half.router.neighbors().filter(|n| n.state != neighbor::NeighborState::Static);
            all.filter_map(|n| Some(((n.interface, n.address), (n.mac?, known(n.state)?))))
                .collect::<HashMap<_, _>>()
        });
        let Some(neighbors) = neighbors else { return };
        for (key, value) in &neighbors {
            if self.told.get(key) != Some(value) {
                self.tell_neighbor(Operation::Replace, *key, *value);
            }
        }
        let told = std::mem::replace(&mut self.told, neighbors);
        for (key, value) in told {
            if !self.told.contains_key(&key) {
                self.tell_neighbor(Operation::Delete, key, value);
            }
        }
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

    /// What cannot be told is told another time or is of no importance: Linux resolves neighbours by itself as well.
    fn tell_neighbor(
        &mut self,
        operation: Operation,
        (interface, address): (IfIndex, IpAddr),
        (mac, state): ([u8; 6], NeighborState),
    ) {
        let Some(tap) = self.mirrors.get(&interface).and_then(|m| m.tap) else { return };
        let neighbor = Neighbor {
            interface: tap,
            address,
            mac: Some(Mac(mac)),
            state,
            router: false,
            proxy: false,
            external: true,
        };
        let _ = self.writer.neighbor(operation, &neighbor);
    }
}

impl Watcher for Host {
    fn kernel(&mut self, events: &mut Vec<MonitorEvent>) {
        let (mut interfaces, mut neighbors) = (false, false);
        for event in events.drain(..) {
            let changed = self.kernel.apply(&event);
            interfaces |= changed.interfaces;
            neighbors |= changed.neighbors;
            self.routes.kernel(event, &mut self.changes);
        }
        if interfaces {
            self.follow_interfaces();
        }
        if interfaces || neighbors {
            self.follow_neighbors();
        }
        self.publish();
    }

    fn fpm(&mut self, events: &mut Vec<FpmEvent>) {
        self.routes.fpm(Instant::now(), events, &mut self.changes);
        self.publish();
    }

    fn tick(&mut self, now: Instant, status: &Status<'_>) {
        self.ticks = self.ticks.wrapping_add(1);
        self.routes.tick(now, &mut self.changes);
        self.publish();
        if self.ticks.is_multiple_of(NEIGHBORS) {
            self.tell_linux();
        }
        if self.ticks.is_multiple_of(RETRY) && self.mirrors.values().any(|m| m.tap.is_none()) {
            self.remake_taps();
        }
        if self.ticks.is_multiple_of(UNUSABLE) {
            self.routes.count_unusable();
        }
        let faults = [status.kernel_faults, status.fpm_faults].into_iter().flatten();
        let faults = faults.flat_map(|f| f.iter().map(|(fault, n)| (fault.to_string(), n))).collect();
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = HostStatus {
            fpm: status.fpm.map(|counters| (self.routes.state, counters)),
            kernel_routes: self.routes.kernel_routes(),
            resyncs: status.kernel_resyncs,
            faults,
            refused: self.refused.clone(),
        };
    }
}

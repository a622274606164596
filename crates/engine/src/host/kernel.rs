//! What the kernel says of interfaces, addresses and neighbours, kept as a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_linux::netlink::{MonitorEvent, Section};
use linerate_linux::route::{Address, Change, Event, Link, LinkDetail, Neighbor, NeighborState};
use linerate_pipeline::interface::VirtualMac;

/// Interfaces, addresses and neighbours of one network namespace.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    links: BTreeMap<u32, Link>,
    /// By interface, in the order in which they were told: the first of a family is the one to speak with.
    addresses: BTreeMap<u32, Vec<Address>>,
    neighbors: BTreeMap<(u32, IpAddr), Neighbor>,
    /// What a listing under way has not named yet.
    stale_links: BTreeSet<u32>,
    stale_addresses: BTreeSet<(u32, IpNet)>,
    stale_neighbors: BTreeSet<(u32, IpAddr)>,
    /// Neighbours that Linux has found to be silent and nobody has asked for yet.
    failed: Vec<(u32, IpAddr)>,
    /// Neighbours that we have deleted: the kernel says of those that they failed before it says that they are gone.
    deleting: BTreeSet<(u32, IpAddr)>,
    /// Links and addresses have been listed once: what is not known is not there.
    listed: (bool, bool),
}

/// What a message changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Links or addresses.
    pub(super) interfaces: bool,
    /// Static neighbours.
    pub(super) neighbors: bool,
}

/// An interface as Linux has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) up: bool,
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) mtu: u32,
    pub(crate) addresses: Vec<IpNet>,
    /// Virtual routers: macvlans on it.
    pub(crate) virtuals: Vec<VirtualMac>,
}

impl Kernel {
    /// Takes a message in.
    pub(super) fn apply(&mut self, event: &MonitorEvent) -> Changed {
        match event {
            MonitorEvent::Begin(section) => {
                self.begin(*section);
                Changed::default()
            }
            MonitorEvent::End(section) => self.end(*section),
            MonitorEvent::Event(Event::Link(change, link)) => self.link(*change, link),
            MonitorEvent::Event(Event::Address(change, address)) => self.address(*change, address),
            MonitorEvent::Event(Event::Neighbor(change, neighbor)) => self.neighbor(*change, neighbor),
            MonitorEvent::Event(_) | MonitorEvent::Synced => Changed::default(),
        }
    }

    /// Whether interfaces and addresses have been listed.
    pub(super) fn is_listed(&self) -> bool {
        self.listed == (true, true)
    }

    /// An interface by its index; `None`: there is no such.
    pub(super) fn view(&self, index: u32) -> Option<View> {
        let link = self.links.get(&index)?;
        let usable = |a: &&Address| !a.duplicate;
        let addresses = self.addresses.get(&index).into_iter().flatten().filter(usable);
        Some(View {
            up: link.up,
            mac: link.mac.map(|m| m.0),
            mtu: link.mtu,
            addresses: addresses.map(|a| a.address).collect(),
            virtuals: self.virtuals(index).collect(),
        })
    }

    /// The addresses of an interface, unusable ones as well.
    pub(super) fn addresses(&self, index: u32) -> impl Iterator<Item = &Address> {
        self.addresses.get(&index).into_iter().flatten()
    }

    /// The addresses of the loopback, which are the system's on whatever interface, without 127/8 and ::1.
    pub(super) fn loopback(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let loopbacks = self.links.values().filter(|l| l.loopback && l.up);
        let addresses = loopbacks.filter_map(|l| self.addresses.get(&l.index)).flatten();
        addresses.map(|a| a.address.addr()).filter(|a| !a.is_loopback())
    }

    /// Virtual routers on an interface: its macvlans, with their addresses.
    fn virtuals(&self, index: u32) -> impl Iterator<Item = VirtualMac> + '_ {
        let on = move |l: &&Link| {
            l.up && l.parent == Some(index)
                && matches!(&l.detail, LinkDetail::Other(kind) if kind == "macvlan")
        };
        self.links.values().filter(on).filter_map(|l| {
            let addresses = self.addresses.get(&l.index).into_iter().flatten().filter(|a| !a.duplicate);
            Some(VirtualMac { mac: l.mac?.0, addresses: addresses.map(|a| a.address.addr()).collect() })
        })
    }

    /// Neighbours that were set by hand, or by a daemon that knows better: interface, address, MAC address.
    pub(super) fn permanent(&self) -> impl Iterator<Item = (u32, IpAddr, [u8; 6])> + '_ {
        self.neighbors.values().filter(|n| is_permanent(n)).filter_map(|n| {
            let mac = n.mac?.0;
            Some((n.interface, n.address, mac))
        })
    }

    /// Neighbours of which Linux has said since the last call that they do not answer (`NUD_FAILED`).
    pub(super) fn take_failed(&mut self) -> Vec<(u32, IpAddr)> {
        std::mem::take(&mut self.failed)
    }

    /// We have had Linux forget a neighbour: what it says of that is no news.
    pub(super) fn deleted(&mut self, tap: u32, address: IpAddr) {
        self.deleting.insert((tap, address));
    }

    fn begin(&mut self, section: Section) {
        match section {
            Section::Links => self.stale_links = self.links.keys().copied().collect(),
            Section::Addresses => {
                let all = self.addresses.iter().flat_map(|(i, a)| a.iter().map(|a| (*i, a.address)));
                self.stale_addresses = all.collect();
            }
            Section::Neighbors => self.stale_neighbors = self.neighbors.keys().copied().collect(),
            _ => {}
        }
    }

    fn end(&mut self, section: Section) -> Changed {
        match section {
            Section::Links => {
                for index in std::mem::take(&mut self.stale_links) {
                    self.links.remove(&index);
                    self.addresses.remove(&index);
                }
                self.listed.0 = true;
                Changed { interfaces: true, ..Changed::default() }
            }
            Section::Addresses => {
                for (index, address) in std::mem::take(&mut self.stale_addresses) {
                    self.forget_address(index, address);
                }
                self.listed.1 = true;
                Changed { interfaces: true, ..Changed::default() }
            }
            Section::Neighbors => {
                for key in std::mem::take(&mut self.stale_neighbors) {
                    self.neighbors.remove(&key);
                }
                // Messages were lost where a listing was needed, and may have been about these.
                self.deleting.clear();
                Changed { neighbors: true, ..Changed::default() }
            }
            _ => Changed::default(),
        }
    }

    fn link(&mut self, change: Change, link: &Link) -> Changed {
        self.stale_links.remove(&link.index);
        let interfaces = match change {
            Change::Delete => {
                self.addresses.remove(&link.index);
                self.neighbors.retain(|(i, _), _| *i != link.index);
                self.links.remove(&link.index).is_some()
            }
            _ => self.links.insert(link.index, link.clone()).as_ref() != Some(link),
        };
        Changed { interfaces, ..Changed::default() }
    }

    fn address(&mut self, change: Change, address: &Address) -> Changed {
        self.stale_addresses.remove(&(address.interface, address.address));
        let interfaces = match change {
            Change::Delete => self.forget_address(address.interface, address.address),
            _ => {
                let all = self.addresses.entry(address.interface).or_default();
                match all.iter_mut().find(|a| a.address == address.address) {
                    Some(known) => std::mem::replace(known, address.clone()) != *address,
                    None => {
                        all.push(address.clone());
                        true
                    }
                }
            }
        };
        Changed { interfaces, ..Changed::default() }
    }

    fn forget_address(&mut self, interface: u32, address: IpNet) -> bool {
        let Some(all) = self.addresses.get_mut(&interface) else { return false };
        let before = all.len();
        all.retain(|a| a.address != address);
        all.len() != before
    }

    fn neighbor(&mut self, change: Change, neighbor: &Neighbor) -> Changed {
        let key = (neighbor.interface, neighbor.address);
        self.stale_neighbors.remove(&key);
        if change == Change::Delete {
            self.deleting.remove(&key);
        } else if neighbor.state == NeighborState::Failed && !self.deleting.contains(&key) {
            self.failed.push(key);
        }
        let was = self.neighbors.get(&key).filter(|n| is_permanent(n)).cloned();
        // Only those set by hand are of interest; there may be very many others.
        let is = (change != Change::Delete && is_permanent(neighbor)).then(|| neighbor.clone());
        let neighbors = was != is;
        match is {
            Some(neighbor) => self.neighbors.insert(key, neighbor),
            None => self.neighbors.remove(&key),
        };
        Changed { neighbors, ..Changed::default() }
    }
}

fn is_permanent(n: &Neighbor) -> bool {
    matches!(n.state, NeighborState::Permanent | NeighborState::NoArp)
        && !n.external
        && !n.proxy
        && !n.address.is_multicast()
        && n.mac.is_some_and(|m| m.0[0] & 1 == 0 && m.0 != [0; 6])
}

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
    /// Of these, loopbacks, and macvlans by the interface that they are on.
    loopbacks: BTreeSet<u32>,
    macvlans: BTreeSet<(u32, u32)>,
    /// Interfaces of which something was said that [`view`](Self::view) shows, since that was last asked.
    touched: BTreeSet<u32>,
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

    /// Interfaces whose view may have changed since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.touched)
    }

    /// All is listed: what is not known of these is not there.
    pub(super) fn settle(&mut self, known: impl Iterator<Item = u32>) {
        let missing = known.filter(|index| !self.links.contains_key(index));
        self.touched.extend(missing);
    }

    /// The addresses of the loopback, which are the system's on whatever interface, without 127/8 and ::1.
    pub(super) fn loopback(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let loopbacks = self.loopbacks.iter().filter_map(|l| self.links.get(l)).filter(|l| l.up);
        let addresses = loopbacks.filter_map(|l| self.addresses.get(&l.index)).flatten();
        addresses.map(|a| a.address.addr()).filter(|a| !a.is_loopback())
    }

    /// Virtual routers on an interface: its macvlans, with their addresses.
    fn virtuals(&self, index: u32) -> impl Iterator<Item = VirtualMac> + '_ {
        let on = self.macvlans.range((index, 0)..=(index, u32::MAX)).filter_map(|(_, l)| self.links.get(l));
        on.filter(|l| l.up).filter_map(|l| {
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
                    self.set_link(index, None);
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
                let (first, last) = (IpAddr::from([0; 4]), IpAddr::from([0xff; 16]));
                let its = self.neighbors.range((link.index, first)..=(link.index, last));
                for key in its.map(|(key, _)| *key).collect::<Vec<_>>() {
                    self.neighbors.remove(&key);
                }
                self.set_link(link.index, None)
            }
            _ => self.set_link(link.index, Some(link)),
        };
        Changed { interfaces, ..Changed::default() }
    }

    /// Makes this what is known of a link; whether it was something else.
    fn set_link(&mut self, index: u32, link: Option<&Link>) -> bool {
        if self.links.get(&index) == link {
            return false;
        }
        // Of what it was on before, too.
        self.touch(index);
        self.loopbacks.remove(&index);
        if let Some(parent) = self.links.get(&index).and_then(macvlan_on) {
            self.macvlans.remove(&(parent, index));
        }
        match link {
            Some(link) => drop(self.links.insert(index, link.clone())),
            None => drop(self.links.remove(&index)),
        }
        if link.is_some_and(|l| l.loopback) {
            self.loopbacks.insert(index);
        }
        if let Some(parent) = link.and_then(macvlan_on) {
            self.macvlans.insert((parent, index));
        }
        self.touch(index);
        true
    }

    /// Something of a link has changed, and with it what shows of it where it is a macvlan.
    fn touch(&mut self, index: u32) {
        self.touched.insert(index);
        self.touched.extend(self.links.get(&index).and_then(macvlan_on));
    }

    fn address(&mut self, change: Change, address: &Address) -> Changed {
        self.stale_addresses.remove(&(address.interface, address.address));
        let interfaces = match change {
            Change::Delete => self.forget_address(address.interface, address.address),
            _ => {
                let all = self.addresses.entry(address.interface).or_default();
                let changed = match all.iter_mut().find(|a| a.address == address.address) {
                    Some(known) => std::mem::replace(known, address.clone()) != *address,
                    None => {
                        all.push(address.clone());
                        true
                    }
                };
                if changed {
                    self.touch(address.interface);
                }
                changed
            }
        };
        Changed { interfaces, ..Changed::default() }
    }

    fn forget_address(&mut self, interface: u32, address: IpNet) -> bool {
        let Some(all) = self.addresses.get_mut(&interface) else { return false };
        let before = all.len();
        all.retain(|a| a.address != address);
        let changed = all.len() != before;
        if changed {
            self.touch(interface);
        }
        changed
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

/// The interface that a macvlan is on.
fn macvlan_on(link: &Link) -> Option<u32> {
    link.parent.filter(|_| matches!(&link.detail, LinkDetail::Other(kind) if kind == "macvlan"))
}

fn is_permanent(n: &Neighbor) -> bool {
    matches!(n.state, NeighborState::Permanent | NeighborState::NoArp)
        && !n.external
        && !n.proxy
        && !n.address.is_multicast()
        && n.mac.is_some_and(|m| m.0[0] & 1 == 0 && m.0 != [0; 6])
}

#[cfg(test)]
mod tests {
    use linerate_linux::route::Mac;

    use super::*;

    fn link(index: u32, parent: Option<u32>) -> Link {
        Link {
            index,
            name: format!("if{index}"),
            mac: Some(Mac([2, 0, 0, 0, 0, index as u8])),
            mtu: 1500,
            up: true,
            carrier: true,
            running: true,
            loopback: index == 1,
            master: None,
            parent,
            detail: parent.map_or(LinkDetail::Plain, |_| LinkDetail::Other("macvlan".into())),
        }
    }

    fn address(interface: u32, text: &str) -> Address {
        let address = text.parse().unwrap();
        Address { interface, address, peer: None, tentative: false, duplicate: false, secondary: false }
    }

    fn tell(kernel: &mut Kernel, event: Event) -> Vec<u32> {
        kernel.apply(&MonitorEvent::Event(event));
        kernel.take_touched().into_iter().collect()
    }

    #[test]
    fn a_message_touches_its_interface_and_what_that_is_on() {
        let mut k = Kernel::default();
        for index in [1, 10, 11] {
            assert_eq!(tell(&mut k, Event::Link(Change::Add, link(index, None))), [index]);
        }
        assert_eq!(tell(&mut k, Event::Link(Change::Add, link(11, None))), [0; 0], "nothing new");
        assert_eq!(tell(&mut k, Event::Link(Change::Add, link(20, Some(10)))), [10, 20]);
        let vip = address(20, "10.0.0.9/32");
        assert_eq!(tell(&mut k, Event::Address(Change::Add, vip.clone())), [10, 20]);
        assert_eq!(tell(&mut k, Event::Address(Change::Add, vip.clone())), [0; 0]);
        let virtuals = |k: &Kernel, index| k.view(index).unwrap().virtuals;
        assert_eq!(virtuals(&k, 10)[0].addresses, ["10.0.0.9".parse::<IpAddr>().unwrap()]);
        // It moves to another interface, loses its address, and goes.
        assert_eq!(tell(&mut k, Event::Link(Change::Add, link(20, Some(11)))), [10, 11, 20]);
        assert_eq!((virtuals(&k, 10).len(), virtuals(&k, 11).len()), (0, 1));
        assert_eq!(tell(&mut k, Event::Address(Change::Delete, vip)), [11, 20]);
        assert_eq!(tell(&mut k, Event::Link(Change::Delete, link(20, Some(11)))), [11, 20]);
        assert_eq!(virtuals(&k, 11), []);
        assert_eq!(tell(&mut k, Event::Address(Change::Add, address(1, "198.18.0.1/32"))), [1]);
        assert_eq!(k.loopback().collect::<Vec<_>>(), ["198.18.0.1".parse::<IpAddr>().unwrap()]);
        // A listing that no longer names one.
        k.apply(&MonitorEvent::Begin(Section::Links));
        k.apply(&MonitorEvent::Event(Event::Link(Change::Add, link(10, None))));
        k.apply(&MonitorEvent::End(Section::Links));
        assert_eq!(k.take_touched().into_iter().collect::<Vec<_>>(), [1, 11]);
        assert!(k.view(11).is_none() && k.loopback().next().is_none());
        // One that went before anything was listed.
        k.settle([10, 77].into_iter());
        assert_eq!(k.take_touched().into_iter().collect::<Vec<_>>(), [77]);
    }
}

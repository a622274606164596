//! Follows what the kernel knows: lists everything, then reports changes, and lists again what may have been missed.

use std::collections::{BTreeSet, HashMap, VecDeque};

use netlink_packet_core::NLM_F_DUMP_INTR;
use nix::errno::Errno;
use tracing::{debug, warn};

use super::socket::{NLMSG_DONE, NLMSG_ERROR, NetlinkError, Read, Refusal, Socket, refusal};
use crate::readiness::Readiness;
use crate::route::wire::{
    AF_INET, AF_INET6, AF_UNSPEC, IP6MR, IPMR, Messages, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH,
    RTM_GETNEXTHOP, RTM_GETROUTE,
};
use crate::route::{Change, Decoder, Event, Faults, Protocol, Route};

/// What is listed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Interfaces.
    Links,
    /// Addresses.
    Addresses,
    /// Next-hop objects.
    Nexthops,
    /// IPv4 routes.
    RoutesV4,
    /// IPv6 routes.
    RoutesV6,
    /// IPv4 multicast routes.
    MulticastV4,
    /// IPv6 multicast routes.
    MulticastV6,
    /// Neighbours.
    Neighbors,
}

impl Section {
    /// All, in the order in which one needs the other.
    pub const ALL: [Section; 8] = [
        Section::Links,
        Section::Addresses,
        Section::Nexthops,
        Section::RoutesV4,
        Section::RoutesV6,
        Section::MulticastV4,
        Section::MulticastV6,
        Section::Neighbors,
    ];

    /// Message type, address family and size of the fixed part of the request.
    fn request(self) -> (u16, u8, usize) {
        match self {
            Section::Links => (RTM_GETLINK, AF_UNSPEC, 16),
            Section::Addresses => (RTM_GETADDR, AF_UNSPEC, 8),
            Section::Nexthops => (RTM_GETNEXTHOP, AF_UNSPEC, 8),
            Section::RoutesV4 => (RTM_GETROUTE, AF_INET, 12),
            Section::RoutesV6 => (RTM_GETROUTE, AF_INET6, 12),
            Section::MulticastV4 => (RTM_GETROUTE, IPMR, 12),
            Section::MulticastV6 => (RTM_GETROUTE, IP6MR, 12),
            Section::Neighbors => (RTM_GETNEIGH, AF_UNSPEC, 12),
        }
    }

    /// Whether an event belongs here. A kernel without multicast routing answers with the unicast routes of all families.
    fn holds(self, event: &Event) -> bool {
        match event {
            Event::Link(..) => self == Section::Links,
            Event::Address(..) => self == Section::Addresses,
            Event::Nexthop(..) => self == Section::Nexthops,
            Event::Neighbor(..) => self == Section::Neighbors,
            Event::Route(_, r) if r.prefix.addr().is_ipv4() => self == Section::RoutesV4,
            Event::Route(..) => self == Section::RoutesV6,
            Event::Multicast(_, r) if r.v6 => self == Section::MulticastV6,
            Event::Multicast(..) => self == Section::MulticastV4,
            // They are told as they change, and not listed.
            Event::Rule(..) => false,
        }
    }
}

/// What the monitor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorEvent {
    /// All of a section is about to be listed, at the start and whenever something may have been missed. May come again
    /// before the end: then the listing was interrupted and starts anew.
    Begin(Section),
    /// Something is there (between begin and end), or has changed.
    Event(Event),
    /// What the listing did not name is gone.
    End(Section),
    /// Every section has been listed: what the monitor has said is what the kernel knows.
    Synced,
}

/// Which routes are reported.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Tables; `None`: all.
    pub tables: Option<BTreeSet<u32>>,
    /// Routes of these makers are left out; see [`Protocol::of_frr`].
    pub without: BTreeSet<Protocol>,
}

impl Filter {
    fn passes(&self, route: &Route) -> bool {
        self.tables.as_ref().is_none_or(|t| t.contains(&route.table))
            && !self.without.contains(&route.protocol)
    }
}

/// Bytes that the kernel may queue: some tens of thousands of messages, a second of heavy churn.
const QUEUE: usize = 32 << 20;

/// Multicast groups (`RTNLGRP_*`): links, neighbours, addresses, routes, multicast routes, next hops, rules.
const GROUPS: [u32; 11] = [1, 3, 5, 9, 7, 11, 6, 10, 32, 8, 19];

/// Follows the kernel. Pull with [`next`](Self::next).
pub struct Monitor {
    changes: Socket,
    changed: Readiness,
    listings: Socket,
    listed: Readiness,
    decoder: Decoder,
    filter: Filter,
    /// Sections yet to be listed.
    pending: VecDeque<Section>,
    listing: Option<Listing>,
    synced: bool,
    /// Whether each interface is up, and in which VRF or bridge: routes vanish in silence when that changes.
    links: HashMap<u32, LinkState>,
    resyncs: u64,
    failures: u32,
}

/// A listing under way.
struct Listing {
    section: Section,
    sequence: u32,
    /// It may lack something and has to be made again.
    interrupted: bool,
}

/// What a step waits for.
enum Step {
    Done,
    AwaitListing,
    AwaitChange,
}

/// Datagrams of changes that are read between two listings.
const BETWEEN: usize = 64;
/// Refusals in a row after which a listing is given up.
const MAX_FAILURES: u32 = 8;

impl Monitor {
    /// Opens its sockets in the network namespace of the calling thread (see [`in_namespace`](super::in_namespace)) and
    /// registers them with the tokio runtime that the caller is in.
    pub fn open(filter: Filter) -> Result<Self, NetlinkError> {
        Monitor::with_queue(filter, QUEUE)
    }

    /// The same with another size of the kernel's queue, in bytes (32 MB otherwise).
    pub fn with_queue(filter: Filter, queue: usize) -> Result<Self, NetlinkError> {
        // Changes are heard before anything is listed, so that none is missed.
        let changes = Socket::open(&GROUPS, queue)?;
        changes.leave_out(filter.without.iter().copied());
        let listings = Socket::open(&[], 1 << 20)?;
        Ok(Monitor {
            changed: Readiness::new(&changes).map_err(NetlinkError::Open)?,
            listed: Readiness::new(&listings).map_err(NetlinkError::Open)?,
            changes,
            listings,
            decoder: Decoder::new("netlink"),
            filter,
            pending: Section::ALL.into(),
            listing: None,
            synced: false,
            links: HashMap::new(),
            resyncs: 0,
            failures: 0,
        })
    }

    /// How often messages were lost and everything was listed again.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// What was skipped.
    pub fn faults(&self) -> &Faults {
        &self.decoder.faults
    }

    /// Waits for something to happen and appends it: the events of one datagram. Can be dropped while waiting without
    /// losing anything. After an error the monitor is of no more use.
    pub async fn next(&mut self, events: &mut Vec<MonitorEvent>) -> Result<(), NetlinkError> {
        let before = events.len();
        while events.len() == before {
            let socket = match self.step(events)? {
                Step::Done => continue,
                Step::AwaitListing => &self.listed,
                Step::AwaitChange => &self.changed,
            };
            socket.readable().await.map_err(NetlinkError::Io)?;
        }
        Ok(())
    }

    fn step(&mut self, events: &mut Vec<MonitorEvent>) -> Result<Step, NetlinkError> {
        // A listing is read to its end before any change: a change that came later must not be undone by it, while one
        // that came earlier does no harm when it is told again, as all that followed it is told too.
        if self.listing.is_some() {
            return self.read_listing(events);
        }
        if self.pending.is_empty() {
            if !self.synced {
                self.synced = true;
                events.push(MonitorEvent::Synced);
                return Ok(Step::Done);
            }
            return self.read_change(events);
        }
        for _ in 0..BETWEEN {
            if let Step::AwaitChange = self.read_change(events)? {
                break;
            }
        }
        let Some(section) = self.pending.pop_front() else { return Ok(Step::Done) };
        let (kind, family, fixed) = section.request();
        let sequence = self.listings.ask_for_all(kind, family, fixed)?;
        self.listing = Some(Listing { section, sequence, interrupted: false });
        events.push(MonitorEvent::Begin(section));
        Ok(Step::Done)
    }

    fn read_listing(&mut self, events: &mut Vec<MonitorEvent>) -> Result<Step, NetlinkError> {
        let Some(listing) = &mut self.listing else { return Ok(Step::Done) };
        let datagram = match self.listings.read()? {
            Read::Datagram(datagram) => datagram,
            Read::Empty => return Ok(Step::AwaitListing),
            Read::Lost => {
                listing.interrupted = true;
                return Ok(Step::Done);
            }
        };
        let mut end = None;
        for message in Messages::new(datagram) {
            let message = match message {
                Ok(message) => message,
                Err(fault) => {
                    self.decoder.faults.note(fault);
                    listing.interrupted = true;
                    continue;
                }
            };
            if message.sequence != listing.sequence {
                continue;
            }
            listing.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE => end = Some(refusal(message.body, 4)),
                NLMSG_ERROR => end = Some(refusal(message.body, 4 + 16)),
                _ => {
                    let section = listing.section;
                    if let Some(event) = self.decoder.message(message).filter(|e| section.holds(e)) {
                        track(&mut self.links, &event);
                        report(&self.filter, event, events);
                    }
                }
            }
        }
        if let Some(refused) = end
            && let Some(listing) = self.listing.take()
        {
            self.finish(listing, refused, events)?;
        }
        Ok(Step::Done)
    }

    /// A listing has come to its end.
    fn finish(
        &mut self,
        listing: Listing,
        refused: Option<Refusal>,
        events: &mut Vec<MonitorEvent>,
    ) -> Result<(), NetlinkError> {
        let Listing { section, interrupted, .. } = listing;
        let repeat = match refused {
            // A kernel that was built without something has none of it.
            Some(Refusal { errno: Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::ENOENT, .. }) => false,
            Some(Refusal { errno, detail }) => {
                self.failures += 1;
                if self.failures > MAX_FAILURES {
                    return Err(NetlinkError::Refused { what: format!("list {section:?}"), errno, detail });
                }
                true
            }
            None => {
                self.failures = 0;
                interrupted
            }
        };
        if repeat {
            debug!("netlink: the listing of {section:?} was interrupted and is made again");
            self.relist(section);
        } else {
            events.push(MonitorEvent::End(section));
        }
        Ok(())
    }

    fn read_change(&mut self, events: &mut Vec<MonitorEvent>) -> Result<Step, NetlinkError> {
        let datagram = match self.changes.read()? {
            Read::Datagram(datagram) => datagram,
            Read::Empty => return Ok(Step::AwaitChange),
            Read::Lost => {
                self.lost()?;
                return Ok(Step::Done);
            }
        };
        let mut relist = BTreeSet::new();
        for message in Messages::new(datagram) {
            let event = match message {
                Ok(message) => self.decoder.message(message),
                Err(fault) => {
                    self.decoder.faults.note(fault);
                    None
                }
            };
            if let Some(event) = event {
                let moved = track(&mut self.links, &event);
                relist.extend(silent(&event, moved));
                report(&self.filter, event, events);
            }
        }
        for section in relist {
            self.relist(section);
        }
        Ok(Step::Done)
    }

    /// Messages were lost: what is still queued is older than the loss and may be outdated by what was lost.
    fn lost(&mut self) -> Result<(), NetlinkError> {
        self.resyncs += 1;
        warn!("netlink: the kernel's messages came faster than they were read; listing everything again");
        while !matches!(self.changes.read()?, Read::Empty) {}
        self.pending = Section::ALL.into();
        self.synced = false;
        Ok(())
    }

    fn relist(&mut self, section: Section) {
        if !self.pending.contains(&section) {
            self.pending.push_back(section);
        }
    }
}

fn report(filter: &Filter, event: Event, events: &mut Vec<MonitorEvent>) {
    if !matches!(&event, Event::Route(_, route) if !filter.passes(route)) {
        events.push(MonitorEvent::Event(event));
    }
}

/// Up, and master.
type LinkState = (bool, Option<u32>);

/// Remembers the state of an interface. Returns whether it has changed.
fn track(links: &mut HashMap<u32, LinkState>, event: &Event) -> bool {
    const DOWN: LinkState = (false, None);
    match event {
        Event::Link(Change::Delete, link) => links.remove(&link.index).unwrap_or(DOWN) != DOWN,
        Event::Link(_, link) => {
            let now = (link.up, link.master);
            links.insert(link.index, now).unwrap_or(DOWN) != now
        }
        _ => false,
    }
}

/// What the kernel changes without a word when this happens: IPv4 routes over an interface that goes down, changes its
/// VRF or loses its address, routes by a next-hop object that goes, next hops that die and come back with their interface.
fn silent(event: &Event, moved: bool) -> Vec<Section> {
    match event {
        Event::Link(..) if moved => vec![Section::Nexthops, Section::RoutesV4, Section::RoutesV6],
        Event::Address(Change::Delete, address) if address.address.addr().is_ipv4() => {
            vec![Section::RoutesV4]
        }
        Event::Nexthop(Change::Delete, _) => vec![Section::RoutesV4, Section::RoutesV6],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_may_move_between_threads() {
        fn send<T: Send>() {}
        send::<Monitor>();
        send::<crate::netlink::Writer>();
        send::<crate::fpm::FpmServer>();
        send::<crate::tap::Tap>();
    }
}

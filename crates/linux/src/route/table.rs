//! The kernel's routes, kept in step with its messages.
//!
//! What the kernel says cannot be applied message by message without knowing what was there before: an IPv6 delete may
//! mean one next hop of several, routes with the same prefix and metric can exist side by side, and of several metrics
//! only the lowest forwards. [`RouteTable`] knows, and says what the route of a prefix now is. Routes from FPM have none
//! of these traits (a prefix has one route, a message replaces it whole) and need no such table.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::model::{Change, NextHop, Route};

/// The routes of all tables. Memory: about 250 bytes a route.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    routes: BTreeMap<RouteKey, Vec<Entry>>,
    len: usize,
}

/// What the kernel orders routes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RouteKey {
    table: u32,
    prefix: IpNet,
    tos: u8,
    /// Lower is preferred.
    metric: u32,
}

/// A prefix has another route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Table.
    pub table: u32,
    /// Destination.
    pub prefix: IpNet,
    /// The route that forwards from now on: lowest metric, no type of service, no source prefix. `None`: there is none.
    pub route: Option<Route>,
}

#[derive(Clone, Debug)]
struct Entry {
    route: Route,
    /// Not seen since the sweep began.
    stale: bool,
}

impl RouteTable {
    /// No routes.
    pub fn new() -> Self {
        RouteTable::default()
    }

    /// Routes in all tables, side by side ones each.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The route that forwards for exactly this prefix.
    pub fn get(&self, table: u32, prefix: IpNet) -> Option<&Route> {
        let key = |metric| RouteKey { table, prefix, tos: 0, metric };
        let same = self.routes.range(key(0)..=key(u32::MAX));
        same.flat_map(|(_, entries)| entries).map(|e| &e.route).find(|r| r.from.is_none())
    }

    /// All routes, by table, prefix, metric.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.values().flatten().map(|e| &e.route)
    }

    /// Applies one message. Returns what changed, if anything that forwards.
    pub fn apply(&mut self, change: Change, route: Route) -> Option<RouteChange> {
        let (table, prefix) = (route.table, route.prefix);
        let before = self.get(table, prefix).cloned();
        let key = RouteKey { table, prefix, tos: route.tos, metric: route.metric };
        let entries = self.routes.entry(key).or_default();
        let length = entries.len();
        match (change, prefix) {
            (Change::Delete, IpNet::V4(_)) => delete_v4(entries, &route),
            (Change::Delete, IpNet::V6(_)) => delete_v6(entries, &route),
            (_, IpNet::V4(_)) => set_v4(entries, change, route),
            (_, IpNet::V6(_)) => set_v6(entries, change, route),
        }
        self.len = self.len + entries.len() - length;
        if entries.is_empty() {
            self.routes.remove(&key);
        }
        self.changed(table, prefix, before)
    }

    /// Marks the routes that a dump is about to list again.
    pub fn begin_sweep(&mut self, dumped: impl Fn(&Route) -> bool) {
        for entry in self.routes.values_mut().flatten() {
            entry.stale = dumped(&entry.route);
        }
    }

    /// Removes what the dump did not list. Returns what changed.
    pub fn end_sweep(&mut self) -> Vec<RouteChange> {
        let stale: Vec<RouteKey> =
            self.routes.iter().filter(|(_, e)| e.iter().any(|e| e.stale)).map(|(key, _)| *key).collect();
        let mut changes = Vec::new();
        for key in stale {
            let before = self.get(key.table, key.prefix).cloned();
            if let Some(entries) = self.routes.get_mut(&key) {
                let length = entries.len();
                entries.retain(|e| !e.stale);
                self.len -= length - entries.len();
                if entries.is_empty() {
                    self.routes.remove(&key);
                }
            }
            changes.extend(self.changed(key.table, key.prefix, before));
        }
        changes
    }

    fn changed(&self, table: u32, prefix: IpNet, before: Option<Route>) -> Option<RouteChange> {
        let now = self.get(table, prefix);
        (now != before.as_ref()).then(|| RouteChange { table, prefix, route: now.cloned() })
    }
}

/// IPv4: the first of those with the same key forwards; `add` goes in front (`ip route prepend`), `append` behind.
fn set_v4(entries: &mut Vec<Entry>, change: Change, route: Route) {
    if let Some(same) = entries.iter_mut().find(|e| same_v4(&e.route, &route)) {
        *same = Entry { route, stale: false };
        return;
    }
    let entry = Entry { route, stale: false };
    match (change, entries.first_mut()) {
        (Change::Replace, Some(first)) => *first = entry,
        (Change::Append, _) => entries.push(entry),
        _ => entries.insert(0, entry),
    }
}

fn delete_v4(entries: &mut Vec<Entry>, route: &Route) {
    let same = entries.iter().position(|e| same_v4(&e.route, route));
    // Without a match the message is about a route that was never seen as it was; one with its key is gone.
    if let Some(at) = same.or((!entries.is_empty()).then_some(0)) {
        entries.remove(at);
    }
}

fn same_v4(a: &Route, b: &Route) -> bool {
    a.kind == b.kind
        && a.protocol == b.protocol
        && a.nexthop == b.nexthop
        && same_paths(&a.next_hops, &b.next_hops)
}

/// IPv6: routes with gateways and the same key are one route with several next hops, and each message lists all of them;
/// others (connected by two interfaces) stand side by side.
fn set_v6(entries: &mut Vec<Entry>, change: Change, route: Route) {
    let gateways = |r: &Route| r.next_hops.iter().any(|h| h.gateway.is_some()) || r.nexthop.is_some();
    let class = gateways(&route);
    let at = match change {
        Change::Replace => {
            let same = entries.iter().position(|e| e.route.from == route.from && gateways(&e.route) == class);
            let at = same.or((!entries.is_empty()).then_some(0));
            if let (Some(first), true) = (at, class) {
                let mut index = 0;
                entries.retain(|e| {
                    index += 1;
                    index - 1 <= first || !gateways(&e.route)
                });
            }
            at
        }
        _ => entries.iter().position(|e| {
            let all = || e.route.next_hops.iter().all(|h| route.next_hops.iter().any(|n| n.same_path(h)));
            e.route.from == route.from && e.route.kind == route.kind && gateways(&e.route) == class && all()
        }),
    };
    let entry = Entry { route, stale: false };
    match at.and_then(|at| entries.get_mut(at)) {
        Some(place) => *place = entry,
        None => entries.push(entry),
    }
}

fn delete_v6(entries: &mut Vec<Entry>, route: &Route) {
    let gone = |h: &NextHop| route.next_hops.iter().any(|g| g.same_path(h));
    entries.retain_mut(|e| {
        if e.route.from != route.from {
            return true;
        }
        if e.route.nexthop.is_some() || route.nexthop.is_some() {
            return e.route.nexthop != route.nexthop;
        }
        if e.route.next_hops.is_empty() {
            return e.route.kind != route.kind;
        }
        e.route.next_hops.retain(|h| !gone(h));
        !e.route.next_hops.is_empty()
    });
}

fn same_paths(a: &[NextHop], b: &[NextHop]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_path(b) && a.weight == b.weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Protocol, RouteKind, Scope};

    /// `PREFIX METRIC GATEWAY/INTERFACE ...`, in table 254.
    fn route(text: &str) -> Route {
        let mut words = text.split(' ');
        let prefix = words.next().unwrap().parse().unwrap();
        let metric = words.next().unwrap().parse().unwrap();
        let next_hops: Vec<_> = words
            .map(|hop| {
                let (gateway, interface) = hop.split_once('/').unwrap();
                NextHop {
                    gateway: (!gateway.is_empty()).then(|| gateway.parse().unwrap()),
                    interface: Some(interface.parse().unwrap()),
                    ..NextHop::default()
                }
            })
            .collect();
        Route {
            table: 254,
            prefix,
            tos: 0,
            metric,
            protocol: Protocol::BOOT,
            scope: Scope::Universe,
            kind: if next_hops.is_empty() { RouteKind::Blackhole } else { RouteKind::Unicast },
            from: None,
            preferred_source: None,
            mtu: None,
            nexthop: None,
            next_hops,
        }
    }

    /// Applies and says what forwards afterwards, if that changed.
    fn apply(table: &mut RouteTable, change: Change, text: &str) -> Option<String> {
        table.apply(change, route(text)).map(|c| c.route.as_ref().map_or("nothing".to_owned(), say))
    }

    fn say(r: &Route) -> String {
        let hop = |h: &NextHop| {
            format!("{}/{}", h.gateway.map_or(String::new(), |g| g.to_string()), h.interface.unwrap())
        };
        r.next_hops.iter().map(hop).collect::<Vec<_>>().join(" ")
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn an_ipv6_delete_removes_the_next_hops_that_it_names() {
        let mut t = RouteTable::new();
        let all = "2001:db8::/32 1024 fe80::1/1 fe80::2/2 fe80::3/3";
        assert_eq!(apply(&mut t, Change::Add, all), some("fe80::1/1 fe80::2/2 fe80::3/3"));
        assert_eq!(
            apply(&mut t, Change::Delete, "2001:db8::/32 1024 fe80::2/2"),
            some("fe80::1/1 fe80::3/3")
        );
        assert_eq!(apply(&mut t, Change::Delete, "2001:db8::/32 1024 fe80::9/2"), None);
        assert_eq!(apply(&mut t, Change::Delete, "2001:db8::/32 7 fe80::1/1"), None);
        assert_eq!(apply(&mut t, Change::Append, all), some("fe80::1/1 fe80::2/2 fe80::3/3"));
        assert_eq!(t.len(), 1);
        assert_eq!(apply(&mut t, Change::Delete, all), some("nothing"));
        assert!(t.is_empty());
    }

    #[test]
    fn ipv6_routes_on_several_links_stand_side_by_side() {
        let mut t = RouteTable::new();
        assert_eq!(apply(&mut t, Change::Add, "fe80::/64 256 /1"), some("/1"));
        assert_eq!(apply(&mut t, Change::Add, "fe80::/64 256 /2"), None);
        assert_eq!(t.len(), 2);
        assert_eq!(apply(&mut t, Change::Delete, "fe80::/64 256 /1"), some("/2"));
        assert_eq!(apply(&mut t, Change::Delete, "fe80::/64 256 /2"), some("nothing"));
    }

    #[test]
    fn of_several_ipv4_routes_the_first_of_the_lowest_metric_forwards() {
        let mut t = RouteTable::new();
        assert_eq!(apply(&mut t, Change::Add, "10.0.0.0/8 20 10.0.0.1/1"), some("10.0.0.1/1"));
        assert_eq!(apply(&mut t, Change::Append, "10.0.0.0/8 20 10.0.0.2/1"), None);
        assert_eq!(apply(&mut t, Change::Add, "10.0.0.0/8 20 10.0.0.3/1"), some("10.0.0.3/1"), "prepend");
        assert_eq!(apply(&mut t, Change::Add, "10.0.0.0/8 30 10.0.0.4/1"), None);
        assert_eq!(apply(&mut t, Change::Add, "10.0.0.0/8 10 10.0.0.5/1"), some("10.0.0.5/1"));
        assert_eq!(t.len(), 5);
        assert_eq!(apply(&mut t, Change::Delete, "10.0.0.0/8 10 10.0.0.5/1"), some("10.0.0.3/1"));
        assert_eq!(apply(&mut t, Change::Replace, "10.0.0.0/8 20 10.0.0.6/1"), some("10.0.0.6/1"));
        assert_eq!(apply(&mut t, Change::Delete, "10.0.0.0/8 20 10.0.0.6/1"), some("10.0.0.1/1"));
        assert_eq!(apply(&mut t, Change::Delete, "10.0.0.0/8 20 10.0.0.2/1"), None);
        assert_eq!(apply(&mut t, Change::Delete, "10.0.0.0/8 20 10.0.0.1/1"), some("10.0.0.4/1"));
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn a_listing_removes_what_it_does_not_name() {
        let mut t = RouteTable::new();
        for text in [
            "10.1.0.0/16 0 10.0.0.1/1",
            "10.2.0.0/16 0 10.0.0.1/1",
            "10.2.0.0/16 5 10.0.0.2/1",
            "2001:db8::/32 1 fe80::1/1",
        ] {
            apply(&mut t, Change::Add, text);
        }
        t.begin_sweep(|r| r.prefix.addr().is_ipv4());
        assert_eq!(apply(&mut t, Change::Append, "10.1.0.0/16 0 10.0.0.1/1"), None);
        assert_eq!(apply(&mut t, Change::Append, "10.2.0.0/16 5 10.0.0.2/1"), None);
        let changes: Vec<_> =
            t.end_sweep().into_iter().map(|c| (c.prefix.to_string(), c.route.map(|r| say(&r)))).collect();
        assert_eq!(changes, [("10.2.0.0/16".to_owned(), some("10.0.0.2/1"))]);
        assert_eq!(t.len(), 3);
        assert!(t.end_sweep().is_empty());
    }
}

//! Random changes of interfaces, routes and static neighbours against a model that computes every answer anew from
//! what is configured.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "helpers of tests may fail and print as tests do"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::Interface;
use linerate_router::naive::NaiveFib;
use linerate_router::neighbor::NeighborOptions;
use linerate_router::{NextHop, Path, RouteAction, Router, RouterConfig, Source, StaticNeighbor};
use linerate_tables::fib::Lookup;
use linerate_tables::qsbr::Domain;
use proptest::prelude::*;

type TestRouter = Router<NaiveFib<u32>, NaiveFib<u128>>;

const INTERFACES: u16 = 3;

/// Sets of addresses an interface can have; some overlap.
const ADDRESSES: [&[&str]; 6] = [
    &[],
    &["10.0.0.1/24", "2001:db8::1/64"],
    &["10.0.0.2/24"],
    &["10.0.1.0/31", "10.0.0.129/25"],
    &["10.0.0.1/32", "2001:db8::7/127"],
    &["10.0.2.1/23", "fe80::5/64"],
];

const PREFIXES: [&str; 12] = [
    "0.0.0.0/0",
    "20.0.0.0/8",
    "20.0.0.0/9",
    "10.0.0.0/16",
    "10.0.0.128/25",
    "10.0.0.9/32",
    "10.0.0.1/32",
    "30.0.0.1/32",
    "40.0.0.0/8",
    "::/0",
    "2001:db8::/48",
    "2001:db8::9/128",
];

const PROBES: [&str; 16] = [
    "1.1.1.1",
    "20.0.0.1",
    "20.200.0.1",
    "10.0.0.1",
    "10.0.0.0",
    "10.0.0.9",
    "10.0.0.200",
    "10.0.0.255",
    "10.0.1.1",
    "10.0.2.9",
    "30.0.0.1",
    "40.0.0.1",
    "2001:db8::9",
    "2001:db8::6",
    "2a00::1",
    "fe80::5",
];

const NEIGHBORS: [(u16, &str); 6] =
    [(0, "10.0.0.9"), (1, "10.0.0.9"), (1, "10.0.1.1"), (2, "10.0.2.9"), (0, "2001:db8::9"), (2, "fe80::77")];

fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

/// Actions that routes can have: no two mean the same.
fn actions() -> Vec<RouteAction> {
    let path =
        |gateway: Option<&str>, interface| Path { gateway: gateway.map(ip), interface, weight: 1, vrf: None };
    let forward = RouteAction::Forward;
    vec![
        forward(vec![path(Some("10.0.0.9"), None)]),
        forward(vec![path(Some("10.0.0.9"), None), path(Some("10.0.1.1"), None)]),
        forward(vec![path(Some("20.0.0.1"), None), path(Some("30.0.0.1"), None)]),
        forward(vec![path(Some("40.0.0.1"), None)]),
        forward(vec![path(None, Some(1)), path(Some("10.0.2.9"), Some(2))]),
        forward(vec![path(None, Some(0))]),
        RouteAction::Blackhole,
        RouteAction::Prohibit,
        RouteAction::Unreachable,
    ]
}

/// The same for IPv6.
fn actions6() -> Vec<RouteAction> {
    let path =
        |gateway: Option<&str>, interface| Path { gateway: gateway.map(ip), interface, weight: 1, vrf: None };
    let forward = RouteAction::Forward;
    vec![
        forward(vec![path(Some("2001:db8::9"), None)]),
        forward(vec![path(Some("2001:db8::9"), None), path(Some("fe80::77"), Some(2))]),
        forward(vec![path(Some("2a00::1"), None)]),
        RouteAction::Blackhole,
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Interface {
        index: u16,
        addresses: usize,
        up: bool,
    },
    Route {
        prefix: usize,
        learned: bool,
        action: Option<usize>,
    },
    /// Learned routes.
    Batch(Vec<(usize, Option<usize>)>),
    Neighbors(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..INTERFACES, 0..ADDRESSES.len(), prop::bool::weighted(0.8))
            .prop_map(|(index, addresses, up)| Step::Interface { index, addresses, up }),
        5 => (0..PREFIXES.len(), any::<bool>(), prop::option::weighted(0.75, 0usize..9))
            .prop_map(|(prefix, learned, action)| Step::Route { prefix, learned, action }),
        2 => prop::collection::vec((0..PREFIXES.len(), prop::option::weighted(0.7, 0usize..9)), 0..20)
            .prop_map(Step::Batch),
        1 => any::<u8>().prop_map(Step::Neighbors),
    ];
    prop::collection::vec(step, 1..40)
}

/// What is configured, and nothing else.
#[derive(Clone, Debug, Default)]
struct Model {
    interfaces: BTreeMap<u16, (usize, bool)>,
    routes: BTreeMap<(usize, Source), RouteAction>,
    neighbors: BTreeMap<(u16, IpAddr), [u8; 6]>,
}

#[derive(Clone, Debug, PartialEq)]
enum Found {
    Local,
    Connected(u16),
    Route(RouteAction),
}

impl Model {
    fn interface(&self, index: u16) -> Interface {
        let (addresses, up) = self.interfaces.get(&index).copied().unwrap_or_default();
        let addresses: Vec<IpNet> = ADDRESSES[addresses].iter().map(|a| a.parse().unwrap()).collect();
        Interface {
            up,
            ..Interface::new(&format!("if{index}"), index, [2, 0, 0, 0, 0, index as u8], 1500, &addresses)
        }
    }

    fn is_up(&self, index: u16) -> bool {
        self.interfaces.get(&index).is_some_and(|i| i.1)
    }

    /// The longest match, by looking at everything.
    fn find(&self, to: IpAddr) -> Option<Found> {
        let mut all: Vec<(u8, u8, Found)> = Vec::new();
        let bits = if to.is_ipv4() { 32 } else { 128 };
        for index in (0..INTERFACES).filter(|i| self.is_up(*i)) {
            let interface = self.interface(index);
            if to == IpAddr::V6(interface.link_local) {
                all.push((bits, 0, Found::Local));
            }
            for net in interface.ip4 {
                let edge = net.prefix_len() < 31 && (to == net.network() || to == net.broadcast());
                if to == net.addr() || edge {
                    all.push((32, 0, Found::Local));
                }
                if net.prefix_len() < 32 && IpNet::V4(net).contains(&to) {
                    all.push((net.prefix_len(), 1, Found::Connected(index)));
                }
            }
            for net in interface.ip6 {
                if to == net.addr()
                    || net.prefix_len() < 127 && !net.addr().is_unicast_link_local() && to == net.network()
                {
                    all.push((128, 0, Found::Local));
                }
                if !net.addr().is_unicast_link_local() && IpNet::V6(net).contains(&to) {
                    all.push((net.prefix_len(), 1, Found::Connected(index)));
                }
            }
        }
        for ((prefix, source), action) in &self.routes {
            let prefix: IpNet = PREFIXES[*prefix].parse().unwrap();
            if prefix.contains(&to) {
                all.push((
                    prefix.prefix_len(),
                    2 + u8::from(*source == Source::Learned),
                    Found::Route(action.clone()),
                ));
            }
        }
        // Longest first, then by preference; of two interfaces in one network the first.
        all.sort_by_key(|(len, preference, _)| (u8::MAX - len, *preference));
        all.into_iter().next().map(|(_, _, found)| found)
    }

    fn neighbor(&self, interface: u16, address: IpAddr) -> String {
        match self.neighbors.get(&(interface, address)) {
            Some(mac) => format!("if{interface} mac {}", mac[5]),
            None => format!("if{interface} ask {address}"),
        }
    }

    fn ends(
        &self,
        action: &RouteAction,
        asked: Option<IpAddr>,
        to: IpAddr,
        seen: &mut Vec<RouteAction>,
    ) -> BTreeSet<String> {
        let mut ends = BTreeSet::new();
        let RouteAction::Forward(paths) = action else { return ends };
        // Several paths, one of them by a link alone: a neighbour there is where the destination is. (A route to a
        // single host names it as the gateway instead.)
        let host = |p: &IpNet| p.prefix_len() == p.max_prefix_len() && p.addr() == to;
        let host = self.routes.keys().any(|(p, _)| host(&PREFIXES[*p].parse().unwrap()));
        if asked.is_none() && !host {
            let on = |p: &&Path| {
                p.gateway.is_none()
                    && p.interface.is_some_and(|i| self.is_up(i) && self.neighbors.contains_key(&(i, to)))
            };
            if let Some(i) = paths.iter().find(on).and_then(|p| p.interface) {
                return BTreeSet::from([self.neighbor(i, to)]);
            }
        }
        for path in paths {
            if let Some(i) = path.interface {
                if self.is_up(i) {
                    ends.insert(match path.gateway.or(asked) {
                        Some(gateway) => self.neighbor(i, gateway),
                        None => self.neighbor(i, to),
                    });
                }
                continue;
            }
            let gateway = path.gateway.unwrap();
            match self.find(gateway) {
                None | Some(Found::Local | Found::Route(RouteAction::Unreachable)) => {}
                Some(Found::Connected(i)) => _ = ends.insert(self.neighbor(i, gateway)),
                Some(Found::Route(RouteAction::Blackhole)) => _ = ends.insert("blackhole".into()),
                Some(Found::Route(RouteAction::Prohibit)) => _ = ends.insert("prohibit".into()),
                Some(Found::Route(nested)) => {
                    if !seen.contains(&nested) {
                        seen.push(nested.clone());
                        ends.extend(self.ends(&nested, Some(gateway), to, seen));
                        seen.pop();
                    }
                }
            }
        }
        ends
    }

    fn answers(&self, to: IpAddr) -> BTreeSet<String> {
        let one = |s: String| BTreeSet::from([s]);
        match self.find(to) {
            None => one("none".into()),
            Some(Found::Local) => one("local".into()),
            Some(Found::Connected(i)) => one(self.neighbor(i, to)),
            Some(Found::Route(RouteAction::Blackhole)) => one("blackhole".into()),
            Some(Found::Route(RouteAction::Prohibit)) => one("prohibit".into()),
            Some(Found::Route(action)) => {
                let ends = self.ends(&action, None, to, &mut vec![action.clone()]);
                if ends.is_empty() { one("unreachable".into()) } else { ends }
            }
        }
    }
}

/// What the plane says for many flows to one address.
fn answers(r: &TestRouter, to: IpAddr) -> BTreeSet<String> {
    let plane = r.plane();
    let id = match to {
        IpAddr::V4(a) => plane.fib4.lookup(a.to_bits()),
        IpAddr::V6(a) => plane.fib6.lookup(a.to_bits()),
    };
    let say = |next_hop| match next_hop {
        NextHop::Forward(a) => {
            let a = plane.next_hops.adjacency(a);
            format!("if{} mac {}", a.interface, a.mac()[5])
        }
        NextHop::Resolve(a) => {
            format!(
                "if{} ask {}",
                plane.next_hops.adjacency(a).interface,
                plane.next_hops.next_hop_ip(a).unwrap()
            )
        }
        NextHop::Glean(i) => format!("if{i} ask {to}"),
        other => format!("{other:?}").to_lowercase(),
    };
    (0..400u32).map(|h| say(plane.next_hops.resolve_one(id, h.wrapping_mul(0x9e37_79b9) ^ h >> 3))).collect()
}

fn fresh() -> TestRouter {
    Router::new(Domain::new(), NaiveFib::default(), NaiveFib::default(), NeighborOptions::default()).unwrap()
}

fn check(r: &TestRouter, model: &Model) -> Result<(), TestCaseError> {
    for to in PROBES.map(ip) {
        prop_assert_eq!(answers(r, to), model.answers(to), "to {}", to);
    }
    Ok(())
}

fn statics(model: &Model) -> Vec<StaticNeighbor> {
    model
        .neighbors
        .iter()
        .map(|((interface, address), mac)| StaticNeighbor {
            interface: *interface,
            address: *address,
            mac: *mac,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_what_the_configuration_says(steps in steps()) {
        let (actions4, actions6) = (actions(), actions6());
        let mut r = fresh();
        let mut model = Model::default();
        r.set_interfaces(0, (0..INTERFACES).map(|i| (i, model.interface(i)))).unwrap();
        for step in steps {
            match step {
                Step::Interface { index, addresses, up } => {
                    model.interfaces.insert(index, (addresses, up));
                    r.set_interfaces(0, (0..INTERFACES).map(|i| (i, model.interface(i)))).unwrap();
                }
                Step::Route { prefix, learned, action } => {
                    let source = if learned { Source::Learned } else { Source::Static };
                    let net: IpNet = PREFIXES[prefix].parse().unwrap();
                    let pool = if net.addr().is_ipv4() { &actions4 } else { &actions6 };
                    match action {
                        Some(a) => {
                            let action = &pool[a % pool.len()];
                            r.insert(0, 0, source, net, action).unwrap();
                            model.routes.insert((prefix, source), action.clone());
                        }
                        None => {
                            let had = model.routes.remove(&(prefix, source)).is_some();
                            prop_assert_eq!(r.withdraw(0, 0, source, net).unwrap(), had);
                        }
                    }
                }
                Step::Batch(batch) => {
                    let mut changes = Vec::new();
                    let (mut v4, mut v6) = (BTreeMap::new(), BTreeMap::new());
                    for (prefix, action) in batch {
                        let net: IpNet = PREFIXES[prefix].parse().unwrap();
                        // Routes of one action share it, as daemons' routes do.
                        let (pool, shared) =
                            if net.addr().is_ipv4() { (&actions4, &mut v4) } else { (&actions6, &mut v6) };
                        let at = action.map(|a| a % pool.len());
                        let action = at.map(|a| shared.entry(a).or_insert_with(|| Arc::new(pool[a].clone())).clone());
                        let key = (prefix, Source::Learned);
                        match &action {
                            Some(action) => _ = model.routes.insert(key, (**action).clone()),
                            None => _ = model.routes.remove(&key),
                        }
                        changes.push((net, action));
                    }
                    let updated = r.update(0, 0, Source::Learned, &changes);
                    let done = updated.added + updated.replaced + updated.removed + updated.unchanged;
                    prop_assert_eq!((done, updated.refused), (changes.len(), 0));
                }
                Step::Neighbors(bits) => {
                    let mut next = model.clone();
                    let chosen = NEIGHBORS.iter().enumerate().filter(|(n, _)| (bits >> n) & 1 != 0);
                    next.neighbors = chosen.map(|(n, (i, a))| ((*i, ip(a)), [2, 0, 0, 0, bits, 10 + n as u8])).collect();
                    // Refused as a whole where one of them is the interface's own address.
                    if r.set_neighbors(0, statics(&next)).is_ok() {
                        model = next;
                    }
                }
            }
            check(&r, &model)?;
        }
        // The same in one step, from nothing: order made no difference.
        let mut once = fresh();
        let routes = |wanted| model.routes.iter().filter(move |((_, s), _)| *s == wanted)
            .map(|((p, _), a)| (PREFIXES[*p].parse().unwrap(), Arc::new(a.clone()))).collect::<Vec<_>>();
        let interfaces: Vec<_> = (0..INTERFACES).map(|i| (i, model.interface(i))).collect();
        once.set_routes(0, 0, Source::Learned, routes(Source::Learned).into_iter().filter(|(_, a)| !matches!(&**a, RouteAction::Forward(p) if p.iter().any(|p| p.interface.is_some()))).collect()).unwrap();
        let own = statics(&model).into_iter().filter(|n| !model.interface(n.interface).owns(n.address)).collect();
        let config = RouterConfig { interfaces, routes: routes(Source::Static), neighbors: own, vrfs: vec![] };
        once.apply(0, config).unwrap();
        once.set_routes(0, 0, Source::Learned, routes(Source::Learned)).unwrap();
        if statics(&model).iter().all(|n| !model.interface(n.interface).owns(n.address)) {
            check(&once, &model)?;
            prop_assert_eq!(once.stats().ip4.routes[..4].to_vec(), r.stats().ip4.routes[..4].to_vec());
            prop_assert_eq!(once.stats().actions, r.stats().actions);
        }
        // And nothing is left when all of it goes.
        r.set_routes(0, 0, Source::Learned, Vec::new()).unwrap();
        r.apply(0, RouterConfig::default()).unwrap();
        (0..40).for_each(|t| r.tick(t * 100_000_000_000));
        let stats = r.stats();
        prop_assert_eq!((stats.plane, stats.actions, stats.neighbors, stats.ip4.fib_routes, stats.ip6.fib_routes), Default::default());
    }
}

//! An instance for tests of views and API: two workers, two ports, a small graph, a few routes.

use std::sync::{Arc, Mutex};

use linerate_pipeline::counters::NodeCounters;
use linerate_pipeline::graph::{ExitDescription, GraphDescription, NodeDescription, Target};
use linerate_pipeline::trace::Hop;
use linerate_pipeline::{DropReason, PortId, WorkerCounters};

use crate::dataplane::{Dataplane, Moved, PortView, QueueView, Refused, WorkerView};
use crate::show::acls::{Acl, AclRule, AclSample};
use crate::show::conflicts::Conflict;
use crate::show::fib::{Fib, SourceCount};
use crate::show::interfaces::Interface;
use crate::show::linux::{Class, Fault, Fpm, Linux, Punt, Tap};
use crate::show::multicast::{MulticastOutput, MulticastQuery, MulticastRoute, MulticastRoutes};
use crate::show::neighbors::Neighbor;
use crate::show::router::{LostFigures, NeighborFigures, Router, TableFigures};
use crate::show::routes::{Path, Route, RouteQuery, Routes};
use crate::show::vrfs::Vrf;

pub(crate) struct Fake {
    pub(crate) workers: Vec<WorkerView>,
    places: Mutex<Vec<QueueView>>,
    pub(crate) armed: Mutex<Vec<(u32, Option<PortId>)>>,
    hops: Mutex<Vec<(usize, Hop)>>,
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        let exit = |name, leads_to| ExitDescription { name, leads_to };
        let description = Arc::new(GraphDescription {
            nodes: vec![
                NodeDescription {
                    name: "eth_input",
                    exits: vec![
                        exit("ip4", Target::Node("ip4_input")),
                        exit("too_short", Target::Drop(DropReason::EthTooShort)),
                    ],
                },
                NodeDescription {
                    name: "ip4_input",
                    exits: vec![
                        exit("eth_input", Target::Node("eth_input")),
                        exit("bad_checksum", Target::Drop(DropReason::Ip4BadChecksum)),
                        exit("no_route", Target::Drop(DropReason::NoRoute)),
                    ],
                },
                NodeDescription { name: "output", exits: vec![] },
            ],
        });
        let worker = |id: u64| {
            let counters = WorkerCounters::new();
            counters.loops.add(1000);
            counters.cycles.add(10_000_000);
            counters.busy_cycles.add(2_500_000 * (id + 1));
            counters.longest_loop.set(4_200);
            counters.trace_lost.set(5 * id);
            let wan = counters.port(0);
            wan.received.add(1_000_000 * (id + 1));
            wan.rx_bytes.add(60_000_000 * (id + 1));
            wan.sent.add(999_000 * (id + 1));
            wan.tx_packets.add(5);
            wan.tx_bytes.add(300);
            counters.dropped(0, DropReason::NoRoute, 900 * (id + 1));
            counters.dropped(0, DropReason::Ip4BadChecksum, 100 * (id + 1));
            counters.port(1).tx_packets.add(999_000 * (id + 1));
            counters.port(1).tx_bytes.add(59_940_000 * (id + 1));
            let nodes: Arc<[NodeCounters]> = (0..3).map(|_| NodeCounters::default()).collect();
            nodes[0].packets.add(1_000_000);
            nodes[0].batches.add(20_000);
            nodes[0].cycles.add(12_300_000);
            // None of its batches was timed yet.
            nodes[2].packets.add(3);
            nodes[2].batches.add(3);
            WorkerView {
                cpu: Some(1 + id as usize),
                thread: 4000 + id as u32,
                counters,
                nodes,
                description: description.clone(),
            }
        };
        let queue = |port, queue, worker, packets| QueueView { port, queue, worker, packets };
        let hop = |packet, time, node, exit, text: &str| Hop {
            packet,
            time,
            node,
            exit,
            text: arrayvec::ArrayString::from(text).unwrap_or_default(),
        };
        Arc::new(Fake {
            workers: vec![worker(0), worker(1)],
            places: Mutex::new(vec![queue(1, 0, 1, 0), queue(0, 1, 1, 2_000_000), queue(0, 0, 0, 1_000_000)]),
            armed: Mutex::default(),
            hops: Mutex::new(vec![
                (0, hop(7, 100_000, 0, 0, "wan 02:00:00:00:00:01 > 02:00:00:00:00:02")),
                (0, hop(7, 100_450, 1, 2, "198.18.0.9 > 10.9.9.9 ttl 64")),
                (1, hop(3, 90_000, 0, 1, "")),
                (1, hop(4, 95_000, 2, Hop::KEPT, "port 1")),
            ]),
        })
    }

    fn table() -> Vec<Route> {
        let path = |gateway: Option<&str>, interface: Option<&str>, weight, state: Option<&str>| Path {
            gateway: gateway.map(|g| g.parse().unwrap()),
            interface: interface.map(Into::into),
            weight,
            state: state.map(Into::into),
            vrf: None,
        };
        let route = |prefix: &str, source: &str, action: &str, via, paths| Route {
            prefix: prefix.parse().unwrap(),
            source: source.into(),
            best: true,
            action: action.into(),
            via,
            paths,
        };
        let (via, wan) =
            (|g| path(Some(g), None, 1, None), |g, state| path(Some(g), Some("wan0"), 1, Some(state)));
        let standby = route("10.0.0.0/24", "static", "blackhole", vec![], vec![]);
        vec![
            route(
                "0.0.0.0/0",
                "static",
                "forward",
                vec![via("198.18.0.2")],
                vec![wan("198.18.0.2", "static")],
            ),
            route("10.0.0.0/8", "static", "blackhole", vec![], vec![]),
            route("10.0.0.0/24", "connected", "connected", vec![], vec![path(None, Some("lan0"), 1, None)]),
            Route { best: false, ..standby },
            route(
                "10.9.0.0/16",
                "static",
                "forward",
                vec![Path { weight: 3, ..via("198.18.0.2") }, via("198.18.0.3")],
                vec![Path { weight: 3, ..wan("198.18.0.2", "static") }, wan("198.18.0.3", "reachable")],
            ),
            route("2001:db8:9::/48", "static", "forward", vec![via("2001:db8:f::9")], vec![]),
        ]
    }
}

impl Dataplane for Fake {
    fn clock_hz(&self) -> u64 {
        2_000_000_000
    }

    fn workers(&self) -> Vec<WorkerView> {
        self.workers.clone()
    }

    fn ports(&self) -> Vec<PortView> {
        let port = |name: &str, device: &str, up| PortView {
            name: name.into(),
            device: device.into(),
            driver: "net_null".into(),
            mac: [2, 0, 0, 0, 0, 1],
            up,
            speed_mbps: up.then_some(10_000),
            mtu: 1500,
            promiscuous: false,
            rx_queues: 2,
            tx_queues: 2,
            rx_missed: 12,
            notes: if up { Vec::new() } else { vec!["the device cannot change its MTU".into()] },
            ..PortView::default()
        };
        vec![port("wan", "0000:01:00.0", true), port("lan", "net_null1,size=64", false)]
    }

    fn queues(&self) -> Vec<QueueView> {
        self.places.lock().unwrap().clone()
    }

    fn longest_gap(&self) -> u64 {
        12_300
    }

    fn interfaces(&self) -> Vec<Interface> {
        let interface = |name: &str, port: &str, vlan, addresses: &[&str]| Interface {
            name: name.into(),
            port: port.into(),
            vlan,
            inner_vlan: vlan.map(|_| 7),
            mac: "02:00:00:00:00:01".into(),
            mtu: 1500,
            admin_up: true,
            link_up: vlan.is_none(),
            addresses: addresses.iter().map(|a| (*a).into()).collect(),
            acl_in: vlan.map(|_| "edge".into()),
            acl_out: None,
            vrf: None,
        };
        vec![
            interface("wan0", "wan", None, &["198.18.0.1/24", "2001:db8:f::1/64"]),
            interface("lan0", "lan", Some(100), &["10.0.0.1/24"]),
        ]
    }

    fn multicast_routes(&self, query: &MulticastQuery) -> Result<MulticastRoutes, Refused> {
        let output =
            |interface: &str, ttl_threshold| MulticastOutput { interface: interface.into(), ttl_threshold };
        let route = |source: Option<&str>, group: &str, outputs: Vec<MulticastOutput>| MulticastRoute {
            vrf: None,
            source: source.map(|s| s.parse().unwrap()),
            group: group.parse().unwrap(),
            origin: if source.is_some() { "learned" } else { "static" }.into(),
            input: "wan0".into(),
            to_host: source.is_some() && outputs.len() == 1,
            packets: 1_234_567 * outputs.len() as u64,
            bytes: 1_604_937_100 * outputs.len() as u64,
            wrong_interface: 3,
            idle_seconds: outputs.first().map(|_| 12),
            outputs,
        };
        let mut routes = vec![
            route(None, "239.1.1.1", vec![]),
            route(Some("198.18.0.9"), "239.1.1.1", vec![output("lan0", 0), output("lan0.7", 16)]),
            route(Some("2001:db8:f::9"), "ff3e::1", vec![output("lan0", 0)]),
        ];
        routes.retain(|r| query.group.is_none_or(|g| g == r.group));
        Ok(MulticastRoutes { routes, left_out: 0 })
    }

    fn conflicts(&self) -> Vec<Conflict> {
        let conflict = |address: &str, count, last_seconds| Conflict {
            interface: "wan0".into(),
            address: address.parse().unwrap(),
            mac: "02:00:00:00:00:66".into(),
            count,
            last_seconds,
        };
        vec![conflict("198.18.0.1", 4_711, 3), conflict("2001:db8:f::1", 1, 86_400)]
    }

    fn neighbors(&self) -> Vec<Neighbor> {
        let neighbor = |address: &str, mac: Option<&str>, state: &str| Neighbor {
            interface: "wan0".into(),
            address: address.parse().unwrap(),
            mac: mac.map(Into::into),
            state: state.into(),
        };
        vec![
            neighbor("2001:db8:f::2", None, "incomplete"),
            neighbor("198.18.0.2", Some("02:00:00:00:00:99"), "static"),
        ]
    }

    fn acls(&self, name: Option<&str>) -> Result<Vec<Acl>, Refused> {
        let rule = |rule: &str, description: &str, packets| AclRule {
            rule: rule.into(),
            description: description.into(),
            packets,
            bytes: 60 * packets,
        };
        let edge = Acl {
            name: "edge".into(),
            inputs: vec!["lan0".into()],
            outputs: vec![],
            rules: vec![
                rule("permit tcp 10.0.0.0/8 any eq https", "the web", 1_234_567),
                rule("(deny everything else)", "", 3),
            ],
            lookup_bytes: 4711,
        };
        let all = vec![edge, Acl { name: "spare".into(), ..Acl::default() }];
        let found: Vec<Acl> = all.into_iter().filter(|a| name.is_none_or(|n| a.name == n)).collect();
        if found.is_empty() { Err(Refused("there is no such access list".into())) } else { Ok(found) }
    }

    fn acl_log(&self) -> Vec<AclSample> {
        vec![AclSample {
            seconds_ago: 1.25,
            acl: "edge".into(),
            rule: "deny udp any any eq dns log".into(),
            action: "deny".into(),
            direction: "in".into(),
            interface: "lan0".into(),
            protocol: 17,
            source: [10, 0, 0, 9].into(),
            source_port: Some(4000),
            destination: [198, 18, 0, 1].into(),
            destination_port: Some(53),
            bytes: 60,
        }]
    }

    fn linux(&self) -> Linux {
        Linux {
            fpm: Some(Fpm {
                connected: true,
                sessions: 2,
                connections_refused: 1,
                messages: 1_062_049,
                routes: 901_899,
                next_hops: 61,
                unusable: 3,
                holding: true,
                swept: 17,
                published_at: Some(1_700_000_000.25),
                publish_last_seconds: 0.000_12,
                publish_longest_seconds: 0.0175,
            }),
            kernel_routes: 12,
            kernel_resyncs: 1,
            refused: 5,
            refused_because: Some("the next-hop table is full".into()),
            faults: vec![Fault { what: "a netlink message is cut off".into(), count: 4 }],
            taps: vec![Tap {
                interface: "wan0".into(),
                to_linux: 1234,
                refused: 5,
                from_linux: 999,
                dropped: 6,
            }],
        }
    }

    fn punt(&self) -> Punt {
        let class = |class: &str, packets| Class {
            class: class.into(),
            explanation: "One sentence.".into(),
            rate: 20_000,
            packets,
            bytes: 90 * packets,
            policed: 7,
            queue_full: 1,
        };
        Punt { classes: vec![class("bgp", 12_345), class("icmp", 0)] }
    }

    fn router(&self) -> Router {
        Router {
            neighbors: NeighborFigures { known: 2, resolved: 1, duplicates: 12_345, ..Default::default() },
            tables: TableFigures { actions: 4, next_hops: 7, adjacencies: 2, buckets: 64, retired: 0 },
            lost: LostFigures { events: 9, trace_hops: 0 },
        }
    }

    fn fibs(&self) -> Vec<Fib> {
        let fib = |family: &str, routes, lookup_bytes| Fib {
            family: family.into(),
            routes,
            sources: vec![
                SourceCount { source: "connected".into(), routes: 2 },
                SourceCount { source: "static".into(), routes: routes - 2 },
            ],
            lookup_bytes,
            control_bytes: 14_400_000,
            retired_bytes: 0,
        };
        vec![fib("ipv4", 901_899, 1_900_000), fib("ipv6", 160_147, 1_600_000)]
    }

    fn vrfs(&self) -> Vec<Vrf> {
        let vrf = |number, name: &str, interfaces: &[&str], ip4_routes| Vrf {
            number,
            name: name.into(),
            interfaces: interfaces.iter().map(|i| (*i).into()).collect(),
            ip4_routes,
            ip6_routes: 12,
            bytes: 4_100_000,
        };
        vec![
            vrf(0, "default", &["wan0"], 901_899),
            vrf(1, "red", &["lan0", "lan1"], 12),
            vrf(2, "blue", &[], 0),
        ]
    }

    fn routes(&self, query: &RouteQuery) -> Result<Routes, Refused> {
        if query.interface.as_deref().is_some_and(|i| i != "wan0" && i != "lan0") {
            return Err(Refused("there is no such interface".into()));
        }
        let all = Self::table();
        let start = query.after.map_or(0, |a| all.iter().rposition(|r| r.prefix == a).map_or(0, |i| i + 1));
        let limit = query.limit.unwrap_or(usize::MAX);
        let routes: Vec<Route> = all.iter().skip(start).take(limit).cloned().collect();
        let more = start + routes.len() < all.len();
        Ok(Routes { next: routes.last().filter(|_| more).map(|r| r.prefix), routes })
    }

    fn move_queue(&self, port: PortId, queue: u16, worker: usize) -> Result<Moved, Refused> {
        let mut places = self.places.lock().unwrap();
        let place = places.iter_mut().find(|p| p.port == port && p.queue == queue);
        let place = place.ok_or_else(|| Refused(format!("port {port} has no receive queue {queue}")))?;
        let from = std::mem::replace(&mut place.worker, worker);
        Ok(Moved { from, gap: 12_300 })
    }

    fn trace(&self, packets: u32, port: Option<PortId>) -> Result<(), Refused> {
        self.armed.lock().unwrap().push((packets, port));
        Ok(())
    }

    fn take_trace(&self) -> Vec<(usize, Hop)> {
        // Hops come only after a trace was armed.
        if self.armed.lock().unwrap().is_empty() {
            Vec::new()
        } else {
            std::mem::take(&mut self.hops.lock().unwrap())
        }
    }
}

//! The monitor, the writer and taps against the real kernel, in namespaces of their own; iproute2 is the other opinion.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may panic"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use common::{ip, ip_json, new_namespace, wire};
use linerate_linux::links::LinkStates;
use linerate_linux::netlink::{
    Filter, LinkSettings, Monitor, MonitorEvent, Operation, Rule, RuleTarget, Section, Writer, in_namespace,
};
use linerate_linux::route::*;
use linerate_linux::tap::{Sent, Tap, TapError};

/// The kernel's state as the monitor tells it.
#[derive(Default)]
struct Mirror {
    routes: RouteTable,
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<(u32, String), Address>,
    nexthops: BTreeMap<u32, Nexthop>,
    neighbors: BTreeMap<(u32, IpAddr), Neighbor>,
    log: Vec<MonitorEvent>,
}

impl Mirror {
    fn apply(&mut self, event: MonitorEvent) {
        self.log.push(event.clone());
        let v4 = |r: &Route| r.prefix.addr().is_ipv4();
        match event {
            MonitorEvent::Begin(Section::RoutesV4) => self.routes.begin_sweep(v4),
            MonitorEvent::Begin(Section::RoutesV6) => self.routes.begin_sweep(|r| !v4(r)),
            MonitorEvent::End(Section::RoutesV4 | Section::RoutesV6) => drop(self.routes.end_sweep()),
            MonitorEvent::Begin(Section::Nexthops) => self.nexthops.clear(),
            MonitorEvent::Event(Event::Route(change, route)) => drop(self.routes.apply(change, route)),
            MonitorEvent::Event(Event::Link(change, link)) => keep(&mut self.links, change, link.index, link),
            MonitorEvent::Event(Event::Nexthop(change, n)) => keep(&mut self.nexthops, change, n.id, n),
            MonitorEvent::Event(Event::Address(change, a)) => {
                keep(&mut self.addresses, change, (a.interface, a.address.to_string()), a);
            }
            MonitorEvent::Event(Event::Neighbor(change, n)) => {
                keep(&mut self.neighbors, change, (n.interface, n.address), n);
            }
            _ => {}
        }
    }

    /// Reads until nothing more comes.
    async fn settle(&mut self, monitor: &mut Monitor) {
        self.settle_for(monitor, Duration::from_millis(300)).await;
    }

    async fn settle_for(&mut self, monitor: &mut Monitor, quiet: Duration) {
        let mut events = Vec::new();
        while let Ok(result) = tokio::time::timeout(quiet, monitor.next(&mut events)).await {
            result.unwrap();
            events.drain(..).for_each(|e| self.apply(e));
        }
    }

    /// Table, prefix, metric, kind, next hops of every route.
    fn routes(&self) -> BTreeSet<String> {
        let name = |index: Option<u32>| index.map_or(String::new(), |i| self.links[&i].name.clone());
        self.routes
            .iter()
            .map(|r| {
                let mut hops: Vec<_> = r
                    .next_hops
                    .iter()
                    .map(|h| {
                        let via = h.gateway.map_or(String::new(), |g| g.to_string());
                        format!("{via}/{}/{}", name(h.interface), h.weight)
                    })
                    .collect();
                hops.sort();
                let kind = format!("{:?}", r.kind).to_lowercase();
                format!("{} {} {} {kind} {}", r.table, r.prefix, r.metric, hops.join(" "))
            })
            .collect()
    }
}

impl Mirror {
    /// Number, and members of groups.
    fn nexthops(&self) -> Vec<String> {
        let members = |n: &Nexthop| match &n.action {
            Some(NexthopAction::Group(g)) => format!("{:?}", g.members),
            _ => String::new(),
        };
        self.nexthops.values().map(|n| format!("{} {}", n.id, members(n))).collect()
    }
}

fn nexthops_of_ip() -> Vec<String> {
    let members = |n: &serde_json::Value| {
        let member = |m: &serde_json::Value| (m["id"].as_u64().unwrap(), m["weight"].as_u64().unwrap_or(1));
        n["group"]
            .as_array()
            .map_or(String::new(), |g| format!("{:?}", g.iter().map(member).collect::<Vec<_>>()))
    };
    ip_json("nexthop show").iter().map(|n| format!("{} {}", n["id"], members(n))).collect()
}

fn keep<K: Ord, V>(map: &mut BTreeMap<K, V>, change: Change, key: K, value: V) {
    if change == Change::Delete {
        map.remove(&key);
    } else {
        map.insert(key, value);
    }
}

/// The same of iproute2.
fn routes_of_ip() -> BTreeSet<String> {
    let mut routes = BTreeSet::new();
    for family in ["-4", "-6"] {
        for route in ip_json(&format!("{family} route show table all")) {
            let text = |v: &serde_json::Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
            let table = match text(&route, "table").as_str() {
                "" | "main" => 254,
                "local" => 255,
                "default" => 253,
                other => other.parse().unwrap(),
            };
            let mut prefix = text(&route, "dst");
            let all = if family == "-4" { ("0.0.0.0/0", 32) } else { ("::/0", 128) };
            if prefix == "default" {
                prefix = all.0.to_owned();
            } else if !prefix.contains('/') {
                prefix = format!("{prefix}/{}", all.1);
            }
            let hop = |v: &serde_json::Value| {
                let gateway = if v["via"].is_object() { text(&v["via"], "host") } else { text(v, "gateway") };
                let weight = v["weight"].as_u64().unwrap_or(1);
                format!("{gateway}/{}/{weight}", text(v, "dev"))
            };
            let kind = text(&route, "type");
            let mut hops: Vec<_> = match route["nexthops"].as_array() {
                Some(hops) => hops.iter().map(hop).collect(),
                None if route["dev"].is_null() || ["blackhole", "unreachable"].contains(&&*kind) => vec![],
                None => vec![hop(&route)],
            };
            hops.sort();
            let metric = route["metric"].as_u64().unwrap_or(0);
            routes.insert(format!("{table} {prefix} {metric} {kind} {}", hops.join(" ")));
        }
    }
    routes
}

fn test(body: impl AsyncFnOnce()) {
    if new_namespace() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body());
    }
}

async fn watch() -> (Monitor, Mirror) {
    let mut monitor = Monitor::open(Filter::default()).unwrap();
    let mut mirror = Mirror::default();
    mirror.settle(&mut monitor).await;
    assert!(mirror.log.contains(&MonitorEvent::Synced));
    (monitor, mirror)
}

/// Routes of every kind that iproute2 can make.
const ROUTES: [&str; 18] = [
    "route add 10.1.0.0/16 via 198.18.0.2",
    "route add 10.2.0.0/16 nexthop via 198.18.0.2 weight 3 nexthop via 198.18.0.3 weight 200",
    "route add 10.3.0.0/16 via inet6 fe80::9 dev eth0",
    "route add blackhole 10.4.0.0/16",
    "route add unreachable 10.5.0.0/16",
    "route add prohibit 10.6.0.0/16 metric 77",
    "route add throw 10.7.0.0/16 table 1000",
    "route add 10.8.0.0/16 dev eth0 table 100000 proto bgp",
    "route add 10.9.0.0/16 via 203.0.113.1 dev eth0 onlink",
    "route add default via 198.18.0.9 metric 50",
    "route add 10.10.0.0/16 nhid 1",
    "route add 10.11.0.0/16 nhid 3",
    "-6 route add 2001:db8:1::/48 via 2001:db8::2",
    "-6 route add 2001:db8:2::/48 nexthop via 2001:db8::2 nexthop via fe80::3 dev eth0 weight 7",
    "-6 route add blackhole 2001:db8:3::/48",
    "-6 route add unreachable 2001:db8:4::/48 metric 5",
    "-6 route add 2001:db8:5::/48 nhid 6",
    "-6 route add default via fe80::1 dev eth0",
];

fn objects() {
    for object in [
        "id 1 via 198.18.0.2 dev eth0",
        "id 2 via 198.18.0.3 dev eth0 onlink",
        "id 3 group 1,5/2,250",
        "id 4 blackhole",
        "id 5 group 1/2 type resilient buckets 32 idle_timer 60 unbalanced_timer 300",
        "id 6 via fe80::2 dev eth0",
    ] {
        ip(&format!("nexthop add {object}"));
    }
}

#[test]
fn what_is_there_is_listed_and_what_comes_is_told() {
    test(async || {
        wire();
        objects();
        let half = ROUTES.len() / 2;
        ROUTES[..half].iter().for_each(|r| drop(ip(r)));
        let (mut monitor, mut mirror) = watch().await;
        assert_eq!(mirror.routes(), routes_of_ip());
        ROUTES[half..].iter().for_each(|r| drop(ip(r)));
        mirror.settle(&mut monitor).await;
        assert_eq!(mirror.routes(), routes_of_ip());
        assert!(mirror.routes().len() > ROUTES.len() + 5);

        let forward = |gateway: &str, onlink| {
            let index = mirror.links.values().find(|l| l.name == "eth0").map(|l| l.index);
            let gateway = Some(gateway.parse().unwrap());
            Some(NexthopAction::Forward(NextHop { gateway, interface: index, onlink, ..NextHop::default() }))
        };
        let group = |members: &[(u32, u32)], resilience| {
            Some(NexthopAction::Group(Members { members: members.to_vec(), resilience }))
        };
        let actions: Vec<_> = mirror.nexthops.values().map(|n| n.action.clone()).collect();
        assert_eq!(
            actions,
            [
                forward("198.18.0.2", false),
                forward("198.18.0.3", true),
                group(&[(1, 5), (2, 250)], None),
                Some(NexthopAction::Blackhole),
                group(
                    &[(1, 1), (2, 1)],
                    Some(Resilience { buckets: 32, idle_timer: 6000, unbalanced_timer: 30_000 })
                ),
                forward("fe80::2", false),
            ]
        );
        // The kernel names the object and lists its next hops.
        let by_group = mirror.routes.get(254, "10.11.0.0/16".parse().unwrap()).unwrap();
        assert_eq!(
            (by_group.nexthop, by_group.next_hops.len(), by_group.next_hops[1].weight),
            (Some(3), 2, 250)
        );
        assert_eq!(monitor.faults().total(), 0, "{:?}", monitor.faults());

        // One by one they go, and nothing else.
        for route in ROUTES.iter().rev() {
            ip(&route.replace(" add ", " del "));
            mirror.settle(&mut monitor).await;
            assert_eq!(mirror.routes(), routes_of_ip(), "{route}");
        }
    });
}

#[test]
fn interfaces_addresses_and_neighbours_are_told() {
    test(async || {
        wire();
        let (mut monitor, mut mirror) = watch().await;
        let index =
            |mirror: &Mirror, name: &str| mirror.links.values().find(|l| l.name == name).map(|l| l.index);
        let a = index(&mirror, "eth0").unwrap();
        assert_eq!(mirror.links[&a].parent, index(&mirror, "eth1"));
        assert!(mirror.links.values().any(|l| l.loopback && l.name == "lo"));
        ip("link add br0 type bridge");
        ip("link set br0 mtu 1280 address 02:00:00:00:00:07");
        ip("link set eth1 master br0");
        ip("link set eth1 down");
        ip("addr add 10.9.9.1 peer 10.9.9.2/32 dev eth0");
        ip("neigh add 198.18.0.7 lladdr 02:00:00:00:00:08 dev eth0 nud permanent");
        ip("neigh add 2001:db8::7 lladdr 02:00:00:00:00:09 dev eth0 nud reachable router");
        ip("neigh add proxy 198.18.0.200 dev eth0");
        mirror.settle(&mut monitor).await;
        let bridge = &mirror.links[&index(&mirror, "br0").unwrap()];
        assert_eq!((bridge.mtu, bridge.mac), (1280, Some(Mac([2, 0, 0, 0, 0, 7]))));
        assert_eq!(bridge.detail, LinkDetail::Other("bridge".to_owned()));
        let b = &mirror.links[&index(&mirror, "eth1").unwrap()];
        assert_eq!((b.up, b.master), (false, Some(bridge.index)));
        assert!(mirror.links[&a].up && !mirror.links[&a].carrier);
        let peer = &mirror.addresses[&(a, "10.9.9.1/32".to_owned())];
        assert_eq!(peer.peer, Some("10.9.9.2".parse().unwrap()));
        let neighbor = |address: &str| &mirror.neighbors[&(a, address.parse().unwrap())];
        assert_eq!(neighbor("198.18.0.7").state, NeighborState::Permanent);
        assert_eq!(neighbor("198.18.0.7").mac, Some(Mac([2, 0, 0, 0, 0, 8])));
        assert!(neighbor("2001:db8::7").router && neighbor("2001:db8::7").state.usable());

        // Leaving the bridge and an MTU too small for IPv6 are not the end of an interface, though the kernel tells them
        // as deletes of other families.
        ip("link set eth1 nomaster");
        ip("link set eth1 mtu 1000");
        ip("neigh del 198.18.0.7 dev eth0");
        ip("addr del 198.18.0.1/24 dev eth0");
        ip("link del br0");
        mirror.settle(&mut monitor).await;
        assert!(index(&mirror, "eth1").is_some() && index(&mirror, "br0").is_none());
        assert!(!mirror.addresses.contains_key(&(a, "198.18.0.1/24".to_owned())));
        assert_eq!(mirror.routes(), routes_of_ip());
        ip("link del eth0");
        mirror.settle(&mut monitor).await;
        assert_eq!(mirror.links.len(), 1);
        assert_eq!(mirror.routes(), routes_of_ip());
        assert_eq!(monitor.faults().total(), 0, "{:?}", monitor.faults());
    });
}

#[test]
fn routes_that_the_kernel_removes_in_silence_are_noticed() {
    test(async || {
        wire();
        objects();
        ROUTES.iter().for_each(|r| drop(ip(r)));
        let (mut monitor, mut mirror) = watch().await;
        for change in [
            "nexthop del id 1",
            "addr del 198.18.0.1/24 dev eth0",
            "addr add 198.18.0.1/24 dev eth0",
            "route add 10.1.0.0/16 via 198.18.0.2",
            "link set eth0 down",
            "link set eth0 up",
            "addr add 198.18.1.1/24 dev eth1",
            "route add 10.20.0.0/16 nexthop via 198.18.0.2 nexthop via 198.18.1.2",
            "route add 10.21.0.0/16 via 198.18.1.9 src 198.18.0.1",
            "link set eth1 down",
            "link set eth1 up",
            "addr del 198.18.0.1/24 dev eth0",
            "addr del 198.18.1.1/24 dev eth1",
            "link del eth0",
        ] {
            ip(change);
            mirror.settle(&mut monitor).await;
            assert_eq!(mirror.routes(), routes_of_ip(), "after {change}");
            assert_eq!(mirror.nexthops(), nexthops_of_ip(), "after {change}");
        }
        assert_eq!(monitor.resyncs(), 0);
    });
}

#[test]
fn routes_side_by_side() {
    test(async || {
        wire();
        let (mut monitor, mut mirror) = watch().await;
        for change in [
            "-6 route add 2001:db8:9::/48 via 2001:db8::2",
            "-6 route append 2001:db8:9::/48 via 2001:db8::3",
            "-6 route append 2001:db8:9::/48 via 2001:db8::4",
            "-6 route del 2001:db8:9::/48 via 2001:db8::3",
            "-6 route replace 2001:db8:9::/48 nexthop via 2001:db8::5 nexthop via 2001:db8::6",
            "-6 route del 2001:db8:9::/48 via 2001:db8::5",
            "-6 route del 2001:db8:9::/48",
            "-6 route add 2001:db8:9::/48 dev eth0 metric 9",
            "-6 route append 2001:db8:9::/48 dev eth1 metric 9",
            "-6 route append 2001:db8:9::/48 via 2001:db8::2 metric 9",
            "-6 route del 2001:db8:9::/48 dev eth0 metric 9",
            "-6 route replace 2001:db8:9::/48 dev eth0 metric 9",
            "-6 route flush 2001:db8:9::/48",
            "route add 10.9.0.0/16 via 198.18.0.2",
            "route append 10.9.0.0/16 via 198.18.0.3",
            "route prepend 10.9.0.0/16 via 198.18.0.4",
            "route del 10.9.0.0/16 via 198.18.0.2",
            "route replace 10.9.0.0/16 via 198.18.0.5",
            "route add 10.9.0.0/16 via 198.18.0.6 metric 3",
            "route del 10.9.0.0/16",
            "route flush 10.9.0.0/16",
        ] {
            ip(change);
            mirror.settle(&mut monitor).await;
            assert_eq!(mirror.routes(), routes_of_ip(), "after {change}");
            // The one that forwards is the one that a lookup finds.
            let prefix = "10.9.0.0/16".parse().unwrap();
            if let Some(route) = mirror.routes.get(254, prefix) {
                let found = ip_json("route get 10.9.0.1");
                let gateway = route.next_hops[0].gateway.map(|g| g.to_string());
                assert_eq!(found[0]["gateway"].as_str(), gateway.as_deref(), "after {change}");
            }
        }
        assert_eq!(monitor.resyncs(), 0);
    });
}

/// Chance decides what is done to three prefixes; a fixed seed.
#[test]
fn any_sequence_of_changes_is_followed() {
    test(async || {
        wire();
        let (mut monitor, mut mirror) = watch().await;
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut pick = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % n
        };
        let mut done = Vec::new();
        for _ in 0..400 {
            let v6 = pick(2) == 1;
            let (family, prefix, via) = if v6 {
                ("-6", ["2001:db8:a::/48"], "2001:db8::")
            } else {
                ("-4", ["10.9.0.0/16"], "198.18.0.")
            };
            // The kernel's listing leaves out IPv6 routes that stand between next hops of another one of the same metric, so
            // these two kinds have metrics of their own.
            let metric = ["", "metric 5"][pick(2)];
            let hop = |pick: &mut dyn FnMut(usize) -> usize| match pick(5) {
                n if v6 && metric.is_empty() => format!("via {via}{}", n + 1),
                n if v6 || n == 0 => "dev eth1".to_owned(),
                n => format!("via {via}{}", n + 1),
            };
            let hops = match pick(4) {
                0 => format!("nexthop {} nexthop {}", hop(&mut pick), hop(&mut pick)),
                _ => hop(&mut pick),
            };
            let operation = ["add", "append", "prepend", "replace", "del", "del", "change"][pick(7)];
            let command = format!("{family} route {operation} {} {hops} {metric}", prefix[0]);
            // The kernel refuses many of them.
            let words = command.split_whitespace();
            let ok = std::process::Command::new("ip").args(words).output().unwrap().status.success();
            if ok {
                done.push(command);
            }
            mirror.settle_for(&mut monitor, Duration::from_millis(15)).await;
            assert_eq!(mirror.routes(), routes_of_ip(), "after {done:#?}");
        }
        assert!(done.len() > 100, "{}", done.len());
    });
}

#[test]
fn lost_messages_lead_to_a_new_listing() {
    test(async || {
        wire();
        let mut monitor = Monitor::with_queue(Filter::default(), 8192).unwrap();
        let mut mirror = Mirror::default();
        mirror.settle(&mut monitor).await;
        let mut batch = tempfile::NamedTempFile::new().unwrap();
        use std::io::Write;
        for i in 0..2000 {
            writeln!(batch, "route add 10.{}.{}.0/24 via 198.18.0.2", i / 256, i % 256).unwrap();
        }
        batch.flush().unwrap();
        ip(&format!("-batch {}", batch.path().display()));
        ip("route del 10.0.7.0/24");
        mirror.settle(&mut monitor).await;
        assert!(monitor.resyncs() > 0);
        let routes = mirror.routes();
        assert_eq!(routes, routes_of_ip());
        assert!(routes.len() > 2000);
        assert_eq!(
            mirror.log.iter().filter(|e| **e == MonitorEvent::Synced).count() as u64,
            1 + monitor.resyncs()
        );
    });
}

/// Joins two interfaces to the kernel's multicast routing and adds an entry, as pimd does; waits to be told to end.
const MULTICAST_DAEMON: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
s.setsockopt(socket.IPPROTO_IP, 200, 1)
for vif, name in enumerate(("eth0", "eth1")):
    s.setsockopt(socket.IPPROTO_IP, 202, struct.pack("HBBIiI", vif, 8, 1, 0, socket.if_nametoindex(name), 0))
entry = socket.inet_aton("198.18.0.9") + socket.inet_aton("239.1.1.1") + struct.pack("H", 0)
entry += bytes([0, 3]) + bytes(30) + bytes(2) + bytes(16)
s.setsockopt(socket.IPPROTO_IP, 204, entry)
print("ready", flush=True)
sys.stdin.readline()
s.setsockopt(socket.IPPROTO_IP, 205, entry)
print("gone", flush=True)
sys.stdin.readline()
"#;

#[test]
fn multicast_routes_are_told() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    test(async || {
        wire();
        let mut monitor = Monitor::open(Filter::default()).unwrap();
        let mut mirror = Mirror::default();
        mirror.settle(&mut monitor).await;
        let mut daemon = Command::new("python3")
            .args(["-c", MULTICAST_DAEMON])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        mirror.settle(&mut monitor).await;
        let index = |name: &str| mirror.links.values().find(|l| l.name == name).unwrap().index;
        let route = MulticastRoute {
            v6: false,
            table: 253,
            source: Some("198.18.0.9".parse().unwrap()),
            group: Some("239.1.1.1".parse().unwrap()),
            input: Some(index("eth0")),
            outputs: vec![(index("eth1"), 3)],
        };
        let told = |mirror: &Mirror, change| {
            let event = MonitorEvent::Event(Event::Multicast(change, route.clone()));
            mirror.log.iter().filter(|e| **e == event).count()
        };
        assert!(told(&mirror, Change::Add) > 0, "{:#?}", mirror.log);
        // One that is there already is listed.
        let (_, listed) = watch().await;
        assert_eq!(told(&listed, Change::Append), 1);
        daemon.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "gone");
        mirror.settle(&mut monitor).await;
        assert_eq!(told(&mirror, Change::Delete), 1);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    });
}

#[test]
fn the_filter_leaves_out_tables_and_makers() {
    test(async || {
        wire();
        let filter = Filter { tables: Some([1000].into()), without: [Protocol::BGP].into() };
        let mut monitor = Monitor::open(filter).unwrap();
        let mut mirror = Mirror::default();
        for route in ["10.1.0.0/16", "10.2.0.0/16 table 1000", "10.3.0.0/16 table 1000 proto bgp"] {
            ip(&format!("route add blackhole {route}"));
            mirror.settle(&mut monitor).await;
        }
        let routes: Vec<_> = mirror.routes.iter().map(|r| r.prefix.to_string()).collect();
        assert_eq!(routes, ["10.2.0.0/16"]);
    });
}

#[test]
fn what_is_written_is_there() {
    test(async || {
        wire();
        objects();
        ROUTES.iter().for_each(|r| drop(ip(r)));
        let (mut monitor, mut mirror) = watch().await;
        let mut writer = Writer::open().unwrap();
        let before = routes_of_ip();
        let ours: Vec<Route> = mirror
            .routes
            .iter()
            .filter(|r| r.protocol != Protocol::KERNEL && r.table != 255)
            .cloned()
            .collect();
        assert_eq!(ours.len(), ROUTES.len());
        for route in &ours {
            writer.route(Operation::Delete, route).unwrap();
            let error = writer.route(Operation::Delete, route).unwrap_err();
            assert!(error.absent(), "{error}");
        }
        assert_eq!(routes_of_ip().len(), before.len() - ours.len());
        for route in &ours {
            writer.route(Operation::Add, route).unwrap();
            assert!(writer.route(Operation::Add, route).unwrap_err().exists());
            writer.route(Operation::Replace, route).unwrap();
        }
        assert_eq!(routes_of_ip(), before);

        let a = mirror.links.values().find(|l| l.name == "eth0").unwrap().index;
        for text in ["10.77.0.1/24", "2001:db8:77::1/64"] {
            let address = Address {
                interface: a,
                address: text.parse().unwrap(),
                peer: None,
                tentative: false,
                duplicate: false,
                secondary: false,
            };
            writer.address(Operation::Add, &address).unwrap();
            assert!(ip("addr show dev eth0").contains(&format!("{text} ")));
            assert!(writer.address(Operation::Add, &address).unwrap_err().exists());
            writer.address(Operation::Delete, &address).unwrap();
            assert!(writer.address(Operation::Delete, &address).unwrap_err().absent());
            assert!(!ip("addr show dev eth0").contains(text));
        }
        let neighbor = Neighbor {
            interface: a,
            address: "198.18.0.55".parse().unwrap(),
            mac: Some(Mac([2, 0, 0, 0, 0, 0x55])),
            state: NeighborState::Reachable,
            router: false,
            proxy: false,
            external: true,
        };
        writer.neighbor(Operation::Replace, &neighbor).unwrap();
        mirror.settle(&mut monitor).await;
        assert_eq!(mirror.neighbors[&(a, neighbor.address)], neighbor);
        writer.neighbor(Operation::Delete, &neighbor).unwrap();

        let rule = Rule {
            v6: false,
            multicast: false,
            priority: 900,
            from: Some("10.0.0.0/8".parse().unwrap()),
            to: None,
            input: Some("eth0".to_owned()),
            output: None,
            mark: Some((7, 0xff)),
            target: RuleTarget::Table(1000),
        };
        writer.rule(Operation::Add, &rule).unwrap();
        writer.rule(Operation::Replace, &rule).unwrap();
        let line = ip("rule show").lines().find(|l| l.starts_with("900:")).unwrap().to_owned();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>().join(" "),
            "900: from 10.0.0.0/8 fwmark 0x7/0xff iif eth0 lookup 1000"
        );
        mirror.log.clear();
        writer.rule(Operation::Delete, &rule).unwrap();
        assert!(!ip("rule show").contains("900:"));
        mirror.settle(&mut monitor).await;
        let seen = RuleSeen {
            v6: false,
            multicast: false,
            priority: 900,
            table: Some(1000),
            from: rule.from,
            input: rule.input.clone(),
            output: None,
        };
        for change in [Change::Add, Change::Delete] {
            let event = MonitorEvent::Event(Event::Rule(change, seen.clone()));
            assert!(mirror.log.contains(&event), "{:?}", mirror.log);
        }
        let v6_rule =
            Rule { v6: true, from: None, input: None, mark: None, target: RuleTarget::Unreachable, ..rule };
        writer.rule(Operation::Add, &v6_rule).unwrap();
        assert!(ip("-6 rule show").contains("900:\tfrom all unreachable"));
        for (v6, show) in [(false, "mrule show"), (true, "-6 mrule show")] {
            let target = RuleTarget::Table(1000);
            let of = Rule { v6, multicast: true, input: Some("eth0".to_owned()), target, ..v6_rule.clone() };
            // A kernel may be made without them.
            if writer.rule(Operation::Add, &of).is_ok() {
                assert!(ip(show).contains("900:\tfrom all iif eth0 lookup 1000"), "{}", ip(show));
                writer.rule(Operation::Delete, &of).unwrap();
                assert!(!ip(show).contains("900:"));
            } else {
                eprintln!("skipped: no rules of multicast routes in this kernel");
            }
        }

        let error =
            writer.set_link(a, &LinkSettings { mtu: Some(1), ..LinkSettings::default() }).unwrap_err();
        assert!(error.to_string().contains("mtu less than device minimum"), "{error}");
        assert!(
            writer
                .set_link(9999, &LinkSettings { up: Some(true), ..LinkSettings::default() })
                .unwrap_err()
                .absent()
        );
        writer.delete_link(a).unwrap();
        assert!(!ip("link show").contains(" eth0@"));
    });
}

#[test]
fn a_tap_is_a_wire() {
    test(async || {
        let mac = Mac([2, 0, 0, 0, 0, 0xaa]);
        let mut writer = Writer::open().unwrap();
        let tap = Tap::open("lr0").unwrap();
        assert!(matches!(tap.send(&[0; 60]).unwrap(), Sent::Refused), "it is down");
        let settings =
            LinkSettings { up: Some(true), mtu: Some(9000), mac: Some(mac), ..LinkSettings::default() };
        tap.configure(&mut writer, &settings).unwrap();
        ip("addr add 198.18.5.1/24 dev lr0");

        // The kernel answers an ARP request that comes by the wire.
        let ask = [
            &[0xff; 6][..],
            &[2, 0, 0, 0, 0, 1],
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 0, 1, 198, 18, 5, 9],
            &[0; 6],
            &[198, 18, 5, 1],
            &[0; 18],
        ]
        .concat();
        assert_eq!(tap.send(&ask).unwrap(), Sent::Yes);
        assert_eq!(tap.send(&[0; 13]).unwrap(), Sent::Refused);
        let mut buffer = [0; 9100];
        let answer = loop {
            match tap.receive(&mut buffer).unwrap() {
                Some(length) if buffer[12..14] == [8, 6] && buffer[21] == 2 => break &buffer[..length],
                Some(_) => {}
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!((&answer[..6], &answer[6..12]), (&[2, 0, 0, 0, 0, 1][..], &mac.0[..]));
        assert_eq!(&answer[28..32], [198, 18, 5, 1]);

        // Linux sees MAC, MTU and carrier.
        let (mut monitor, mut mirror) = watch().await;
        let link = &mirror.links[&tap.index()];
        assert_eq!((link.mac, link.mtu, link.up, link.carrier), (Some(mac), 9000, true, true));
        for carrier in [false, true] {
            tap.configure(&mut writer, &LinkSettings { carrier: Some(carrier), ..LinkSettings::default() })
                .unwrap();
            // The kernel tells changes of carrier at most once a second.
            for _ in 0..10 {
                mirror.settle(&mut monitor).await;
                if mirror.links[&tap.index()].carrier == carrier {
                    break;
                }
            }
            let link = &mirror.links[&tap.index()];
            assert_eq!((link.carrier, link.up), (carrier, true));
            assert!(ip("addr show dev lr0").contains("198.18.5.1/24"), "a flap keeps addresses");
        }

        // One tap, one program.
        assert!(matches!(Tap::open("lr0"), Err(TapError::Create { .. })));
        // Someone deletes it.
        writer.delete_link(tap.index()).unwrap();
        assert!(matches!(tap.receive(&mut buffer), Err(TapError::Deleted(_))));
        assert!(matches!(tap.send(&ask), Err(TapError::Deleted(_))));
        drop(tap);

        // One that is there already is taken over, and stays.
        ip("tuntap add dev lr1 mode tap");
        let index = Tap::open("lr1").unwrap().index();
        assert_eq!(Tap::open("lr1").unwrap().index(), index);
        for bad in ["", "sixteen-letters!", "a b", "a/b", "..", "tap%d"] {
            assert!(matches!(Tap::open(bad), Err(TapError::Name(_))), "{bad}");
        }
    });
}

#[test]
fn links_are_followed_by_what_they_are_joined_to() {
    test(async || {
        ip("link add va type veth peer name vb");
        ["va", "vb"].iter().for_each(|end| drop(ip(&format!("link set {end} up"))));
        let open = || LinkStates::open(["va".to_owned(), "none".to_owned()]).unwrap();
        async fn becomes(states: &mut LinkStates, running: bool) {
            for _ in 0..300 {
                if states.is_running("va") == Some(running) {
                    assert!(!states.follow().unwrap(), "nothing new");
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                states.follow().unwrap();
            }
            panic!("va is not {running} in 3 s");
        }
        let mut states = open();
        becomes(&mut states, true).await;
        assert_eq!((states.is_running("none"), states.is_running("vb")), (Some(false), None));
        for (change, running) in [("vb down", false), ("vb up", true), ("va down", false), ("va up", true)] {
            ip(&format!("link set {change}"));
            becomes(&mut states, running).await;
            assert_eq!(open().is_running("va"), Some(running), "as it is listed");
        }
        // Another one of the same name is not the one that is open somewhere.
        ip("link del va");
        becomes(&mut states, false).await;
        ip("link add va type veth peer name vb");
        ip("link set va up");
        ip("link set vb up");
        tokio::time::sleep(Duration::from_millis(300)).await;
        states.follow().unwrap();
        becomes(&mut states, false).await;
        assert_eq!(open().is_running("va"), Some(true));
    });
}

#[test]
fn another_namespace_is_reached_without_going_there() {
    test(async || {
        let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        ip("tuntap add dev here mode tap");
        // The namespace of a child process.
        let mut child = std::process::Command::new("unshare").args(["-n", "sleep", "60"]).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        while std::fs::read_link(&path).is_ok_and(|n| n == here) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (tap, mut writer) =
            in_namespace(path.as_ref(), || (Tap::open("there").unwrap(), Writer::open().unwrap())).unwrap();
        tap.configure(&mut writer, &LinkSettings { up: Some(true), ..LinkSettings::default() }).unwrap();
        assert!(ip("link show").contains("here") && !ip("link show").contains("there"));
        let there = common::run("nsenter", &format!("-t {} -n ip link show there", child.id()));
        assert!(there.contains("UP"), "{there}");
        assert!(in_namespace("/proc/none".as_ref(), || ()).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

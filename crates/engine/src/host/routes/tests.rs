use linerate_linux::fpm::Disconnect;
use linerate_linux::route::{Members, NextHop, Nexthop, NexthopAction};
use linerate_router::Path;

use super::*;

const HOLD: Duration = Duration::from_secs(60);

/// Tap 10 is interface 0, tap 11 interface 1.
fn routes() -> Routes {
    let mut routes = Routes::new(HOLD);
    routes.set_interfaces([(10, 0), (11, 1)].into(), &mut Vec::new());
    routes
}

fn hop(gateway: &str, interface: u32) -> NextHop {
    NextHop { gateway: Some(gateway.parse().unwrap()), interface: Some(interface), ..NextHop::default() }
}

fn route(prefix: &str, nexthop: Option<u32>, next_hops: Vec<NextHop>) -> Route {
    Route {
        table: 254,
        prefix: prefix.parse().unwrap(),
        tos: 0,
        metric: 20,
        protocol: Protocol::BGP,
        scope: Scope::Universe,
        kind: RouteKind::Unicast,
        from: None,
        preferred_source: None,
        mtu: None,
        nexthop,
        next_hops,
    }
}

fn object(id: u32, action: NexthopAction) -> FpmEvent {
    FpmEvent::Event(Event::Nexthop(
        Change::Add,
        Nexthop { id, protocol: Protocol::ZEBRA, action: Some(action) },
    ))
}

fn group(id: u32, members: &[(u32, u32)]) -> FpmEvent {
    object(id, NexthopAction::Group(Members { members: members.to_vec(), resilience: None }))
}

fn told(route: Route) -> FpmEvent {
    FpmEvent::Event(Event::Route(Change::Add, route))
}

fn connected() -> FpmEvent {
    FpmEvent::Connected("127.0.0.1:9".parse().unwrap())
}

/// What changes, in words.
fn say(changes: Vec<RouterChange>) -> Vec<String> {
    let path = |p: &Path| {
        let gateway = p.gateway.map_or("-".into(), |g| g.to_string());
        format!("{gateway}%{}*{}", p.interface.map_or("?".into(), |i| i.to_string()), p.weight)
    };
    let mut all: Vec<_> = changes
        .into_iter()
        .map(|(source, _, prefix, action)| {
            let action = match action.as_deref() {
                None => "gone".into(),
                Some(RouteAction::Forward(paths)) => paths.iter().map(path).collect::<Vec<_>>().join(" "),
                Some(other) => format!("{other:?}").to_lowercase(),
            };
            format!("{} {prefix} {action}", source.name())
        })
        .collect();
    all.sort();
    // The last word on a route may be said twice.
    all.dedup();
    all
}

fn fpm(routes: &mut Routes, now: Instant, events: Vec<FpmEvent>) -> Vec<String> {
    let (mut events, mut out) = (events, Vec::new());
    routes.fpm(now, &mut events, &mut out);
    say(out)
}

/// How many routes a batch has the router change.
fn expanded(routes: &mut Routes, now: Instant, mut events: Vec<FpmEvent>) -> usize {
    let mut out = Vec::new();
    routes.fpm(now, &mut events, &mut out);
    out.len()
}

#[test]
fn an_object_that_changes_between_routes_costs_its_routes_once_a_batch() {
    let (mut r, now) = (routes(), Instant::now());
    let prefix = |n: u32| format!("{}/32", std::net::Ipv4Addr::from(0x1400_0000 + n));
    let object = |n: u32| object(7, NexthopAction::Forward(hop(&format!("10.0.0.{}", 1 + n % 200), 10)));
    let first = (0..1000).map(|n| told(route(&prefix(n), Some(7), vec![])));
    assert_eq!(expanded(&mut r, now, [connected(), object(0)].into_iter().chain(first).collect()), 1000);
    // Object, route, object, route: what the object says at the end counts, for each route once, and the new ones.
    let alternating = (1..=500).flat_map(|n| [object(n), told(route(&prefix(1000 + n), Some(7), vec![]))]);
    let (all, others) = (expanded(&mut r, now, alternating.collect()), 500);
    assert!(all <= 1000 + 2 * others, "{all} changes of 1,500 routes");
    let Some(RouteAction::Forward(paths)) = r.fpm4.action(254, "20.0.0.5/32".parse().unwrap()).map(|a| &**a)
    else {
        panic!("it forwards")
    };
    assert_eq!(paths[0].gateway, Some("10.0.0.101".parse().unwrap()));
    // Groups around it, too.
    let groups =
        (0..300).flat_map(|n| [object(n), group(8, &[(7, 1)]), told(route(&prefix(n), Some(8), vec![]))]);
    let all = expanded(&mut r, now, groups.collect());
    assert!(all <= 1500 + 300, "{all} changes");
    // Back where it was: nothing to do for any route.
    assert_eq!(expanded(&mut r, now, vec![object(1), object(299)]), 0);
}

#[test]
fn objects_and_groups_say_what_routes_by_them_do_whatever_the_order() {
    let (mut r, now) = (routes(), Instant::now());
    let first = fpm(&mut r, now, vec![connected(), told(route("198.18.0.0/16", Some(7), vec![]))]);
    assert_eq!(first, ["learned 198.18.0.0/16 gone"], "nothing is known of object 7");
    assert_eq!(r.state.unusable, 1);
    let second = fpm(
        &mut r,
        now,
        vec![
            group(7, &[(1, 1), (2, 3), (9, 1)]),
            object(1, NexthopAction::Forward(hop("10.0.0.1", 10))),
            object(2, NexthopAction::Forward(hop("fe80::1", 11))),
            told(route("2001:db8::/32", Some(2), vec![])),
            told(route("2001:db8:1::/48", Some(1), vec![])),
        ],
    );
    assert_eq!(
        second,
        [
            "learned 198.18.0.0/16 10.0.0.1%0*1 fe80::1%1*3",
            "learned 2001:db8:1::/48 gone",
            "learned 2001:db8::/32 fe80::1%1*1",
        ],
        "IPv4 over IPv6 (RFC 8950), no IPv4 gateway for IPv6, member 9 left out"
    );
    let third = fpm(&mut r, now, vec![object(1, NexthopAction::Forward(hop("10.0.0.77", 10)))]);
    assert_eq!(
        third,
        ["learned 198.18.0.0/16 10.0.0.77%0*1 fe80::1%1*3"],
        "a member of its group became another; the route that cannot use it is as it was"
    );
    assert_eq!(fpm(&mut r, now, vec![group(7, &[(1, 1), (2, 3), (9, 1)])]), [""; 0], "nothing new");
    // A group that is its own member ends.
    assert_eq!(fpm(&mut r, now, vec![group(9, &[(9, 1), (7, 1)])]).len(), 1);
}

#[test]
fn routes_that_drop_or_lead_elsewhere() {
    let (mut r, now) = (routes(), Instant::now());
    let kind = |prefix, kind| told(Route { kind, ..route(prefix, Some(3), vec![]) });
    let events = vec![
        connected(),
        object(3, NexthopAction::Blackhole),
        told(route("10.0.0.0/8", Some(3), vec![])),
        kind("10.1.0.0/16", RouteKind::Unreachable),
        kind("10.2.0.0/16", RouteKind::Prohibit),
        kind("10.3.0.0/16", RouteKind::Local),
        told(route("10.4.0.0/16", None, vec![hop("10.9.9.9", 99)])),
        told(route("10.5.0.0/16", None, vec![hop("10.9.9.9", 99), hop("10.0.0.1", 10)])),
        told(route("10.6.0.0/16", None, vec![NextHop { interface: Some(11), ..NextHop::default() }])),
        told(route("10.7.0.0/16", None, vec![hop("::ffff:10.0.0.1", 10)])),
        told(Route { protocol: Protocol::KERNEL, ..route("10.8.0.0/16", None, vec![hop("10.0.0.1", 10)]) }),
    ];
    assert_eq!(
        fpm(&mut r, now, events),
        [
            "learned 10.0.0.0/8 blackhole",
            "learned 10.1.0.0/16 unreachable",
            "learned 10.2.0.0/16 prohibit",
            "learned 10.3.0.0/16 gone",
            "learned 10.4.0.0/16 gone",
            "learned 10.5.0.0/16 10.0.0.1%0*1",
            "learned 10.6.0.0/16 -%1*1",
            "learned 10.7.0.0/16 10.0.0.1%0*1",
        ]
    );
    let heavy = |weight| NextHop { weight, ..hop("10.0.0.1", 10) };
    let one = fpm(&mut r, now, vec![told(route("10.9.0.0/16", None, vec![heavy(60_000), heavy(300)]))]);
    assert_eq!(one, ["learned 10.9.0.0/16 10.0.0.1%0*256 10.0.0.1%0*1"]);
}

#[test]
fn a_change_told_as_delete_and_add_is_one_change() {
    let (mut r, now) = (routes(), Instant::now());
    let with = |gateway| route("10.0.0.0/8", None, vec![hop(gateway, 10)]);
    fpm(&mut r, now, vec![connected(), told(with("10.0.0.1"))]);
    let delete = FpmEvent::Event(Event::Route(Change::Delete, with("10.0.0.1")));
    let both = fpm(&mut r, now, vec![delete.clone(), told(with("10.0.0.2"))]);
    assert_eq!(both, ["learned 10.0.0.0/8 10.0.0.2%0*1"]);
    assert_eq!(fpm(&mut r, now, vec![delete.clone()]), ["learned 10.0.0.0/8 gone"]);
    assert_eq!(fpm(&mut r, now, vec![delete]), [""; 0]);
}

#[test]
fn after_a_restart_routes_stay_until_the_hold_time_is_over() {
    let (mut r, start) = (routes(), Instant::now());
    let at = |seconds| start + Duration::from_secs(seconds);
    let lead = |id, gateway| object(id, NexthopAction::Forward(hop(gateway, 10)));
    let by = |prefix, id| told(route(prefix, Some(id), vec![]));
    fpm(&mut r, at(0), vec![connected(), lead(1, "10.0.0.1"), by("10.1.0.0/16", 1), by("10.2.0.0/16", 1)]);
    assert_eq!(fpm(&mut r, at(70), vec![FpmEvent::Disconnected(Disconnect::Closed)]), [""; 0]);
    // Object 1 is another one now; the route not told yet stays what it was.
    let again = fpm(&mut r, at(80), vec![connected(), lead(1, "10.0.0.2"), by("10.1.0.0/16", 1)]);
    assert_eq!(again, ["learned 10.1.0.0/16 10.0.0.2%0*1"]);
    let mut out = Vec::new();
    r.tick(at(139), &mut out);
    assert!(out.is_empty() && r.state.holding);
    r.tick(at(140), &mut out);
    assert_eq!(say(out), ["learned 10.2.0.0/16 gone"]);
    assert_eq!((r.state.routes, r.state.swept, r.state.holding), (1, 1, false));
}

#[test]
fn the_kernels_routes_count_unless_they_are_the_routers_own() {
    let mut r = routes();
    let mut kernel = |event| {
        let mut out = Vec::new();
        r.kernel(event, &mut out);
        say(out)
    };
    let add = |route| MonitorEvent::Event(Event::Route(Change::Add, route));
    let link = NextHop { interface: Some(10), ..NextHop::default() };
    let connected = Route {
        protocol: Protocol::KERNEL,
        scope: Scope::Link,
        preferred_source: Some("10.0.0.1".parse().unwrap()),
        ..route("10.0.0.0/24", None, vec![link.clone()])
    };
    assert_eq!(kernel(add(connected)), ["kernel 10.0.0.0/24 gone"]);
    let host =
        Route { protocol: Protocol::BOOT, scope: Scope::Link, ..route("10.3.0.0/16", None, vec![link]) };
    assert_eq!(kernel(add(host)), ["kernel 10.3.0.0/16 -%0*1"]);
    let by = route("10.4.0.0/16", None, vec![hop("10.0.0.9", 10)]);
    assert_eq!(kernel(add(by.clone())), ["kernel 10.4.0.0/16 10.0.0.9%0*1"]);
    assert_eq!(kernel(MonitorEvent::Begin(Section::RoutesV4)), [""; 0]);
    assert_eq!(kernel(add(by)), [""; 0]);
    let gone = kernel(MonitorEvent::End(Section::RoutesV4));
    assert_eq!(gone, ["kernel 10.0.0.0/24 gone", "kernel 10.3.0.0/16 gone"]);
}

#[test]
fn a_tap_made_anew_has_another_index() {
    let (mut r, now) = (routes(), Instant::now());
    fpm(&mut r, now, vec![connected(), told(route("10.1.0.0/16", None, vec![hop("10.0.0.1", 10)]))]);
    let mut out = Vec::new();
    r.set_interfaces([(11, 1)].into(), &mut out);
    assert_eq!(say(std::mem::take(&mut out)), ["learned 10.1.0.0/16 gone"]);
    r.set_interfaces([(11, 1), (10, 4)].into(), &mut out);
    assert_eq!(say(out), ["learned 10.1.0.0/16 10.0.0.1%4*1"]);
}

#[test]
fn addresses_of_the_loopback_are_local_whatever_route_the_kernel_has_to_them() {
    let mut r = routes();
    let mut out = Vec::new();
    let loopback = |addresses: &[&str]| -> std::vec::IntoIter<IpAddr> {
        addresses.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>().into_iter()
    };
    let lo = NextHop { interface: Some(1), ..NextHop::default() };
    let own = |table| Route {
        table,
        protocol: Protocol::KERNEL,
        metric: 256,
        ..route("2001:db8::1/128", None, vec![lo.clone()])
    };
    let told = |change, route| MonitorEvent::Event(Event::Route(change, route));
    // At the start: addresses are listed before routes.
    r.set_loopback(254, loopback(&["2001:db8::1", "198.51.100.1"]), &mut out);
    let both = ["kernel 198.51.100.1/32 local", "kernel 2001:db8::1/128 local"];
    assert_eq!(say(std::mem::take(&mut out)), both);
    r.kernel(MonitorEvent::Begin(Section::RoutesV6), &mut out);
    r.kernel(told(Change::Add, own(254)), &mut out);
    r.kernel(MonitorEvent::End(Section::RoutesV6), &mut out);
    assert_eq!(say(std::mem::take(&mut out)), both[1..]);
    // The same prefix in another table is another's.
    r.kernel(told(Change::Add, own(10)), &mut out);
    assert_eq!(say(std::mem::take(&mut out)), ["kernel 2001:db8::1/128 gone"]);
    r.kernel(told(Change::Delete, own(10)), &mut out);
    out.clear();
    // A tap is deleted, and made again.
    for taps in [[(11, 1)].into(), [(11, 1), (12, 0)].into()] {
        r.set_interfaces(taps, &mut out);
        assert_eq!(say(std::mem::take(&mut out)), both[1..]);
    }
    // The address goes before its route does, and then a route to it by an interface counts again.
    r.set_loopback(254, loopback(&["198.51.100.1"]), &mut out);
    assert_eq!(say(std::mem::take(&mut out)), ["kernel 2001:db8::1/128 gone"]);
    r.kernel(told(Change::Delete, own(254)), &mut out);
    r.kernel(told(Change::Add, route("198.51.100.1/32", None, vec![hop("10.0.0.1", 11)])), &mut out);
    assert_eq!(
        say(std::mem::take(&mut out)),
        ["kernel 198.51.100.1/32 local", "kernel 2001:db8::1/128 gone"]
    );
    r.set_loopback(254, loopback(&[]), &mut out);
    assert_eq!(say(out), ["kernel 198.51.100.1/32 10.0.0.1%1*1"]);
}

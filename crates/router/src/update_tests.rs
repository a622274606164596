//! What a batch does besides what `tests/model.rs` compares with the configuration: refusals, and what is left.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use linerate_tables::fib::{FibMemory, Lookup, MAX_NEXT_HOPS};
use linerate_tables::qsbr::Domain;

use super::*;
use crate::model::Path;
use crate::naive::{NaiveFib, NaiveReader};
use crate::neighbor::NeighborOptions;
use crate::plane::NextHop;
use crate::router::tests::{interface, ip, net};
use crate::show::RouteFilter;

/// A FIB that takes so many insertions and refuses the next ones, as many as the other count says.
struct Limited<A: Address>(NaiveFib<A>, Rc<Cell<(usize, usize)>>);

impl<A: Address> Fib<A> for Limited<A> {
    type Reader = NaiveReader<A>;
    fn reader(&self) -> NaiveReader<A> {
        self.0.reader()
    }
    fn insert(&mut self, prefix: Prefix<A>, nh: NextHopId) -> Result<Option<NextHopId>, FibError> {
        match self.1.get() {
            (0, 0) => {}
            (0, n) => {
                self.1.set((0, n - 1));
                return Err(FibError::TooManyNextHops(MAX_NEXT_HOPS));
            }
            (room, n) => self.1.set((room - 1, n)),
        }
        self.0.insert(prefix, nh)
    }
    fn withdraw(&mut self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.0.withdraw(prefix)
    }
    fn get(&self, prefix: Prefix<A>) -> Option<NextHopId> {
        self.0.get(prefix)
    }
    fn load(&mut self, routes: impl IntoIterator<Item = (Prefix<A>, NextHopId)>) -> Result<(), FibError> {
        self.0.load(routes)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn memory(&self) -> FibMemory {
        self.0.memory()
    }
}

type LimitedRouter = Router<Limited<u32>, Limited<u128>>;

fn router(limit: &Rc<Cell<(usize, usize)>>) -> LimitedRouter {
    let fib4 = Limited(NaiveFib::default(), limit.clone());
    let fib6 = Limited(NaiveFib::default(), Rc::new(Cell::new((usize::MAX, 0))));
    let mut r = Router::new(Domain::new(), fib4, fib6, NeighborOptions::default()).unwrap();
    r.set_interfaces(0, [interface(1, &["10.0.0.1/24", "2001:db8::1/64"])]).unwrap();
    r
}

fn via(gateway: &str) -> Option<Arc<RouteAction>> {
    Some(Arc::new(RouteAction::via(ip(gateway))))
}

/// The gateway that packets to an address are sent to.
fn gateway(r: &LimitedRouter, to: &str) -> Option<IpAddr> {
    let plane = r.plane();
    let id = match ip(to) {
        IpAddr::V4(a) => plane.fib4.lookup(a.to_bits()),
        IpAddr::V6(a) => plane.fib6.lookup(a.to_bits()),
    };
    match plane.next_hops.resolve_one(id, 0) {
        NextHop::Forward(a) | NextHop::Resolve(a) => plane.next_hops.next_hop_ip(a),
        _ => None,
    }
}

/// RIB and FIB agree, and no action has a use too many: all of it goes, and leaves nothing.
fn check_and_empty(r: &mut LimitedRouter) {
    let stats = r.stats();
    let forwarding = r.routes(&RouteFilter::default()).iter().filter(|route| route.best).count();
    assert_eq!(forwarding, stats.ip4.fib_routes + stats.ip6.fib_routes);
    r.set_routes(0, 0, Source::Learned, Vec::new()).unwrap();
    r.set_interfaces(0, []).unwrap();
    (0..40).for_each(|t| r.tick(t * 100_000_000_000));
    let stats = r.stats();
    assert_eq!((stats.plane, stats.actions, stats.ip4.fib_routes, stats.ip6.fib_routes), Default::default());
}

#[test]
fn what_is_refused_stops_nothing_else_wherever_the_fib_is_full() {
    let (a, b) = (via("10.0.0.2"), via("10.0.0.3"));
    // The last two keep both neighbours and their host routes.
    let first = [
        (net("20.0.0.0/8"), a.clone()),
        (net("20.1.0.0/16"), a.clone()),
        (net("2001:db8:20::/48"), via("2001:db8::2")),
        (net("21.0.0.0/8"), a.clone()),
        (net("22.0.0.0/8"), b.clone()),
    ];
    let second = [
        (net("20.0.0.0/8"), b.clone()),
        (net("30.0.0.0/8"), b.clone()),
        (net("20.1.0.0/16"), None),
        (net("20.0.0.0/8"), a.clone()),
        (net("30.0.0.0/8"), None),
        (net("20.0.0.0/8"), b.clone()),
        (net("2001:db8:20::/48"), via("2001:db8::3")),
        (net("2001:db8:30::/48"), via("2001:db8::3")),
        (net("99.0.0.0/8"), None),
        (net("30.0.0.0/8"), a.clone()),
    ];
    // The IPv4 FIB has room for so many of the five that insert, and then refuses so many.
    for room in 0..7 {
        for refusals in 0..4 {
            let limit = Rc::new(Cell::new((usize::MAX, 0)));
            let mut r = router(&limit);
            let updated = r.update(0, 0, Source::Learned, &first);
            assert_eq!(updated, Updated { added: 5, ..Updated::default() });
            limit.set((room, refusals));
            let updated = r.update(0, 0, Source::Learned, &second);
            assert_eq!(
                (updated.refused > 0, updated.reasons.len()),
                (room < 5 && refusals > 0, updated.refused)
            );
            assert_eq!(
                updated.added + updated.replaced + updated.removed + updated.unchanged + updated.refused,
                second.len()
            );
            limit.set((usize::MAX, 0));
            // One by one the same routes and answers come out, where the same changes are left out.
            let mut model = std::collections::BTreeMap::new();
            first.iter().for_each(|(p, action)| _ = model.insert(*p, action.clone()));
            let mut left_out: Vec<IpNet> = updated.reasons.iter().map(|(p, _)| *p).collect();
            let (mut room, mut refusals) = (room, refusals);
            for (prefix, action) in &second {
                // What is so already does not get to the FIB.
                let inserts =
                    action.is_some() && prefix.addr().is_ipv4() && model.get(prefix) != Some(action);
                let refuse = inserts && room == 0 && refusals > 0;
                if refuse {
                    refusals -= 1;
                    let at = left_out.iter().position(|p| p == prefix).unwrap();
                    left_out.remove(at);
                } else {
                    room -= usize::from(inserts && room > 0);
                    match action {
                        Some(action) => _ = model.insert(*prefix, Some(action.clone())),
                        None => _ = model.remove(prefix),
                    }
                }
            }
            assert!(left_out.is_empty(), "{left_out:?}");
            for prefix in first.iter().chain(&second).map(|(p, _)| *p) {
                let to = prefix.addr().to_string();
                let found = model
                    .iter()
                    .filter(|(p, _)| p.contains(&prefix.addr()))
                    .max_by_key(|(p, _)| p.prefix_len());
                let want = found.and_then(|(_, action)| match action.as_deref() {
                    Some(RouteAction::Forward(paths)) => paths[0].gateway,
                    _ => None,
                });
                assert_eq!(gateway(&r, &to), want, "{prefix}");
            }
            check_and_empty(&mut r);
        }
    }
}

#[test]
fn impossible_routes_are_refused_and_told_up_to_a_bound() {
    let limit = Rc::new(Cell::new((usize::MAX, 0)));
    let mut r = router(&limit);
    let bad = via("224.0.0.1");
    let no_interface = Arc::new(RouteAction::Forward(vec![Path {
        gateway: None,
        interface: Some(9),
        weight: 1,
        vrf: None,
    }]));
    let mut changes: Vec<_> = (0..3_000u32)
        .map(|i| (IpNet::new((0x1400_0000 + (i << 8)).into_ip(), 24).unwrap(), via("10.0.0.7")))
        .collect();
    for change in changes.iter_mut().step_by(10) {
        change.1.clone_from(&bad);
    }
    changes[1].1 = Some(no_interface);
    changes[2].1 = via("2001:db8::9");
    let updated = r.update(5, 0, Source::Learned, &changes);
    assert_eq!((updated.added, updated.refused, updated.reasons.len()), (2_699, 301, MAX_REFUSED));
    assert_eq!(
        updated.reasons[0],
        (
            net("20.0.0.0/24"),
            RouterError::BadGateway { prefix: net("20.0.0.0/24"), gateway: ip("224.0.0.1") }
        )
    );
    assert_eq!(updated.reasons[1].1, RouterError::NoInterface { prefix: net("20.0.1.0/24"), interface: 9 });
    assert_eq!(gateway(&r, "20.0.2.1"), Some(ip("2001:db8::9")), "an IPv4 route by an IPv6 gateway");
    assert_eq!(gateway(&r, "20.0.10.1"), None);
    // The same once more changes nothing.
    let updated = r.update(6, 0, Source::Learned, &changes[1_001..1_010]);
    assert_eq!(updated, Updated { unchanged: 9, ..Updated::default() });
    check_and_empty(&mut r);
}

/// The routes behind a gateway's route in one batch never miss it: where they are in the FIB, it is followed already.
#[test]
fn a_gateway_behind_a_route_of_the_same_batch_is_found() {
    let limit = Rc::new(Cell::new((usize::MAX, 0)));
    let mut r = router(&limit);
    let updated = r.update(
        0,
        0,
        Source::Learned,
        &[
            (net("40.0.0.0/8"), via("30.0.0.1")),
            (net("30.0.0.0/24"), via("10.0.0.5")),
            (net("50.0.0.0/8"), via("30.0.0.1")),
            (net("2001:db8:50::/48"), via("2001:db8:60::1")),
            (net("2001:db8:60::/48"), via("2001:db8::5")),
        ],
    );
    assert_eq!(updated.added, 5);
    for to in ["40.0.0.1", "50.0.0.1", "30.0.0.9"] {
        assert_eq!(gateway(&r, to), Some(ip("10.0.0.5")), "{to}");
    }
    assert_eq!(gateway(&r, "2001:db8:50::1"), Some(ip("2001:db8::5")));
    let updated =
        r.update(1, 0, Source::Learned, &[(net("30.0.0.0/24"), None), (net("60.0.0.0/8"), via("30.0.0.1"))]);
    assert_eq!((updated.added, updated.removed), (1, 1));
    assert_eq!([gateway(&r, "40.0.0.1"), gateway(&r, "60.0.0.1")], [None, None]);
    check_and_empty(&mut r);
}

/// Host addresses from numbers.
trait IntoIp {
    fn into_ip(self) -> IpAddr;
}

impl IntoIp for u32 {
    fn into_ip(self) -> IpAddr {
        IpAddr::V4(self.into())
    }
}

//! A whole table through the router's control logic, in batches as a routing daemon sends it: RIB, actions, FIB.

use super::{
    fib::Effort,
    report::{Measured, Report},
    routes::Routes,
    stats::{Rng, timed},
};
use anyhow::{Result, ensure};
use ipnet::IpNet;
use linerate_pipeline::{Interface, VRF_DEFAULT};
use linerate_router::{RouteAction, Router, Source, neighbor::NeighborOptions};
use linerate_tables::{
    fib::{ip4::Ip4Fib, ip6::Ip6Fib},
    prefix::Address,
    qsbr::Domain,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

/// Routes of a batch: about what an FPM frame of 64 KB holds.
const BATCH: usize = 500;

/// Gateways the routes' next hops are mapped to.
const GATEWAYS: u32 = 64;

/// As a dump of a table comes, and as nothing comes.
const ORDERS: [&str; 2] = ["sorted", "shuffled"];

type Changes = Vec<(IpNet, Option<Arc<RouteAction>>)>;

/// Announces and withdraws all routes, sorted and shuffled.
pub(super) fn measure<A: Address>(
    routes: &Routes<A>,
    prefix: &str,
    effort: Effort,
    report: &mut Report,
) -> Result<()> {
    let mut announced = changes(routes)?;
    announced.sort_by_key(|(prefix, _)| *prefix);
    for order in ORDERS {
        if order == "shuffled" {
            Rng(0x0bde).shuffle(&mut announced);
        }
        let withdrawn: Changes = announced.iter().map(|(prefix, _)| (*prefix, None)).collect();
        let (mut comes, mut goes) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds.clamp(3, 5) {
            let mut router = router()?;
            let mut run = |changes: &Changes| {
                let (ns, done) = timed(|| {
                    let batches = changes.chunks(BATCH).map(|batch| {
                        let updated = router.update(0, VRF_DEFAULT, Source::Learned, batch);
                        updated.added + updated.removed
                    });
                    batches.sum::<usize>()
                });
                (ns / 1e9, done)
            };
            let ((added, n), (removed, m)) = (run(&announced), run(&withdrawn));
            ensure!(
                n == announced.len() && m == n,
                "the router took {n} and gave up {m} of {} routes",
                announced.len()
            );
            comes.push(added);
            goes.push(removed);
        }
        report.results.push(Measured::new(format!("{prefix}.router.announce.{order}"), "s", &comes));
        report.results.push(Measured::new(format!("{prefix}.router.withdraw.{order}"), "s", &goes));
    }
    Ok(())
}

/// The bar for the real IPv4 table.
pub(super) fn targets4(prefix: &str, report: &mut Report) {
    for order in ORDERS {
        let what = format!("IPv4 table through RIB and FIB in batches of {BATCH}, {order}");
        let announced = report.value(&format!("{prefix}.router.announce.{order}"));
        report.target(&what, announced, 0.6, false, "s");
    }
}

fn changes<A: Address>(routes: &Routes<A>) -> Result<Changes> {
    let gateway = |n: u32| match A::BITS {
        32 => IpAddr::V4(gateway4(n)),
        _ => IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, n as u16 + 2]),
    };
    let actions: Vec<_> = (0..GATEWAYS).map(|n| Arc::new(RouteAction::via(gateway(n)))).collect();
    let change = |&(p, nh): &(linerate_tables::prefix::Prefix<A>, u32)| {
        let action = actions.get((nh % GATEWAYS) as usize).cloned();
        Ok((IpNet::new(p.first().to_ip(), p.len())?, action))
    };
    routes.iter().map(change).collect()
}

/// A gateway of the router's network, by number.
pub(super) fn gateway4(n: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, n as u8 + 2)
}

/// A router with one interface, whose index is 0.
pub(super) fn router() -> Result<Router<Ip4Fib, Ip6Fib>> {
    let domain = Domain::new();
    let (fib4, fib6) = (Ip4Fib::new(&domain)?, Ip6Fib::new(&domain)?);
    let mut router = Router::new(domain, fib4, fib6, NeighborOptions::default())?;
    let addresses = ["10.99.0.1/24".parse()?, "2001:db8:ffff::1/64".parse()?];
    router.set_interfaces(0, [(0, Interface::new("wan", 0, [2, 0, 0, 0, 0, 1], 1500, &addresses))])?;
    Ok(router)
}

//! Multicast routes as messages of the API: indices become names.

use linerate_pipeline::VRF_DEFAULT;
use linerate_router::{MrouteView, Router};
use linerate_tables::fib::Fib as Table;

use super::router::{interface, name, vrf, vrf_name};
use crate::dataplane::Refused;
use crate::show::multicast::{MAX_ROUTES, MulticastOutput, MulticastQuery, MulticastRoute, MulticastRoutes};

/// The routes that meet the query, at the time `now` of the workers' clock.
pub(super) fn routes<F4: Table<u32>, F6: Table<u128>>(
    router: &Router<F4, F6>,
    query: &MulticastQuery,
    now: u64,
) -> Result<MulticastRoutes, Refused> {
    let by = query.interface.as_deref().map(|name| interface(router, name)).transpose()?;
    let of = query.vrf.as_deref().map(|name| vrf(router, name)).transpose()?;
    let wanted = |v: &MrouteView| {
        of.is_none_or(|vrf| v.key.vrf == vrf)
            && query.group.is_none_or(|g| v.key.group == g)
            && query.source.is_none_or(|s| v.key.source == Some(s))
            && by.is_none_or(|i| v.route.input == i || v.route.outputs.iter().any(|o| o.interface == i))
    };
    let mut views = router.mroutes().filter(wanted);
    let routes = views.by_ref().take(MAX_ROUTES).map(|v| route(router, v, now)).collect();
    Ok(MulticastRoutes { routes, left_out: views.count() as u64 })
}

fn route<F4: Table<u32>, F6: Table<u128>>(
    router: &Router<F4, F6>,
    v: MrouteView,
    now: u64,
) -> MulticastRoute {
    let output = |o: &linerate_router::MrouteOutput| MulticastOutput {
        interface: name(router, o.interface),
        ttl_threshold: o.threshold,
    };
    MulticastRoute {
        vrf: (v.key.vrf != VRF_DEFAULT).then(|| vrf_name(router, v.key.vrf)),
        source: v.key.source,
        group: v.key.group,
        origin: v.origin.name().into(),
        input: name(router, v.route.input),
        outputs: v.route.outputs.iter().map(output).collect(),
        to_host: v.route.to_host,
        packets: v.packets,
        bytes: v.bytes,
        wrong_interface: v.wrong_interface,
        idle_seconds: v.last_used.map(|at| now.saturating_sub(at) / 1_000_000_000),
    }
}

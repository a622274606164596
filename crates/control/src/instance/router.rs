//! The router's own views as messages of the API: indices become names.

use ipnet::IpNet;
use linerate_pipeline::{IfIndex, VRF_DEFAULT, VrfId};
use linerate_router::acl::{AclLogEntry, AclRuleView, AclView, Direction};
use linerate_router::model::{RouteAction, Source};
use linerate_router::show::{ActionView, FamilyStats, PathView, RouteFilter, RouteView};
use linerate_router::{Path as Hop, Router};
use linerate_tables::fib::Fib as Table;

use crate::api::mac;
use crate::dataplane::Refused;
use crate::show::acls::{Acl, AclRule, AclSample};
use crate::show::conflicts::Conflict;
use crate::show::fib::{Fib, SourceCount};
use crate::show::neighbors::Neighbor;
use crate::show::router::{self, LostFigures, NeighborFigures, TableFigures};
use crate::show::routes::{MAX_PAGE, Path, Route, RouteQuery, Routes};
use crate::show::vrfs::Vrf;

/// A page of routes.
pub(super) fn routes<F4: Table<u32>, F6: Table<u128>>(
    router: &Router<F4, F6>,
    query: &RouteQuery,
) -> Result<Routes, Refused> {
    let exact = query.prefix.filter(|_| !query.longer);
    let limit = if exact.is_some() { 1 } else { query.limit.unwrap_or(MAX_PAGE).min(MAX_PAGE) };
    let filter = RouteFilter {
        vrf: query.vrf.as_deref().map_or(Ok(VRF_DEFAULT), |name| vrf(router, name))?,
        within: query.prefix,
        longest_match: query.longest,
        source: query.source.as_deref().map(source).transpose()?,
        gateway: query.via,
        interface: query.interface.as_deref().map(|name| interface(router, name)).transpose()?,
        after: query.after,
        limit,
        ..RouteFilter::default()
    };
    let mut views = router.routes(&filter);
    if let Some(exact) = exact {
        views.retain(|v| v.prefix == exact);
    }
    let prefixes = views.chunk_by(|a, b| a.prefix == b.prefix).count();
    let more = exact.is_none() && query.longest.is_none() && prefixes == limit;
    let next: Option<IpNet> = views.last().filter(|_| more).map(|v| v.prefix);
    Ok(Routes { next, routes: views.into_iter().map(|v| route(router, v)).collect() })
}

/// All neighbours.
pub(super) fn neighbors<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>) -> Vec<Neighbor> {
    let view = |n: linerate_router::show::NeighborView| Neighbor {
        interface: name(router, n.interface),
        address: n.address,
        mac: n.mac.map(mac),
        state: n.state.name().into(),
    };
    router.neighbors().map(view).collect()
}

/// Addresses of interfaces that others use as well, with the time `now` of the router's clock.
pub(super) fn conflicts<F4: Table<u32>, F6: Table<u128>>(
    router: &mut Router<F4, F6>,
    now: u64,
) -> Vec<Conflict> {
    let view = |(interface, c): (IfIndex, &linerate_router::conflict::Conflict)| Conflict {
        interface: name(router, interface),
        address: c.address,
        mac: mac(c.mac),
        count: c.count,
        last_seconds: now.saturating_sub(c.last) / 1_000_000_000,
    };
    let mut all: Vec<Conflict> = router.conflicts().map(view).collect();
    all.sort_by(|a, b| (&a.interface, a.address).cmp(&(&b.interface, b.address)));
    all
}

/// Access lists with what their rules have matched.
pub(super) fn acls<F4: Table<u32>, F6: Table<u128>>(
    router: &Router<F4, F6>,
    wanted: Option<&str>,
) -> Result<Vec<Acl>, Refused> {
    let views = router.acls();
    if let Some(wanted) = wanted
        && !views.iter().any(|v| v.name == wanted)
    {
        let names: Vec<&str> = views.iter().map(|v| v.name.as_str()).collect();
        let names = if names.is_empty() { "none, as there is none".into() } else { names.join(", ") };
        let message = format!("there is no access list `{}`: expected one of {names}", wanted.escape_debug());
        return Err(Refused(message));
    }
    let of = |interfaces: &[IfIndex]| interfaces.iter().map(|i| name(router, *i)).collect();
    let rule =
        |r: AclRuleView| AclRule { rule: r.text, description: r.remark, packets: r.packets, bytes: r.bytes };
    let view = |v: AclView| Acl {
        inputs: of(&v.inputs),
        outputs: of(&v.outputs),
        lookup_bytes: v.lookup_bytes as u64,
        rules: v.rules.into_iter().map(rule).collect(),
        name: v.name,
    };
    Ok(views.into_iter().filter(|v| wanted.is_none_or(|w| v.name == w)).map(view).collect())
}

/// The last samples of rules with `log`.
pub(super) fn acl_log<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>, now: u64) -> Vec<AclSample> {
    let view = |e: &AclLogEntry| AclSample {
        seconds_ago: now.saturating_sub(e.at) as f64 / 1e9,
        acl: e.list.clone(),
        rule: e.rule.clone(),
        action: e.hit.action.name().into(),
        direction: if e.hit.direction == Direction::In { "in" } else { "out" }.into(),
        interface: name(router, e.hit.interface),
        protocol: e.hit.protocol,
        source: e.hit.src,
        source_port: e.hit.ports.map(|p| p.0),
        destination: e.hit.dst,
        destination_port: e.hit.ports.map(|p| p.1),
        bytes: e.hit.bytes,
    };
    router.acl_log().map(view).collect()
}

/// What the router counts about itself.
pub(super) fn figures<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>) -> router::Router {
    let stats = router.stats();
    let (n, p) = (stats.neighbor_events, stats.plane);
    router::Router {
        neighbors: NeighborFigures {
            known: stats.neighbors as u64,
            resolved: n.resolved,
            failed: n.failed,
            mac_changes: n.mac_changes,
            duplicates: n.duplicates,
            static_conflicts: n.static_conflicts,
            ignored: n.ignored,
            refused: n.refused,
            probes_lost: n.probes_lost,
            tables_full: n.plane_full,
        },
        tables: TableFigures {
            actions: stats.actions as u64,
            next_hops: p.next_hops as u64,
            adjacencies: p.adjacencies as u64,
            buckets: p.buckets as u64,
            retired: p.retired as u64,
        },
        lost: LostFigures::default(),
    }
}

/// Both forwarding tables.
pub(super) fn fibs<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>) -> Vec<Fib> {
    let stats = router.stats();
    let fib = |family: &str, s: FamilyStats| Fib {
        family: family.into(),
        routes: s.fib_routes as u64,
        sources: Source::ALL
            .iter()
            .zip(s.routes)
            .filter(|(_, n)| *n > 0)
            .map(|(source, n)| SourceCount { source: source.name().into(), routes: n as u64 })
            .collect(),
        lookup_bytes: s.fib.lookup as u64,
        control_bytes: s.fib.control as u64,
        retired_bytes: s.fib.retired as u64,
    };
    vec![fib("ipv4", stats.ip4), fib("ipv6", stats.ip6)]
}

/// All VRFs.
pub(super) fn vrfs<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>) -> Vec<Vrf> {
    let view = |(vrf, _): (VrfId, &str)| {
        let stats = router.vrf_stats(vrf)?;
        let bytes = |f: FamilyStats| (f.fib.lookup + f.fib.control + f.fib.retired) as u64;
        Some(Vrf {
            number: vrf,
            name: stats.name,
            interfaces: stats.interfaces.into_iter().map(|i| name(router, i)).collect(),
            ip4_routes: stats.ip4.fib_routes as u64,
            ip6_routes: stats.ip6.fib_routes as u64,
            bytes: bytes(stats.ip4) + bytes(stats.ip6),
        })
    };
    router.vrfs().filter_map(view).collect()
}

pub(super) fn vrf<F4: Table<u32>, F6: Table<u128>>(
    router: &Router<F4, F6>,
    wanted: &str,
) -> Result<VrfId, Refused> {
    router.vrfs().find(|(_, name)| *name == wanted).map(|(vrf, _)| vrf).ok_or_else(|| {
        let names: Vec<&str> = router.vrfs().map(|(_, name)| name).collect();
        let names = names.join(", ");
        Refused(format!("there is no VRF `{}`: expected one of {names}", wanted.escape_debug()))
    })
}

pub(super) fn vrf_name<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>, vrf: VrfId) -> String {
    let found = router.vrfs().find(|(v, _)| *v == vrf);
    found.map_or_else(|| vrf.to_string(), |(_, name)| name.to_owned())
}

fn source(name: &str) -> Result<Source, Refused> {
    Source::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| {
        let names = Source::ALL.map(Source::name).join(", ");
        Refused(format!("there is no source `{}`: expected one of {names}", name.escape_debug()))
    })
}

pub(super) fn interface<F4: Table<u32>, F6: Table<u128>>(
    router: &Router<F4, F6>,
    wanted: &str,
) -> Result<IfIndex, Refused> {
    let found = router.interfaces().iter().find(|(_, i)| &*i.name == wanted).map(|(index, _)| index);
    found.ok_or_else(|| {
        let names: Vec<&str> = router.interfaces().iter().map(|(_, i)| &*i.name).collect();
        let names = names.join(", ");
        Refused(format!("there is no interface `{}`: expected one of {names}", wanted.escape_debug()))
    })
}

pub(super) fn name<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>, index: IfIndex) -> String {
    let found = router.interfaces().iter().find(|(i, _)| *i == index);
    found.map_or_else(|| index.to_string(), |(_, i)| i.name.to_string())
}

fn route<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>, view: RouteView) -> Route {
    let (action, via) = match &view.action {
        ActionView::Local => ("local", Vec::new()),
        ActionView::Connected(_) => ("connected", Vec::new()),
        ActionView::Neighbor(_) => ("neighbor", Vec::new()),
        ActionView::Route(action) => match &**action {
            RouteAction::Forward(hops) => ("forward", hops.iter().map(|h| configured(router, h)).collect()),
            RouteAction::Blackhole => ("blackhole", Vec::new()),
            RouteAction::Prohibit => ("prohibit", Vec::new()),
            RouteAction::Unreachable => ("unreachable", Vec::new()),
            RouteAction::Local => ("local", Vec::new()),
        },
    };
    let taken = |p: &PathView| Path {
        gateway: p.neighbor,
        interface: p.interface.map(|i| name(router, i)),
        weight: p.weight,
        state: p.state.map(|s| s.name().into()),
        vrf: p.table.map(|vrf| vrf_name(router, vrf)),
    };
    Route {
        prefix: view.prefix,
        source: view.source.name().into(),
        best: view.best,
        action: action.into(),
        via,
        paths: view.paths.iter().map(taken).collect(),
    }
}

fn configured<F4: Table<u32>, F6: Table<u128>>(router: &Router<F4, F6>, hop: &Hop) -> Path {
    Path {
        gateway: hop.gateway,
        interface: hop.interface.map(|i| name(router, i)),
        weight: hop.weight,
        state: None,
        vrf: hop.vrf.map(|vrf| vrf_name(router, vrf)),
    }
}

//! `[[rib]]`: route table files, and which gateways their next hops stand for.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_engine::desired::{RouteAction, RouteSpec};
use linerate_pipeline::VrfId;

use super::decode::{At, Item, Section, Source};
use super::problem::Problem;
use super::resolve::{Hop, Network};
use super::routes::{self, Actions, Names, Target};
use super::{Open, one_line};
use crate::rib::{self, NextHop, Place, Rib, Select};

pub(super) fn read(
    sections: Vec<Section<'_>>,
    source: &Source<'_>,
    net: &Network<'_>,
    open: Open<'_>,
    out: &mut Vec<RouteSpec>,
) {
    let several = sections.len() > 1;
    // Configured routes count before those of files, and files in their order.
    let mut taken: HashSet<(Option<Arc<str>>, IpNet)> =
        out.iter().map(|r| (r.vrf.clone(), r.prefix)).collect();
    let mut names = Names::default();
    let mut actions = Actions::default();
    for section in sections {
        let Some(spec) = one(section, net) else { continue };
        // A table takes a while: it is read only where it can still be used.
        if source.failed() {
            continue;
        }
        let Some(table) = table(&spec, source, open) else { continue };
        let Some(by_next_hop) = spec.actions(&table, source, net, &mut actions) else { continue };
        out.reserve(table.routes.len());
        let vrf = names.of(spec.vrf, net);
        for (prefix, next_hop) in &table.routes {
            let family = usize::from(prefix.addr().is_ipv6());
            let Some(action) = by_next_hop.get(*next_hop as usize).and_then(|a| a[family].clone()) else {
                continue;
            };
            let key = (vrf.clone(), *prefix);
            let new = if several { taken.insert(key) } else { !taken.contains(&key) };
            if new {
                out.push(RouteSpec { vrf: vrf.clone(), prefix: *prefix, action });
            }
        }
    }
}

struct Spec {
    vrf: VrfId,
    file: At<String>,
    select: Select,
    /// Gateways by id, as ranges from first to last id.
    ids: Vec<(u32, u32, Target)>,
    addresses: BTreeMap<IpAddr, Target>,
    default: Option<Target>,
}

fn one(mut s: Section<'_>, net: &Network<'_>) -> Option<Spec> {
    let file =
        s.need("file", "the path of a route table").and_then(|i| i.string("the path of a route table"));
    let select = s.take("peer").map(|i| select(&i));
    let default = s.take("default").map(|i| target(&i, net));
    let vrf = net.vrfs().of(s.take("vrf").as_ref());
    let mut ids = Vec::new();
    let mut addresses = BTreeMap::new();
    let entries = s
        .take("next_hop")
        .and_then(|i| i.section("a table from next hop to gateway, such as { 1 = \"10.0.0.1\" }"));
    let mut good = true;
    for (key, item) in entries.into_iter().flat_map(Section::entries) {
        match (target(&item, net), Key::parse(key.value)) {
            (Some(target), Some(Key::Ids(from, to))) => ids.push((from, to, target)),
            (Some(target), Some(Key::Address(a))) => {
                addresses.insert(a, target);
            }
            (None, Some(_)) => good = false,
            (_, None) => {
                let expected =
                    "expected a next hop of the file: a number, a range such as \"1-32\", or an address";
                key.problem(item.source, format!("found \"{}\": {expected}", key.value.escape_debug()));
                good = false;
            }
        }
    }
    s.finish();
    let select = match select {
        None => Select::First,
        Some(select) => select?,
    };
    let default = match default {
        None => None,
        Some(default) => Some(default?),
    };
    good.then_some(())?;
    Some(Spec { vrf: vrf?, file: file?, select, ids, addresses, default })
}

enum Key {
    Ids(u32, u32),
    Address(IpAddr),
}

impl Key {
    fn parse(text: &str) -> Option<Key> {
        if let Ok(id) = text.parse() {
            return Some(Key::Ids(id, id));
        }
        if let Some((from, to)) = text.split_once('-') {
            let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            return (from <= to).then_some(Key::Ids(from, to));
        }
        text.parse().ok().map(Key::Address)
    }
}

fn select(item: &Item<'_>) -> Option<Select> {
    let what = "a peer: its address, or its position in the file's peer table";
    if item.is_string() {
        return item.parse::<IpAddr>(what).map(|a| Select::Peer(a.value));
    }
    item.number(0..=u16::MAX, what).map(|n| Select::PeerIndex(n.value))
}

/// Gateways, or `"blackhole"` and its like.
fn target(item: &Item<'_>, net: &Network<'_>) -> Option<Target> {
    let word = item.is_string().then(|| item.string(routes::VIA)).flatten();
    if let Some(action) = word.and_then(|w| routes::discard(&w.value)) {
        return Some(Target::Discard(action));
    }
    routes::hops(item, net).map(Target::Via)
}

fn table(spec: &Spec, source: &Source<'_>, open: Open<'_>) -> Option<Rib> {
    let file = match open(Path::new(&spec.file.value)) {
        Ok(file) => file,
        Err(e) => {
            spec.file.problem(source, format!("cannot open the route table \"{}\": {e}", spec.file.value));
            return None;
        }
    };
    match rib::read(file, spec.select) {
        Ok(table) => {
            if table.duplicates > 0 {
                let (n, s) = (table.duplicates, if table.duplicates == 1 { "" } else { "s" });
                let message =
                    format!("{n} more route{s} to prefixes it had before: the first of each counts");
                spec.file.warning(source, message);
            }
            if table.skipped > 0 {
                spec.file.warning(
                    source,
                    format!("{} prefixes without an entry to use were left out", table.skipped),
                );
            }
            Some(table)
        }
        Err(errors) => {
            for e in errors {
                let line = match e.place() {
                    Some(Place::Line(n)) => Some(n),
                    _ => None,
                };
                let message = if line.is_some() { e.what() } else { e.to_string() };
                source.foreign(Problem {
                    file: spec.file.value.clone(),
                    line,
                    column: None,
                    key: String::new(),
                    message: one_line(&message),
                });
            }
            None
        }
    }
}

/// What routes with one next hop do, IPv4 and IPv6.
type ByFamily = [Option<Arc<RouteAction>>; 2];

impl Spec {
    /// What each next hop of the table means, where routes use it.
    fn actions(
        &self,
        table: &Rib,
        source: &Source<'_>,
        net: &Network<'_>,
        actions: &mut Actions,
    ) -> Option<Vec<ByFamily>> {
        let mut used = vec![[false; 2]; table.next_hops.len()];
        for (prefix, next_hop) in &table.routes {
            if let Some(u) = used.get_mut(*next_hop as usize) {
                u[usize::from(prefix.addr().is_ipv6())] = true;
            }
        }
        let mut out = Vec::with_capacity(used.len());
        let mut errors = 0;
        for ((next_hop, place), used) in table.next_hops.iter().zip(&used) {
            let mut both = [None, None];
            for v6 in [false, true].into_iter().filter(|v6| used[usize::from(*v6)]) {
                match self.meaning(*next_hop, v6).and_then(|t| actions.of(self.vrf, &t, net)) {
                    Ok(action) => both[usize::from(v6)] = Some(action),
                    Err(message) if errors < 10 => {
                        errors += 1;
                        let line = if let Place::Line(n) = place { Some(*n) } else { None };
                        source.foreign(Problem {
                            file: self.file.value.clone(),
                            line,
                            column: None,
                            key: String::new(),
                            message: format!("next hop {next_hop}: {message}"),
                        });
                    }
                    Err(_) => errors += 1,
                }
            }
            out.push(both);
        }
        if errors > 10 {
            self.file.problem(source, format!("{errors} next hops of \"{}\" lead nowhere", self.file.value));
        }
        (errors == 0).then_some(out)
    }

    fn meaning(&self, next_hop: NextHop, v6: bool) -> Result<Target, String> {
        let mapped = match next_hop {
            NextHop::Id(id) => self.ids.iter().find(|(a, b, _)| (*a..=*b).contains(&id)).map(|(_, _, t)| t),
            NextHop::Address(a) => self.addresses.get(&a),
        };
        let target = match (mapped.or(self.default.as_ref()), next_hop) {
            (Some(target), _) => target.clone(),
            (None, NextHop::Address(a)) => {
                Target::Via(vec![Hop { gateway: Some(a), interface: None, weight: 1, vrf: None }])
            }
            (None, NextHop::Id(_)) => {
                return Err("it stands for no gateway: expected an entry in `next_hop` or a `default`".into());
            }
        };
        // One list may serve both families: each route takes the gateways of its own. Only IPv4 routes can do with the
        // other's (RFC 8950).
        let Target::Via(hops) = target else { return Ok(target) };
        let own = |h: &&Hop| h.gateway.is_none_or(|g| g.is_ipv6() == v6);
        let of_family: Vec<Hop> = hops.iter().filter(own).cloned().collect();
        match (of_family.is_empty(), v6) {
            (false, _) => Ok(Target::Via(of_family)),
            (true, false) => Ok(Target::Via(hops)),
            (true, true) => {
                Err("it stands for no IPv6 gateway, and IPv6 routes use it: expected one more".into())
            }
        }
    }
}

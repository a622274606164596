//! `[[route]]`: static routes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use linerate_engine::desired::{RouteAction, RouteSpec};
use linerate_pipeline::VrfId;

use super::decode::{At, Item, Section, Source};
use super::interfaces::no_such;
use super::resolve::{Hop, MAX_PATHS, Network};

/// What a route is told to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// Forward along these.
    Via(Vec<Hop>),
    /// Discard so.
    Discard(RouteAction),
}

const DISCARD: &[(&str, &str)] =
    &[("blackhole", "blackhole"), ("prohibit", "prohibit"), ("unreachable", "unreachable")];

pub(super) const VIA: &str =
    "a gateway, a list of gateways, or a list of { gateway, interface, weight, gateway_vrf, lookup_vrf }";

/// Reads the routes; gives the network back with them in it, for gateways in route table files.
pub(super) fn read<'a>(
    sections: Vec<Section<'_>>,
    source: &Source<'_>,
    mut net: Network<'a>,
) -> (Vec<RouteSpec>, Network<'a>) {
    let mut seen: HashMap<(VrfId, IpNet), usize> = HashMap::new();
    let mut targets: Vec<(VrfId, IpNet, At<Target>)> = Vec::new();
    for section in sections {
        let at = section.at;
        let Some((vrf, prefix, target)) = one(section, source, &net) else { continue };
        if let Some(first) = seen.insert((vrf, prefix.value), at) {
            let line = source.line(first);
            prefix.problem(
                source,
                format!("{} again, after line {line}: expected each prefix once", prefix.value),
            );
            continue;
        }
        if net.is_connected(vrf, prefix.value) {
            prefix.warning(
                source,
                format!("{} is a connected network, which counts before this route", prefix.value),
            );
        }
        targets.push((vrf, prefix.value, target));
    }
    for (vrf, prefix, target) in &targets {
        match &target.value {
            Target::Via(hops) => net.add_route(*vrf, *prefix, Some(hops.clone())),
            Target::Discard(_) => net.add_route(*vrf, *prefix, None),
        }
    }
    let mut actions = Actions::default();
    let mut names = Names::default();
    let routes =
        targets.into_iter().filter_map(|(vrf, prefix, target)| match actions.of(vrf, &target.value, &net) {
            Ok(action) => Some(RouteSpec { vrf: names.of(vrf, &net), prefix, action }),
            Err(message) => {
                target.problem(source, message);
                None
            }
        });
    (routes.collect(), net)
}

/// Names of VRFs as routes hold them, one allocation each.
#[derive(Default)]
pub(super) struct Names(HashMap<VrfId, Arc<str>>);

impl Names {
    pub(super) fn of(&mut self, vrf: VrfId, net: &Network<'_>) -> Option<Arc<str>> {
        let name = net.vrfs().name(vrf)?;
        Some(self.0.entry(vrf).or_insert_with(|| name.into()).clone())
    }
}

/// Resolves targets, once each, and shares the result.
#[derive(Default)]
pub(super) struct Actions(HashMap<(VrfId, Target), Result<Arc<RouteAction>, String>>);

impl Actions {
    pub(super) fn of(
        &mut self,
        vrf: VrfId,
        target: &Target,
        net: &Network<'_>,
    ) -> Result<Arc<RouteAction>, String> {
        let key = (vrf, target.clone());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let action = match target {
            Target::Discard(action) => Ok(action.clone()),
            Target::Via(hops) => net.resolve(vrf, hops),
        };
        let action = action.map(Arc::new);
        self.0.insert(key, action.clone());
        action
    }
}

fn one(mut s: Section<'_>, source: &Source<'_>, net: &Network<'_>) -> Option<(VrfId, At<IpNet>, At<Target>)> {
    let vrf = net.vrfs().of(s.take("vrf").as_ref());
    let prefix = s.need("prefix", "a prefix").and_then(|i| prefix(&i));
    let via = s.take("via");
    let action = s.take("action");
    let target = match (&via, &action) {
        (Some(_), Some(action)) => {
            let message = "a route either forwards or discards: expected `via` or `action`, not both";
            source.problem(action.at, &action.key, message);
            None
        }
        (None, None) => {
            let message = "the route says nothing to do: expected `via` with a gateway, or `action`";
            source.problem(s.at, &s.key, message);
            None
        }
        (Some(item), None) => {
            hops(item, net).map(|h| At { value: Target::Via(h), key: item.key.clone(), at: item.at })
        }
        (None, Some(item)) => {
            let word = item.word(DISCARD);
            word.and_then(|w| {
                discard(w.value).map(|a| At { value: Target::Discard(a), key: w.key.clone(), at: w.at })
            })
        }
    };
    s.finish();
    let (vrf, prefix, target) = (vrf?, prefix?, target?);
    if let Target::Via(hops) = &target.value {
        // The other way round works: an IPv4 route may have an IPv6 gateway (RFC 8950).
        let v4 = hops.iter().filter_map(|h| h.gateway).find(|g| prefix.value.addr().is_ipv6() && g.is_ipv4());
        if let Some(gateway) = v4 {
            let message = format!("the gateway {gateway} for {}: expected an IPv6 gateway", prefix.value);
            target.problem(source, message);
            return None;
        }
    }
    Some((vrf, prefix, target))
}

/// The discarding action a word stands for.
pub(super) fn discard(word: &str) -> Option<RouteAction> {
    match word {
        "blackhole" => Some(RouteAction::Blackhole),
        "prohibit" => Some(RouteAction::Prohibit),
        "unreachable" => Some(RouteAction::Unreachable),
        _ => None,
    }
}

fn prefix(item: &Item<'_>) -> Option<At<IpNet>> {
    let net = item.parse::<IpNet>("a prefix such as 198.51.100.0/24 or 2001:db8::/32")?;
    if net.value.trunc() != net.value {
        net.problem(item.source, format!("{} has host bits set: expected {}", net.value, net.value.trunc()));
        return None;
    }
    if net.value.addr().is_multicast() {
        net.problem(item.source, format!("{} is multicast: expected a unicast prefix", net.value));
        return None;
    }
    Some(net)
}

/// `"gw"`, `["gw", …]` or `[{ gateway, interface, weight }, …]`, forms mixed as one likes.
pub(super) fn hops(item: &Item<'_>, net: &Network<'_>) -> Option<Vec<Hop>> {
    let items = if item.is_list() { item.list(VIA)? } else { vec![item.clone()] };
    if items.is_empty() || items.len() > MAX_PATHS {
        let n = items.len();
        item.source.problem(item.at, &item.key, format!("found {n} gateways: expected 1 to {MAX_PATHS}"));
        return None;
    }
    let mut out: Vec<Hop> = Vec::new();
    let mut good = true;
    for i in &items {
        match hop(i, net) {
            Some(hop)
                if out.iter().any(|h| Hop { weight: 0, ..h.clone() } == Hop { weight: 0, ..hop.clone() }) =>
            {
                item.source.problem(i.at, &i.key, "the same path twice: expected it once, with a `weight`");
                good = false;
            }
            Some(hop) => out.push(hop),
            None => good = false,
        }
    }
    good.then_some(out)
}

fn hop(item: &Item<'_>, net: &Network<'_>) -> Option<Hop> {
    const GATEWAY: &str = "a gateway's address";
    if item.is_string() {
        let gateway = gateway(item, GATEWAY)?;
        return Some(Hop { gateway: Some(gateway), interface: None, weight: 1, vrf: None });
    }
    let mut s = item.section(VIA)?;
    let (gateway_item, interface_item) = (s.take("gateway"), s.take("interface"));
    let weight = s.take("weight").map(|i| i.number(1..=256u16, "a weight"));
    let (there_item, table_item) = (s.take("gateway_vrf"), s.take("lookup_vrf"));
    let mut valid = true;
    let mut wrong = |at: Option<&Item<'_>>, message: &str| {
        let (at, key) = at.map_or((s.at, &s.key), |i| (i.at, &i.key));
        s.source.problem(at, key, message);
        valid = false;
    };
    match (&gateway_item, &interface_item, &there_item, &table_item) {
        (None, None, None, None) => {
            wrong(None, "neither gateway nor interface: expected at least one of them, or `lookup_vrf`");
        }
        (_, Some(_), Some(there), _) => {
            wrong(Some(there), "an interface has its VRF: expected no `gateway_vrf` beside `interface`");
        }
        (None, _, Some(there), _) => wrong(Some(there), "expected `gateway` too, which is looked up there"),
        (Some(_), _, _, Some(table)) | (_, Some(_), _, Some(table)) => {
            wrong(
                Some(table),
                "the destination itself is looked up there: expected no gateway and no interface",
            );
        }
        _ => {}
    }
    s.finish();
    let gateway = gateway_item.map(|i| gateway(&i, GATEWAY));
    let interface = interface_item.map(|i| {
        let name = i.string("the name of an [[interface]]")?;
        if net.interface(&name.value).is_none() {
            name.problem(item.source, no_such("interface", &name.value, net.interface_names()));
            return None;
        }
        Some(name)
    });
    let vrf = there_item.or(table_item).map(|i| net.vrfs().of(Some(&i)));
    let (gateway, interface, weight) = (lift(gateway)?, lift(interface)?, lift(weight)?);
    let vrf = lift(vrf)?;
    if let (Some(g), Some(i)) = (gateway, &interface)
        && !super::interfaces::is_link_local(g)
        && !net.on_link(g, &i.value)
    {
        i.warning(
            item.source,
            format!("{g} is on no network of \"{}\": it is asked for on that link all the same", i.value),
        );
    }
    valid.then(|| Hop {
        gateway,
        interface: interface.map(|i| i.value),
        weight: weight.map_or(1, |w| w.value),
        vrf,
    })
}

fn gateway(item: &Item<'_>, what: &str) -> Option<IpAddr> {
    let address = item.parse::<IpAddr>(what)?.value;
    let broadcast = address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() || broadcast {
        item.expected("a unicast gateway");
        return None;
    }
    Some(address)
}

/// Absent is fine, invalid is not.
fn lift<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(None) => None,
        Some(some) => Some(some),
    }
}

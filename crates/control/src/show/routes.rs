//! `show routes`: routes, filtered and in pages.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, or_dash, thousands};

/// Most routes in one answer.
pub const MAX_PAGE: usize = 10_000;

/// Which routes to show. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteQuery {
    /// Exactly this prefix; with `longer`, also the more specific ones inside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<IpNet>,
    /// Also what is inside `prefix`.
    #[serde(default)]
    pub longer: bool,
    /// Only the route that forwards packets to this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<IpAddr>,
    /// Only routes with this gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Only routes of this source: `connected`, `static`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Leave out so many matching routes.
    #[serde(default)]
    pub offset: usize,
    /// Show at most so many, at most 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// A page of routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// IPv4 before IPv6, by address and length.
    pub routes: Vec<Route>,
    /// How many routes match in all.
    pub matching: usize,
    /// Offset of the next page; absent on the last one.
    pub next: Option<usize>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub prefix: IpNet,
    /// Where it comes from: `connected`, `static`, …
    pub source: String,
    /// `forward`, `local`, `blackhole`, `prohibit` or `unreachable`.
    pub action: String,
    /// Where packets go: by flow hash and weight along one of these.
    pub paths: Vec<Path>,
}

/// A path of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// The gateway; absent where the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub interface: Option<String>,
    /// Relative share.
    pub weight: u16,
}

/// Picks a page while routes pass by in order.
#[derive(Debug)]
pub struct Picker<'q> {
    query: &'q RouteQuery,
    limit: usize,
    out: Routes,
    longest: Option<Route>,
}

impl RouteQuery {
    /// What begins to pick.
    pub fn picker(&self) -> Picker<'_> {
        let limit = self.limit.unwrap_or(1000).min(MAX_PAGE);
        Picker { query: self, limit, out: Routes::default(), longest: None }
    }

    /// The request that asks for it.
    pub fn to_path(&self) -> String {
        let mut parts = Vec::new();
        let mut add = |key: &str, value: Option<String>| parts.extend(value.map(|v| format!("{key}={v}")));
        add("prefix", self.prefix.map(|p| p.to_string()));
        add("longer", self.longer.then(|| "true".into()));
        add("longest", self.longest.map(|a| a.to_string()));
        add("via", self.via.map(|a| a.to_string()));
        // The only value a user chooses freely: what is no word cannot match anyway.
        add("source", self.source.as_ref().map(|s| s.chars().filter(char::is_ascii_alphanumeric).collect()));
        add("offset", Some(self.offset.to_string()));
        add("limit", self.limit.map(|l| l.to_string()));
        format!("/v1/routes?{}", parts.join("&"))
    }

    fn matches(&self, prefix: IpNet, route: &dyn Fn() -> Route) -> bool {
        let covered = match self.prefix {
            Some(p) if self.longer => p.contains(&prefix),
            Some(p) => p == prefix,
            None => true,
        };
        if !covered || self.longest.is_some_and(|a| !prefix.contains(&a)) {
            return false;
        }
        if self.via.is_none() && self.source.is_none() {
            return true;
        }
        let route = route();
        self.via.is_none_or(|v| route.paths.iter().any(|p| p.gateway == Some(v)))
            && self.source.as_ref().is_none_or(|s| *s == route.source)
    }
}

impl Picker<'_> {
    /// Looks at a route; `make` is called only where the route is needed.
    pub fn see(&mut self, prefix: IpNet, make: &dyn Fn() -> Route) {
        if !self.query.matches(prefix, make) {
            return;
        }
        if self.query.longest.is_some() {
            if self.longest.as_ref().is_none_or(|l| l.prefix.prefix_len() <= prefix.prefix_len()) {
                self.longest = Some(make());
            }
            return;
        }
        let wanted = self.out.matching >= self.query.offset && self.out.routes.len() < self.limit;
        self.out.matching += 1;
        if wanted {
            self.out.routes.push(make());
        }
    }

    /// The page.
    pub fn finish(mut self) -> Routes {
        if let Some(route) = self.longest {
            self.out.matching = 1;
            self.out.routes.push(route);
            return self.out;
        }
        let end = self.query.offset + self.out.routes.len();
        self.out.next = (end < self.out.matching && !self.out.routes.is_empty()).then_some(end);
        self.out
    }
}

impl Text for Routes {
    fn text(&self) -> String {
        let mut t = Table::new(&["<prefix", "<source", "<action", "<gateway", "<interface", "weight"]);
        for r in &self.routes {
            let mut head = [r.prefix.to_string(), r.source.clone(), r.action.clone()];
            if r.paths.is_empty() {
                t.row(head.clone().into_iter().chain(["-".into(), "-".into(), "-".into()]));
            }
            for p in &r.paths {
                let cells = [or_dash(p.gateway), or_dash(p.interface.as_ref()), p.weight.to_string()];
                t.row(head.clone().into_iter().chain(cells));
                // Further paths stand below the first one.
                head = Default::default();
            }
        }
        let mut out = t.finish("no route matches");
        if let Some(next) = self.next {
            let (shown, all) = (thousands(self.routes.len() as u64), thousands(self.matching as u64));
            out += &format!("{shown} of {all} routes; go on with --offset {next}\n");
        }
        out
    }
}

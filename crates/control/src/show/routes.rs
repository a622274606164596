//! `show routes`: routes, filtered and in pages.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, or_dash};

/// Most prefixes in one answer: looking them up holds up the router's control logic for a few milliseconds.
pub const MAX_PAGE: usize = 10_000;

/// Which routes to show. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteQuery {
    /// Of the VRF of this name; without one, of the default VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Exactly this prefix; with `longer`, also the more specific ones inside it.
    #[serde(default)]
    pub prefix: Option<IpNet>,
    /// Also what is inside `prefix`.
    #[serde(default)]
    pub longer: bool,
    /// Only the route that packets to this address take.
    #[serde(default)]
    pub longest: Option<IpAddr>,
    /// Only routes with this gateway, as configured or as resolved.
    #[serde(default)]
    pub via: Option<IpAddr>,
    /// Only routes that leave by the interface of this name.
    #[serde(default)]
    pub interface: Option<String>,
    /// Only routes of this source: `local`, `connected`, `static`, `learned`, `neighbor`.
    #[serde(default)]
    pub source: Option<String>,
    /// Only what follows this prefix: the last one of the page before.
    #[serde(default)]
    pub after: Option<IpNet>,
    /// At most so many prefixes, 1 to 10,000.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// A page of routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// IPv4 before IPv6, by address and length; the routes of one prefix by preference.
    pub routes: Vec<Route>,
    /// What `after` must be for the next page; absent on the last one.
    pub next: Option<IpNet>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub prefix: IpNet,
    /// Who contributed it.
    pub source: String,
    /// Whether it is the one that forwards; others for the same prefix stand by.
    pub best: bool,
    /// `forward`, `local`, `connected`, `neighbor`, `blackhole`, `prohibit` or `unreachable`.
    pub action: String,
    /// Gateways as configured.
    pub via: Vec<Path>,
    /// Where packets go at the moment, by flow hash and weight. Empty while no gateway can be used.
    pub paths: Vec<Path>,
}

/// A path of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// The gateway; absent where the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface; absent where it follows from the gateway.
    pub interface: Option<String>,
    /// Relative share.
    pub weight: u16,
    /// State of the neighbour, for paths packets take.
    pub state: Option<String>,
    /// The VRF in which the gateway, or without one the destination, is looked up, where that is not the route's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}

impl RouteQuery {
    /// The request that asks for it.
    pub fn to_path(&self) -> String {
        let mut parts = Vec::new();
        let mut add = |key: &str, value: Option<String>| parts.extend(value.map(|v| format!("{key}={v}")));
        add("vrf", self.vrf.as_deref().map(escape));
        add("prefix", self.prefix.map(|p| p.to_string()));
        add("longer", self.longer.then(|| "true".into()));
        add("longest", self.longest.map(|a| a.to_string()));
        add("via", self.via.map(|a| a.to_string()));
        add("interface", self.interface.as_deref().map(escape));
        add("source", self.source.as_deref().map(escape));
        add("after", self.after.map(|p| p.to_string()));
        add("limit", self.limit.map(|l| l.to_string()));
        format!("/v1/routes?{}", parts.join("&"))
    }
}

/// A word that users choose, as a query may hold it (RFC 3986 section 2.1).
pub(super) fn escape(text: &str) -> String {
    let one = |b: u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(one).collect()
}

impl Text for Routes {
    fn text(&self) -> String {
        let mut t =
            Table::new(&["<prefix", "<source", "<action", "<gateway", "<interface", "weight", "<neighbour"]);
        for r in &self.routes {
            let standby = if r.best { "" } else { " (standby)" };
            let mut head = [r.prefix.to_string(), format!("{}{standby}", r.source), r.action.clone()];
            let (shown, state) = match r.paths.is_empty() {
                true => (&r.via, Some("unusable")),
                false => (&r.paths, None),
            };
            if shown.is_empty() {
                t.row(head.clone());
            }
            for p in shown {
                let state = state.or(p.state.as_deref()).unwrap_or_default().to_owned();
                let interface = match (&p.interface, &p.vrf) {
                    (None, Some(vrf)) => format!("vrf {vrf}"),
                    (interface, _) => or_dash(interface.as_ref()),
                };
                let cells = [or_dash(p.gateway), interface, p.weight.to_string(), state];
                t.row(head.clone().into_iter().chain(cells));
                // Further paths stand below the first one.
                head = Default::default();
            }
        }
        let mut out = t.finish("no route matches");
        if let Some(next) = self.next {
            out += &format!("more routes follow: --after {next}, or --all\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped() {
        assert_eq!(escape("core.100&x=é"), "core.100%26x%3D%C3%A9");
    }
}

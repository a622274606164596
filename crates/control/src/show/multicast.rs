//! `show multicast routes`: multicast routes and what they counted, in the words of FRR's `show ip mroute`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Text;
use super::routes::escape;
use super::text::{Table, thousands};

/// Most routes in one answer.
pub const MAX_ROUTES: usize = 10_000;

/// Which multicast routes to show. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MulticastQuery {
    /// Only routes of the VRF of this name.
    #[serde(default)]
    pub vrf: Option<String>,
    /// Only routes for this group.
    #[serde(default)]
    pub group: Option<IpAddr>,
    /// Only routes for this source.
    #[serde(default)]
    pub source: Option<IpAddr>,
    /// Only routes that come in, or go out, by the interface of this name.
    #[serde(default)]
    pub interface: Option<String>,
}

/// Multicast routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MulticastRoutes {
    /// By group and source.
    pub routes: Vec<MulticastRoute>,
    /// Further routes that meet the conditions and are not shown.
    pub left_out: u64,
}

/// A multicast route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MulticastRoute {
    /// The VRF of its input, where that is not the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// The sender; absent: all.
    pub source: Option<IpAddr>,
    /// The group.
    pub group: IpAddr,
    /// `static` or `learned`.
    pub origin: String,
    /// The interface that packets must come in by.
    pub input: String,
    /// Where copies go.
    pub outputs: Vec<MulticastOutput>,
    /// The host system gets the packets too.
    pub to_host: bool,
    /// Packets that came in by the right interface.
    pub packets: u64,
    /// Their bytes, of layer 3.
    pub bytes: u64,
    /// Packets that came in by another interface.
    pub wrong_interface: u64,
    /// Seconds since the last packet; absent: there was none.
    pub idle_seconds: Option<u64>,
}

/// An output of a multicast route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MulticastOutput {
    /// The interface.
    pub interface: String,
    /// Packets must come in with a TTL above this.
    pub ttl_threshold: u8,
}

impl MulticastQuery {
    /// The path to ask for.
    pub fn to_path(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.vrf.as_ref().map(|v| format!("vrf={}", escape(v))));
        parts.extend(self.group.map(|g| format!("group={g}")));
        parts.extend(self.source.map(|s| format!("source={s}")));
        parts.extend(self.interface.as_ref().map(|i| format!("interface={}", escape(i))));
        let separator = if parts.is_empty() { "" } else { "?" };
        format!("/v1/multicast/routes{separator}{}", parts.join("&"))
    }
}

impl Text for MulticastRoutes {
    fn text(&self) -> String {
        let headings = [
            "<source",
            "<group",
            "<proto",
            "<input",
            "<output",
            "ttl",
            "last used",
            "packets",
            "bytes",
            "wrong if",
        ];
        // Most routers have one VRF only.
        let has_vrfs = self.routes.iter().any(|r| r.vrf.is_some());
        let vrf = has_vrfs.then_some("<vrf");
        let mut t = Table::new(&vrf.into_iter().chain(headings).collect::<Vec<_>>());
        for r in &self.routes {
            let mut outputs: Vec<(String, String)> =
                r.outputs.iter().map(|o| (o.interface.clone(), o.ttl_threshold.to_string())).collect();
            if r.to_host {
                outputs.push(("(host)".into(), String::new()));
            }
            if outputs.is_empty() {
                outputs.push(("none".into(), String::new()));
            }
            let last_used = r.idle_seconds.map_or("never".into(), |s| format!("{s} s"));
            let vrf = has_vrfs.then(|| r.vrf.clone().unwrap_or_else(|| "default".into()));
            let head = [
                r.source.map_or("*".into(), |s| s.to_string()),
                r.group.to_string(),
                r.origin.clone(),
                r.input.clone(),
            ];
            let tail = [last_used, thousands(r.packets), thousands(r.bytes), thousands(r.wrong_interface)];
            for (i, (interface, ttl)) in outputs.into_iter().enumerate() {
                // What belongs to the route stands in its first line.
                let first = |cell: &String| if i == 0 { cell.clone() } else { String::new() };
                let cells =
                    vrf.iter().chain(&head).map(first).chain([interface, ttl]).chain(tail.iter().map(first));
                t.row(cells);
            }
        }
        let mut text = t.finish("there is no multicast route");
        if self.left_out > 0 {
            text.push_str(&format!(
                "{} more are not shown: name a group, a source or an interface\n",
                self.left_out
            ));
        }
        text
    }
}

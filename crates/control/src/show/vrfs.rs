//! `show vrfs`: the router's tables, and which interfaces follow which.

use linerate_pipeline::VrfId;
use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, bytes, thousands};

/// All VRFs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vrfs {
    /// In order of their numbers, the default one first.
    pub vrfs: Vec<Vrf>,
}

/// A VRF.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vrf {
    /// Its number; 0 is the default one.
    pub number: VrfId,
    /// Its name.
    pub name: String,
    /// The interfaces in it.
    pub interfaces: Vec<String>,
    /// IPv4 prefixes in its forwarding table.
    pub ip4_routes: u64,
    /// IPv6 prefixes in its forwarding table.
    pub ip6_routes: u64,
    /// Bytes of both forwarding tables.
    pub bytes: u64,
}

impl Text for Vrfs {
    fn text(&self) -> String {
        let mut t = Table::new(&["number", "<vrf", "ipv4 routes", "ipv6 routes", "memory", "<interfaces"]);
        for v in &self.vrfs {
            t.row([
                v.number.to_string(),
                v.name.clone(),
                thousands(v.ip4_routes),
                thousands(v.ip6_routes),
                bytes(v.bytes),
                v.interfaces.join(" "),
            ]);
        }
        t.finish("there is no VRF")
    }
}

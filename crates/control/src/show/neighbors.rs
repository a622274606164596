//! `show neighbors`: link-layer addresses of hosts on the links.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, or_dash};

/// All neighbours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Neighbors {
    /// By interface and address.
    pub neighbors: Vec<Neighbor>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbor {
    /// Name of the interface.
    pub interface: String,
    /// Address.
    pub address: IpAddr,
    /// MAC address; absent while it is not known.
    pub mac: Option<String>,
    /// `static`, or how far its resolution has got.
    pub state: String,
}

impl Text for Neighbors {
    fn text(&self) -> String {
        let mut t = Table::new(&["<interface", "<address", "<mac", "<state"]);
        for n in &self.neighbors {
            t.row([n.interface.clone(), n.address.to_string(), or_dash(n.mac.as_ref()), n.state.clone()]);
        }
        t.finish("there is no neighbour")
    }
}

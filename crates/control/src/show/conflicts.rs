//! `show conflicts`: other stations that use addresses of this router.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, thousands};

/// All duplicate addresses noticed since the start, of those that interfaces have now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conflicts {
    /// By interface and address.
    pub conflicts: Vec<Conflict>,
}

/// A duplicate address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// Name of the interface.
    pub interface: String,
    /// The address that is the interface's.
    pub address: IpAddr,
    /// MAC address of the station that claimed it last.
    pub mac: String,
    /// Messages that claimed it.
    pub count: u64,
    /// Seconds since the last of them.
    pub last_seconds: u64,
}

impl Text for Conflicts {
    fn text(&self) -> String {
        let mut t = Table::new(&["<interface", "<address", "<used by", "messages", "last"]);
        for c in &self.conflicts {
            t.row([
                c.interface.clone(),
                c.address.to_string(),
                c.mac.clone(),
                thousands(c.count),
                format!("{} s ago", thousands(c.last_seconds)),
            ]);
        }
        t.finish("nobody else uses an address of this router")
    }
}

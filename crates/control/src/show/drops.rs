//! `show drops`: every lost packet under its name.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, rate, thousands};

/// All reasons that have counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drops {
    /// Most packets first.
    pub drops: Vec<Drop>,
    /// Sum over all reasons.
    pub total: u64,
}

/// A reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    /// Its stable name.
    pub reason: String,
    /// One sentence on it.
    pub explanation: String,
    /// Packets.
    pub packets: u64,
    /// The same per second.
    pub pps: Option<f64>,
    /// Packets by the port they came in by, ports without any left out.
    pub ports: Vec<PortDrops>,
}

/// Drops of packets that came in by one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortDrops {
    /// Name of the port.
    pub port: String,
    /// Packets.
    pub packets: u64,
}

impl Text for Drops {
    fn text(&self) -> String {
        let mut t = Table::new(&["<reason", "packets", "pps", "<from ports", "<what it means"]);
        for d in &self.drops {
            let ports = d.ports.iter().map(|p| format!("{} {}", p.port, thousands(p.packets)));
            t.row([
                d.reason.clone(),
                thousands(d.packets),
                rate(d.pps),
                ports.collect::<Vec<_>>().join(", "),
                d.explanation.clone(),
            ]);
        }
        t.finish("nothing was dropped")
    }
}

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
    /// How far the accounting identity is off, by the port that packets came in by; ports where it holds left out. Packets
    /// that are neither sent nor dropped nor waiting: none at rest, and at most the bursts in hand under load.
    pub unaccounted: Vec<Unaccounted>,
}

/// Packets of one port that no counter explains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unaccounted {
    /// Name of the port.
    pub port: String,
    /// Packets; negative where more went than came.
    pub packets: i64,
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
        let mut out = t.finish("nothing was dropped");
        if !self.unaccounted.is_empty() {
            let ports = self.unaccounted.iter().map(|u| format!("{} {}", u.port, u.packets));
            let ports = ports.collect::<Vec<_>>().join(", ");
            out += &format!("not accounted for: {ports} (none at rest; under load the bursts in hand)\n");
        }
        out
    }
}

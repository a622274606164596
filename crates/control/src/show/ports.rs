//! `show ports`: devices, links, traffic.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, rate, thousands};

/// All ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ports {
    /// In the order of the configuration.
    pub ports: Vec<Port>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Name.
    pub name: String,
    /// DPDK device string.
    pub device: String,
    /// DPDK driver.
    pub driver: String,
    /// MAC address.
    pub mac: String,
    /// Whether the link is up.
    pub up: bool,
    /// Link speed in Mbit/s; absent where the device does not know.
    pub speed_mbps: Option<u32>,
    /// Layer-3 MTU in bytes.
    pub mtu: u16,
    /// Whether frames for other stations are received.
    pub promiscuous: bool,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Packets taken from the device.
    pub rx: Traffic,
    /// Packets given to the device.
    pub tx: Traffic,
    /// Packets that the device dropped because no descriptor was free.
    pub rx_missed: u64,
    /// Frames that the device found damaged.
    pub rx_errors: u64,
    /// Packets that the device dropped because no buffer was free.
    pub rx_no_buffer: u64,
    /// Frames that the device failed to send.
    pub tx_errors: u64,
    /// Packets that came in by this port and were dropped by name (see `show drops`).
    pub dropped: u64,
    /// Packets that came in by this port and are neither sent nor dropped nor waiting: 0 at rest, and at most the
    /// bursts in hand under load.
    pub unaccounted: i64,
    /// What the device does otherwise than asked, in sentences.
    pub notes: Vec<String>,
}

/// Traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes without FCS.
    pub bytes: u64,
    /// Packets per second.
    pub pps: Option<f64>,
    /// Layer-1 bits per second.
    pub l1_bps: Option<f64>,
}

impl Text for Ports {
    fn text(&self) -> String {
        let mut t = Table::new(&[
            "<port", "<link", "speed", "mtu", "rx packets", "rx pps", "rx bit/s L1", "tx packets", "tx pps", "tx bit/s L1",
            "missed", "errors", "dropped", "<device",
        ]);
        for p in &self.ports {
            t.row([
                p.name.clone(),
                if p.up { "up" } else { "down" }.into(),
                p.speed_mbps.map_or("-".into(), |m| rate(Some(f64::from(m) * 1e6))),
                p.mtu.to_string(),
                thousands(p.rx.packets),
                rate(p.rx.pps),
                rate(p.rx.l1_bps),
                thousands(p.tx.packets),
                rate(p.tx.pps),
                rate(p.tx.l1_bps),
                thousands(p.rx_missed + p.rx_no_buffer),
                thousands(p.rx_errors + p.tx_errors),
                thousands(p.dropped),
                p.device.clone(),
            ]);
        }
        let mut out = t.finish("there is no port");
        for p in &self.ports {
            p.notes.iter().for_each(|note| out += &format!("{}: {note}\n", p.name));
        }
        out
    }
}

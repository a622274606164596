//! `trace`: what each node saw of a few packets.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{microseconds, thousands};

/// Asks for packets to be traced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// How many packets per worker, 1 to 100.
    pub packets: u32,
    /// Only packets received by this port.
    #[serde(default)]
    pub port: Option<String>,
    /// How long to wait for them, in milliseconds, at most 5,000.
    #[serde(default = "one_second")]
    pub wait_ms: u64,
}

fn one_second() -> u64 {
    1000
}

/// Traced packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// By worker, in the order they were received.
    pub packets: Vec<TracedPacket>,
    /// Hops that are missing above, because there was no room for them when they were taken down.
    #[serde(default)]
    pub lost: u64,
}

/// One packet's way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// The worker.
    pub worker: usize,
    /// Which packet: a number per worker.
    pub packet: u32,
    /// Where it went.
    pub hops: Vec<TracedHop>,
}

/// A packet at a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedHop {
    /// Nanoseconds since the packet's first hop.
    pub after_ns: u64,
    /// The node.
    pub node: String,
    /// The exit it took; `queued` where it was given to a port for transmission. A node that holds packets or makes others of
    /// them (`resolve`, fragmentation) leaves no hop: the packet is seen again where it goes on.
    pub exit: String,
    /// Where that leads: a node, or `drop:` with a reason.
    pub to: String,
    /// What the node had to say.
    pub text: String,
}

impl Text for Trace {
    fn text(&self) -> String {
        if self.packets.is_empty() && self.lost == 0 {
            return "no packet was received in that time\n".into();
        }
        let mut out = String::new();
        for p in &self.packets {
            out += &format!("packet {} on worker {}\n", p.packet, p.worker);
            // A packet passes all nodes within one loop of its worker, unless one holds it: only then is there time to tell.
            let held = p.hops.iter().any(|h| h.after_ns > 0);
            let node = p.hops.iter().map(|h| h.node.chars().count()).max().unwrap_or(0);
            for h in &p.hops {
                let exit = if h.to.is_empty() || h.exit == h.to {
                    h.exit.clone()
                } else {
                    format!("{} → {}", h.exit, h.to)
                };
                let time =
                    if held { format!("{:>8} µs  ", microseconds(h.after_ns)) } else { String::new() };
                out += format!("  {time}{:<node$}  {exit}  {}", h.node, h.text).trim_end();
                out.push('\n');
            }
        }
        if self.lost > 0 {
            out += &format!("{} hops are missing: trace fewer packets at a time\n", thousands(self.lost));
        }
        out
    }
}

//! `show linux` and `show punt`: what goes between the router and Linux.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, thousands};

/// The join to Linux.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Linux {
    /// FRR's session; absent where FPM is not served, or Linux does not take part at all.
    pub fpm: Option<Fpm>,
    /// Routes in the kernel's tables, those of FRR not counted where FPM is served.
    pub kernel_routes: usize,
    /// How often the kernel's messages were lost and all was listed again.
    pub kernel_resyncs: u64,
    /// Routes that the router refused.
    pub refused: u64,
    /// Why the last of them.
    pub refused_because: Option<String>,
    /// What was skipped of what the kernel and FRR said, by kind.
    pub faults: Vec<Fault>,
    /// Interfaces with a tap.
    pub taps: Vec<Tap>,
}

/// FRR's session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fpm {
    /// FRR is connected.
    pub connected: bool,
    /// Sessions so far.
    pub sessions: u64,
    /// Connections closed because there was a session.
    pub connections_refused: u64,
    /// Netlink messages received.
    pub messages: u64,
    /// Routes that FRR has told.
    pub routes: usize,
    /// Next-hop objects.
    pub next_hops: usize,
    /// Routes without a next hop that this router can use.
    pub unusable: usize,
    /// Routes of an earlier session are kept until the hold time is over.
    pub holding: bool,
    /// Routes that the last sweep removed.
    pub swept: usize,
    /// When a change of FRR was last published to the FIB, in seconds since 1970 (UTC); absent where none ever was.
    pub published_at: Option<f64>,
    /// Seconds from the messages of a batch to all of it in the FIB: of the last batch that changed anything.
    pub publish_last_seconds: f64,
    /// Of the batch that took longest.
    pub publish_longest_seconds: f64,
}

/// A kind of message or attribute that was skipped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What was wrong.
    pub what: String,
    /// How often.
    pub count: u64,
}

/// Frames between an interface and its tap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tap {
    /// The interface, and the tap's name.
    pub interface: String,
    /// Frames given to Linux.
    pub to_linux: u64,
    /// Frames that Linux did not take.
    pub refused: u64,
    /// Frames from Linux given to a worker to send.
    pub from_linux: u64,
    /// Frames from Linux dropped: no buffer, no room, or a copy of what the data plane forwards.
    pub dropped: u64,
}

impl Text for Linux {
    fn text(&self) -> String {
        let mut out = match &self.fpm {
            None => "FPM is not served\n".into(),
            Some(f) => {
                let state = match (f.connected, f.holding) {
                    (true, true) => "connected; routes not told again stay until the hold time is over",
                    (true, false) => "connected",
                    (false, true) => "not connected; its routes stay until the hold time is over",
                    (false, false) => "not connected",
                };
                format!(
                    "FRR (FPM)  {state}\n  sessions {} (refused {}), messages {}, routes {} ({} unusable), next-hop objects \
                     {}, swept last {}\n  a batch from message to FIB: last {:.3} ms, longest {:.3} ms\n",
                    thousands(f.sessions),
                    thousands(f.connections_refused),
                    thousands(f.messages),
                    thousands(f.routes as u64),
                    thousands(f.unusable as u64),
                    thousands(f.next_hops as u64),
                    thousands(f.swept as u64),
                    f.publish_last_seconds * 1e3,
                    f.publish_longest_seconds * 1e3,
                )
            }
        };
        out += &format!(
            "kernel     {} routes, listed anew {} times\n",
            thousands(self.kernel_routes as u64),
            thousands(self.kernel_resyncs)
        );
        if let Some(reason) = &self.refused_because {
            out += &format!("routes refused: {}, last: {reason}\n", thousands(self.refused));
        }
        for fault in &self.faults {
            out += &format!("skipped {} times: {}\n", thousands(fault.count), fault.what);
        }
        let mut t = Table::new(&["<interface", "to Linux", "not taken", "from Linux", "dropped"]);
        for tap in &self.taps {
            let counts = [tap.to_linux, tap.refused, tap.from_linux, tap.dropped].map(thousands);
            t.row(std::iter::once(tap.interface.clone()).chain(counts));
        }
        out + &t.finish("Linux does not take part: the configuration has no [linux]")
    }
}

/// Packets for Linux, by class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Punt {
    /// All classes; none where Linux does not take part.
    pub classes: Vec<Class>,
}

/// One class, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub class: String,
    /// What belongs to it.
    pub explanation: String,
    /// Packets per second and worker that may pass.
    pub rate: u32,
    /// Packets given to Linux.
    pub packets: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Packets over the rate.
    pub policed: u64,
    /// Packets that found the queue to Linux full.
    pub queue_full: u64,
}

impl Text for Punt {
    fn text(&self) -> String {
        let mut t = Table::new(&[
            "<class",
            "rate/worker",
            "packets",
            "bytes",
            "policed",
            "queue full",
            "<what it is",
        ]);
        for c in &self.classes {
            let counts = [u64::from(c.rate), c.packets, c.bytes, c.policed, c.queue_full].map(thousands);
            t.row(
                std::iter::once(c.class.clone()).chain(counts).chain(std::iter::once(c.explanation.clone())),
            );
        }
        t.finish("Linux does not take part: the configuration has no [linux]")
    }
}

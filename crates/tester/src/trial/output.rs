//! What came of a trial.

use serde::{Deserialize, Serialize};

use super::input::TrialInput;
use super::policy::Verdict;
use crate::receive::delay::DelaySummary;

/// Frames of one direction, from a sending to a receiving port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCount {
    /// Sending port.
    pub from: String,
    /// Receiving port.
    pub to: String,
    /// Frames that were to be sent (multicast: and copied to this port).
    pub intended: u64,
    /// Frames that were sent.
    pub offered: u64,
    /// Frames of this run that came, duplicates not counted.
    pub received: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames with a lower number than one before them (RFC 4689 3.3.4).
    pub reordered: u64,
    /// Frames that are none of this run's: in no other count.
    pub foreign: u64,
}

impl FlowCount {
    /// Frames that were sent and did not come.
    pub fn lost(&self) -> u64 {
        self.offered.saturating_sub(self.received)
    }

    /// Frames that were to be sent and were not.
    pub fn unsent(&self) -> u64 {
        self.intended.saturating_sub(self.offered)
    }

    /// Frames that came in sequence.
    pub fn in_sequence(&self) -> u64 {
        self.received.saturating_sub(self.reordered)
    }

    fn add(&mut self, other: &FlowCount) {
        for (mine, theirs) in [
            (&mut self.intended, other.intended),
            (&mut self.offered, other.offered),
            (&mut self.received, other.received),
            (&mut self.duplicates, other.duplicates),
            (&mut self.reordered, other.reordered),
            (&mut self.foreign, other.foreign),
        ] {
            *mine = mine.saturating_add(theirs);
        }
    }
}

/// A piece of the time series. Counts are of this piece alone, over all directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames sent in it that never came.
    pub lost: u64,
    /// Longest delay in nanoseconds; 0: not known.
    pub delay_max: u64,
    /// Longest time between two polls of a worker, in nanoseconds; 0: not known.
    pub poll_gap: u64,
}

/// Samples from the first frame on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Seconds of each.
    pub interval: f64,
    /// In order of time; those of the drain are among them.
    pub samples: Vec<Sample>,
}

/// A worker of the tester did nothing for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Which.
    pub worker: String,
    /// Seconds after the first frame.
    pub at: f64,
    /// For how many seconds.
    pub seconds: f64,
}

/// The longest time in which nothing came, in seconds after the first frame was sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Arrival of the last frame before it.
    pub last_before: f64,
    /// Arrival of the first frame after it.
    pub first_after: f64,
}

/// What came of a trial, as counted after the drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialOutput {
    /// By direction.
    pub flows: Vec<FlowCount>,
    /// Seconds from the first frame sent to the last.
    pub send_seconds: f64,
    /// Seconds the trial counts for in sums of durations: the intended ones, unless sending took longer.
    pub effective_seconds: f64,
    /// Delay of all frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<DelaySummary>,
    /// Time series, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Workers that stood still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
    /// When the last frame that got lost was sent, in seconds after the first frame; `None`: none was lost, or it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_lost: Option<f64>,
    /// Longest silence at the receiver, where it was asked for by a reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
    /// Whether the trial counts. Measurers void what they know to be spoilt; the policy voids more.
    pub verdict: Verdict,
}

impl TrialOutput {
    /// Sum over all directions; its port names are empty.
    pub fn total(&self) -> FlowCount {
        let mut total = FlowCount::default();
        self.flows.iter().for_each(|f| total.add(f));
        total
    }

    /// Frames per second that came, of all directions together, over the time of sending.
    pub fn forwarding_rate(&self) -> f64 {
        if self.send_seconds > 0.0 { self.total().received as f64 / self.send_seconds } else { 0.0 }
    }
}

/// A line of the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Number in this run, from 1.
    pub number: u32,
    /// What the trial was for.
    pub stage: String,
    /// What was asked.
    pub input: TrialInput,
    /// What came of it.
    pub output: TrialOutput,
    /// Loss ratio by the policy, 0 to 1; of no meaning where the trial is void.
    pub loss_ratio: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_hold_beyond_32_bits_and_nothing_goes_below_zero() {
        let flow =
            |offered, received| FlowCount { intended: offered, offered, received, ..FlowCount::default() };
        let out = TrialOutput {
            flows: vec![flow(5_568_064_168, 5_568_064_168), flow(u64::from(u32::MAX) + 5, 7), flow(3, 4)],
            send_seconds: 2.0,
            ..TrialOutput::default()
        };
        let total = out.total();
        assert_eq!(total.offered, 5_568_064_168 + 4_294_967_300 + 3);
        assert_eq!((out.flows[0].lost(), out.flows[1].lost(), out.flows[2].lost()), (0, 4_294_967_293, 0));
        assert_eq!(out.forwarding_rate(), (5_568_064_168u64 + 7 + 4) as f64 / 2.0);
    }
}

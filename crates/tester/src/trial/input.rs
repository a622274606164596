//! What a trial is asked to do.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire_rate::OVERHEAD;

/// Sizes of the frames of a trial, in bytes including FCS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// All of one size.
    Size(u16),
    /// A mix, such as an RFC 6985 genome.
    Mix {
        /// What it is called: a genome such as `aaaaaaaddddg`.
        genome: String,
        /// Mean size.
        mean: f64,
    },
}

impl Frames {
    /// Mean size in bytes, FCS included.
    pub fn mean(&self) -> f64 {
        match self {
            Frames::Size(size) => f64::from(*size),
            Frames::Mix { mean, .. } => *mean,
        }
    }

    /// Most whole frames per second on a line of so many bits per second (RFC 2544 20): preamble and gap counted.
    pub fn line_rate(&self, line_bits_per_second: u64) -> f64 {
        (line_bits_per_second as f64 / self.line_bits()).floor()
    }

    /// Bits that a frame takes of the line on average, preamble and gap counted.
    pub fn line_bits(&self) -> f64 {
        8.0 * (self.mean() + f64::from(OVERHEAD))
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frames::Size(size) => write!(f, "{size} B"),
            Frames::Mix { genome, mean } => write!(f, "IMIX {genome} ({mean:.1} B)"),
        }
    }
}

/// The parts of a trial before and after the traffic (RFC 2544 23), in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// A routing update is sent first.
    pub routing_update: bool,
    /// Wait after it.
    pub routing_wait: f64,
    /// Learning frames are sent to the output ports.
    pub learning: bool,
    /// Wait after them.
    pub learning_wait: f64,
    /// After the last frame was sent, before counters are read.
    pub drain: f64,
    /// Rest for the device before the next trial.
    pub restabilise: f64,
}

impl Phases {
    /// As RFC 2544 23 has it: 2 s, 2 s, 2 s, 5 s.
    pub const RFC2544: Phases = Phases {
        routing_update: true,
        routing_wait: 2.0,
        learning: true,
        learning_wait: 2.0,
        drain: 2.0,
        restabilise: 5.0,
    };

    /// For many short trials: no updates, 2 s of drain, no rest. A deviation that reports name.
    pub const SHORT: Phases = Phases {
        routing_update: false,
        routing_wait: 0.0,
        learning: false,
        learning_wait: 0.0,
        drain: 2.0,
        restabilise: 0.0,
    };

    /// Seconds that a trial takes besides its traffic.
    pub fn seconds(&self) -> f64 {
        let of = |on: bool, wait: f64| if on { wait } else { 0.0 };
        of(self.routing_update, self.routing_wait)
            + of(self.learning, self.learning_wait)
            + self.drain
            + self.restabilise
    }
}

impl Default for Phases {
    fn default() -> Self {
        Phases::RFC2544
    }
}

/// How long a segment lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// So many seconds.
    Seconds(f64),
    /// Until so many frames have been sent by each port.
    Frames(u64),
}

/// A stretch of constant load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Frames per second of each sending port.
    pub load: f64,
    /// How long.
    pub span: Span,
}

impl Segment {
    /// Seconds it takes.
    pub fn seconds(&self) -> f64 {
        match self.span {
            Span::Seconds(seconds) => seconds,
            Span::Frames(n) if self.load > 0.0 => n as f64 / self.load,
            Span::Frames(_) => 0.0,
        }
    }

    /// Frames each sending port shall send in it.
    pub fn intended(&self) -> u64 {
        match self.span {
            Span::Seconds(seconds) => (self.load * seconds).round() as u64,
            Span::Frames(n) => n,
        }
    }
}

/// What is reset, by RFC 6201.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetKind {
    /// The route processor (4.1.1).
    RouteProcessor,
    /// A line card (4.1.2).
    LineCard,
    /// The operating system, by its own command (4.2.1).
    OperatingSystem,
    /// A process of it (4.2.2).
    Process,
    /// Power, interrupted for at least 15 s, which are not counted (4.3).
    Power,
}

/// A reset in the middle of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reset {
    /// What.
    pub kind: ResetKind,
    /// Seconds after the first frame.
    pub at: f64,
}

/// What all trials of a procedure have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Their frames.
    pub frames: Frames,
    /// Frames sent at once at line rate, with pauses in between (RFC 2544 21); 1: evenly.
    pub burst: u32,
    /// What comes before and after the traffic.
    pub phases: Phases,
    /// Seconds between two samples of the time series; 0: none is kept.
    pub sample: f64,
}

impl Plan {
    /// RFC 2544 trials with frames as given, a sample a second.
    pub fn new(frames: Frames) -> Self {
        Plan { frames, burst: 1, phases: Phases::RFC2544, sample: 1.0 }
    }

    /// A trial of constant load.
    pub fn constant(&self, load: f64, seconds: f64) -> TrialInput {
        self.trial(vec![Segment { load, span: Span::Seconds(seconds) }])
    }

    /// A trial of these segments.
    pub fn trial(&self, segments: Vec<Segment>) -> TrialInput {
        TrialInput {
            frames: self.frames.clone(),
            segments,
            burst: self.burst,
            phases: self.phases.clone(),
            sample: self.sample,
            reset: None,
        }
    }
}

/// What a trial is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialInput {
    /// Sizes.
    pub frames: Frames,
    /// Loads, one after the other without a pause. Most trials have one.
    pub segments: Vec<Segment>,
    /// Frames sent at once at line rate; 1: evenly.
    pub burst: u32,
    /// What comes before and after.
    pub phases: Phases,
    /// Seconds between two samples of the time series; 0: none is kept.
    pub sample: f64,
    /// A reset of the device in the middle of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
}

impl TrialInput {
    /// Load of the first segment, in frames per second of each sending port.
    pub fn load(&self) -> f64 {
        self.segments.first().map_or(0.0, |s| s.load)
    }

    /// Seconds of traffic.
    pub fn seconds(&self) -> f64 {
        self.segments.iter().map(Segment::seconds).sum()
    }

    /// Frames that each sending port shall send.
    pub fn intended(&self) -> u64 {
        self.segments.iter().map(Segment::intended).sum()
    }

    /// Seconds from the beginning of this trial to that of the next.
    pub fn whole_seconds(&self) -> f64 {
        self.seconds() + self.phases.seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_of_sizes_and_mixes() {
        assert_eq!(Frames::Size(64).line_rate(10_000_000_000), 14_880_952.0);
        let imix =
            Frames::Mix { genome: "aaaaaaaddddg".into(), mean: (7.0 * 64.0 + 4.0 * 512.0 + 1518.0) / 12.0 };
        assert_eq!(imix.mean(), 334.5);
        assert_eq!(imix.line_rate(100_000_000_000), 35_260_930.0);
        assert_eq!(imix.to_string(), "IMIX aaaaaaaddddg (334.5 B)");
    }

    #[test]
    fn a_trial_knows_its_frames_and_seconds() {
        let mut plan = Plan::new(Frames::Size(64));
        let t = plan.constant(1000.5, 60.0);
        assert_eq!((t.load(), t.seconds(), t.intended(), t.whole_seconds()), (1000.5, 60.0, 60_030, 71.0));
        plan.phases = Phases::SHORT;
        let burst = plan.trial(vec![Segment { load: 1e6, span: Span::Frames(500_000) }]);
        assert_eq!((burst.seconds(), burst.intended(), burst.whole_seconds()), (0.5, 500_000, 2.5));
        assert_eq!(Segment { load: 0.0, span: Span::Frames(5) }.seconds(), 0.0);
    }
}

//! Latency (RFC 2544 26.2) with the statistics of RFC 8219 7.

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup, Spread, check};
use crate::receive::delay::DelaySummary;
use crate::trial::{Ending, Frames, Measurer, Observer, Progress, Runner};

/// Between which moments latency is measured (RFC 1242 3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// Last bit in to first bit out: for devices that store and forward.
    StoreAndForward,
    /// First bit in to first bit out: for devices that forward bits.
    BitForwarding,
    /// From where the tester's software hands a frame over to where it gets it, its own share subtracted.
    Software,
}

/// Delays at given loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Seconds of each trial; RFC 2544 asks for 120.
    pub seconds: f64,
    /// Trials of each case; RFC 2544 asks for 20.
    pub repetitions: u32,
    /// Which delay it is.
    pub definition: Definition,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { seconds: 120.0, repetitions: 20, definition: Definition::Software }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// With what.
    pub setup: Setup,
    /// How; says which delay it is.
    pub procedure: Latency,
    /// By case.
    pub rows: Vec<LatencyRow>,
    /// What is not as in RFC 2544.
    pub deviations: Vec<Deviation>,
    /// How it ended.
    pub ending: Ending,
}

/// What was found for a size and a load. All in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// The frames.
    pub frames: Frames,
    /// Frames per second per port.
    pub load: f64,
    /// The load is what the line carries: buffers never drain, so this tells of them and not of the device.
    pub at_line_rate: bool,
    /// Frames that were lost in all trials: more than none means that the load is above throughput.
    pub lost: u64,
    /// Mean of each trial.
    pub mean: Spread,
    /// Typical latency: the median of each trial (RFC 8219 7.2).
    pub typical: Spread,
    /// Worst-case latency: the 99.9th percentile of each trial (RFC 8219 7.2).
    pub worst: Spread,
    /// Packet delay variation: 99.9th percentile less minimum of each trial (RFC 8219 7.3.1).
    pub pdv: Spread,
    /// Mean of the absolute differences of consecutive frames of each trial (RFC 8219 7.3.2).
    pub ipdv: Spread,
    /// Smallest of all.
    pub min: u64,
    /// Largest of all.
    pub max: u64,
    /// Each trial's own.
    pub trials: Vec<DelaySummary>,
}

impl Latency {
    /// Measures each case: frames and their load, in frames per second per port (their throughput, by RFC 2544).
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        cases: &[(Frames, f64)],
        runner: &mut Runner<M, O>,
    ) -> Result<LatencyReport, ProcedureError> {
        check("the duration of a trial", self.seconds, |s| s > 0.0 && s.is_finite(), "above 0 s")?;
        check("the number of repetitions", self.repetitions.into(), |n| n >= 1.0, "at least 1")?;
        if cases.is_empty() {
            return Err(ProcedureError::NoCase);
        }
        for (_, load) in cases {
            check("a load", *load, |l| l > 0.0 && l.is_finite(), "above 0 frames per second")?;
        }
        let (mut rows, mut ending) = (Vec::new(), Ending::Complete);
        for (i, (frames, load)) in cases.iter().enumerate() {
            let (row, ended) = self.row(setup, frames, *load, cases.len() - i - 1, runner);
            rows.extend(row);
            if let Some(ended) = ended {
                ending = ended;
                break;
            }
        }
        runner.take_trace();
        let mut deviations = setup.deviations(self.seconds, 120.0, 0.0);
        if self.repetitions < 20 {
            let what = format!("{} repetitions instead of at least 20", self.repetitions);
            deviations.push(Deviation { clause: "RFC 2544 26.2".into(), what });
        }
        deviations.push(Deviation {
            clause: "RFC 2544 26.2".into(),
            what: "every frame is tagged, not one after 60 s; statistics are those of RFC 8219".into(),
        });
        Ok(LatencyReport { setup: setup.clone(), procedure: self.clone(), rows, deviations, ending })
    }

    fn row<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        load: f64,
        more: usize,
        runner: &mut Runner<M, O>,
    ) -> (Option<LatencyRow>, Option<Ending>) {
        let (mut trials, mut lost, mut ended) = (Vec::new(), 0, None);
        let input = setup.plan(frames).constant(load, self.seconds);
        for n in 0..self.repetitions {
            let left = f64::from(self.repetitions - n) + more as f64 * f64::from(self.repetitions);
            let stage = format!("latency {frames} {}/{}", n + 1, self.repetitions);
            let progress =
                Progress { stage, left: Some(left * input.whole_seconds()), ..Progress::default() };
            match runner.trial(input.clone(), progress) {
                Ok(record) => {
                    lost += record.output.flows.iter().map(crate::trial::FlowCount::lost).sum::<u64>();
                    trials.extend(record.output.latency.clone());
                }
                Err(ending) => {
                    ended = Some(ending);
                    break;
                }
            }
        }
        if trials.is_empty() {
            return (None, ended);
        }
        let spread = |of: fn(&DelaySummary) -> f64| Spread::of(&trials.iter().map(of).collect::<Vec<f64>>());
        let row = LatencyRow {
            frames: frames.clone(),
            load,
            at_line_rate: setup.theoretical(frames).is_some_and(|line| load >= line * 0.9999),
            lost,
            mean: spread(|t| t.mean),
            typical: spread(|t| t.p50 as f64),
            worst: spread(|t| t.p99_9 as f64),
            pdv: spread(|t| t.pdv as f64),
            ipdv: spread(|t| t.ipdv_mean),
            min: trials.iter().map(|t| t.min).min().unwrap_or(0),
            max: trials.iter().map(|t| t.max).max().unwrap_or(0),
            trials,
        };
        (Some(row), ended)
    }
}

//! System recovery (RFC 2544 26.5): how long after an overload frames still get lost.
//!
//! The RFC subtracts the two moments the wrong way round: the time is that of the last lost frame less that of the step.

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup, Spread, check};
use crate::trial::{Ending, Frames, Measurer, Observer, Progress, Runner, Segment, Span, TrialRecord};

/// Overloads, then halves the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Seconds of overload; RFC 2544 asks for 60.
    pub overload_seconds: f64,
    /// Seconds at half of it: recovery that takes longer is not seen.
    pub half_seconds: f64,
    /// Trials.
    pub repetitions: u32,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery { overload_seconds: 60.0, half_seconds: 30.0, repetitions: 5 }
    }
}

/// What was found for a frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// With what.
    pub setup: Setup,
    /// How.
    pub procedure: Recovery,
    /// The frames.
    pub frames: Frames,
    /// Throughput measured before, in frames per second per port.
    pub throughput: f64,
    /// Overload: 110 % of throughput, or what line and tester can do.
    pub overload: f64,
    /// By trial.
    pub runs: Vec<RecoveryRun>,
    /// Seconds of the trials that recovered.
    pub seconds: Spread,
    /// Every trial.
    pub trials: Vec<TrialRecord>,
    /// What is not as in RFC 2544.
    pub deviations: Vec<Deviation>,
    /// How it ended.
    pub ending: Ending,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryRun {
    /// The last frame was lost so many seconds after the step.
    Recovered(f64),
    /// Nothing was lost at all: it was no overload.
    NotOverloaded,
    /// Frames were still lost at the end.
    NotRecovered,
    /// Frames were lost, and the measurer does not know when.
    Unknown,
}

impl Recovery {
    /// Measures a frame size, whose throughput was measured before.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        throughput: f64,
        runner: &mut Runner<M, O>,
    ) -> Result<RecoveryReport, ProcedureError> {
        let sound = |s: f64| s > 0.0 && s.is_finite();
        check("the throughput", throughput, sound, "above 0 frames per second")?;
        check("the duration of the overload", self.overload_seconds, sound, "above 0 s")?;
        check("the duration after the overload", self.half_seconds, sound, "above 0 s")?;
        check("the number of repetitions", self.repetitions.into(), |n| n >= 1.0, "at least 1")?;
        let overload = (1.1 * throughput).min(setup.max_load(frames)?);
        let segment = |load, seconds| Segment { load, span: Span::Seconds(seconds) };
        let segments =
            vec![segment(overload, self.overload_seconds), segment(overload / 2.0, self.half_seconds)];
        let input = setup.plan(frames).trial(segments);
        let (mut runs, mut ending) = (Vec::new(), Ending::Complete);
        for n in 0..self.repetitions {
            let progress = Progress {
                stage: format!("recovery {frames} {}/{}", n + 1, self.repetitions),
                left: Some(f64::from(self.repetitions - n) * input.whole_seconds()),
                ..Progress::default()
            };
            match runner.trial(input.clone(), progress) {
                Ok(record) => runs.push(self.judge(record)),
                Err(ended) => {
                    ending = ended;
                    break;
                }
            }
        }
        let recovered = |run: &RecoveryRun| match run {
            RecoveryRun::Recovered(seconds) => Some(*seconds),
            _ => None,
        };
        let mut deviations = setup.deviations(self.overload_seconds, 60.0, 0.0);
        if overload < 1.1 * throughput * (1.0 - 1e-9) {
            let what = format!(
                "{:.1} % of throughput instead of 110 %: more cannot be sent",
                overload / throughput * 100.0
            );
            deviations.push(Deviation { clause: "RFC 2544 26.5".into(), what });
        }
        Ok(RecoveryReport {
            setup: setup.clone(),
            procedure: self.clone(),
            frames: frames.clone(),
            throughput,
            overload,
            seconds: Spread::of(&runs.iter().filter_map(recovered).collect::<Vec<f64>>()),
            runs,
            trials: runner.take_trace(),
            deviations,
            ending,
        })
    }

    fn judge(&self, record: &TrialRecord) -> RecoveryRun {
        match (record.output.total().lost(), record.output.last_lost) {
            (0, _) => RecoveryRun::NotOverloaded,
            (_, None) => RecoveryRun::Unknown,
            (_, Some(last)) if last >= self.overload_seconds + self.half_seconds * 0.99 => {
                RecoveryRun::NotRecovered
            }
            (_, Some(last)) => RecoveryRun::Recovered((last - self.overload_seconds).max(0.0)),
        }
    }
}

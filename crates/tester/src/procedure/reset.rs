//! Reset (RFC 6201, which updates RFC 2544 26.6): how long a device does not forward when it, or a part of it, is started anew.

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup, Spread, check};
use crate::trial::{Ending, Frames, Measurer, Observer, Progress, Reset, ResetKind, Runner, TrialRecord};

/// How the time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetMethod {
    /// Lost frames by the rate they were sent at (RFC 6201 5.1): for testers that go on sending.
    FrameLoss,
    /// First frame after less last frame before (RFC 6201 5.2).
    Timestamp,
}

/// Resets the device under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetTest {
    /// What is reset.
    pub kind: ResetKind,
    /// Seconds of clean forwarding before; RFC 6201 asks for at least 15.
    pub before: f64,
    /// Seconds after: a device that takes longer is not seen to come back.
    pub after: f64,
    /// Trials.
    pub repetitions: u32,
}

/// Seconds that power is off, which RFC 6201 4.3 subtracts.
const POWER_OFF: f64 = 15.0;

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetReport {
    /// With what.
    pub setup: Setup,
    /// How.
    pub procedure: ResetTest,
    /// The frames.
    pub frames: Frames,
    /// Frames per second per port: the throughput of that size.
    pub load: f64,
    /// By trial.
    pub runs: Vec<ResetRun>,
    /// Frames lost by trial.
    pub lost: Spread,
    /// Seconds by [`ResetMethod::FrameLoss`]; 0 is a legal result: nothing was lost.
    pub by_loss: Spread,
    /// Seconds by [`ResetMethod::Timestamp`].
    pub by_timestamp: Spread,
    /// Every trial.
    pub trials: Vec<TrialRecord>,
    /// What is not as in RFC 6201.
    pub deviations: Vec<Deviation>,
    /// How it ended.
    pub ending: Ending,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetRun {
    /// Frames lost.
    pub lost: u64,
    /// Seconds by frames lost.
    pub by_loss: f64,
    /// Seconds by the first and last frames around the silence, where the measurer saw one.
    pub by_timestamp: Option<f64>,
    /// Frames were lost before the reset already: the trial says nothing.
    pub lossy_before: bool,
    /// Forwarding came back before the end.
    pub came_back: bool,
}

impl ResetTest {
    /// Measures with the smallest frames there are, at their throughput.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        load: f64,
        runner: &mut Runner<M, O>,
    ) -> Result<ResetReport, ProcedureError> {
        let sound = |s: f64| s > 0.0 && s.is_finite();
        check("the load", load, sound, "above 0 frames per second")?;
        check("the duration before the reset", self.before, sound, "above 0 s")?;
        check("the duration after the reset", self.after, sound, "above 0 s")?;
        check("the number of repetitions", self.repetitions.into(), |n| n >= 1.0, "at least 1")?;
        let mut input = setup.plan(frames).constant(load, self.before + self.after);
        input.sample = if input.sample > 0.0 { input.sample } else { 1.0 };
        input.reset = Some(Reset { kind: self.kind, at: self.before });
        let (mut runs, mut ending) = (Vec::new(), Ending::Complete);
        for n in 0..self.repetitions {
            let progress = Progress {
                stage: format!("reset {}/{}", n + 1, self.repetitions),
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
        let good: Vec<&ResetRun> = runs.iter().filter(|r| !r.lossy_before && r.came_back).collect();
        let spread = |of: &dyn Fn(&ResetRun) -> Option<f64>| {
            Spread::of(&good.iter().filter_map(|r| of(r)).collect::<Vec<f64>>())
        };
        Ok(ResetReport {
            setup: setup.clone(),
            procedure: self.clone(),
            frames: frames.clone(),
            load,
            lost: spread(&|r| Some(r.lost as f64)),
            by_loss: spread(&|r| Some(r.by_loss)),
            by_timestamp: spread(&|r| r.by_timestamp),
            runs,
            trials: runner.take_trace(),
            deviations: self.deviations(),
            ending,
        })
    }

    fn deviations(&self) -> Vec<Deviation> {
        let mut deviations = Vec::new();
        if self.before < 15.0 {
            let what = format!("{} s of forwarding before the reset instead of at least 15 s", self.before);
            deviations.push(Deviation { clause: "RFC 6201 4".into(), what });
        }
        deviations
    }

    fn judge(&self, record: &TrialRecord) -> ResetRun {
        let output = &record.output;
        let total = output.total();
        let rate = if output.send_seconds > 0.0 { total.offered as f64 / output.send_seconds } else { 0.0 };
        // The interrupted power is the tester's doing.
        let own = if self.kind == ResetKind::Power { POWER_OFF } else { 0.0 };
        let seconds = |s: f64| (s - own).max(0.0);
        let series = output.series.as_ref();
        let whole = series.map_or(0, |s| (self.before / s.interval) as usize);
        let before = series.map_or(0, |s| s.samples.iter().take(whole).map(|x| x.lost).sum());
        let sending = series.map_or(0, |s| (output.send_seconds / s.interval) as usize);
        let last = series.and_then(|s| s.samples.get(sending.checked_sub(1)?));
        ResetRun {
            lost: total.lost(),
            by_loss: if rate > 0.0 { seconds(total.lost() as f64 / rate) } else { 0.0 },
            by_timestamp: output.outage.map(|o| seconds(o.first_after - o.last_before)),
            lossy_before: before > 0,
            came_back: last.is_none_or(|s| s.received > 0 || s.sent == 0),
        }
    }
}

//! Frame loss rate (RFC 2544 26.3).

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup, check};
use crate::trial::{Ending, Frames, Measurer, Observer, Progress, Runner, TrialRecord};

/// Loss against load, from the highest down until two trials in a row are without loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameLoss {
    /// Seconds of each trial; RFC 2544 asks for 60.
    pub seconds: f64,
    /// Steps as a share of the highest load; RFC 2544 asks for at most 0.1.
    pub step: f64,
}

impl Default for FrameLoss {
    fn default() -> Self {
        FrameLoss { seconds: 60.0, step: 0.1 }
    }
}

/// What was found for a frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossReport {
    /// With what.
    pub setup: Setup,
    /// The frames.
    pub frames: Frames,
    /// 100 % in frames per second per port.
    pub max_load: f64,
    /// By load, from the highest.
    pub rows: Vec<LossRow>,
    /// Every trial.
    pub trials: Vec<TrialRecord>,
    /// What is not as in RFC 2544.
    pub deviations: Vec<Deviation>,
    /// How it ended.
    pub ending: Ending,
}

/// Loss at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossRow {
    /// Frames per second per port.
    pub load: f64,
    /// In percent of the highest load: the X axis, from 0 to 100.
    pub percent: f64,
    /// Frames lost in percent of those sent: the Y axis, from 0 to 100.
    pub loss_percent: f64,
    /// Frames per second that came, of all directions together.
    pub forwarding_rate: f64,
}

impl FrameLoss {
    /// Measures a frame size.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        runner: &mut Runner<M, O>,
    ) -> Result<LossReport, ProcedureError> {
        check("the duration of a trial", self.seconds, |s| s > 0.0 && s.is_finite(), "above 0 s")?;
        check("the step", self.step, |s| (0.001..=0.5).contains(&s), "a share of 0.001 to 0.5")?;
        let max_load = setup.max_load(frames)?;
        let steps = (1.0 / self.step + 1e-9).floor() as u32;
        let (mut rows, mut ending, mut clean) = (Vec::new(), Ending::Complete, 0);
        for n in 0..steps {
            let share = 1.0 - f64::from(n) * self.step;
            if share <= 1e-9 || clean == 2 {
                break;
            }
            let input = setup.plan(frames).constant(max_load * share, self.seconds);
            let progress = Progress {
                stage: format!("frame loss {frames} at {:.1} %", share * 100.0),
                left: Some(f64::from(steps - n) * input.whole_seconds()),
                ..Progress::default()
            };
            match runner.trial(input, progress) {
                Ok(record) => {
                    clean = if record.loss_ratio == 0.0 { clean + 1 } else { 0 };
                    rows.push(LossRow {
                        load: max_load * share,
                        percent: share * 100.0,
                        loss_percent: record.loss_ratio * 100.0,
                        forwarding_rate: record.output.forwarding_rate(),
                    });
                }
                Err(ended) => {
                    ending = ended;
                    break;
                }
            }
        }
        let mut deviations = setup.deviations(self.seconds, 60.0, 0.0);
        if self.step > 0.1 {
            let what = format!("steps of {} % instead of at most 10 %", self.step * 100.0);
            deviations.push(Deviation { clause: "RFC 2544 26.3".into(), what });
        }
        Ok(LossReport {
            setup: setup.clone(),
            frames: frames.clone(),
            max_load,
            rows,
            trials: runner.take_trace(),
            deviations,
            ending,
        })
    }
}

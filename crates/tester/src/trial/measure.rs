//! Who carries trials out, and who watches.

use serde::{Deserialize, Serialize};

use super::input::TrialInput;
use super::output::{TrialOutput, TrialRecord};

/// Carries out one trial after another.
pub trait Measurer {
    /// Why a trial could not be carried out.
    type Error: std::error::Error;

    /// Carries out a trial with all its phases, and returns when the device may be loaded again.
    fn measure(&mut self, trial: &TrialInput) -> Result<TrialOutput, Self::Error>;
}

impl<M: Measurer> Measurer for &mut M {
    type Error = M::Error;

    fn measure(&mut self, trial: &TrialInput) -> Result<TrialOutput, M::Error> {
        (**self).measure(trial)
    }
}

/// Between what loads the answer lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Name of the goal.
    pub goal: String,
    /// Highest load known to be good, in frames per second per port.
    pub lower: Option<f64>,
    /// Lowest load known to be bad.
    pub upper: Option<f64>,
}

/// How far a procedure is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What is being done.
    pub stage: String,
    /// Bounds as they are.
    pub bounds: Vec<Bounds>,
    /// Seconds that the trials have taken so far, waits included.
    pub seconds: f64,
    /// Seconds that are left by estimate, as far as one can be made.
    pub left: Option<f64>,
}

/// Watches a procedure, and may end it.
pub trait Observer {
    /// A trial begins.
    fn started(&mut self, _trial: &TrialInput, _progress: &Progress) {}

    /// A trial is over.
    fn ended(&mut self, _trial: &TrialRecord) {}

    /// Asked before every trial: true ends the procedure; what is known by then is the result.
    fn stop(&mut self) -> bool {
        false
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

impl<O: Observer> Observer for &mut O {
    fn started(&mut self, trial: &TrialInput, progress: &Progress) {
        (**self).started(trial, progress);
    }

    fn ended(&mut self, trial: &TrialRecord) {
        (**self).ended(trial);
    }

    fn stop(&mut self) -> bool {
        (**self).stop()
    }
}

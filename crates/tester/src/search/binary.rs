//! Binary search over loads: plain (RFC 2544), and with loss verification (ETSI GS NFV-TST 009 12.3.3).

use serde::{Deserialize, Serialize};

use super::bisect::Bisect;
use super::goal::GoalError;
use super::method::Regularity;
use crate::trial::{Bounds, Ending, Measurer, Observer, Plan, Progress, Runner, TrialRecord};

/// A binary search. It takes for granted that what is lossless stays so below; virtual devices break that, so MLRsearch is the better one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BinarySearch {
    /// Lowest load, in frames per second per port, above 0.
    pub min_load: f64,
    /// Highest load: the first one tried.
    pub max_load: f64,
    /// The bounds are close enough at this distance, in frames per second.
    pub resolution: f64,
    /// Seconds of a trial.
    pub seconds: f64,
    /// A trial with no more loss than this passes.
    pub loss_ratio: f64,
    /// A trial that fails is repeated at the same load until one passes, at most so many in all (TST009: max(r)); 1: plain.
    pub trials: u32,
    /// A trial that loses more than this is not repeated: too much for a transient (TST009: z).
    pub hopeless: f64,
    /// Seconds of a longer trial that confirms what was found; where it fails, the search goes on below by trials of that length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<f64>,
}

/// What a binary search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BinaryResult {
    /// Highest load that passed, in frames per second per port (and was verified, where that is asked for).
    pub lower: Option<f64>,
    /// Lowest load that failed.
    pub upper: Option<f64>,
    /// Whether the two say all.
    pub regularity: Regularity,
    /// Every trial.
    pub trials: Vec<TrialRecord>,
    /// How it ended.
    pub ending: Ending,
    /// Seconds that the trials took, waits included.
    pub seconds: f64,
}

impl BinarySearch {
    /// RFC 2544 with trials of 60 s and a resolution of 0.05 % of the highest load.
    pub fn rfc2544(min_load: f64, max_load: f64) -> Self {
        BinarySearch {
            min_load,
            max_load,
            resolution: max_load * 0.0005,
            seconds: 60.0,
            loss_ratio: 0.0,
            trials: 1,
            hopeless: 1.0,
            verification: None,
        }
    }

    /// TST009's with loss verification: up to two trials a load, a second one only where the first lost no more than 10 %.
    pub fn tst009(min_load: f64, max_load: f64) -> Self {
        BinarySearch { trials: 2, hopeless: 0.1, ..BinarySearch::rfc2544(min_load, max_load) }
    }

    /// Whether the search can be made.
    pub fn check(&self) -> Result<(), GoalError> {
        let (min, max) = (self.min_load, self.max_load);
        if !(min > 0.0 && min <= max && max.is_finite()) {
            return Err(GoalError::Loads { min, max });
        }
        for (what, value) in [("loss ratio", self.loss_ratio)] {
            if !(0.0..1.0).contains(&value) {
                return Err(GoalError::Ratio { goal: "binary search".into(), what, value });
            }
        }
        let verified = self.verification.is_none_or(|v| v > 0.0 && v.is_finite());
        let ends = self.resolution > max * 1e-9 && self.resolution.is_finite();
        if !(ends && self.seconds > 0.0 && self.seconds.is_finite() && self.trials > 0 && verified) {
            return Err(GoalError::Binary);
        }
        Ok(())
    }

    /// Searches.
    ///
    /// # Errors
    /// The search itself makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        plan: &Plan,
        runner: &mut Runner<M, O>,
    ) -> Result<BinaryResult, GoalError> {
        self.check()?;
        let before = runner.seconds();
        let steps = self.steps();
        let mut bisect = Bisect::new(0, steps, 1);
        let mut verified = false;
        let ending = self.search(&mut bisect, &mut verified, plan, runner).err().unwrap_or_default();
        let lower = bisect.passed().filter(|_| verified || self.verification.is_none());
        let regularity = match (lower, bisect.failed()) {
            (Some(low), Some(high)) if high - low <= 1 => Regularity::Regular,
            (Some(low), None) if low == steps => Regularity::MaxLoadPasses,
            (None, Some(0)) => Regularity::MinLoadFails,
            _ => Regularity::Unfinished,
        };
        let load = |at: Option<u64>| at.map(|at| self.load(at));
        Ok(BinaryResult {
            lower: load(lower),
            upper: load(bisect.failed()),
            regularity,
            trials: runner.take_trace(),
            ending,
            seconds: runner.seconds() - before,
        })
    }

    fn steps(&self) -> u64 {
        ((self.max_load - self.min_load) / self.resolution).ceil() as u64
    }

    fn load(&self, at: u64) -> f64 {
        let steps = self.steps();
        if at >= steps {
            return self.max_load;
        }
        self.min_load + (self.max_load - self.min_load) * at as f64 / steps as f64
    }

    fn search<M: Measurer, O: Observer>(
        &self,
        bisect: &mut Bisect,
        verified: &mut bool,
        plan: &Plan,
        runner: &mut Runner<M, O>,
    ) -> Result<(), Ending> {
        self.narrow(self.seconds, "search", bisect, plan, runner)?;
        let (Some(longer), Some(at)) = (self.verification, bisect.passed()) else {
            *verified = self.verification.is_none();
            return Ok(());
        };
        let passed = self.passes(at, longer, "verification", bisect, plan, runner)?;
        *verified = true;
        bisect.tried(at, passed);
        // Where that passed, there is nothing left to try.
        self.narrow(longer, "verification", bisect, plan, runner)
    }

    fn narrow<M: Measurer, O: Observer>(
        &self,
        seconds: f64,
        stage: &str,
        bisect: &mut Bisect,
        plan: &Plan,
        runner: &mut Runner<M, O>,
    ) -> Result<(), Ending> {
        while let Some(at) = bisect.next_try() {
            let passed = self.passes(at, seconds, stage, bisect, plan, runner)?;
            bisect.tried(at, passed);
        }
        Ok(())
    }

    /// Whether one of the trials at this load passes.
    fn passes<M: Measurer, O: Observer>(
        &self,
        at: u64,
        seconds: f64,
        stage: &str,
        bisect: &Bisect,
        plan: &Plan,
        runner: &mut Runner<M, O>,
    ) -> Result<bool, Ending> {
        let bound = |at: Option<u64>| at.map(|at| self.load(at));
        let load = self.load(at);
        let left = f64::from(bisect.left()) * (seconds + plan.phases.seconds());
        for _ in 0..self.trials {
            let bounds = Bounds {
                goal: "binary".into(),
                lower: bound(bisect.passed()),
                upper: bound(bisect.failed()),
            };
            let progress =
                Progress { stage: stage.into(), bounds: vec![bounds], seconds: 0.0, left: Some(left) };
            let loss = runner.trial(plan.constant(load, seconds), progress)?.loss_ratio;
            if loss <= self.loss_ratio {
                return Ok(true);
            }
            if loss > self.hopeless {
                break;
            }
        }
        Ok(false)
    }
}

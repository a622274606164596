//! Either search, and what both have in common.

use serde::{Deserialize, Serialize};

use super::binary::{BinaryResult, BinarySearch};
use super::engine::{Search, SearchResult};
use super::goal::{Goal, GoalError};
use crate::trial::{Ending, Measurer, Observer, Plan, Runner, TrialRecord};

/// Whether the bounds of a search say all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Regularity {
    /// There are both bounds, close enough.
    Regular,
    /// Even the highest load passes: the device may do more.
    MaxLoadPasses,
    /// Even the lowest load fails.
    MinLoadFails,
    /// The search was ended before.
    #[default]
    Unfinished,
}

/// How a load is searched for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// MLRsearch by these goals; the first is the one a single figure is taken of.
    Mlr(Vec<Goal>),
    /// Binary search; its loads are replaced by those of the case at hand, its resolution is a share of the highest.
    Binary(BinarySearch),
}

/// A result of either.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MethodResult {
    /// Of MLRsearch.
    Mlr(SearchResult),
    /// Of binary search.
    Binary(BinaryResult),
}

/// What a search comes to for one goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Highest good load, in frames per second per port.
    pub lower: Option<f64>,
    /// Lowest bad load.
    pub upper: Option<f64>,
    /// What it promises: conditional throughput for MLRsearch, the lower bound else.
    pub throughput: Option<f64>,
    /// Whether the bounds say all.
    pub regularity: Regularity,
}

impl Method {
    /// Searches between two loads.
    ///
    /// # Errors
    /// The search makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        min_load: f64,
        max_load: f64,
        plan: &Plan,
        runner: &mut Runner<M, O>,
    ) -> Result<MethodResult, GoalError> {
        match self {
            Method::Mlr(goals) => {
                Search::new(goals.clone(), min_load, max_load).run(plan, runner).map(MethodResult::Mlr)
            }
            Method::Binary(binary) => {
                let share = binary.resolution / binary.max_load;
                let here =
                    BinarySearch { min_load, max_load, resolution: share * max_load, ..binary.clone() };
                here.run(plan, runner).map(MethodResult::Binary)
            }
        }
    }

    /// Seconds of the longest trials, and the loss ratio they may have.
    pub fn final_trial(&self) -> (f64, f64) {
        match self {
            Method::Mlr(goals) => goals.first().map_or((0.0, 0.0), |g| (g.final_duration, g.loss_ratio)),
            Method::Binary(b) => (b.verification.map_or(b.seconds, |v| v.max(b.seconds)), b.loss_ratio),
        }
    }
}

impl MethodResult {
    /// What it found for the first goal.
    pub fn found(&self) -> Found {
        match self {
            MethodResult::Mlr(r) => r.goals.first().map_or_else(Found::default, |g| Found {
                lower: g.lower.map(|b| b.load),
                upper: g.upper.map(|b| b.load),
                throughput: g.conditional_throughput,
                regularity: g.regularity,
            }),
            MethodResult::Binary(r) => {
                Found { lower: r.lower, upper: r.upper, throughput: r.lower, regularity: r.regularity }
            }
        }
    }

    /// How it ended.
    pub fn ending(&self) -> &Ending {
        match self {
            MethodResult::Mlr(r) => &r.ending,
            MethodResult::Binary(r) => &r.ending,
        }
    }

    /// Every trial.
    pub fn trials(&self) -> &[TrialRecord] {
        match self {
            MethodResult::Mlr(r) => &r.trials,
            MethodResult::Binary(r) => &r.trials,
        }
    }
}

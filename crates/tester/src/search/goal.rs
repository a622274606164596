//! Goals: what is searched for.

use serde::{Deserialize, Serialize};

use super::classify::Criterion;

/// A search goal (RFC 9971 4.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Name in results.
    pub name: String,
    /// Seconds of full-length trials.
    pub final_duration: f64,
    /// Seconds of full-length trials that decide about a load, at least `final_duration`.
    pub duration_sum: f64,
    /// Trials that lose more are high-loss; 0 to below 1.
    pub loss_ratio: f64,
    /// Share of `duration_sum` that high-loss trials may take; 0 to below 1.
    pub exceed_ratio: f64,
    /// The bounds are close enough when they differ by no more than this share of the upper one; above 0, below 1.
    pub width: f64,
    /// Seconds of the shortest trials, at most `final_duration`.
    pub initial_duration: f64,
    /// Coarser searches before the final one, each with half the width and longer trials.
    pub coarser: u32,
}

/// What is wrong with a search.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// Nothing to search for.
    #[error("the search has no goal")]
    NoGoal,
    /// A ratio out of range.
    #[error("goal {goal}: the {what} is {value}; it must be at least 0 and below 1")]
    Ratio {
        /// Whose.
        goal: String,
        /// Which.
        what: &'static str,
        /// What it is.
        value: f64,
    },
    /// No width, or too fine a one.
    #[error("goal {goal}: the width is {value}; it must be at least 0.000001 and below 1")]
    Width {
        /// Whose.
        goal: String,
        /// What it is.
        value: f64,
    },
    /// Durations out of order.
    #[error(
        "goal {goal}: durations must be 0 < initial ({initial} s) <= final ({last} s) <= sum ({sum} s), and finite"
    )]
    Durations {
        /// Whose.
        goal: String,
        /// Initial.
        initial: f64,
        /// Final.
        last: f64,
        /// Sum.
        sum: f64,
    },
    /// Too many trials would be needed.
    #[error("goal {goal}: {trials:.0} trials would be needed for each load; at most 10000 are allowed")]
    TooManyTrials {
        /// Whose.
        goal: String,
        /// How many.
        trials: f64,
    },
    /// Loads out of order.
    #[error("the loads must be 0 < lowest ({min}) <= highest ({max}) frames per second, and finite")]
    Loads {
        /// Lowest.
        min: f64,
        /// Highest.
        max: f64,
    },
    /// A binary search that cannot end.
    #[error(
        "the binary search needs a resolution, a trial duration and at least 1 trial per load, all above 0"
    )]
    Binary,
}

impl Goal {
    /// RFC 2544 throughput: one trial of 60 s without loss.
    pub fn rfc2544() -> Goal {
        Goal {
            name: "RFC 2544".into(),
            final_duration: 60.0,
            duration_sum: 60.0,
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            width: 0.005,
            initial_duration: 1.0,
            coarser: 2,
        }
    }

    /// Binary search with loss verification as a goal: of two trials of 60 s one must be without loss.
    pub fn loss_verification() -> Goal {
        Goal { name: "BSwLV".into(), duration_sum: 120.0, exceed_ratio: 0.5, ..Goal::rfc2544() }
    }

    /// CSIT's non-drop rate: most of 21 trials of 1 s without loss.
    pub fn ndr() -> Goal {
        Goal {
            name: "NDR".into(),
            final_duration: 1.0,
            duration_sum: 21.0,
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width: 0.005,
            initial_duration: 1.0,
            coarser: 2,
        }
    }

    /// CSIT's partial drop rate: most of 21 trials of 1 s with a loss of at most 0.5 %.
    pub fn pdr() -> Goal {
        Goal { name: "PDR".into(), loss_ratio: 0.005, ..Goal::ndr() }
    }

    /// By what loads are judged in the end.
    pub fn criterion(&self) -> Criterion {
        Criterion {
            duration: self.final_duration,
            sum: self.duration_sum,
            loss_ratio: self.loss_ratio,
            exceed_ratio: self.exceed_ratio,
        }
    }

    /// Criteria and widths of the searches from coarse to final.
    pub(super) fn stages(&self) -> Vec<(Criterion, f64)> {
        let stage = |k: u32| {
            let shrink = f64::from(k) / f64::from(self.coarser.max(1));
            let sum = if k == self.coarser && k > 0 {
                self.initial_duration
            } else {
                self.duration_sum * (self.initial_duration / self.duration_sum).powf(shrink)
            };
            let criterion = Criterion { duration: self.final_duration.min(sum), sum, ..self.criterion() };
            // In powers of the grid's steps, so that the widths of all stages fit each other.
            (criterion, 1.0 - (1.0 - self.width).powi(1 << k.min(16)))
        };
        (0..=self.coarser).rev().map(stage).collect()
    }

    /// Whether it can be searched for.
    pub fn check(&self) -> Result<(), GoalError> {
        let goal = || self.name.clone();
        for (what, value) in [("loss ratio", self.loss_ratio), ("exceed ratio", self.exceed_ratio)] {
            if !(0.0..1.0).contains(&value) {
                return Err(GoalError::Ratio { goal: goal(), what, value });
            }
        }
        if !(1e-6..1.0).contains(&self.width) {
            return Err(GoalError::Width { goal: goal(), value: self.width });
        }
        let (initial, last, sum) = (self.initial_duration, self.final_duration, self.duration_sum);
        if !(initial > 0.0 && initial <= last && last <= sum && sum.is_finite()) {
            return Err(GoalError::Durations { goal: goal(), initial, last, sum });
        }
        if sum / last > 10_000.0 {
            return Err(GoalError::TooManyTrials { goal: goal(), trials: sum / last });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_their_stages_end_at_the_goal() {
        for goal in [Goal::rfc2544(), Goal::loss_verification(), Goal::ndr(), Goal::pdr()] {
            assert_eq!(goal.check(), Ok(()));
            let stages = goal.stages();
            let (last, width) = stages.last().unwrap();
            assert_eq!((*last, stages.len()), (goal.criterion(), 3));
            assert!((width - goal.width).abs() < 1e-12);
            assert_eq!(stages[0].0.sum, goal.initial_duration);
        }
        // CSIT's intermediate sum.
        assert!((Goal::ndr().stages()[1].0.sum - 4.583).abs() < 0.001);
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        let bad = |change: fn(&mut Goal)| {
            let mut goal = Goal::rfc2544();
            change(&mut goal);
            goal.check().unwrap_err().to_string()
        };
        assert!(
            bad(|g| g.loss_ratio = 1.0).contains("the loss ratio is 1; it must be at least 0 and below 1")
        );
        assert!(bad(|g| g.exceed_ratio = f64::NAN).contains("exceed ratio"));
        assert!(bad(|g| g.width = 0.0).contains("width"));
        assert!(bad(|g| g.duration_sum = 59.0).contains("<= sum (59 s)"));
        assert!(bad(|g| g.initial_duration = 0.0).contains("initial (0 s)"));
        assert!(bad(|g| g.duration_sum = f64::INFINITY).contains("finite"));
        assert!(bad(|g| g.duration_sum = 1e9).contains("at most 10000"));
    }
}

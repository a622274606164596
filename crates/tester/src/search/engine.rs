//! The search: first trials, then the most urgent one of what the goals ask for, until none asks.

use serde::{Deserialize, Serialize};

use super::chase::{Candidate, Chase};
use super::classify::{Entry, Sums};
use super::goal::{Goal, GoalError};
use super::grid::Grid;
use super::ledger::Ledger;
use super::method::Regularity;
use crate::trial::{Bounds, Ending, Measurer, Observer, Plan, Progress, Runner, TrialRecord};

/// MLRsearch (RFC 9971).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// What is searched for, all in one go.
    pub goals: Vec<Goal>,
    /// Lowest load tried, in frames per second per port, above 0.
    pub min_load: f64,
    /// Highest load tried: what the line carries, or what the tester is known to reach by itself.
    pub max_load: f64,
    /// Seconds of a trial at the highest load that comes first and does not count; 0: none.
    pub warm_up: f64,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// By goal, in their order.
    pub goals: Vec<GoalResult>,
    /// Every trial, void ones too.
    pub trials: Vec<TrialRecord>,
    /// How it ended.
    pub ending: Ending,
    /// Seconds that the trials took, waits included.
    pub seconds: f64,
}

/// What a search found for a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// Relevant lower bound: the highest load below `upper` that is good by full-length trials.
    pub lower: Option<Bound>,
    /// Relevant upper bound: the lowest load that is bad.
    pub upper: Option<Bound>,
    /// Conditional throughput at the lower bound, in frames per second per port.
    pub conditional_throughput: Option<f64>,
    /// Whether the two bounds say all, and if not, why.
    pub regularity: Regularity,
}

/// A load that is known to be good or bad, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Frames per second per port.
    pub load: f64,
    /// Seconds of trials at it.
    pub sums: Sums,
}

impl Search {
    /// A search between two loads without a warm-up.
    pub fn new(goals: Vec<Goal>, min_load: f64, max_load: f64) -> Self {
        Search { goals, min_load, max_load, warm_up: 0.0 }
    }

    /// Whether the search can be made.
    pub fn check(&self) -> Result<(), GoalError> {
        let (min, max) = (self.min_load, self.max_load);
        if !(min > 0.0 && min <= max && max.is_finite()) {
            return Err(GoalError::Loads { min, max });
        }
        if self.goals.is_empty() {
            return Err(GoalError::NoGoal);
        }
        self.goals.iter().try_for_each(Goal::check)
    }

    /// Searches. Whatever goes wrong on the way is the result's `ending`; the bounds are those known by then.
    ///
    /// # Errors
    /// The search itself makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        plan: &Plan,
        runner: &mut Runner<M, O>,
    ) -> Result<SearchResult, GoalError> {
        self.check()?;
        let narrowest = self.goals.iter().map(|g| g.width).fold(1.0, f64::min);
        let grid = Grid::new(self.min_load, self.max_load, narrowest);
        let mut hunt = Hunt { search: self, plan, grid, ledger: Ledger::default(), chases: Vec::new() };
        let before = runner.seconds();
        let ending = match hunt.run(runner) {
            Ok(()) => Ending::Complete,
            Err(ending) => ending,
        };
        let goals = self.goals.iter().map(|g| hunt.result(g)).collect();
        Ok(SearchResult { goals, trials: runner.take_trace(), ending, seconds: runner.seconds() - before })
    }
}

struct Hunt<'a> {
    search: &'a Search,
    plan: &'a Plan,
    grid: Grid,
    ledger: Ledger,
    chases: Vec<Chase>,
}

impl Hunt<'_> {
    fn run<M: Measurer, O: Observer>(&mut self, runner: &mut Runner<M, O>) -> Result<(), Ending> {
        let last = self.grid.last();
        if self.search.warm_up > 0.0 {
            self.trial("warm-up", Candidate { at: last, seconds: self.search.warm_up }, runner)?;
            self.ledger = Ledger::default();
        }
        let (low, high) = self.first_trials(runner)?;
        self.chases = self.search.goals.iter().map(|g| Chase::new(g, &self.grid, low, high)).collect();
        while let Some((goal, candidate)) = self.most_urgent() {
            let stage = self.search.goals.get(goal).map_or("", |g| g.name.as_str()).to_owned();
            self.trial(&stage, candidate, runner)?;
        }
        Ok(())
    }

    /// Trials at the highest load, at what then came through, and at what came through of that or just above it: two loads that the
    /// answer is likely to be near.
    fn first_trials<M: Measurer, O: Observer>(
        &mut self,
        runner: &mut Runner<M, O>,
    ) -> Result<(u32, u32), Ending> {
        let goals = &self.search.goals;
        let seconds = goals.iter().map(|g| g.initial_duration).fold(0.0, f64::max);
        let tolerated = goals.iter().map(|g| g.loss_ratio).fold(1.0, f64::min);
        let width = self.grid.width(goals.iter().map(|g| g.width).fold(0.0, f64::max));
        let (mut low, mut high) = (self.grid.last(), self.grid.last());
        for trial in 0..3 {
            let loss = self.trial("first", Candidate { at: low, seconds }, runner)?;
            if loss <= tolerated {
                let above = low + width;
                if trial == 1 && above < high {
                    let loss = self.trial("first", Candidate { at: above, seconds }, runner)?;
                    (low, high) = if loss <= tolerated { (above, high) } else { (low, above) };
                }
                break;
            }
            high = low;
            low = self.grid.below(self.grid.load(low) * (1.0 - loss) / (1.0 - tolerated));
            if low == high {
                break;
            }
        }
        Ok((low, high))
    }

    /// Of what the goals ask for the shortest trial, and of those the lowest load: it tells most of the others.
    fn most_urgent(&mut self) -> Option<(usize, Candidate)> {
        let (ledger, grid) = (&self.ledger, &self.grid);
        let asked = self.chases.iter_mut().enumerate().filter_map(|(i, c)| Some((i, c.next(ledger, grid)?)));
        asked.min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds).then(a.at.cmp(&b.at)))
    }

    fn trial<M: Measurer, O: Observer>(
        &mut self,
        stage: &str,
        candidate: Candidate,
        runner: &mut Runner<M, O>,
    ) -> Result<f64, Ending> {
        let load = self.grid.load(candidate.at);
        let record = runner.trial(self.plan.constant(load, candidate.seconds), self.progress(stage))?;
        let (effective, loss) = (record.output.effective_seconds, record.loss_ratio);
        // A trial that says it took no time would never decide anything.
        let effective = if effective > 0.0 { effective } else { candidate.seconds };
        self.ledger.add(candidate.at, Entry { intended: candidate.seconds, effective, loss });
        Ok(loss)
    }

    fn progress(&self, stage: &str) -> Progress {
        let bound = |at: Option<u32>| at.map(|at| self.grid.load(at));
        let bounds = self.search.goals.iter().map(|goal| {
            let (lower, upper) = self.ledger.bounds(&goal.criterion());
            Bounds { goal: goal.name.clone(), lower: bound(lower), upper: bound(upper) }
        });
        let wait = self.plan.phases.seconds();
        let left = self.chases.iter().flat_map(|c| c.left(&self.ledger, &self.grid));
        let left: f64 = left.map(|(trials, seconds)| trials * (seconds + wait)).sum();
        Progress {
            stage: stage.to_owned(),
            bounds: bounds.collect(),
            seconds: 0.0,
            left: (!self.chases.is_empty()).then_some(left),
        }
    }

    fn result(&self, goal: &Goal) -> GoalResult {
        let criterion = goal.criterion();
        let (lower, upper) = self.ledger.bounds(&criterion);
        let bound = |at: Option<u32>| {
            at.map(|at| Bound { load: self.grid.load(at), sums: criterion.sums(self.ledger.at(at)) })
        };
        let conditional =
            lower.map(|at| criterion.conditional_throughput(self.grid.load(at), self.ledger.at(at)));
        let close = |low: u32, high: u32| high - low <= self.grid.width(goal.width);
        let regularity = match (lower, upper) {
            (Some(low), Some(high)) if close(low, high) => Regularity::Regular,
            (Some(low), None) if low == self.grid.last() => Regularity::MaxLoadPasses,
            (None, Some(0)) => Regularity::MinLoadFails,
            _ => Regularity::Unfinished,
        };
        GoalResult {
            goal: goal.clone(),
            lower: bound(lower),
            upper: bound(upper),
            conditional_throughput: conditional,
            regularity,
        }
    }
}

//! Which load is tried next for one goal.
//!
//! A goal is reached by stages, each with longer trials and half the width of the one before. A stage first confirms the bounds of the
//! one before, then moves away from what failed by ever larger steps until there is a bound on both sides, then halves. A load is tried
//! until it is decided, and a decided one is never tried for the same stage again: so there is an end.

use super::classify::Criterion;
use super::goal::Goal;
use super::grid::Grid;
use super::ledger::Ledger;

/// The way to a goal.
#[derive(Clone, Debug)]
pub(super) struct Chase {
    stages: Vec<Stage>,
    at: usize,
    /// Loads to begin with: likely good, likely bad.
    hints: (u32, u32),
    /// Bound from which the step is taken, and the step.
    away: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    criterion: Criterion,
    width: u32,
}

/// What is to be tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) at: u32,
    pub(super) seconds: f64,
}

impl Chase {
    /// `low` and `high`: loads to begin with, from what first trials told.
    pub(super) fn new(goal: &Goal, grid: &Grid, low: u32, high: u32) -> Self {
        let stage = |(criterion, width)| Stage { criterion, width: grid.width(width) };
        let stages = goal.stages().into_iter().map(stage).collect();
        Chase { stages, at: 0, hints: (low.min(high), high.max(low)), away: None }
    }

    /// The next trial; `None`: the goal is reached, or cannot be.
    pub(super) fn next(&mut self, ledger: &Ledger, grid: &Grid) -> Option<Candidate> {
        while let Some(stage) = self.stages.get(self.at).copied() {
            let (low, high) = ledger.bounds(&stage.criterion);
            if let Some(at) = self.choose(stage, low, high, grid.last()) {
                return Some(Candidate { at, seconds: stage.criterion.duration });
            }
            if self.at + 1 == self.stages.len() {
                // Trials for other goals may yet take a bound away: then this stage is asked again.
                return None;
            }
            self.at += 1;
            self.away = None;
            self.hints = match (low, high) {
                (Some(low), Some(high)) => (low, high),
                (Some(only), None) | (None, Some(only)) => (only, only),
                (None, None) => self.hints,
            };
        }
        None
    }

    fn choose(&mut self, stage: Stage, low: Option<u32>, high: Option<u32>, last: u32) -> Option<u32> {
        let hint =
            |inside: &dyn Fn(u32) -> bool| [self.hints.0, self.hints.1].into_iter().find(|h| inside(*h));
        match (low, high) {
            (Some(low), Some(high)) if high - low <= stage.width => None,
            (Some(low), Some(high)) => Some(hint(&|h| low < h && h < high).unwrap_or(low + (high - low) / 2)),
            (Some(low), None) if low >= last => None,
            (None, Some(0)) => None,
            (Some(low), None) => match hint(&|h| h > low) {
                Some(at) => Some(at),
                None => Some(low.saturating_add(self.step(low, stage.width)).min(last)),
            },
            (None, Some(high)) => match hint(&|h| h < high) {
                Some(at) => Some(at),
                None => Some(high.saturating_sub(self.step(high, stage.width))),
            },
            (None, None) => Some(self.hints.0),
        }
    }

    /// Steps away from a bound: the stage's width first, twice as many whenever the bound has moved.
    fn step(&mut self, from: u32, width: u32) -> u32 {
        let step = match self.away {
            Some((before, step)) if before == from => step,
            Some((_, step)) => step.saturating_mul(2),
            None => width,
        };
        self.away = Some((from, step));
        step
    }

    /// Trials that are left by estimate, as pairs of number and seconds of each.
    pub(super) fn left(&self, ledger: &Ledger, grid: &Grid) -> Vec<(f64, f64)> {
        let mut left = Vec::new();
        for (i, stage) in self.stages.iter().enumerate().skip(self.at) {
            let halvings = |gap: u32| (f64::from(gap.max(1)) / f64::from(stage.width)).log2().ceil().max(0.0);
            let guess = halvings(self.hints.1 - self.hints.0);
            let loads = match ledger.bounds(&stage.criterion) {
                // Both bounds of the stage before, and one halving.
                _ if i != self.at => 3.0,
                (Some(low), Some(high)) => halvings(high - low),
                (Some(low), None) if low >= grid.last() => 0.0,
                (None, Some(0)) => 0.0,
                (None, None) => 2.0 + guess,
                _ => 1.0 + guess,
            };
            let c = &stage.criterion;
            let trials = (c.sum * (1.0 - c.exceed_ratio).max(c.exceed_ratio) / c.duration).ceil().max(1.0);
            left.push((loads * trials, c.duration));
        }
        left
    }
}

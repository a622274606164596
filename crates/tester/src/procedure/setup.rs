//! What all procedures share.

use serde::{Deserialize, Serialize};

use crate::search::GoalError;
use crate::stats::quantile;
use crate::trial::{Frames, Phases, Plan};

/// Lines, limits and phases of all trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Bits per second of each port's line; `None`: not known, as with virtual ports.
    pub line: Option<u64>,
    /// Frames per second and port that the tester is known to send and receive by itself, from a self-test.
    pub ceiling: Option<f64>,
    /// Lowest load tried, in frames per second and port.
    pub min_load: f64,
    /// Before and after the traffic.
    pub phases: Phases,
    /// Seconds between two samples of the time series; 0: none.
    pub sample: f64,
}

/// Something that was not done as the RFC has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// Clause, such as `RFC 2544 24`.
    pub clause: String,
    /// What was done, and what is asked for.
    pub what: String,
}

/// Why a procedure cannot be carried out at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProcedureError {
    /// The search makes no sense.
    #[error(transparent)]
    Search(#[from] GoalError),
    /// There is no highest load.
    #[error("the line speed of the ports is not known: state it, or the highest rate in frames per second")]
    NoMaximum,
    /// Nothing to do.
    #[error("there is nothing to measure: no frame size, load or number of cores was given")]
    NoCase,
    /// A value out of range.
    #[error("{what} is {value}; it must be {wanted}")]
    Value {
        /// Which.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
        wanted: &'static str,
    },
}

impl Setup {
    /// RFC 2544's phases on lines of so many bits per second.
    pub fn new(line: u64) -> Self {
        Setup { line: Some(line), ceiling: None, min_load: 1.0, phases: Phases::RFC2544, sample: 1.0 }
    }

    /// Frames per second that the line carries at most.
    pub fn theoretical(&self, frames: &Frames) -> Option<f64> {
        self.line.map(|line| frames.line_rate(line))
    }

    /// The highest load there is to try: what line and tester can do.
    ///
    /// # Errors
    /// Neither is known.
    pub fn max_load(&self, frames: &Frames) -> Result<f64, ProcedureError> {
        let limits = self.theoretical(frames).into_iter().chain(self.ceiling);
        limits.min_by(f64::total_cmp).ok_or(ProcedureError::NoMaximum)
    }

    /// What trials of such frames have in common.
    pub fn plan(&self, frames: &Frames) -> Plan {
        Plan { frames: frames.clone(), burst: 1, phases: self.phases.clone(), sample: self.sample }
    }

    /// What trials of so many seconds with so much loss allowed differ in from RFC 2544, which asks for `least` seconds.
    pub fn deviations(&self, seconds: f64, least: f64, loss_ratio: f64) -> Vec<Deviation> {
        let p = &self.phases;
        let mut found = Vec::new();
        let mut note = |differs: bool, clause: &str, what: String| {
            if differs {
                found.push(Deviation { clause: clause.into(), what });
            }
        };
        note(seconds < least, "RFC 2544 24", format!("trials of {seconds} s instead of at least {least} s"));
        note(!p.routing_update, "RFC 2544 23 a", "no routing update before each trial".into());
        note(
            p.routing_update && p.routing_wait < 2.0,
            "RFC 2544 23 a",
            format!("{} s instead of 2 s after the routing update", p.routing_wait),
        );
        note(!p.learning, "RFC 2544 23 b", "no learning frames before each trial".into());
        note(
            p.learning && p.learning_wait < 2.0,
            "RFC 2544 23 b",
            format!("{} s instead of 2 s after the learning frames", p.learning_wait),
        );
        note(p.drain < 2.0, "RFC 2544 23 d", format!("{} s instead of 2 s for residual frames", p.drain));
        note(
            p.restabilise < 5.0,
            "RFC 2544 23 e",
            format!("{} s instead of at least 5 s to restabilise", p.restabilise),
        );
        note(
            loss_ratio > 0.0,
            "RFC 1242 3.17",
            format!("a loss ratio of {loss_ratio} is allowed; throughput is without loss"),
        );
        note(
            self.line.is_none(),
            "RFC 2544 20",
            "the line speed is not known: the highest load is the tester's own ceiling".into(),
        );
        found
    }
}

/// Repeated figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub runs: u32,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// First percentile.
    pub p1: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Standard deviation of the sample; 0 for fewer than two.
    pub deviation: f64,
}

impl Spread {
    /// Of any number of figures; all zero for none. What is not finite is left out.
    pub fn of(values: &[f64]) -> Self {
        let mut v: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        v.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (v.first(), v.last()) else { return Spread::default() };
        let n = v.len() as f64;
        let mean = v.iter().sum::<f64>() / n;
        let squares: f64 = v.iter().map(|x| (x - mean).powi(2)).sum();
        Spread {
            runs: v.len() as u32,
            mean,
            median: quantile(&v, 0.5),
            min: *min,
            max: *max,
            p1: quantile(&v, 0.01),
            p99: quantile(&v, 0.99),
            deviation: if v.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 },
        }
    }
}

/// A value that must be in a range.
pub(super) fn check(
    what: &'static str,
    value: f64,
    is: impl Fn(f64) -> bool,
    wanted: &'static str,
) -> Result<(), ProcedureError> {
    if is(value) { Ok(()) } else { Err(ProcedureError::Value { what, value, wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_load_is_the_lower_of_line_and_tester() {
        let mut setup = Setup::new(10_000_000_000);
        assert_eq!(setup.max_load(&Frames::Size(64)), Ok(14_880_952.0));
        setup.ceiling = Some(9e6);
        assert_eq!(setup.max_load(&Frames::Size(64)), Ok(9e6));
        assert_eq!(setup.max_load(&Frames::Size(1518)), Ok(812_743.0));
        (setup.line, setup.ceiling) = (None, None);
        assert_eq!(setup.max_load(&Frames::Size(64)), Err(ProcedureError::NoMaximum));
    }

    #[test]
    fn deviations_are_those_there_are() {
        let mut setup = Setup::new(1_000_000_000);
        assert_eq!(setup.deviations(60.0, 60.0, 0.0), []);
        setup.phases = Phases::SHORT;
        let clauses: Vec<String> = setup.deviations(1.0, 60.0, 0.005).into_iter().map(|d| d.clause).collect();
        assert_eq!(
            clauses,
            ["RFC 2544 24", "RFC 2544 23 a", "RFC 2544 23 b", "RFC 2544 23 e", "RFC 1242 3.17"]
        );
    }

    #[test]
    fn spreads_are_right() {
        let s = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, f64::NAN]);
        assert_eq!((s.runs, s.mean, s.median, s.min, s.max), (8, 5.0, 4.5, 2.0, 9.0));
        assert!((s.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}

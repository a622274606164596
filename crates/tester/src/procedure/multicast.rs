//! Multicast throughput (RFC 3918 4.3, aggregated): the highest load that reaches every egress port whole.

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup};
use super::throughput::{Throughput, ThroughputRow};
use crate::search::Method;
use crate::trial::{Frames, LossOver, Measurer, Observer, Policy, Runner, Verdict};

/// Throughput where one lossy egress port is enough to fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Multicast {
    /// How it is searched for.
    pub method: Method,
}

/// What was found for a frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MulticastReport {
    /// With what.
    pub setup: Setup,
    /// Throughput of the ingress port; the search with all its trials.
    pub row: ThroughputRow,
    /// By egress port, in the last trial at the throughput.
    pub egress: Vec<Egress>,
    /// What is not as in RFC 3918.
    pub deviations: Vec<Deviation>,
}

/// What an egress port got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Egress {
    /// The port.
    pub port: String,
    /// Copies that were due.
    pub due: u64,
    /// Copies that came.
    pub received: u64,
    /// Frames per second that came.
    pub rate: f64,
}

impl Multicast {
    /// Measures a frame size. The measurer's flows are one for each egress port, their `intended` and `offered` the copies due there.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        runner: &mut Runner<M, O>,
    ) -> Result<MulticastReport, ProcedureError> {
        let worst = Policy { over: LossOver::Worst, ..runner.policy().clone() };
        let before = runner.judge_by(worst);
        let row = Throughput { method: self.method.clone() }.row(setup, frames, runner);
        runner.judge_by(before);
        let row = row?;
        let longest = self.method.final_trial().0;
        let at = row.found.lower.and_then(|load| {
            let fits = |t: &&crate::trial::TrialRecord| {
                t.input.load() == load && t.input.seconds() >= longest && t.output.verdict == Verdict::Valid
            };
            row.search.trials().iter().rev().find(fits)
        });
        let egress = at.map_or_else(Vec::new, |trial| {
            let seconds = trial.output.send_seconds;
            let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
            let of = |f: &crate::trial::FlowCount| Egress {
                port: f.to.clone(),
                due: f.offered,
                received: f.received,
                rate: rate(f.received),
            };
            trial.output.flows.iter().map(of).collect()
        });
        let (seconds, loss_ratio) = self.method.final_trial();
        let mut deviations = setup.deviations(60.0, 60.0, loss_ratio);
        if seconds < 30.0 {
            let what = format!("trials of {seconds} s instead of at least 30 s");
            deviations.push(Deviation { clause: "RFC 3918 4".into(), what });
        }
        Ok(MulticastReport { setup: setup.clone(), row, egress, deviations })
    }
}

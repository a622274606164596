//! Trials one after the other: judged, repeated where void, recorded.

use serde::{Deserialize, Serialize};

use super::input::TrialInput;
use super::measure::{Measurer, Observer, Progress};
use super::output::TrialRecord;
use super::policy::{Policy, Verdict};

/// How a procedure ended. Whatever it is, the result holds what was known by then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All was done.
    #[default]
    Complete,
    /// The observer ended it.
    Stopped,
    /// The next trial would have exceeded the time allowed, in seconds.
    TimeLimit(f64),
    /// A trial was void as often as the policy allows; why.
    Void(String),
    /// The measurer could not carry out a trial; why.
    Failed(String),
}

/// Has trials carried out.
#[derive(Debug)]
pub struct Runner<M, O> {
    measurer: M,
    observer: O,
    policy: Policy,
    time_limit: Option<f64>,
    trace: Vec<TrialRecord>,
    number: u32,
    seconds: f64,
}

impl<M: Measurer, O: Observer> Runner<M, O> {
    /// Trials by `measurer`, judged by `policy`.
    pub fn new(measurer: M, observer: O, policy: Policy) -> Self {
        Runner { measurer, observer, policy, time_limit: None, trace: Vec::new(), number: 0, seconds: 0.0 }
    }

    /// Starts no trial that would end later than so many seconds of trials, waits included, after the first began.
    pub fn within(mut self, seconds: f64) -> Self {
        self.time_limit = Some(seconds);
        self
    }

    /// How trials are judged.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Judges by another policy from here on; returns the one before.
    pub fn judge_by(&mut self, policy: Policy) -> Policy {
        std::mem::replace(&mut self.policy, policy)
    }

    /// Seconds that trials have taken so far, waits included.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The trials since the last call.
    pub fn take_trace(&mut self) -> Vec<TrialRecord> {
        std::mem::take(&mut self.trace)
    }

    /// Carries out a trial, again while it is void and may be repeated.
    ///
    /// # Errors
    /// Why the procedure has to end here.
    pub fn trial(&mut self, input: TrialInput, progress: Progress) -> Result<&TrialRecord, Ending> {
        let progress = Progress { seconds: self.seconds, ..progress };
        let mut attempt = 0;
        loop {
            if self.observer.stop() {
                return Err(Ending::Stopped);
            }
            if let Some(limit) = self.time_limit.filter(|limit| self.seconds + input.whole_seconds() > *limit)
            {
                return Err(Ending::TimeLimit(limit));
            }
            self.observer.started(&input, &progress);
            let mut output = self.measurer.measure(&input).map_err(|e| Ending::Failed(e.to_string()))?;
            let loss_ratio = self.policy.judge(&input, &mut output);
            self.seconds += input.whole_seconds() + (output.send_seconds - input.seconds()).max(0.0);
            self.number += 1;
            let record = TrialRecord {
                number: self.number,
                stage: progress.stage.clone(),
                input: input.clone(),
                output,
                loss_ratio,
            };
            self.observer.ended(&record);
            let void = match &record.output.verdict {
                Verdict::Valid => None,
                Verdict::Void(why) => Some(why.to_string()),
            };
            self.trace.push(record);
            let Some(why) = void else { break };
            if attempt >= self.policy.void_retries {
                return Err(Ending::Void(why));
            }
            attempt += 1;
        }
        // The loop ends only after a record was kept.
        self.trace.last().ok_or(Ending::Stopped)
    }
}

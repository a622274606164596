//! Whether a trial counts, and what counts as loss.

use serde::{Deserialize, Serialize};

use super::input::TrialInput;
use super::output::{FlowCount, TrialOutput};

/// What becomes of frames that were to be sent and were not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsent {
    /// They count as lost (RFC 9971 advises it).
    Loss,
    /// The trial is void.
    Void,
}

/// What becomes of duplicates or of frames out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anomaly {
    /// They are reported, and nothing else.
    Report,
    /// Each counts as a lost frame.
    Loss,
    /// One of them voids the trial.
    Void,
}

/// What the loss ratio of several directions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossOver {
    /// Lost frames of all by frames of all.
    Sum,
    /// That of the direction that has the highest.
    Worst,
}

/// How trials are judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Frames not sent.
    pub unsent: Unsent,
    /// So many seconds' worth of unsent frames are forgiven.
    pub unsent_tolerance: f64,
    /// Sending may take longer than intended by this share; beyond it the trial is void.
    pub stretch: f64,
    /// A worker that stands still for more seconds voids the trial.
    pub stall: f64,
    /// Frames that came twice.
    pub duplicates: Anomaly,
    /// Frames that came out of order.
    pub reordered: Anomaly,
    /// Loss ratio of several directions.
    pub over: LossOver,
    /// A void trial is repeated so often before the procedure gives up.
    pub void_retries: u32,
}

impl Default for Policy {
    /// Unsent frames beyond 10 µs' worth are loss, sending may take 1 % longer, a worker may stand still for 100 ms, duplicates and
    /// reordering are reported, all directions count together, a void trial is repeated twice.
    fn default() -> Self {
        Policy {
            unsent: Unsent::Loss,
            unsent_tolerance: 10e-6,
            stretch: 0.01,
            stall: 0.1,
            duplicates: Anomaly::Report,
            reordered: Anomaly::Report,
            over: LossOver::Sum,
            void_retries: 2,
        }
    }
}

/// Whether a trial counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    #[default]
    Valid,
    /// It does not.
    Void(Void),
}

/// Why a trial does not count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Void {
    /// Nothing was sent.
    #[error("no frame was sent: check that the ports have links and the streams are enabled")]
    NothingSent,
    /// Too little was sent.
    #[error("{offered} of {intended} frames were sent: the tester does not reach this load")]
    Unsent {
        /// Frames to be sent.
        intended: u64,
        /// Frames sent.
        offered: u64,
    },
    /// It took too long.
    #[error("sending took {took:.3} s instead of {intended:.3} s: the load was lower than intended")]
    Stretched {
        /// Seconds it was to take.
        intended: f64,
        /// Seconds it took.
        took: f64,
    },
    /// A worker of the tester stood still.
    #[error(
        "worker {worker} stood still for {seconds:.3} s: what was lost meanwhile may be the tester's own loss"
    )]
    Stalled {
        /// Which.
        worker: String,
        /// For how long.
        seconds: f64,
    },
    /// More came than was sent.
    #[error(
        "{frames} frames more were received than sent from {from} to {to}: frames of another run, or counters read too early"
    )]
    Surplus {
        /// Sending port.
        from: String,
        /// Receiving port.
        to: String,
        /// How many.
        frames: u64,
    },
    /// Frames came twice.
    #[error("{0} frames came twice")]
    Duplicates(u64),
    /// Frames came out of order.
    #[error("{0} frames came out of order")]
    Reordered(u64),
    /// The measurer says why, in a sentence.
    #[error("{0}")]
    Other(String),
}

impl Policy {
    /// Voids what does not count; returns the loss ratio, from 0 to 1.
    pub fn judge(&self, input: &TrialInput, output: &mut TrialOutput) -> f64 {
        let ratios = output.flows.iter().map(|f| self.loss_ratio(input, f));
        let ratio = match self.over {
            LossOver::Sum => self.loss_ratio_of_sum(input, output),
            LossOver::Worst => ratios.fold(0.0, f64::max),
        };
        if output.verdict == Verdict::Valid
            && let Some(void) = self.void(input, output)
        {
            output.verdict = Verdict::Void(void);
        }
        ratio
    }

    fn void(&self, input: &TrialInput, output: &TrialOutput) -> Option<Void> {
        let total = output.total();
        if total.offered == 0 {
            return Some(Void::NothingSent);
        }
        let longest = output.stalls.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        if let Some(stall) = longest.filter(|s| s.seconds > self.stall) {
            return Some(Void::Stalled { worker: stall.worker.clone(), seconds: stall.seconds });
        }
        if let Some(f) = output.flows.iter().find(|f| f.received > f.offered) {
            let frames = f.received - f.offered;
            return Some(Void::Surplus { from: f.from.clone(), to: f.to.clone(), frames });
        }
        let intended = input.seconds();
        if output.send_seconds > intended * (1.0 + self.stretch) {
            return Some(Void::Stretched { intended, took: output.send_seconds });
        }
        let unsent = output.flows.iter().find(|f| f.unsent() > self.forgiven(input, f));
        if let (Unsent::Void, Some(f)) = (self.unsent, unsent) {
            return Some(Void::Unsent { intended: f.intended, offered: f.offered });
        }
        match (self.duplicates, self.reordered) {
            (Anomaly::Void, _) if total.duplicates > 0 => Some(Void::Duplicates(total.duplicates)),
            (_, Anomaly::Void) if total.reordered > 0 => Some(Void::Reordered(total.reordered)),
            _ => None,
        }
    }

    /// Frames that need not have been sent.
    fn forgiven(&self, input: &TrialInput, flow: &FlowCount) -> u64 {
        let seconds = input.seconds();
        let rate = if seconds > 0.0 { flow.intended as f64 / seconds } else { 0.0 };
        (rate * self.unsent_tolerance) as u64
    }

    fn bad(&self, input: &TrialInput, flow: &FlowCount) -> u64 {
        let unsent = flow.unsent();
        let counted = |policy, n| if policy == Anomaly::Loss { n } else { 0 };
        let unsent = if unsent > self.forgiven(input, flow) { unsent } else { 0 };
        (flow.lost() + unsent)
            .saturating_add(counted(self.duplicates, flow.duplicates))
            .saturating_add(counted(self.reordered, flow.reordered))
    }

    fn loss_ratio(&self, input: &TrialInput, flow: &FlowCount) -> f64 {
        ratio(self.bad(input, flow), flow.intended.max(flow.offered))
    }

    fn loss_ratio_of_sum(&self, input: &TrialInput, output: &TrialOutput) -> f64 {
        let bad = output.flows.iter().map(|f| self.bad(input, f)).sum();
        ratio(bad, output.flows.iter().map(|f| f.intended.max(f.offered)).sum())
    }
}

fn ratio(bad: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (bad as f64 / of as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::super::input::{Frames, Plan};
    use super::super::output::Stall;
    use super::*;

    fn judged(policy: &Policy, change: impl FnOnce(&mut TrialOutput)) -> (f64, Verdict) {
        let input = Plan::new(Frames::Size(64)).constant(1e6, 1.0);
        let flow = |from: &str, to: &str| FlowCount {
            from: from.into(),
            to: to.into(),
            intended: 1_000_000,
            offered: 1_000_000,
            received: 1_000_000,
            ..FlowCount::default()
        };
        let mut output = TrialOutput {
            flows: vec![flow("a", "b"), flow("b", "a")],
            send_seconds: 1.0,
            effective_seconds: 1.0,
            ..TrialOutput::default()
        };
        change(&mut output);
        let ratio = policy.judge(&input, &mut output);
        (ratio, output.verdict)
    }

    #[test]
    fn loss_is_of_all_or_of_the_worst() {
        let lose = |o: &mut TrialOutput| o.flows[0].received -= 1000;
        let worst = Policy { over: LossOver::Worst, ..Policy::default() };
        assert_eq!(judged(&Policy::default(), lose), (0.0005, Verdict::Valid));
        assert_eq!(judged(&worst, lose), (0.001, Verdict::Valid));
    }

    #[test]
    fn what_was_not_sent_is_loss_or_void_but_for_ten_microseconds_worth() {
        let unsent = |n: u64| {
            move |o: &mut TrialOutput| {
                o.flows[0].offered -= n;
                o.flows[0].received -= n;
            }
        };
        let void = Policy { unsent: Unsent::Void, ..Policy::default() };
        assert_eq!(judged(&Policy::default(), unsent(10)), (0.0, Verdict::Valid));
        assert_eq!(judged(&Policy::default(), unsent(11)).0, 5.5e-6);
        assert_eq!(
            judged(&void, unsent(11)).1,
            Verdict::Void(Void::Unsent { intended: 1_000_000, offered: 999_989 })
        );
    }

    #[test]
    fn spoilt_trials_are_void() {
        let p = Policy::default();
        let void = |change: fn(&mut TrialOutput)| match judged(&p, change).1 {
            Verdict::Void(why) => why.to_string(),
            Verdict::Valid => String::new(),
        };
        assert!(void(|o| o.send_seconds = 1.7).contains("1.700 s instead of 1.000 s"));
        assert!(
            void(|o| o.flows[1].received += 3).contains("3 frames more were received than sent from b to a")
        );
        assert!(void(|o| o.flows.clear()).starts_with("no frame was sent"));
        assert!(
            void(|o| o.stalls = vec![Stall { worker: "rx0".into(), at: 0.2, seconds: 0.5 }]).contains("rx0")
        );
        assert_eq!(void(|o| o.stalls = vec![Stall { worker: "rx0".into(), at: 0.2, seconds: 0.05 }]), "");
        assert_eq!(
            void(|o| o.verdict = Verdict::Void(Void::Other("the link went down".into()))),
            "the link went down"
        );
    }

    #[test]
    fn duplicates_and_reordering_count_as_the_policy_says() {
        let odd = |o: &mut TrialOutput| (o.flows[0].duplicates, o.flows[0].reordered) = (5, 7);
        let p = |duplicates, reordered| Policy { duplicates, reordered, ..Policy::default() };
        assert_eq!(judged(&p(Anomaly::Report, Anomaly::Report), odd), (0.0, Verdict::Valid));
        assert_eq!(judged(&p(Anomaly::Loss, Anomaly::Loss), odd), (6e-6, Verdict::Valid));
        assert_eq!(judged(&p(Anomaly::Void, Anomaly::Report), odd).1, Verdict::Void(Void::Duplicates(5)));
        assert_eq!(judged(&p(Anomaly::Report, Anomaly::Void), odd).1, Verdict::Void(Void::Reordered(7)));
    }
}

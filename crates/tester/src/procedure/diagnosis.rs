//! What a small residual loss comes from.
//!
//! A loss of some parts per million at full load has many possible causes, and they differ in how it depends on load and time. So trials
//! are made at the load in question, at slightly lower ones (within the ±100 ppm that the clocks of either side may be off, RFC 5180
//! A.1), at 99 % and at half, each with a fine time series. The cause named is the one whose signature fits, with the figures it rests on.

use serde::{Deserialize, Serialize};

use super::series::{Clump, clumps, dispersion, period, rate};
use super::setup::{ProcedureError, Setup, check};
use crate::trial::{
    Ending, FlowCount, Frames, Measurer, Observer, Plan, Progress, Runner, Series, TrialRecord,
};

/// Looks for the cause of loss at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Seconds of each of the six trials.
    pub seconds: f64,
    /// Seconds of a sample of the time series: what happens within one is not told apart.
    pub sample: f64,
}

impl Default for Diagnosis {
    fn default() -> Self {
        Diagnosis { seconds: 30.0, sample: 0.01 }
    }
}

/// By how many parts per million the load is lowered.
const BELOW: [f64; 5] = [50.0, 100.0, 200.0, 10_000.0, 500_000.0];
/// Both clocks may be off by 100 ppm.
const CLOCKS: f64 = 200.0;

/// What loss comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// There is none.
    NoLoss,
    /// The tester did not send what it should have.
    TesterTooSlow,
    /// All of it is at the beginning: caches, flows, neighbours that are not resolved.
    Start,
    /// The device's clock is slower than the tester's, or its own frames take some of the line.
    ClockSkew,
    /// The device stands still at regular times.
    PeriodicStall,
    /// More than the device can forward.
    Capacity,
    /// Each frame is lost with the same probability, whatever the load: bit errors, a bad cable or optic.
    Random,
    /// Loss comes in clumps at irregular times: interrupts, other work on the device's cores.
    Bursts,
    /// No signature fits.
    Unknown,
}

/// A figure that a cause rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what unit.
    pub unit: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiagnosisReport {
    /// With what.
    pub setup: Setup,
    /// The frames.
    pub frames: Frames,
    /// The load in question, in frames per second per port.
    pub load: f64,
    /// The cause.
    pub cause: Cause,
    /// The same in a sentence.
    pub sentence: String,
    /// Figures that it rests on.
    pub facts: Vec<Fact>,
    /// Every trial.
    pub trials: Vec<TrialRecord>,
    /// How it ended. The cause is that by what was measured until then.
    pub ending: Ending,
}

impl Diagnosis {
    /// Looks for the cause of loss at `load`, in frames per second per port.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        load: f64,
        runner: &mut Runner<M, O>,
    ) -> Result<DiagnosisReport, ProcedureError> {
        check("the duration of a trial", self.seconds, |s| s > 0.0 && s.is_finite(), "above 0 s")?;
        let sample = |s: f64| s >= self.seconds * 1e-6 && s <= self.seconds * 0.1;
        check(
            "the interval of samples",
            self.sample,
            sample,
            "at most a tenth of a trial, at least a millionth",
        )?;
        check("the load", load, |l| l > 0.0 && l.is_finite(), "above 0 frames per second")?;
        let plan = Plan { sample: self.sample, ..setup.plan(frames) };
        let (mut seen, mut ending) = (Vec::new(), Ending::Complete);
        for (i, below) in std::iter::once(0.0).chain(BELOW).enumerate() {
            let input = plan.constant(load * (1.0 - below * 1e-6), self.seconds);
            let progress = Progress {
                stage: format!("diagnosis {frames} at {:.4} %", 100.0 - below * 1e-4),
                left: Some((BELOW.len() + 1 - i) as f64 * input.whole_seconds()),
                ..Progress::default()
            };
            match runner.trial(input, progress) {
                Ok(record) => seen.push(Seen::new(below, record)),
                Err(ended) => {
                    ending = ended;
                    break;
                }
            }
            if seen.first().is_some_and(|s| s.lost == 0) {
                break;
            }
        }
        // Elsewhere a clock cannot be what limits.
        let at_line = setup.theoretical(frames).is_none_or(|line| load >= line * (1.0 - CLOCKS * 1e-6));
        let (cause, facts, sentence) = self.judge(&seen, at_line);
        Ok(DiagnosisReport {
            setup: setup.clone(),
            frames: frames.clone(),
            load,
            cause,
            sentence,
            facts,
            trials: runner.take_trace(),
            ending,
        })
    }

    fn judge(&self, seen: &[Seen], at_line: bool) -> (Cause, Vec<Fact>, String) {
        let mut facts = Vec::new();
        let Some(full) = seen.first() else {
            return (Cause::Unknown, facts, "no trial was completed".into());
        };
        for s in seen {
            facts.push(fact(format!("loss_at_{:.4}_percent", 100.0 - s.below * 1e-4), s.loss * 1e6, "ppm"));
        }
        if full.unsent > 0 {
            facts.push(fact("unsent", full.unsent as f64, "frames"));
            let text = format!(
                "the tester itself did not send {} frames: lower the load or give it cores",
                full.unsent
            );
            return (Cause::TesterTooSlow, facts, text);
        }
        if full.lost == 0 {
            return (Cause::NoLoss, facts, "nothing was lost".into());
        }
        let found = self
            .start(full, seen, &mut facts)
            .or_else(|| self.clock(full, seen, at_line, &mut facts))
            .or_else(|| self.stalls(full, seen, &mut facts))
            .or_else(|| self.capacity(full, seen, &mut facts))
            .or_else(|| Self::chance(full, seen, &mut facts));
        let (cause, text) = found.unwrap_or_else(|| {
            (Cause::Unknown, format!("{} frames were lost; no known signature fits", full.lost))
        });
        (cause, facts, text)
    }

    /// All within the first twentieth, at every load.
    fn start(&self, full: &Seen, seen: &[Seen], facts: &mut Vec<Fact>) -> Option<(Cause, String)> {
        let early = |s: &Seen| {
            let first = (s.series.samples.len() / 20).max(1);
            s.series.samples.iter().take(first).map(|x| x.lost).sum::<u64>()
        };
        let fits = |s: &Seen| s.lost > 0 && early(s) as f64 >= 0.99 * s.lost as f64;
        if seen.len() < 3 || !seen.iter().all(fits) {
            return None;
        }
        let last = clumps(&full.series).last().map_or(0.0, |c| c.at + c.seconds);
        facts.push(fact("lost_at_the_beginning", full.lost as f64, "frames"));
        facts.push(fact("over_after", last, "s"));
        let text = format!(
            "all {} frames were lost in the first {last:.2} s of the trial, at every load: caches, flows or neighbours were not ready",
            full.lost
        );
        Some((Cause::Start, text))
    }

    /// Gone within what two clocks may differ, and as much lost as the rates differ.
    fn clock(
        &self,
        full: &Seen,
        seen: &[Seen],
        at_line: bool,
        facts: &mut Vec<Fact>,
    ) -> Option<(Cause, String)> {
        let gone = seen.iter().find(|s| s.below > 0.0 && s.below <= CLOCKS && s.lost == 0)?;
        if seen.iter().any(|s| s.below > gone.below && s.lost > 0) {
            return None;
        }
        // The device's buffers fill first.
        let from = self.seconds * 0.3;
        let sent = rate(&full.series, from, self.seconds, |s| s.sent);
        let received = rate(&full.series, from, self.seconds, |s| s.received);
        if sent.value <= 0.0 {
            return None;
        }
        let ppm = (1.0 - received.value / sent.value) * 1e6;
        let error = (sent.error.powi(2) + received.error.powi(2)).sqrt() / sent.value * 1e6;
        let within = ppm > 0.0 && ppm <= CLOCKS;
        if !within {
            return None;
        }
        facts.push(fact("sent", sent.value, "frames/s"));
        facts.push(fact("received", received.value, "frames/s"));
        facts.push(fact("gone_at", 100.0 - gone.below * 1e-4, "percent of the load"));
        if !at_line {
            return Some((Cause::Capacity, capacity_text(received.value)));
        }
        facts.push(fact("skew", ppm, "ppm"));
        facts.push(fact("skew_error", error, "ppm"));
        let text = format!(
            "the device's ports send {ppm:.1} ppm fewer frames than arrive, and {} ppm below nothing is lost: its clock is slower than the \
             tester's (each may be off by 100 ppm), or frames of its own take that much of the line; this is no loss of the device's",
            gone.below
        );
        Some((Cause::ClockSkew, text))
    }

    /// Clumps at regular times.
    fn stalls(&self, full: &Seen, seen: &[Seen], facts: &mut Vec<Fact>) -> Option<(Cause, String)> {
        let regular = |s: &Seen| {
            let found = clumps(&s.series);
            let (every, variation) = period(&found)?;
            let longest = found.iter().map(|c| c.seconds).fold(0.0, f64::max);
            (variation < 0.25 && longest < every / 2.0).then_some((found, every, variation))
        };
        let (found, every, variation) = regular(full).or_else(|| seen.iter().skip(1).find_map(regular))?;
        let frames = mean_frames(&found);
        facts.push(fact("period", every, "s"));
        facts.push(fact("period_variation", variation * 100.0, "percent"));
        facts.push(fact("frames_a_clump", frames, "frames"));
        let seconds = frames / full.load.max(1.0);
        facts.push(fact("stall_at_least", seconds * 1e3, "ms"));
        let text = format!(
            "{frames:.0} frames are lost every {every:.3} s, as regular as {:.0} %: the device stands still for at least {:.3} ms each time \
             (timer tick, housekeeping, another task on its core)",
            (1.0 - variation) * 100.0,
            seconds * 1e3
        );
        Some((Cause::PeriodicStall, text))
    }

    /// As much comes out whatever goes in.
    fn capacity(&self, full: &Seen, seen: &[Seen], facts: &mut Vec<Fact>) -> Option<(Cause, String)> {
        let from = self.seconds * 0.3;
        let out = |s: &Seen| rate(&s.series, from, self.seconds, |x| x.received).value;
        let lossy: Vec<&Seen> = seen.iter().filter(|s| s.lost > 0).collect();
        let most = out(full);
        let constant = lossy.len() >= 3 && lossy.iter().all(|s| (out(s) / most - 1.0).abs() < 2e-5);
        if !(constant && most > 0.0) {
            return None;
        }
        facts.push(fact("received", most, "frames/s"));
        Some((Cause::Capacity, capacity_text(most)))
    }

    fn chance(full: &Seen, seen: &[Seen], facts: &mut Vec<Fact>) -> Option<(Cause, String)> {
        let half = seen.last().filter(|s| s.below >= 100_000.0)?;
        let uneven = dispersion(&full.series);
        let found = clumps(&full.series);
        facts.push(fact("dispersion", uneven, ""));
        facts.push(fact("clumps", found.len() as f64, ""));
        let error = |s: &Seen| s.loss / (s.lost.max(1) as f64).sqrt();
        let same = (full.loss - half.loss).abs() <= 4.0 * (error(full).powi(2) + error(half).powi(2)).sqrt();
        if same && uneven < 2.0 {
            let text = format!(
                "{:.2} ppm of the frames are lost at any load and at any time, as by chance: bit errors on a link (cable, optic, FEC) \
                 rather than the device's software",
                full.loss * 1e6
            );
            return Some((Cause::Random, text));
        }
        if uneven >= 2.0 && !found.is_empty() {
            let frames = mean_frames(&found);
            facts.push(fact("frames_a_clump", frames, "frames"));
            let text = format!(
                "loss comes in {} clumps of {frames:.0} frames at irregular times: interrupts, other tasks or power states on the device's \
                 cores",
                found.len()
            );
            return Some((Cause::Bursts, text));
        }
        None
    }
}

/// What matters of a trial.
struct Seen {
    /// Parts per million below the load in question.
    below: f64,
    load: f64,
    loss: f64,
    lost: u64,
    unsent: u64,
    series: Series,
}

impl Seen {
    fn new(below: f64, record: &TrialRecord) -> Self {
        let flows = &record.output.flows;
        let forgiven = (record.input.load() * 10e-6) as u64;
        Seen {
            below,
            load: record.input.load() * flows.len().max(1) as f64,
            loss: record.loss_ratio,
            lost: flows.iter().map(FlowCount::lost).sum(),
            unsent: flows.iter().map(FlowCount::unsent).filter(|n| *n > forgiven).sum(),
            series: record.output.series.clone().unwrap_or_default(),
        }
    }
}

fn capacity_text(rate: f64) -> String {
    format!(
        "the device forwards {rate:.0} frames per second in all, however many more it gets: that is its capacity"
    )
}

fn mean_frames(clumps: &[Clump]) -> f64 {
    clumps.iter().map(|c| c.frames as f64).sum::<f64>() / clumps.len().max(1) as f64
}

fn fact(name: impl Into<String>, value: f64, unit: &str) -> Fact {
    Fact { name: name.into(), value, unit: unit.into() }
}

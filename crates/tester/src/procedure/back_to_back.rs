//! Back-to-back frames (RFC 9004, which updates RFC 2544 26.4): how long a burst at line rate the device takes without loss, and what
//! that says about its buffer.

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup, Spread, check};
use crate::search::Bisect;
use crate::trial::{
    Bounds, Ending, Frames, Measurer, Observer, Progress, Runner, Segment, Span, TrialRecord,
};

/// Searches over the length of a burst.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBack {
    /// Searches of each size; RFC 2544 asks for 50.
    pub repetitions: u32,
    /// Longest burst in seconds at line rate; RFC 9004 asks that 30 s be possible.
    pub limit: f64,
    /// Lengths this close are as good as equal, in frames.
    pub resolution: u64,
    /// Trials of a length before it fails, one without loss passes it (loss verification).
    pub trials: u32,
    /// A trial that loses more than this share is not repeated.
    pub hopeless: f64,
}

impl Default for BackToBack {
    fn default() -> Self {
        BackToBack { repetitions: 50, limit: 30.0, resolution: 10, trials: 2, hopeless: 0.1 }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstReport {
    /// With what.
    pub setup: Setup,
    /// How: the resolution is among it.
    pub procedure: BackToBack,
    /// By frame size.
    pub rows: Vec<BurstRow>,
    /// What is not as in the RFCs.
    pub deviations: Vec<Deviation>,
    /// How it ended.
    pub ending: Ending,
}

/// Why there is no figure for a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalid {
    /// Its throughput is what the line carries: no burst can fill the buffer.
    ThroughputIsLineRate,
    /// Bursts up to the limit passed: the buffer is not what ends them.
    NearLimit,
    /// Not even the shortest burst passed.
    NothingPasses,
    /// RFC 9004 allows no mix of sizes.
    Mix,
    /// The tester does not reach line rate.
    TesterTooSlow,
    /// It was ended before the first search was done.
    Unfinished,
}

/// What was found for a frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BurstRow {
    /// The frames.
    pub frames: Frames,
    /// What the line carries, in frames per second per port.
    pub theoretical: f64,
    /// Throughput that was measured before, in frames per second per port.
    pub throughput: f64,
    /// Longest bursts without loss, in frames per port: the mean is the benchmark.
    pub burst: Spread,
    /// Each search's own.
    pub lengths: Vec<u64>,
    /// Mean burst as seconds at line rate.
    pub implied_buffer_seconds: Option<f64>,
    /// The same without what was forwarded meanwhile.
    pub corrected_buffer_seconds: Option<f64>,
    /// Why the figures do not hold, where they do not.
    pub invalid: Option<Invalid>,
    /// Every trial.
    pub trials: Vec<TrialRecord>,
}

impl BackToBack {
    /// Measures each case: frames and their throughput, measured before with the same flows and directions.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        cases: &[(Frames, f64)],
        runner: &mut Runner<M, O>,
    ) -> Result<BurstReport, ProcedureError> {
        check("the limit of a burst", self.limit, |s| s > 0.0 && s <= 3600.0, "above 0 s, at most an hour")?;
        check("the number of repetitions", self.repetitions.into(), |n| n >= 1.0, "at least 1")?;
        check("the number of trials of a length", self.trials.into(), |n| n >= 1.0, "at least 1")?;
        if cases.is_empty() {
            return Err(ProcedureError::NoCase);
        }
        let mut deviations = setup.deviations(60.0, 60.0, 0.0);
        let mut note =
            |clause: &str, what: String| deviations.push(Deviation { clause: clause.into(), what });
        if self.repetitions < 50 {
            note("RFC 2544 26.4", format!("{} searches instead of 50", self.repetitions));
        }
        if self.limit < 30.0 {
            note("RFC 9004 5.1", format!("bursts of at most {} s instead of 30 s", self.limit));
        }
        if self.trials < 2 {
            note("RFC 9004 5.1", "lengths that failed once were not verified".into());
        }
        let (mut rows, mut ending) = (Vec::new(), Ending::Complete);
        for (frames, throughput) in cases {
            let theoretical = setup.theoretical(frames).ok_or(ProcedureError::NoMaximum)?;
            check("a throughput", *throughput, |t| t > 0.0 && t.is_finite(), "above 0 frames per second")?;
            let mut row = BurstRow {
                frames: frames.clone(),
                theoretical,
                throughput: *throughput,
                burst: Spread::default(),
                lengths: Vec::new(),
                implied_buffer_seconds: None,
                corrected_buffer_seconds: None,
                invalid: cannot(setup, frames, theoretical, *throughput),
                trials: Vec::new(),
            };
            if row.invalid.is_none()
                && let Err(ended) = self.row(setup, &mut row, runner)
            {
                ending = ended;
            }
            row.trials = runner.take_trace();
            rows.push(row);
            if ending != Ending::Complete {
                break;
            }
        }
        Ok(BurstReport { setup: setup.clone(), procedure: self.clone(), rows, deviations, ending })
    }

    fn row<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        row: &mut BurstRow,
        runner: &mut Runner<M, O>,
    ) -> Result<(), Ending> {
        let longest = (self.limit * row.theoretical) as u64;
        let mut ended = Ok(());
        row.invalid = Some(Invalid::Unfinished);
        for n in 0..self.repetitions {
            let mut bisect = Bisect::new(1, longest, self.resolution);
            ended = self.search(setup, row, n, &mut bisect, runner);
            if ended.is_err() {
                break;
            }
            match (bisect.passed(), bisect.failed()) {
                (_, None) => {
                    row.invalid = Some(Invalid::NearLimit);
                    return Ok(());
                }
                // Within a twentieth of the limit it is not known what ended the burst.
                (Some(length), _) if length as f64 > longest as f64 * 0.95 => {
                    row.invalid = Some(Invalid::NearLimit);
                    return Ok(());
                }
                (None, _) => {
                    row.invalid = Some(Invalid::NothingPasses);
                    return Ok(());
                }
                (Some(length), _) => {
                    row.lengths.push(length);
                    row.invalid = None;
                }
            }
        }
        if !row.lengths.is_empty() {
            row.burst = Spread::of(&row.lengths.iter().map(|l| *l as f64).collect::<Vec<f64>>());
            let implied = row.burst.mean / row.theoretical;
            row.implied_buffer_seconds = Some(implied);
            row.corrected_buffer_seconds = Some(implied * (1.0 - row.throughput / row.theoretical));
        }
        ended
    }

    fn search<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        row: &BurstRow,
        repetition: u32,
        bisect: &mut Bisect,
        runner: &mut Runner<M, O>,
    ) -> Result<(), Ending> {
        while let Some(length) = bisect.next_try() {
            let mut plan = setup.plan(&row.frames);
            // The buffer drains at throughput; then come the 2 s of silence.
            let backlog = length as f64 * (1.0 - row.throughput / row.theoretical);
            plan.phases.drain = plan.phases.drain.max(2.0) + backlog / row.throughput;
            let input = plan.trial(vec![Segment { load: row.theoretical, span: Span::Frames(length) }]);
            let mut passed = false;
            for _ in 0..self.trials {
                let bound = |length: Option<u64>| length.map(|l| l as f64);
                let progress = Progress {
                    stage: format!("back-to-back {} {}/{}", row.frames, repetition + 1, self.repetitions),
                    bounds: vec![Bounds {
                        goal: "burst".into(),
                        lower: bound(bisect.passed()),
                        upper: bound(bisect.failed()),
                    }],
                    seconds: 0.0,
                    left: Some(
                        f64::from(bisect.left() + 20 * (self.repetitions - repetition - 1))
                            * input.whole_seconds(),
                    ),
                };
                let loss = runner.trial(input.clone(), progress)?.loss_ratio;
                passed = loss == 0.0;
                if passed || loss > self.hopeless {
                    break;
                }
            }
            bisect.tried(length, passed);
        }
        Ok(())
    }
}

impl BurstRow {
    /// Buffer time for frames that arrive at another rate than the line's, in seconds (RFC 9004 6).
    pub fn buffer_seconds_at(&self, rate: f64) -> Option<f64> {
        self.corrected_buffer_seconds.filter(|_| rate > 0.0).map(|s| s * self.theoretical / rate)
    }
}

fn cannot(setup: &Setup, frames: &Frames, theoretical: f64, throughput: f64) -> Option<Invalid> {
    match frames {
        Frames::Mix { .. } => Some(Invalid::Mix),
        // A frame a second less is rounding.
        Frames::Size(_) if throughput >= theoretical - 1.0 => Some(Invalid::ThroughputIsLineRate),
        Frames::Size(_) if setup.ceiling.is_some_and(|c| c < theoretical - 1.0) => {
            Some(Invalid::TesterTooSlow)
        }
        Frames::Size(_) => None,
    }
}

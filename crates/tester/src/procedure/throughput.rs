//! Throughput over frame sizes (RFC 2544 26.1).

use serde::{Deserialize, Serialize};

use super::setup::{Deviation, ProcedureError, Setup};
use crate::search::{Found, Method, MethodResult};
use crate::trial::{Ending, Frames, Measurer, Observer, Runner, TrialRecord};

/// The highest loads without loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// How they are searched for.
    pub method: Method,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputReport {
    /// With what.
    pub setup: Setup,
    /// How.
    pub method: Method,
    /// By frame size.
    pub rows: Vec<ThroughputRow>,
    /// What is not as in RFC 2544.
    pub deviations: Vec<Deviation>,
    /// How it ended.
    pub ending: Ending,
}

/// What was found for a frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputRow {
    /// The frames.
    pub frames: Frames,
    /// What the line carries, in frames per second per port.
    pub theoretical: Option<f64>,
    /// Highest load tried, in frames per second per port.
    pub max_load: f64,
    /// Bounds and throughput for the first goal, in frames per second per port.
    pub found: Found,
    /// Throughput of all sending ports together, in frames per second.
    pub aggregate: Option<f64>,
    /// Throughput in percent of what the line carries.
    pub percent_of_line: Option<f64>,
    /// Bits per second per port with preamble and gap.
    pub l1_bits_per_second: Option<f64>,
    /// Bits per second per port, FCS included.
    pub l2_bits_per_second: Option<f64>,
    /// The search with all its trials.
    pub search: MethodResult,
}

impl Throughput {
    /// Measures all sizes, one after the other, until one cannot be finished.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        sizes: &[Frames],
        runner: &mut Runner<M, O>,
    ) -> Result<ThroughputReport, ProcedureError> {
        if sizes.is_empty() {
            return Err(ProcedureError::NoCase);
        }
        let mut rows = Vec::new();
        let mut ending = Ending::Complete;
        for frames in sizes {
            let row = self.row(setup, frames, runner)?;
            ending = row.search.ending().clone();
            rows.push(row);
            if ending != Ending::Complete {
                break;
            }
        }
        let (seconds, loss_ratio) = self.method.final_trial();
        Ok(ThroughputReport {
            setup: setup.clone(),
            method: self.method.clone(),
            rows,
            deviations: setup.deviations(seconds, 60.0, loss_ratio),
            ending,
        })
    }

    /// Measures one size.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn row<M: Measurer, O: Observer>(
        &self,
        setup: &Setup,
        frames: &Frames,
        runner: &mut Runner<M, O>,
    ) -> Result<ThroughputRow, ProcedureError> {
        let max_load = setup.max_load(frames)?;
        let min_load = setup.min_load.min(max_load);
        let search = self.method.run(min_load, max_load, &setup.plan(frames), runner)?;
        let found = search.found();
        let theoretical = setup.theoretical(frames);
        let senders = search.trials().last().map_or(0, senders);
        Ok(ThroughputRow {
            frames: frames.clone(),
            theoretical,
            max_load,
            found,
            aggregate: found.throughput.map(|t| t * senders as f64),
            percent_of_line: found.throughput.zip(theoretical).map(|(t, line)| t / line * 100.0),
            l1_bits_per_second: found.throughput.map(|t| t * frames.line_bits()),
            l2_bits_per_second: found.throughput.map(|t| t * frames.mean() * 8.0),
            search,
        })
    }
}

/// Ports that sent in a trial.
fn senders(trial: &TrialRecord) -> usize {
    let mut ports: Vec<&str> = trial.output.flows.iter().map(|f| f.from.as_str()).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.len()
}

//! Throughput against cores per port.

use serde::{Deserialize, Serialize};

use super::setup::{ProcedureError, Setup};
use super::throughput::{Throughput, ThroughputRow};
use crate::search::Method;
use crate::trial::{Ending, Frames, Measurer, Observer, Policy, Runner};

/// The same throughput test with one number of cores after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    /// How throughput is searched for.
    pub method: Method,
}

/// What was found for a frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresReport {
    /// With what.
    pub setup: Setup,
    /// The frames.
    pub frames: Frames,
    /// By number of cores.
    pub rows: Vec<CoresRow>,
    /// How it ended.
    pub ending: Ending,
}

/// What was found with so many cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoresRow {
    /// Cores of each port.
    pub cores: u32,
    /// What the first row would come to with so many cores, at most the line, in frames per second per port.
    pub ideal: Option<f64>,
    /// Throughput as a share of that.
    pub efficiency: Option<f64>,
    /// The search.
    pub throughput: ThroughputRow,
}

impl Cores {
    /// Measures each number of cores; `device` sets the device up with it.
    ///
    /// # Errors
    /// The procedure makes no sense.
    pub fn run<M: Measurer, O: Observer, E: std::error::Error>(
        &self,
        setup: &Setup,
        frames: &Frames,
        cores: &[u32],
        policy: &Policy,
        mut observer: O,
        mut device: impl FnMut(u32) -> Result<M, E>,
    ) -> Result<CoresReport, ProcedureError> {
        if cores.is_empty() || cores.contains(&0) {
            return Err(ProcedureError::NoCase);
        }
        let (mut rows, mut ending) = (Vec::<CoresRow>::new(), Ending::Complete);
        for &n in cores {
            let measurer = match device(n) {
                Ok(measurer) => measurer,
                Err(why) => {
                    ending = Ending::Failed(format!("{n} cores per port: {why}"));
                    break;
                }
            };
            let mut runner = Runner::new(measurer, &mut observer, policy.clone());
            let throughput = Throughput { method: self.method.clone() }.row(setup, frames, &mut runner)?;
            ending = throughput.search.ending().clone();
            let first = rows
                .first()
                .map_or((n, throughput.found.throughput), |r| (r.cores, r.throughput.found.throughput));
            let scaled = first.1.map(|t| t * f64::from(n) / f64::from(first.0));
            let ideal = scaled.map(|t| throughput.theoretical.map_or(t, |line| t.min(line)));
            let efficiency = throughput.found.throughput.zip(ideal).map(|(t, ideal)| t / ideal);
            rows.push(CoresRow { cores: n, ideal, efficiency, throughput });
            if ending != Ending::Complete {
                break;
            }
        }
        Ok(CoresReport { setup: setup.clone(), frames: frames.clone(), rows, ending })
    }
}

//! The procedures of the RFCs, each a few lines over trials and searches.
//!
//! Every procedure takes a [`Setup`] and a [`Runner`](crate::trial::Runner), and returns a report: figures, the trials they come from, how it
//! ended, and every [`Deviation`] from the RFC as data. A procedure that is ended early reports what it has.
//!
//! | procedure | source |
//! |---|---|
//! | [`Throughput`] | RFC 2544 26.1, by any [`Method`](crate::search::Method) |
//! | [`Latency`] | RFC 2544 26.2 with the statistics of RFC 8219 7 |
//! | [`FrameLoss`] | RFC 2544 26.3 |
//! | [`BackToBack`] | RFC 9004 |
//! | [`Recovery`] | RFC 2544 26.5 |
//! | [`ResetTest`] | RFC 6201 |
//! | [`Multicast`] | RFC 3918 4.3, per egress |
//! | [`Cores`] | throughput against cores per port |
//! | [`Diagnosis`] | what small residual loss comes from |

mod back_to_back;
mod cores;
mod diagnosis;
mod frame_loss;
mod latency;
mod multicast;
mod recovery;
mod reset;
mod series;
mod setup;
mod throughput;

pub use back_to_back::{BackToBack, BurstReport, BurstRow, Invalid};
pub use cores::{Cores, CoresReport, CoresRow};
pub use diagnosis::{Cause, Diagnosis, DiagnosisReport, Fact};
pub use frame_loss::{FrameLoss, LossReport, LossRow};
pub use latency::{Definition, Latency, LatencyReport, LatencyRow};
pub use multicast::{Egress, Multicast, MulticastReport};
pub use recovery::{Recovery, RecoveryReport, RecoveryRun};
pub use reset::{ResetMethod, ResetReport, ResetRun, ResetTest};
pub use setup::{Deviation, ProcedureError, Setup, Spread};
pub use throughput::{Throughput, ThroughputReport, ThroughputRow};

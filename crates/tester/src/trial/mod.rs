//! One trial: what is asked for, what came of it, and whether it counts.
//!
//! A trial follows RFC 2544 23: announce routes and learn addresses, send, **stop, drain, then read counters**, rest. Whoever can carry
//! one out is a [`Measurer`]: the runtime that drives ports, or a simulated device ([`crate::simulate`]). Procedures never call it
//! themselves: a [`Runner`] does, which judges each trial by the [`Policy`], repeats those that are void, keeps the full trace and
//! tells an [`Observer`] how far things are.
//!
//! Units: loads are frames per second **per sending port**, sizes include the FCS, times are seconds, delays nanoseconds.

mod input;
mod measure;
mod output;
mod policy;
mod runner;

pub use input::{Frames, Phases, Plan, Reset, ResetKind, Segment, Span, TrialInput};
pub use measure::{Bounds, Measurer, Observer, Progress, Silent};
pub use output::{FlowCount, Outage, Sample, Series, Stall, TrialOutput, TrialRecord};
pub use policy::{Anomaly, LossOver, Policy, Unsent, Verdict, Void};
pub use runner::{Ending, Runner};

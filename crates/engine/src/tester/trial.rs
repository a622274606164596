//! What workers are told to do in a trial, and what they tell of it.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use linerate_tester::pace::Pacer;
use linerate_tester::receive::{Received, Receiver};
use linerate_tester::source::{FrameReader, FrameSource};

/// One stream, or one worker's part of it, to be sent by a port.
pub struct Job<P> {
    /// Number of the stream.
    pub stream: usize,
    /// Makes its frames.
    pub source: Box<dyn FrameSource<P>>,
    /// Says when.
    pub pacer: Pacer,
}

/// What a worker is told.
pub(super) enum Order<P> {
    /// A trial begins.
    Begin(Box<Begin<P>>),
    /// Nothing more is sent: pacers are closed.
    Stop,
    /// The trial is over: tell what came of it.
    Collect(Sender<Report>),
    /// End.
    Quit,
}

/// A worker's part of a trial.
pub(super) struct Begin<P> {
    /// By outlet of this worker.
    pub(super) jobs: Vec<Vec<Job<P>>>,
    /// By inlet of this worker.
    pub(super) receivers: Vec<Receiver>,
    /// Knows the trial's frames.
    pub(super) reader: Arc<dyn FrameReader<P>>,
    /// The tick at which sending begins, from which seconds are counted.
    pub(super) start: u64,
    /// Room for what happened in each second.
    pub(super) seconds: Vec<Second>,
}

/// What a worker tells of a trial.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) sent: Vec<Sent>,
    /// By port of each inlet.
    pub(super) received: Vec<(usize, Received)>,
    pub(super) seconds: Vec<Second>,
    pub(super) stalls: Stalls,
}

/// What left of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of the stream.
    pub stream: usize,
    /// The port it left by.
    pub port: usize,
    /// Frames that the device took.
    pub frames: u64,
    /// Their bytes without FCS.
    pub bytes: u64,
    /// Frames that were due.
    pub intended: u64,
    /// Frames that were given up because the thread came too late.
    pub missed: u64,
    /// Frames made that the device did not take before the trial was collected.
    pub refused: u64,
    /// Frames that were due when no packet buffer was left.
    pub no_buffer: u64,
    /// Frames that did not fit into a buffer.
    pub unfit: u64,
    /// Most frames in one go.
    pub largest_burst: u32,
    /// Longest that a frame left after it was due, in ticks.
    pub latest: u64,
    /// When the device took the first and the last, in ticks; 0: none.
    pub first: u64,
    /// See `first`.
    pub last: u64,
}

/// What happened in one second of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Frames that left.
    pub sent: u64,
    /// Frames of the run that came.
    pub received: u64,
    /// Sum of their delays, in ticks.
    pub delay_sum: u64,
    /// The longest of them.
    pub delay_max: u64,
    /// The longest time a worker did not look at its queues, in ticks.
    pub longest_gap: u64,
}

impl Second {
    /// Adds what another worker saw in the same second.
    pub fn join(&mut self, other: &Second) {
        self.sent += other.sent;
        self.received += other.received;
        self.delay_sum += other.delay_sum;
        self.delay_max = self.delay_max.max(other.delay_max);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

/// Times at which a worker was away from its queues for too long: the tester's own faults, which are no device's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How often.
    pub count: u64,
    /// The longest, in ticks.
    pub longest: u64,
    /// The first of them: when after the start and for how long, in ticks.
    pub first: Vec<(u64, u64)>,
}

/// Stalls that are told one by one.
const TOLD: usize = 32;

impl Stalls {
    pub(super) fn note(&mut self, at: u64, length: u64) {
        self.count += 1;
        self.longest = self.longest.max(length);
        if self.first.len() < TOLD {
            self.first.push((at, length));
        }
    }

    /// Adds those of another worker.
    pub fn join(&mut self, other: Stalls) {
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
        self.first.extend(other.first);
        self.first.sort_unstable();
        self.first.truncate(TOLD);
    }
}

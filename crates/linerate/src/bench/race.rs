//! Contenders in one process, in turn, on the same keys.

use super::{
    keys::{Drawn, Trace, draw},
    routes::Routes,
    stats::{quantile, timed},
};
use linerate_tables::fib::Lookup;
use std::{hint::black_box, ops::Range, sync::Arc};

/// Addresses of one call, as a worker's batch.
pub(super) const BATCH: usize = 256;

/// Keys of one timed sample.
const SAMPLE: usize = 1 << 18;

/// The keys of each trace.
pub(super) struct KeySet<A>([Vec<A>; 3]);

/// Looks up a range of a trace's keys in batches; returns the sum of the answers.
pub(super) type Run<'a> = Box<dyn FnMut(Trace, Range<usize>, &mut Work) -> u64 + 'a>;

/// One implementation in the race.
pub(super) struct Contender<'a> {
    pub(super) name: String,
    pub(super) run: Run<'a>,
}

/// What a forwarding loop does between two lookups: touches two cache lines of each packet.
pub(super) struct Work {
    buffers: Vec<[u64; 256]>,
    next: usize,
}

/// Nanoseconds per key: for each trace and contender, the median sample of each round.
pub(super) struct Times(Vec<Vec<Vec<f64>>>);

impl<A: Drawn> KeySet<A> {
    pub(super) fn new(routes: &Routes<A>, n: usize) -> Arc<Self> {
        Arc::new(KeySet(Trace::ALL.map(|trace| draw(trace, routes, n))))
    }

    pub(super) fn of(&self, trace: Trace) -> &[A] {
        &self.0[trace as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.0[0].len()
    }
}

impl Work {
    /// No work.
    pub(super) fn none() -> Self {
        Work { buffers: Vec::new(), next: 0 }
    }

    /// 8,192 buffers of 2 KiB: more than the second-level cache holds.
    pub(super) fn packets() -> Self {
        Work { buffers: vec![[1; 256]; 8_192], next: 0 }
    }

    /// The work for `n` packets.
    pub(super) fn touch(&mut self, n: usize) {
        if self.buffers.is_empty() {
            return;
        }
        for _ in 0..n {
            let buffer = &mut self.buffers[self.next];
            buffer[16] = buffer[16].wrapping_add(buffer[24]);
            self.next = (self.next + 1) % 8_192;
        }
    }
}

impl Times {
    /// Of one trace and contender, one value a round.
    pub(super) fn of(&self, trace: usize, contender: usize) -> &[f64] {
        &self.0[trace][contender]
    }

    /// How many times faster `ours` is than `peer`, each round; `floor` is taken off both.
    pub(super) fn ratios(&self, trace: usize, ours: usize, peer: usize, floor: Option<usize>) -> Vec<f64> {
        let net = |i: usize, round: usize| {
            self.0[trace][i][round] - floor.map_or(0.0, |floor| self.0[trace][floor][round])
        };
        (0..self.0[trace][ours].len()).map(|round| net(peer, round) / net(ours, round)).collect()
    }
}

/// A reader of ours.
pub(super) fn reader<'a, A: Drawn>(
    name: impl Into<String>,
    reader: impl Lookup<A> + 'a,
    keys: &Arc<KeySet<A>>,
) -> Contender<'a> {
    let keys = Arc::clone(keys);
    let run = move |trace, range: Range<usize>, work: &mut Work| {
        let mut out = [0u32; BATCH];
        let mut sum = 0u64;
        for batch in keys.of(trace)[range].chunks(BATCH) {
            reader.lookup_batch(batch, &mut out);
            sum += out.iter().map(|&nh| u64::from(nh)).sum::<u64>();
            work.touch(batch.len());
        }
        sum
    };
    Contender { name: name.into(), run: Box::new(run) }
}

/// Only the work between the batches.
pub(super) fn floor<'a>() -> Contender<'a> {
    let run = |_, range: Range<usize>, work: &mut Work| {
        for _ in range.step_by(BATCH) {
            work.touch(BATCH);
        }
        0
    };
    Contender { name: "work".into(), run: Box::new(run) }
}

/// Runs everyone on everything, `rounds` times, beginning with another contender each time.
pub(super) fn race(
    contenders: &mut [Contender<'_>],
    traces: &[Trace],
    keys: usize,
    rounds: usize,
    work: &mut Work,
) -> Times {
    let mut times = vec![vec![Vec::new(); contenders.len()]; traces.len()];
    for round in 0..rounds {
        for (t, &trace) in traces.iter().enumerate() {
            for i in 0..contenders.len() {
                let i = (i + round) % contenders.len();
                let run = &mut contenders[i].run;
                black_box(run(trace, 0..SAMPLE.min(keys), work));
                let samples: Vec<f64> = (0..keys)
                    .step_by(SAMPLE)
                    .map(|from| {
                        let range = from..(from + SAMPLE).min(keys);
                        let n = range.len() as f64;
                        timed(|| black_box(run(trace, range, work))).0 / n
                    })
                    .collect();
                times[t][i].push(quantile(&samples, 0.5));
            }
        }
    }
    Times(times)
}

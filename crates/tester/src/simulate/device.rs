//! A simulated device, as a measurer.

use super::behaviour::Behaviour;
use super::fluid::{Piece, Queue};
use super::random::losses;
use crate::receive::delay::DelaySummary;
use crate::rng::Rng;
use crate::trial::{FlowCount, Measurer, Outage, Sample, Series, TrialInput, TrialOutput, Verdict};

/// Time that moves by less is no progress: what rounding of seconds may come to.
const INSTANT: f64 = 1e-12;

/// Why there is no trial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// It has died.
    #[error("the simulated device stopped answering after {0} trials")]
    Dead(u32),
}

/// A device that exists in numbers alone.
#[derive(Clone, Debug)]
pub struct Device {
    behaviour: Behaviour,
    rng: Rng,
    clock: f64,
    trials: u32,
}

impl Device {
    /// A device whose random numbers depend on `seed` alone.
    pub fn new(behaviour: Behaviour, seed: u64) -> Self {
        Device { behaviour, rng: Rng::new(seed), clock: 0.0, trials: 0 }
    }

    /// Seconds since the device was made, by its virtual clock.
    pub fn clock(&self) -> f64 {
        self.clock
    }

    /// What it does.
    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// Frames per second of one direction that get out.
    fn service(&self, trial: &TrialInput) -> f64 {
        let line =
            self.behaviour.line as f64 / trial.frames.line_bits() * (1.0 - self.behaviour.skew_ppm * 1e-6);
        // Where loss grows slowly, the excess is not lost in the queue.
        match (self.behaviour.capacity, self.behaviour.slope) {
            (Some(capacity), None) => line.min(capacity),
            _ => line,
        }
    }

    /// Share of the frames at a load that never gets to the queue.
    fn dropped(&self, load: f64) -> f64 {
        match (self.behaviour.capacity, self.behaviour.slope) {
            (Some(capacity), Some(slope)) if load > capacity => (slope * (load / capacity - 1.0)).min(1.0),
            _ => 0.0,
        }
    }

    /// Seconds until the device stops or goes on, and whether it stands still now.
    fn stall(&self, now: f64) -> (f64, bool) {
        let Some(stall) = self.behaviour.stall.filter(|s| s.seconds > 0.0 && s.period > s.seconds) else {
            return (f64::INFINITY, false);
        };
        let phase = now.rem_euclid(stall.period);
        let begin = stall.period - stall.seconds;
        if phase + INSTANT < begin { (begin - phase, false) } else { (stall.period - phase, true) }
    }

    /// One direction's traffic: the queue afterwards, its samples, and how long sending took.
    fn direction(&self, trial: &TrialInput, begin: f64) -> (Queue, Vec<Sample>, f64) {
        let serve = self.service(trial);
        let mut queue = Queue::new(self.behaviour.buffer);
        queue.lose_first((self.behaviour.first_lost as f64).min(trial.intended() as f64));
        let loads = trial.segments.iter().map(|s| {
            let load = self.behaviour.tester_ceiling.map_or(s.load, |most| s.load.min(most));
            // What is counted in frames takes longer where the tester is slow, what is counted in seconds is less.
            let seconds = s.seconds()
                * if matches!(s.span, crate::trial::Span::Frames(_)) { s.load / load } else { 1.0 };
            (load, seconds)
        });
        let sending: Vec<(f64, f64)> =
            loads.filter(|(load, seconds)| *load > 0.0 && *seconds > 0.0).collect();
        let took: f64 = sending.iter().map(|s| s.1).sum();
        let outage = trial.reset.map(|r| (r.at, r.at + self.behaviour.reset));
        let (mut t, mut samples, mut known) = (0.0, Vec::new(), (0, 0, 0));
        let mut overloaded = false;
        for (load, seconds) in sending.into_iter().chain([(0.0, trial.phases.drain)]) {
            let start = t;
            let end = start + seconds;
            let recovered = if overloaded && load > 0.0 { start + self.behaviour.recovery } else { start };
            while t + INSTANT < end {
                let (edge, still) = self.stall(begin + t);
                let mut next = end.min(t + edge.max(INSTANT));
                if trial.sample > 0.0 {
                    next = next.min((samples.len() + 1) as f64 * trial.sample);
                }
                let silent = outage.is_some_and(|(from, to)| from <= t + INSTANT && t + INSTANT < to);
                for at in [Some(recovered), outage.map(|o| o.0), outage.map(|o| o.1)].into_iter().flatten() {
                    if at > t + INSTANT {
                        next = next.min(at);
                    }
                }
                let drop = match (silent, t + INSTANT < recovered) {
                    (true, _) => 1.0,
                    (false, true) => 0.5,
                    (false, false) => self.dropped(load),
                };
                let serve = if still || silent { 0.0 } else { serve };
                queue.pass(&Piece { at: t, seconds: next - t, arrive: load, drop, serve });
                t = next;
                if trial.sample > 0.0 && t + INSTANT >= (samples.len() + 1) as f64 * trial.sample {
                    samples.push(sample(&queue, &mut known));
                }
            }
            overloaded = load > serve || self.dropped(load) > 0.0;
        }
        queue.close();
        if trial.sample > 0.0 {
            let rest = sample(&queue, &mut known);
            if rest != Sample::default() {
                samples.push(rest);
            }
        }
        (queue, samples, took)
    }

    fn latency(&mut self, queue: &Queue, received: u64, serve: f64) -> Option<DelaySummary> {
        if received == 0 {
            return None;
        }
        let own = self.behaviour.delay + self.rng.below(self.behaviour.jitter + 1);
        let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];
        let (mean, waited) = queue.waited(shares);
        let ns = |frames: f64| own + (frames / serve.max(1e-9) * 1e9) as u64;
        let [min, p50, p90, p99, p99_9, p99_99, max] = waited.map(ns);
        Some(DelaySummary {
            count: received,
            min,
            mean: own as f64 + mean / serve.max(1e-9) * 1e9,
            p50,
            p90,
            p99,
            p99_9,
            p99_99,
            max,
            pdv: p99_9 - min,
            curve: shares.iter().zip(waited).map(|(s, w)| (s * 100.0, ns(w))).collect(),
            ..DelaySummary::default()
        })
    }
}

impl Measurer for Device {
    type Error = DeviceError;

    fn measure(&mut self, trial: &TrialInput) -> Result<TrialOutput, DeviceError> {
        if let Some(most) = self.behaviour.dies_after.filter(|most| self.trials >= *most) {
            return Err(DeviceError::Dead(most));
        }
        self.trials += 1;
        let p = &trial.phases;
        let before = p.seconds() - p.drain - p.restabilise;
        let (queue, fluid, took) = self.direction(trial, self.clock + before);
        self.clock += before + took + p.drain + p.restabilise;
        let transient =
            self.behaviour.transient_every > 0 && self.trials.is_multiple_of(self.behaviour.transient_every);
        let intended = trial.intended();
        // Sums of fractions may be a frame off what was asked for.
        let offered = if queue.sent().abs_diff(intended) <= 1 { intended } else { queue.sent() };
        let directions = self.behaviour.directions.max(1);
        let mut samples = vec![Sample::default(); fluid.len()];
        let mut flows = Vec::new();
        let mut random_lost = false;
        for direction in 0..directions {
            let mut lost = queue.lost() + if transient { 3 } else { 0 };
            for (sum, one) in samples.iter_mut().zip(&fluid) {
                let random = losses(&mut self.rng, one.received, self.behaviour.random_loss);
                sum.sent += one.sent;
                sum.received += one.received - random;
                sum.lost += one.lost + random;
                lost += random;
            }
            if fluid.is_empty() {
                lost += losses(&mut self.rng, offered - lost.min(offered), self.behaviour.random_loss);
            }
            random_lost |= lost > queue.lost();
            flows.push(FlowCount {
                from: format!("port{direction}"),
                to: format!("port{}", if directions == 1 { 1 } else { direction ^ 1 }),
                intended,
                offered,
                received: offered - lost.min(offered),
                ..FlowCount::default()
            });
        }
        let received = flows.iter().map(|f| f.received).sum();
        let latency = self.latency(&queue, received, self.service(trial));
        let silence = trial.reset.filter(|_| self.behaviour.reset > 0.0);
        Ok(TrialOutput {
            flows,
            send_seconds: took,
            effective_seconds: took.max(trial.seconds()),
            latency,
            series: (trial.sample > 0.0).then_some(Series { interval: trial.sample, samples }),
            stalls: Vec::new(),
            last_lost: if random_lost { queue.last_lost().or(Some(took)) } else { queue.last_lost() },
            outage: silence.map(|r| Outage { last_before: r.at, first_after: r.at + self.behaviour.reset }),
            verdict: Verdict::Valid,
        })
    }
}

/// What has happened since the last sample.
fn sample(queue: &Queue, known: &mut (u64, u64, u64)) -> Sample {
    let now = (queue.sent(), queue.out(), queue.lost());
    let sample = Sample {
        sent: now.0 - known.0,
        received: now.1.saturating_sub(known.1),
        lost: now.2 - known.2,
        ..Sample::default()
    };
    *known = now;
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Frames, Phases, Plan};

    fn trial(name: &str, load: f64, seconds: f64) -> TrialOutput {
        let mut device = Device::new(Behaviour::named(name).unwrap(), 1);
        device.measure(&Plan::new(Frames::Size(64)).constant(load, seconds)).unwrap()
    }

    #[test]
    fn each_device_loses_what_it_shall() {
        let lost = |name: &str, load: f64| trial(name, load, 60.0).total().lost();
        assert_eq!((lost("wire", 14_880_952.0), lost("step", 5e6), lost("step", 5_000_100.0)), (0, 0, 6000));
        assert_eq!((lost("slope", 5e6), lost("slope", 6e6)), (0, 7_200_000));
        assert!((6000 - 400..6000 + 400).contains(&lost("random", 1e7)));
        // 7900 frames come while it stands still, 4096 wait: 48 times in 60 s.
        assert_eq!(lost("stall", 7.9e6) / 48, 3804);
        assert_eq!(lost("stall", 4e6), 0);
        // 30 ppm of 60 s at line rate, but for what the buffer takes.
        let skewed = lost("skew", 14_880_952.0);
        assert!(skewed.abs_diff((14_880_952.0 * 60.0 * 30e-6) as u64 - 1024) < 50, "{skewed}");
        assert_eq!(lost("skew", 14_880_952.0 * (1.0 - 31e-6)), 0);
    }

    #[test]
    fn counts_and_series_agree() {
        for name in Behaviour::NAMES {
            let out = trial(name, 9e6, 10.0);
            let total = out.total();
            let series = out.series.unwrap();
            let sum = |f: fn(&Sample) -> u64| series.samples.iter().map(f).sum::<u64>();
            assert_eq!((sum(|s| s.sent), sum(|s| s.lost)), (total.offered, total.lost()), "{name}");
            assert!(sum(|s| s.received).abs_diff(total.received) <= 1, "{name}");
        }
    }

    #[test]
    fn the_clock_is_virtual_and_the_seed_is_all_there_is_to_chance() {
        let plan = Plan { phases: Phases::RFC2544, ..Plan::new(Frames::Size(1518)) };
        let run = |seed| {
            let mut device =
                Device::new(Behaviour { jitter: 100, ..Behaviour::named("random").unwrap() }, seed);
            let outputs: Vec<_> =
                (0..3).map(|_| device.measure(&plan.constant(5e5, 60.0)).unwrap()).collect();
            (outputs, device.clock())
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).0, run(2).0);
        assert!((run(1).1 - 3.0 * 71.0).abs() < 1e-9);
    }
}

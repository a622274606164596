//! When the next frame is due.
//!
//! A [`Pacer`] keeps the moments at which the frames of a stream shall leave, on a clock of whole ticks and 2⁻⁶⁴ths of them, so that the mean
//! rate is exact for as long as a trial may last. The sending thread asks it whenever it comes by: what is due by then is sent, and
//! no more.
//!
//! What happens when the thread comes late is the point of it. The schedule does not move by itself: frames that are due are caught
//! up with, but
//!
//! * at most [`Pace::catch_up`] behind: what is due longer is given up, counted ([`Pacer::missed`]), and never sent as a burst that
//!   nobody asked for;
//! * below [`SINGLE`] frames a second never two at once: late ones follow each other by at least half of the usual distance.
//!
//! Intended minus offered frames are therefore known, and the procedure decides what they mean.

use crate::rng::Rng;

/// Below this rate, in frames per second, a burst is never above one frame.
pub const SINGLE: f64 = 10_000.0;

/// How the frames of a stream are spread over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// The same distance between all frames.
    Even,
    /// Distances of a Poisson process of that mean rate: exponentially distributed, independent.
    Poisson {
        /// Start of the random numbers.
        seed: u64,
    },
    /// So many frames at once, then a pause, so that the mean rate is as asked.
    Bursts {
        /// Frames of a burst, at least 1.
        frames: u32,
    },
}

/// What a pacer is to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Frames per second, above 0 and finite.
    pub rate: f64,
    /// How they are spread.
    pub spread: Spread,
    /// Ticks per second of the clock.
    pub hz: u64,
    /// Frames due longer than this many seconds are given up.
    pub catch_up: f64,
}

/// Why there is no pacer.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PaceError {
    /// Nothing can be sent at such a rate.
    #[error("the rate is {0} frames per second; it must be above 0 and at most {max:.0}", max = Pace::MAX_RATE)]
    Rate(f64),
    /// A burst of nothing.
    #[error("a burst has no frames; it must have at least 1")]
    EmptyBurst,
}

impl Pace {
    /// Highest rate in frames per second: more than any link carries.
    pub const MAX_RATE: f64 = 1e10;
}

/// A time on the clock: ticks and their 2⁻⁶⁴ths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u128);

impl Moment {
    fn at(tick: u64) -> Self {
        Moment(u128::from(tick) << 64)
    }

    fn of(ticks: f64) -> Self {
        // 2⁶⁴ times the value: a float's 53 bits are kept wherever the point is.
        Moment((ticks.max(0.0) * 18_446_744_073_709_551_616.0) as u128)
    }

    fn tick(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

/// Says how many frames are due.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// When the next frame is due.
    next: Moment,
    /// Not before, whatever is due.
    not_before: u64,
    interval: Moment,
    /// Half of the distance, where frames go one by one; 0: they may go together.
    spacing: u64,
    burst: u32,
    /// Frames of a burst under way that have not been given out.
    left: u32,
    catch_up: u64,
    random: Option<Rng>,
    end: u64,
    /// Frames that may still become due.
    budget: u64,
    intended: u64,
    missed: u64,
    largest: u32,
    late: u64,
}

impl Pacer {
    /// A pacer whose first frame is due at tick `start` and whose last is due before tick `end`.
    pub fn new(pace: &Pace, start: u64, end: u64) -> Result<Self, PaceError> {
        if !(pace.rate > 0.0 && pace.rate <= Pace::MAX_RATE) {
            return Err(PaceError::Rate(pace.rate));
        }
        let ticks = pace.hz.max(1) as f64 / pace.rate;
        let (burst, random) = match pace.spread {
            Spread::Even => (1, None),
            Spread::Poisson { seed } => (1, Some(Rng::new(seed))),
            Spread::Bursts { frames: 0 } => return Err(PaceError::EmptyBurst),
            Spread::Bursts { frames } => (frames, None),
        };
        // With Poisson two frames at once are what was asked for.
        let single = pace.rate < SINGLE && pace.spread == Spread::Even;
        Ok(Pacer {
            next: Moment::at(start),
            not_before: start,
            // Rounded up, so that a frame due at the very end is not due before it.
            interval: Moment::of(ticks * f64::from(burst) * (1.0 + f64::EPSILON)),
            spacing: if single { (ticks / 2.0) as u64 } else { 0 },
            burst,
            left: 0,
            // At least one frame may be late, however slow the stream is.
            catch_up: ((pace.catch_up * pace.hz as f64).max(2.0 * ticks * f64::from(burst))) as u64,
            random,
            end,
            budget: u64::MAX,
            intended: 0,
            missed: 0,
            largest: 0,
            late: 0,
        })
    }

    /// A pacer that always has frames due from `start` to `end`: as fast as the thread and the device can.
    pub fn unpaced(start: u64, end: u64) -> Self {
        Pacer {
            next: Moment::at(start),
            not_before: start,
            interval: Moment::default(),
            spacing: 0,
            burst: 1,
            left: 0,
            catch_up: u64::MAX,
            random: None,
            end,
            budget: u64::MAX,
            intended: 0,
            missed: 0,
            largest: 0,
            late: 0,
        }
    }

    /// The same with at most `frames` in all.
    #[must_use]
    pub fn limited_to(self, frames: u64) -> Self {
        Pacer { budget: frames, ..self }
    }

    /// How many frames are to leave now, at most `room`. They count as sent: what the device does not take stays with the caller,
    /// who sends it before anything new.
    #[inline]
    pub fn due(&mut self, now: u64, room: u32) -> u32 {
        if self.left == 0 && (now < self.next.tick() || now < self.not_before || self.is_over(now)) {
            return 0;
        }
        self.take(now, room)
    }

    /// When it is worth asking again, in ticks; `None`: never.
    pub fn next_at(&self) -> Option<u64> {
        let next = self.next.tick().max(self.not_before);
        (!self.is_over(next)).then_some(next)
    }

    /// Ends it: what was due before `now` or the end and was not sent counts as missed.
    pub fn finish(&mut self, now: u64) {
        let (until, unsent) = (now.min(self.end), u64::from(self.left));
        (self.left, self.intended, self.missed) = (0, self.intended + unsent, self.missed + unsent);
        if self.interval != Moment::default() {
            self.skip(until);
        }
        self.budget = 0;
    }

    /// Frames that were due so far, sent or missed.
    pub fn intended(&self) -> u64 {
        self.intended
    }

    /// Frames that were due and given up because the thread came too late.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Most frames that were due in one go.
    pub fn largest_burst(&self) -> u32 {
        self.largest
    }

    /// The longest that a frame was sent after it was due, in ticks.
    pub fn latest(&self) -> u64 {
        self.late
    }

    fn is_over(&self, now: u64) -> bool {
        self.budget == 0 || self.next.tick() >= self.end || (self.interval.0 == 0 && now >= self.end)
    }

    fn take(&mut self, now: u64, room: u32) -> u32 {
        if now.saturating_sub(self.next.tick()) > self.catch_up {
            self.skip((now - self.catch_up).min(self.end));
        }
        let room = if self.spacing > 0 { room.min(1) } else { room };
        let mut n = 0;
        while n < room {
            if self.left == 0 {
                if self.next.tick() > now || self.is_over(now) {
                    break;
                }
                if self.interval.0 > 0 {
                    self.late = self.late.max(now - self.next.tick());
                }
                self.next_burst();
            }
            let some = self.left.min(room - n);
            self.left -= some;
            n += some;
        }
        if n > 0 {
            self.intended += u64::from(n);
            self.largest = self.largest.max(n).max(self.burst);
            self.not_before = now + self.spacing;
        }
        n
    }

    fn next_burst(&mut self) {
        self.left = u64::from(self.burst).min(self.budget) as u32;
        self.budget -= u64::from(self.left);
        self.advance();
    }

    /// Gives up what is due before tick `until`.
    fn skip(&mut self, until: u64) {
        while self.next.tick() < until && self.budget > 0 {
            self.next_burst();
            self.intended += u64::from(self.left);
            self.missed += u64::from(self.left);
            self.left = 0;
            if self.random.is_none() {
                // All but the last few at once: a long pause at a high rate is millions of frames.
                let far = Moment::at(until).0.saturating_sub(self.next.0);
                let whole = (far / self.interval.0.max(1))
                    .saturating_sub(1)
                    .min(u128::from(self.budget / u64::from(self.burst)));
                let frames = whole as u64 * u64::from(self.burst);
                self.next.0 += whole * self.interval.0;
                (self.budget, self.intended, self.missed) =
                    (self.budget - frames, self.intended + frames, self.missed + frames);
            }
        }
    }

    fn advance(&mut self) {
        let distance = match &mut self.random {
            None => self.interval,
            Some(rng) => {
                // 53 bits in (0, 1]: the logarithm is finite.
                let u = ((rng.next() >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
                Moment((self.interval.0 as f64 * -u.ln()) as u128)
            }
        };
        self.next.0 = self.next.0.saturating_add(distance.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 2_600_000_000;

    fn pace(rate: f64, spread: Spread) -> Pace {
        Pace { rate, spread, hz: HZ, catch_up: 1e-4 }
    }

    /// Asks every `step` ticks for `seconds`; what left, by time.
    fn run(pacer: &mut Pacer, seconds: u64, step: u64, room: u32) -> Vec<(u64, u32)> {
        let mut sent = Vec::new();
        let mut now = 0;
        while now < seconds * HZ + step {
            let n = pacer.due(now, room);
            if n > 0 {
                sent.push((now, n));
            }
            now += step;
        }
        pacer.finish(now);
        sent
    }

    #[test]
    fn every_rate_is_exact_to_the_frame() {
        for rate in [1.0, 3.0, 81.0, 1488.095, 9_999.9, 12_345.678, 148_809.52, 1_000_003.0] {
            let mut pacer = Pacer::new(&pace(rate, Spread::Even), 0, 5 * HZ).unwrap();
            let sent = run(&mut pacer, 5, 1500, 64);
            let frames: u64 = sent.iter().map(|s| u64::from(s.1)).sum();
            assert_eq!(frames, (5.0 * rate).ceil() as u64, "{rate}");
            assert_eq!((pacer.intended(), pacer.missed()), (frames, 0), "{rate}");
            let most = if rate < 2.6e9 / 1500.0 { 1 } else { 3 };
            assert!(pacer.largest_burst() <= most, "{rate}: bursts of {}", pacer.largest_burst());
            assert!(pacer.latest() < 1500);
        }
    }

    #[test]
    fn a_rate_that_is_no_whole_number_of_ticks_does_not_drift() {
        // A million seconds of a third of a tick each: one frame too many or too few would show.
        let mut pacer = Pacer::new(&pace(3e6, Spread::Even), 0, u64::MAX).unwrap();
        pacer.next = Moment::at(0);
        (0..30_000_000).for_each(|_| pacer.advance());
        let error = pacer.next.tick().abs_diff(10 * HZ);
        assert!(error <= 1, "{error} ticks in 10 s");
    }

    #[test]
    fn slow_streams_never_leave_in_bursts_even_after_a_pause() {
        let mut pacer =
            Pacer::new(&Pace { catch_up: 1.0, ..pace(5_000.0, Spread::Even) }, 0, 5 * HZ).unwrap();
        let (mut now, mut last, mut gaps, mut frames) = (0, None::<u64>, Vec::new(), 0);
        while now < 5 * HZ {
            let n = pacer.due(now, 64);
            assert!(n <= 1);
            if n == 1 {
                gaps.extend(last.map(|l| now - l));
                last = Some(now);
                frames += 1;
            }
            // The thread is away for 2 ms every half second: ten frames.
            now += if now % (HZ / 2) < 700 { HZ / 500 } else { 700 };
        }
        assert!(*gaps.iter().min().unwrap() >= HZ / 10_000 - 1, "{:?}", gaps.iter().min());
        assert_eq!((frames, pacer.missed()), (25_000, 0));
        assert_eq!(pacer.largest_burst(), 1);
    }

    #[test]
    fn what_is_due_too_long_is_given_up_and_counted() {
        let mut pacer = Pacer::new(&pace(1e6, Spread::Even), 0, HZ).unwrap();
        let early: u32 = (0..1000).map(|i| pacer.due(i * HZ / 100_000, 64)).sum();
        // Away for 100 ms: 100,000 frames are due, of which those of the last 100 us are sent.
        let back = HZ / 100 + HZ / 10;
        let mut late = 0;
        loop {
            let n = pacer.due(back, 64);
            late += n;
            if n == 0 {
                break;
            }
        }
        assert!((95..=105).contains(&late), "{late}");
        pacer.finish(back);
        assert_eq!(pacer.intended(), u64::from(early + late) + pacer.missed());
        assert!((99_000..101_000).contains(&pacer.missed()), "{}", pacer.missed());
        assert!(pacer.latest() <= HZ / 10_000 + 1);
    }

    #[test]
    fn what_was_not_sent_before_the_end_is_missed() {
        let mut pacer = Pacer::new(&pace(1000.0, Spread::Even), 0, HZ).unwrap();
        assert_eq!(pacer.due(0, 64), 1);
        pacer.finish(2 * HZ);
        assert_eq!((pacer.intended(), pacer.missed(), pacer.next_at()), (1000, 999, None));
    }

    #[test]
    fn bursts_are_whole_and_keep_the_mean_rate() {
        for (frames, step) in [(16u32, 1500), (256, 1500), (1024, 40_000)] {
            let mut pacer = Pacer::new(&pace(100_000.0, Spread::Bursts { frames }), 0, HZ).unwrap();
            let sent = run(&mut pacer, 1, step, 64);
            let all: u32 = sent.iter().map(|s| s.1).sum();
            assert_eq!(all, (100_000u32).div_ceil(frames) * frames);
            assert_eq!((pacer.largest_burst(), pacer.missed()), (frames, 0));
        }
    }

    #[test]
    fn poisson_has_the_mean_and_the_spread_of_one() {
        let mut pacer = Pacer::new(&pace(50_000.0, Spread::Poisson { seed: 7 }), 0, 5 * HZ).unwrap();
        let mut last = 0.0;
        let gaps: Vec<f64> = (0..250_000)
            .map(|_| {
                pacer.advance();
                let at = pacer.next.0 as f64 / 18_446_744_073_709_551_616.0;
                std::mem::replace(&mut last, at) - at
            })
            .map(|d| -d * 50_000.0 / HZ as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn a_count_is_kept_to_the_frame_with_every_spread() {
        for spread in [Spread::Even, Spread::Poisson { seed: 1 }, Spread::Bursts { frames: 48 }] {
            let mut pacer = Pacer::new(&pace(1e6, spread), 0, u64::MAX).unwrap().limited_to(1000);
            let sent: u32 = run(&mut pacer, 1, 1500, 64).iter().map(|s| s.1).sum();
            assert_eq!((sent, pacer.intended(), pacer.next_at()), (1000, 1000, None), "{spread:?}");
        }
    }

    #[test]
    fn without_a_pace_there_is_always_something_due() {
        let mut pacer = Pacer::unpaced(100, 1000);
        assert_eq!(
            (pacer.due(99, 64), pacer.due(100, 64), pacer.due(999, 32), pacer.due(1000, 64)),
            (0, 64, 32, 0)
        );
        pacer.finish(2000);
        assert_eq!((pacer.intended(), pacer.missed(), pacer.latest()), (96, 0, 0));
        let mut pacer = Pacer::unpaced(0, u64::MAX).limited_to(100);
        assert_eq!((pacer.due(1, 64), pacer.due(2, 64), pacer.due(3, 64)), (64, 36, 0));
    }

    #[test]
    fn a_long_pause_at_a_high_rate_is_passed_at_once() {
        let mut pacer = Pacer::new(&pace(1e9, Spread::Even), 0, u64::MAX).unwrap();
        let n = pacer.due(3600 * HZ, 64);
        assert_eq!(n, 64);
        let hour = 3600.0 * 1e9;
        let missed = pacer.missed() as f64;
        assert!((missed / (hour - 100_000.0) - 1.0).abs() < 1e-9, "{missed}");
    }

    #[test]
    fn impossible_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e11] {
            assert!(Pacer::new(&pace(rate, Spread::Even), 0, 1).is_err(), "{rate}");
        }
        assert_eq!(
            Pacer::new(&pace(1.0, Spread::Bursts { frames: 0 }), 0, 1).unwrap_err(),
            PaceError::EmptyBurst
        );
    }
}

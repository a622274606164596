//! What the windows with changes say beside those without.
//!
//! A worker's longest loop on a virtual machine is mostly the time for which the host gave the CPU to somebody else: it is
//! there with changes and without; and on any machine it is the time for which another program had it. So windows in which the
//! worker's CPU was taken from it for another program are not judged, as long as there are enough others; where it waits by
//! itself, they are. What is left are the machine's
//! own interruptions, which a worker cannot tell from anything else: the bar holds where the longest loop with changes is below
//! it, or where loops beyond it are no more frequent with changes than without. Both are printed.

use linerate_engine::clock::Clock;
use linerate_pipeline::loop_times::LoopCounts;
use linerate_tester::stats::Summary;

use super::windows::{Round, Seen};

/// A worker held up for so many microseconds is held up too long.
pub(super) const HOLD_UP: f64 = 50.0;

/// Loops beyond the bar are more frequent with changes when they are so by as many standard errors (Welch's t).
pub(super) const EXCESS: f64 = 3.0;

/// Windows with changes that may have a longer loop than the worst one without: more is no chance any more where both are
/// alike, for then each of the longest loops falls on either side as likely.
const OUTLIERS: usize = 4;

/// As many standard errors as are told.
const CERTAIN: f64 = 1e3;

/// So many windows of a kind in which the worker had its CPU are enough to leave the others out.
const ENOUGH: usize = 20;

/// Windows of one kind: rates of all of them, loops of those that are judged.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// Million verified packets per second, by window.
    pub(super) rates: Vec<f64>,
    /// Million packets per second that the worker had packets in hand, by window.
    pub(super) capacities: Vec<f64>,
    /// Microseconds of the longest loop, by window.
    pub(super) longest: Vec<f64>,
    /// Loops beyond the bar, by window.
    pub(super) beyond: Vec<f64>,
    /// All loops.
    pub(super) loops: LoopCounts,
    /// Share of all windows in which the worker had its CPU throughout.
    pub(super) undisturbed: f64,
    /// Microseconds of the longest loop of any window, those that are not judged as well.
    pub(super) longest_any: f64,
}

impl Side {
    /// Of those windows that are judged.
    fn of(all: &[&Seen], judged: fn(&Seen) -> bool, clock: Clock) -> Option<Side> {
        let windows = all.iter().copied().filter(|s| judged(s));
        let each = |f: &dyn Fn(&Seen) -> f64| windows.clone().map(f).collect::<Vec<f64>>();
        let bar = (HOLD_UP * clock.hz() as f64 / 1e6) as u64;
        let mut each_loops = windows.clone().map(|s| s.loops.clone());
        let mut loops = each_loops.next()?;
        each_loops.for_each(|l| loops.add(&l));
        Some(Side {
            rates: all.iter().map(|s| s.window.rate).collect(),
            capacities: all.iter().map(|s| s.window.capacity).collect(),
            longest: each(&|s| microseconds(s.loops.longest(), clock)),
            beyond: each(&|s| s.loops.from(bar) as f64),
            loops,
            undisturbed: all.iter().filter(|s| s.undisturbed).count() as f64 / all.len().max(1) as f64,
            longest_any: microseconds(all.iter().map(|s| s.loops.longest()).max().unwrap_or(0), clock),
        })
    }
}

/// Both kinds.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) with: Side,
    pub(super) without: Side,
    /// Rate with changes against the rate without, by round.
    pub(super) rate_ratios: Vec<f64>,
    /// The same of the worker's capacity.
    pub(super) capacity_ratios: Vec<f64>,
    /// Standard errors by which loops beyond the bar are more frequent with changes.
    pub(super) excess: f64,
}

impl Verdict {
    /// Of all rounds; `None` where one kind has no window.
    pub(super) fn of(rounds: &[Round], clock: Clock) -> Option<Verdict> {
        let with: Vec<&Seen> = rounds.iter().flat_map(|r| &r.with).collect();
        let without: Vec<&Seen> = rounds.iter().flat_map(|r| &r.without).collect();
        let enough = |all: &[&Seen]| all.iter().filter(|s| s.undisturbed).count() >= ENOUGH;
        let judged: fn(&Seen) -> bool =
            if enough(&with) && enough(&without) { |s| s.undisturbed } else { |_| true };
        let with = Side::of(&with, judged, clock)?;
        let without = Side::of(&without, judged, clock)?;
        let ratios = |f: fn(&Seen) -> f64| {
            let median = |seen: &[Seen]| Summary::of(&seen.iter().map(f).collect::<Vec<_>>()).median;
            let pairs = rounds.iter().map(|r| (median(&r.with), median(&r.without)));
            pairs
                .filter(|(with, without)| *with > 0.0 && *without > 0.0)
                .map(|(with, without)| with / without)
                .collect()
        };
        Some(Verdict {
            rate_ratios: ratios(|s| s.window.rate),
            capacity_ratios: ratios(|s| s.window.capacity),
            excess: standard_errors(&with.beyond, &without.beyond),
            with,
            without,
        })
    }

    /// Microseconds of the longest loop with changes.
    pub(super) fn longest(&self) -> f64 {
        self.with.longest.iter().copied().fold(0.0, f64::max)
    }

    /// Whether changes hold no worker up for longer than the bar.
    pub(super) fn holds(&self) -> bool {
        let worst = self.without.longest.iter().copied().fold(0.0, f64::max);
        let worse = self.with.longest.iter().filter(|longest| **longest > worst).count();
        self.longest() < HOLD_UP || self.excess <= EXCESS && worse <= OUTLIERS
    }
}

/// Cycles in microseconds.
pub(super) fn microseconds(cycles: u64, clock: Clock) -> f64 {
    clock.nanoseconds(cycles) as f64 / 1e3
}

/// By how many standard errors the mean of `a` is above the mean of `b`: Welch's t. 0 where both are the same throughout.
fn standard_errors(a: &[f64], b: &[f64]) -> f64 {
    let moments = |v: &[f64]| {
        let n = v.len().max(1) as f64;
        let mean = v.iter().sum::<f64>() / n;
        let squares = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        (mean, squares / (n - 1.0).max(1.0) / n)
    };
    let ((mean_a, error_a), (mean_b, error_b)) = (moments(a), moments(b));
    let (difference, error) = (mean_a - mean_b, (error_a + error_b).sqrt());
    match error > 0.0 {
        true => (difference / error).clamp(-CERTAIN, CERTAIN),
        false if difference == 0.0 => 0.0,
        false => CERTAIN.copysign(difference),
    }
}

#[cfg(test)]
mod tests {
    use linerate_pipeline::loop_times::LoopTimes;

    use super::*;
    use crate::demo::outcome::Window;

    /// Of such a loop the tests say that another program had the CPU.
    const OTHER_PROGRAM: u64 = 7_000_000;

    /// 1 GHz: a cycle is a nanosecond.
    fn clock() -> Clock {
        Clock::new(|| 0, 1_000_000_000)
    }

    fn seen(rate: f64, loops: &[u64]) -> Seen {
        let times = LoopTimes::default();
        loops.iter().for_each(|l| times.note(*l));
        let undisturbed = !loops.contains(&OTHER_PROGRAM);
        Seen {
            window: Window { rate, capacity: rate, busy: 1.0, cpu: 1.0 },
            loops: times.read(),
            undisturbed,
        }
    }

    /// Rounds with one window each.
    fn verdict(with: &[&[u64]], without: &[&[u64]]) -> Verdict {
        let rounds: Vec<Round> = with
            .iter()
            .zip(without)
            .map(|(a, b)| Round { with: vec![seen(9.0, a)], without: vec![seen(10.0, b)] })
            .collect();
        Verdict::of(&rounds, clock()).unwrap()
    }

    #[test]
    fn short_loops_hold_and_long_ones_only_where_they_come_without_changes_too() {
        let short: &[u64] = &[6_000, 20_000];
        let v = verdict(&[short; 6], &[short; 6]);
        assert!(v.holds() && v.longest() < 25.0 && v.excess == 0.0, "{v:?}");
        let stolen: &[u64] = &[6_000, 2_000_000];
        let v = verdict(&[stolen, short, stolen, short], &[short, stolen, short, stolen]);
        assert!(v.holds() && v.longest() > 1_000.0, "{v:?}");
        let held_up: &[u64] = &[6_000, 60_000, 60_000];
        let v = verdict(&[held_up; 6], &[short; 6]);
        assert!(!v.holds() && v.with.loops.loops() == 18, "{v:?}");
        let v = verdict(&[held_up, held_up, stolen, held_up, held_up, held_up], &[short; 6]);
        assert!(!v.holds() && v.excess > EXCESS, "{v:?}");
        assert!(v.rate_ratios.iter().all(|r| (r - 0.9).abs() < 1e-9));
    }

    #[test]
    fn windows_in_which_another_program_ran_are_not_judged_where_there_are_enough_others() {
        let (short, other): (&[u64], &[u64]) = (&[6_000], &[6_000, OTHER_PROGRAM]);
        let mut with = vec![short; ENOUGH];
        with.push(other);
        let v = verdict(&with, &vec![short; ENOUGH + 1]);
        assert!(v.holds() && v.longest() < 10.0 && v.with.longest_any > 7_000.0, "{v:?}");
        assert!(v.with.undisturbed < 1.0 && v.without.undisturbed == 1.0);
        let v = verdict(&[other; 3], &[short; 3]);
        assert!(v.longest() > 7_000.0, "too few to choose from");
    }

    #[test]
    fn nothing_measured_is_no_verdict() {
        assert!(Verdict::of(&[], clock()).is_none());
        assert!(Verdict::of(&[Round { with: vec![seen(1.0, &[1])], without: vec![] }], clock()).is_none());
    }
}

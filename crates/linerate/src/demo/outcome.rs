//! What the demo measured, before it is printed, drawn or written.

use linerate_tester::closed_loop::Trial;
use linerate_tester::frame::FrameSpec;
use linerate_tester::stats::Summary;
use linerate_tester::wire_rate::l1_bits_per_second;

/// Share of time from which an end counts as the one that limits.
const LIMITING: f64 = 0.95;

/// Share of a CPU from which other programs count as a disturbance.
const DISTURBING: f64 = 0.05;

/// One window of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// Million verified packets per second of the clock.
    pub(crate) rate: f64,
    /// Million packets per second in which the worker had packets in hand.
    pub(crate) capacity: f64,
    /// Share of the window in which the worker had packets in hand.
    pub(crate) busy: f64,
    /// Share of the window in which the worker's thread had its CPU.
    pub(crate) cpu: f64,
}

/// One device under test (router or floor) at one size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// The windows.
    pub(crate) windows: Vec<Window>,
    /// What was sent and came back, warm-up included.
    pub(crate) trial: Trial,
}

impl Side {
    /// Million packets per second by the clock.
    pub(crate) fn rate(&self) -> Summary {
        self.summary(|w| w.rate)
    }

    /// Million packets per second of busy time.
    pub(crate) fn capacity(&self) -> Summary {
        self.summary(|w| w.capacity)
    }

    /// Share of time with packets in hand.
    pub(crate) fn busy(&self) -> Summary {
        self.summary(|w| w.busy)
    }

    /// Share of the CPU that the thread got.
    pub(crate) fn cpu(&self) -> Summary {
        self.summary(|w| w.cpu)
    }

    fn summary(&self, of: impl Fn(&Window) -> f64) -> Summary {
        Summary::of(&self.windows.iter().map(of).collect::<Vec<_>>())
    }
}

/// One size of one family.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// "IPv4" or "IPv6".
    pub(crate) family: &'static str,
    /// The family in result ids.
    pub(crate) id: &'static str,
    /// The size asked for.
    pub(crate) asked: u16,
    /// What is sent.
    pub(crate) frame: FrameSpec,
    /// The router.
    pub(crate) router: Side,
    /// Nothing but rings.
    pub(crate) floor: Side,
    /// Million packets per second that the tester sends and checks with a piece of wire in place of everything else.
    pub(crate) ceiling: f64,
}

impl Case {
    /// Gbit/s on the line, preamble and gap included, at a rate in Mpps.
    pub(crate) fn gbps(&self, mpps: f64) -> f64 {
        l1_bits_per_second(mpps * 1e6, self.frame.size) / 1e9
    }

    /// Router against floor, by the clock.
    pub(crate) fn ratio(&self) -> f64 {
        share(self.router.rate().median, self.floor.rate().median)
    }

    /// Router against floor, per second of busy time.
    pub(crate) fn capacity_ratio(&self) -> f64 {
        share(self.router.capacity().median, self.floor.capacity().median)
    }

    /// Which end limits the rate.
    pub(crate) fn limit(&self) -> &'static str {
        if self.router.busy().median >= LIMITING { "router" } else { "tester" }
    }

    /// The size with a mark where it had to be made larger than asked for.
    pub(crate) fn size(&self) -> String {
        match self.frame.grown_from {
            Some(asked) => format!("{asked} → {}", self.frame.size),
            None => self.frame.size.to_string(),
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// By family and size.
    pub(crate) cases: Vec<Case>,
    /// Routes loaded: IPv4, IPv6.
    pub(crate) routes: (usize, usize),
    /// Seconds from the finished table to a router that forwards by it.
    pub(crate) load: f64,
    /// Seconds in all.
    pub(crate) seconds: f64,
    /// All threads had one CPU.
    pub(crate) one_cpu: bool,
    /// Share of the time for which the tester's thread, which never rests, had its CPU.
    pub(crate) tester_cpu: f64,
    /// Packets that the router dropped, by name: for the explanation of a loss.
    pub(crate) drops: Vec<(&'static str, u64)>,
    /// Packets that the router's own counters do not account for.
    pub(crate) imbalance: i64,
}

impl Outcome {
    /// Share of the CPUs that other programs took, where it is enough to spoil the figures: of the tester's, or of the
    /// router's while it had packets in hand.
    pub(crate) fn disturbed(&self) -> Option<f64> {
        let missing = |c: &Case| (c.router.busy().median - c.router.cpu().median).max(0.0);
        let router = share(self.cases.iter().map(missing).sum(), self.cases.len() as f64);
        let taken = router.max(1.0 - self.tester_cpu);
        (!self.one_cpu && taken >= DISTURBING).then_some(taken)
    }

    /// Everything sent through the router and the floor.
    pub(crate) fn total(&self) -> Trial {
        let mut all = Trial::default();
        self.cases.iter().for_each(|c| {
            all.add(&c.router.trial);
            all.add(&c.floor.trial);
        });
        all
    }

    /// Whether every packet was right, none was lost and all are accounted for.
    pub(crate) fn passed(&self) -> bool {
        let all = self.total();
        all.clean() && all.sent > 0 && self.imbalance == 0
    }

    /// The verdict in a sentence.
    pub(crate) fn verdict(&self) -> String {
        let all = self.total();
        let sent = thousands(all.sent);
        if self.passed() {
            return format!("{sent} packets sent, every one of them came back and was right in every byte.");
        }
        let mut wrong = Vec::new();
        let mut say = |n: u64, what: &str| {
            if n > 0 {
                wrong.push(format!("{} {what}", thousands(n)));
            }
        };
        say(all.tally.bad, "wrong");
        say(all.lost, "lost");
        say(all.tally.duplicates, "duplicated");
        say(all.tally.reordered, "out of order");
        say(self.imbalance.unsigned_abs(), "not accounted for by the router's counters");
        if wrong.is_empty() {
            wrong.push("nothing was measured".into());
        }
        format!("Of {sent} packets sent: {}.", wrong.join(", "))
    }
}

/// One number as a share of another; 0 where there is none.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A number with its thousands apart.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut s = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            s.push(',');
        }
        s.push(d);
    }
    s
}

#[cfg(test)]
pub(crate) mod tests {
    use linerate_tester::frame::FrameSpec;
    use linerate_tester::sink::Tally;

    use super::*;

    pub(crate) fn outcome() -> Outcome {
        let side = |rate: f64, busy: f64| Side {
            windows: (0..4)
                .map(|i| {
                    let rate = rate + f64::from(i) / 10.0;
                    Window { rate, capacity: rate / busy, busy, cpu: 0.99 }
                })
                .collect(),
            trial: Trial {
                sent: 1_000_000,
                lost: 0,
                tally: Tally { good: 1_000_000, round_trip_max: 90_000, ..Tally::default() },
            },
        };
        let case = |family, id, asked: u16, frame| Case {
            family,
            id,
            asked,
            frame,
            router: side(8.0, 0.98),
            floor: side(16.0, 0.4),
            ceiling: 20.0,
        };
        Outcome {
            cases: vec![
                case("IPv4", "ipv4", 64, FrameSpec { size: 64, grown_from: None }),
                case("IPv4", "ipv4", 1518, FrameSpec { size: 1518, grown_from: None }),
                case("IPv6", "ipv6", 64, FrameSpec { size: 82, grown_from: Some(64) }),
                case("IPv6", "ipv6", 1518, FrameSpec { size: 1518, grown_from: None }),
            ],
            routes: (612_927, 160_147),
            load: 0.5,
            tester_cpu: 0.99,
            seconds: 31.0,
            ..Outcome::default()
        }
    }

    #[test]
    fn it_passes_only_when_nothing_is_wrong() {
        let good = outcome();
        assert!(good.passed());
        assert_eq!(
            good.verdict(),
            "8,000,000 packets sent, every one of them came back and was right in every byte."
        );
        let mut lossy = outcome();
        lossy.cases[1].router.trial.lost = 3;
        lossy.cases[2].floor.trial.tally.bad = 1;
        assert!(!lossy.passed());
        assert_eq!(lossy.verdict(), "Of 8,000,000 packets sent: 1 wrong, 3 lost.");
        let leaky = Outcome { imbalance: -2, ..outcome() };
        assert!(!leaky.passed() && leaky.verdict().contains("2 not accounted for"));
        assert!(!Outcome::default().passed());
    }

    #[test]
    fn other_programs_on_either_cpu_are_noticed() {
        assert_eq!(outcome().disturbed(), None);
        let taken = |o: Outcome| o.disturbed().map(|t| (100.0 * t).round());
        assert_eq!(taken(Outcome { tester_cpu: 0.7, ..outcome() }), Some(30.0));
        let mut router = outcome();
        router.cases.iter_mut().for_each(|c| c.router.windows.iter_mut().for_each(|w| w.cpu = 0.48));
        assert_eq!(taken(router), Some(50.0));
        assert_eq!(taken(Outcome { tester_cpu: 0.5, one_cpu: true, ..outcome() }), None, "they share it");
    }

    #[test]
    fn rates_and_limits() {
        let o = outcome();
        assert_eq!((o.cases[0].limit(), o.cases[2].size()), ("router", "64 → 82".to_string()));
        assert!((o.cases[0].ratio() - 8.15 / 16.15).abs() < 1e-9);
        assert!((o.cases[1].gbps(0.812743) - 10.0).abs() < 1e-4);
        assert_eq!(
            (thousands(999), thousands(1000), thousands(12_345_678)),
            ("999".into(), "1,000".into(), "12,345,678".into())
        );
    }
}

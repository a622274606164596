//! Searches on simulated devices, whose right answer is known.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use linerate_tester::search::{BinarySearch, Class, Goal, GoalError, Regularity, Search, SearchResult};
use linerate_tester::simulate::{Behaviour, Device};
use linerate_tester::trial::{
    Ending, Frames, Observer, Phases, Plan, Policy, Progress, Runner, Silent, TrialInput, TrialRecord,
};
use proptest::prelude::*;

const LINE: f64 = 14_880_952.0;

fn plan() -> Plan {
    Plan::new(Frames::Size(64))
}

fn search(behaviour: Behaviour, goals: Vec<Goal>) -> SearchResult {
    let mut runner = Runner::new(Device::new(behaviour, 1), Silent, Policy::default());
    Search::new(goals, 9001.0, LINE).run(&plan(), &mut runner).unwrap()
}

fn named(name: &str) -> Behaviour {
    Behaviour::named(name).unwrap()
}

fn strict() -> Goal {
    Goal { width: 0.001, ..Goal::rfc2544() }
}

/// The bounds of a goal, which must be close and around `edge`.
fn around(result: &SearchResult, goal: usize, edge: f64) {
    let g = &result.goals[goal];
    let (lower, upper) = (g.lower.unwrap().load, g.upper.unwrap().load);
    assert_eq!(g.regularity, Regularity::Regular, "{lower} {upper}");
    assert!(lower <= edge && edge < upper, "{lower} <= {edge} < {upper}");
    assert!(upper - lower <= g.goal.width * upper, "{lower} {upper}");
}

#[test]
fn a_step_is_found_by_every_goal() {
    let goals = vec![strict(), Goal::loss_verification(), Goal::ndr(), Goal::pdr()];
    let result = search(named("step"), goals);
    assert_eq!(result.ending, Ending::Complete);
    // A load that loses less than a frame in a trial is as good as one that loses none.
    for goal in 0..3 {
        around(&result, goal, 5e6);
    }
    around(&result, 3, 5e6 / 0.995);
    assert_eq!(result.goals[0].conditional_throughput, result.goals[0].lower.map(|b| b.load));
    // Partial drop rate: what got through at the bound, at most the loss ratio less.
    let pdr = &result.goals[3];
    let (load, conditional) = (pdr.lower.unwrap().load, pdr.conditional_throughput.unwrap());
    assert!((conditional - 5e6).abs() < 2.0 && conditional >= load * 0.995, "{load} {conditional}");
}

#[test]
fn a_slope_is_found_where_the_loss_is_the_goals() {
    let result = search(named("slope"), vec![strict(), Goal::pdr()]);
    around(&result, 0, 5e6 * (1.0 + 1e-8));
    around(&result, 1, 5e6 * 1.05);
}

#[test]
fn random_loss_leaves_next_to_nothing_to_a_strict_goal_and_nothing_to_a_partial_one() {
    let result = search(named("random"), vec![strict(), Goal::pdr()]);
    // 10⁻⁵ of 60 s at the lowest load are 5.4 frames: hardly a trial is without loss.
    assert!(result.goals[0].lower.is_none() || result.goals[0].lower.unwrap().load < 20_000.0);
    assert_eq!(result.goals[1].regularity, Regularity::MaxLoadPasses);
    assert!((result.goals[1].conditional_throughput.unwrap() / LINE - 1.0).abs() < 2e-5);
}

#[test]
fn periodic_stalls_are_absorbed_up_to_what_the_buffer_takes_in_long_trials() {
    // In 1 ms up to 4096 frames wait. Trials of 60 s always meet one, those of 1 s not always.
    let result = search(named("stall"), vec![strict()]);
    around(&result, 0, 4_096_000.0 + 100.0);
    let lower = result.goals[0].lower.unwrap();
    assert!(lower.sums.full_low >= 60.0 && lower.sums.full_high == 0.0);
}

#[test]
fn skew_costs_its_parts_per_million() {
    let goal = Goal { width: 2e-6, ..Goal::rfc2544() };
    let mut runner = Runner::new(Device::new(named("skew"), 1), Silent, Policy::default());
    let result = Search::new(vec![goal], LINE * 0.9, LINE).run(&plan(), &mut runner).unwrap();
    // The buffer takes 1024 frames of the 60 s, the floor of the line rate half a frame a second.
    around(&result, 0, 1e10 / 672.0 * (1.0 - 30e-6) + 1024.0 / 60.0);
}

#[test]
fn where_there_is_no_edge_the_result_says_so() {
    let wire = search(named("wire"), vec![strict(), Goal::ndr()]);
    for g in &wire.goals {
        assert_eq!((g.regularity, g.upper), (Regularity::MaxLoadPasses, None));
        assert_eq!((g.lower.unwrap().load, g.conditional_throughput), (LINE, Some(LINE)));
    }
    let dead =
        search(Behaviour { capacity: Some(100.0), ..Behaviour::default() }, vec![strict(), Goal::ndr()]);
    for g in &dead.goals {
        assert_eq!((g.regularity, g.lower, g.conditional_throughput), (Regularity::MinLoadFails, None, None));
        assert_eq!(g.upper.unwrap().load, 9001.0);
    }
}

#[test]
fn what_the_tester_does_not_send_is_no_throughput() {
    let result = search(Behaviour { tester_ceiling: Some(7e6), ..Behaviour::default() }, vec![strict()]);
    around(&result, 0, 7e6 + 70.0);
}

#[test]
fn a_search_of_an_hour_takes_the_trials_it_should() {
    let result = search(named("step"), vec![Goal::rfc2544()]);
    let long = result.trials.iter().filter(|t| t.input.seconds() >= 60.0).count();
    assert!(long <= 4 && result.trials.len() < 30, "{long} of {}", result.trials.len());
    let ndr = search(named("step"), vec![Goal::ndr(), Goal::pdr()]);
    assert!(ndr.trials.len() < 90, "{}", ndr.trials.len());
    let seconds: f64 = ndr.trials.iter().map(|t| t.input.whole_seconds()).sum();
    assert!((ndr.seconds - seconds).abs() < 1e-6);
    assert!(ndr.trials.iter().map(|t| t.number).eq(1..=ndr.trials.len() as u32));
}

#[derive(Default)]
struct Watch {
    left: Vec<f64>,
    stages: Vec<String>,
    stop_after: Option<usize>,
}

impl Observer for Watch {
    fn started(&mut self, _: &TrialInput, progress: &Progress) {
        self.left.extend(progress.left);
        self.stages.push(progress.stage.clone());
        for b in &progress.bounds {
            assert!(b.lower.is_none_or(|low| b.upper.is_none_or(|high| low < high)));
        }
    }

    fn ended(&mut self, trial: &TrialRecord) {
        assert!((0.0..=1.0).contains(&trial.loss_ratio));
    }

    fn stop(&mut self) -> bool {
        self.stop_after.is_some_and(|n| self.stages.len() >= n)
    }
}

#[test]
fn progress_is_told_and_the_time_left_shrinks() {
    let mut watch = Watch::default();
    let mut runner = Runner::new(Device::new(named("step"), 1), &mut watch, Policy::default());
    let search = Search { warm_up: 1.0, ..Search::new(vec![Goal::ndr()], 9001.0, LINE) };
    let result = search.run(&plan(), &mut runner).unwrap();
    around(&result, 0, 5e6);
    assert_eq!(&watch.stages[..2], ["warm-up", "first"]);
    let (first, last) = (watch.left[0], *watch.left.last().unwrap());
    assert!(first > 2.0 * last && first / (result.seconds - 20.0) < 4.0, "{first} {last} {}", result.seconds);
}

#[test]
fn a_search_that_is_ended_keeps_what_it_knows() {
    let mut watch = Watch { stop_after: Some(4), ..Watch::default() };
    let mut runner = Runner::new(Device::new(named("step"), 1), &mut watch, Policy::default());
    let search = Search::new(vec![Goal::rfc2544()], 9001.0, LINE);
    let stopped = search.run(&plan(), &mut runner).unwrap();
    assert_eq!((stopped.ending, stopped.trials.len()), (Ending::Stopped, 4));
    assert_eq!(stopped.goals[0].regularity, Regularity::Unfinished);
    assert!(stopped.goals[0].upper.unwrap().load >= 5e6);

    let mut runner = Runner::new(Device::new(named("step"), 1), Silent, Policy::default()).within(100.0);
    let late = search.run(&plan(), &mut runner).unwrap();
    assert_eq!(late.ending, Ending::TimeLimit(100.0));
    assert!(late.seconds <= 100.0 && !late.trials.is_empty());

    let dying = Behaviour { dies_after: Some(3), ..named("step") };
    let failed = self::search(dying, vec![Goal::rfc2544()]);
    assert_eq!(failed.ending, Ending::Failed("the simulated device stopped answering after 3 trials".into()));
    assert_eq!(failed.trials.len(), 3);
}

#[test]
fn void_trials_are_repeated_recorded_and_not_counted() {
    use linerate_tester::trial::{Measurer, Stall, TrialOutput, Verdict};
    struct Shaky(Device, u32, u32);
    impl Measurer for Shaky {
        type Error = <Device as Measurer>::Error;
        fn measure(&mut self, trial: &TrialInput) -> Result<TrialOutput, Self::Error> {
            self.1 += 1;
            let mut out = self.0.measure(trial)?;
            if self.1.is_multiple_of(self.2) {
                out.flows[0].received /= 2;
                out.stalls = vec![Stall { worker: "rx0".into(), at: 0.1, seconds: 0.4 }];
            }
            Ok(out)
        }
    }
    let run = |every| {
        let device = Shaky(Device::new(named("step"), 1), 0, every);
        let mut runner = Runner::new(device, Silent, Policy::default());
        Search::new(vec![Goal::rfc2544()], 9001.0, LINE).run(&plan(), &mut runner).unwrap()
    };
    let result = run(3);
    around(&result, 0, 5e6);
    assert!(result.trials.iter().any(|t| t.output.verdict != Verdict::Valid));
    let hopeless = run(1);
    assert_eq!(hopeless.trials.len(), 3);
    assert!(
        matches!(&hopeless.ending, Ending::Void(why) if why.contains("worker rx0 stood still")),
        "{:?}",
        hopeless.ending
    );
}

#[test]
fn loss_verification_forgives_a_transient_and_plain_search_does_not() {
    let flaky = Behaviour { transient_every: 2, ..named("step") };
    let run = |search: BinarySearch| {
        let mut runner = Runner::new(Device::new(flaky.clone(), 1), Silent, Policy::default());
        search.run(&plan(), &mut runner).unwrap()
    };
    let plain = run(BinarySearch::rfc2544(9001.0, LINE));
    let verified = run(BinarySearch::tst009(9001.0, LINE));
    assert!(plain.upper.unwrap() < 4.999e6, "{:?}", plain.upper);
    assert!(verified.lower.unwrap() <= 5e6 && verified.upper.unwrap() > 5e6);
    assert_eq!(verified.regularity, Regularity::Regular);
    // What loses more than the threshold is not tried again.
    let repeated = |load: f64| verified.trials.iter().filter(|t| t.input.load() == load).count();
    assert_eq!(repeated(LINE), 1);
    // The same as a goal of MLRsearch, without short trials: a transient in one of those would count against the load.
    let goal = Goal { initial_duration: 60.0, coarser: 0, ..Goal::loss_verification() };
    let mlr = search(Behaviour { transient_every: 5, ..named("step") }, vec![goal]);
    around(&mlr, 0, 5e6);
}

#[test]
fn verification_sends_the_search_further_down() {
    // Trials of 1 s mostly miss the stall, the verification meets it.
    let search =
        BinarySearch { seconds: 0.2, verification: Some(30.0), ..BinarySearch::rfc2544(9001.0, LINE) };
    let plan = Plan { phases: Phases::SHORT, ..plan() };
    let mut runner = Runner::new(Device::new(named("stall"), 1), Silent, Policy::default());
    let result = search.run(&plan, &mut runner).unwrap();
    let (lower, upper) = (result.lower.unwrap(), result.upper.unwrap());
    assert!(lower <= 4_096_200.0 && upper > 4_096_000.0 && upper - lower < 7500.0, "{lower} {upper}");
    let first = result.trials.iter().find(|t| t.stage == "verification").unwrap();
    assert!(first.loss_ratio > 0.0 && first.input.load() > upper);
    let confirmed =
        result.trials.iter().find(|t| t.input.load() == lower && t.input.seconds() == 30.0).unwrap();
    assert_eq!(confirmed.loss_ratio, 0.0);
}

#[test]
fn impossible_searches_are_refused() {
    let run = |min, max, goals| {
        let mut runner = Runner::new(Device::new(Behaviour::default(), 1), Silent, Policy::default());
        Search::new(goals, min, max).run(&plan(), &mut runner).unwrap_err()
    };
    assert_eq!(run(5.0, 4.0, vec![Goal::ndr()]), GoalError::Loads { min: 5.0, max: 4.0 });
    assert!(matches!(run(0.0, 4.0, vec![Goal::ndr()]), GoalError::Loads { .. }));
    assert!(matches!(run(1.0, f64::NAN, vec![Goal::ndr()]), GoalError::Loads { .. }));
    assert_eq!(run(1.0, 4.0, vec![]), GoalError::NoGoal);
    let never = BinarySearch { resolution: 0.0, ..BinarySearch::rfc2544(1.0, 2.0) };
    assert_eq!(never.check(), Err(GoalError::Binary));
}

#[test]
fn results_survive_json() {
    let result = search(named("slope"), vec![Goal::ndr(), Goal::pdr()]);
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<SearchResult>(&text).unwrap(), result);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["goals"][0]["regularity"], "regular");
    assert_eq!(value["ending"], "complete");
    assert!(value["goals"][0]["lower"]["sums"]["full_low"].as_f64().unwrap() >= 11.0);
}

prop_compose! {
    fn goals()(final_duration in 0.1f64..70.0, share in 0.01f64..1.0, times in 1.0f64..25.0, loss in prop_oneof![Just(0.0), 0.0..0.1],
               exceed in prop_oneof![Just(0.0), Just(0.5), 0.0..0.9], width in 0.0005f64..0.2, coarser in 0u32..4) -> Goal {
        Goal {
            name: "any".into(), final_duration, duration_sum: final_duration * times, loss_ratio: loss, exceed_ratio: exceed,
            width, initial_duration: final_duration * share, coarser,
        }
    }
}

prop_compose! {
    fn devices()(capacity in 1e3f64..2e7, buffer in 0.0f64..1e5, random in prop_oneof![Just(0.0), 1e-9..1e-2],
                 slope in proptest::option::of(0.01f64..2.0), every in prop_oneof![Just(0u32), 1u32..5],
                 ceiling in proptest::option::of(1e5f64..2e7)) -> Behaviour {
        Behaviour {
            capacity: Some(capacity), buffer, random_loss: random, slope, transient_every: every, tester_ceiling: ceiling,
            ..Behaviour::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_search_ends_and_what_it_reports_was_measured(
        goals in proptest::collection::vec(goals(), 1..4), device in devices(), seed: u64, min in 1.0f64..1e6,
    ) {
        let plan = Plan { sample: 0.0, ..plan() };
        let mut runner = Runner::new(Device::new(device, seed), Silent, Policy::default());
        let result = Search::new(goals, min, LINE).run(&plan, &mut runner).unwrap();
        prop_assert_eq!(&result.ending, &Ending::Complete);
        for g in &result.goals {
            let criterion = g.goal.criterion();
            let seconds = |load: f64, good: bool| -> f64 {
                let at = result.trials.iter().filter(|t| t.input.load() == load && t.input.seconds() >= criterion.duration);
                at.filter(|t| (t.loss_ratio <= criterion.loss_ratio) == good).map(|t| t.output.effective_seconds).sum()
            };
            if let Some(lower) = g.lower {
                prop_assert_eq!(criterion.class(&lower.sums), Class::Lower);
                let (good, bad) = (seconds(lower.load, true), seconds(lower.load, false));
                prop_assert!(good + 1e-6 >= criterion.sum.max(good + bad) * (1.0 - criterion.exceed_ratio));
                prop_assert!(good > 0.0);
                let conditional = g.conditional_throughput.unwrap();
                prop_assert!(conditional <= lower.load && conditional >= lower.load * (1.0 - criterion.loss_ratio) - 1e-6);
            } else {
                prop_assert_eq!(g.conditional_throughput, None);
            }
            if let Some(upper) = g.upper {
                prop_assert_eq!(criterion.class(&upper.sums), Class::Upper);
            }
            match (g.lower, g.upper) {
                (Some(lower), Some(upper)) => {
                    prop_assert!(lower.load < upper.load);
                    prop_assert!(upper.load - lower.load <= g.goal.width * upper.load);
                    prop_assert_eq!(g.regularity, Regularity::Regular);
                }
                (Some(lower), None) => prop_assert_eq!((lower.load, g.regularity), (LINE, Regularity::MaxLoadPasses)),
                (None, Some(upper)) => prop_assert_eq!((upper.load, g.regularity), (min, Regularity::MinLoadFails)),
                (None, None) => prop_assert!(false, "nothing is known"),
            }
        }
    }

    #[test]
    fn a_binary_search_ends_and_what_it_reports_was_measured(
        device in devices(), seed: u64, min in 1.0f64..1e6, share in 0.0001f64..0.2, trials in 1u32..4, hopeless in 0.0f64..1.0,
        verification in proptest::option::of(1.0f64..100.0),
    ) {
        let binary = BinarySearch { resolution: LINE * share, trials, hopeless, verification, ..BinarySearch::rfc2544(min, LINE) };
        let plan = Plan { sample: 0.0, ..plan() };
        let mut runner = Runner::new(Device::new(device, seed), Silent, Policy::default());
        let result = binary.run(&plan, &mut runner).unwrap();
        prop_assert_eq!(&result.ending, &Ending::Complete);
        let clean = |load: f64, seconds: f64| result.trials.iter().any(|t| t.input.load() == load && t.input.seconds() >= seconds && t.loss_ratio == 0.0);
        if let Some(lower) = result.lower {
            prop_assert!(clean(lower, verification.unwrap_or(binary.seconds)));
        }
        if let Some(upper) = result.upper {
            prop_assert!(result.trials.iter().any(|t| t.input.load() == upper && t.loss_ratio > 0.0));
        }
        match (result.lower, result.upper) {
            (Some(lower), Some(upper)) => prop_assert!(lower < upper && upper - lower <= binary.resolution * 1.000_001),
            (Some(lower), None) => prop_assert_eq!((lower, result.regularity), (LINE, Regularity::MaxLoadPasses)),
            (None, Some(upper)) => prop_assert_eq!((upper, result.regularity), (min, Regularity::MinLoadFails)),
            (None, None) => prop_assert!(false, "nothing is known"),
        }
    }
}

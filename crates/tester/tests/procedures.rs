//! Procedures on simulated devices, whose right answer is known.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use linerate_tester::procedure::*;
use linerate_tester::search::{BinarySearch, Goal, Method, Regularity};
use linerate_tester::simulate::{Behaviour, Device, StallPattern};
use linerate_tester::trial::{
    Ending, FlowCount, Frames, Measurer, Phases, Policy, ResetKind, Runner, Silent, TrialInput, TrialOutput,
};

const TEN_G: u64 = 10_000_000_000;
const LINE: f64 = 14_880_952.0;

fn runner(behaviour: Behaviour) -> Runner<Device, Silent> {
    Runner::new(Device::new(behaviour, 1), Silent, Policy::default())
}

fn named(name: &str) -> Behaviour {
    Behaviour::named(name).unwrap()
}

fn rfc2544() -> Method {
    Method::Mlr(vec![Goal { width: 0.001, ..Goal::rfc2544() }])
}

fn small() -> Frames {
    Frames::Size(64)
}

#[test]
fn throughput_over_sizes_is_the_devices_or_the_lines() {
    let sizes: Vec<Frames> = [64, 128, 256, 512, 1024, 1280, 1518, 9000].map(Frames::Size).into();
    for method in [rfc2544(), Method::Binary(BinarySearch::rfc2544(1.0, 1.0))] {
        let behaviour = Behaviour { directions: 2, ..named("step") };
        let report = Throughput { method }.run(&Setup::new(TEN_G), &sizes, &mut runner(behaviour)).unwrap();
        assert_eq!((report.rows.len(), report.ending.clone()), (8, Ending::Complete));
        assert_eq!(report.deviations, []);
        for row in &report.rows {
            let (line, throughput) = (row.theoretical.unwrap(), row.found.throughput.unwrap());
            if line < 5e6 {
                assert_eq!((throughput, row.found.regularity), (line, Regularity::MaxLoadPasses));
                assert_eq!(row.percent_of_line, Some(100.0));
            } else {
                assert!(throughput <= 5e6 && throughput > 5e6 * 0.997, "{throughput}");
                assert_eq!(row.found.regularity, Regularity::Regular);
            }
            assert_eq!(row.aggregate, Some(throughput * 2.0));
            assert!(
                (row.l1_bits_per_second.unwrap() / throughput / 8.0 - row.frames.mean() - 20.0).abs() < 1e-6
            );
        }
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<ThroughputReport>(&text).unwrap(), report);
    }
}

#[test]
fn what_was_measured_before_a_device_died_is_kept() {
    let behaviour = Behaviour { dies_after: Some(6), ..named("step") };
    let sizes = [64, 1518, 9000].map(Frames::Size);
    let report =
        Throughput { method: rfc2544() }.run(&Setup::new(TEN_G), &sizes, &mut runner(behaviour)).unwrap();
    assert!(matches!(report.ending, Ending::Failed(_)));
    assert!(!report.rows.is_empty() && report.rows.len() < 3);
    assert_eq!(report.rows.iter().map(|r| r.search.trials().len()).sum::<usize>(), 6);
}

#[test]
fn short_trials_and_loss_are_named_as_deviations() {
    let setup = Setup { phases: Phases::SHORT, ..Setup::new(TEN_G) };
    let report = Throughput { method: Method::Mlr(vec![Goal::pdr()]) }
        .run(&setup, &[small()], &mut runner(named("step")))
        .unwrap();
    let clauses: Vec<&str> = report.deviations.iter().map(|d| d.clause.as_str()).collect();
    assert!(clauses.contains(&"RFC 2544 24") && clauses.contains(&"RFC 1242 3.17"), "{clauses:?}");
}

#[test]
fn latency_is_that_of_the_queue() {
    let behaviour = Behaviour { jitter: 200, ..named("buffer") };
    let latency = Latency { seconds: 120.0, repetitions: 20, definition: Definition::StoreAndForward };
    let cases = [(small(), 4.9e6), (small(), LINE)];
    let report = latency.run(&Setup::new(TEN_G), &cases, &mut runner(behaviour)).unwrap();
    let [below, full] = &report.rows[..] else { panic!() };
    assert_eq!((below.typical.runs, below.lost, below.at_line_rate), (20, 0, false));
    assert!(below.min >= 5000 && below.max <= 5200 && below.typical.p99 >= below.typical.median);
    // 30,000 frames wait at 5 Mpps: 6 ms.
    assert!(full.at_line_rate && full.lost > 0 && (full.typical.median / 6e6 - 1.0).abs() < 0.01, "{full:?}");
    assert_eq!(report.deviations.len(), 1);
    let few = Latency { repetitions: 3, seconds: 10.0, ..latency };
    let report = few.run(&Setup::new(TEN_G), &cases[..1], &mut runner(named("wire"))).unwrap();
    assert!(report.deviations.iter().any(|d| d.what.contains("3 repetitions instead of at least 20")));
}

#[test]
fn frame_loss_goes_down_to_two_clean_trials() {
    let report = FrameLoss::default().run(&Setup::new(TEN_G), &small(), &mut runner(named("step"))).unwrap();
    // 5 Mpps are 33.6 %: 100 to 40 % lose, 30 and 20 % do not.
    let percents: Vec<f64> = report.rows.iter().map(|r| r.percent.round()).collect();
    assert_eq!(percents, [100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0]);
    for row in &report.rows {
        let wanted = (1.0 - 5e6 / row.load).max(0.0) * 100.0;
        assert!((row.loss_percent - wanted).abs() < 1e-4, "{row:?}");
        assert!((row.forwarding_rate - row.load.min(5e6)).abs() < 2.0);
    }
    assert!(
        FrameLoss { step: 0.0, ..FrameLoss::default() }
            .run(&Setup::new(TEN_G), &small(), &mut runner(named("step")))
            .is_err()
    );
}

#[test]
fn bursts_tell_the_buffer() {
    let procedure = BackToBack { repetitions: 5, ..BackToBack::default() };
    let cases = [
        (small(), 5e6),
        (Frames::Size(1518), 812_743.0),
        (Frames::Mix { genome: "ag".into(), mean: 791.0 }, 1e6),
    ];
    let report = procedure.run(&Setup::new(TEN_G), &cases, &mut runner(named("buffer"))).unwrap();
    let [row, full, mix] = &report.rows[..] else { panic!() };
    // The buffer fills by what arrives less what leaves.
    let burst = 30_000.0 / (1.0 - 5e6 / LINE);
    assert!((row.burst.mean - burst).abs() <= 11.0, "{} {burst}", row.burst.mean);
    assert_eq!((row.burst.runs, row.invalid, row.lengths.len()), (5, None, 5));
    let corrected = row.corrected_buffer_seconds.unwrap();
    assert!((corrected * LINE / 30_000.0 - 1.0).abs() < 0.001, "{corrected}");
    assert!((row.buffer_seconds_at(5e6).unwrap() - 0.006).abs() < 1e-5);
    assert_eq!((full.invalid, mix.invalid), (Some(Invalid::ThroughputIsLineRate), Some(Invalid::Mix)));
    assert!(report.deviations.iter().any(|d| d.what == "5 searches instead of 50"));

    let deep = Behaviour { buffer: 1e9, ..named("buffer") };
    let report = procedure.run(&Setup::new(TEN_G), &cases[..1], &mut runner(deep)).unwrap();
    assert_eq!(report.rows[0].invalid, Some(Invalid::NearLimit));
    let none = Behaviour { first_lost: 1, ..named("buffer") };
    let report = procedure.run(&Setup::new(TEN_G), &cases[..1], &mut runner(none)).unwrap();
    assert_eq!(report.rows[0].invalid, Some(Invalid::NothingPasses));
    let slow = Setup { ceiling: Some(1e7), ..Setup::new(TEN_G) };
    let report = procedure.run(&slow, &cases[..1], &mut runner(named("buffer"))).unwrap();
    assert_eq!(report.rows[0].invalid, Some(Invalid::TesterTooSlow));
}

#[test]
fn recovery_is_the_last_loss_after_the_step() {
    let setup = Setup::new(TEN_G);
    let run = |name: &str, throughput: f64| {
        Recovery::default().run(&setup, &small(), throughput, &mut runner(named(name))).unwrap()
    };
    let report = run("recovery", 5e6);
    assert_eq!(report.overload, 5.5e6);
    assert!((report.seconds.mean - 0.25).abs() < 1e-6 && report.seconds.runs == 5, "{:?}", report.runs);
    assert_eq!(report.deviations, []);
    let at_once = run("step", 5e6);
    assert!(at_once.seconds.mean.abs() < 1e-6 && at_once.seconds.runs == 5);
    // Line rate is all there is: less than 110 %, and no overload.
    let wire = run("wire", LINE);
    assert!(wire.runs.iter().all(|r| *r == RecoveryRun::NotOverloaded));
    assert!(wire.deviations.iter().any(|d| d.clause == "RFC 2544 26.5"));
    let never = Behaviour { recovery: 100.0, ..named("recovery") };
    let report = Recovery::default().run(&setup, &small(), 5e6, &mut runner(never)).unwrap();
    assert!(report.runs.iter().all(|r| *r == RecoveryRun::NotRecovered));
}

#[test]
fn reset_by_both_methods() {
    let test = ResetTest { kind: ResetKind::Process, before: 15.0, after: 30.0, repetitions: 3 };
    let setup = Setup::new(TEN_G);
    let run = |test: &ResetTest, behaviour: Behaviour| {
        test.run(&setup, &small(), 5e6, &mut runner(behaviour)).unwrap()
    };
    let report = run(&test, named("reset"));
    assert!((report.by_loss.mean - 3.5).abs() < 1e-6 && (report.by_timestamp.mean - 3.5).abs() < 1e-6);
    assert_eq!((report.by_loss.runs, report.lost.mean, report.deviations.len()), (3, 17_500_000.0, 0));
    let graceful = run(&test, named("step"));
    assert_eq!((graceful.by_loss.mean, graceful.by_loss.runs, graceful.by_timestamp.runs), (0.0, 3, 0));
    let power = ResetTest { kind: ResetKind::Power, after: 60.0, ..test.clone() };
    let report = run(&power, Behaviour { reset: 40.0, ..named("reset") });
    assert!((report.by_loss.mean - 25.0).abs() < 1e-6);
    let dead = run(&test, Behaviour { reset: 1000.0, ..named("reset") });
    assert!(dead.runs.iter().all(|r| !r.came_back) && dead.by_loss.runs == 0);
    let lossy = run(&test, Behaviour { capacity: Some(4e6), ..named("reset") });
    assert!(lossy.runs.iter().all(|r| r.lossy_before));
    let hasty = ResetTest { before: 5.0, ..test };
    assert_eq!(run(&hasty, named("reset")).deviations.len(), 1);
}

/// A device that copies to ports of different capacity.
struct Copies(Vec<Device>);

impl Measurer for Copies {
    type Error = <Device as Measurer>::Error;

    fn measure(&mut self, trial: &TrialInput) -> Result<TrialOutput, Self::Error> {
        let mut outputs = Vec::new();
        for device in &mut self.0 {
            outputs.push(device.measure(trial)?);
        }
        let flow = |(i, o): (usize, &TrialOutput)| FlowCount {
            from: "in".into(),
            to: format!("out{i}"),
            ..o.flows[0].clone()
        };
        let flows = outputs.iter().enumerate().map(flow).collect();
        Ok(TrialOutput { flows, ..outputs.remove(0) })
    }
}

#[test]
fn multicast_throughput_is_that_of_the_weakest_egress() {
    let device = |capacity| Device::new(Behaviour { capacity: Some(capacity), ..Behaviour::default() }, 1);
    let copies = Copies(vec![device(8e6), device(3e6), device(9e6)]);
    let mut runner = Runner::new(copies, Silent, Policy::default());
    // Of all copies together 0.5 % may be lost at 3 Mpps and far above; of the weakest port's they may not.
    let goal = Goal { final_duration: 30.0, duration_sum: 30.0, exceed_ratio: 0.0, ..Goal::pdr() };
    let report =
        Multicast { method: Method::Mlr(vec![goal]) }.run(&Setup::new(TEN_G), &small(), &mut runner).unwrap();
    let lower = report.row.found.lower.unwrap();
    assert!((lower / (3e6 / 0.995) - 1.0).abs() < 0.006, "{lower}");
    assert_eq!(report.row.aggregate, report.row.found.throughput);
    let [a, b, c] = &report.egress[..] else { panic!("{:?}", report.egress) };
    assert_eq!((a.received, c.received), (a.due, c.due));
    assert!(b.received <= b.due && b.rate <= 3e6 + 1.0);
    assert_eq!(runner.policy(), &Policy::default());
}

#[test]
fn cores_scale_until_the_line_is_full() {
    let setup = Setup::new(TEN_G);
    let device = |cores: u32| -> Result<Device, std::io::Error> {
        if cores > 6 {
            return Err(std::io::Error::other("there are only 6"));
        }
        Ok(Device::new(Behaviour { capacity: Some(4e6 * f64::from(cores)), ..Behaviour::default() }, 1))
    };
    let run = |cores: &[u32]| {
        Cores { method: rfc2544() }.run(&setup, &small(), cores, &Policy::default(), Silent, device)
    };
    let report = run(&[1, 2, 3, 4, 6]).unwrap();
    for row in &report.rows {
        let throughput = row.throughput.found.throughput.unwrap();
        assert!((throughput / (4e6 * f64::from(row.cores)).min(LINE) - 1.0).abs() < 0.002);
        assert!((row.efficiency.unwrap() - 1.0).abs() < 0.003, "{row:?}");
    }
    assert_eq!(report.rows[4].ideal, Some(LINE));
    let more = run(&[1, 8]).unwrap();
    assert_eq!(
        (more.rows.len(), more.ending),
        (1, Ending::Failed("8 cores per port: there are only 6".into()))
    );
    assert!(run(&[]).is_err());
}

#[test]
fn every_cause_of_loss_gets_its_name() {
    let diagnose = |behaviour: Behaviour, load: f64| {
        Diagnosis::default().run(&Setup::new(TEN_G), &small(), load, &mut runner(behaviour)).unwrap()
    };
    let value = |report: &DiagnosisReport, name: &str| {
        report
            .facts
            .iter()
            .find(|f| f.name == name)
            .unwrap_or_else(|| panic!("{name} of {:?}", report.facts))
            .value
    };
    let d = Behaviour::default;
    assert_eq!(diagnose(d(), LINE).cause, Cause::NoLoss);
    assert_eq!(diagnose(named("step"), LINE).cause, Cause::Capacity);
    // 20 ppm above a capacity that is not the line's.
    assert_eq!(diagnose(named("step"), 5_000_100.0).cause, Cause::Capacity);

    for ppm in [5.0, 30.0, 90.0] {
        let skew = diagnose(Behaviour { skew_ppm: ppm, buffer: 512.0, ..d() }, LINE);
        assert_eq!(skew.cause, Cause::ClockSkew, "{}", skew.sentence);
        // The line rate is floored to whole frames: 0.03 ppm.
        assert!((value(&skew, "skew") - ppm).abs() < 0.5, "{ppm}: {:?}", skew.facts);
    }
    let random = diagnose(named("random"), LINE);
    assert_eq!(random.cause, Cause::Random, "{}", random.sentence);

    let stall = StallPattern { period: 1.25, seconds: 0.001 };
    let stalls = diagnose(Behaviour { stall: Some(stall), buffer: 4096.0, ..d() }, LINE * 0.99);
    assert_eq!(stalls.cause, Cause::PeriodicStall, "{}", stalls.sentence);
    assert!((value(&stalls, "period") - 1.25).abs() < 0.01);

    let start = diagnose(Behaviour { first_lost: 250, ..d() }, LINE * 0.9);
    assert_eq!(start.cause, Cause::Start, "{}", start.sentence);
    let slow = diagnose(Behaviour { tester_ceiling: Some(9e6), ..d() }, LINE);
    assert_eq!(slow.cause, Cause::TesterTooSlow);
    let text = serde_json::to_string(&slow).unwrap();
    assert_eq!(serde_json::from_str::<DiagnosisReport>(&text).unwrap(), slow);
    let dying = diagnose(Behaviour { dies_after: Some(2), ..named("random") }, LINE);
    assert!(matches!(dying.ending, Ending::Failed(_)) && dying.trials.len() == 2);
}

/// A device that loses clumps of frames at irregular times.
struct Bursty(Device, u64);

impl Measurer for Bursty {
    type Error = <Device as Measurer>::Error;

    fn measure(&mut self, trial: &TrialInput) -> Result<TrialOutput, Self::Error> {
        let mut out = self.0.measure(trial)?;
        let mut rng = linerate_tester::rng::Rng::new(self.1);
        let series = out.series.as_mut().unwrap();
        for _ in 0..12 {
            let at = rng.below(series.samples.len() as u64 * 9 / 10) as usize;
            let lost = 100 + rng.below(50);
            series.samples[at].lost += lost;
            series.samples[at].received -= lost;
            out.flows[0].received -= lost;
        }
        Ok(out)
    }
}

#[test]
fn irregular_clumps_are_bursts() {
    for seed in 1..20 {
        let device = Bursty(Device::new(Behaviour::default(), 1), seed);
        let mut runner = Runner::new(device, Silent, Policy::default());
        let report = Diagnosis::default().run(&Setup::new(TEN_G), &small(), LINE * 0.8, &mut runner).unwrap();
        assert_eq!(report.cause, Cause::Bursts, "{seed}: {}", report.sentence);
    }
}

#[test]
fn causes_are_told_apart_at_all_sizes_and_strengths() {
    let setup = Setup::new(TEN_G);
    let diagnose = |behaviour: Behaviour, seed, size: u16, share: f64| {
        let frames = Frames::Size(size);
        let load = setup.theoretical(&frames).unwrap() * share;
        let mut runner = Runner::new(Device::new(behaviour, seed), Silent, Policy::default());
        Diagnosis::default().run(&setup, &frames, load, &mut runner).unwrap()
    };
    for size in [64, 512, 1518, 9000] {
        for seed in 0..8 {
            for random_loss in [1e-5, 1e-4] {
                let report = diagnose(
                    Behaviour { random_loss, directions: 2, ..Behaviour::default() },
                    seed,
                    size,
                    1.0,
                );
                assert_eq!(
                    report.cause,
                    Cause::Random,
                    "{size} {seed} {random_loss}: {} {:?}",
                    report.sentence,
                    report.facts
                );
            }
        }
        for (skew_ppm, buffer) in [(20.0, 32.0), (60.0, 16.0), (99.0, 0.0)] {
            let report =
                diagnose(Behaviour { skew_ppm, buffer, directions: 2, ..Behaviour::default() }, 1, size, 1.0);
            assert_eq!(
                report.cause,
                Cause::ClockSkew,
                "{size} {skew_ppm}: {} {:?}",
                report.sentence,
                report.facts
            );
            let skew = report.facts.iter().find(|f| f.name == "skew").unwrap().value;
            // The line's rate is floored to whole frames: up to a frame a second less than what wears the skew.
            let floor = 1e6 / setup.theoretical(&Frames::Size(size)).unwrap();
            assert!((skew - skew_ppm).abs() < 0.5 + floor, "{size} {skew_ppm}: {skew}");
        }
        for (period, seconds) in [(0.5, 0.002), (2.5, 0.01)] {
            let stall = Some(StallPattern { period, seconds });
            let report = diagnose(Behaviour { stall, buffer: 64.0, ..Behaviour::default() }, 1, size, 0.95);
            assert_eq!(
                report.cause,
                Cause::PeriodicStall,
                "{size} {period}: {} {:?}",
                report.sentence,
                report.facts
            );
        }
    }
}

"""The search against MLRsearch, the library of the RFC's authors, on the same simulated devices.

Both sides ask one device of ours for every trial, so that what differs can only be the search. The library comes from PyPI into an
environment of its own below `target/`, by its hash.
"""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PINNED = "MLRsearch==1.2.1 --hash=sha256:383b0676617fd1043a62fb20a61aad4bc8e5ba7e5d5b5baa62f905936583990f\n"
LINE, LOWEST = 14_880_952.0, 9001.0


def run(command, otherwise):
    """Runs a command that the tests cannot do without; where it cannot run they are skipped, but not under CI."""
    try:
        subprocess.run(command, cwd=ROOT, check=True)
    except (OSError, subprocess.CalledProcessError) as why:
        if os.environ.get("CI", "false") not in ("", "false"):
            raise
        pytest.skip(f"{otherwise}: {why}")


@pytest.fixture(scope="module")
def mlr():
    """The library."""
    place = TARGET / "oracles" / f"mlrsearch-{hashlib.sha256(PINNED.encode()).hexdigest()[:12]}"
    if not (place / "installed").exists():
        venv.create(place, with_pip=True, clear=True)
        (place / "requirements.txt").write_text(PINNED)
        pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--no-deps", "--require-hashes", "-r", place / "requirements.txt"], "MLRsearch cannot be fetched from PyPI")
        (place / "installed").touch()
    [packages] = place.glob("lib/python3*/site-packages")
    sys.path.insert(0, str(packages))
    try:
        import MLRsearch
        import MLRsearch.trial_measurement as trials
        from MLRsearch import target_spec, target_stat

        MLRsearch.trials, MLRsearch.spec, MLRsearch.stat = trials, target_spec, target_stat
        yield MLRsearch
    finally:
        sys.path.remove(str(packages))


class Ours:
    """Our devices and our search, behind a pipe."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        [(name, value)] = request.items()
        print(json.dumps({name: value}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"no answer to {request}"
        return json.loads(answer)


@pytest.fixture(scope="module")
def ours():
    build = ["cargo", "build", "--quiet", "--package", "linerate-tester", "--example", "simulated_search"]
    run(build, "the example simulated_search cannot be built")
    ours = Ours(TARGET / "debug" / "examples" / "simulated_search")
    yield ours
    ours.process.stdin.close()
    assert ours.process.wait() == 0


def goal(name, final, total, loss, exceed, width=0.005, initial=1.0, coarser=2):
    return {
        "name": name, "final_duration": final, "duration_sum": total, "loss_ratio": loss, "exceed_ratio": exceed,
        "width": width, "initial_duration": initial, "coarser": coarser,
    }


RFC2544 = goal("RFC 2544", 60.0, 60.0, 0.0, 0.0)
BSWLV = goal("BSwLV", 60.0, 120.0, 0.0, 0.5)
NDR, PDR = goal("NDR", 1.0, 21.0, 0.0, 0.5), goal("PDR", 1.0, 21.0, 0.005, 0.5)
FINE = goal("fine", 10.0, 20.0, 0.0, 0.2, width=0.0005, initial=0.5)


def library_search(mlr, ours, goals):
    """Bounds and conditional throughput of each goal, by the library; and the seconds of traffic of its trials."""
    trials = []

    class Measurer(mlr.trials.AbstractMeasurer):
        def measure(self, intended_duration, intended_load):
            trials.append(intended_duration)
            r = ours.ask(measure={"load": intended_load, "duration": intended_duration})
            return mlr.trials.MeasurementResult(
                intended_duration=intended_duration, intended_load=intended_load, offered_count=r["offered"],
                forwarding_count=r["received"], intended_count=r["intended"], duration_with_overheads=r["effective"],
            )

    config = mlr.Config()
    config.goals = [
        mlr.SearchGoal(
            loss_ratio=g["loss_ratio"], exceed_ratio=g["exceed_ratio"], relative_width=g["width"],
            initial_trial_duration=g["initial_duration"], final_trial_duration=g["final_duration"],
            duration_sum=g["duration_sum"], preceding_targets=g["coarser"], fail_fast=False,
        )
        for g in goals
    ]
    config.max_load, config.min_load, config.warmup_duration = LINE, LOWEST, None
    found = mlr.MultipleLossRatioSearch(config=config).search(Measurer(), debug=lambda text: None)
    number = lambda load: None if load is None else float(load)
    results = [found[g] for g in config.goals]
    rows = [(number(r.relevant_lower_bound), number(r.relevant_upper_bound), number(r.conditional_throughput)) for r in results]
    return rows, (len(trials), sum(trials))


def our_search(ours, goals):
    answer = ours.ask(search={"goals": goals, "min_load": LOWEST, "max_load": LINE})
    assert answer["result"]["ending"] == "complete"
    load = lambda bound: bound and bound["load"]
    rows = [(load(g["lower"]), load(g["upper"]), g["conditional_throughput"]) for g in answer["result"]["goals"]]
    return rows, (answer["trials"], answer["traffic"])


def device(ours, name, seed=1, **changes):
    behaviour = {**ours.ask(named=name), **changes}
    ours.ask(device={"behaviour": behaviour, "seed": seed})


DEVICES = [
    ("step", {}),
    ("step", {"capacity": 123_456.0}),
    ("step", {"capacity": 14_000_000.0, "directions": 2}),
    ("slope", {}),
    ("slope", {"slope": 0.01}),
    ("skew", {}),
    ("buffer", {}),
    ("wire", {}),
    ("wire", {"tester_ceiling": 7_000_000.0}),
    ("step", {"capacity": 1000.0}),
]


@pytest.mark.parametrize("name, changes", DEVICES)
@pytest.mark.parametrize("goals", [[RFC2544], [BSWLV], [NDR, PDR], [FINE], [RFC2544, NDR, PDR]], ids=lambda g: "+".join(x["name"] for x in g))
def test_the_same_bounds(mlr, ours, name, changes, goals):
    device(ours, name, **changes)
    theirs, (their_trials, their_seconds) = library_search(mlr, ours, goals)
    mine, (my_trials, my_seconds) = our_search(ours, goals)
    print(f"{name} {changes}: {my_trials} trials of {my_seconds:.0f} s, the library {their_trials} of {their_seconds:.0f} s")
    for g, t, m in zip(goals, theirs, mine):
        for which, (a, b) in zip(("lower", "upper", "conditional"), zip(t, m)):
            assert (a is None) == (b is None), (g["name"], which, t, m)
            # Both have bounds this close around the same edge. A loss ratio within what a goal allows moves the third by as much.
            allowed = g["width"] + (g["loss_ratio"] if which == "conditional" else 0)
            assert a is None or abs(a - b) <= allowed * max(a, b), (g["name"], which, t, m)
    # Not the same trials, but nothing like twice the time: half a minute is what a coarse start costs where an easy guess is right.
    assert my_seconds <= 1.7 * their_seconds + 30


@pytest.mark.parametrize("name, goals", [("random", [PDR]), ("stall", [RFC2544]), ("stall", [BSWLV])])
def test_devices_of_chance(mlr, ours, name, goals):
    """What depends on when or on luck: the same kind of answer, near each other."""
    device(ours, name)
    theirs, _ = library_search(mlr, ours, goals)
    mine, _ = our_search(ours, goals)
    for t, m in zip(theirs, mine):
        assert (t[1] is None) == (m[1] is None), (t, m)
        assert abs(t[2] - m[2]) <= 3 * goals[0]["width"] * t[2], (t, m)


def test_the_same_class_and_conditional_throughput_for_any_trials(mlr, ours):
    chance = random.Random(9971)
    classes = {(True, True): "lower", (False, False): "upper", (True, False): "undecided"}
    seen = set()
    for _ in range(3000):
        duration = chance.choice([1.0, 10.0, 60.0])
        total = duration * chance.choice([1, 2, 5, 21])
        loss, exceed = chance.choice([0.0, 0.005, 0.1]), chance.choice([0.0, 0.2, 0.5, 0.75])
        lengths = [chance.choice([1.0, 10.0, 60.0]) for _ in range(chance.randrange(1, 30))]
        results = [(n, chance.choice([0.0, 0.0, 0.001, 0.005, 0.01, 0.5, 1.0])) for n in lengths]
        spec = mlr.spec.TargetSpec(
            loss_ratio=loss, exceed_ratio=exceed, discrete_width=mlr.spec.DiscreteWidth.__new__(mlr.spec.DiscreteWidth),
            trial_duration=duration, duration_sum=total, expansion_coefficient=2, fail_fast=False, preceding=None,
        )
        stat = mlr.stat.TargetStat(spec)
        for n, lost in results:
            count = 1_000_000
            stat.add(mlr.trials.MeasurementResult(intended_duration=n, intended_load=1e6, offered_count=count, loss_count=round(lost * count)))
        entries = [{"intended": n, "effective": n, "loss": lost} for n, lost in results]
        criterion = {"duration": duration, "sum": total, "loss_ratio": loss, "exceed_ratio": exceed}
        answer = ours.ask(classify={"criterion": criterion, "load": 1e6, "trials": entries})
        wanted = classes[stat.estimates()]
        assert answer["class"] == wanted, (criterion, results)
        seen.add(wanted)
        if wanted == "lower":
            assert abs(answer["conditional_throughput"] - 1e6 * (1 - stat.pessimistic_loss_ratio)) < 1e-3, (criterion, results)
    assert seen == {"lower", "upper", "undecided"}

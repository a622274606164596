//! `[[worker]]`: polling threads and their CPUs.

use linerate_engine::desired::{IdleSpec, WorkerSpec};

use super::Host;
use super::decode::{At, Section, Source};
use super::problem::NO_SUCH_CPU;

/// Most workers of an instance.
const MAX_WORKERS: usize = 64;

pub(super) struct Worker {
    pub(super) spec: WorkerSpec,
    pub(super) cpu: Option<At<usize>>,
}

pub(super) fn read(sections: Vec<Section<'_>>, source: &Source<'_>, host: &Host) -> Vec<Worker> {
    if sections.is_empty() {
        source.problem(0, "worker", "there is no worker: expected at least one [[worker]] with a `cpu`");
    }
    if let Some(s) = sections.get(MAX_WORKERS) {
        source.problem(s.at, &s.key, format!("expected at most {MAX_WORKERS} workers"));
    }
    let mut workers: Vec<Worker> = Vec::new();
    for section in sections.into_iter().take(MAX_WORKERS) {
        let worker = one(section, source, host);
        if let Some(cpu) = &worker.cpu
            && let Some((i, first)) = workers
                .iter()
                .enumerate()
                .find_map(|(i, w)| w.cpu.as_ref().filter(|c| c.value == cpu.value).map(|c| (i, c)))
        {
            let line = source.line(first.at);
            let message =
                format!("CPU {} already runs worker {i} (line {line}): expected a CPU of its own", cpu.value);
            cpu.problem(source, message);
        }
        workers.push(worker);
    }
    workers
}

fn one(mut s: Section<'_>, source: &Source<'_>, host: &Host) -> Worker {
    let cpu = s.need("cpu", "the CPU it runs on").and_then(|i| i.number(0..=1023, "a CPU number"));
    if let Some(cpu) = &cpu {
        check_cpu(cpu, source, host);
    }
    let spin = s.take("idle").and_then(|i| i.word(&[("spin", true), ("sleep", false)]));
    let sleep = s.take("max_sleep_us").and_then(|i| i.number(1..=100_000, "microseconds"));
    if let (Some(At { value: true, .. }), Some(sleep)) = (&spin, &sleep) {
        sleep.problem(
            source,
            "a worker with idle = \"spin\" never sleeps: expected idle = \"sleep\", or no `max_sleep_us`",
        );
    }
    s.finish();
    let idle = match (spin, sleep) {
        (Some(At { value: true, .. }), _) => IdleSpec::Spin,
        (_, Some(sleep)) => IdleSpec::Sleep { max_microseconds: sleep.value },
        _ => IdleSpec::default(),
    };
    Worker { spec: WorkerSpec { cpu: cpu.as_ref().map_or(0, |c| c.value), idle }, cpu }
}

/// Notes a CPU that this process cannot run on.
pub(super) fn check_cpu(cpu: &At<usize>, source: &Source<'_>, host: &Host) {
    if let Some(cpus) = &host.cpus
        && !cpus.contains(&cpu.value)
    {
        let list = ranges(cpus.iter().copied());
        cpu.problem(source, format!("CPU {} {NO_SUCH_CPU}, {list}", cpu.value));
    }
}

/// `0-3, 8` from 0, 1, 2, 3, 8.
fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let run = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}

//! What a benchmark hands back: one object for programs, tables for people.

use serde::Serialize;
use std::fmt::Write;

/// Everything one run found.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) host: Host,
    pub(super) config: serde_json::Value,
    pub(super) results: Vec<Measured>,
    pub(super) targets: Vec<Target>,
}

/// Where it ran.
#[derive(Serialize)]
pub(super) struct Host {
    pub(super) cpu: String,
    pub(super) cpus: usize,
    pub(super) kernel: String,
    pub(super) memory_pages: String,
}

/// One figure.
#[derive(Clone, Serialize)]
pub(super) struct Measured {
    /// Stable dotted name.
    pub(super) id: String,
    /// Median over the runs.
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) runs: usize,
    /// What the harness alone takes, where that was measured.
    pub(super) floor: Option<f64>,
    /// Id of the figure this one is compared with.
    pub(super) peer: Option<String>,
    /// How many times better than the peer, median of the ratios of each run.
    pub(super) ratio: Option<f64>,
}

/// A bar and what was measured against it.
#[derive(Serialize)]
pub(super) struct Target {
    pub(super) what: String,
    pub(super) required: String,
    pub(super) measured: String,
    pub(super) met: bool,
}

impl Measured {
    /// A figure from several runs.
    pub(super) fn new(id: impl Into<String>, unit: &'static str, runs: &[f64]) -> Self {
        Measured {
            id: id.into(),
            value: super::stats::median(runs),
            unit,
            min: runs.iter().copied().fold(f64::NAN, f64::min),
            max: runs.iter().copied().fold(f64::NAN, f64::max),
            runs: runs.len(),
            floor: None,
            peer: None,
            ratio: None,
        }
    }
}

impl Report {
    /// The figure with that id.
    pub(super) fn value(&self, id: &str) -> Option<f64> {
        self.results.iter().find(|r| r.id == id).map(|r| r.value)
    }

    /// Notes a bar as "at least" (`at_least`) or "at most".
    pub(super) fn target(&mut self, what: &str, measured: Option<f64>, bar: f64, at_least: bool, unit: &str) {
        let Some(value) = measured.filter(|v| v.is_finite()) else { return };
        let met = if at_least { value >= bar } else { value <= bar };
        let relation = if at_least { ">=" } else { "<=" };
        self.targets.push(Target {
            what: what.into(),
            required: format!("{relation} {bar} {unit}").trim_end().into(),
            measured: format!("{} {unit}", short(value)).trim_end().into(),
            met,
        });
    }

    /// As a table.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} ({} CPUs), Linux {}, pages: {}\n",
            self.host.cpu, self.host.cpus, self.host.kernel, self.host.memory_pages
        );
        let width = self.results.iter().map(|r| r.id.len()).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "{:width$}  {:>10} {:9} {:>10} {:>10} {:>4}  ours is",
            "figure", "median", "unit", "min", "max", "runs"
        );
        for r in &self.results {
            let ratio = match (&r.peer, r.ratio) {
                (Some(_), Some(ratio)) => format!("{ratio:.2}x"),
                _ => String::new(),
            };
            let _ = writeln!(
                out,
                "{:width$}  {:>10} {:9} {:>10} {:>10} {:>4}  {ratio}",
                r.id,
                short(r.value),
                r.unit,
                short(r.min),
                short(r.max),
                r.runs
            );
        }
        if !self.targets.is_empty() {
            let width = self.targets.iter().map(|t| t.what.chars().count()).max().unwrap_or(0);
            let _ = writeln!(out, "\n{:width$}  {:>16} {:>16}", "target", "required", "measured");
            for t in &self.targets {
                let verdict = if t.met { "met" } else { "NOT MET" };
                let _ = writeln!(out, "{:width$}  {:>16} {:>16}  {verdict}", t.what, t.required, t.measured);
            }
        }
        out
    }
}

/// Four significant digits or so.
pub(super) fn short(v: f64) -> String {
    match v.abs() {
        a if a >= 1e6 => format!("{:.0}k", v / 1e3),
        a if a >= 1e3 => format!("{v:.0}"),
        a if a >= 100.0 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    }
}

impl Host {
    /// This machine.
    pub(super) fn here(memory_pages: String) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = |key: &str| {
            let line = cpu.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split(": ").nth(1)).unwrap_or("?").to_owned()
        };
        Host {
            cpu: format!(
                "{} (family {} model {})",
                model("model name"),
                model("cpu family"),
                model("model\t")
            ),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_know_which_side_is_good() {
        let mut report = Report {
            host: Host::here("4 KiB".into()),
            config: serde_json::json!({}),
            results: vec![Measured::new("a.b", "ns", &[3.0, 1.0, 2.0])],
            targets: Vec::new(),
        };
        report.target("speed", Some(1.4), 1.3, true, "x");
        report.target("bytes", Some(3.0), 2.0, false, "MB");
        report.target("not measured", None, 1.0, true, "");
        assert_eq!(report.targets.iter().map(|t| t.met).collect::<Vec<_>>(), [true, false]);
        let (r, text) = (&report.results[0], report.text());
        assert_eq!((r.value, r.min, r.max, r.runs), (2.0, 1.0, 3.0, 3));
        assert!(text.contains("a.b") && text.contains("NOT MET"), "{text}");
    }
}

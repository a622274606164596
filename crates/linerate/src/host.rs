//! What a figure was measured on: read from /proc and /sys, shown with every result.

use std::fs;

use linerate_tester::report::results::Results;

/// Adds what is known of the host to results. What cannot be read is left out.
pub(crate) fn describe(results: &mut Results) {
    let first = |path: &str, key: &str| -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let file =
        |path: &str| fs::read_to_string(path).ok().map(|s| s.trim().to_string()).filter(|s| !s.is_empty());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut add = |key: &str, value: Option<String>| {
        if let Some(v) = value {
            results.host(key, v);
        }
    };
    add("cpu", first("/proc/cpuinfo", "model name"));
    add("cpus available", Some(cpus.to_string()));
    let flags = first("/proc/cpuinfo", "flags").unwrap_or_default();
    let has = |flag: &str| flags.split(' ').any(|f| f == flag);
    add("vector width", Some(if has("avx512f") { "AVX-512" } else { "AVX2" }.into()));
    add("virtual machine", Some(if has("hypervisor") { "yes" } else { "no" }.into()));
    for (name, index) in [("L2 cache per core", 2), ("L3 cache", 3)] {
        add(name, file(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).map(|s| binary(&s)));
    }
    add("memory", first("/proc/meminfo", "MemTotal").map(|s| binary(&s)));
    add("kernel", file("/proc/sys/kernel/osrelease"));
    add("system", os_name());
}

/// The distribution, as `/etc/os-release` names it.
fn os_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_string())
}

/// "24683652 kB" or "1024K" in a unit that can be read.
fn binary(size: &str) -> String {
    let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
    match (digits.parse::<f64>(), size[digits.len()..].trim().to_ascii_lowercase().as_str()) {
        (Ok(k), "k" | "kb") if k >= 1_048_576.0 => format!("{:.1} GiB", k / 1_048_576.0),
        (Ok(k), "k" | "kb") if k >= 1024.0 => format!("{} MiB", (k / 102.4).round() / 10.0),
        (Ok(k), "k" | "kb") => format!("{k} KiB"),
        _ => size.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable_and_the_unknown_is_left_alone() {
        assert_eq!(binary("24683652 kB"), "23.5 GiB");
        assert_eq!(
            (binary("1024K"), binary("32768K"), binary("512K")),
            ("1 MiB".into(), "32 MiB".into(), "512 KiB".into())
        );
        assert_eq!((binary(""), binary("x"), binary("7 GB")), (String::new(), "x".into(), "7 GB".into()));
    }

    #[test]
    fn a_host_is_described_whatever_it_is() {
        let mut r = Results::default();
        describe(&mut r);
        assert!(r.host.iter().any(|(k, v)| k == "cpus available" && v.parse::<usize>().is_ok()));
        assert!(r.host.iter().all(|(_, v)| !v.is_empty()));
    }
}

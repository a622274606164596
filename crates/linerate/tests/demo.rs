//! `linerate demo` from end to end: it passes, and it fails when the router is wrong on purpose.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the demo with its report in `dir`; `through` is put in front of the command line.
fn demo(through: &[&str], dir: &Path, args: &[&str]) -> Output {
    let mut line: Vec<String> = through.iter().map(ToString::to_string).collect();
    line.extend([env!("CARGO_BIN_EXE_linerate"), "demo", "--quick", "--report"].map(String::from));
    line.push(dir.join("report.html").display().to_string());
    line.extend(args.iter().map(ToString::to_string));
    Command::new(&line[0]).args(&line[1..]).output().unwrap()
}

fn json(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("report.json")).unwrap()).unwrap()
}

fn figure(results: &Value, id: &str) -> f64 {
    let all = results["results"].as_array().unwrap();
    let found = all.iter().find(|f| f["id"] == id).unwrap_or_else(|| panic!("no figure {id}"));
    found["value"].as_f64().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn every_packet_comes_back_right() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(&[], dir.path(), &["--json"]);
    assert!(output.status.success(), "{}", text(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, json(dir.path()), "what is printed is what is written");
    for (id, value) in [
        ("demo.passed", 1.0),
        ("demo.lost", 0.0),
        ("demo.wrong", 0.0),
        ("demo.duplicates", 0.0),
        ("demo.reordered", 0.0),
        ("demo.imbalance", 0.0),
        ("demo.ipv4.routes", 612_927.0),
        ("demo.ipv6.routes", 160_147.0),
        ("demo.ipv4.64.frame", 64.0),
        ("demo.ipv6.64.frame", 82.0),
    ] {
        assert_eq!(figure(&printed, id), value, "{id}");
    }
    for family in ["ipv4", "ipv6"] {
        for size in [64, 1518, 9000] {
            let of = |what: &str| figure(&printed, &format!("demo.{family}.{size}.{what}"));
            assert!(of("rate") > 0.0 && of("l1") > 0.0 && of("capacity") >= of("rate") * 0.5);
            assert!(of("sent") > 100.0 && (0.0..=1.0).contains(&of("busy")));
        }
    }
    let html = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert_eq!(html.matches("<figure>").count(), 4);
    assert!(html.contains("verdict good") && html.contains("64 → 82") && !html.contains("http"));
}

#[test]
fn a_router_that_is_wrong_is_caught_each_way() {
    for (what, fault) in [
        ("next-hop", "instead of"),
        ("checksum", "checksum is wrong"),
        ("ttl", "TTL 62 instead of 63"),
        ("payload", "payload was changed"),
        ("drop", "lost"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let output = demo(&[], dir.path(), &["--break", what]);
        assert_eq!(output.status.code(), Some(1), "{what}: {}", text(&output));
        assert!(text(&output).contains(fault), "{what}: {}", text(&output));
        let results = json(dir.path());
        assert_eq!(figure(&results, "demo.passed"), 0.0, "{what}");
        let (lost, wrong) = (figure(&results, "demo.lost"), figure(&results, "demo.wrong"));
        assert_eq!(
            (lost > 0.0, wrong > 0.0),
            (what == "drop", what != "drop"),
            "{what}: {lost} lost, {wrong} wrong"
        );
        assert!(std::fs::read_to_string(dir.path().join("report.html")).unwrap().contains("verdict bad"));
    }
}

#[test]
fn one_cpu_is_enough_and_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let first = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = first.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let cpu = allowed.split([',', '-']).next().unwrap();
    let output = demo(&["taskset", "-c", cpu], dir.path(), &[]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("one CPU"), "{}", text(&output));
}

#[test]
fn a_table_from_a_file_is_used_and_a_bad_one_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rib = dir.path().join("rib.txt");
    std::fs::write(&rib, "8.0.0.0/8 1\n8.8.0.0/16 2\n8.8.8.0/24 3\n2606:4700::/32 2\n").unwrap();
    let rib = rib.display().to_string();
    let output = demo(&[], dir.path(), &["--rib", &rib]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(figure(&json(dir.path()), "demo.ipv4.routes"), 3.0);

    std::fs::write(&rib, "8.0.0.0/8 1\nnonsense\n").unwrap();
    let output = demo(&[], dir.path(), &["--rib", &rib]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("line 2"), "{}", text(&output));
    let output = demo(&[], dir.path(), &["--rib", "no-such-file"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("no-such-file"), "{}", text(&output));
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let output = demo(&[], &dir.path().join("none"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(text.contains("cannot write") && !text.contains("routing table"), "{text}");
}

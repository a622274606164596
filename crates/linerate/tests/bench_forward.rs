//! `linerate bench forward` from end to end: figures under stable names, each beside its floor.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn every_table_stands_beside_its_floor() {
    let args = ["bench", "forward", "--quick", "--json", "--rounds", "1", "--window", "20"];
    let child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let left = format!("dpdk/linerate-bench-{}", child.id());
    let output = child.wait_with_output().unwrap();
    assert!(["/var/run", "/tmp"].iter().all(|base| !Path::new(base).join(&left).exists()), "{left} is left");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    for table in ["ipv4.16.64", "ipv4.1.64", "ipv4.full.64", "ipv4.1-spread.64", "ipv6.16.66", "ipv6.full.66"]
    {
        for what in ["rate", "best"] {
            let id = format!("forward.{table}.{what}");
            let figure = all["results"].as_array().unwrap().iter().find(|f| f["id"] == id.as_str());
            let figure = figure.unwrap_or_else(|| panic!("no figure {id}"));
            let of = |field: &str| figure[field].as_f64().unwrap();
            assert!(of("value") > 0.0 && of("floor") > 0.0, "{figure}");
            assert!((of("value") / of("floor") - of("ratio")).abs() < 1e-6, "{figure}");
        }
    }
    assert!(all["targets"].as_array().unwrap().len() >= 4);
}

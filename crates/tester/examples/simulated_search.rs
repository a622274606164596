//! Simulated devices and the search over a pipe, for those who compare it with another implementation.
//!
//! A request is a line of JSON on standard input, its answer a line on standard output:
//!
//! | request | answer |
//! |---|---|
//! | `{"named": "step"}` | the behaviour of that name |
//! | `{"device": {"behaviour": {...}, "seed": 1}}` | `{}`; trials are of this device from now on |
//! | `{"measure": {"load": 1e6, "duration": 1.0}}` | `{"intended", "offered", "received", "effective", "loss_ratio"}` |
//! | `{"search": {"goals": [...], "min_load": 9001, "max_load": 1e7}}`, on a new device of that kind and seed | `{"result", "trials", "traffic"}`: what was found without its trials, their number and seconds |
//! | `{"classify": {"criterion": {...}, "load": 1e6, "trials": [...]}}` | `{"class", "conditional_throughput"}` |

#![allow(clippy::print_stdout, reason = "answers go to standard output")]

use std::io::BufRead;

use linerate_tester::search::{Criterion, Entry, Goal, Search};
use linerate_tester::simulate::{Behaviour, Device};
use linerate_tester::trial::{Frames, Measurer, Plan, Policy, Runner, Silent};
use serde::Deserialize;
use serde_json::{Value, json};

type Problem = Box<dyn std::error::Error>;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Device { behaviour: Behaviour, seed: u64 },
    Measure { load: f64, duration: f64 },
    Search { goals: Vec<Goal>, min_load: f64, max_load: f64 },
    Classify { criterion: Criterion, load: f64, trials: Vec<Entry> },
    Named(String),
}

fn main() -> Result<(), Problem> {
    let mut device = Device::new(Behaviour::default(), 0);
    let mut fresh = device.clone();
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Request::Named(name) => {
                let known = || Behaviour::NAMES.join(", ");
                serde_json::to_value(
                    Behaviour::named(&name)
                        .ok_or_else(|| format!("no device {name}; there is: {}", known()))?,
                )?
            }
            Request::Device { behaviour, seed } => {
                fresh = Device::new(behaviour, seed);
                device = fresh.clone();
                json!({})
            }
            Request::Measure { load, duration } => measure(&mut device, load, duration)?,
            Request::Search { goals, min_load, max_load } => {
                let mut runner = Runner::new(fresh.clone(), Silent, Policy::default());
                let mut result = Search::new(goals, min_load, max_load).run(&plan(), &mut runner)?;
                let traffic: f64 = result.trials.iter().map(|t| t.input.seconds()).sum();
                let trials = result.trials.len();
                result.trials.clear();
                json!({"result": result, "trials": trials, "traffic": traffic})
            }
            Request::Classify { criterion, load, trials } => json!({
                "class": criterion.class(&criterion.sums(&trials)),
                "conditional_throughput": criterion.conditional_throughput(load, &trials),
            }),
        };
        println!("{answer}");
    }
    Ok(())
}

fn plan() -> Plan {
    Plan { sample: 0.0, ..Plan::new(Frames::Size(64)) }
}

fn measure(device: &mut Device, load: f64, duration: f64) -> Result<Value, Problem> {
    let input = plan().constant(load, duration);
    let mut output = device.measure(&input)?;
    let loss_ratio = Policy::default().judge(&input, &mut output);
    let total = output.total();
    Ok(json!({
        "intended": total.intended,
        "offered": total.offered,
        "received": total.received,
        "effective": output.effective_seconds,
        "loss_ratio": loss_ratio,
    }))
}

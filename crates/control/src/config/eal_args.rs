//! `dpdk.eal_args`: arguments that DPDK gets as they are. Those that it would not know, and those that the program sets
//! itself, are refused here: DPDK answers with a page of usage.

use super::decode::Section;
use super::problem::suggest;

/// Arguments that have keys of their own, with these. As DPDK reads them: `-l0-3` and `--lcore=…` are `-l` and `--lcores`.
const OWN: &[(&str, &str)] = &[
    ("-l", "worker.cpu"),
    ("--lcores", "worker.cpu"),
    ("-c", "worker.cpu"),
    ("--file-prefix", "dpdk.file_prefix"),
    ("-m", "dpdk.memory_mb"),
    ("--socket-mem", "dpdk.memory_mb"),
    ("--no-huge", "dpdk.memory"),
    ("--in-memory", "dpdk.memory"),
    ("--no-pci", "dpdk.pci"),
    ("--no-telemetry", "dpdk.telemetry"),
    ("--telemetry", "dpdk.telemetry"),
    ("--vdev", "port.device"),
    ("-a", "port.device"),
    ("--allow", "port.device"),
];

/// The other long arguments of DPDK 22.11.
const LONG: &[&str] = &[
    "--base-virtaddr",
    "--block",
    "--create-uio-dev",
    "--force-max-simd-bitwidth",
    "--huge-dir",
    "--huge-unlink",
    "--huge-worker-stack",
    "--iova-mode",
    "--legacy-mem",
    "--log-level",
    "--main-lcore",
    "--match-allocations",
    "--mbuf-pool-ops-name",
    "--no-hpet",
    "--no-shconf",
    "--proc-type",
    "--single-file-segments",
    "--socket-limit",
    "--syslog",
    "--trace",
    "--trace-bufsz",
    "--trace-dir",
    "--trace-mode",
    "--vfio-intr",
    "--vfio-vf-token",
    "--vmware-tsc-map",
];

/// The other short arguments of DPDK 22.11, those that stand alone and those with a value.
const SHORT: (&str, &str) = ("v", "bdnrsS");

pub(super) fn read(s: &mut Section<'_>) -> Vec<String> {
    let what = "a list of EAL arguments such as [\"--log-level=lib.eal:debug\"]";
    let list = s.take("eal_args").and_then(|i| i.list(what)).unwrap_or_default();
    let mut args: Vec<String> = Vec::new();
    for item in list {
        let Some(arg) = item.string("an EAL argument") else { continue };
        // The value of the argument before.
        let value = args.last().is_some_and(|a| a.starts_with('-') && !a.contains('='));
        let verdict = match &arg.value {
            text if text.contains('\0') => Err("found a NUL byte: expected an EAL argument without".into()),
            text if value && !text.starts_with('-') => Ok(()),
            text => judge(text),
        };
        match verdict {
            Ok(()) => args.push(arg.value),
            Err(message) => arg.problem(s.source, message),
        }
    }
    args
}

/// Whether DPDK may have an argument; otherwise why not.
fn judge(arg: &str) -> Result<(), String> {
    let own = |flag: &str| OWN.iter().find(|(own, _)| *own == flag).map(|(_, key)| *key);
    let taken =
        |flag: &str, key| Err(format!("{flag} is set by the program: expected the key `{key}` instead"));
    if !arg.starts_with("--") {
        for letter in arg.strip_prefix('-').unwrap_or_default().chars() {
            if let Some(key) = own(&format!("-{letter}")) {
                return taken(&format!("-{letter}"), key);
            }
            if SHORT.1.contains(letter) {
                return Ok(());
            }
            if !SHORT.0.contains(letter) {
                return unknown(arg);
            }
        }
        return if arg.len() > 1 && arg.starts_with('-') { Ok(()) } else { unknown(arg) };
    }
    let flag = arg.split('=').next().unwrap_or_default();
    if LONG.contains(&flag) {
        return Ok(());
    }
    // Long arguments may be cut short as long as they are one only.
    let meant: Vec<&str> = long().filter(|l| flag.len() > 2 && l.starts_with(flag)).collect();
    match (own(flag), &meant[..]) {
        (Some(key), _) => taken(flag, key),
        (None, [one]) => own(one).map_or(Ok(()), |key| taken(one, key)),
        _ => unknown(flag),
    }
}

fn long() -> impl Iterator<Item = &'static str> {
    OWN.iter().map(|(own, _)| *own).filter(|o| o.starts_with("--")).chain(LONG.iter().copied())
}

fn unknown(flag: &str) -> Result<(), String> {
    let found = format!("DPDK has no argument \"{}\"", flag.escape_debug());
    Err(match suggest(flag, long()) {
        Some(meant) => format!("{found}: did you mean \"{meant}\"?"),
        None => format!("{found}: expected one such as \"--log-level=lib.eal:debug\""),
    })
}

//! `[dpdk]`: how DPDK's environment is started.

use linerate_engine::desired::{DpdkSpec, MemorySpec};

use super::Host;
use super::decode::{At, Item, Section, Source};
use super::ports::{self, Port};
use super::workers::{Worker, check_cpu};

pub(super) fn read(
    item: Option<Item<'_>>,
    source: &Source<'_>,
    host: &Host,
    workers: &[Worker],
    ports: &[Port],
) -> DpdkSpec {
    let first_pci = ports.iter().find(|p| ports::is_pci(&p.spec.device));
    let mut spec = DpdkSpec { pci: first_pci.is_some(), ..DpdkSpec::default() };
    if let Some(cpu) = host.cpus.as_ref().and_then(|c| free_cpu(c, workers)) {
        spec.control_cpu = cpu;
    }
    let Some(mut s) = item.and_then(|i| i.section("a table [dpdk]")) else { return spec };
    if let Some(prefix) = s.take("file_prefix").and_then(|i| file_prefix(&i)) {
        spec.file_prefix = prefix.value;
    }
    let huge = s.take("memory").and_then(|i| i.word(&[("hugepages", true), ("no-huge", false)]));
    let megabytes = s.number("memory_mb", 32..=1 << 20, "an amount of memory in MiB", 1024);
    spec.memory = match huge {
        Some(At { value: false, .. }) => MemorySpec::NoHuge { megabytes },
        _ => MemorySpec::Hugepages { megabytes },
    };
    spec.telemetry = s.flag("telemetry", spec.telemetry);
    if let Some(pci) = s.take("pci").and_then(|i| i.bool()) {
        if let (false, Some(port)) = (pci.value, first_pci) {
            pci.problem(source, format!("port \"{}\" is a PCI device: expected true, or no such port", port.spec.name));
        }
        spec.pci = pci.value;
    }
    spec.eal_args = eal_args(&mut s);
    spec.buffer_size = s.number("buffer_size", 512..=16384, "bytes per buffer", spec.buffer_size);
    spec.packet_buffers =
        s.take("packet_buffers").and_then(|i| i.number(512..=1 << 26, "a number of buffers")).map(|n| n.value);
    if let Some(cpu) = s.take("control_cpu").and_then(|i| i.number(0..=1023, "a CPU number")) {
        check_cpu(&cpu, source, host);
        if workers.iter().any(|w| w.cpu.as_ref().is_some_and(|c| c.value == cpu.value)) {
            cpu.warning(source, format!("CPU {} also runs a worker, which the control threads will interrupt", cpu.value));
        }
        spec.control_cpu = cpu.value;
    }
    s.finish();
    spec
}

/// The first CPU that no worker uses, else the first one.
fn free_cpu(cpus: &std::collections::BTreeSet<usize>, workers: &[Worker]) -> Option<usize> {
    let used = |c: &usize| workers.iter().any(|w| w.cpu.as_ref().is_some_and(|w| w.value == *c));
    cpus.iter().find(|c| !used(c)).or(cpus.first()).copied()
}

fn file_prefix(item: &Item<'_>) -> Option<At<String>> {
    let what = "1 to 32 letters, digits, `_` or `-`";
    let prefix = item.string(what)?;
    let good = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if prefix.value.len() > 32 || !prefix.value.chars().all(good) {
        item.expected(what);
        return None;
    }
    Some(prefix)
}

/// Arguments that have keys of their own, with these.
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

fn eal_args(s: &mut Section<'_>) -> Vec<String> {
    let what = "a list of EAL arguments such as [\"--log-level=lib.eal:debug\"]";
    let list = s.take("eal_args").and_then(|i| i.list(what)).unwrap_or_default();
    let mut args = Vec::new();
    for item in list {
        let Some(arg) = item.string("an EAL argument") else { continue };
        let flag = arg.value.split('=').next().unwrap_or_default();
        if let Some((_, key)) = OWN.iter().find(|(own, _)| *own == flag) {
            arg.problem(s.source, format!("{flag} is set by the program: expected the key `{key}` instead"));
        } else if arg.value.contains('\0') {
            item.expected("an EAL argument without NUL byte");
        } else {
            args.push(arg.value);
        }
    }
    args
}

//! `[dpdk]`: how DPDK's environment is started.

use linerate_engine::desired::{DpdkSpec, MemorySpec};

use super::Host;
use super::decode::{At, Item, Source};
use super::eal_args;
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
    let Some(mut s) = item.and_then(|i| i.section("a table [dpdk]")) else {
        ports::check_drivers(ports, source);
        return spec;
    };
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
            pci.problem(
                source,
                format!("port \"{}\" is a PCI device: expected true, or no such port", port.spec.name),
            );
        }
        spec.pci = pci.value;
    }
    spec.eal_args = eal_args::read(&mut s);
    // With `-d` there may be drivers that nobody knows of here.
    if !spec.eal_args.iter().any(|a| a.starts_with("-d")) {
        ports::check_drivers(ports, source);
    }
    spec.buffer_size = s.number("buffer_size", 512..=16384, "bytes per buffer", spec.buffer_size);
    spec.packet_buffers = s
        .take("packet_buffers")
        .and_then(|i| i.number(512..=1 << 26, "a number of buffers"))
        .map(|n| n.value);
    if let Some(cpu) = s.take("control_cpu").and_then(|i| i.number(0..=1023, "a CPU number")) {
        check_cpu(&cpu, source, host);
        if workers.iter().any(|w| w.cpu.as_ref().is_some_and(|c| c.value == cpu.value)) {
            cpu.warning(
                source,
                format!("CPU {} also runs a worker, which the control threads will interrupt", cpu.value),
            );
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

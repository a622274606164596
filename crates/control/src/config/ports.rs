//! `[[port]]`: DPDK devices, their queues and which workers serve them.

use linerate_engine::desired::PortSpec;
use linerate_engine::instance::device;
use linerate_pipeline::counters::MAX_PORTS;

use super::decode::{At, Item, Section, Source};
use super::problem::suggest;
use super::workers::Worker;

const MTU: std::ops::RangeInclusive<u16> = 68..=9216;

pub(super) struct Port {
    pub(super) spec: PortSpec,
    pub(super) name: Option<At<String>>,
    device: Option<At<String>>,
}

pub(super) fn read(sections: Vec<Section<'_>>, source: &Source<'_>, workers: &[Worker]) -> Vec<Port> {
    if sections.is_empty() {
        source.problem(
            0,
            "port",
            "there is no port: expected at least one [[port]] with `name` and `device`",
        );
    }
    if let Some(s) = sections.get(MAX_PORTS) {
        source.problem(
            s.at,
            &s.key,
            format!("expected at most {MAX_PORTS} ports, the most this DPDK can drive"),
        );
    }
    let mut ports: Vec<Port> = Vec::new();
    for section in sections {
        let port = one(section, source, workers.len());
        let same = |a: &Option<At<String>>, b: &Option<At<String>>, by: fn(&str) -> String| match (a, b) {
            (Some(a), Some(b)) => by(&a.value) == by(&b.value),
            _ => false,
        };
        for other in &ports {
            let Some(first) = &other.name else { continue };
            let first = format!("port \"{}\" (line {})", first.value, source.line(first.at));
            if same(&port.name, &other.name, str::to_owned) {
                port.name
                    .iter()
                    .for_each(|n| n.problem(source, format!("the name of {first} again: expected another")));
            }
            if same(&port.device, &other.device, |d| device::name(d).to_owned()) {
                let message = format!("the device of {first} again: expected another device");
                port.device.iter().for_each(|d| d.problem(source, message.clone()));
            } else if same(&port.device, &other.device, |d| linux_interface(d).unwrap_or_default().to_owned())
                && port.device.as_ref().is_some_and(|d| linux_interface(&d.value).is_some())
            {
                let message = format!("the Linux interface of {first} again: expected another `iface=`");
                port.device.iter().for_each(|d| d.problem(source, message.clone()));
            }
        }
        ports.push(port);
    }
    ports
}

fn one(mut s: Section<'_>, source: &Source<'_>, workers: usize) -> Port {
    let name = super::name(&mut s, 31);
    let device = s.need("device", DEVICE).and_then(|i| read_device(&i));
    let queues = s.take("rx_queues").and_then(|i| i.number(1..=128u16, "a number of queues"));
    let queue_workers = s.take("workers").map(|i| worker_list(&i, workers));
    let spread = s.take("spread").map(|i| worker_list(&i, workers)).unwrap_or_default();
    let repeated = spread.iter().enumerate().find(|(i, w)| spread[..*i].iter().any(|o| o.value == w.value));
    if let Some((_, again)) = repeated {
        again.problem(
            source,
            format!("worker {} is in the list twice: expected each worker once", again.value),
        );
    }
    if let (Some(queues), Some(list)) = (&queues, &queue_workers)
        && list.len() != usize::from(queues.value)
    {
        let n = list.len();
        let what = format!(
            "{} receive queues, but `workers` names {n}: expected one worker per queue",
            queues.value
        );
        queues.problem(source, what);
    }
    let descriptors = s.take("descriptors").map_or((1024, 1024), |i| descriptors(&i));
    let mtu = s.number("mtu", MTU, "an MTU", 1500);
    let promiscuous = s.flag("promiscuous", false);
    s.finish();
    let queue_workers: Vec<usize> = queue_workers.unwrap_or_default().into_iter().map(|w| w.value).collect();
    let rx_queues = queues.map_or(queue_workers.len().clamp(1, 128) as u16, |q| q.value);
    let text = |t: &Option<At<String>>| t.as_ref().map(|t| t.value.clone()).unwrap_or_default();
    let spec = PortSpec {
        name: text(&name),
        device: text(&device),
        rx_queues,
        queue_workers,
        spread: spread.into_iter().map(|w| w.value).collect(),
        rx_descriptors: descriptors.0,
        tx_descriptors: descriptors.1,
        mtu,
        promiscuous,
    };
    Port { spec, name, device }
}

const DEVICE: &str =
    "a PCI address such as 0000:01:00.0, or a virtual device such as net_af_packet0,iface=eth0";

fn read_device(item: &Item<'_>) -> Option<At<String>> {
    let device = item.string(DEVICE)?;
    let id = device::name(&device.value);
    let virtual_device = id
        .strip_prefix("net_")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
    if !is_pci(id) && !virtual_device || device.value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        item.expected(DEVICE);
        return None;
    }
    Some(device.map(|d| device::normal(&d)))
}

/// Whether a device string is a PCI device's.
pub(super) fn is_pci(device: &str) -> bool {
    device::pci_address(device::name(device)).is_some()
}

/// DPDK's drivers of virtual network devices, as Debian ships them for x86.
const DRIVERS: &[&str] = &[
    "net_af_packet",
    "net_af_xdp",
    "net_bonding",
    "net_failsafe",
    "net_memif",
    "net_null",
    "net_pcap",
    "net_ring",
    "net_softnic",
    "net_tap",
    "net_tun",
    "net_vdev_netvsc",
    "net_vhost",
    "net_virtio_user",
];

/// Notes devices that no driver of DPDK's is for: DPDK takes the driver whose name the device's begins with.
pub(super) fn check_drivers(ports: &[Port], source: &Source<'_>) {
    for device in ports.iter().filter_map(|p| p.device.as_ref()).filter(|d| !is_pci(&d.value)) {
        let name = device::name(&device.value);
        if DRIVERS.iter().any(|d| name.starts_with(d)) {
            continue;
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let expected = match suggest(stem, DRIVERS.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("expected a device of one of {}", DRIVERS.join(", ")),
        };
        device.problem(source, format!("DPDK has no driver \"{stem}\": {expected}"));
    }
}

/// The Linux interface that AF_PACKET and AF_XDP devices take.
fn linux_interface(device: &str) -> Option<&str> {
    let takes = device.starts_with("net_af_packet") || device.starts_with("net_af_xdp");
    device.split(',').skip(1).find_map(|a| a.strip_prefix("iface=")).filter(|_| takes)
}

fn worker_list(item: &Item<'_>, workers: usize) -> Vec<At<usize>> {
    let what = "a list of worker positions such as [0, 1]";
    let list = item.list(what).unwrap_or_default();
    let Some(last) = workers.checked_sub(1) else { return Vec::new() };
    list.iter().filter_map(|i| i.number(0..=last, "a worker's position, counted from 0,")).collect()
}

/// One number for both directions, or `{ rx = …, tx = … }`.
fn descriptors(item: &Item<'_>) -> (u16, u16) {
    const RANGE: std::ops::RangeInclusive<u16> = 32..=32768;
    const WHAT: &str = "a number of descriptors";
    const DEFAULT: u16 = 1024;
    if item.is_table() {
        let Some(mut s) = item.section("") else { return (DEFAULT, DEFAULT) };
        let both = (s.number("rx", RANGE, WHAT, DEFAULT), s.number("tx", RANGE, WHAT, DEFAULT));
        s.finish();
        return both;
    }
    item.number(RANGE, WHAT).map_or((DEFAULT, DEFAULT), |n| (n.value, n.value))
}

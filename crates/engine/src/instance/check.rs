//! Whether a desired state fits the machine: everything that can be told before DPDK, a device or a CPU is touched.

use std::collections::HashSet;
use std::sync::Arc;

use linerate_linux::cpus::{CpuList, Cpus, CpusError};
use linerate_linux::thread::{self, ThreadError};
use linerate_pipeline::counters::MAX_PORTS;
use linerate_router::plane::MAX_NEXT_HOPS;
use linerate_tables::fib::MAX_NEXT_HOPS as MAX_FIB_NEXT_HOPS;

use super::device::{self, DeviceError, DeviceSpec};
use crate::desired::{Desired, PortSpec, RouteAction, RouteSpec};

/// The largest network-layer packet that the data path carries, in bytes.
pub const MAX_MTU: u16 = 9216;
/// The smallest MTU that IPv4 allows (RFC 791 3.2).
pub const MIN_MTU: u16 = 68;

/// What matters of the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// CPUs that are there.
    pub present: CpuList,
    /// CPUs that run.
    pub online: CpuList,
    /// CPUs that this process may use.
    pub allowed: CpuList,
}

impl Machine {
    /// The machine this process runs on.
    pub fn this() -> Result<Self, MachineError> {
        let cpus = Cpus::default();
        Ok(Machine { present: cpus.present()?, online: cpus.online()?, allowed: thread::allowed_cpus()? })
    }
}

/// Why the machine could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// From sysfs.
    #[error(transparent)]
    Cpus(#[from] CpusError),
    /// From the scheduler.
    #[error(transparent)]
    Threads(#[from] ThreadError),
}

/// Why a desired state does not fit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CheckError {
    /// Nobody to forward.
    #[error("no worker is configured: name at least one CPU for a worker")]
    NoWorkers,
    /// Nothing to forward between.
    #[error("no port is configured: name at least one device")]
    NoPorts,
    /// More ports than the process can have.
    #[error("{0} ports are configured but a process can have at most {MAX_PORTS}")]
    TooManyPorts(usize),
    /// No such CPU.
    #[error("{who} shall run on CPU {cpu}, but this machine has CPUs {present}")]
    NoCpu {
        /// The worker, or control.
        who: String,
        /// The CPU.
        cpu: usize,
        /// The CPUs there are.
        present: CpuList,
    },
    /// The CPU is switched off.
    #[error("{who} shall run on CPU {cpu}, which is offline; online are {online}")]
    CpuOffline {
        /// The worker, or control.
        who: String,
        /// The CPU.
        cpu: usize,
        /// The CPUs that run.
        online: CpuList,
    },
    /// Taken away by taskset, a cgroup or a container.
    #[error(
        "{who} shall run on CPU {cpu}, but this process may use CPUs {allowed} only (taskset, cgroup or container)"
    )]
    CpuNotAllowed {
        /// The worker, or control.
        who: String,
        /// The CPU.
        cpu: usize,
        /// The CPUs it may use.
        allowed: CpuList,
    },
    /// Two polling threads would share a CPU.
    #[error("workers {first} and {second} shall both run on CPU {cpu}: give each worker a CPU of its own")]
    CpuTwice {
        /// The earlier worker.
        first: usize,
        /// The later one.
        second: usize,
        /// Their CPU.
        cpu: usize,
    },
    /// One name for two ports.
    #[error("two ports are named `{0}`")]
    NameTwice(String),
    /// One device for two ports.
    #[error("ports `{first}` and `{second}` are both device `{device}`: give each port its own")]
    DeviceTwice {
        /// The earlier port.
        first: String,
        /// The later one.
        second: String,
        /// Their device.
        device: String,
    },
    /// A device string that cannot be read.
    #[error("port `{port}`: {source}")]
    Device {
        /// The port.
        port: String,
        /// What is wrong.
        source: DeviceError,
    },
    /// Queue settings out of range.
    #[error("port `{port}`: {what}")]
    Port {
        /// The port.
        port: String,
        /// What was expected.
        what: String,
    },
}

/// Checks everything that needs no device.
pub fn check(desired: &Desired, machine: &Machine) -> Result<(), CheckError> {
    if desired.workers.is_empty() {
        return Err(CheckError::NoWorkers);
    }
    if desired.ports.is_empty() {
        return Err(CheckError::NoPorts);
    }
    if desired.ports.len() > MAX_PORTS {
        return Err(CheckError::TooManyPorts(desired.ports.len()));
    }
    check_cpu("control", desired.dpdk.control_cpu, machine)?;
    for (i, worker) in desired.workers.iter().enumerate() {
        check_cpu(&format!("worker {i}"), worker.cpu, machine)?;
        if let Some(first) = desired.workers[..i].iter().position(|w| w.cpu == worker.cpu) {
            return Err(CheckError::CpuTwice { first, second: i, cpu: worker.cpu });
        }
    }
    for (i, port) in desired.ports.iter().enumerate() {
        check_port(port, desired.workers.len())?;
        for other in &desired.ports[..i] {
            if other.name == port.name {
                return Err(CheckError::NameTwice(port.name.clone()));
            }
            let (one, two) = (device::normal(&other.device), device::normal(&port.device));
            if device::name(&one) == device::name(&two) {
                return Err(CheckError::DeviceTwice {
                    first: other.name.clone(),
                    second: port.name.clone(),
                    device: device::name(&two).into(),
                });
            }
        }
    }
    Ok(())
}

/// More distinct actions than the tables that workers read can hold.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RouteLimit {
    /// In the forwarding table of one address family.
    #[error(
        "the {family} routes have {found} distinct sets of next hops: expected at most {most}, the most that a \
         forwarding table tells apart"
    )]
    Actions {
        /// IPv4 or IPv6.
        family: &'static str,
        /// Distinct actions.
        found: usize,
        /// Room for them.
        most: usize,
    },
    /// In the table of next hops of both families.
    #[error(
        "gateways and sets of next hops make {found} next hops together: expected at most {most}, the most that the table \
         of next hops holds"
    )]
    NextHops {
        /// Next hops needed at least.
        found: usize,
        /// Room for them.
        most: usize,
    },
}

/// Checks that the tables have room for the distinct actions of routes. What the router adds of its own (networks of as
/// many interfaces, its own addresses) is counted; neighbours that are resolved later are not.
pub fn check_routes(routes: &[RouteSpec], interfaces: usize) -> Result<(), RouteLimit> {
    // Routes of a table share their actions: mostly there are far fewer than anything can hold.
    let (mut shared, mut bound) = (HashSet::new(), interfaces + 1);
    for route in routes {
        if shared.insert((route.prefix.addr().is_ipv6(), Arc::as_ptr(&route.action))) {
            bound += match &*route.action {
                RouteAction::Forward(paths) => 1 + paths.len(),
                _ => 1,
            };
        }
    }
    if bound < MAX_FIB_NEXT_HOPS {
        return Ok(());
    }
    let (mut actions, mut seen) = ([HashSet::new(), HashSet::new()], HashSet::new());
    for route in routes {
        let family = usize::from(route.prefix.addr().is_ipv6());
        if seen.insert((family, Arc::as_ptr(&route.action))) {
            actions[family].insert(&*route.action);
        }
    }
    let most = MAX_FIB_NEXT_HOPS.saturating_sub(interfaces + 1);
    for (family, actions) in ["IPv4", "IPv6"].into_iter().zip(&actions) {
        if actions.len() > most {
            return Err(RouteLimit::Actions { family, found: actions.len(), most });
        }
    }
    let all: HashSet<&RouteAction> = actions.iter().flatten().copied().collect();
    let mut gateways = HashSet::new();
    let mut groups = 0;
    for action in all {
        match action {
            RouteAction::Forward(paths) => {
                gateways.extend(paths.iter().map(|p| (p.gateway, p.interface.as_deref())));
                groups += usize::from(paths.len() > 1);
            }
            _ => groups += 1,
        }
    }
    let (found, most) = (gateways.len() + groups + interfaces + 1, MAX_NEXT_HOPS - 1);
    if found > most { Err(RouteLimit::NextHops { found, most }) } else { Ok(()) }
}

fn check_cpu(who: &str, cpu: usize, machine: &Machine) -> Result<(), CheckError> {
    let who = who.to_owned();
    let Machine { present, online, allowed } = machine;
    if !present.contains(cpu) {
        return Err(CheckError::NoCpu { who, cpu, present: present.clone() });
    }
    if !online.contains(cpu) {
        return Err(CheckError::CpuOffline { who, cpu, online: online.clone() });
    }
    if !allowed.contains(cpu) {
        return Err(CheckError::CpuNotAllowed { who, cpu, allowed: allowed.clone() });
    }
    Ok(())
}

fn check_port(port: &PortSpec, workers: usize) -> Result<(), CheckError> {
    let refuse = |what: String| Err(CheckError::Port { port: port.name.clone(), what });
    DeviceSpec::parse(&port.device)
        .map_err(|source| CheckError::Device { port: port.name.clone(), source })?;
    if port.rx_queues == 0 {
        return refuse("a port needs at least 1 receive queue".into());
    }
    if port.rx_descriptors == 0 || port.tx_descriptors == 0 {
        return refuse("a queue needs at least 1 descriptor".into());
    }
    if !(MIN_MTU..=MAX_MTU).contains(&port.mtu) {
        return refuse(format!("MTU {} is not between {MIN_MTU} and {MAX_MTU}", port.mtu));
    }
    let given = port.queue_workers.len();
    if given != 0 && given != usize::from(port.rx_queues) {
        return refuse(format!(
            "{given} workers are named for {} receive queues: name one per queue, or none",
            port.rx_queues
        ));
    }
    if let Some(worker) = port.queue_workers.iter().chain(&port.spread).find(|w| **w >= workers) {
        return refuse(format!("there is no worker {worker}: workers are counted from 0 to {}", workers - 1));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::desired::{IdleSpec, WorkerSpec};

    pub(crate) fn port(name: &str, device: &str) -> PortSpec {
        PortSpec {
            name: name.into(),
            device: device.into(),
            rx_queues: 1,
            queue_workers: vec![],
            spread: vec![],
            rx_descriptors: 512,
            tx_descriptors: 512,
            mtu: 1500,
            promiscuous: false,
        }
    }

    pub(crate) fn desired() -> Desired {
        let worker = |cpu| WorkerSpec { cpu, idle: IdleSpec::default() };
        Desired {
            workers: vec![worker(1), worker(2)],
            ports: vec![port("a", "net_null0"), port("b", "net_null1,copy=1")],
            ..Desired::default()
        }
    }

    fn machine() -> Machine {
        let list = |text: &str| text.parse().unwrap();
        Machine { present: list("0-7"), online: list("0-6"), allowed: list("0-3") }
    }

    #[test]
    fn more_next_hops_than_the_tables_hold_are_told_before_the_start() {
        let route = |n: u32, hops: &[u32]| {
            let path = |hop: &u32| crate::desired::Path {
                gateway: Some(std::net::Ipv4Addr::from_bits(*hop).into()),
                interface: None,
                weight: 1,
                vrf: None,
            };
            let prefix = ipnet::Ipv4Net::new(std::net::Ipv4Addr::from_bits(n << 8), 24).unwrap().into();
            RouteSpec {
                vrf: None,
                prefix,
                action: Arc::new(RouteAction::Forward(hops.iter().map(path).collect())),
            }
        };
        let single = |n: u32| (0..n).map(|i| route(i, &[1 + i])).collect::<Vec<_>>();
        assert_eq!(check_routes(&single(65_533), 2), Ok(()));
        // Equal actions count once, shared or not.
        let equal: Vec<_> = (0..70_000).map(|i| route(i, &[7])).collect();
        assert_eq!(check_routes(&equal, 2), Ok(()));
        assert_eq!(
            check_routes(&single(65_534), 2).unwrap_err().to_string(),
            "the IPv4 routes have 65534 distinct sets of next hops: expected at most 65533, the most that a forwarding \
             table tells apart"
        );
        let gateways = |i: u32| (8 * i..8 * i + 8).collect::<Vec<_>>();
        let groups: Vec<_> = (0..65_000).map(|i| route(i, &gateways(i))).collect();
        let limit = RouteLimit::NextHops { found: 585_003, most: MAX_NEXT_HOPS - 1 };
        assert_eq!(check_routes(&groups, 2), Err(limit));
    }

    #[test]
    fn what_does_not_fit_is_said_in_a_sentence() {
        type Change = fn(&mut Desired);
        assert_eq!(check(&desired(), &machine()), Ok(()));
        let cases: &[(Change, &str)] = &[
            (|d| d.workers.clear(), "no worker is configured: name at least one CPU for a worker"),
            (|d| d.ports.clear(), "no port is configured: name at least one device"),
            (
                |d| d.ports = (0..33).map(|i| port(&format!("p{i}"), &format!("net_null{i}"))).collect(),
                "33 ports are configured but a process can have at most 32",
            ),
            (|d| d.workers[1].cpu = 9, "worker 1 shall run on CPU 9, but this machine has CPUs 0-7"),
            (|d| d.workers[1].cpu = 7, "worker 1 shall run on CPU 7, which is offline; online are 0-6"),
            (
                |d| d.dpdk.control_cpu = 5,
                "control shall run on CPU 5, but this process may use CPUs 0-3 only (taskset, cgroup or container)",
            ),
            (
                |d| d.workers[1].cpu = 1,
                "workers 0 and 1 shall both run on CPU 1: give each worker a CPU of its own",
            ),
            (|d| d.ports[1].name = "a".into(), "two ports are named `a`"),
            (
                |d| d.ports[1].device = "net_null0,copy=1".into(),
                "ports `a` and `b` are both device `net_null0`: give each port its own",
            ),
            (|d| d.ports[0].rx_queues = 0, "port `a`: a port needs at least 1 receive queue"),
            (|d| d.ports[0].tx_descriptors = 0, "port `a`: a queue needs at least 1 descriptor"),
            (|d| d.ports[0].mtu = 9217, "port `a`: MTU 9217 is not between 68 and 9216"),
            (
                |d| d.ports[0].queue_workers = vec![0, 1],
                "port `a`: 2 workers are named for 1 receive queues: name one per queue, or none",
            ),
            (
                |d| d.ports[0].queue_workers = vec![2],
                "port `a`: there is no worker 2: workers are counted from 0 to 1",
            ),
            (
                |d| d.ports[0].spread = vec![0, 3],
                "port `a`: there is no worker 3: workers are counted from 0 to 1",
            ),
            (
                |d| d.ports[0].device = "ring:".into(),
                "port `a`: `ring:` is not a ring: expected ring:NAME with 1 to 20 letters, digits or `_`",
            ),
        ];
        for (change, sentence) in cases {
            let mut wrong = desired();
            change(&mut wrong);
            assert_eq!(check(&wrong, &machine()).unwrap_err().to_string(), *sentence);
        }
    }
}

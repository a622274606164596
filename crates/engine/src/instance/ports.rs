//! Devices, pools and queues of an instance: opened, configured, started and dealt to workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use linerate_dpdk::{
    Device, Eal, Mbuf, Pool, PoolConfig, Port, PortConfig, PortError, Rss, Running, RxQueue, Started, TxQueue,
};
use linerate_linux::cpus::Cpus;

use super::buffers::Need;
use super::check::CheckError;
use super::device::{self, DeviceSpec};
use super::error::StartError;
use super::place;
use super::status::PortStatus;
use crate::desired::{Desired, PortSpec};

/// The other half of a `ring:` port: what it sends the instance receives, and the other way round.
#[derive(Debug)]
pub struct Peer {
    device: Device,
    queues: u16,
    ring: u16,
}

impl Peer {
    /// Starts the peer as a port of its own, with as many queues as the instance's half has receive queues. Packets
    /// sent to the instance may come from any pool, for instance one made by [`Pool::create`]; received ones are
    /// the instance's, and go back to its pool when they are dropped. Stop and drop all of it before the instance is
    /// stopped.
    pub fn start(self, mtu: u16, pool: &'static Pool) -> Result<Running, PortError> {
        let config = PortConfig {
            rx_queues: self.queues,
            tx_queues: self.queues,
            rx_descriptors: self.ring,
            tx_descriptors: self.ring,
            mtu,
            rss: None,
            ..PortConfig::default()
        };
        Port::configure(self.device, &config, pool)?.start()
    }
}

/// Pools of packet buffers, one per NUMA node that ports are on.
pub(super) struct Pools {
    eal: &'static Eal,
    buffers: u32,
    data_room: u16,
    numa: bool,
    pools: Vec<(Option<u32>, &'static Pool)>,
}

impl Pools {
    pub(super) fn new(eal: &'static Eal, desired: &Desired, need: Need) -> Self {
        let cpus = Cpus::default();
        let nodes = cpus.present().map(|c| c.iter().filter_map(|c| cpus.numa_node(c)).max()).unwrap_or(None);
        Pools {
            eal,
            buffers: need.buffers,
            data_room: desired.dpdk.buffer_size,
            numa: nodes.is_some_and(|last| last > 0),
            pools: Vec::new(),
        }
    }

    /// The pool of a NUMA node; on machines with one node there is one pool.
    pub(super) fn on(&mut self, node: Option<u32>) -> Result<&'static Pool, StartError> {
        let node = node.filter(|_| self.numa);
        if let Some((_, pool)) = self.pools.iter().find(|(n, _)| *n == node) {
            return Ok(pool);
        }
        let name = node.map_or("packets".into(), |n| format!("packets-{n}"));
        let config = PoolConfig { name, size: self.buffers, data_room: self.data_room, socket: node };
        let pool = Pool::create(self.eal, &config)?;
        self.pools.push((node, pool));
        Ok(pool)
    }

    pub(super) fn all(&self) -> Vec<&'static Pool> {
        self.pools.iter().map(|(_, pool)| *pool).collect()
    }
}

/// A port that runs.
pub(crate) struct PortState {
    spec: PortSpec,
    mac: [u8; 6],
    mtu: u16,
    port: Mutex<Option<Port<Started>>>,
    /// The interface of Linux below carries frames, or there is none whose state the driver does not know.
    running_below: AtomicBool,
}

/// A port with its queues, before they are dealt out.
pub(super) struct Opened {
    pub(super) state: PortState,
    pub(super) rx: Vec<RxQueue>,
    pub(super) tx: Vec<TxQueue>,
}

/// Opens all devices, then configures and starts them. Returns the ports in order, and the other halves of rings by
/// name.
pub(super) fn open(
    eal: &'static Eal,
    desired: &Desired,
    pools: &mut Pools,
) -> Result<(Vec<Opened>, HashMap<String, Peer>), StartError> {
    let mut devices = Vec::new();
    let mut peers = HashMap::new();
    for spec in &desired.ports {
        let at = |source| StartError::Port { name: spec.name.clone(), source };
        match DeviceSpec::parse(&spec.device) {
            Ok(DeviceSpec::Ring(name)) => {
                let ring = ring_size(spec);
                let (device, peer) =
                    Device::ring_pair(eal, &name, u32::from(ring), spec.rx_queues).map_err(at)?;
                peers.insert(name, Peer { device: peer, queues: spec.rx_queues, ring });
                devices.push((device, spec.rx_queues));
            }
            Ok(DeviceSpec::Dpdk(device)) => {
                let device = Device::open(eal, &device).map_err(at)?;
                let queues = device.info().map_err(at)?.max_tx_queues;
                devices.push((device, queues));
            }
            Err(source) => return Err(CheckError::Device { port: spec.name.clone(), source }.into()),
        }
    }
    let mut opened = Vec::new();
    for (i, ((device, tx_queues), spec)) in devices.into_iter().zip(&desired.ports).enumerate() {
        let at = |source| StartError::Port { name: spec.name.clone(), source };
        let config = PortConfig {
            rx_queues: spec.rx_queues,
            tx_queues: place::transmit_queues(desired.workers.len(), tx_queues),
            rx_descriptors: spec.rx_descriptors,
            tx_descriptors: spec.tx_descriptors,
            mtu: spec.mtu,
            promiscuous: spec.promiscuous,
            // Neighbour discovery comes to multicast addresses.
            all_multicast: true,
            rss: (spec.rx_queues > 1).then(Rss::default),
            ..PortConfig::default()
        };
        let pool = pools.on(device.info().map_err(at)?.socket)?;
        let (port, mut rx, tx) = Port::configure(device, &config, pool).map_err(at)?.start().map_err(at)?;
        rx.iter_mut().for_each(|q| q.set_rx_port(i as linerate_pipeline::PortId));
        let (mac, mtu) = (port.mac().map_err(at)?, port.mtu().unwrap_or(spec.mtu));
        let running_below = AtomicBool::new(true);
        let state = PortState { spec: spec.clone(), mac, mtu, port: Mutex::new(Some(port)), running_below };
        opened.push(Opened { state, rx, tx });
    }
    Ok((opened, peers))
}

/// Packets that each ring of a `ring:` port holds: a power of two.
fn ring_size(spec: &PortSpec) -> u16 {
    spec.rx_descriptors.max(spec.tx_descriptors).clamp(64, 1 << 15).next_power_of_two()
}

impl PortState {
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    pub(super) fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Whether the link is up; a device that cannot tell counts as up.
    pub(crate) fn is_up(&self) -> bool {
        self.is_running_below() && self.port().as_ref().is_some_and(|p| p.link().map_or(true, |l| l.up))
    }

    /// The interface of Linux below, where the driver does not know its state.
    pub(super) fn kernel_interface(&self) -> Option<&str> {
        device::kernel_interface(&self.spec.device)
    }

    /// Notes whether that interface carries frames.
    pub(super) fn set_running_below(&self, running: bool) {
        self.running_below.store(running, Ordering::Relaxed);
    }

    fn is_running_below(&self) -> bool {
        self.running_below.load(Ordering::Relaxed)
    }

    pub(super) fn status(&self) -> PortStatus {
        let guard = self.port();
        let base = PortStatus {
            name: self.spec.name.clone(),
            device: self.spec.device.clone(),
            mac: self.mac,
            mtu: self.mtu,
            promiscuous: self.spec.promiscuous,
            rx_queues: self.spec.rx_queues,
            ..PortStatus::default()
        };
        let Some(port) = guard.as_ref() else { return base };
        let (link, stats) = (port.link(), port.stats().unwrap_or_default());
        PortStatus {
            driver: port.info().driver.clone(),
            up: link.as_ref().map_or(true, |l| l.up) && self.is_running_below(),
            speed_mbps: link.ok().and_then(|l| l.mbps),
            tx_queues: port.config().tx_queues,
            numa_node: port.info().socket,
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_missed: stats.rx_missed,
            rx_errors: stats.rx_errors,
            rx_no_buffer: stats.rx_no_buffer,
            tx_errors: stats.tx_errors,
            notes: port.notes().iter().map(ToString::to_string).collect(),
            ..base
        }
    }

    pub(super) fn xstats(&self) -> Vec<(String, u64)> {
        self.port().as_ref().and_then(|p| p.xstats().ok()).unwrap_or_default()
    }

    /// Receives frames for one more station address. A device that cannot filter for several is asked for all frames;
    /// one that cannot do that either delivers all anyway (software devices).
    pub(crate) fn accept(&self, mac: [u8; 6]) {
        if mac != self.mac
            && let Some(port) = self.port().as_mut()
            && port.add_mac(mac).is_err()
        {
            let _ = port.set_promiscuous(true);
        }
    }

    /// Stops and closes the port. All its queues must have been dropped.
    pub(super) fn stop(&self) -> Result<(), PortError> {
        match self.port().take() {
            Some(port) => port.stop(Vec::new(), Vec::new()).map(drop).map_err(|e| e.error),
            None => Ok(()),
        }
    }

    fn port(&self) -> MutexGuard<'_, Option<Port<Started>>> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packets for a worker's nodes.
pub(super) fn alloc(pool: &'static Pool) -> Box<dyn linerate_pipeline::PacketAlloc<Mbuf> + Send> {
    Box::new(pool)
}

//! What the API asks a running instance: views and a few actions. The engine's instance implements it; tests of the API
//! use a small one of their own.

use std::sync::Arc;

use linerate_pipeline::counters::NodeCounters;
use linerate_pipeline::graph::GraphDescription;
use linerate_pipeline::trace::Hop;
use linerate_pipeline::{PortId, WorkerCounters};

use crate::show::acls::{Acl, AclSample};
use crate::show::conflicts::Conflict;
use crate::show::fib::Fib;
use crate::show::interfaces::Interface;
use crate::show::linux::{Linux, Punt};
use crate::show::multicast::{MulticastQuery, MulticastRoutes};
use crate::show::neighbors::Neighbor;
use crate::show::router::Router;
use crate::show::routes::{RouteQuery, Routes};
use crate::show::vrfs::Vrf;

/// A running instance. Calls come from control threads only and may take locks, but none that a worker waits for.
pub trait Dataplane: Send + Sync + 'static {
    /// TSC cycles per second.
    fn clock_hz(&self) -> u64;
    /// Workers by id.
    fn workers(&self) -> Vec<WorkerView>;
    /// Ports by id.
    fn ports(&self) -> Vec<PortView>;
    /// Receive queues.
    fn queues(&self) -> Vec<QueueView>;
    /// Longest time a moved queue was not polled, in nanoseconds.
    fn longest_gap(&self) -> u64;
    /// Interfaces.
    fn interfaces(&self) -> Vec<Interface>;
    /// Neighbours.
    fn neighbors(&self) -> Vec<Neighbor>;
    /// Addresses of interfaces that others use as well.
    fn conflicts(&self) -> Vec<Conflict>;
    /// Access lists with their counters, all or the one of that name. Refuses a name that does not exist.
    fn acls(&self, name: Option<&str>) -> Result<Vec<Acl>, Refused>;
    /// Samples of what rules with `log` have matched, oldest first.
    fn acl_log(&self) -> Vec<AclSample>;
    /// The join to Linux.
    fn linux(&self) -> Linux;
    /// Packets for Linux, by class.
    fn punt(&self) -> Punt;
    /// Multicast routes. Refuses names that do not exist.
    fn multicast_routes(&self, query: &MulticastQuery) -> Result<MulticastRoutes, Refused>;
    /// Figures of the router's control logic, those of workers left out.
    fn router(&self) -> Router;
    /// Forwarding tables.
    fn fibs(&self) -> Vec<Fib>;
    /// VRFs.
    fn vrfs(&self) -> Vec<Vrf>;
    /// A page of routes. The query is checked: its prefix has no host bits, `longer` comes with one, the limit is in
    /// range. Refuses names that do not exist.
    fn routes(&self, query: &RouteQuery) -> Result<Routes, Refused>;
    /// Moves a receive queue to a worker.
    fn move_queue(&self, port: PortId, queue: u16, worker: usize) -> Result<Moved, Refused>;
    /// Lets every worker trace the next packets it receives, on one port or on any; 0 ends tracing.
    fn trace(&self, packets: u32, port: Option<PortId>) -> Result<(), Refused>;
    /// Takes the hops recorded so far with their workers, in order per worker.
    fn take_trace(&self) -> Vec<(usize, Hop)>;
}

/// A worker.
#[derive(Clone)]
pub struct WorkerView {
    /// Its CPU.
    pub cpu: Option<usize>,
    /// Its thread, as Linux numbers it.
    pub thread: u32,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// Counters of its graph's nodes, in the order of the description.
    pub nodes: Arc<[NodeCounters]>,
    /// What its graph consists of.
    pub description: Arc<GraphDescription>,
}

/// A port: what the device says.
#[derive(Clone, Debug, Default)]
pub struct PortView {
    /// Name in the configuration.
    pub name: String,
    /// DPDK device string.
    pub device: String,
    /// DPDK driver.
    pub driver: String,
    /// MAC address.
    pub mac: [u8; 6],
    /// Whether the link is up.
    pub up: bool,
    /// Link speed in Mbit/s.
    pub speed_mbps: Option<u32>,
    /// Layer-3 MTU.
    pub mtu: u16,
    /// Whether frames for other stations are received.
    pub promiscuous: bool,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Dropped by the device for want of descriptors.
    pub rx_missed: u64,
    /// Damaged frames.
    pub rx_errors: u64,
    /// Dropped by the device for want of buffers.
    pub rx_no_buffer: u64,
    /// Frames the device failed to send.
    pub tx_errors: u64,
    /// What the device does otherwise than asked, in sentences.
    pub notes: Vec<String>,
}

/// A receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Its port.
    pub port: PortId,
    /// Its number on the port.
    pub queue: u16,
    /// The worker that polls it.
    pub worker: usize,
    /// Packets received.
    pub packets: u64,
}

/// What a queue move took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Worker the queue came from.
    pub from: usize,
    /// Nanoseconds in which nobody polled it.
    pub gap: u64,
}

/// The instance did not do it, and says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

//! The desired state of an instance: what `control` hands over after parsing and validating a configuration.
//!
//! Everything is by name and order-free; the engine computes what differs from what runs and changes only that.
//! Validation that needs no device (names that do not exist, CPUs used twice, a gateway on no connected network) has
//! happened already and carries the file and line; the engine checks what only a device can tell.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
pub use linerate_pipeline::policy::{IpPolicy, SourceValidation};
use linerate_router::acl::{AclAction, AclRule};
use linerate_router::punt::PuntRates;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// How DPDK is started. Cannot change while running.
    pub dpdk: DpdkSpec,
    /// Workers, in order; a worker's id is its position.
    pub workers: Vec<WorkerSpec>,
    /// Ports, in order; a port's id is its position.
    pub ports: Vec<PortSpec>,
    /// VRFs besides the default one; a VRF's number is its position plus one.
    pub vrfs: Vec<VrfSpec>,
    /// Logical interfaces.
    pub interfaces: Vec<InterfaceSpec>,
    /// Static routes, configured ones first, then those of RIB files.
    pub routes: Vec<RouteSpec>,
    /// Static neighbours.
    pub neighbors: Vec<NeighborSpec>,
    /// Access lists.
    pub acls: Vec<AclSpec>,
    /// Static multicast routes.
    pub multicast_routes: Vec<MulticastRouteSpec>,
    /// ICMP errors sent per second and worker at most (token bucket).
    pub icmp_errors_per_second: u32,
    /// How Linux takes part; `None`: the router stands alone.
    pub linux: Option<LinuxSpec>,
}

/// How Linux takes part: every interface has a tap there, and routes come from there.
#[derive(Clone, Debug, PartialEq)]
pub struct LinuxSpec {
    /// Network namespace that the taps are in: a name as `ip netns` has it, or a path. `None`: that of the process.
    pub namespace: Option<String>,
    /// The kernel's table of the default VRF's routes; 254 is Linux's `main`.
    pub table: u32,
    /// Where FRR's zebra connects to with its routes (module `dplane_fpm_nl`); `None`: routes of FRR come by the kernel's
    /// table as all others.
    pub fpm: Option<SocketAddr>,
    /// How long routes of FRR stay in use after it has gone, and, after it has come back, until it has told them again.
    pub hold: Duration,
    /// Packets per second and worker of each class that go up to Linux.
    pub punt: PuntRates,
}

impl Default for LinuxSpec {
    fn default() -> Self {
        LinuxSpec {
            namespace: None,
            table: 254,
            fpm: None,
            hold: Duration::from_secs(120),
            punt: PuntRates::default(),
        }
    }
}

/// How DPDK's environment is started.
#[derive(Clone, Debug, PartialEq)]
pub struct DpdkSpec {
    /// Distinguishes instances on one host; also names the runtime directory.
    pub file_prefix: String,
    /// Memory for packet buffers.
    pub memory: MemorySpec,
    /// Whether DPDK's own telemetry socket is opened.
    pub telemetry: bool,
    /// Whether PCI devices are scanned. Needed for ports given by PCI address.
    pub pci: bool,
    /// CPU that control threads run on.
    pub control_cpu: usize,
    /// Further EAL arguments, verbatim.
    pub eal_args: Vec<String>,
    /// Packet buffers per NUMA node; `None`: computed from ports, queues and descriptors.
    pub packet_buffers: Option<u32>,
    /// Bytes of frame data per buffer; frames above that span several segments.
    pub buffer_size: u16,
}

impl Default for DpdkSpec {
    fn default() -> Self {
        DpdkSpec {
            file_prefix: "linerate".into(),
            memory: MemorySpec::Hugepages { megabytes: 1024 },
            telemetry: false,
            pci: false,
            control_cpu: 0,
            eal_args: Vec::new(),
            packet_buffers: None,
            buffer_size: 2048,
        }
    }
}

/// Memory for packet buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySpec {
    /// Hugepages, freed at exit.
    Hugepages {
        /// MiB to use at most.
        megabytes: u32,
    },
    /// Ordinary pages: slower, needs no privileges.
    NoHuge {
        /// MiB to reserve.
        megabytes: u32,
    },
}

/// A worker: one polling thread on one CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSpec {
    /// The CPU it is pinned to.
    pub cpu: usize,
    /// What it does when its queues are empty.
    pub idle: IdleSpec,
}

/// What a worker does when no packets wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleSpec {
    /// Polls without pause: lowest latency, always 100 % of the CPU.
    Spin,
    /// Spins, then pauses, then sleeps for growing times up to this many microseconds.
    Sleep {
        /// Longest sleep in microseconds.
        max_microseconds: u32,
    },
}

impl Default for IdleSpec {
    fn default() -> Self {
        IdleSpec::Sleep { max_microseconds: 50 }
    }
}

/// A port: one DPDK device.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSpec {
    /// Name in configuration and views.
    pub name: String,
    /// DPDK device string: a PCI address, or `net_…` with its arguments.
    pub device: String,
    /// Receive queues.
    pub rx_queues: u16,
    /// Worker (position) of each receive queue. Empty: spread over the workers. More workers than queues (see
    /// [`Self::spread`]) is software RSS.
    pub queue_workers: Vec<usize>,
    /// Workers that packets of this port are spread over by flow hash where the device has too few queues for that.
    /// Empty: each packet stays on the worker that received it.
    pub spread: Vec<usize>,
    /// Receive descriptors per queue.
    pub rx_descriptors: u16,
    /// Transmit descriptors per queue.
    pub tx_descriptors: u16,
    /// Largest layer-3 packet (without Ethernet header and FCS), 68 to 9216.
    pub mtu: u16,
    /// Receive frames for other stations too.
    pub promiscuous: bool,
}

/// A logical interface of the router: a port, or a VLAN on a port.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceSpec {
    /// Name in configuration and views.
    pub name: String,
    /// The port's name.
    pub port: String,
    /// VLAN id (1–4094); `None` for untagged frames.
    pub vlan: Option<u16>,
    /// Inner VLAN id of a double-tagged (QinQ) interface; needs `vlan`.
    pub inner_vlan: Option<u16>,
    /// MAC address; `None`: the port's.
    pub mac: Option<[u8; 6]>,
    /// Layer-3 MTU; `None`: the port's.
    pub mtu: Option<u16>,
    /// Addresses with their networks.
    pub addresses: Vec<IpNet>,
    /// Administratively up.
    pub up: bool,
    /// Name of the access list for what comes in by it.
    pub acl_in: Option<String>,
    /// Name of the access list for what leaves by it.
    pub acl_out: Option<String>,
    /// Name of its VRF; `None`: the default one.
    pub vrf: Option<String>,
    /// What is left to the operator about IP on it.
    pub policy: IpPolicy,
}

/// A VRF: a routing table of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct VrfSpec {
    /// Name in configuration and views.
    pub name: String,
    /// The table that Linux and FRR have its routes in; `None`: it has none from there.
    pub table: Option<u32>,
}

/// A static route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSpec {
    /// Name of its VRF; `None`: the default one.
    pub vrf: Option<Arc<str>>,
    /// Destination.
    pub prefix: IpNet,
    /// What to do; shared between the routes of a table that have the same next hops.
    pub action: Arc<RouteAction>,
}

/// What a route does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteAction {
    /// Sends it along one of these paths, by flow hash and weight.
    Forward(Vec<Path>),
    /// Discards it silently.
    Blackhole,
    /// Discards it with ICMP "administratively prohibited".
    Prohibit,
    /// Discards it with ICMP "host unreachable".
    Unreachable,
}

/// One path of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The gateway; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Interface name; `None`: found from the connected network of the gateway. Required for link-local gateways.
    pub interface: Option<String>,
    /// Relative share, 1 to 256.
    pub weight: u16,
    /// With a gateway and no interface: name of the VRF whose routes lead to it. With neither: name of the VRF in whose table
    /// the destination is looked up again. `None`: the route's own.
    pub vrf: Option<String>,
}

/// An access list.
#[derive(Clone, Debug, PartialEq)]
pub struct AclSpec {
    /// Name in configuration and views.
    pub name: String,
    /// Rules, in order of precedence.
    pub rules: Arc<[AclRule]>,
    /// What becomes of packets that no rule matches.
    pub default: AclAction,
}

/// A static neighbour.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighborSpec {
    /// Interface name.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// A static multicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastRouteSpec {
    /// The sender; `None`: all that have no route of their own for the group.
    pub source: Option<IpAddr>,
    /// The group.
    pub group: IpAddr,
    /// Name of the interface that packets must come in by.
    pub input: String,
    /// Where copies go.
    pub outputs: Vec<MulticastOutputSpec>,
}

/// An output of a static multicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastOutputSpec {
    /// Interface name.
    pub interface: String,
    /// Packets must come in with a TTL (hop limit) above this.
    pub ttl_threshold: u8,
}

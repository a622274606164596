//! Packets for Linux: what kinds there are, how many of each may pass, how many did.
//!
//! Everything for the router itself that the data path does not answer goes up to Linux, where routing daemons and
//! sockets are. Each kind ([`PuntClass`]) has a rate limit of its own (control-plane policing), so that a flood of one
//! kind takes no room from another: no number of pings can cost a BGP session.

use std::sync::Arc;

use linerate_pipeline::IfIndex;
use linerate_pipeline::counters::Counter;

macro_rules! classes {
    ($( $(#[doc = $doc:literal])+ $name:ident = $text:literal, $rate:literal, $urgent:literal, )+) => {
        /// A kind of packets for Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum PuntClass { $( $(#[doc = $doc])+ $name, )+ }

        impl PuntClass {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [PuntClass] = &[$(PuntClass::$name),+];

            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in configuration and views.
            pub fn name(self) -> &'static str {
                match self { $(PuntClass::$name => $text,)+ }
            }

            /// One line for a person.
            pub fn explain(self) -> &'static str {
                match self { $(PuntClass::$name => concat!($($doc),+).trim_ascii(),)+ }
            }

            /// Packets per second and worker that pass by default.
            pub fn default_rate(self) -> u32 {
                match self { $(PuntClass::$name => $rate,)+ }
            }

            /// Whether it goes by the queue of what keeps adjacencies and sessions alive, ahead of the rest.
            pub fn is_urgent(self) -> bool {
                match self { $(PuntClass::$name => $urgent,)+ }
            }
        }
    };
}

classes! {
    /// ARP and neighbour-discovery messages that tell something, router solicitations and advertisements.
    Neighbor = "neighbor", 2_000, true,
    /// IS-IS and ES-IS, in LLC frames or with ethertype 0x8870 (padded hellos above 1,500 bytes).
    IsIs = "isis", 5_000, true,
    /// OSPFv2 and OSPFv3.
    Ospf = "ospf", 10_000, true,
    /// BFD (RFC 5881, 5883, 7130; echo included).
    Bfd = "bfd", 20_000, true,
    /// VRRP (RFC 5798).
    Vrrp = "vrrp", 2_000, true,
    /// BGP and LDP sessions.
    Bgp = "bgp", 20_000, true,
    /// PIM, registers included.
    Pim = "pim", 5_000, true,
    /// IGMP and MLD.
    Igmp = "igmp", 5_000, true,
    /// RIP, RIPng, EIGRP and other routing protocols over IP.
    Routing = "routing", 5_000, true,
    /// LLDP, LACP and other protocols of the link.
    Link = "link", 1_000, true,
    /// DHCP and DHCPv6.
    Dhcp = "dhcp", 2_000, false,
    /// ICMP and ICMPv6 for sockets of this system: answers to its pings, errors about its packets.
    Icmp = "icmp", 2_000, false,
    /// Multicast packets that no route is known for, and samples of known flows for the daemon's timers.
    MulticastData = "multicast-data", 2_000, false,
    /// Everything else for addresses of this system: management, and what nothing listens to.
    Local = "local", 10_000, false,
}

/// Packets per second and worker of each class, in the order of [`PuntClass::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PuntRates(pub [u32; PuntClass::COUNT]);

impl Default for PuntRates {
    fn default() -> Self {
        PuntRates(std::array::from_fn(|i| PuntClass::ALL[i].default_rate()))
    }
}

/// Where the punt node puts packets for Linux. Must not block.
pub trait PuntSink<P>: Send {
    /// Takes a packet that came in by `interface`; gives it back where there is no room.
    fn put(&mut self, packet: P, interface: IfIndex, class: PuntClass) -> Result<(), P>;
}

/// What became of one class's packets at one worker. Written by that worker alone.
#[derive(Debug, Default)]
pub struct ClassCounters {
    /// Given to Linux.
    pub packets: Counter,
    /// Their bytes, without FCS.
    pub bytes: Counter,
    /// Dropped by the class's rate limit.
    pub policed: Counter,
    /// Dropped because the queue to Linux was full.
    pub queue_full: Counter,
}

/// Counters of all classes at one worker.
#[derive(Clone, Debug)]
pub struct PuntCounters(Arc<[ClassCounters; PuntClass::COUNT]>);

impl Default for PuntCounters {
    fn default() -> Self {
        PuntCounters(Arc::new(std::array::from_fn(|_| ClassCounters::default())))
    }
}

impl PuntCounters {
    /// One class.
    pub fn of(&self, class: PuntClass) -> &ClassCounters {
        &self.0[class as usize]
    }

    /// All classes.
    pub fn iter(&self) -> impl Iterator<Item = (PuntClass, &ClassCounters)> {
        PuntClass::ALL.iter().copied().zip(self.0.iter())
    }
}

//! A whole router on heap packets: real graph, real tables, in-memory devices. For tests, fuzzing and cost
//! measurements, here and in other crates.
//!
//! | interface | port | tags | MTU | addresses |
//! |---|---|---|---|---|
//! | 0 `lan` | 0 | | 1500 | 10.0.0.1/24, 2001:db8::1/64 |
//! | 1 `wan` | 1 | | 1500 | 10.0.1.1/24, 2001:db8:1::1/64 |
//! | 2 `vlan` | 1 | 7 | 1500 | 10.0.7.1/24, 2001:db8:7::1/64 |
//! | 3 `qinq` | 2 | 7.9 | 1500 | 10.0.9.1/24, 2001:db8:9::1/64 |
//! | 4 `small` | 2 | | 1280 | 10.0.4.1/24, 2001:db8:4::1/64 |
//! | 5 `down` | 3 | | 1500 | 10.0.5.1/24, down |
//! | 6 `jumbo` | 4 | | 9216 | 10.0.6.1/24, 2001:db8:6::1/64 |
//!
//! Port `p` has the MAC address 02:00:00:00:00:0p. In each network host 9 is a known neighbour with the address
//! 02:00:00:00:09:0i on interface `i`; all other hosts are unknown. Routes: see [`Testbed::new`].
//!
//! [`Testbed`] has tables that the test itself writes; [`Live`] has the router's own control logic instead.

mod live;
mod rig;

use std::error::Error;
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_pipeline::interface::{Interface, InterfaceTable};
use linerate_pipeline::{Cx, DropReason, Graph, HeapPacket, IfIndex, PortId};
use linerate_tables::fib::Fib;
use linerate_tables::qsbr::Domain;
use linerate_tables::snapshot::Publisher;

use crate::acl::AclWriter;
use crate::event::RouterEvent;
use crate::multicast::control::MulticastControl;
use crate::naive::{NaiveFib, NaiveReader};
use crate::nodes::resolve::HoldLimits;
use crate::plane::{
    Adjacency, FibSet, MAX_ADJACENCIES, Member, NextHop, NextHopId, Plane, PlaneError, PlaneWriter,
};

pub use live::Live;
pub use rig::{NaivePlane, Rig};

/// Ports of the testbed.
pub const PORTS: PortId = 5;

/// ICMP errors per second that the testbed's router may send.
pub const ICMP_LIMIT: u32 = 100;

/// A frame that left the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// By which port.
    pub port: PortId,
    /// Its bytes.
    pub frame: Vec<u8>,
}

/// The router and what is around it.
pub struct Testbed {
    rig: Rig,
    next_hops: PlaneWriter,
    vrfs4: Publisher<FibSet<NaiveReader<u32>>>,
    vrfs6: Publisher<FibSet<NaiveReader<u128>>>,
    interfaces: Publisher<InterfaceTable>,
    acls: AclWriter,
    /// Multicast routes, to change.
    pub multicast: MulticastControl,
    fib4: NaiveFib<u32>,
    fib6: NaiveFib<u128>,
    /// Time in nanoseconds, as the nodes see it.
    pub now: u64,
}

impl Testbed {
    /// The router with the interfaces and neighbours above and these routes:
    ///
    /// * 198.18.0.0/16 and 2001:db8:18::/48 by host 9 of `wan`; 198.19.0.0/16 and 2001:db8:19::/48 shared by the
    ///   hosts 9 of `wan`, `vlan` and `jumbo`;
    /// * 100.64.7.0/24, 100.64.9.0/24, 100.64.4.0/24, 100.64.6.0/24 and 2001:db8:64:i::/64 by the host 9 of `vlan`,
    ///   `qinq`, `small` and `jumbo`;
    /// * 100.65.0.0/16 and 2001:db8:65::/48 by 10.0.1.77 and 2001:db8:1::77, which nobody has resolved yet;
    /// * 203.0.113.0/26 blackhole, .64/26 prohibit, .128/26 unreachable, .192/26 nothing; 2001:db8:113:n::/64 for n =
    ///   1, 2, 3 the same.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let mut interfaces = Vec::new();
        for (i, spec) in INTERFACES.iter().enumerate() {
            interfaces.push((i as IfIndex, spec.interface()?));
        }
        let mut bed = Testbed::bare(InterfaceTable::build(interfaces)?)?;
        let mut ninth = Vec::new();
        for (i, spec) in INTERFACES.iter().enumerate() {
            let mut by_family = Vec::new();
            for net in spec.addresses.split(' ').map(str::parse::<IpNet>) {
                by_family.push(bed.connect(i as IfIndex, net?)?);
            }
            ninth.push(by_family);
        }
        let of =
            |i: usize, family: usize| ninth.get(i).and_then(|n| n.get(family)).copied().ok_or("no neighbour");
        for family in 0..2 {
            let wan = of(1, family)?;
            bed.route(["198.18.0.0/16", "2001:db8:18::/48"][family], wan)?;
            let members = [wan, of(2, family)?, of(6, family)?].map(|id| Member { id, weight: 1 });
            let group = bed.next_hops.add(NextHop::None)?;
            bed.next_hops.set_group(group, &members, &members)?;
            bed.route(["198.19.0.0/16", "2001:db8:19::/48"][family], group)?;
            for i in [7usize, 9, 4, 6] {
                let net = [format!("100.64.{i}.0/24"), format!("2001:db8:64:{i}::/64")];
                let interface = match i {
                    7 => 2,
                    9 => 3,
                    i => i,
                };
                bed.route(&net[family], of(interface, family)?)?;
            }
            let unresolved = bed.neighbor(1, ["10.0.1.77", "2001:db8:1::77"][family].parse()?, None)?;
            bed.route(["100.65.0.0/16", "2001:db8:65::/48"][family], unresolved)?;
            let fates = [NextHop::Blackhole, NextHop::Prohibit, NextHop::Unreachable];
            for (n, fate) in fates.into_iter().enumerate() {
                let id = bed.next_hops.add(fate)?;
                let net = [format!("203.0.113.{}/26", 64 * n), format!("2001:db8:113:{}::/64", n + 1)];
                bed.route(&net[family], id)?;
            }
        }
        Ok(bed)
    }

    fn bare(table: InterfaceTable) -> Result<Self, Box<dyn Error>> {
        let (fib4, fib6) = (NaiveFib::default(), NaiveFib::default());
        let next_hops = PlaneWriter::new(Domain::new())?;
        let mut multicast = MulticastControl::default();
        multicast.use_interfaces(&InterfaceTable::default(), &table);
        let (interfaces, acls) = (Publisher::new(table), AclWriter::default());
        let vrfs4 = Publisher::new(FibSet::new([Some(fib4.reader())]));
        let vrfs6 = Publisher::new(FibSet::new([Some(fib6.reader())]));
        let plane = Plane {
            vrfs4: vrfs4.reader(),
            vrfs6: vrfs6.reader(),
            fib4: fib4.reader(),
            fib6: fib6.reader(),
            next_hops: next_hops.reader(),
            interfaces: interfaces.reader(),
            acls: acls.reader(),
            multicast: multicast.reader(),
        };
        let rig = Rig::new(plane, HoldLimits { neighbors: 4, packets: 100 })?;
        Ok(Testbed { rig, next_hops, vrfs4, vrfs6, interfaces, acls, multicast, fib4, fib6, now: 1 })
    }

    /// Network, own and broadcast addresses, and host 9; returns the next hop of host 9.
    fn connect(&mut self, index: IfIndex, net: IpNet) -> Result<NextHopId, Box<dyn Error>> {
        let glean = self.next_hops.add(NextHop::Glean(index))?;
        self.route(&net.trunc().to_string(), glean)?;
        let local = self.next_hops.add(NextHop::Local)?;
        self.route(&net.addr().to_string(), local)?;
        if net.addr().is_ipv4() {
            self.route(&net.broadcast().to_string(), local)?;
            self.route(&net.network().to_string(), local)?;
        }
        let ninth = match net.network() {
            IpAddr::V4(a) => IpAddr::V4((a.to_bits() | 9).into()),
            IpAddr::V6(a) => IpAddr::V6((a.to_bits() | 9).into()),
        };
        let id = self.neighbor(index, ninth, Some([2, 0, 0, 0, 9, index as u8]))?;
        self.route(&ninth.to_string(), id)?;
        Ok(id)
    }

    /// A next hop for a neighbour, known or not.
    pub fn neighbor(
        &mut self,
        index: IfIndex,
        ip: IpAddr,
        mac: Option<[u8; 6]>,
    ) -> Result<NextHopId, PlaneError> {
        let Some(next_hop) = self.adjacency(index, ip, mac)? else { return Ok(0) };
        self.next_hops.add(next_hop)
    }

    fn adjacency(
        &mut self,
        index: IfIndex,
        ip: IpAddr,
        mac: Option<[u8; 6]>,
    ) -> Result<Option<NextHop>, PlaneError> {
        let Some(interface) = self.interfaces.current().get(index) else { return Ok(None) };
        let adjacency = Adjacency::new(index, interface, mac);
        let at = self.next_hops.add_adjacency(&adjacency, Some(ip))?;
        Ok(Some(if mac.is_some() { NextHop::Forward(at) } else { NextHop::Resolve(at) }))
    }

    /// Adds a route, or replaces it: what control does when a neighbour has become known, too. `prefix` without a
    /// length is a host.
    pub fn route(&mut self, prefix: &str, id: NextHopId) -> Result<(), Box<dyn Error>> {
        match prefix.parse::<IpNet>().or_else(|_| prefix.parse::<IpAddr>().map(IpNet::from))? {
            IpNet::V4(net) => drop(self.fib4.insert(net.into(), id)?),
            IpNet::V6(net) => drop(self.fib6.insert(net.into(), id)?),
        }
        Ok(())
    }

    /// A route by an adjacency that is not there, as a packet may meet one that looked its next hop up too early: one
    /// with a header, or (`unresolved`) one that packets would wait for.
    pub fn gone(&mut self, prefix: &str, unresolved: bool) -> Result<(), Box<dyn Error>> {
        let nowhere = MAX_ADJACENCIES as u32 - 1;
        let next_hop = if unresolved { NextHop::Resolve(nowhere) } else { NextHop::Forward(nowhere) };
        let id = self.next_hops.add(next_hop)?;
        self.route(prefix, id)
    }

    /// The neighbour at `prefix`'s next hop has answered, or (`None`) has been given up.
    pub fn resolved(
        &mut self,
        prefix: &str,
        index: IfIndex,
        ip: IpAddr,
        mac: Option<[u8; 6]>,
    ) -> Result<(), Box<dyn Error>> {
        let id = match mac {
            Some(_) => self.neighbor(index, ip, mac)?,
            None => self.next_hops.add(NextHop::Unreachable)?,
        };
        self.route(prefix, id)?;
        self.next_hops.wake();
        Ok(())
    }

    /// Lets packets arrive at a port; returns what left the router, in order.
    pub fn receive(&mut self, port: PortId, packets: impl IntoIterator<Item = HeapPacket>) -> Vec<Sent> {
        self.rig.receive(self.now, port, packets)
    }

    /// Lets one frame arrive.
    pub fn frame(&mut self, port: PortId, frame: &[u8]) -> Vec<Sent> {
        self.receive(port, [HeapPacket::new(frame)])
    }

    /// Lets `nanoseconds` pass and the nodes' timers run; returns what left the router.
    pub fn tick(&mut self, nanoseconds: u64) -> Vec<Sent> {
        self.now += nanoseconds;
        self.rig.tick(self.now)
    }

    /// Takes the graph out of service.
    pub fn stop(&mut self) {
        self.with_graph(Graph::stop);
    }

    /// Runs something on the graph with everything a worker would give it.
    pub fn with_graph(&mut self, run: impl FnOnce(&mut Graph<HeapPacket>, &mut Cx<'_, HeapPacket>)) {
        self.rig.with_graph(self.now, run);
    }

    /// How many new packets the pool still has.
    pub fn limit_pool(&mut self, packets: usize) {
        self.rig.limit_pool(packets);
    }

    /// The drops since the last call. Every port must balance.
    pub fn drops(&mut self) -> Vec<(DropReason, u64)> {
        self.rig.drops()
    }

    /// Packets that wait for neighbours.
    pub fn held(&self) -> u64 {
        self.rig.held()
    }

    /// Events raised since the last call.
    pub fn events(&mut self) -> Vec<RouterEvent> {
        self.rig.events()
    }

    /// What the graph's nodes share.
    pub fn plane(&self) -> NaivePlane {
        Plane {
            vrfs4: self.vrfs4.reader(),
            vrfs6: self.vrfs6.reader(),
            fib4: self.fib4.reader(),
            fib6: self.fib6.reader(),
            next_hops: self.next_hops.reader(),
            interfaces: self.interfaces.reader(),
            acls: self.acls.reader(),
            multicast: self.multicast.reader(),
        }
    }

    /// The access lists, to change.
    pub fn acls(&mut self) -> &mut AclWriter {
        &mut self.acls
    }

    /// The interfaces, to change.
    pub fn interfaces(&mut self) -> &mut Publisher<InterfaceTable> {
        &mut self.interfaces
    }
}

struct Spec {
    name: &'static str,
    port: PortId,
    vlan: Option<u16>,
    inner_vlan: Option<u16>,
    mtu: u16,
    addresses: &'static str,
}

const fn spec(name: &'static str, port: PortId, mtu: u16, addresses: &'static str) -> Spec {
    Spec { name, port, vlan: None, inner_vlan: None, mtu, addresses }
}

const INTERFACES: [Spec; 7] = [
    spec("lan", 0, 1500, "10.0.0.1/24 2001:db8::1/64"),
    spec("wan", 1, 1500, "10.0.1.1/24 2001:db8:1::1/64"),
    Spec { vlan: Some(7), ..spec("vlan", 1, 1500, "10.0.7.1/24 2001:db8:7::1/64") },
    Spec { vlan: Some(7), inner_vlan: Some(9), ..spec("qinq", 2, 1500, "10.0.9.1/24 2001:db8:9::1/64") },
    spec("small", 2, 1280, "10.0.4.1/24 2001:db8:4::1/64"),
    spec("down", 3, 1500, "10.0.5.1/24 2001:db8:5::1/64"),
    spec("jumbo", 4, 9216, "10.0.6.1/24 2001:db8:6::1/64"),
];

impl Spec {
    fn interface(&self) -> Result<Interface, Box<dyn Error>> {
        let addresses = self.addresses.split(' ').map(str::parse).collect::<Result<Vec<IpNet>, _>>()?;
        let mac = [2, 0, 0, 0, 0, self.port as u8];
        Ok(Interface {
            vlan: self.vlan,
            inner_vlan: self.inner_vlan,
            up: self.name != "down",
            ..Interface::new(self.name, self.port, mac, self.mtu, &addresses)
        })
    }
}

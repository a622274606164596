//! Frames and routers for tests of whole routers: one port per interface, stations whose MAC address tells who they are.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use linerate_pipeline::{DropReason, IfIndex, Interface, PortId, VrfId};
use linerate_router::testbed::{Live, Sent};
use linerate_router::{Path, RouteAction, RouterConfig, StaticNeighbor, VrfConfig};
use linerate_wire::checksum::Sum;
use linerate_wire::eth::{self, EthHeader};
use linerate_wire::icmp::{self, IcmpHeader};
use linerate_wire::icmpv6;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::{self, Ip6Header};
use linerate_wire::{Header, U16};
use zerocopy::IntoBytes;

pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn ip(s: &str) -> IpAddr {
    s.parse().unwrap()
}

pub(crate) fn router_mac(port: PortId) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

/// The station with this number on a port.
pub(crate) fn station(port: PortId, last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 9 + port as u8, last]
}

/// An interface on a port of its own.
pub(crate) fn interface(port: PortId, vrf: VrfId, addresses: &[&str]) -> (IfIndex, Interface) {
    let nets: Vec<_> = addresses.iter().map(|a| a.parse().unwrap()).collect();
    let name = format!("if{port}");
    (port, Interface { vrf, ..Interface::new(&name, port, router_mac(port), 1500, &nets) })
}

/// Static neighbours: the station with the last byte of the address.
pub(crate) fn neighbors(all: &[(IfIndex, &str)]) -> Vec<StaticNeighbor> {
    let one = |(interface, address): &(IfIndex, &str)| {
        let address = ip(address);
        let last = match address {
            IpAddr::V4(a) => a.octets()[3],
            IpAddr::V6(a) => a.octets()[15],
        };
        StaticNeighbor { interface: *interface, address, mac: station(*interface, last) }
    };
    all.iter().map(one).collect()
}

pub(crate) fn route(prefix: &str, paths: &[Path]) -> (ipnet::IpNet, Arc<RouteAction>) {
    (prefix.parse().unwrap(), Arc::new(RouteAction::Forward(paths.to_vec())))
}

pub(crate) fn via(gateway: &str) -> Path {
    Path::via(ip(gateway))
}

pub(crate) fn vrf(number: VrfId, name: &str, routes: &[(&str, &[Path])]) -> VrfConfig {
    VrfConfig { vrf: number, name: name.into(), routes: routes.iter().map(|(p, to)| route(p, to)).collect() }
}

pub(crate) fn live(config: RouterConfig) -> Live {
    Live::new(config, 1).unwrap()
}

fn ethernet(port: PortId, ethertype: u16) -> EthHeader {
    EthHeader { dst: router_mac(port), src: station(port, 77), ethertype: ethertype.into() }
}

/// A packet as it comes in by a port: the payload behind an IP header.
pub(crate) fn packet(port: PortId, from: &str, to: &str, protocol: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    match (ip(from), ip(to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let h = Ip4Header::new(from.to_bits(), to.to_bits(), protocol, hops, payload.len());
            [ethernet(port, eth::ETHERTYPE_IP4).as_bytes(), h.as_bytes(), payload].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let h = Ip6Header::new(from.octets(), to.octets(), protocol, hops, payload.len());
            [ethernet(port, eth::ETHERTYPE_IP6).as_bytes(), h.as_bytes(), payload].concat()
        }
        _ => unreachable!("two addresses of one family"),
    }
}

/// A UDP datagram of 40 bytes.
pub(crate) fn udp(port: PortId, from: &str, to: &str) -> Vec<u8> {
    packet(port, from, to, ip4::UDP, 64, &[0; 40])
}

/// An echo request.
pub(crate) fn ping(port: PortId, from: &str, to: &str) -> Vec<u8> {
    let body = [0, 1, 0, 2];
    let (protocol, kind) = match ip(from) {
        IpAddr::V4(_) => (ip4::ICMP, icmp::ECHO_REQUEST),
        IpAddr::V6(_) => (ip6::ICMPV6, icmpv6::ECHO_REQUEST),
    };
    let mut message = IcmpHeader { kind, code: 0, checksum: U16::new(0), rest: body };
    let sum = match (ip(from), ip(to)) {
        (IpAddr::V6(f), IpAddr::V6(t)) => Sum::pseudo6(&f.octets(), &t.octets(), ip6::ICMPV6, 8),
        _ => Sum::new(),
    };
    message.checksum = U16::new(sum.over(message.as_bytes()).checksum());
    packet(port, from, to, protocol, 64, message.as_bytes())
}

/// Source and destination address, and the ICMP type where there is one.
pub(crate) fn read(sent: &Sent) -> (IpAddr, IpAddr, Option<u8>) {
    let f = &sent.frame;
    if f[12..14] == [0x08, 0x00] {
        let h = Ip4Header::view_at(f, 14).unwrap();
        let kind = (h.protocol == ip4::ICMP).then(|| f[14 + h.header_len()]);
        return (Ipv4Addr::from_bits(h.src.get()).into(), Ipv4Addr::from_bits(h.dst.get()).into(), kind);
    }
    let h = Ip6Header::view_at(f, 14).unwrap();
    let kind = (h.next_header == ip6::ICMPV6).then(|| f[54]);
    (Ipv6Addr::from(h.src).into(), Ipv6Addr::from(h.dst).into(), kind)
}

/// Where a frame left and to which station, where exactly one did.
pub(crate) fn only(sent: &[Sent]) -> Option<(PortId, [u8; 6])> {
    match sent {
        [one] => Some((one.port, one.frame[..6].try_into().unwrap())),
        _ => None,
    }
}

/// Lets a frame arrive both ways, by the express way and (traced) by the regular nodes: both must do the same.
pub(crate) fn both(live: &mut Live, port: PortId, frame: &[u8]) -> (Vec<Sent>, Vec<(DropReason, u64)>) {
    let mut ways = [false, true].map(|traced| {
        if traced {
            live.workers[0].with_graph(0, |graph, _| graph.tracer().arm(1, None));
        }
        let sent = live.frame(port, frame);
        (sent, live.drops())
    });
    let [express, regular] = &mut ways;
    assert_eq!(express, regular);
    std::mem::take(express)
}

//! The network of the demo: one port in, two ports out, 64 next hops behind them.
//!
//! ```text
//!   tester ──(in)── router ──(out0)── next hops 2, 4, 6 …
//!                          └─(out1)── next hops 1, 3, 5 …
//! ```
//!
//! One port in and two out makes every burst part in two, as in a router with more than two links, and keeps the router
//! from sending packets back where they came from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linerate_engine::desired::{InterfaceSpec, IpPolicy, NeighborSpec, Path, RouteAction, RouteSpec};
use linerate_pipeline::PortId;
use linerate_tables::prefix::Prefix;
use linerate_tester::flow::Hop;
use linerate_tester::table::Routes;

/// Ports of the router: packets come in by the first and leave by the others.
pub(crate) const PORTS: [&str; 3] = ["in", "out0", "out1"];

/// The port packets come in by.
pub(crate) const IN: PortId = 0;

/// Layer-3 MTU that the largest frame of the demo needs.
pub(crate) const MTU: u16 = 9000;

/// Next hops of the demo, numbered from 1.
pub(crate) const NEXT_HOPS: u32 = linerate_tester::table::NEXT_HOPS;

/// MAC address of the tester's end of a port.
pub(crate) const TESTER_MAC: [u8; 6] = [0x02, 0x4c, 0x52, 0x00, 0x00, 0x01];

/// MAC address of one of the router's ports.
pub(crate) fn router_mac(port: PortId) -> [u8; 6] {
    [0x02, 0x4c, 0x52, 0x01, 0x00, port as u8]
}

/// MAC address of a next hop.
fn next_hop_mac(next_hop: u32) -> [u8; 6] {
    [0x02, 0x4c, 0x52, 0x02, (next_hop >> 8) as u8, next_hop as u8]
}

/// The router's port that a next hop is behind.
pub(crate) fn port_of(next_hop: u32) -> PortId {
    1 + (next_hop % 2) as PortId
}

/// 10.255.PORT.0/24.
fn network4(port: PortId, host: u32) -> u32 {
    0x0aff_0000 | u32::from(port) << 8 | host
}

/// 2001:db8:ffff:PORT::/64.
fn network6(port: PortId, host: u32) -> u128 {
    0x2001_0db8_ffff_u128 << 80 | u128::from(port) << 64 | u128::from(host)
}

/// The tester's own address on the port packets come in by.
pub(crate) fn source4() -> u32 {
    network4(IN, 2)
}

/// The tester's own IPv6 address on the port packets come in by.
pub(crate) fn source6() -> u128 {
    network6(IN, 2)
}

/// Networks between tester and router: no test traffic goes there.
pub(crate) fn own4() -> Vec<Prefix<u32>> {
    Prefix::new(network4(0, 0), 16).into_iter().collect()
}

/// The same for IPv6.
pub(crate) fn own6() -> Vec<Prefix<u128>> {
    Prefix::new(network6(0, 0), 48).into_iter().collect()
}

/// How packets leave towards each next hop, by its number; entry 0 is not used.
pub(crate) fn hops() -> Arc<[Hop]> {
    (0..=NEXT_HOPS)
        .map(|n| Hop {
            port: port_of(n),
            destination_mac: next_hop_mac(n),
            source_mac: router_mac(port_of(n)),
        })
        .collect()
}

/// The router's interfaces.
pub(crate) fn interfaces() -> Vec<InterfaceSpec> {
    (0..PORTS.len())
        .map(|i| {
            let port = i as PortId;
            InterfaceSpec {
                name: PORTS[i].into(),
                port: PORTS[i].into(),
                vlan: None,
                inner_vlan: None,
                mac: Some(router_mac(port)),
                mtu: None,
                addresses: [
                    Ipv4Net::new(Ipv4Addr::from_bits(network4(port, 1)), 24).map(IpNet::V4),
                    Ipv6Net::new(Ipv6Addr::from_bits(network6(port, 1)), 64).map(IpNet::V6),
                ]
                .into_iter()
                .flatten()
                .collect(),
                up: true,
                acl_in: None,
                acl_out: None,
                vrf: None,
                policy: IpPolicy::default(),
            }
        })
        .collect()
}

/// The next hops as static neighbours.
pub(crate) fn neighbors() -> Vec<NeighborSpec> {
    (1..=NEXT_HOPS)
        .flat_map(|n| {
            let of = |address: IpAddr| NeighborSpec {
                interface: PORTS[usize::from(port_of(n))].into(),
                address,
                mac: next_hop_mac(n),
            };
            [of(gateway4(n).into()), of(gateway6(n).into())]
        })
        .collect()
}

/// The tables as static routes; routes with the same next hop share their action.
pub(crate) fn routes(ipv4: &Routes<u32>, ipv6: &Routes<u128>) -> Vec<RouteSpec> {
    let via = |gateway: IpAddr| {
        Arc::new(RouteAction::Forward(vec![Path {
            gateway: Some(gateway),
            interface: None,
            weight: 1,
            vrf: None,
        }]))
    };
    let actions4: Vec<_> = (0..=NEXT_HOPS).map(|n| via(gateway4(n).into())).collect();
    let actions6: Vec<_> = (0..=NEXT_HOPS).map(|n| via(gateway6(n).into())).collect();
    let v4 = ipv4.iter().filter_map(|(p, n)| {
        let prefix = Ipv4Net::new(Ipv4Addr::from_bits(p.first()), p.len()).ok()?;
        Some(RouteSpec { vrf: None, prefix: prefix.into(), action: actions4.get(*n as usize)?.clone() })
    });
    let v6 = ipv6.iter().filter_map(|(p, n)| {
        let prefix = Ipv6Net::new(Ipv6Addr::from_bits(p.first()), p.len()).ok()?;
        Some(RouteSpec { vrf: None, prefix: prefix.into(), action: actions6.get(*n as usize)?.clone() })
    });
    v4.chain(v6).collect()
}

/// Address of a next hop.
pub(crate) fn gateway4(next_hop: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(network4(port_of(next_hop), 10 + next_hop))
}

/// IPv6 address of a next hop.
pub(crate) fn gateway6(next_hop: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(network6(port_of(next_hop), 10 + next_hop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_next_hop_is_a_neighbour_on_the_network_of_its_port() {
        let (interfaces, neighbors) = (interfaces(), neighbors());
        assert_eq!(neighbors.len(), 2 * NEXT_HOPS as usize);
        for n in &neighbors {
            let i = interfaces.iter().find(|i| i.name == n.interface).unwrap();
            assert!(
                i.addresses.iter().any(|net| net.contains(&n.address) && net.addr() != n.address),
                "{n:?}"
            );
        }
        for (n, hop) in hops().iter().enumerate().skip(1) {
            let of = neighbors.iter().filter(|x| x.mac == hop.destination_mac);
            assert!(
                of.clone().count() == 2 && of.clone().all(|x| x.interface == PORTS[usize::from(hop.port)]),
                "{n}"
            );
        }
    }

    #[test]
    fn tables_become_routes_that_share_actions() {
        let v4 = linerate_tester::table::ipv4(1, 1000, NEXT_HOPS);
        let v6 = linerate_tester::table::ipv6(1, 1000, NEXT_HOPS);
        let routes = routes(&v4, &v6);
        assert_eq!(routes.len(), 2000);
        let mut distinct: Vec<_> = routes.iter().map(|r| Arc::as_ptr(&r.action)).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() <= 2 * NEXT_HOPS as usize);
    }
}

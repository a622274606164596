//! `[[neighbor]]`: static ARP and neighbour-discovery entries.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_engine::desired::NeighborSpec;

use super::decode::{Section, Source};
use super::interfaces::{is_link_local, no_such};
use super::resolve::Network;

pub(super) fn read(sections: Vec<Section<'_>>, source: &Source<'_>, net: &Network<'_>) -> Vec<NeighborSpec> {
    let mut seen: HashMap<(String, IpAddr), usize> = HashMap::new();
    let mut out = Vec::new();
    for mut s in sections {
        let interface = s.need("interface", "the name of an [[interface]]");
        let interface = interface.and_then(|i| i.string("the name of an [[interface]]"));
        let address = s.need("address", "an IP address").and_then(|i| i.parse::<IpAddr>("an IP address"));
        let mac = s.need("mac", "a MAC address").and_then(|i| super::mac(&i));
        let (at, key) = (s.at, s.key.clone());
        s.finish();
        let known = interface.filter(|i| {
            let known = net.interface(&i.value).is_some();
            if !known {
                i.problem(source, no_such("interface", &i.value, net.interface_names()));
            }
            known
        });
        let (Some(interface), Some(address), Some(mac)) = (known, address, mac) else { continue };
        let own_mac = net.interface(&interface.value).and_then(|i| i.spec.mac);
        if own_mac == Some(mac.value) {
            let message = format!(
                "this is the MAC address of \"{}\" itself: expected the neighbour's",
                interface.value
            );
            mac.problem(source, message);
        }
        if net.is_own(net.vrf_of(&interface.value), address.value) {
            address.problem(
                source,
                format!("{} is an address of this router: expected a neighbour's", address.value),
            );
        } else if !is_link_local(address.value) && !net.may_be_on(address.value, &interface.value) {
            let networks = net.networks_of(&interface.value);
            let message = format!(
                "{} is on no network of interface \"{}\": expected an address in {networks}",
                address.value, interface.value
            );
            address.problem(source, message);
        }
        if let Some(first) = seen.insert((interface.value.clone(), address.value), at) {
            let line = source.line(first);
            source.problem(
                at,
                key,
                format!("the neighbour of line {line} again: expected each address once"),
            );
        }
        out.push(NeighborSpec { interface: interface.value, address: address.value, mac: mac.value });
    }
    out
}

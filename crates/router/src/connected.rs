//! The routes that an interface's addresses bring about.

use std::collections::{BTreeMap, BTreeSet};

use linerate_pipeline::{IfIndex, Interface, VrfId};
use linerate_tables::prefix::Prefix;

/// Routes by prefix: to which interface, or to the router itself.
pub(crate) type Own<A> = BTreeMap<Prefix<A>, IfIndex>;

/// What the interfaces that are up contribute. Where two are attached to the same network the one with the lower index
/// has it.
#[derive(Debug, Default)]
pub(crate) struct OwnRoutes {
    pub(crate) connected4: Own<u32>,
    pub(crate) local4: Own<u32>,
    pub(crate) connected6: Own<u128>,
    pub(crate) local6: Own<u128>,
}

impl OwnRoutes {
    /// Connected networks, and as local: the addresses, for IPv4 also the network and broadcast addresses of networks
    /// that have them (RFC 1812 4.2.2.11, 5.3.5; not /31 and /32, RFC 3021), for IPv6 also the subnet-router anycast
    /// address (RFC 4291 2.6.1; not /127 and /128, RFC 6164) and the link-local address. By VRF; those of `vrfs` are there even without any.
    pub(crate) fn by_vrf<'a>(
        vrfs: &BTreeSet<VrfId>,
        interfaces: impl Iterator<Item = (IfIndex, &'a Interface)>,
    ) -> BTreeMap<VrfId, Self> {
        let mut all: BTreeMap<VrfId, Self> = vrfs.iter().map(|vrf| (*vrf, OwnRoutes::default())).collect();
        for (index, interface) in interfaces.filter(|(_, i)| i.up) {
            if let Some(own) = all.get_mut(&interface.vrf) {
                own.add4(index, interface);
                own.add6(index, interface);
            }
        }
        all
    }

    fn add4(&mut self, index: IfIndex, interface: &Interface) {
        for net in &interface.ip4 {
            let prefix = Prefix::from(*net);
            let mut local = |addr: u32| {
                if let Some(host) = Prefix::new(addr, 32) {
                    self.local4.entry(host).or_insert(index);
                }
            };
            local(net.addr().to_bits());
            if prefix.len() < 31 {
                local(prefix.first());
                local(prefix.last());
            }
            if prefix.len() < 32 {
                self.connected4.entry(prefix).or_insert(index);
            }
        }
    }

    fn add6(&mut self, index: IfIndex, interface: &Interface) {
        let mut local = |addr: u128| {
            if let Some(host) = Prefix::new(addr, 128) {
                self.local6.entry(host).or_insert(index);
            }
        };
        local(interface.link_local.to_bits());
        for net in &interface.ip6 {
            let prefix = Prefix::from(*net);
            local(net.addr().to_bits());
            // fe80::/64 is on every link: it is no route, such packets go where their interface says.
            if net.addr().is_unicast_link_local() {
                continue;
            }
            if prefix.len() < 127 {
                local(prefix.first());
            }
            if prefix.len() < 128 {
                self.connected6.entry(prefix).or_insert(index);
            }
        }
    }
}

/// How many routes of each prefix length say that their destinations are on a link: shorter routes cannot come between
/// a neighbour and the network it is in.
#[derive(Debug)]
pub(crate) struct Links {
    counts: [[usize; 129]; 2],
}

impl Default for Links {
    fn default() -> Self {
        Links { counts: [[0; 129]; 2] }
    }
}

impl Links {
    /// Counts a route of an address family (its number of bits) that comes or goes.
    pub(crate) fn count(&mut self, bits: u8, len: u8, comes: bool) {
        let [v4, v6] = &mut self.counts;
        if let Some(count) = if bits == 32 { v4 } else { v6 }.get_mut(usize::from(len)) {
            *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// The shortest prefix; beyond all lengths where there is none.
    pub(crate) fn shortest(&self, bits: u8) -> u8 {
        let [v4, v6] = &self.counts;
        let counts = if bits == 32 { v4 } else { v6 };
        counts.iter().position(|n| *n > 0).map_or(u8::MAX, |len| len as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(addresses: &[&str]) -> Interface {
        let addresses: Vec<_> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        Interface::new("x", 0, [2, 0, 0, 0, 0, 1], 1500, &addresses)
    }

    fn routes_of<'a>(interfaces: impl Iterator<Item = (IfIndex, &'a Interface)>) -> OwnRoutes {
        OwnRoutes::by_vrf(&BTreeSet::from([0]), interfaces).remove(&0).unwrap()
    }

    #[test]
    fn networks_of_every_length_have_the_right_addresses() {
        let a =
            interface(&["10.0.0.1/24", "10.1.0.0/31", "10.2.0.1/32", "2001:db8::1/64", "2001:db8:1::/127"]);
        let own = routes_of([(3, &a)].into_iter());
        let text = |own: &Own<u32>| own.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&own.connected4), "10.0.0.0/24 10.1.0.0/31");
        assert_eq!(text(&own.local4), "10.0.0.0/32 10.0.0.1/32 10.0.0.255/32 10.1.0.0/32 10.2.0.1/32");
        let text = |own: &Own<u128>| own.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&own.connected6), "2001:db8::/64 2001:db8:1::/127");
        assert_eq!(text(&own.local6), "2001:db8::/128 2001:db8::1/128 2001:db8:1::/128 fe80::ff:fe00:1/128");
    }

    #[test]
    fn down_interfaces_contribute_nothing_and_the_lower_index_wins() {
        let (a, mut b) = (interface(&["10.0.0.1/24"]), interface(&["10.0.0.2/24"]));
        let own = routes_of([(1, &a), (2, &b)].into_iter());
        assert_eq!(own.connected4.values().copied().collect::<Vec<_>>(), [1]);
        b.up = false;
        let own = routes_of([(2, &b)].into_iter());
        assert!(own.connected4.is_empty() && own.local4.is_empty() && own.local6.is_empty());
    }
}

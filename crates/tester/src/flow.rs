//! Flows: destinations inside a routing table, each with the next hop it must take.

use std::sync::Arc;

use linerate_pipeline::PortId;
use linerate_tables::prefix::Prefix;

use crate::ip::Ip;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::table::Routes;

/// Most flows in a list: the signature numbers them with 24 bits.
pub const MAX_FLOWS: usize = 1 << 24;

/// One destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow<A> {
    /// Where its packets go.
    pub destination: A,
    /// UDP source port.
    pub source_port: u16,
    /// The next hop that the longest prefix around the destination has: index into the hops.
    pub next_hop: u16,
}

/// How packets leave the router towards a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The router's port.
    pub port: PortId,
    /// MAC address of the next hop.
    pub destination_mac: [u8; 6],
    /// MAC address of the router's port.
    pub source_mac: [u8; 6],
}

/// A list of flows that share a set of next hops.
#[derive(Clone, Debug)]
pub struct Flows<A> {
    /// The flows, in the order they are sent; neighbours are in unrelated parts of the table.
    pub list: Arc<[Flow<A>]>,
    /// By next hop id; entry 0 is not used.
    pub hops: Arc<[Hop]>,
}

/// Why no flows could be picked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlowError {
    /// No route at all.
    #[error("the {0} table has no routes, so there is nothing to send to")]
    NoRoutes(&'static str),
    /// Tried often, found too few.
    #[error(
        "only {found} of {wanted} destinations could be picked: nearly all {family} routes lead to addresses that may not be forwarded or that the tester uses itself"
    )]
    TooFew {
        /// Address family.
        family: &'static str,
        /// Destinations found.
        found: usize,
        /// Destinations asked for.
        wanted: usize,
    },
}

impl<A: Ip> Flows<A> {
    /// Picks `count` destinations (at most [`MAX_FLOWS`]): a random route each time, a random address inside it. What next
    /// hop it must take is the oracle's word: a longer route may lie around the address. Addresses inside `avoid` (the
    /// networks between tester and router), addresses that no router may forward to, and next hops not in `hops` are
    /// passed over.
    pub fn pick(
        routes: &Routes<A>,
        hops: Arc<[Hop]>,
        count: usize,
        avoid: &[Prefix<A>],
        seed: u64,
    ) -> Result<Self, FlowError> {
        if routes.is_empty() {
            return Err(FlowError::NoRoutes(A::NAME));
        }
        let count = count.min(MAX_FLOWS);
        let oracle = Oracle::new(routes);
        let mut rng = Rng::new(seed);
        let mut list = Vec::with_capacity(count);
        let mut attempts = count * 20;
        while list.len() < count && attempts > 0 {
            attempts -= 1;
            let prefix = routes[rng.below(routes.len() as u64) as usize].0;
            let destination = prefix.first().host(prefix.len(), rng.next());
            let next_hop = oracle.lookup(destination);
            let known = next_hop != 0 && (next_hop as usize) < hops.len();
            if known && destination.routable() && !avoid.iter().any(|p| p.contains(destination)) {
                let source_port = 1024 + rng.below(64_512) as u16;
                list.push(Flow { destination, source_port, next_hop: next_hop as u16 });
            }
        }
        if list.len() < count {
            return Err(FlowError::TooFew { family: A::NAME, found: list.len(), wanted: count });
        }
        Ok(Flows { list: list.into(), hops })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Next hops 1 to 4: odd ones behind port 2, even ones behind port 1.
    pub(crate) fn hops() -> Arc<[Hop]> {
        (0..5u8)
            .map(|i| Hop {
                port: 1 + u16::from(i % 2),
                destination_mac: [2, 9, 0, 0, 0, i],
                source_mac: [2, 1, 0, 0, 0, i % 2],
            })
            .collect()
    }

    fn p(addr: u32, len: u8) -> Prefix<u32> {
        Prefix::new(addr, len).unwrap()
    }

    #[test]
    fn every_destination_has_the_next_hop_of_its_longest_prefix() {
        let mut routes = vec![(p(0x0800_0000, 8), 1), (p(0x0801_0000, 16), 2), (p(0x0801_0100, 24), 3)];
        routes.push((p(0xe000_0000, 4), 4));
        let flows = Flows::pick(&routes, hops(), 3000, &[p(0x0802_0000, 16)], 5).unwrap();
        let mut met = [0; 5];
        for f in flows.list.iter() {
            let d = f.destination;
            let expected = match () {
                () if d >> 8 == 0x08_0101 => 3,
                () if d >> 16 == 0x0801 => 2,
                () => 1,
            };
            assert_eq!(f.next_hop, expected, "{d:08x}");
            assert!(d >> 16 != 0x0802 && d >> 24 == 8 && f.source_port >= 1024);
            met[usize::from(f.next_hop)] += 1;
        }
        assert!(met[1..4].iter().all(|n| *n > 500), "{met:?}");
    }

    #[test]
    fn a_table_with_nowhere_to_send_to_is_refused() {
        assert_eq!(Flows::<u32>::pick(&vec![], hops(), 1, &[], 0).unwrap_err(), FlowError::NoRoutes("IPv4"));
        let multicast = vec![(p(0xe000_0000, 8), 1)];
        assert!(matches!(
            Flows::pick(&multicast, hops(), 10, &[], 0),
            Err(FlowError::TooFew { found: 0, wanted: 10, .. })
        ));
        let unknown_hop = vec![(p(0x0800_0000, 8), 77)];
        assert!(Flows::pick(&unknown_hop, hops(), 10, &[], 0).is_err());
    }
}

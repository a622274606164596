//! Checks of what the router is told, before anything changes; and static neighbours, which are taken in as far as they
//! pass.

use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::InterfaceTable;
use linerate_tables::fib::Fib;

use crate::model::{RouteAction, RouterError, StaticNeighbor};
use crate::router::Router;

impl<F4: Fib<u32>, F6: Fib<u128>> Router<F4, F6> {
    /// Replaces all static neighbours.
    pub fn set_neighbors(&mut self, now: u64, neighbors: Vec<StaticNeighbor>) -> Result<(), RouterError> {
        check_neighbors(&neighbors, self.interfaces.current())?;
        self.now = now;
        self.use_neighbors(neighbors);
        self.finish();
        Ok(())
    }

    /// Replaces all static neighbours by those of these that can be neighbours; says why the others cannot.
    pub fn set_neighbors_that_can_be(
        &mut self,
        now: u64,
        mut neighbors: Vec<StaticNeighbor>,
    ) -> Vec<RouterError> {
        let (table, mut refused) = (self.interfaces.current(), Vec::new());
        neighbors.retain(|n| check_neighbor(n, table).map_err(|error| refused.push(error)).is_ok());
        self.now = now;
        self.use_neighbors(neighbors);
        self.finish();
        refused
    }
}

/// Whether these routes can be taken in.
pub(crate) fn check_routes(
    routes: &[(IpNet, Arc<RouteAction>)],
    table: &InterfaceTable,
) -> Result<(), RouterError> {
    let mut checked = std::collections::HashSet::new();
    for (prefix, action) in routes {
        if checked.insert((Arc::as_ptr(action), prefix.addr().is_ipv4())) {
            action.check(*prefix, |i| table.get(i).is_some())?;
        }
    }
    Ok(())
}

/// Whether these can be static neighbours.
pub(crate) fn check_neighbors(
    neighbors: &[StaticNeighbor],
    table: &InterfaceTable,
) -> Result<(), RouterError> {
    neighbors.iter().try_for_each(|n| check_neighbor(n, table))
}

/// Whether this can be a static neighbour.
pub(crate) fn check_neighbor(n: &StaticNeighbor, table: &InterfaceTable) -> Result<(), RouterError> {
    let problem = match table.get(n.interface) {
        None => "its interface does not exist",
        Some(i) if i.owns(n.address) => "this is the interface's own address",
        _ if n.address.is_multicast() || n.address.is_unspecified() => "this is no unicast address",
        _ if n.mac[0] & 1 != 0 || n.mac == [0; 6] => "its MAC address is no station's",
        Some(i) if i.mac == n.mac => "its MAC address is that of the interface itself",
        Some(_) => return Ok(()),
    };
    Err(RouterError::BadNeighbor { address: n.address, problem })
}

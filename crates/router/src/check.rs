//! Checks of what the router is told, before anything changes.

use std::sync::Arc;

use ipnet::IpNet;
use linerate_pipeline::InterfaceTable;

use crate::model::{RouteAction, RouterError, StaticNeighbor};

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
    for n in neighbors {
        let problem = match table.get(n.interface) {
            None => "its interface does not exist",
            Some(i) if i.owns(n.address) => "this is the interface's own address",
            _ if n.address.is_multicast() || n.address.is_unspecified() => "this is no unicast address",
            _ if n.mac[0] & 1 != 0 || n.mac == [0; 6] => "its MAC address is no station's",
            Some(i) if i.mac == n.mac => "its MAC address is that of the interface itself",
            Some(_) => continue,
        };
        return Err(RouterError::BadNeighbor { address: n.address, problem });
    }
    Ok(())
}

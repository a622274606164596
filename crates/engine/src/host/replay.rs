//! What FRR says over FPM, without a session: for benchmarks of the way from message to route.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linerate_linux::fpm::FpmEvent;
use linerate_pipeline::IfIndex;
use linerate_router::RouteAction;

use super::routes::{RouterChange, Routes};

/// Routes and next-hop objects as FRR told them, in the router's terms.
pub struct FpmRoutes {
    routes: Routes,
    changes: Vec<RouterChange>,
}

impl FpmRoutes {
    /// None yet. `interfaces`: this router's, by their index in Linux.
    pub fn new(interfaces: impl IntoIterator<Item = (u32, IfIndex)>) -> Self {
        let (mut routes, mut changes) = (Routes::new(Duration::ZERO), Vec::new());
        routes.set_interfaces(interfaces.into_iter().collect(), &mut changes);
        FpmRoutes { routes, changes }
    }

    /// Takes a batch of events, and empties it; returns what the router is to change, for `Router::update`.
    pub fn take(&mut self, events: &mut Vec<FpmEvent>) -> Vec<(IpNet, Option<Arc<RouteAction>>)> {
        self.routes.fpm(Instant::now(), events, &mut self.changes);
        self.changes.drain(..).map(|(_, _, prefix, action)| (prefix, action)).collect()
    }
}

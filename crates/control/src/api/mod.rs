//! The HTTP API: JSON over a Unix socket, and over TCP with a token when configured.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`](crate::show::Status) |
//! | `GET /v1/ports`, `workers`, `queues`, `interfaces`, `neighbors`, `conflicts`, `acls` (`?name=`), `router`, `drops`, `graph`, `fib` | the type of that name in [`show`](crate::show) |
//! | `GET /v1/routes?prefix=&longer=&longest=&via=&interface=&source=&after=&limit=` | [`Routes`](crate::show::Routes) |
//! | `POST /v1/queues/move` with [`MoveQueue`](crate::show::MoveQueue) | [`QueueMoved`](crate::show::QueueMoved) |
//! | `POST /v1/trace` with [`TraceRequest`](crate::show::TraceRequest) | [`Trace`](crate::show::Trace) |
//!
//! Errors are `{"error": "…"}` with a matching status. [`listen`] takes the sockets, which fails before anything else is
//! touched; [`server`] serves on a thread of its own on the control CPU; [`client`] is what the command line uses. The
//! server never takes a lock that a worker waits for, and bounds connections, request sizes and times, so that no client
//! can reach the data path.

pub mod client;
pub mod listen;
mod routes;
mod sample;
pub mod server;
mod views;

pub use client::{Client, ClientError};
pub use listen::{ListenError, Listeners};
pub use server::{About, Server};

pub(crate) use views::mac;

use serde::{Deserialize, Serialize};

/// Body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One sentence.
    pub error: String,
}

/// The messages of the test instance, with rates between two samples one second apart.
#[cfg(test)]
pub(crate) mod test_views {
    use std::time::Duration;

    use super::{sample::Rates, views};
    use crate::dataplane::Dataplane as _;
    use crate::fake::Fake;
    use crate::show;
    use crate::show::routes::RouteQuery;

    fn sampled() -> (std::sync::Arc<Fake>, Rates) {
        let fake = Fake::new();
        let mut rates = Rates::default();
        rates.sample(fake.as_ref(), Duration::from_secs(10));
        let c = &fake.workers[0].counters;
        c.port(0).received.add(14_880_952);
        c.port(0).rx_bytes.add(14_880_952 * 60);
        c.port(0).sent.add(14_880_902);
        c.port(1).tx_packets.add(14_880_902);
        c.port(1).tx_bytes.add(14_880_902 * 60);
        c.cycles.add(2_000_000_000);
        c.busy_cycles.add(1_500_000_000);
        c.dropped(0, linerate_pipeline::DropReason::NoRoute, 50);
        rates.sample(fake.as_ref(), Duration::from_secs(11));
        (fake, rates)
    }

    pub(crate) fn ports() -> show::Ports {
        let (fake, rates) = sampled();
        views::ports(fake.as_ref(), &rates)
    }

    pub(crate) fn workers() -> show::Workers {
        let (fake, rates) = sampled();
        views::workers(fake.as_ref(), &rates)
    }

    pub(crate) fn queues() -> show::Queues {
        let (fake, rates) = sampled();
        views::queues(fake.as_ref(), &rates)
    }

    pub(crate) fn drops() -> show::Drops {
        let (fake, rates) = sampled();
        views::drops(fake.as_ref(), &rates)
    }

    pub(crate) fn interfaces() -> show::Interfaces {
        show::Interfaces { interfaces: Fake::new().interfaces() }
    }

    pub(crate) fn linux() -> show::Linux {
        Fake::new().linux()
    }

    pub(crate) fn punt() -> show::Punt {
        Fake::new().punt()
    }

    pub(crate) fn multicast_routes() -> show::MulticastRoutes {
        Fake::new().multicast_routes(&Default::default()).unwrap()
    }

    pub(crate) fn neighbors() -> show::Neighbors {
        show::Neighbors { neighbors: Fake::new().neighbors() }
    }

    pub(crate) fn conflicts() -> show::Conflicts {
        show::Conflicts { conflicts: Fake::new().conflicts() }
    }

    pub(crate) fn acls() -> show::Acls {
        show::Acls { acls: Fake::new().acls(None).unwrap_or_default() }
    }

    pub(crate) fn acl_log() -> show::AclLog {
        show::AclLog { samples: Fake::new().acl_log() }
    }

    pub(crate) fn vrfs() -> show::Vrfs {
        show::Vrfs { vrfs: Fake::new().vrfs() }
    }

    pub(crate) fn fibs() -> show::Fibs {
        show::Fibs { fibs: Fake::new().fibs() }
    }

    pub(crate) fn graph() -> show::Graph {
        views::graph(Fake::new().as_ref())
    }

    pub(crate) fn routes(query: &RouteQuery) -> show::Routes {
        Fake::new().routes(query).unwrap_or_default()
    }

    pub(crate) fn trace() -> show::Trace {
        let fake = Fake::new();
        let _ = fake.trace(1, None);
        views::trace(fake.as_ref(), fake.take_trace(), 3)
    }

    pub(crate) fn router() -> show::Router {
        views::router(Fake::new().as_ref())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! Linux above the router: a tap for every interface, packets both ways, routes, addresses and neighbours in step.
//!
//! ```text
//!   routing daemons, sockets
//!   ───────────── taps ─────────── kernel tables ──── FRR's zebra (FPM)
//!        ▲ frames     ▲ carrier, neighbours │ addresses, links, routes
//!        │            └───────────┬─────────┘
//!   `packets` thread         `watcher` thread
//!        │ rings                  │ Router::insert, set_interfaces, …
//!   ── workers: nodes/punt ─── router ─────────────────────────────────
//! ```
//!
//! Two threads on the control CPU, so that a full table on its way in holds up no packet of a routing protocol.
//! [`kernel`] is what Linux says of interfaces, [`routes`] what it and FRR say of routes, [`multicast`] what it says of
//! multicast routes; all three are free of sockets.

mod announce;
mod kernel;
mod multicast;
mod neighbors;
mod packets;
mod replay;
mod routes;
mod rules;
mod sysctl;
mod watcher;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use linerate_dpdk::{Mbuf, Pool};
use linerate_linux::netlink::{Filter, NetlinkError};
use linerate_linux::route::Protocol;
use linerate_linux::tap::TapError;
use linerate_linux::watch::{Options, Watch, WatchError};
use linerate_pipeline::{IfIndex, VrfId};
use linerate_router::StaticNeighbor;
use linerate_router::punt::{PuntCounters, PuntRates};

use crate::desired::LinuxSpec;
use crate::graphs::router::PuntLine;
use crate::instance::Shared;
use crate::workers::ring::Giver;
pub(crate) use kernel::View;
pub use packets::TapCounters;
use packets::{Forwarded, Packets, Setup};
pub use replay::FpmRoutes;
pub use routes::FpmState;
pub use watcher::{HostStatus, Publication};

/// Between two rounds of comparing.
const TICK: Duration = Duration::from_millis(100);

/// Why Linux cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A thread.
    #[error("the thread that moves packets between workers and Linux cannot be started: {0}")]
    Thread(std::io::Error),
    /// A tap.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The kernel refuses.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Linux cannot be followed.
    #[error(transparent)]
    Watch(Box<WatchError<HostError>>),
}

/// What the join is made of.
pub(crate) struct Parts {
    pub(crate) spec: LinuxSpec,
    /// VRFs by their table in Linux, the default one among them.
    pub(crate) vrfs: HashMap<u32, VrfId>,
    pub(crate) pool: &'static Pool,
    pub(crate) punts: Vec<PuntLine<Mbuf>>,
    pub(crate) rings: Vec<Option<Giver<Mbuf>>>,
    /// Static neighbours of the configuration.
    pub(crate) statics: Vec<StaticNeighbor>,
}

/// The running join. Dropping it ends both threads and with them the taps.
pub(crate) struct Linux {
    // The watcher first: it makes taps for the other.
    _watch: Watch,
    _packets: Packets,
    pub(crate) view: LinuxView,
}

/// What views ask.
#[derive(Clone)]
pub struct LinuxView {
    /// Counters of the punt classes, by worker.
    pub punts: Vec<PuntCounters>,
    /// Packets per second and worker of each class.
    pub rates: PuntRates,
    /// Counters of taps, by interface.
    pub taps: Vec<Arc<TapCounters>>,
    status: Arc<Mutex<HostStatus>>,
}

impl LinuxView {
    /// Routes and sessions.
    pub fn status(&self) -> HostStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What went between an interface and its tap.
    pub fn tap(&self, interface: IfIndex) -> Option<&TapCounters> {
        self.taps.get(usize::from(interface)).map(|t| &**t)
    }
}

impl Linux {
    /// Makes the taps and starts both threads.
    pub(crate) fn start(shared: &Arc<Shared>, parts: Parts) -> Result<Self, HostError> {
        let Parts { spec, vrfs, pool, punts, rings, statics } = parts;
        let interfaces = shared.with_router(|half, _| half.router.interfaces().clone()).unwrap_or_default();
        let last = interfaces.iter().map(|(i, _)| usize::from(i) + 1).max().unwrap_or(0);
        let taps: Vec<Arc<TapCounters>> = (0..last).map(|_| Arc::default()).collect();
        let status = Arc::<Mutex<HostStatus>>::default();
        let view = LinuxView {
            punts: punts.iter().map(|p| p.counters.clone()).collect(),
            rates: spec.punt,
            taps: taps.clone(),
            status: status.clone(),
        };
        let (orders, orders_rx) = mpsc::channel();
        let forwarded = Forwarded::default();
        let setup = Setup { pool, punts, rings, forwarded: forwarded.clone(), counters: taps };
        let packets = Packets::start(setup, &interfaces, orders_rx)?;
        let without = if spec.fpm.is_some() { Protocol::of_frr().collect() } else { Default::default() };
        let options = Options {
            namespace: spec.namespace.as_deref().map(namespace_path),
            filter: Filter { tables: Some(vrfs.keys().copied().collect()), without },
            fpm: spec.fpm,
            tick: TICK,
        };
        let shared = shared.clone();
        let make = move || watcher::Host::new(shared, spec, vrfs, statics, orders, forwarded, status);
        let watch = Watch::start(options, make).map_err(|e| match e {
            WatchError::Watcher(error) => error,
            other => HostError::Watch(Box::new(other)),
        })?;
        Ok(Linux { _watch: watch, _packets: packets, view })
    }
}

/// A namespace by the name that `ip netns` gave it, or by a path.
fn namespace_path(name: &str) -> PathBuf {
    if name.contains('/') { name.into() } else { PathBuf::from("/run/netns").join(name) }
}

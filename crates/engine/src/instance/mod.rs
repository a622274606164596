//! An instance: DPDK, ports, workers and the control thread of one data plane, from start to a clean stop.
//!
//! [`Instance::start`] checks a [`Desired`] state against the machine before anything is touched, brings everything up,
//! and returns when packets flow. [`Instance::stop`] ends it and leaves nothing behind. In between any thread may ask:
//! all methods take `&self`. DPDK starts once per process, so an instance cannot be started again after it has stopped.
//!
//! A program that runs the data plane in its own process (a demo, a benchmark, a test) gives ports the device
//! `ring:NAME` and takes the other half with [`Instance::take_peer`]:
//!
//! ```no_run
//! # use linerate_engine::{desired::Desired, instance::{Instance, Product}};
//! # use linerate_dpdk::{Eal, Pool, PoolConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let desired = Desired::default();
//! let instance = Instance::start(&desired, Product::Io { to: vec![1, 0] })?;
//! let eal = Eal::get().ok_or("DPDK is not running")?;
//! let pool = Pool::create(eal, &PoolConfig { name: "tester".into(), ..PoolConfig::default() })?;
//! let peer = instance.take_peer("a").ok_or("no such ring")?;
//! let (port, rx, tx) = peer.start(1500, pool)?;
//! // … send by `tx`, receive by `rx` …
//! drop((port, rx, tx));
//! instance.stop()?;
//! # Ok(())
//! # }
//! ```

mod buffers;
pub mod check;
mod control;
pub mod device;
mod error;
mod place;
mod ports;
mod router;
mod spare;
pub mod status;
mod turns;

use std::collections::HashMap;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use linerate_dpdk::{Mbuf, Pool};
use linerate_pipeline::trace::Hop;
use linerate_pipeline::{DropReason, IfIndex, PortId};

use crate::clock::Clock;
use crate::desired::Desired;
use crate::host::LinuxView;
use crate::workers::{MoveError, Moved, QueuePlace, WorkerView, Workers};
use control::Order;
pub use error::{StartError, StopError};
pub use ports::Peer;
pub(crate) use ports::PortState;
pub use router::Router;
pub(crate) use router::RouterHalf;
use status::{DropCount, Load, PoolStatus, PortStatus};
use turns::Turns;

/// Which graph the workers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Product {
    /// The router.
    Router,
    /// Nothing between receive and transmit: `to[port]` is where packets of a port leave. The I/O floor.
    Io {
        /// Port to leave by, by port received from.
        to: Vec<PortId>,
    },
}

/// A running data plane.
pub struct Instance {
    shared: Arc<Shared>,
    orders: Mutex<Sender<Order>>,
    control: Mutex<Option<JoinHandle<Result<(), StopError>>>>,
}

/// What the control thread and callers share.
pub(crate) struct Shared {
    workers: Workers<Mbuf>,
    pub(crate) ports: Vec<PortState>,
    router: Turns<Option<RouterHalf>>,
    pools: Vec<&'static Pool>,
    peers: Mutex<HashMap<String, Peer>>,
    loads: Mutex<Vec<Load>>,
    clock: Clock,
    /// The join to Linux, once it stands.
    linux: OnceLock<LinuxView>,
}

impl Instance {
    /// Starts a data plane and returns when its workers poll.
    ///
    /// CPUs, names, ranges and memory are checked first: such an error touches nothing. Of what comes later the
    /// first error ends the start, and what had been started is stopped.
    pub fn start(desired: &Desired, product: Product) -> Result<Instance, StartError> {
        let checked = control::check(desired, &product)?;
        let (orders, orders_rx) = mpsc::channel();
        let (started, started_rx) = mpsc::channel();
        let desired = desired.clone();
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || control::run(&desired, &product, checked, &started, &orders_rx))
            .map_err(|e| StartError::Thread(e.to_string()))?;
        match started_rx.recv() {
            Ok(Ok(shared)) => {
                Ok(Instance { shared, orders: Mutex::new(orders), control: Mutex::new(Some(thread)) })
            }
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(error)
            }
            Err(_) => {
                let _ = thread.join();
                Err(StartError::Thread("it ended before anything was started".into()))
            }
        }
    }

    /// Ends the data plane: workers finish what they have, ports stop and close, all packets are given back, DPDK is
    /// cleaned up. The other halves of rings must have been dropped before. Stopping twice does nothing.
    pub fn stop(&self) -> Result<(), StopError> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = control.take() else { return Ok(()) };
        let _ = self.orders.lock().unwrap_or_else(PoisonError::into_inner).send(Order::Stop);
        thread.join().unwrap_or(Err(StopError::Control))
    }

    /// The clock of the workers: its time is that of the trace.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// What is known of each worker, counters included, in the order of their ids.
    pub fn workers(&self) -> &[WorkerView] {
        self.shared.workers.views()
    }

    /// How busy each worker was lately.
    pub fn loads(&self) -> Vec<Load> {
        self.shared.loads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ports, in the order of their ids.
    pub fn ports(&self) -> Vec<PortStatus> {
        self.shared.ports.iter().map(PortState::status).collect()
    }

    /// A port's counters as its driver names them; empty where it has none.
    pub fn xstats(&self, port: PortId) -> Vec<(String, u64)> {
        self.shared.ports.get(usize::from(port)).map(PortState::xstats).unwrap_or_default()
    }

    /// The id of a port.
    pub fn port_id(&self, name: &str) -> Option<PortId> {
        self.shared.ports.iter().position(|p| p.name() == name).map(|i| i as PortId)
    }

    /// Where each receive queue is.
    pub fn queues(&self) -> Vec<QueuePlace> {
        self.shared.workers.places()
    }

    /// The longest time in nanoseconds that a moved queue was not polled.
    pub fn longest_gap(&self) -> u64 {
        self.shared.workers.longest_gap()
    }

    /// Moves a receive queue to another worker while packets flow; see [`Workers::move_queue`].
    pub fn move_queue(&self, port: PortId, queue: u16, worker: usize) -> Result<Moved, MoveError> {
        self.shared.workers.move_queue(port, queue, worker)
    }

    /// Asks or changes the router, with the time now in its clock: views ([`linerate_router::show`]) and route updates.
    /// Its control logic waits meanwhile, workers never do. `None` where the product is no router.
    pub fn with_router<T>(&self, f: impl FnOnce(&mut Router, u64) -> T) -> Option<T> {
        let mut half = self.shared.router();
        half.as_mut().map(|half| f(&mut half.router, self.shared.clock.now()))
    }

    /// Whether an interface is up as far as its administrator, here or in Linux, is concerned.
    pub fn is_admin_up(&self, interface: IfIndex) -> bool {
        self.shared.with_router(|half, _| half.is_admin_up(interface)).unwrap_or(false)
    }

    /// The join to Linux; `None` where there is none.
    pub fn linux(&self) -> Option<&LinuxView> {
        self.shared.linux.get()
    }

    /// Events that workers could not tell control for want of room in the queues between them. Neighbour resolution
    /// survives that: it asks again.
    pub fn lost_events(&self) -> u64 {
        self.shared.router().as_ref().map_or(0, RouterHalf::lost)
    }

    /// The packet pools.
    pub fn pools(&self) -> Vec<PoolStatus> {
        let of = |p: &&Pool| PoolStatus { name: p.name().into(), size: p.size(), in_use: p.in_use() };
        self.shared.pools.iter().map(of).collect()
    }

    /// All drops that have counted.
    pub fn drops(&self) -> Vec<DropCount> {
        let mut all = Vec::new();
        for (worker, view) in self.workers().iter().enumerate() {
            for (port, counters) in view.counters.ports.iter().enumerate() {
                for (reason, count) in DropReason::ALL.iter().zip(&counters.drops) {
                    if count.get() > 0 {
                        let (port, reason) = (port as PortId, *reason);
                        all.push(DropCount { worker, port, reason, packets: count.get() });
                    }
                }
            }
        }
        all
    }

    /// How far the accounting identity is off, by worker and port; see [`Workers::imbalance`].
    pub fn imbalance(&self) -> Vec<(usize, PortId, i64)> {
        self.shared.workers.imbalance()
    }

    /// Lets every worker trace the next packets it receives, on one port or on any; 0 ends tracing.
    pub fn trace(&self, packets: u32, port: Option<PortId>) -> Result<(), MoveError> {
        self.shared.workers.trace(packets, port)
    }

    /// Takes the hops recorded so far with their workers, in order per worker.
    pub fn take_trace(&self) -> Vec<(usize, Hop)> {
        self.shared.workers.take_trace()
    }

    /// The other half of the port whose device is `ring:NAME`: once, then `None`.
    pub fn take_peer(&self, name: &str) -> Option<Peer> {
        self.shared.peers.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }
}

impl Shared {
    /// Asks or changes the router's control half, with the time now.
    pub(crate) fn with_router<T>(&self, f: impl FnOnce(&mut RouterHalf, u64) -> T) -> Option<T> {
        self.router().as_mut().map(|half| f(half, self.clock.now()))
    }

    /// Between two pieces of long work on the router: lets others have their turn, such as timers and links.
    pub(crate) fn give_way(&self) {
        self.router.give_way();
    }

    fn router(&self) -> MutexGuard<'_, Option<RouterHalf>> {
        self.router.lock()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

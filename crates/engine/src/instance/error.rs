//! Why an instance does not start, or does not stop cleanly.

use linerate_dpdk::{CleanupError, EalError, PoolError, PortError};
use linerate_pipeline::graph::GraphError;
use linerate_router::RouterError;
use linerate_router::acl::AclError;

use super::buffers::TooLittle;
use super::check::{CheckError, MachineError, RouteLimit};
use crate::workers;

/// Why an instance does not start. Whatever had been started is stopped again.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine cannot be looked at.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The desired state does not fit the machine.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// More next hops than the tables hold.
    #[error(transparent)]
    Routes(#[from] RouteLimit),
    /// The memory configured does not suffice.
    #[error(transparent)]
    Memory(#[from] TooLittle),
    /// DPDK does not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// No packet buffers.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A port.
    #[error("port `{name}`: {source}")]
    Port {
        /// Its name in the configuration.
        name: String,
        /// What is wrong.
        source: PortError,
    },
    /// An interface on a port that does not exist.
    #[error("interface `{interface}` is on port `{port}`, which does not exist")]
    NoPort {
        /// The interface.
        interface: String,
        /// The port it names.
        port: String,
    },
    /// A route or neighbour by an interface that does not exist.
    #[error("a route or neighbour names interface `{0}`, which does not exist")]
    NoInterface(String),
    /// An interface, a route or a path of one in a VRF that does not exist.
    #[error("an interface or route names VRF `{0}`, which does not exist")]
    NoVrf(String),
    /// The router refuses its configuration.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// Access lists that cannot be.
    #[error(transparent)]
    Acl(#[from] AclError),
    /// The router refuses a multicast route.
    #[error(transparent)]
    Multicast(#[from] linerate_router::MrouteError),
    /// Linux cannot be joined.
    #[error(transparent)]
    Linux(#[from] crate::host::HostError),
    /// A graph cannot be put together.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The workers.
    #[error(transparent)]
    Workers(#[from] workers::StartError),
    /// The control thread.
    #[error("the control thread cannot be started: {0}")]
    Thread(String),
}

/// What was not as it should be when an instance ended. The rest has been ended all the same.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A worker does not answer: its queues stay with it, so DPDK cannot be ended.
    #[error("the instance cannot stop: {0}")]
    Workers(workers::MoveError),
    /// A port would not stop.
    #[error("{0}")]
    Port(PortError),
    /// Packets that nobody gave back: an error of this program.
    #[error("{packets} packet buffers of pool `{pool}` were not given back")]
    Leak {
        /// The pool.
        pool: String,
        /// Buffers missing.
        packets: u32,
    },
    /// DPDK did not end.
    #[error(transparent)]
    Cleanup(#[from] CleanupError),
    /// The control thread ended early.
    #[error("the control thread has died")]
    Control,
}

//! What every product's data path is made of: packets, batches, nodes, the graph that joins them, drop reasons,
//! counters and the packet trace.
//!
//! Depends on `wire` and `tables` only, never on a product or DPDK. No sockets, threads, files or clocks: time and cycle counts are parameters.
//! Read [`node`] first, then [`graph`]; [`packet`] says what a packet is, [`heap`] is the one tests use.

#![forbid(unsafe_code)]

mod addresses;
pub mod batch;
pub mod counters;
pub mod drop;
pub mod graph;
pub mod heap;
pub mod interface;
pub mod io;
pub mod loop_times;
pub mod meta;
pub mod node;
pub mod nodes;
pub mod packet;
pub mod policy;
pub mod trace;
pub mod tx;

pub use batch::{BURST, Batch};
pub use counters::WorkerCounters;
pub use drop::DropReason;
pub use graph::{Graph, GraphBuilder, Join};
pub use heap::HeapPacket;
pub use interface::{Interface, InterfaceTable, Interfaces};
pub use meta::{IfIndex, Meta, PortId};
pub use node::{Cx, Exit, Exits, Node};
pub use packet::{Packet, PacketAlloc};
pub use policy::{IpPolicy, SourceValidation, VRF_DEFAULT, VrfId};
pub use tx::TxBuffers;

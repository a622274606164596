//! DPDK behind a safe API: the only crate of linerate with C code.
//!
//! Depends on `pipeline` for the traits that packets and queues implement, and never on a product or the engine. Read the
//! head of `src/port/mod.rs` first, then that of `src/mbuf.rs`.
//!
//! In the order of use: [`Eal`] starts DPDK once per process; [`Pool`] holds the packet buffers; [`Port`] is a device,
//! which hands out [`RxQueue`]s and [`TxQueue`]s, each once; [`Mbuf`] is a packet. Worker threads are ordinary
//! `std::thread`s that call [`register_worker_thread`].
//!
//! How misuse is kept out: a pool is never freed; a packet owns its buffers alone; a queue has one owner
//! and keeps its device open; clean-up is refused while anything of DPDK is in use. No public item is unsafe or raw.

#![allow(unsafe_code, reason = "the crate exists to contain it")]

mod args;
mod eal;
mod errno;
mod ffi;
mod life;
mod log;
mod mbuf;
mod memory;
mod pages;
#[cfg(feature = "peers")]
pub mod peers;
mod pool;
mod port;
mod tsc;

pub use args::{EalConfig, Memory, Pci};
pub use eal::{CleanupError, Eal, EalError, remove_stale_runtime_dirs};
pub use errno::Errno;
pub use life::{ThreadError, WorkerThread, kept_buffers, register_worker_thread};
pub use log::take_log;
pub use mbuf::{Mbuf, Shared};
pub use pages::{discard, large_pages, trim};
pub use pool::{HEADROOM, MAX_FRAME, Pool, PoolConfig, PoolError, pools};
pub use port::{
    Device, Link, Note, Port, PortConfig, PortError, PortInfo, PortStats, Rss, Running, RxQueue, Started,
    StopError, Stopped, TxQueue,
};
pub use tsc::{tsc, tsc_hz};

//! Packet pools: the memory packets live in.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use linerate_pipeline::{Batch, PacketAlloc};

use crate::eal::Eal;
use crate::errno::Errno;
use crate::ffi::{self, rte_mempool};
use crate::life;
use crate::mbuf::{self, Mbuf, PRIVATE};

/// Bytes in front of a fresh packet, for headers to come.
pub const HEADROOM: usize = 128;

/// The largest frame the data path carries, without FCS.
pub const MAX_FRAME: usize = 9216;

/// Mbufs that a worker thread's cache of a pool may hold.
const CACHE: u32 = 256;

/// The header of a pool element and of an mbuf, in bytes.
const OVERHEAD: usize = 64 + 128 + PRIVATE + HEADROOM;

static POOLS: Mutex<Vec<&'static Pool>> = Mutex::new(Vec::new());

/// What a pool shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Unique in the process, 1 to 25 characters.
    pub name: String,
    /// Number of buffers. A power of two minus one wastes no memory.
    pub size: u32,
    /// Bytes of packet data per buffer, without headroom, 64 to 65,407. A packet longer than that takes several
    /// buffers. 2,048 suits most traffic; [`MAX_FRAME`] keeps jumbo frames in one piece.
    pub data_room: u16,
    /// NUMA node to take the memory from; `None` = any.
    pub socket: Option<u32>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { name: "packets".into(), size: 16_383, data_room: 2048, socket: None }
    }
}

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Before start or after clean-up.
    #[error("DPDK is not running: start it before making packet pools")]
    NotRunning,
    /// A setting out of range.
    #[error("packet pool '{name}': {what}")]
    Config {
        /// The pool.
        name: String,
        /// What was expected.
        what: &'static str,
    },
    /// Not enough memory.
    #[error(
        "packet pool '{name}' of {size} buffers needs about {mib} MiB and DPDK's memory does not have them{on}: \
         give DPDK more memory or make the pool smaller"
    )]
    Memory {
        /// The pool.
        name: String,
        /// Buffers asked for.
        size: u32,
        /// Memory they take.
        mib: u64,
        /// " on NUMA node n" or nothing.
        on: String,
    },
    /// A name used twice.
    #[error("packet pool '{0}' exists already: give each pool its own name")]
    Exists(String),
    /// Anything else.
    #[error(
        "packet pool '{name}' cannot be made: {errno}; is the pool driver installed (Debian: \
         librte-mempool-ring23)?"
    )]
    Create {
        /// The pool.
        name: String,
        /// DPDK's reason.
        errno: Errno,
    },
}

/// A pool of packet buffers. Lives as long as the process: pools are never freed, so no packet can outlive its memory.
#[derive(Debug)]
pub struct Pool {
    raw: NonNull<rte_mempool>,
    config: PoolConfig,
}

// SAFETY: a mempool may be used from any number of threads; `config` is never changed.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes a pool.
    pub fn create(_eal: &'static Eal, config: &PoolConfig) -> Result<&'static Pool, PoolError> {
        let running = life::running().ok_or(PoolError::NotRunning)?;
        let name = checked_name(config)?;
        let socket = config.socket.and_then(|s| i32::try_from(s).ok()).unwrap_or(-1);
        let _control = life::control();
        // SAFETY: EAL runs; `name` lives during the call, which copies it.
        let raw = unsafe {
            ffi::rte_pktmbuf_pool_create(
                name.as_ptr(),
                config.size,
                cache_size(config.size),
                PRIVATE as u16,
                config.data_room + HEADROOM as u16,
                socket,
            )
        };
        let Some(raw) = NonNull::new(raw) else { return Err(explain(config, Errno::last())) };
        drop(running);
        let pool: &'static Pool = Box::leak(Box::new(Pool { raw, config: config.clone() }));
        POOLS.lock().unwrap_or_else(PoisonError::into_inner).push(pool);
        Ok(pool)
    }

    /// One empty packet with zeroed metadata and full headroom; `None` where the pool is exhausted.
    #[inline]
    pub fn alloc(&self) -> Option<Mbuf> {
        let _alive = Alive::now()?;
        // SAFETY: DPDK runs while `_alive` does; a new mbuf is owned, of one segment and has our private area.
        unsafe {
            let raw = NonNull::new(ffi::lr_mbuf_alloc(self.raw.as_ptr()))?;
            mbuf::reset_meta(raw.as_ptr());
            Some(Mbuf::from_raw(raw))
        }
    }

    /// Appends `n` empty packets to `batch`, all or none: `false` where the pool or the batch has too little room.
    /// Several times cheaper per packet than [`alloc`](Self::alloc).
    #[inline]
    #[must_use]
    pub fn alloc_bulk(&self, batch: &mut Batch<Mbuf>, n: usize) -> bool {
        let old = batch.len();
        if n > batch.remaining_capacity() {
            return false;
        }
        let Some(_alive) = Alive::now() else { return false };
        // SAFETY: DPDK runs while `_alive` does. The batch has room for `n` more pointers; the call writes all of
        // them or none, and the length grows only after it did.
        unsafe {
            let first = batch.as_mut_ptr().add(old).cast();
            if ffi::lr_mbuf_alloc_bulk(self.raw.as_ptr(), first, n as u32) != 0 {
                return false;
            }
            for i in 0..n {
                mbuf::reset_meta(*first.add(i));
            }
            batch.set_len(old + n);
        }
        true
    }

    /// Buffers free, those in workers' caches included. A snapshot while packets are in flight.
    #[must_use]
    pub fn available(&self) -> u32 {
        let Some(_alive) = Alive::now() else { return 0 };
        // SAFETY: DPDK runs while `_alive` does.
        unsafe { ffi::rte_mempool_avail_count(self.raw.as_ptr()) }
    }

    /// Buffers not free: in packets, in device queues or rings. 0 when nothing leaks and nothing is under way.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.config.size.saturating_sub(self.available())
    }

    /// Number of buffers.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.config.size
    }

    /// Bytes of packet data per buffer, without headroom.
    #[must_use]
    pub fn data_room(&self) -> usize {
        usize::from(self.config.data_room)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// NUMA node asked for.
    #[must_use]
    pub fn socket(&self) -> Option<u32> {
        self.config.socket
    }

    pub(crate) fn raw(&self) -> *mut rte_mempool {
        self.raw.as_ptr()
    }
}

impl PacketAlloc<Mbuf> for &'static Pool {
    #[inline]
    fn alloc(&mut self) -> Option<Mbuf> {
        Pool::alloc(self)
    }

    #[inline]
    fn alloc_bulk(&mut self, batch: &mut Batch<Mbuf>, n: usize) -> bool {
        Pool::alloc_bulk(self, batch, n)
    }
}

/// Every pool made so far.
#[must_use]
pub fn pools() -> Vec<&'static Pool> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The pools with buffers in use, without asking whether DPDK runs (clean-up does, and holds the lock).
pub(crate) fn busy_pools() -> Option<(&'static str, u32)> {
    pools().into_iter().find_map(|pool| {
        // SAFETY: called by clean-up before it ends DPDK.
        let free = unsafe { ffi::rte_mempool_avail_count(pool.raw.as_ptr()) };
        (pool.size() - free > life::kept_buffers()).then(|| (pool.name(), pool.size() - free))
    })
}

/// Empties the calling thread's caches.
pub(crate) fn flush_caches() {
    for pool in pools() {
        // SAFETY: DPDK runs (the caller is registered); the cache belongs to the calling thread.
        unsafe { ffi::lr_pool_flush(pool.raw.as_ptr()) };
    }
}

/// Shows that DPDK's memory stays: a registered worker keeps clean-up off by itself, others take the lock.
struct Alive(#[allow(dead_code, reason = "held, not read")] Option<life::Running>);

impl Alive {
    #[inline(always)]
    fn now() -> Option<Self> {
        if life::is_worker() { Some(Self(None)) } else { life::running().map(|guard| Self(Some(guard))) }
    }
}

/// DPDK wants a cache of at most two thirds of the pool; a quarter leaves buffers for other threads.
fn cache_size(size: u32) -> u32 {
    CACHE.min(size / 4)
}

fn checked_name(config: &PoolConfig) -> Result<CString, PoolError> {
    let error = |what| PoolError::Config { name: config.name.clone(), what };
    if config.size == 0 {
        return Err(error("the number of buffers must be at least 1"));
    }
    if config.data_room < 64 || config.data_room > u16::MAX - HEADROOM as u16 {
        return Err(error("the data room must be 64 to 65,407 bytes"));
    }
    let fits = (1..=25).contains(&config.name.len()) && config.name.bytes().all(|b| b.is_ascii_graphic());
    match CString::new(config.name.as_str()) {
        Ok(name) if fits => Ok(name),
        _ => Err(error("the name must be 1 to 25 printable ASCII characters without spaces")),
    }
}

fn explain(config: &PoolConfig, errno: Errno) -> PoolError {
    let name = config.name.clone();
    match errno.0 {
        nix::libc::EEXIST => PoolError::Exists(name),
        nix::libc::ENOMEM => PoolError::Memory {
            name,
            size: config.size,
            mib: (u64::from(config.size) * (OVERHEAD + usize::from(config.data_room)) as u64)
                .div_ceil(1 << 20),
            on: config.socket.map(|s| format!(" on NUMA node {s}")).unwrap_or_default(),
        },
        nix::libc::EINVAL if config.socket.is_some() => {
            PoolError::Config { name, what: "its NUMA node does not exist or has no memory for DPDK" }
        }
        _ => PoolError::Create { name, errno },
    }
}

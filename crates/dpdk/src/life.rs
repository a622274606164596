//! Whether DPDK is running: nothing may touch its memory before [`Eal::init`](crate::Eal::init) or after
//! [`Eal::cleanup`](crate::Eal::cleanup).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::errno::Errno;
use crate::ffi;
use crate::pool;

/// True from a successful start to clean-up. Clean-up holds it for writing, so a reader that found `true` may use
/// DPDK's memory while it holds the guard.
static RUNNING: RwLock<bool> = RwLock::new(false);

/// Serialises DPDK's control functions, which are not thread-safe among each other.
static CONTROL: Mutex<()> = Mutex::new(());

/// Devices open and worker threads registered: each holds clean-up off.
static DEVICES: AtomicUsize = AtomicUsize::new(0);
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// Buffers that drivers may have kept of ports now closed.
static KEPT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Proof that DPDK is running and stays so.
pub(crate) type Running = RwLockReadGuard<'static, bool>;

pub(crate) fn running() -> Option<Running> {
    let guard = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
    guard.then_some(guard)
}

pub(crate) fn exclusive() -> RwLockWriteGuard<'static, bool> {
    RUNNING.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn control() -> MutexGuard<'static, ()> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the calling thread is a registered worker; such a thread keeps clean-up off.
#[inline(always)]
pub(crate) fn is_worker() -> bool {
    REGISTERED.get()
}

pub(crate) fn workers() -> usize {
    WORKERS.load(Ordering::Acquire)
}

pub(crate) fn devices() -> usize {
    DEVICES.load(Ordering::Acquire)
}

/// How many packet buffers the drivers of ports now closed may have kept for good: DPDK's AF_XDP driver does not give back
/// what lies in its fill ring. As many in use at the end are no leak.
#[must_use]
pub fn kept_buffers() -> u32 {
    KEPT.load(Ordering::Acquire)
}

pub(crate) fn keep(buffers: u32) {
    KEPT.fetch_add(buffers, Ordering::AcqRel);
}

/// Counts one open device.
#[derive(Debug)]
pub(crate) struct DeviceCount(());

impl DeviceCount {
    /// `_running` shows that clean-up cannot be under way.
    pub(crate) fn new(_running: &Running) -> Self {
        DEVICES.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for DeviceCount {
    fn drop(&mut self) {
        DEVICES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a thread cannot become a worker.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// Before start or after clean-up.
    #[error("DPDK is not running: start it before its worker threads")]
    NotRunning,
    /// Twice on one thread.
    #[error("this thread is registered with DPDK already")]
    Already,
    /// Refused.
    #[error("DPDK takes no further worker thread: {0} (Debian's build allows 128 threads)")]
    Refused(Errno),
}

/// A worker thread's registration with DPDK: gives the thread its own cache of every pool, which makes allocating and
/// freeing 1.5 to 1.9 times as fast. Ends, and returns what the caches hold to the pools, when dropped, which happens
/// on the same thread (the guard is not `Send`).
#[derive(Debug)]
pub struct WorkerThread(PhantomData<*const ()>);

/// Registers the calling thread, a plain `std::thread` that its owner has pinned (or not).
pub fn register_worker_thread() -> Result<WorkerThread, ThreadError> {
    let _running = running().ok_or(ThreadError::NotRunning)?;
    if is_worker() {
        return Err(ThreadError::Already);
    }
    // SAFETY: EAL runs; the call concerns the calling thread only.
    if unsafe { ffi::rte_thread_register() } < 0 {
        return Err(ThreadError::Refused(Errno::last()));
    }
    WORKERS.fetch_add(1, Ordering::AcqRel);
    REGISTERED.set(true);
    Ok(WorkerThread(PhantomData))
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        // While registered, clean-up is off, so this touches live pools.
        pool::flush_caches();
        REGISTERED.set(false);
        // SAFETY: registered by this thread, which this still is.
        unsafe { ffi::rte_thread_unregister() };
        WORKERS.fetch_sub(1, Ordering::AcqRel);
    }
}

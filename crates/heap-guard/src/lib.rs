//! For tests only: a global allocator that ends the process when a thread allocates that has promised not to.
//!
//! The promise of the data path is "no allocation per packet". A test binary that makes [`HeapGuard`] its
//! `#[global_allocator]`, arms it on the worker's thread and forwards packets shows it: the first allocation prints
//! what was asked for and aborts. Frees are counted, not refused: see [`frees`].
//!
//! Depends on nothing, and never belongs to what is shipped: only `dev-dependencies` may name it.
//!
//! The one `unsafe` outside `dpdk` and `tables` lies here, because the allocator trait is unsafe; it does nothing but
//! pass on to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static FREES: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, except on armed threads.
#[derive(Debug)]
pub struct HeapGuard;

/// From now on this thread must not allocate.
pub fn arm() {
    ARMED.with(|a| a.set(true));
}

/// This thread may allocate again.
pub fn disarm() {
    ARMED.with(|a| a.set(false));
}

/// How often this thread has freed memory while armed.
pub fn frees() -> u64 {
    FREES.with(Cell::get)
}

/// Ends the process where this thread is armed.
fn check(size: usize) {
    // A thread that is ending has no thread-locals any more and may allocate.
    if ARMED.try_with(Cell::get).unwrap_or(false) {
        disarm();
        #[allow(clippy::print_stderr, reason = "the message is all that remains of the process")]
        {
            eprintln!(
                "{size} bytes allocated on a thread that must not allocate:\n{}",
                std::backtrace::Backtrace::force_capture()
            );
        }
        std::process::abort();
    }
}

// SAFETY: every method passes its arguments unchanged to the system's allocator, whose contract is the same. What
// happens besides touches thread-local cells of plain values, which never allocate.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for HeapGuard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        // SAFETY: as for `alloc`; `block` came from the system's allocator because all of ours do.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if ARMED.try_with(Cell::get).unwrap_or(false) {
            let _ = FREES.try_with(|f| f.set(f.get() + 1));
        }
        // SAFETY: as for `alloc`; `block` came from the system's allocator because all of ours do.
        unsafe { System.dealloc(block, layout) }
    }
}

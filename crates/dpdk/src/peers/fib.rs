//! `rte_fib` (DIR-24-8) and `rte_fib6` (TRIE) as safe handles.

use super::{PeerError, call_error};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

unsafe extern "C" {
    fn lr_peers_fib_create(
        name: *const c_char,
        bytes: c_uint,
        max_routes: c_int,
        tbl8s: u32,
        err: *mut c_int,
    ) -> *mut c_void;
    fn lr_peers_fib_free(fib: *mut c_void);
    fn lr_peers_fib_add(fib: *mut c_void, ip: u32, depth: u8, nh: u64) -> c_int;
    fn lr_peers_fib_delete(fib: *mut c_void, ip: u32, depth: u8) -> c_int;
    fn lr_peers_fib_select(fib: *mut c_void, vector: c_int) -> c_int;
    fn lr_peers_fib_lookup(fib: *mut c_void, ips: *const u32, nhs: *mut u64, n: c_int) -> c_int;
    fn lr_peers_fib6_create(
        name: *const c_char,
        max_routes: c_int,
        tbl8s: u32,
        err: *mut c_int,
    ) -> *mut c_void;
    fn lr_peers_fib6_free(fib: *mut c_void);
    fn lr_peers_fib6_add(fib: *mut c_void, ip: *const u8, depth: u8, nh: u64) -> c_int;
    fn lr_peers_fib6_delete(fib: *mut c_void, ip: *const u8, depth: u8) -> c_int;
    fn lr_peers_fib6_select(fib: *mut c_void, vector: c_int) -> c_int;
    fn lr_peers_fib6_lookup(fib: *mut c_void, ips: *const u8, nhs: *mut u64, n: c_int) -> c_int;
}

/// Bytes of one `rte_fib` table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Up to 2^15 next hops; 32 MiB for the first 24 bits.
    Two,
    /// 64 MiB for the first 24 bits.
    Four,
}

/// Which of DPDK's lookup functions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// One address after the other.
    Scalar,
    /// 16 lanes of AVX-512.
    Avx512,
}

/// `rte_fib` of type DIR-24-8.
pub struct RteFib(NonNull<c_void>);

/// `rte_fib6` of type TRIE with 4-byte entries.
pub struct RteFib6(NonNull<c_void>);

impl RteFib {
    /// A table for up to `max_routes`, with `tbl8s` groups for prefixes longer than /24. [`super::start`] comes first.
    pub fn new(name: &str, width: Width, max_routes: usize, tbl8s: u32) -> Result<Self, PeerError> {
        let (name, routes) = checked(name, max_routes)?;
        let bytes = if width == Width::Two { 2 } else { 4 };
        let mut err = 0;
        // SAFETY: the name is NUL-terminated and copied by DPDK; err is a valid out-pointer for the call.
        let fib = unsafe { lr_peers_fib_create(name.as_ptr(), bytes, routes, tbl8s, &mut err) };
        NonNull::new(fib).map(RteFib).ok_or_else(|| call_error("rte_fib_create", err))
    }

    /// Adds or replaces a route.
    pub fn add(&mut self, addr: u32, len: u8, nh: u32) -> Result<(), PeerError> {
        // SAFETY: the handle is live and `&mut self` makes this the only writer.
        let rc = unsafe { lr_peers_fib_add(self.0.as_ptr(), addr, len, nh.into()) };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_fib_add", rc)) }
    }

    /// Removes a route.
    pub fn delete(&mut self, addr: u32, len: u8) -> Result<(), PeerError> {
        // SAFETY: as in `add`.
        let rc = unsafe { lr_peers_fib_delete(self.0.as_ptr(), addr, len) };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_fib_delete", rc)) }
    }

    /// Chooses the lookup function; refused where CPU or build lacks it.
    pub fn select(&mut self, kernel: Kernel) -> Result<(), PeerError> {
        // SAFETY: as in `add`.
        let rc = unsafe { lr_peers_fib_select(self.0.as_ptr(), (kernel == Kernel::Avx512).into()) };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_fib_select_lookup", rc)) }
    }

    /// Looks up `addrs[i]` (host byte order) into `out[i]`; the shorter slice counts.
    pub fn lookup(&self, addrs: &[u32], out: &mut [u64]) {
        let n = addrs.len().min(out.len()).min(c_int::MAX as usize);
        // SAFETY: both buffers hold at least `n` elements; DPDK only reads the addresses.
        unsafe { lr_peers_fib_lookup(self.0.as_ptr(), addrs.as_ptr(), out.as_mut_ptr(), n as c_int) };
    }
}

impl RteFib6 {
    /// A table for up to `max_routes`, with `tbl8s` groups. [`super::start`] comes first.
    pub fn new(name: &str, max_routes: usize, tbl8s: u32) -> Result<Self, PeerError> {
        let (name, routes) = checked(name, max_routes)?;
        let mut err = 0;
        // SAFETY: the name is NUL-terminated and copied by DPDK; err is a valid out-pointer for the call.
        let fib = unsafe { lr_peers_fib6_create(name.as_ptr(), routes, tbl8s, &mut err) };
        NonNull::new(fib).map(RteFib6).ok_or_else(|| call_error("rte_fib6_create", err))
    }

    /// Adds or replaces a route; the address in network byte order.
    pub fn add(&mut self, addr: [u8; 16], len: u8, nh: u32) -> Result<(), PeerError> {
        // SAFETY: DPDK reads 16 bytes; the handle is live and `&mut self` makes this the only writer.
        let rc = unsafe { lr_peers_fib6_add(self.0.as_ptr(), addr.as_ptr(), len, nh.into()) };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_fib6_add", rc)) }
    }

    /// Removes a route; the address in network byte order.
    pub fn delete(&mut self, addr: [u8; 16], len: u8) -> Result<(), PeerError> {
        // SAFETY: as in `add`.
        let rc = unsafe { lr_peers_fib6_delete(self.0.as_ptr(), addr.as_ptr(), len) };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_fib6_delete", rc)) }
    }

    /// Chooses the lookup function; refused where CPU or build lacks it.
    pub fn select(&mut self, kernel: Kernel) -> Result<(), PeerError> {
        // SAFETY: as in `add`.
        let rc = unsafe { lr_peers_fib6_select(self.0.as_ptr(), (kernel == Kernel::Avx512).into()) };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_fib6_select_lookup", rc)) }
    }

    /// Looks up `addrs[i]` (network byte order) into `out[i]`; the shorter slice counts.
    pub fn lookup(&self, addrs: &[[u8; 16]], out: &mut [u64]) {
        let n = addrs.len().min(out.len()).min(c_int::MAX as usize);
        // SAFETY: both buffers hold at least `n` elements; DPDK only reads the addresses.
        unsafe { lr_peers_fib6_lookup(self.0.as_ptr(), addrs.as_ptr().cast(), out.as_mut_ptr(), n as c_int) };
    }
}

impl Drop for RteFib {
    fn drop(&mut self) {
        // SAFETY: the handle came from rte_fib_create and is freed once.
        unsafe { lr_peers_fib_free(self.0.as_ptr()) };
    }
}

impl Drop for RteFib6 {
    fn drop(&mut self) {
        // SAFETY: the handle came from rte_fib6_create and is freed once.
        unsafe { lr_peers_fib6_free(self.0.as_ptr()) };
    }
}

fn checked(name: &str, max_routes: usize) -> Result<(CString, c_int), PeerError> {
    let invalid = |reason: &str| PeerError::Call { call: "rte_fib_create", reason: reason.into() };
    let name = CString::new(name).map_err(|_| invalid("the name contains a NUL byte"))?;
    let routes = c_int::try_from(max_routes).map_err(|_| invalid("too many routes"))?;
    Ok((name, routes))
}

//! `rte_acl` over five-tuples as a safe handle.

use super::{PeerError, call_error};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::NonNull;

unsafe extern "C" {
    fn lr_peers_acl_create(name: *const c_char, six: c_int, rules: u32, err: *mut c_int) -> *mut c_void;
    fn lr_peers_acl_free(acl: *mut c_void);
    fn lr_peers_acl_add(
        acl: *mut c_void,
        six: c_int,
        priority: i32,
        userdata: u32,
        proto: u8,
        proto_mask: u8,
        words: *const u32,
        lens: *const u8,
        ports: *const u16,
    ) -> c_int;
    fn lr_peers_acl_build(acl: *mut c_void, six: c_int, max_size: usize) -> c_int;
    fn lr_peers_acl_classify(
        acl: *mut c_void,
        alg: c_int,
        keys: *const u8,
        stride: u32,
        results: *mut u32,
        n: u32,
    ) -> c_int;
}

/// Which of DPDK's classify functions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKernel {
    /// One key after the other.
    Scalar,
    /// Eight keys in AVX2.
    Avx2,
    /// Sixteen keys in AVX-512.
    Avx512x16,
    /// Two times sixteen.
    Avx512x32,
}

/// A five-tuple rule. Addresses as 32-bit words in host byte order: one for IPv4, four for IPv6.
#[derive(Clone, Copy, Debug)]
pub struct AclRule<const WORDS: usize> {
    /// The number a match returns; not 0, which DPDK keeps for "no match".
    pub userdata: u32,
    /// Protocol, if it matters.
    pub protocol: Option<u8>,
    /// Source and destination address.
    pub addresses: [[u32; WORDS]; 2],
    /// Prefix length of each.
    pub lens: [u8; 2],
    /// First and last source port, first and last destination port.
    pub ports: [u16; 4],
}

/// A five-tuple as DPDK reads it: 4 bytes with the protocol first, source, destination, source port, destination port, all in
/// network byte order. 16 bytes for IPv4, 40 for IPv6.
pub type AclKey<const BYTES: usize> = [u8; BYTES];

/// A built `rte_acl` context, for addresses of `WORDS` 32-bit words.
pub struct RteAcl<const WORDS: usize> {
    acl: NonNull<c_void>,
    kernel: AclKernel,
}

impl<const WORDS: usize> RteAcl<WORDS> {
    const SIX: c_int = (WORDS == 4) as c_int;

    /// Builds a context; earlier rules win. `max_bytes` limits DPDK's tables, 0 for no limit. [`super::start`] comes first.
    pub fn new(name: &str, rules: &[AclRule<WORDS>], max_bytes: usize) -> Result<Self, PeerError> {
        const { assert!(WORDS == 1 || WORDS == 4) };
        let invalid = |reason: &str| PeerError::Call { call: "rte_acl_create", reason: reason.into() };
        let name = CString::new(name).map_err(|_| invalid("the name contains a NUL byte"))?;
        let count = i32::try_from(rules.len()).map_err(|_| invalid("too many rules"))?;
        let mut err = 0;
        // SAFETY: the name is NUL-terminated and copied by DPDK; err is a valid out-pointer for the call.
        let acl = unsafe { lr_peers_acl_create(name.as_ptr(), Self::SIX, count as u32, &mut err) };
        let acl = NonNull::new(acl).ok_or_else(|| call_error("rte_acl_create", err))?;
        let this = RteAcl { acl, kernel: AclKernel::Scalar };
        for (rule, priority) in rules.iter().zip((1..=count).rev()) {
            this.add(rule, priority)?;
        }
        // SAFETY: the handle is live and nobody else has it yet.
        let rc = unsafe { lr_peers_acl_build(acl.as_ptr(), Self::SIX, max_bytes) };
        if rc == 0 { Ok(this) } else { Err(call_error("rte_acl_build", rc)) }
    }

    fn add(&self, rule: &AclRule<WORDS>, priority: i32) -> Result<(), PeerError> {
        let mut lens = [[0; WORDS]; 2];
        for (lens, len) in lens.iter_mut().zip(rule.lens) {
            for (i, part) in lens.iter_mut().enumerate() {
                *part = len.saturating_sub(32 * i as u8).min(32);
            }
        }
        let mask = if rule.protocol.is_some() { 0xff } else { 0 };
        // SAFETY: the handle is live; DPDK copies from the arrays, which hold two addresses' words and lengths and four
        // ports.
        let rc = unsafe {
            lr_peers_acl_add(
                self.acl.as_ptr(),
                Self::SIX,
                priority,
                rule.userdata,
                rule.protocol.unwrap_or(0),
                mask,
                rule.addresses.as_ptr().cast(),
                lens.as_ptr().cast(),
                rule.ports.as_ptr(),
            )
        };
        if rc == 0 { Ok(()) } else { Err(call_error("rte_acl_add_rules", rc)) }
    }

    /// Chooses the classify function; refused where CPU, build or EAL's vector width lacks it.
    pub fn select(&mut self, kernel: AclKernel) -> Result<(), PeerError> {
        let (key, mut out) = ([0u8; 64], [0]);
        let rc = self.call(kernel, key.as_ptr(), 64, &mut out, 1);
        if rc != 0 {
            return Err(call_error("rte_acl_classify_alg", rc));
        }
        self.kernel = kernel;
        Ok(())
    }

    /// Classifies `keys[i]` into `out[i]`, 64 at a time; 0 where no rule matches. The shorter slice counts. False where DPDK
    /// refused.
    pub fn lookup<const BYTES: usize>(&self, keys: &[AclKey<BYTES>], out: &mut [u32]) -> bool {
        const { assert!(BYTES == 8 + 8 * WORDS) };
        let n = keys.len().min(out.len()).min(u32::MAX as usize);
        self.call(self.kernel, keys.as_ptr().cast(), BYTES as u32, out, n as u32) == 0
    }

    /// `keys` points at `n` keys of `stride` bytes, and `out` holds `n` results.
    fn call(&self, kernel: AclKernel, keys: *const u8, stride: u32, out: &mut [u32], n: u32) -> c_int {
        // SAFETY: the handle is live and built; keys and results are as described, DPDK reads only the fields within the
        // stride.
        unsafe {
            lr_peers_acl_classify(self.acl.as_ptr(), kernel as c_int, keys, stride, out.as_mut_ptr(), n)
        }
    }
}

impl<const WORDS: usize> Drop for RteAcl<WORDS> {
    fn drop(&mut self) {
        // SAFETY: the handle came from rte_acl_create and is freed once.
        unsafe { lr_peers_acl_free(self.acl.as_ptr()) };
    }
}

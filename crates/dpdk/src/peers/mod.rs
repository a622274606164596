//! DPDK's own lookup libraries, for `linerate bench fib` and `bench acl` to measure against. Not part of the data path.

mod acl;
mod fib;

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

pub use acl::{AclKernel, AclKey, AclRule, RteAcl};
pub use fib::{Kernel, RteFib, RteFib6, Width};

/// Why a peer could not be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PeerError {
    /// The environment did not start.
    #[error("DPDK's EAL did not start for the comparison ({0}); `--no-peers` measures without it")]
    Eal(String),
    /// A DPDK function refused.
    #[error("{call} failed: {reason}")]
    Call {
        /// The DPDK function.
        call: &'static str,
        /// The error as text.
        reason: String,
    },
}

pub(crate) fn call_error(call: &'static str, errno: i32) -> PeerError {
    PeerError::Call { call, reason: std::io::Error::from_raw_os_error(errno.abs()).to_string() }
}

unsafe extern "C" {
    fn lr_peers_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
}

/// Starts the EAL once for this process with `megabytes` of ordinary memory: no hugepages, no devices, no files shared
/// with other processes. It pins the calling thread to `cpu`.
pub fn start(megabytes: u32, cpu: usize) -> Result<(), PeerError> {
    static STARTED: OnceLock<Result<(), PeerError>> = OnceLock::new();
    STARTED.get_or_init(|| init(megabytes, cpu)).clone()
}

fn init(megabytes: u32, cpu: usize) -> Result<(), PeerError> {
    let args = [
        "linerate-bench".into(),
        "--no-huge".into(),
        format!("-m{megabytes}"),
        "--no-pci".into(),
        "--no-shconf".into(),
        "--no-telemetry".into(),
        "--force-max-simd-bitwidth=512".into(),
        "--log-level=error".into(),
        format!("--lcores=0@{cpu}"),
    ];
    let owned: Vec<CString> = args
        .into_iter()
        .map(|a: String| CString::new(a))
        .collect::<Result<_, _>>()
        .map_err(|e| PeerError::Eal(e.to_string()))?;
    // EAL keeps and permutes the array it is given: both live as long as the process.
    let strings: &'static [CString] = Vec::leak(owned);
    let argv: &'static mut [*mut c_char] =
        Vec::leak(strings.iter().map(|s| s.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect());
    // SAFETY: argv holds `strings.len()` NUL-terminated strings and a NULL, all leaked. EAL does not write into the
    // strings themselves (getopt permutes the array only).
    let rc = unsafe { lr_peers_eal_init(strings.len() as c_int, argv.as_mut_ptr()) };
    if rc == 0 { Ok(()) } else { Err(PeerError::Eal(std::io::Error::from_raw_os_error(-rc).to_string())) }
}

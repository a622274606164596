//! DPDK's three ways to report an error, as one type.

use std::fmt;
use std::io;

use crate::ffi;

/// An errno value as DPDK returned it; displays as text ("No such device") with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// From a call that returns a negative errno.
    pub(crate) fn from_return(code: i32) -> Self {
        Self(code.saturating_neg())
    }

    /// From a call that returns -1 or NULL and sets `rte_errno`.
    pub(crate) fn last() -> Self {
        // SAFETY: reads a thread-local variable.
        Self(unsafe { ffi::lr_errno() })
    }

    /// Whether the device has no such function. DPDK uses two values for that.
    pub(crate) fn is_unsupported(self) -> bool {
        self.0 == nix::libc::ENOTSUP || self.0 == nix::libc::ENOSYS
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}

/// `Ok` for zero and above, else the negative errno.
pub(crate) fn check(code: i32) -> Result<u32, Errno> {
    u32::try_from(code).map_err(|_| Errno::from_return(code))
}

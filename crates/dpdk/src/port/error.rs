//! Why a port does not do what was asked.

use crate::errno::Errno;

/// An error of a port. Each names the port and, where one is known, the way out.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Before start or after clean-up.
    #[error("DPDK is not running: start it before opening ports")]
    NotRunning,
    /// Not a device string at all.
    #[error(
        "'{device}' is not a device: expected a PCI address (0000:01:00.0) or a software device \
         (net_NAME,ARG=VALUE,…)"
    )]
    Syntax {
        /// The string.
        device: String,
    },
    /// The device cannot be opened.
    #[error("device '{device}' cannot be opened: {why}{log}")]
    Open {
        /// The device string.
        device: String,
        /// What is wrong and what to do about it.
        why: String,
        /// " (DPDK: …)" or nothing.
        log: String,
    },
    /// The device is open already.
    #[error("device '{device}' is open already: give each port its own device")]
    InUse {
        /// The device string.
        device: String,
    },
    /// No port number left.
    #[error("device '{device}' cannot be opened: DPDK has no port left, this build allows {max}")]
    TooMany {
        /// The device string.
        device: String,
        /// Ports allowed.
        max: u16,
    },
    /// A setting out of the device's range.
    #[error("port '{port}': {what}")]
    Config {
        /// The port.
        port: String,
        /// What was asked for and what is possible.
        what: String,
    },
    /// A call that failed.
    #[error("port '{port}': {call} failed: {errno}")]
    Call {
        /// The port.
        port: String,
        /// The DPDK function.
        call: &'static str,
        /// Its error.
        errno: Errno,
    },
    /// The device has no such function.
    #[error("port '{port}': {driver} does not support {what}")]
    Unsupported {
        /// The port.
        port: String,
        /// The function.
        what: &'static str,
        /// The driver.
        driver: String,
    },
    /// Queues still out.
    #[error("port '{port}' cannot be stopped while {queues} of its queues are in use")]
    QueuesOut {
        /// The port.
        port: String,
        /// Queues not returned.
        queues: usize,
    },
}

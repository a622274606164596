//! The only crate with unsafe code around DPDK: EAL, pools, mbufs, ports.

#[cfg(feature = "peers")]
#[allow(unsafe_code, reason = "calls into DPDK")]
pub mod peers;

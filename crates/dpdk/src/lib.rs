//! The only crate with unsafe code around DPDK: EAL, pools, mbufs, ports.

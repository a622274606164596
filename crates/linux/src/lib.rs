//! What is read from and asked of Linux: CPUs, affinity.

#![forbid(unsafe_code)]

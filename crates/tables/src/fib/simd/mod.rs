//! Lookup code for particular CPUs: the only unsafe code of this crate.
#![allow(unsafe_code, reason = "vector intrinsics on raw table memory")]

pub(crate) mod ip6;

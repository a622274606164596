//! RIB to FIB, next hops, neighbours, ICMP and their packet nodes.

#![forbid(unsafe_code)]

//! What bindgen made of DPDK's headers. Private to this crate: nothing raw crosses its border.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    unreachable_pub,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

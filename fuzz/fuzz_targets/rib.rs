//! Arbitrary bytes as a route table: text, MRT, compressed or not.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_control::rib::fuzz(data));

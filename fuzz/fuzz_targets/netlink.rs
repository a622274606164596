//! Arbitrary bytes as netlink messages and as an FPM stream.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_linux::route::fuzz(data));

//! Arbitrary frames through the whole router graph: nothing may panic, every packet must be accounted for.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| linerate_router::fuzz::graph(data));

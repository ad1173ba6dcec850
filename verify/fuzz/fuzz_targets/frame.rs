//! Arbitrary bytes as a frame.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::wire::frame(bytes));

//! Bytes taken for what an endpoint's peers, application and clocks do.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::endpoint::endpoint(bytes));

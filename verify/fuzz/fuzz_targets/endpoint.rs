//! Arbitrary bytes drive an endpoint's peers, application and clocks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::endpoint::endpoint(bytes));

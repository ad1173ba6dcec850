//! Arbitrary bytes drive a member of a bulk group whose links place bytes directly: shared memory,
//! and streams.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::bulk::detached(bytes));

//! Arbitrary bytes drive a member of a bulk group.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::bulk::bulk(bytes));

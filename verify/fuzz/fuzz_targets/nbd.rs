//! Arbitrary bytes as what a client of the block device sends.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::nbd::check_connection(bytes));

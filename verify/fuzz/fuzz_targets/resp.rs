//! Arbitrary bytes as what a client of the key-value store sends.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::resp::check_connection(bytes));

//! Arbitrary bytes as parts, images, commands and results of the key-value store.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::store::check_store(bytes));

//! Arbitrary bytes as messages to owners of memory and their clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::memory::check_messages(bytes));

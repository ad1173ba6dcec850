//! Arbitrary bytes as messages to replicas and clients of a log, and as what a replica has stored.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::log::check_messages(bytes));

//! Arbitrary bytes as messages to replicas and clients of transactions.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::transaction::check_messages(bytes));

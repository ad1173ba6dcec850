//! Arbitrary bytes as files of a journal.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::journal::check_log(bytes));

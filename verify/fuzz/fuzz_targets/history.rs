//! Arbitrary bytes as a recorded history.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::history::check_history(bytes));

//! Bytes taken for what an arbiter, its endpoints and what lies between them do.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::arbiter::arbiter(bytes));

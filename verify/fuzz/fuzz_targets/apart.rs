//! Bytes taken for what happens to a member of a bulk group whose links bring bytes to where they
//! belong: shared memory, and streams.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::bulk::apart(bytes));

//! Bytes taken for what happens to a member, a replica, a client or a coordinator.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::amcast::amcast(bytes));

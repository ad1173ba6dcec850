//! Arbitrary bytes drive a member, a replica, a client or a coordinator of agreed multicast.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::amcast::amcast(bytes));

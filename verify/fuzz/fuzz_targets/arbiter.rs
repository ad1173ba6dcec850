//! Arbitrary bytes drive an arbiter, its endpoints and the network between them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::arbiter::arbiter(bytes));

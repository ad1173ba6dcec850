//! Octets taken for what an arbiter, its endpoints and what lies between them do.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| onepipe_fuzz::arbiter::arbiter(octets));

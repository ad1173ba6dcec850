//! Octets taken for the payload of a frame.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| onepipe_fuzz::wire::messages(octets));

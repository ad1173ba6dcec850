//! Octets taken for a frame.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| onepipe_fuzz::wire::frame(octets));

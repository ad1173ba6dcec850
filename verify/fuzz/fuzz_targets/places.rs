//! Octets taken for places on a shelf, and for frames that tell of them.

#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| onepipe_fuzz::places::places(octets));

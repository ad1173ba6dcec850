//! Bytes taken for places on a shelf, and for frames that tell of them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::page_locations::check_locations(bytes));

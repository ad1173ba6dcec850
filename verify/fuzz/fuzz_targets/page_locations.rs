//! Arbitrary bytes as descriptors of pages, and as frames that carry them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::page_locations::check_locations(bytes));

//! Arbitrary bytes as changes, copies and files of a block device's replica.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::image::check_image(bytes));

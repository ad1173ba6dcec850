//! Arbitrary bytes drive a switch's neighbours and clocks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::switch::switch(bytes));

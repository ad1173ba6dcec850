//! Arbitrary bytes as a frame that hops rewrite.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::wire::rewrite(bytes));

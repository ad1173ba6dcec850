//! Arbitrary bytes as parts, states and answers of TPC-C.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onepipe_fuzz::tpcc::check_state(bytes));

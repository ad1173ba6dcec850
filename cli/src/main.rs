//! The one command of onepipe.

fn main() {}

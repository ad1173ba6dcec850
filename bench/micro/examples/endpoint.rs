//! `cargo run --release -p onepipe-bench-micro --example endpoint`

use anyhow::Result;
use onepipe_bench_micro::{EndpointOptions, endpoint};

fn main() -> Result<()> {
    print!("{}", endpoint(&EndpointOptions::default(), |_| {})?);
    Ok(())
}

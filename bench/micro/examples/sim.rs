//! `cargo run --release -p onepipe-bench-micro --example sim`

use anyhow::Result;
use onepipe_bench_micro::{SimOptions, sim};

fn main() -> Result<()> {
    print!("{}", sim(&SimOptions::default(), |_| {})?);
    Ok(())
}

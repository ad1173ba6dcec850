//! `cargo run --release -p onepipe-bench-micro --example endpoint`

use anyhow::Result;
use onepipe_bench_micro::{EndpointOptions, endpoint};

fn main() -> Result<()> {
    let mut options = EndpointOptions::default();
    if let Some(messages) = std::env::args().nth(1) {
        options.messages = messages.parse()?;
    }
    print!("{}", endpoint(&options, |_| {})?);
    Ok(())
}

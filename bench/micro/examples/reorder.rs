//! `cargo run --release -p onepipe-bench-micro --example reorder [BATCH [MESSAGES_PER_S]]`

use anyhow::Result;
use onepipe_bench_micro::{ReorderOptions, reorder};

fn main() -> Result<()> {
    let mut options = ReorderOptions::default();
    let mut arguments = std::env::args().skip(1);
    if let Some(batch) = arguments.next() {
        options.batch = batch.parse()?;
    }
    if let Some(rate) = arguments.next() {
        options.rate_per_s = rate.parse()?;
    }
    let report = reorder(&options, |progress| {
        eprint!("\r{} {}/{} ", progress.case, progress.done, progress.total);
    })?;
    eprintln!();
    print!("{report}");
    Ok(())
}

//! `cargo run --release -p onepipe-bench-micro --example pair`

use anyhow::Result;
use onepipe_bench_micro::{PairOptions, WORKER, pair_shm, worker};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == WORKER) {
        return worker(&arguments[1..]);
    }
    print!("{}", pair_shm(&PairOptions::default(), |_| {})?);
    Ok(())
}

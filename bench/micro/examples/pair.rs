//! `cargo run --release -p onepipe-bench-micro --example pair [udp|order-udp|order-shm]`

use anyhow::Result;
use onepipe_bench_micro::{OrderOptions, PairOptions, WORKER, order, pair_shm, pair_udp, worker};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == WORKER) {
        return worker(&arguments[1..]);
    }
    let report = match arguments.first().map(String::as_str) {
        Some("udp") => pair_udp(&PairOptions::default(), |_| {})?,
        Some("order-udp") => order(&OrderOptions::default(), |_| {})?,
        Some("order-shm") => {
            order(&OrderOptions { is_udp: false, ..OrderOptions::default() }, |_| {})?
        }
        _ => pair_shm(&PairOptions::default(), |_| {})?,
    };
    print!("{report}");
    Ok(())
}

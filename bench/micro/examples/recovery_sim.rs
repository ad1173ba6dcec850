//! `cargo run --release -p onepipe-bench-micro --example recovery_sim [HOSTS_MAX [RUNS]]`

use anyhow::Result;
use onepipe_bench_micro::{RecoverySimOptions, recovery_sim};

fn main() -> Result<()> {
    let mut options = RecoverySimOptions::default();
    let mut arguments = std::env::args().skip(1);
    if let Some(hosts) = arguments.next() {
        options.hosts_max = hosts.parse()?;
    }
    if let Some(runs) = arguments.next() {
        options.runs = runs.parse()?;
    }
    print!("{}", recovery_sim(&options, |_| {})?);
    Ok(())
}

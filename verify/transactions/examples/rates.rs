//! `cargo run --release -p onepipe-verify-transactions --example rates [--json] PROCESSES...`:
//! measures what figures 14 and 15 of 1Pipe show, in virtual time: the rates and latencies of
//! transactions on 64-bit keys, and, with 16 processes or more, of TPC-C.

use onepipe_topology::ShapeError;
use onepipe_transaction::ReadMode;
use onepipe_verify_transactions::{Figures, KeyMix, TpccRun, ValuesRun, Zipf};

/// Number of keys.
const KEYS: u64 = 1_000_000;
/// Transactions in flight of each client: at full rate, and for latencies.
const TERMINALS: [u32; 3] = [128, 32, 2];

fn main() -> Result<(), ShapeError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_json = words.iter().any(|word| word == "--json");
    let processes: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let keys = [("uniform", KeyMix::Uniform(KEYS)), ("zipf", KeyMix::Zipf(Zipf::new(KEYS, 0.99)))];
    for processes in processes {
        for (name, keys) in keys {
            for (read_mode, reads) in
                [(ReadMode::Snapshot, "snapshot"), (ReadMode::Strict, "strict")]
            {
                for terminals in TERMINALS {
                    let run = ValuesRun { keys, terminals, ..ValuesRun::new(processes, read_mode) };
                    let labels = format!("values {name} {reads}");
                    print(is_json, &labels, (processes, terminals), &run.run()?, "");
                }
            }
        }
        if processes >= 16 {
            for terminals in [32, 8, 1] {
                let run = TpccRun { terminals, ..TpccRun::new(processes, 100) };
                let tpcc = run.run()?;
                let counts = format!(
                    r#","per_s":{:.0},"ordered":{},"rolled_back":{},"paid":{},"violations":{:?}"#,
                    tpcc.per_s, tpcc.ordered, tpcc.rolled_back, tpcc.paid, tpcc.violations
                );
                print(is_json, "tpcc", (processes, terminals), &tpcc.figures, &counts);
            }
        }
    }
    Ok(())
}

fn print(is_json: bool, what: &str, (processes, terminals): (u32, u32), run: &Figures, more: &str) {
    let rate = run.per_s_and_process;
    if !is_json {
        println!("{what}, {processes} processes, {terminals} in flight: {rate:.0} /s a process");
        for (kind, latency) in &run.latency {
            println!("    {kind}: p50 {:.1} us, p99 {:.1} us", latency.p50_us, latency.p99_us);
        }
        if !more.is_empty() {
            println!("    {}", more.trim_start_matches(','));
        }
        return;
    }
    let latencies: Vec<String> = run
        .latency
        .iter()
        .map(|(kind, latency)| {
            format!(
                r#""{kind}":{{"count":{},"mean_us":{:.2},"p50_us":{:.2},"p99_us":{:.2}}}"#,
                latency.count, latency.mean_us, latency.p50_us, latency.p99_us
            )
        })
        .collect();
    println!(
        r#"{{"run":"{what}","processes":{processes},"terminals":{terminals},"per_s_and_process":{rate:.0},"repeated":{:.4},"failed":{},"hops":{},"latency":{{{}}}{more}}}"#,
        run.repeated,
        run.failed,
        run.hops,
        latencies.join(",")
    );
}

//! `cargo run --release -p onepipe-verify-transactions --example rates -- [--only PROTOCOL]
//! PROCESSES...`: measures what figures 14 and 15 of 1Pipe show, in virtual time: the rates and
//! latencies of transactions on 64-bit keys, and of TPC-C, of each protocol or of one (1Pipe,
//! NonTX, FaRM, 2PL, OCC); and which messages, CPU time and bytes they take.

use clap::Parser;
use onepipe_topology::ShapeError;
use onepipe_transaction::ReadMode;
use onepipe_verify_transactions::{Figures, KeyMix, Protocol, TpccRun, ValuesRun, Zipf};

/// Transactions in flight of each client: at full rate, and for latencies.
const TERMINALS: [u32; 3] = [128, 32, 2];

#[derive(Parser)]
struct Options {
    /// Prints a line of JSON for each run.
    #[arg(long)]
    json: bool,
    /// The only protocol to run.
    #[arg(long)]
    only: Option<String>,
    /// Runs TPC-C alone.
    #[arg(long)]
    tpcc: bool,
    /// Length of each measurement, in us.
    #[arg(long)]
    measure_us: Option<u64>,
    /// Longest time before the second attempt of a rival, in ns.
    #[arg(long)]
    backoff_ns: Option<u64>,
    /// Loss rate of the links that lead to a host, for TPC-C, in parts per billion.
    #[arg(long, default_value_t = 0)]
    loss_ppb: u32,
    /// Minimum timeout of endpoints and clients, for TPC-C, in ns.
    #[arg(long)]
    timeout_min_ns: Option<u64>,
    /// Shortest time from one transaction of a terminal to its next, for TPC-C, in ns.
    #[arg(long, default_value_t = 0)]
    period_ns: u64,
    /// Length of the load before the measurement, for TPC-C, in us.
    #[arg(long)]
    warm_up_us: Option<u64>,
    /// Transactions in flight of each client, for TPC-C.
    #[arg(long, value_delimiter = ',', default_value = "32,8,1")]
    in_flight: Vec<u32>,
    /// Numbers of processes.
    processes: Vec<u32>,
}

fn main() -> Result<(), ShapeError> {
    let options = Options::parse();
    for processes in options.processes.iter().copied() {
        for protocol in Protocol::ALL {
            if options.only.as_ref().is_some_and(|only| only != protocol.name()) {
                continue;
            }
            if !options.tpcc {
                measure_values(&options, protocol, processes)?;
            }
            measure_tpcc(&options, protocol, processes)?;
        }
    }
    Ok(())
}

fn measure_values(options: &Options, protocol: Protocol, processes: u32) -> Result<(), ShapeError> {
    let keys = [("uniform", KeyMix::ALL), ("zipf", KeyMix::Zipf(Zipf::ycsb()))];
    // What rivals guarantee does not depend on the mode of reads.
    let modes: &[(ReadMode, &str)] = match protocol {
        Protocol::Onepipe => &[(ReadMode::Snapshot, " snapshot"), (ReadMode::Strict, " strict")],
        _ => &[(ReadMode::Strict, "")],
    };
    for (name, keys) in keys {
        for (read_mode, reads) in modes.iter().copied() {
            for terminals in TERMINALS {
                let run = ValuesRun::new(processes, read_mode);
                let run = ValuesRun {
                    protocol,
                    keys,
                    terminals,
                    measure_us: options.measure_us.unwrap_or(run.measure_us),
                    backoff_ns: options.backoff_ns.unwrap_or(run.backoff_ns),
                    ..run
                };
                let labels = format!("{} values {name}{reads}", protocol.name());
                print(options.json, &labels, (processes, terminals), &run.run()?, "");
            }
        }
    }
    Ok(())
}

fn measure_tpcc(options: &Options, protocol: Protocol, processes: u32) -> Result<(), ShapeError> {
    for &terminals in &options.in_flight {
        let mut run = TpccRun::new(processes, 100);
        if let Some(timeout_min_ns) = options.timeout_min_ns {
            run.probe_timeout_ns = timeout_min_ns;
            run.client.timeout_min_ns = timeout_min_ns;
            run.client.timeout_ns = 100 * timeout_min_ns;
        }
        let run = TpccRun {
            protocol,
            terminals,
            measure_us: options.measure_us.unwrap_or(run.measure_us),
            backoff_ns: options.backoff_ns.unwrap_or(run.backoff_ns),
            loss_ppb: options.loss_ppb,
            period_ns: options.period_ns,
            warm_up_us: options.warm_up_us.unwrap_or(run.warm_up_us),
            ..run
        };
        let tpcc = run.run()?;
        let counts = format!(
            r#","per_s":{:.0},"ordered":{},"rolled_back":{},"paid":{},"violations":{:?}"#,
            tpcc.per_s, tpcc.ordered, tpcc.rolled_back, tpcc.paid, tpcc.violations
        );
        let labels = format!("{} tpcc", protocol.name());
        print(options.json, &labels, (processes, terminals), &tpcc.figures, &counts);
    }
    Ok(())
}

fn print(is_json: bool, what: &str, (processes, terminals): (u32, u32), run: &Figures, more: &str) {
    let rate = run.per_s_and_process;
    if !is_json {
        println!(
            "{what}, {processes} processes, {terminals} in flight: {rate:.0} /s a process, \
             {:.2} attempts repeated a transaction",
            run.repeated
        );
        for (kind, latency) in &run.latency {
            println!("    {kind}: p50 {:.1} us, p99 {:.1} us", latency.p50_us, latency.p99_us);
        }
        let usage = &run.usage;
        println!(
            "    {:.2} requests, {:.2} replies, {:.2} acknowledgements, {:.2} others, \
             {:.2} to itself a transaction; \
             {:.2} messages a frame; sending {:.2}, of the busiest {:.2}; polling {:.2}, of the \
             busiest {:.2}; fullest link {:.2}",
            usage.requests,
            usage.replies,
            usage.acks,
            usage.others,
            usage.local,
            usage.messages_per_frame,
            usage.sending_mean,
            usage.sending_busiest,
            usage.polling_mean,
            usage.polling_busiest,
            usage.link_fullest
        );
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

//! `onepipe sim pause`: the latency of a message after a pause, with beacons on demand and at the
//! fixed interval.

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use onepipe_sim_scenarios::{PauseOptions, PauseReport, Placement, pauses};
use onepipe_topology::Shape;
use serde::Serialize;

use crate::progress::Progress;
use crate::units::readable_ns;

/// Heartbeat with beacons on demand, in beacon intervals: 100 ms for an interval of 20 us.
const HEARTBEAT_INTERVALS: u64 = 5_000;

const EXAMPLES: &str = "\
Examples:
  onepipe sim pause                                 star of four hosts
  onepipe sim pause --topology leaf-spine:4x2x4     five switches on the longest path
  onepipe sim pause --json

A message from the first process to the last, after each pause. At rest a link carries one heartbeat
in 5,000 beacon intervals with beacons on demand, and one beacon in each interval without.";

/// Measure a message after a pause, with beacons on demand and at the fixed interval
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Topology, as of `onepipe sim`; one process on each host
    #[arg(long, default_value = "star:4", value_parser = super::shape)]
    topology: Shape,
    /// Pauses, in beacon intervals
    #[arg(long, value_delimiter = ',', default_value = "1,10,1000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pauses: Vec<u64>,
    /// Number of messages of each case
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json {
    topology: String,
    messages: u32,
    seed: u64,
    cases: Vec<Case>,
}

/// Latencies in ns from submission to delivery.
#[derive(Serialize)]
struct Case {
    form: &'static str,
    beacons: &'static str,
    beacon_interval_ns: u64,
    pause_ns: u64,
    best_effort_p50_ns: u64,
    best_effort_p99_ns: u64,
    reliable_p50_ns: u64,
    reliable_p99_ns: u64,
    rest_frames_per_link_second: f64,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut bar = Progress::new();
    let mut cases = Vec::new();
    let total = Placement::ALL.len() * arguments.pauses.len() * 2;
    for placement in Placement::ALL {
        for &pause_intervals in &arguments.pauses {
            for (beacons, heartbeat_intervals) in
                [("fixed", None), ("on demand", Some(HEARTBEAT_INTERVALS))]
            {
                bar.show(cases.len() as f64 / total as f64, placement.name());
                let measure = |is_reliable| -> Result<PauseReport> {
                    let report = pauses(&PauseOptions {
                        shape: arguments.topology,
                        placement,
                        heartbeat_intervals,
                        pause_intervals,
                        is_reliable,
                        messages: arguments.messages,
                        seed: arguments.seed,
                    });
                    let violations = report.violations;
                    ensure!(violations == 0, "{violations} violations: {}", placement.name());
                    Ok(report)
                };
                let (best_effort, reliable) = (measure(false)?, measure(true)?);
                cases.push(Case {
                    form: placement.name(),
                    beacons,
                    beacon_interval_ns: best_effort.beacon_interval_ns,
                    pause_ns: pause_intervals * best_effort.beacon_interval_ns,
                    best_effort_p50_ns: best_effort.latency.p50_ns,
                    best_effort_p99_ns: best_effort.latency.p99_ns,
                    reliable_p50_ns: reliable.latency.p50_ns,
                    reliable_p99_ns: reliable.latency.p99_ns,
                    rest_frames_per_link_second: best_effort.rest_frames_per_second,
                });
            }
        }
    }
    drop(bar);
    let json = Json {
        topology: arguments.topology.to_string(),
        messages: arguments.messages,
        seed: arguments.seed,
        cases,
    };
    let mut out = stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &json)?;
        writeln!(out)?;
    } else {
        print(&mut out, &json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, json: &Json) -> Result<()> {
    writeln!(out, "{}, {} messages of each case", json.topology, json.messages)?;
    writeln!(
        out,
        "{:10}  {:9}  {:>8}  {:>18}  {:>18}  {:>12}",
        "form", "beacons", "pause", "best effort p50/99", "reliable p50/99", "rest frames/s"
    )?;
    for case in &json.cases {
        let both = |p50, p99| format!("{} / {}", readable_ns(p50), readable_ns(p99));
        writeln!(
            out,
            "{:10}  {:9}  {:>8}  {:>18}  {:>18}  {:>12.0}",
            case.form,
            case.beacons,
            readable_ns(case.pause_ns),
            both(case.best_effort_p50_ns, case.best_effort_p99_ns),
            both(case.reliable_p50_ns, case.reliable_p99_ns),
            case.rest_frames_per_link_second
        )?;
    }
    Ok(())
}

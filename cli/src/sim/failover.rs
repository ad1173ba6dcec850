//! `onepipe sim fail-over`: the delivery gap of a group of agreed multicast when its leader
//! crashes.

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use onepipe_sim_amcast::{Failover, Victim, failover_setup, failovers};
use onepipe_sim_engine::Seeds;
use serde::Serialize;

use super::session::{Session, exit_status};
use crate::units::readable_ns;

const EXAMPLES: &str = "\
Examples:
  onepipe sim fail-over                         the leader's program dies, 1,000 times
  onepipe sim fail-over --victim switch --json  its whole switch, with the rack below

Three leaves, two spines, one group of three; four clients send a message every 10 us each. The
leader crashes at any time; a coordinator detects it, writes the next leader into the store, and the
group resumes.";

/// Crash the leader of a group repeatedly, and measure the time until messages are delivered again
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Number of crashes
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    crashes: u64,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Component that crashes
    #[arg(long, value_enum, default_value_t = VictimArg::Member)]
    victim: VictimArg,
    /// Number of concurrent runs [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum VictimArg {
    /// The leader's process
    Member,
    /// The leader's switch, with the rack below it
    Switch,
}

/// JSON output; times in us. Those that begin with `to_` count from the crash.
#[derive(Serialize)]
struct Json {
    victim: &'static str,
    crashes: u64,
    not_recovered: Vec<u64>,
    probe_interval_us: f64,
    leader_timeout_us: f64,
    retransmit_interval_us: f64,
    to_next_delivery_us: Quantiles,
    longest_gap_us: Quantiles,
    to_new_message_us: Quantiles,
    wall_seconds: f64,
    was_interrupted: bool,
}

#[derive(Serialize)]
struct Quantiles {
    min: f64,
    p10: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Quantiles {
    fn of(measured: &[Failover], field: fn(&Failover) -> u64) -> Self {
        let mut all: Vec<u64> = measured.iter().map(field).collect();
        all.sort_unstable();
        let at = |percent: usize| {
            let index = (all.len() * percent / 100).min(all.len().saturating_sub(1));
            all.get(index).map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        Self { min: at(0), p10: at(10), p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (victim, victim_name) = match arguments.victim {
        VictimArg::Member => (Victim::Member, "member"),
        VictimArg::Switch => (Victim::Switch, "switch"),
    };
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let jobs = arguments.jobs.map_or_else(cores, usize::from);
    let seeds = Seeds { first: arguments.seed, count: arguments.crashes, jobs };
    let session = Session::begin(arguments.crashes)?;
    let outcomes = failovers(victim, &seeds, &session.stop, |done| session.show(done, 0));
    let (wall_seconds, was_interrupted) = session.end();
    let measured: Vec<Failover> = outcomes.iter().filter_map(|(_, outcome)| *outcome).collect();
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_none()).map(|(seed, _)| *seed);
    let not_recovered: Vec<u64> = failed.collect();
    ensure!(!measured.is_empty(), "no group recovered: {not_recovered:?}");
    let setup = failover_setup(arguments.seed);
    let us = |ns: u64| ns as f64 / 1e3;
    let json = Json {
        victim: victim_name,
        crashes: outcomes.len() as u64,
        probe_interval_us: us(setup.probe_interval_ns),
        leader_timeout_us: us(setup.leader_timeout_ns),
        retransmit_interval_us: us(setup.rto_min_ns),
        to_next_delivery_us: Quantiles::of(&measured, |outcome| outcome.next_ns),
        longest_gap_us: Quantiles::of(&measured, |outcome| outcome.gap_ns),
        to_new_message_us: Quantiles::of(&measured, |outcome| outcome.new_ns),
        wall_seconds,
        was_interrupted,
        not_recovered,
    };
    let mut out = stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &json)?;
        writeln!(out)?;
    } else {
        print(&mut out, &json)?;
    }
    Ok(exit_status(json.not_recovered.len() as u64, was_interrupted))
}

fn print(out: &mut impl Write, json: &Json) -> Result<()> {
    let interrupted = if json.was_interrupted { ", interrupted" } else { "" };
    let (crashes, seconds) = (json.crashes, json.wall_seconds);
    writeln!(
        out,
        "  crashes    {crashes} of a leader's {} in {seconds:.1} s{interrupted}",
        json.victim
    )?;
    for (label, spread) in [
        ("next", &json.to_next_delivery_us),
        ("gap", &json.longest_gap_us),
        ("new", &json.to_new_message_us),
    ] {
        let of = |us: f64| readable_ns((us * 1e3) as u64);
        writeln!(
            out,
            "  {label:<10} p10 {}, p50 {}, p90 {}, p99 {}, max {}",
            of(spread.p10),
            of(spread.p50),
            of(spread.p90),
            of(spread.p99),
            of(spread.max)
        )?;
    }
    writeln!(
        out,
        "             next: from the crash to the next delivery; gap: the longest time without one;\n             \
         new: to the first delivery of a message sent after the crash"
    )?;
    for seed in &json.not_recovered {
        writeln!(out, "  VIOLATION  the group did not recover at seed {seed}")?;
    }
    Ok(())
}

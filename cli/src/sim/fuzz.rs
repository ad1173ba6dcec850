//! `onepipe sim fuzz`: simulates random fabrics with random faults, each determined by a seed.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use onepipe_sim_engine::{Seeds, Shard};
use onepipe_sim_scenarios::{
    FailingSeed, FaultEvent, FuzzOptions, FuzzReport, RunOutcome, Swarm, fuzz, shrink,
};
use serde::Serialize;

use super::amcast;
use super::session::{self, FuzzRun, JsonFailing, Recording, Session, TRACE_EVENTS, exit_status};
use super::totals;
use crate::units::readable;

const EXAMPLES: &str = "\
Examples:
  onepipe sim fuzz --seeds 10000              on every core; Ctrl-C ends it with what it has
  onepipe sim fuzz --seed 4711 --trace        one seed again, its history in seed-4711.txt
  onepipe sim fuzz --service amcast           agreed multicast: groups, elections, fail-over
  onepipe sim fuzz --seed 5000 --totals fuzz.json      adds the results to a file: `onepipe sim totals`
  onepipe sim fuzz --seed 0 --seeds 80000 --shard 3/16 --totals shard-3.json
                                              the fourth of sixteen parts, on a machine of its own

A seed draws a topology, clocks, a load, controllers, and faults: links that lose, corrupt, duplicate,
reorder, flap or fail, nodes, processes and controllers that crash or pause, processes that leave and
return under new incarnations, clocks that step, receivers that stop, partitions, a store that fails or
goes back to an older copy. Every invariant is checked at every event; then all faults are healed,
and all processes must recover; in some seeds one process stays down, and the others must make progress.
One seed in eight with controllers is calm: switches pause for up to twenty link timeouts or restart
while a host is stopped, the store is full while a process restarts, receivers and slow machines stop
and resume, or everything restarts, one after another; no process that runs may be declared failed, and
no leave may count as a failure. In a quarter of the other small ones reliable scatterings must end in
time though their receiver never joined or no controller runs. With --service amcast: groups of members in switches, their replicas, clients and
coordinators, of which as many crash as are tolerated while leaders change.";

/// Simulate random fabrics with random faults; exit status 1 if an invariant was violated
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Service to simulate
    #[arg(long, value_enum, default_value_t = Service::Scattering)]
    service: Service,
    /// Number of seeds [default: 1000, or 1 with --trace]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// First seed [default: the time of day, printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of concurrent runs [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Stop at the first seed that fails
    #[arg(long)]
    fail_fast: bool,
    /// Run the first seed alone, and write its trace to seed-SEED.txt
    #[arg(long, requires = "seed", conflicts_with_all = ["seeds", "jobs"])]
    trace: bool,
    /// Run one part of the seeds, like 0/16 for the first of 16 parts
    #[arg(long, value_name = "INDEX/COUNT", requires_all = ["seed", "seeds"])]
    shard: Option<Shard>,
    /// Add the results to this file; `onepipe sim totals` prints it
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    totals: Option<PathBuf>,
    /// Name of this build in the totals, its commit for example [default: version and digest of
    /// this program]
    #[arg(long, value_name = "NAME", requires = "totals")]
    build: Option<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Service {
    /// Ordered scattering, best effort and reliable
    Scattering,
    /// Agreed multicast
    Amcast,
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::Scattering => "scattering",
            Self::Amcast => "amcast",
        }
    }
}

#[derive(Serialize)]
struct Json {
    first_seed: u64,
    seeds: u64,
    events: u64,
    deliveries_checked: u64,
    reliable_deliveries_checked: u64,
    failures: u64,
    failures_inexact: u64,
    scatterings_split_by_partition: u64,
    controller_epochs: u64,
    faults: BTreeMap<&'static str, u64>,
    wall_seconds: f64,
    seeds_per_hour: f64,
    deliveries_per_second: f64,
    was_interrupted: bool,
    failed_seeds: u64,
    panics: u64,
    rules_broken: BTreeMap<String, u64>,
    first_failing: Option<JsonFailing>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    // A panic is caught and reported with its seed; the default hook would print it as well.
    std::panic::set_hook(Box::new(|_| {}));
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Leaves 1,000 seeds to each second, so that runs of the default length share none.
    let seed_from_clock = || since.map_or(0, |since| since.as_secs() * 1_000);
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let all = Seeds {
        first: arguments.seed.unwrap_or_else(seed_from_clock),
        count: arguments.seeds.unwrap_or(1_000),
        jobs: arguments.jobs.map_or_else(cores, usize::from),
    };
    let seeds = arguments.shard.map_or(all, |shard| all.shard(shard));
    let (stops_at_failure, is_json) = (arguments.fail_fast, arguments.json);
    let recording = recording(arguments)?;
    if let Some(Recording { path, subject }) = &recording {
        totals::check_unused(path, subject, seeds)?;
    }
    let run_options = FuzzRun { seeds, stops_at_failure, is_json, recording };
    match (arguments.service, arguments.trace) {
        (Service::Scattering, true) => trace(seeds.first),
        (Service::Scattering, false) => scattering(&run_options),
        (Service::Amcast, true) => amcast::trace(seeds.first),
        (Service::Amcast, false) => amcast::run(&run_options),
    }
}

/// Returns where the results are added, and as whose, if they are.
fn recording(arguments: &Arguments) -> Result<Option<Recording>> {
    let Some(path) = arguments.totals.clone() else { return Ok(None) };
    let build = arguments.build.clone().map_or_else(totals::this_build, Ok)?;
    let service = arguments.service.name().to_owned();
    Ok(Some(Recording { path, subject: totals::Subject { service, build } }))
}

fn scattering(run_options: &FuzzRun) -> Result<ExitCode> {
    let Seeds { first, count, jobs } = run_options.seeds;
    let options = FuzzOptions {
        first,
        seeds: count,
        jobs,
        stops_at_failure: run_options.stops_at_failure,
        processor_time: session::processor_time,
    };
    let session = Session::begin(count)?;
    let report = fuzz(&options, &session.stop, |done, failed| session.show(done, failed));
    let (wall_seconds, was_interrupted) = session.end();
    run_options.record(report.seeds, &report.failing, &report.totals)?;
    let first = report.failing.first().copied().and_then(shrink);
    let json = json(&options, &report, wall_seconds, was_interrupted, first.as_ref());
    let mut out = stdout().lock();
    if run_options.is_json {
        serde_json::to_writer(&mut out, &json)?;
        writeln!(out)?;
    } else {
        print(&mut out, &json)?;
    }
    Ok(exit_status(report.failing_count, was_interrupted))
}

fn json(
    options: &FuzzOptions,
    report: &FuzzReport,
    wall_seconds: f64,
    was_interrupted: bool,
    first: Option<&FailingSeed>,
) -> Json {
    Json {
        first_seed: options.first,
        seeds: report.seeds,
        events: report.events,
        deliveries_checked: report.delivered,
        reliable_deliveries_checked: report.reliable,
        failures: report.failures,
        failures_inexact: report.inexact,
        scatterings_split_by_partition: report.torn,
        controller_epochs: report.epochs,
        faults: report.faults.clone(),
        wall_seconds,
        seeds_per_hour: report.seeds as f64 * 3_600.0 / wall_seconds,
        deliveries_per_second: report.delivered as f64 / wall_seconds,
        was_interrupted,
        failed_seeds: report.failing_count,
        panics: report.panics,
        rules_broken: report
            .seeds_by_rule
            .iter()
            .map(|(rule, seeds)| (format!("{rule:?}"), *seeds))
            .collect(),
        first_failing: first.map(|first| JsonFailing {
            seed: first.seed,
            reproduce: format!("onepipe sim fuzz --seed {} --trace", first.seed),
            violation_texts: first.violations.clone(),
            faults_drawn: first.faults,
            faults_needed: faults(&first.timeline, first.removed),
        }),
    }
}

/// Formats the faults of a timeline, one per line.
fn faults(timeline: &[(u64, FaultEvent)], removed: Option<u32>) -> Vec<String> {
    let lines = timeline.iter().map(|(at_us, what)| format!("{at_us} us: {what:?}"));
    lines.chain(removed.map(|id| format!("after healing: process {id} stays down"))).collect()
}

fn print(out: &mut impl Write, json: &Json) -> Result<()> {
    writeln!(
        out,
        "  seeds      {} from {} on in {:.1} s: {} an hour{}",
        json.seeds,
        json.first_seed,
        json.wall_seconds,
        readable(json.seeds_per_hour),
        if json.was_interrupted { ", interrupted" } else { "" }
    )?;
    writeln!(
        out,
        "  checked    {} deliveries, {} of them reliable; {} events",
        readable(json.deliveries_checked as f64),
        readable(json.reliable_deliveries_checked as f64),
        readable(json.events as f64)
    )?;
    writeln!(
        out,
        "  failures   {} instances, {} inexact, {} scatterings split by partitions; {} epochs",
        json.failures,
        json.failures_inexact,
        json.scatterings_split_by_partition,
        json.controller_epochs
    )?;
    for (number, (name, count)) in json.faults.iter().enumerate() {
        let head = if number == 0 { "faults" } else { "" };
        writeln!(out, "  {head:<10} {:>10} {name}", readable(*count as f64))?;
    }
    if let Some(first) = &json.first_failing {
        writeln!(out, "  first      seed {}; reproduce with", first.seed)?;
        writeln!(out, "               {}", first.reproduce)?;
        writeln!(
            out,
            "             {} of its {} faults suffice:",
            first.faults_needed.len(),
            first.faults_drawn
        )?;
        for what in &first.faults_needed {
            writeln!(out, "               {what}")?;
        }
        for text in &first.violation_texts {
            writeln!(out, "  VIOLATION  {text}")?;
        }
    }
    for (rule, seeds) in &json.rules_broken {
        writeln!(out, "  broken     {rule} in {seeds} seeds")?;
    }
    match json.failed_seeds {
        0 => writeln!(out, "  verdict    every invariant held")?,
        failed => writeln!(out, "  verdict    {failed} SEEDS FAILED, {} by panic", json.panics)?,
    }
    Ok(())
}

/// Runs one seed and writes its trace.
fn trace(seed: u64) -> Result<ExitCode> {
    let mut swarm = Swarm::draw(seed);
    swarm.plan.network.trace_lines_max = TRACE_EVENTS;
    let outcome = swarm.attempt();
    let mut out = stdout().lock();
    for line in faults(&swarm.timeline, swarm.removed) {
        writeln!(out, "  fault      {line}")?;
    }
    for text in outcome.violations() {
        writeln!(out, "  VIOLATION  {text}")?;
    }
    if let RunOutcome::Report(report) = &outcome {
        let path = PathBuf::from(format!("seed-{seed}.txt"));
        std::fs::write(&path, report.trace_lines.join("\n") + "\n")
            .with_context(|| format!("cannot write the history to {}", path.display()))?;
        writeln!(out, "  history    {}", path.display())?;
    }
    let verdict = if outcome.is_ok() { "every invariant held" } else { "FAILED" };
    writeln!(out, "  verdict    {verdict}")?;
    Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

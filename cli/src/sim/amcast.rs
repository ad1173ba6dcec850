//! `onepipe sim fuzz --service amcast`: fuzzes agreed multicast.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result};
use onepipe_sim_amcast::{FaultEvent, FuzzReport, Swarm, fuzz};
use serde::Serialize;

use super::session::{self, FuzzRun, JsonFailing, Session, TRACE_EVENTS, exit_status};
use crate::units::readable;

/// Maximum number of runs for shrinking the first failing seed.
const SHRINK_ATTEMPTS: u32 = 100;

#[derive(Serialize)]
struct Json {
    service: &'static str,
    first_seed: u64,
    seeds: u64,
    events: u64,
    messages_sent: u64,
    deliveries_checked: u64,
    elections: u64,
    busy: u64,
    partitioned: u64,
    faults: BTreeMap<&'static str, u64>,
    wall_seconds: f64,
    seeds_per_hour: f64,
    was_interrupted: bool,
    failed_seeds: u64,
    panics: u64,
    first_failing: Option<JsonFailing>,
}

pub fn run(run_options: &FuzzRun) -> Result<ExitCode> {
    let session = Session::begin(run_options.seeds.count)?;
    let progress = |done, failed| session.show(done, failed);
    let report = fuzz(
        &run_options.seeds,
        &session.stop,
        run_options.stops_at_failure,
        session::processor_time,
        progress,
    );
    let (wall_seconds, was_interrupted) = session.end();
    run_options.record(report.seeds, &report.failing, &report.totals)?;
    let FuzzReport { seeds, failed, .. } = report;
    let first_failing = report.failing.first().map(|seed| shrink_failing(*seed));
    let json = Json {
        service: "amcast",
        first_seed: run_options.seeds.first,
        seeds,
        events: report.events,
        messages_sent: report.sent,
        deliveries_checked: report.delivered,
        elections: report.elections,
        busy: report.busy,
        partitioned: report.partitioned,
        faults: report.faults,
        wall_seconds,
        seeds_per_hour: seeds as f64 * 3_600.0 / wall_seconds,
        was_interrupted,
        failed_seeds: failed,
        panics: report.panics,
        first_failing,
    };
    let mut out = stdout().lock();
    if run_options.is_json {
        serde_json::to_writer(&mut out, &json)?;
        writeln!(out)?;
    } else {
        print(&mut out, &json)?;
    }
    Ok(exit_status(failed, was_interrupted))
}

fn shrink_failing(seed: u64) -> JsonFailing {
    let swarm = Swarm::draw(seed);
    let shrunk = swarm.shrunk(SHRINK_ATTEMPTS);
    JsonFailing {
        seed,
        reproduce: format!("onepipe sim fuzz --service amcast --seed {seed} --trace"),
        violation_texts: shrunk.attempt().violations,
        faults_drawn: swarm.timeline.len(),
        faults_needed: shrunk.timeline.iter().map(fault_line).collect(),
    }
}

fn fault_line((at_ns, fault): &(u64, FaultEvent)) -> String {
    format!("{} us: {fault:?}", at_ns / 1_000)
}

fn print(out: &mut impl Write, json: &Json) -> Result<()> {
    let interrupted = if json.was_interrupted { ", interrupted" } else { "" };
    let (seeds, first, seconds) = (json.seeds, json.first_seed, json.wall_seconds);
    let per_hour = readable(json.seeds_per_hour);
    writeln!(
        out,
        "  seeds      {seeds} from {first} on in {seconds:.1} s: {per_hour} an hour{interrupted}"
    )?;
    writeln!(
        out,
        "  checked    {} deliveries of {} messages; {} events",
        readable(json.deliveries_checked as f64),
        readable(json.messages_sent as f64),
        readable(json.events as f64)
    )?;
    writeln!(out, "  leaders    {} elected; {} busy replies", json.elections, json.busy)?;
    if json.partitioned > 0 {
        writeln!(
            out,
            "  partition  {} seeds without a majority: only order is checked",
            json.partitioned
        )?;
    }
    for (number, (name, count)) in json.faults.iter().enumerate() {
        let head = if number == 0 { "faults" } else { "" };
        writeln!(out, "  {head:<10} {:>10} {name}", readable(*count as f64))?;
    }
    if let Some(first) = &json.first_failing {
        let (needed, drawn) = (first.faults_needed.len(), first.faults_drawn);
        writeln!(out, "  first      seed {}; reproduce with", first.seed)?;
        writeln!(out, "               {}", first.reproduce)?;
        writeln!(out, "             {needed} of its {drawn} faults suffice:")?;
        for what in &first.faults_needed {
            writeln!(out, "               {what}")?;
        }
        for text in &first.violation_texts {
            writeln!(out, "  VIOLATION  {text}")?;
        }
    }
    match json.failed_seeds {
        0 => writeln!(out, "  verdict    every invariant held")?,
        failed => writeln!(out, "  verdict    {failed} SEEDS FAILED, {} by panic", json.panics)?,
    }
    Ok(())
}

/// Runs one seed and writes its trace.
pub fn trace(seed: u64) -> Result<ExitCode> {
    let mut swarm = Swarm::draw(seed);
    swarm.setup.trace_lines_max = TRACE_EVENTS;
    let outcome = swarm.attempt();
    let mut out = stdout().lock();
    for fault in &swarm.timeline {
        writeln!(out, "  fault      {}", fault_line(fault))?;
    }
    for text in &outcome.violations {
        writeln!(out, "  VIOLATION  {text}")?;
    }
    let path = format!("seed-{seed}.txt");
    std::fs::write(&path, outcome.trace_lines.join("\n") + "\n")
        .with_context(|| format!("cannot write the history to {path}"))?;
    writeln!(out, "  history    {path}")?;
    let has_held = outcome.violations.is_empty();
    writeln!(out, "  verdict    {}", if has_held { "every invariant held" } else { "FAILED" })?;
    Ok(exit_status(u64::from(!has_held), false))
}

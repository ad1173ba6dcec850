//! `onepipe bench recovery`: many short demos, in each of which one of three processes is killed,
//! and a long one without a kill, which must not report a failure.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use clap::{Args, FromArgMatches};
use serde::Serialize;

use crate::demo::{Arguments, Summary, Transport, run_demo};
use crate::interrupt::{self, Interrupted};
use crate::progress::{Output, Progress};
use crate::units::readable_ns;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub transport: Transport,
    /// Number of kills, one per demo.
    pub kills: u32,
    /// Length of the demo without a kill, in minutes.
    pub soak_minutes: f64,
    /// Keeps all cores busy with other work while processes are killed; the demo without a kill
    /// always does so.
    pub is_busy: bool,
    pub is_json: bool,
}

/// Reliable scatterings per second of each process.
const RATE_PER_S: f64 = 1_000.0;
/// Length of a demo with a kill, in s: half of it before, half after.
const SECONDS: f64 = 0.8;

#[derive(Debug, Default, Serialize)]
struct Report {
    bench: &'static str,
    transport: &'static str,
    kills: usize,
    rate_per_s: f64,
    is_busy: bool,
    /// Longest pause in reliable deliveries at a survivor.
    gap_us: Distribution,
    /// Time from the kill to the first survivor that is notified.
    detected_us: Distribution,
    /// All gaps, in the order of measurement.
    gaps_us: Vec<f64>,
    soak_minutes: f64,
    false_alarms: u64,
    /// Longest pause in reliable deliveries without a kill.
    longest_soak_gap_us: f64,
    violations: u64,
    /// Whether the report is partial.
    was_interrupted: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Distribution {
    min: f64,
    p50: f64,
    p90: f64,
    max: f64,
}

impl Distribution {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Self::default() };
        let at = |quantile: f64| values[(last as f64 * quantile).round() as usize];
        Self { min: at(0.0), p50: at(0.5), p90: at(0.9), max: at(1.0) }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [min, p50, p90, max] =
            [self.min, self.p50, self.p90, self.max].map(|us| readable_ns((us * 1e3) as u64));
        write!(f, "p50 {p50}, p90 {p90}, min {min}, max {max}")
    }
}

/// Runs the benchmark and prints its report.
pub fn run(options: &Options) -> Result<ExitCode> {
    let interrupt = interrupt::flag()?;
    let demo = |seconds: f64, kill: bool| -> Result<Option<Summary>> {
        let arguments = demo_arguments(options.transport, seconds, kill)?;
        match run_demo(&arguments, Output::Quiet, &interrupt) {
            Err(error) if error.is::<Interrupted>() => Ok(None),
            result => result.map(Some),
        }
    };
    let mut report = Report {
        bench: "recovery",
        transport: options.transport.name(),
        rate_per_s: RATE_PER_S,
        is_busy: options.is_busy,
        ..Report::default()
    };
    let (mut gaps, mut detected, mut violation_texts) = (Vec::new(), Vec::new(), Vec::new());
    let mut bar = Progress::new();
    let load = options.is_busy.then(CpuLoad::start);
    for kill in 0..options.kills {
        bar.show(f64::from(kill) / f64::from(options.kills), "kills");
        let Some(summary) = demo(SECONDS, true).with_context(|| format!("kill {kill}"))? else {
            report.was_interrupted = true;
            break;
        };
        gaps.extend(summary.recovered_in_us);
        detected.extend(summary.reliable.and_then(|reliable| reliable.detected_in_us));
        report.violations += summary.violations;
        violation_texts.extend(summary.violation_texts);
    }
    drop(load);
    if options.soak_minutes > 0.0 && !report.was_interrupted {
        let load = CpuLoad::start();
        bar.show(0.0, "soak");
        let summary = demo(options.soak_minutes * 60.0, false)?;
        drop(load);
        report.was_interrupted = summary.is_none();
        if let Some(summary) = summary {
            let reliable = summary.reliable.unwrap_or_default();
            report.soak_minutes = options.soak_minutes;
            report.false_alarms = reliable.failures;
            report.longest_soak_gap_us = reliable.longest_other_pause_us;
            report.violations += summary.violations;
            violation_texts.extend(summary.violation_texts);
        }
    }
    drop(bar);
    report.kills = gaps.len();
    report.gap_us = Distribution::of(gaps.clone());
    report.detected_us = Distribution::of(detected);
    report.gaps_us = gaps;
    print(&report, &violation_texts, options.is_json).context("cannot print")?;
    let has_held = report.violations == 0 && report.false_alarms == 0;
    Ok(match (has_held, report.was_interrupted) {
        (false, _) => ExitCode::FAILURE,
        (true, true) => interrupt::EXIT_STATUS.into(),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// Returns a demo of three processes, in which every other scattering is reliable.
fn demo_arguments(transport: Transport, seconds: f64, kill: bool) -> Result<Arguments> {
    let command = Arguments::augment_args(clap::Command::new("demo"));
    let (rate, seconds) = ((2.0 * RATE_PER_S).to_string(), seconds.to_string());
    #[rustfmt::skip]
    let arguments = [
        "demo", "--reliable", "--processes", "3", "--transport", transport.name(), "--rate", &rate,
        "--outstanding", "100000", "--seconds", &seconds, if kill { "--kill" } else { "--no-kill" },
    ];
    Ok(Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)?)
}

fn print(report: &Report, violation_texts: &[String], is_json: bool) -> Result<()> {
    let mut out = stdout().lock();
    if is_json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    if report.kills > 0 {
        writeln!(
            out,
            "{} kills of one of three processes over {}, {} reliable scatterings/s each{}",
            report.kills,
            report.transport,
            report.rate_per_s,
            if report.is_busy { ", all cores busy" } else { "" },
        )?;
        writeln!(out, "  longest gap   {}", report.gap_us)?;
        writeln!(out, "  detected in   {}", report.detected_us)?;
    }
    if report.soak_minutes > 0.0 {
        writeln!(
            out,
            "{} minutes of soak without a kill, all cores busy: {} false alarms, longest gap {}",
            report.soak_minutes,
            report.false_alarms,
            readable_ns((report.longest_soak_gap_us * 1e3) as u64)
        )?;
    }
    if report.was_interrupted {
        writeln!(out, "  interrupted: partial results")?;
    }
    for text in violation_texts {
        writeln!(out, "  VIOLATION  {text}")?;
    }
    writeln!(out, "  verdict       {} violations", report.violations)?;
    Ok(())
}

/// Keeps every core busy with a spinning thread, until dropped.
struct CpuLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl CpuLoad {
    fn start() -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let thread = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..cores).map(thread).collect();
        Self { stop, threads }
    }
}

impl Drop for CpuLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread cannot panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_quantiles() {
        let of = Distribution::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((of.min, of.p50, of.p90, of.max), (1.0, 3.0, 5.0, 5.0));
        assert_eq!(Distribution::of(vec![]).max, 0.0);
    }
}

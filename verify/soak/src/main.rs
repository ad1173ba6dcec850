//! `cargo xtask soak`: a fabric of real programs on hosts in network namespaces, broken at random
//! for as long as asked, and judged by what its processes print.

#![forbid(unsafe_code)]

mod copies;
mod fabric;
mod fault;
mod group;
mod history;
mod host;
mod logged;
mod program;
mod role;
mod stopwatch;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;

use crate::fabric::Fabric;
use crate::fault::{Draw, FaultKind};
use crate::role::{Files, Kind};

/// Break a fabric of real programs at random and check its guarantees; exit status 1 if one was
/// violated
///
/// Needs root, `ip`, `tc`, `nft` and `nsenter`.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long to go on
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Number of faults after which to stop before that time [default: no limit]
    #[arg(long, value_name = "COUNT")]
    times: Option<u64>,
    /// The only kind of fault [default: all, at random]
    #[arg(long, value_name = "KIND")]
    fault: Option<FaultKind>,
    /// How long each fault lasts, for example `2s` or `400ms` [default: at random]
    #[arg(long, value_name = "TIME", value_parser = time)]
    lasting: Option<Duration>,
    /// Seed of the faults [default: the time of day, printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of busy loops beside the fabric
    #[arg(long, default_value_t = 0)]
    busy: usize,
    /// The program to test
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// The example `lines`, which multicasts and delivers lines of text
    #[arg(long, value_name = "FILE")]
    lines: PathBuf,
    /// Folder for what the programs print [default: a temporary one, kept after a violation]
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Load between two faults.
const ROUND_LOAD: Duration = Duration::from_millis(500);
/// Time that a fabric is used before another one is started, with a new store.
const FABRIC_TIME: Duration = Duration::from_secs(300);
/// Bytes of the disk of the controllers' store.
const STORE_BYTES: u32 = 8 << 20;

/// What happened, printed at the end.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seed: u64,
    minutes: f64,
    busy: usize,
    fabrics: u64,
    faults: u64,
    scatterings: u64,
    deliveries: u64,
    /// Complete messages of the group.
    multicasts: u64,
    /// Files copied by scheduled transfer and by bulk multicast.
    copies: u64,
    violations: Vec<String>,
}

/// Processes that use cores up, killed when dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start(count: usize) -> Result<Self> {
        let mut loops = Self(Vec::new());
        for _ in 0..count {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            loops.0.push(child.context("cannot start a busy loop")?);
        }
        Ok(loops)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A file system in memory of a limited size, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&at).context("cannot create the folder of the store")?;
        let options = format!("size={STORE_BYTES}");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status();
        ensure!(status.is_ok_and(|status| status.success()), "cannot mount {}", at.display());
        Ok(Self(at))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Release)).context("no signal handler")?;
    let seed = arguments.seed.unwrap_or_else(time_of_day);
    eprintln!("seed {seed}");
    let mut summary = Summary { seed, busy: arguments.busy, ..Summary::default() };
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let logs = arguments.logs.clone().unwrap_or_else(|| folder.path().to_owned());
    let began = Instant::now();
    let result = {
        let _busy = BusyLoops::start(arguments.busy)?;
        soak(&arguments, &logs, &stop, &mut summary)
    };
    summary.minutes = began.elapsed().as_secs_f64() / 60.0;
    print_summary(&summary, arguments.json)?;
    if result.is_err() || !summary.violations.is_empty() {
        if arguments.logs.is_none() {
            let _retained = folder.keep();
        }
        eprintln!("what the programs printed is in {}", logs.display());
    }
    result?;
    Ok(if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses a time in seconds or milliseconds.
fn time(text: &str) -> Result<Duration, String> {
    let parsed = match text.strip_suffix("ms") {
        Some(number) => number.parse().map(Duration::from_millis),
        None => text.trim_end_matches('s').parse().map(Duration::from_secs),
    };
    parsed.map_err(|_| format!("`{text}` is no time such as `2s` or `400ms`"))
}

fn time_of_day() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

fn soak(
    arguments: &Arguments,
    logs: &std::path::Path,
    stop: &AtomicBool,
    summary: &mut Summary,
) -> Result<()> {
    let mut random = SmallRng::seed_from_u64(summary.seed);
    let began = Instant::now();
    let limit = Duration::from_secs(60 * arguments.minutes);
    let times = arguments.times.unwrap_or(u64::MAX);
    let is_over = |summary: &Summary| {
        began.elapsed() >= limit || summary.faults >= times || stop.load(Ordering::Acquire)
    };
    let draw = Draw { kind: arguments.fault, lasting: arguments.lasting };
    while !is_over(summary) {
        let kind = if summary.fabrics.is_multiple_of(2) { Kind::Switches } else { Kind::Overlay };
        summary.fabrics += 1;
        let folder = logs.join(format!("fabric-{}", summary.fabrics));
        let store = folder.join("store");
        let _disk = Disk::mount(store.clone())?;
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs).context("cannot create the folder of the logs")?;
        let (program, lines) = (arguments.program.clone(), arguments.lines.clone());
        let files = Files { program, lines, store, folder };
        let fork = SmallRng::from_rng(&mut random);
        let mut fabric = Fabric::start(kind, files, fork)?;
        report(&began, kind, "started", &fabric.verify()?, summary);
        fabric.load(true);
        let fabric_began = Instant::now();
        while !is_over(summary) && fabric_began.elapsed() < FABRIC_TIME {
            let fault = draw.fault(&mut random);
            fabric.start_copies()?;
            fabric.run_for(ROUND_LOAD)?;
            let lasted = fault.apply(&mut fabric)?;
            fabric.run_for(ROUND_LOAD)?;
            let violations = fabric.verify()?;
            summary.faults += 1;
            let what = format!("{fault:?}, took {} ms", lasted.as_millis());
            report(&began, kind, &what, &violations, summary);
            if !fabric.is_alive() {
                break;
            }
        }
        summary.scatterings += fabric.history.count_sent;
        summary.deliveries += fabric.history.count_delivered;
        summary.multicasts += fabric.count_multicast();
        summary.copies += fabric.count_copied;
    }
    Ok(())
}

/// Prints a line of progress, and each violation.
fn report(began: &Instant, kind: Kind, what: &str, violations: &[String], summary: &mut Summary) {
    let seconds = began.elapsed().as_secs();
    let verdict = if violations.is_empty() { "right" } else { "VIOLATED" };
    eprintln!("{seconds:5} s  {:8}  {verdict:8}  {what}", kind.name());
    for violation in violations {
        eprintln!("         {violation}");
        summary.violations.push(format!("{seconds} s, {}, {what}: {violation}", kind.name()));
    }
}

fn print_summary(summary: &Summary, is_json: bool) -> Result<()> {
    if is_json {
        println!("{}", serde_json::to_string(summary).context("cannot print")?);
        return Ok(());
    }
    let Summary { seed, minutes, busy, fabrics, faults, scatterings, deliveries, .. } = summary;
    println!("seed         {seed}");
    println!("time         {minutes:.1} min, {busy} busy loops beside");
    println!("faults       {faults}, in {fabrics} fabrics");
    println!("scatterings  {scatterings}");
    println!("deliveries   {deliveries}");
    println!("multicasts   {}", summary.multicasts);
    println!("copies       {}", summary.copies);
    println!("violations   {}", summary.violations.len());
    Ok(())
}

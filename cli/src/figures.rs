//! `onepipe figures`: the evaluation of the papers, repeated in the simulator.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use onepipe_bench_figures::{
    ClaimResult, Counts, Experiment, Figure, Record, Task, all, claim_results, summary, write,
};
use serde::Serialize;

use crate::progress::Progress;
use crate::{interrupt, usage_error};

const EXAMPLES: &str = "\
Examples:
  onepipe figures all --quick           every figure, fewer points: minutes
  onepipe figures 8a 8b --out my-run    two of them; repeated, it resumes

Writes ID.csv and ID.svg of each figure, report.html (open it in a browser), evaluation.md (the table
of claims) and runs.jsonl (every run, so that nothing is run twice by the same program).";

/// Run the papers' experiments in the simulator, and compare with their figures
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Ids of figures, or `all`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Output directory
    #[arg(long, default_value = "figures", value_name = "DIR")]
    out: PathBuf,
    /// Fewer points, without those that take long
    #[arg(long)]
    quick: bool,
    /// Number of concurrent runs [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Reuse runs of other builds of this program, for a build that changed only claims or remarks
    #[arg(long)]
    any_build: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    figures: Vec<&'static str>,
    quick: bool,
    out: String,
    wall_seconds: f64,
    claims: &'a [ClaimResult],
    #[serde(flatten)]
    counts: Counts,
    errors: Vec<&'a String>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let experiments = choose(&arguments.ids);
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let cancel = Arc::clone(&is_cancelled);
    interrupt::on_interrupt(move || cancel.store(true, Ordering::Relaxed))?;
    let began = Instant::now();
    let mut record = Record::open(&arguments.out, arguments.any_build)?;
    let tasks: Vec<Task> = experiments
        .iter()
        .flat_map(|experiment| experiment.cases(arguments.quick))
        .map(|(_, _, task)| task)
        .collect();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or_else(cores, usize::from);
    let mut bar = Progress::new();
    record.complete(&tasks, jobs, &is_cancelled, |progress| {
        let what = format!("{} of {} runs", progress.done, progress.total);
        bar.show(progress.done as f64 / progress.total.max(1) as f64, &what);
    })?;
    drop(bar);
    if is_cancelled.load(Ordering::Relaxed) {
        eprintln!("onepipe: interrupted; the same command resumes from here");
        return Ok(ExitCode::from(interrupt::EXIT_STATUS));
    }
    let figures: Vec<Figure> = experiments
        .into_iter()
        .map(|experiment| {
            let (measured, errors) = record.measured(&experiment, arguments.quick);
            Figure { experiment, measured, errors }
        })
        .collect();
    write(&arguments.out, &figures, arguments.quick)?;
    report(arguments, &figures, began.elapsed().as_secs_f64())
}

/// Returns the requested figures; exits with a usage error for an unknown id.
fn choose(ids: &[String]) -> Vec<Experiment> {
    let mut experiments = all();
    let known_ids: Vec<&str> = experiments.iter().map(|experiment| experiment.id).collect();
    if let Some(unknown) = ids.iter().find(|id| *id != "all" && !known_ids.contains(&id.as_str())) {
        usage_error(&format!(
            "there is no figure {unknown:?}; there are: {}, all",
            known_ids.join(", ")
        ));
    }
    experiments.retain(|experiment| ids.iter().any(|id| id == "all" || id == experiment.id));
    experiments
}

/// Prints the result. The exit status is 1 only if a run failed: a claim that does not hold is a
/// result.
fn report(arguments: &Arguments, figures: &[Figure], wall_seconds: f64) -> Result<ExitCode> {
    let claims = claim_results(figures);
    let errors: Vec<&String> = figures.iter().flat_map(|figure| &figure.errors).collect();
    let counts = Counts::of(&claims);
    if arguments.json {
        let json = Json {
            figures: figures.iter().map(|figure| figure.experiment.id).collect(),
            quick: arguments.quick,
            out: arguments.out.display().to_string(),
            wall_seconds,
            counts,
            claims: &claims,
            errors: errors.clone(),
        };
        println!("{}", serde_json::to_string(&json)?);
    } else {
        print!("{}", summary(figures));
        errors.iter().for_each(|error| println!("not measured: {error}"));
        let page = arguments.out.join("report.html");
        println!("{counts}; {wall_seconds:.0} s; see {}", page.display());
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

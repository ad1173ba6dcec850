//! `onepipe figures`: the evaluation of the papers, repeated in the simulator.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use onepipe_bench_figures::{
    ClaimResult, Counts, Experiment, Figure, Record, Shard, Source, Task, all, claim_results,
    summary, write,
};
use serde::Serialize;

use crate::progress::Progress;
use crate::{interrupt, usage_error};

const EXAMPLES: &str = "\
Examples:
  onepipe figures --list                the figures, with their papers
  onepipe figures all --quick           every figure, fewer points: a minute, not final
  onepipe figures 8a 8b --out my-run    two of them; repeated, it resumes
  onepipe figures all --shard 3/16      every 16th run, from the fourth on: one process of 16
  onepipe figures all --merge figures   the report of all shards

Writes ID.csv and ID.svg of each figure, report.html (open it in a browser), evaluation.md (the table
of claims) and runs.jsonl (every run, so that nothing is run twice by the same program).";

/// Run the papers' experiments in the simulator, and compare with their figures
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Ids of figures, or `all`
    #[arg(required_unless_present = "list", value_name = "ID")]
    ids: Vec<String>,
    /// List the figures: id, paper, figure of the paper, title
    #[arg(long, conflicts_with_all = ["shard", "merge"])]
    list: bool,
    /// Output directory
    #[arg(long, default_value = "figures", value_name = "DIR")]
    out: PathBuf,
    /// Fewer points and shorter windows: the verdicts are not final
    #[arg(long)]
    quick: bool,
    /// Do every Nth run only, from index I on, and record it in DIR/shard-I-of-N.jsonl, without a
    /// report
    #[arg(long, value_name = "I/N", conflicts_with = "merge")]
    shard: Option<Shard>,
    /// Write the report from the runs that shards have recorded in these directories
    #[arg(long, value_name = "DIR", num_args = 1..)]
    merge: Vec<PathBuf>,
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
    if arguments.list {
        return list(&experiments, arguments.json);
    }
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let cancel = Arc::clone(&is_cancelled);
    interrupt::on_interrupt(move || cancel.store(true, Ordering::Relaxed))?;
    let began = Instant::now();
    let tasks: Vec<Task> = experiments
        .iter()
        .flat_map(|experiment| experiment.cases(arguments.quick))
        .map(|(_, _, task)| task)
        .collect();
    let (mut record, tasks) = match arguments.shard {
        Some(shard) => {
            (Record::open_shard(&arguments.out, shard, arguments.any_build)?, shard.of(&tasks))
        }
        None => (Record::open(&arguments.out, arguments.any_build)?, tasks),
    };
    if !arguments.merge.is_empty() {
        merge(&mut record, &tasks, arguments)?;
    }
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
    if let Some(shard) = arguments.shard {
        return report_shard(arguments, shard, &record, &tasks);
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
    // Without an id, which only a list permits, there are all.
    experiments.retain(|experiment| {
        ids.is_empty() || ids.iter().any(|id| id == "all" || id == experiment.id)
    });
    experiments
}

/// A figure as listed.
#[derive(Serialize)]
struct Listed {
    id: &'static str,
    #[serde(flatten)]
    source: Source,
    title: &'static str,
}

/// Prints what there is: id, paper, figure and title.
fn list(experiments: &[Experiment], is_json: bool) -> Result<ExitCode> {
    let listed = experiments.iter().map(|experiment| Listed {
        id: experiment.id,
        source: experiment.source(),
        title: experiment.title,
    });
    let listed: Vec<Listed> = listed.collect();
    let mut out = stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::json!({ "figures": listed }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = |cell: fn(&Listed) -> &str| listed.iter().map(|one| cell(one).len()).max();
    let id_width = width(|one| one.id).unwrap_or(0);
    let paper_width = width(|one| one.source.paper).unwrap_or(0);
    let figure_width = width(|one| &one.source.figure).unwrap_or(0);
    for Listed { id, source: Source { paper, figure }, title } in &listed {
        writeln!(out, "{id:id_width$}  {paper:paper_width$}  {figure:figure_width$}  {title}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the runs of shards to the record; an error if any is missing.
fn merge(record: &mut Record, tasks: &[Task], arguments: &Arguments) -> Result<()> {
    let left_out = record.merge(&arguments.merge, arguments.any_build)?;
    let missing = record.missing(tasks);
    let builds = match left_out {
        0 => String::new(),
        _ => format!("; {left_out} runs are of other builds, which --any-build permits"),
    };
    ensure!(missing == 0, "{missing} runs are missing: did every shard end?{builds}");
    Ok(())
}

/// Prints what a shard has done. The exit status is 1 if a run failed.
fn report_shard(
    arguments: &Arguments,
    shard: Shard,
    record: &Record,
    tasks: &[Task],
) -> Result<ExitCode> {
    let (runs, failed) = (tasks.len(), record.failed(tasks));
    let path = record.path().display().to_string();
    if arguments.json {
        let shard = shard.to_string();
        println!(
            "{}",
            serde_json::json!({ "shard": shard, "runs": runs, "failed": failed, "file": path })
        );
    } else {
        println!("shard {shard}: {runs} runs, {failed} failed; recorded in {path}");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        if arguments.quick {
            println!("a quick run, of fewer points and shorter windows: verdicts are not final");
        }
        println!("{counts}; {wall_seconds:.0} s; see {}", page.display());
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

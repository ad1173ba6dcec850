//! Runs what an experiment needs: in parallel, each task once, and never again what is on record.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Experiment;
use crate::experiment::{Measured, Task, Values};

/// A task that was run, as it stands in the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    /// Of the program: what another one measured does not count.
    build: String,
    task: Task,
    /// The values, or why there are none.
    result: Result<Values, String>,
    seconds: f64,
}

/// The record of a directory: `runs.jsonl`.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    build: String,
    results: BTreeMap<String, Result<Values, String>>,
}

/// Progress: tasks done, of how many, and what was run last.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Done, those on record included.
    pub done: usize,
    /// Of so many.
    pub of: usize,
    /// What was run last.
    pub last: &'a str,
}

impl Record {
    /// Opens the record in `directory`. What another build of this program has left there is only
    /// looked at with `takes_any_build`, and a line cut short by an interruption never.
    ///
    /// # Errors
    /// When the directory cannot be made, or the record not read.
    pub fn open(directory: &Path, takes_any_build: bool) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join("runs.jsonl");
        let build = build()?;
        let mut results = BTreeMap::new();
        if path.exists() {
            let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            for line in BufReader::new(file).lines() {
                let line = line.with_context(|| format!("reading {}", path.display()))?;
                let Ok(run) = serde_json::from_str::<Run>(&line) else { continue };
                if takes_any_build || run.build == build {
                    results.insert(key(&run.task), run.result);
                }
            }
        }
        Ok(Self { path, build, results })
    }

    /// Runs what is missing, `jobs` at a time, until `is_cancelled`. Every run is on record as soon
    /// as it is done.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn complete(
        &mut self,
        tasks: &[Task],
        jobs: usize,
        is_cancelled: &AtomicBool,
        mut progress: impl FnMut(Progress<'_>) + Send,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut missing: Vec<&Task> = tasks.iter().filter(|task| seen.insert(key(task))).collect();
        let of = missing.len();
        missing.retain(|task| !self.results.contains_key(&key(task)));
        let known = of - missing.len();
        progress(Progress { done: known, of, last: "" });
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(|| format!("opening {}", self.path.display()))?;
        // A line that was cut short must not swallow the next one.
        file.write_all(b"\n")?;
        // Some run first, and alone.
        missing.sort_by_key(|task| !task.is_alone());
        let alone = missing.iter().filter(|task| task.is_alone()).count();
        let parts = missing.split_at(alone);
        let done = Mutex::new((Vec::new(), file, progress));
        let build = &self.build;
        for (missing, jobs) in [(parts.0, 1), (parts.1, jobs)] {
            let next = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..jobs.clamp(1, missing.len().max(1)) {
                    scope.spawn(|| {
                        while !is_cancelled.load(Ordering::Relaxed)
                            && let Some(task) = missing.get(next.fetch_add(1, Ordering::Relaxed))
                        {
                            let begun = Instant::now();
                            let result = task.run().map_err(|error| format!("{error:#}"));
                            let seconds = begun.elapsed().as_secs_f64();
                            let run = Run {
                                build: build.clone(),
                                task: (*task).clone(),
                                result,
                                seconds,
                            };
                            let line = serde_json::to_string(&run).unwrap_or_default();
                            let mut done = done.lock().unwrap_or_else(|held| held.into_inner());
                            let (runs, file, progress) = &mut *done;
                            let written = writeln!(file, "{line}");
                            runs.push((run, written));
                            progress(Progress { done: known + runs.len(), of, last: &key(task) });
                        }
                    });
                }
            });
        }
        let (runs, ..) = done.into_inner().unwrap_or_else(|held| held.into_inner());
        for (run, written) in runs {
            written.with_context(|| format!("writing {}", self.path.display()))?;
            self.results.insert(key(&run.task), run.result);
        }
        Ok(())
    }

    /// What is on record of an experiment, and what went wrong.
    pub fn measured(&self, experiment: &Experiment, is_quick: bool) -> (Measured, Vec<String>) {
        let mut measured = Measured { metric: experiment.metric, ..Measured::default() };
        let mut errors = Vec::new();
        for (curve, x, task) in experiment.cases(is_quick) {
            match self.results.get(&key(&task)) {
                Some(Ok(values)) => {
                    measured.curves.entry(curve).or_default().push((x, values.clone()));
                }
                Some(Err(error)) => errors.push(format!("{curve} at {x}: {error}")),
                None => errors.push(format!("{curve} at {x}: not run")),
            }
        }
        (measured, errors)
    }
}

fn key(task: &Task) -> String {
    serde_json::to_string(task).unwrap_or_default()
}

/// What tells this build of the program from others.
fn build() -> Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    let bytes = std::fs::read(&program).context("reading this program")?;
    Ok(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)))
}

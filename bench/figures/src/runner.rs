//! Runs the tasks of experiments in parallel, each once, and skips recorded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Experiment;
use crate::experiment::{Measured, Task};
use crate::values::Values;

/// A recorded run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    /// Digest of the program that ran the task.
    build: String,
    task: Task,
    /// Values, or the error.
    result: Result<Values, String>,
    seconds: f64,
}

/// All runs of an evaluation, stored in `runs.jsonl` of its directory.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    build: String,
    results: BTreeMap<String, Result<Values, String>>,
}

/// Progress of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Number of finished tasks, recorded ones included.
    pub done: usize,
    /// Number of all tasks.
    pub total: usize,
    /// The task that finished last.
    pub last: &'a str,
}

impl Record {
    /// Opens the record in `directory`. Results of other builds of this program are used only with
    /// `takes_any_build`; a line that was truncated by an interruption is skipped.
    ///
    /// # Errors
    /// If the directory cannot be created or the record cannot be read.
    pub fn open(directory: &Path, takes_any_build: bool) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
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

    /// Runs the missing tasks, `jobs` in parallel, until `is_cancelled`. Every run is recorded as
    /// soon as it is done.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn complete(
        &mut self,
        tasks: &[Task],
        jobs: usize,
        is_cancelled: &AtomicBool,
        mut progress: impl FnMut(Progress<'_>) + Send,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut missing: Vec<&Task> = tasks.iter().filter(|task| seen.insert(key(task))).collect();
        let total = missing.len();
        missing.retain(|task| !self.results.contains_key(&key(task)));
        let recorded = total - missing.len();
        progress(Progress { done: recorded, total, last: "" });
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(|| format!("opening {}", self.path.display()))?;
        // Terminate a truncated line so that it does not swallow the next one.
        file.write_all(b"\n")?;
        // Tasks that must run alone go first.
        missing.sort_by_key(|task| !task.runs_alone());
        let alone_count = missing.iter().filter(|task| task.runs_alone()).count();
        let (alone, others) = missing.split_at(alone_count);
        // One lock for all three: lines of the file stay whole, and progress counts up.
        let output = Mutex::new((Vec::new(), file, progress));
        let build = &self.build;
        for (missing, jobs) in [(alone, 1), (others, jobs)] {
            let next = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..jobs.clamp(1, missing.len().max(1)) {
                    scope.spawn(|| {
                        while !is_cancelled.load(Ordering::Relaxed)
                            && let Some(task) = missing.get(next.fetch_add(1, Ordering::Relaxed))
                        {
                            let began = Instant::now();
                            let result = task.run().map_err(|error| format!("{error:#}"));
                            let seconds = began.elapsed().as_secs_f64();
                            let run = Run {
                                build: build.clone(),
                                task: (*task).clone(),
                                result,
                                seconds,
                            };
                            let line = serde_json::to_string(&run).unwrap_or_default();
                            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                            let (runs, file, progress) = &mut *output;
                            let written = writeln!(file, "{line}");
                            runs.push((run, written));
                            let done = recorded + runs.len();
                            progress(Progress { done, total, last: &key(task) });
                        }
                    });
                }
            });
        }
        let (runs, ..) = output.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (run, written) in runs {
            written.with_context(|| format!("writing {}", self.path.display()))?;
            self.results.insert(key(&run.task), run.result);
        }
        Ok(())
    }

    /// Returns the recorded points of an experiment and the errors of its runs.
    pub fn measured(&self, experiment: &Experiment, is_quick: bool) -> (Measured, Vec<String>) {
        let mut measured = Measured { metric: experiment.metric, ..Measured::default() };
        let mut errors = Vec::new();
        for (curve, x, task) in experiment.cases(is_quick) {
            match self.results.get(&key(&task)) {
                Some(Ok(values)) => {
                    let mut values = values.clone();
                    if let Task::KeyValue(store) = &task {
                        store.plot(&mut values);
                    }
                    measured.curves.entry(curve).or_default().push((x, values));
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

/// Returns a digest that identifies this build of the program.
fn build() -> Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    let bytes = std::fs::read(&program).context("reading this program")?;
    Ok(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)))
}

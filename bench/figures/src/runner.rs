//! Runs the tasks of experiments in parallel, each once, and skips recorded ones.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::Experiment;
use crate::experiment::{Measured, Neighbours, Task};
use crate::shard::Shard;
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

/// File of the runs in the directory of an evaluation.
const FILE_NAME: &str = "runs.jsonl";

/// The runs of an evaluation, stored in `runs.jsonl` of its directory, or those of a [`Shard`],
/// stored in a file of their own.
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

/// The turn of a task that needs gigabytes.
type Turn<'lock, 'task> = MutexGuard<'lock, std::vec::IntoIter<&'task Task>>;

/// Tasks that several threads run.
#[derive(Debug)]
struct Waiting<'a> {
    small: Vec<&'a Task>,
    next_small: AtomicUsize,
    /// Tasks that need gigabytes. The lock is held while one of them runs.
    large: Mutex<std::vec::IntoIter<&'a Task>>,
}

impl<'a> Waiting<'a> {
    fn new(small: Vec<&'a Task>, large: Vec<&'a Task>) -> Self {
        Self { small, next_small: AtomicUsize::new(0), large: Mutex::new(large.into_iter()) }
    }

    fn len(&self) -> usize {
        let large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        self.small.len() + large.len()
    }

    /// Returns the next task, a large one if none is running. Its turn ends when the second value
    /// is dropped.
    fn next(&self) -> Option<(&'a Task, Option<Turn<'_, 'a>>)> {
        if let Ok(mut large) = self.large.try_lock()
            && let Some(task) = large.next()
        {
            return Some((task, Some(large)));
        }
        let next = self.next_small.fetch_add(1, Ordering::Relaxed);
        Some((self.small.get(next)?, None))
    }
}

impl Record {
    /// Opens the record in `directory`. Results of other builds of this program are used only with
    /// `takes_any_build`; a line that was truncated by an interruption is skipped.
    ///
    /// # Errors
    /// If the directory cannot be created or the record cannot be read.
    pub fn open(directory: &Path, takes_any_build: bool) -> Result<Self> {
        Self::open_file(directory, FILE_NAME, takes_any_build)
    }

    /// Opens the record of a shard in `directory`.
    ///
    /// # Errors
    /// As [`Record::open`].
    pub fn open_shard(directory: &Path, shard: Shard, takes_any_build: bool) -> Result<Self> {
        Self::open_file(directory, &shard.file_name(), takes_any_build)
    }

    fn open_file(directory: &Path, name: &str, takes_any_build: bool) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
        let path = directory.join(name);
        let mut record = Self { build: build()?, results: BTreeMap::new(), path };
        if record.path.exists() {
            for run in read(&record.path)? {
                if takes_any_build || run.build == record.build {
                    record.results.insert(run.task.key(), run.result);
                }
            }
        }
        Ok(record)
    }

    /// Adds the runs of all `.jsonl` files in `directories`, those of shards and whole records, and
    /// writes those that this record lacks into its file. Returns the number of runs of other
    /// builds that were left out.
    ///
    /// # Errors
    /// If a directory has no such file, a file cannot be read, or the record cannot be written.
    pub fn merge(&mut self, directories: &[PathBuf], takes_any_build: bool) -> Result<usize> {
        let mut file = self.append()?;
        let mut left_out = 0;
        for directory in directories {
            let entries = std::fs::read_dir(directory)
                .with_context(|| format!("opening {}", directory.display()))?;
            let paths: Result<Vec<PathBuf>, _> = entries.map(|one| one.map(|e| e.path())).collect();
            let mut paths = paths.with_context(|| format!("reading {}", directory.display()))?;
            paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
            ensure!(!paths.is_empty(), "there is no file of runs in {}", directory.display());
            paths.sort();
            for run in paths.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?.concat() {
                if !takes_any_build && run.build != self.build {
                    left_out += 1;
                } else if let Entry::Vacant(entry) = self.results.entry(run.task.key()) {
                    let line = serde_json::to_string(&run)?;
                    writeln!(file, "{line}")
                        .with_context(|| format!("writing {}", self.path.display()))?;
                    entry.insert(run.result);
                }
            }
        }
        Ok(left_out)
    }

    /// Returns how many of the tasks have no recorded run.
    pub fn missing(&self, tasks: &[Task]) -> usize {
        let keys: BTreeSet<String> = tasks.iter().map(Task::key).collect();
        keys.iter().filter(|key| !self.results.contains_key(*key)).count()
    }

    /// Returns how many of the tasks, which are distinct, have failed.
    pub fn failed(&self, tasks: &[Task]) -> usize {
        let is_failed = |task: &&Task| matches!(self.results.get(&task.key()), Some(Err(_)));
        tasks.iter().filter(is_failed).count()
    }

    /// Returns the file that holds the record.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for more runs.
    fn append(&self) -> Result<File> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .with_context(|| format!("opening {}", self.path.display()))?;
        // Terminate a truncated line so that it does not swallow the next one.
        file.write_all(b"\n").with_context(|| format!("writing {}", self.path.display()))?;
        Ok(file)
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
        let mut missing: Vec<&Task> = tasks.iter().filter(|task| seen.insert(task.key())).collect();
        let total = missing.len();
        missing.retain(|task| !self.results.contains_key(&task.key()));
        let recorded = total - missing.len();
        progress(Progress { done: recorded, total, last: "" });
        let file = self.append()?;
        let of = |neighbours| {
            let tasks = missing.iter().copied();
            tasks.filter(|task| task.neighbours() == neighbours).collect::<Vec<&Task>>()
        };
        let alone = Waiting::new(of(Neighbours::None), vec![]);
        let others = Waiting::new(of(Neighbours::All), of(Neighbours::Small));
        // One lock for all three: lines of the file stay whole, and progress counts up.
        let output = Mutex::new((Vec::new(), file, progress));
        let build = &self.build;
        for (waiting, jobs) in [(alone, 1), (others, jobs)] {
            std::thread::scope(|scope| {
                for _ in 0..jobs.clamp(1, waiting.len().max(1)) {
                    scope.spawn(|| {
                        while !is_cancelled.load(Ordering::Relaxed)
                            && let Some((task, _turn)) = waiting.next()
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
                            progress(Progress { done, total, last: &task.key() });
                        }
                    });
                }
            });
        }
        let (runs, ..) = output.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (run, written) in runs {
            written.with_context(|| format!("writing {}", self.path.display()))?;
            self.results.insert(run.task.key(), run.result);
        }
        Ok(())
    }

    /// Returns the recorded points of an experiment and the errors of its runs.
    pub fn measured(&self, experiment: &Experiment, is_quick: bool) -> (Measured, Vec<String>) {
        let mut measured = Measured { metric: experiment.metric, ..Measured::default() };
        let mut errors = Vec::new();
        for (curve, x, task) in experiment.cases(is_quick) {
            match self.results.get(&task.key()) {
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

/// Reads a file of runs. A line that was truncated by an interruption is skipped.
fn read(path: &Path) -> Result<Vec<Run>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut runs = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.with_context(|| format!("reading {}", path.display()))?;
        runs.extend(serde_json::from_str::<Run>(&line));
    }
    Ok(runs)
}

/// Returns a digest that identifies this build of the program.
fn build() -> Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    let bytes = std::fs::read(&program).context("reading this program")?;
    Ok(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_large_task_runs() {
        let beacons = |interval_ns| Task::BeaconCores { interval_ns };
        let (one, other, small) = (beacons(1), beacons(2), beacons(3));
        let waiting = Waiting::new(vec![&small], vec![&one, &other]);
        assert_eq!(waiting.len(), 3);
        let (first, turn) = waiting.next().expect("three tasks wait");
        let (second, none) = waiting.next().expect("two tasks wait");
        assert_eq!((first.key(), second.key()), (one.key(), small.key()));
        assert!(turn.is_some() && none.is_none());
        assert!(waiting.next().is_none(), "the second large task waits for the first");
        drop(turn);
        assert_eq!(waiting.next().map(|(task, _)| task.key()), Some(other.key()));
        assert!(waiting.next().is_none());
    }
}

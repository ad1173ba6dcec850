//! What the commands that run many seeds share: parameters, progress, Ctrl-C and exit status.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use onepipe_sim_engine::{Seeds, Totals};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::totals::{Results, Subject};
use crate::interrupt;
use crate::progress::Progress;

/// Maximum number of events in the trace of a seed.
pub const TRACE_EVENTS: usize = 1 << 20;

/// Parameters of a fuzz run.
pub struct FuzzRun {
    pub seeds: Seeds,
    pub stops_at_failure: bool,
    pub is_json: bool,
    /// Where the results are added, if they are.
    pub recording: Option<Recording>,
}

/// A file of results, and what these belong to.
pub struct Recording {
    pub path: PathBuf,
    pub subject: Subject,
}

impl FuzzRun {
    /// Adds the results of a run to the file of the run's recording, if there is one. A run that is
    /// stopped has run its first seeds, and `done` is how many.
    pub fn record(&self, done: u64, failing: &[u64], totals: &Totals) -> Result<()> {
        let Some(Recording { path, subject }) = &self.recording else { return Ok(()) };
        let seeds = Seeds { count: done, ..self.seeds };
        let run = Results::of_run(subject.clone(), seeds, failing.to_vec(), totals.clone())?;
        Results::update(path, run).map(|_| ())
    }
}

/// Returns the processor time of the calling thread.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A run over many seeds: shows progress, and stops at Ctrl-C.
pub struct Session {
    /// Stops the run: set at Ctrl-C, and at a failing seed if the run stops at failures.
    pub stop: Arc<AtomicBool>,
    was_interrupted: Arc<AtomicBool>,
    progress: Mutex<Progress>,
    began: Instant,
    count: u64,
}

impl Session {
    pub fn begin(count: u64) -> Result<Self> {
        let (stop, was_interrupted) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stop_flag, interrupted_flag) = (Arc::clone(&stop), Arc::clone(&was_interrupted));
        interrupt::on_interrupt(move || {
            interrupted_flag.store(true, Ordering::Relaxed);
            stop_flag.store(true, Ordering::Relaxed);
        })?;
        let progress = Mutex::new(Progress::new());
        Ok(Self { stop, was_interrupted, progress, began: Instant::now(), count })
    }

    /// Shows how many seeds are done, and how many of them failed.
    pub fn show(&self, done: u64, failed: u64) {
        if let Ok(mut progress) = self.progress.lock() {
            let text = match failed {
                0 => format!("{done} seeds"),
                failed => format!("{done} seeds, {failed} failed"),
            };
            progress.show(done as f64 / self.count as f64, &text);
        }
    }

    /// Returns the elapsed seconds, and whether the session was interrupted.
    pub fn end(self) -> (f64, bool) {
        (self.began.elapsed().as_secs_f64(), self.was_interrupted.load(Ordering::Relaxed))
    }
}

/// Returns the exit status: 1 if a seed failed, otherwise 130 if the run was interrupted.
pub fn exit_status(failed: u64, was_interrupted: bool) -> ExitCode {
    match (failed, was_interrupted) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(interrupt::EXIT_STATUS),
        _ => ExitCode::FAILURE,
    }
}

/// The first failing seed, in the JSON output of any service.
#[derive(Serialize)]
pub struct JsonFailing {
    pub seed: u64,
    pub reproduce: String,
    pub violation_texts: Vec<String>,
    pub faults_drawn: usize,
    pub faults_needed: Vec<String>,
}

//! One process of the benchmark: joins, does its part, and waits until all have finished.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use onepipe::{Pipe, ProcessId};
use onepipe_daemon_switch::SoftwareSwitch;

use super::job::{Job, Outcome, Role};
use super::{one_sided, request_reply};
use crate::children::release_flag;
use crate::light::{counts, monotonic_ns};

/// The process that has the memory. The other one operates on it.
pub(super) const OWNER: ProcessId = ProcessId(0);
const CLIENT: u32 = 1;
/// Limit on waits that only a hang reaches.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Operations go to this number of positions in turn, each of the length of an operation.
const POSITIONS: u64 = 64;

/// Returns the length of the memory in bytes.
pub(super) fn memory_len(job: &Job) -> usize {
    POSITIONS as usize * cell_len(job)
}

/// Returns the offset of an operation in the memory.
pub(super) fn offset(job: &Job, number: u64) -> u64 {
    number % POSITIONS * cell_len(job) as u64
}

/// Returns the distance of two positions: words have offsets that are multiples of 8.
fn cell_len(job: &Job) -> usize {
    job.bytes.next_multiple_of(8)
}

/// Runs one process.
pub(super) fn run(job: &Job) -> Result<()> {
    let is_released = release_flag();
    if job.role == Role::Switch {
        report(&Outcome::default())?;
        return run_switch(job, &is_released);
    }
    let is_owner = matches!(job.role, Role::Owner | Role::Server);
    let process = if is_owner { OWNER.0 } else { CLIENT };
    let builder = Pipe::builder().process(process);
    let builder = match &job.switch {
        Some(switch) => builder.udp(switch),
        None => builder.fabric(&job.fabric).processes(2),
    };
    let mut pipe = builder.join().context("joining the fabric")?;
    ensure!(pipe.wait_for_peers(1, TIMEOUT), "the other process did not join");
    match job.role {
        Role::Owner => {
            one_sided::register(&mut pipe, job)?;
            report(&Outcome::default())?;
        }
        Role::Server => {
            report(&Outcome::default())?;
            request_reply::serve(&mut pipe, job, &is_released)?;
        }
        Role::Client => report(&one_sided::run(&mut pipe, job)?)?,
        Role::Requester => report(&request_reply::request(&mut pipe, job)?)?,
        Role::Switch => {}
    }
    while !is_released.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The others end at the same moment, so that some outcomes are not known.
    let _ = pipe.leave();
    Ok(())
}

/// Prints the outcome of this process for its parent.
fn report(outcome: &Outcome) -> Result<()> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(())
}

/// How long the switch runs after the measurement, in which the other processes leave.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// Runs the switch until all other processes have finished.
fn run_switch(job: &Job, is_released: &AtomicBool) -> Result<()> {
    let bind = job.switch.as_deref().context("the switch has an address")?;
    let mut switch = SoftwareSwitch::new(&onepipe_daemon_switch::Config::new(bind.parse()?))?;
    let (stop, doorbell) = (AtomicBool::new(false), switch.doorbell());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_released.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(LEAVE_TIME);
            stop.store(true, Ordering::Release);
            doorbell.ring();
        });
        switch.run(&stop, |_| {});
    });
    Ok(())
}

/// Measures operations for a given time.
pub(super) struct Stopwatch {
    begin_ns: u64,
    end_ns: u64,
    submitted: u64,
    completed: u64,
    last_ns: u64,
    histogram: Histogram<u64>,
}

impl Stopwatch {
    pub(super) fn start(job: &Job) -> Result<Self> {
        let begin_ns = monotonic_ns();
        let end_ns = begin_ns + (job.seconds * 1e9) as u64;
        let histogram = Histogram::new(3)?;
        Ok(Self { begin_ns, end_ns, submitted: 0, completed: 0, last_ns: begin_ns, histogram })
    }

    /// Returns whether more operations are to be submitted.
    pub(super) fn is_running(&self) -> bool {
        self.last_ns < self.end_ns
    }

    /// Returns the number of operations submitted so far.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Counts an operation, and returns the time.
    pub(super) fn submit(&mut self) -> u64 {
        self.submitted += 1;
        monotonic_ns()
    }

    /// Records an operation that was submitted at `began_ns`.
    pub(super) fn complete(&mut self, began_ns: u64) -> Result<()> {
        self.last_ns = monotonic_ns();
        self.completed += 1;
        self.histogram.record(self.last_ns.saturating_sub(began_ns))?;
        Ok(())
    }

    pub(super) fn outcome(self, repeated: u64) -> Outcome {
        Outcome {
            operations: self.completed,
            seconds: (self.last_ns - self.begin_ns) as f64 / 1e9,
            latencies: counts(&self.histogram),
            repeated,
        }
    }
}

//! Registered memory: one-sided operations beside requests to the owner's application.

mod job;
mod one_sided;
mod process;
mod request_reply;
mod workload;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::children::{die_with_parent, run_workers};
use crate::light::{merged, us};
use crate::processes::free_address;
use crate::{Better, Detail, Harness, Progress, Report};
use job::{Job, Kind, Outcome, Role};

/// Second argument of a process of this benchmark.
pub(crate) const MEMORY: &str = "memory";

/// Options of [`memory`].
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryOptions {
    /// Uses UDP through the software switch, or shared memory.
    pub is_udp: bool,
    /// Bytes that an operation reads or writes, 8 to 1,048,576.
    pub bytes: usize,
    /// Number of operations in flight while the rate is measured, 2 to 1,024.
    pub window: u32,
    /// Number of runs of each side.
    pub runs: usize,
    /// Length of each run, in s.
    pub seconds: f64,
}

impl Default for MemoryOptions {
    /// 64 bytes over shared memory, 64 operations in flight, 3 runs of 1 s.
    fn default() -> Self {
        Self { is_udp: false, bytes: 64, window: 64, runs: 3, seconds: 1.0 }
    }
}

/// Measures reads, writes and atomic additions on the memory of another process: the latency of one
/// at a time, and the rate of several in flight. Yardstick: the same by messages to the
/// application of that process, and its replies.
///
/// # Errors
/// Returns an error when an option is out of range, or a process fails.
pub fn memory(options: &MemoryOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    ensure!((8..=1 << 20).contains(&options.bytes), "operations have 8 to 1048576 bytes");
    ensure!((2..=1_024).contains(&options.window), "2 to 1024 operations in flight");
    let about = "operations of a process on the memory of another one, executed by the thread that \
                 drives that one's pipe; latency of one at a time, rate of several in flight; \
                 yardstick: a request to the application of the other process, and its reply";
    let mut harness = Harness::new(MEMORY, about).with_runs(options.runs).with_progress(progress);
    let transport = if options.is_udp { "udp" } else { "shm" };
    for kind in Kind::ALL {
        let bytes = if kind == Kind::FetchAdd { 8 } else { options.bytes };
        let case = format!("transport={transport} {} bytes={bytes}", kind.name());
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let measure = |is_one_sided, runs: &mut Vec<Run>| {
            let run = Run::of(options, kind, bytes, 1, is_one_sided)?;
            runs.push(run);
            runs.last().map(|run| us(&run.latencies, 0.5)).context("it was pushed")
        };
        harness.measure(
            &format!("{case} p50"),
            "us",
            Better::Lower,
            || measure(true, &mut ours),
            || measure(false, &mut theirs),
        )?;
        let (mut ours, mut theirs) = (ours.iter(), theirs.iter());
        let p99 = |run: Option<&Run>| run.map(|run| us(&run.latencies, 0.99));
        harness.measure(
            &format!("{case} p99"),
            "us",
            Better::Lower,
            || p99(ours.next()).context("measured above"),
            || p99(theirs.next()).context("measured above"),
        )?;
        let mut repeated = Vec::new();
        harness.measure(
            &format!("{case} window={}", options.window),
            "op/s",
            Better::Higher,
            || {
                let run = Run::of(options, kind, bytes, options.window, true)?;
                repeated.push(run.repeated as f64);
                Ok(run.rate)
            },
            || Ok(Run::of(options, kind, bytes, options.window, false)?.rate),
        )?;
        let mean = repeated.iter().sum::<f64>() / repeated.len() as f64;
        harness.detail(vec![Detail { name: "repeated".into(), value: mean, unit: "".into() }]);
    }
    Ok(harness.finish())
}

/// Result of one run.
struct Run {
    latencies: Histogram<u64>,
    /// Operations per second.
    rate: f64,
    repeated: u64,
}

impl Run {
    /// Runs all processes once.
    fn of(
        options: &MemoryOptions,
        kind: Kind,
        bytes: usize,
        window: u32,
        is_one_sided: bool,
    ) -> Result<Self> {
        let switch = if options.is_udp { Some(free_address()?) } else { None };
        let job = |role| Job {
            role,
            kind,
            switch: switch.clone(),
            fabric: format!("bench-memory-{}", std::process::id()),
            bytes,
            window,
            seconds: options.seconds,
        };
        let roles = match is_one_sided {
            true => [Role::Owner, Role::Client],
            false => [Role::Server, Role::Requester],
        };
        let jobs = switch.is_some().then(|| job(Role::Switch)).into_iter();
        let jobs: Vec<Job> = jobs.chain(roles.map(job)).collect();
        let outcomes: Vec<Outcome> = run_workers(MEMORY, &jobs, jobs.len())?;
        let operations: u64 = outcomes.iter().map(|outcome| outcome.operations).sum();
        let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
        Ok(Self {
            latencies: merged(outcomes.iter().map(|outcome| &outcome.latencies))?,
            rate: operations as f64 / seconds.max(1e-9),
            repeated: outcomes.iter().map(|outcome| outcome.repeated).sum(),
        })
    }
}

/// Runs one process of this benchmark.
pub(crate) fn work(parent_pid: &str, job: &str) -> Result<()> {
    die_with_parent(parent_pid.parse().context("invalid pid of the parent")?)?;
    let job: Job = serde_json::from_str(job).with_context(|| format!("reading the job {job}"))?;
    process::run(&job)
}

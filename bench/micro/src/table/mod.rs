//! A hash table in registered memory, beside one with fenced operations and one with a leader.

mod client;
mod job;
mod leader;
mod process;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::children::{die_with_parent, run_workers};
use crate::light::{merged, us};
use crate::processes::free_address;
use crate::{Better, Harness, Progress, Report};
use job::{Job, Outcome, Protocol, Role};

/// Second argument of a process of this benchmark.
pub(crate) const TABLE: &str = "table";

/// Options of [`table`].
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// Uses UDP through the software switch, or shared memory.
    pub is_udp: bool,
    /// Numbers of replicas of the shard, each 1 to 4, measured one after the other.
    pub replicas: Vec<u32>,
    /// Length of a value in bytes, 8 to 1,024.
    pub value_len: usize,
    /// Number of calls in flight while the rate is measured, 2 to 512.
    pub window: u32,
    /// Number of runs of each side.
    pub runs: usize,
    /// Length of each run, in s.
    pub seconds: f64,
}

impl Default for TableOptions {
    /// 1 to 3 replicas in shared memory, values of 64 bytes, 16 calls in flight, 3 runs of 1 s.
    fn default() -> Self {
        Self {
            is_udp: false,
            replicas: vec![1, 2, 3],
            value_len: 64,
            window: 16,
            runs: 3,
            seconds: 1.0,
        }
    }
}

/// Measures insertions and look-ups of a client of a table with one shard: the latency of one at a
/// time, and the rate of several in flight. Yardstick, over pipes of the same fabric: with one
/// replica, operations with a fence between the writing of a node and its linking; with several, a
/// leader whose program inserts and replicates, and whose memory look-ups read.
///
/// # Errors
/// Returns an error when an option is out of range, a process fails, or a call has a wrong result.
pub fn table(options: &TableOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    ensure!((8..=1_024).contains(&options.value_len), "values have 8 to 1024 bytes");
    ensure!((2..=512).contains(&options.window), "2 to 512 calls in flight");
    let about = "calls of a client of a hash table in the registered memory of replicas; latency \
                 of one at a time, rate of several in flight; yardstick, over pipes of the same \
                 fabric: fenced operations with one replica, a leader's program and reads of its \
                 memory with several";
    let mut harness = Harness::new(TABLE, about).with_runs(options.runs).with_progress(progress);
    let transport = if options.is_udp { "udp" } else { "shm" };
    for replicas in &options.replicas {
        ensure!((1..=4).contains(replicas), "a shard has 1 to 4 replicas");
        let rival = if *replicas == 1 { Protocol::Fenced } else { Protocol::Leader };
        for inserts in [true, false] {
            let name = if inserts { "insert" } else { "look-up" };
            let case = format!("transport={transport} {name} replicas={replicas}");
            let run = |protocol, window| Run::of(options, (protocol, inserts), *replicas, window);
            let p50 = |protocol| Ok(us(&run(protocol, 1)?.latencies, 0.5));
            harness.measure(
                &format!("{case} p50"),
                "us",
                Better::Lower,
                || p50(Protocol::Ordered),
                || p50(rival),
            )?;
            harness.measure(
                &format!("{case} window={}", options.window),
                "op/s",
                Better::Higher,
                || Ok(run(Protocol::Ordered, options.window)?.rate),
                || Ok(run(rival, options.window)?.rate),
            )?;
        }
    }
    Ok(harness.finish())
}

/// Result of one run.
struct Run {
    latencies: Histogram<u64>,
    /// Calls per second.
    rate: f64,
}

impl Run {
    /// Runs all processes once.
    fn of(
        options: &TableOptions,
        (protocol, inserts): (Protocol, bool),
        replicas: u32,
        window: u32,
    ) -> Result<Self> {
        let switch = if options.is_udp { Some(free_address()?) } else { None };
        let job = |role| Job {
            role,
            protocol,
            inserts,
            replicas,
            switch: switch.clone(),
            fabric: format!("bench-table-{}", std::process::id()),
            value_len: options.value_len as u32,
            window,
            seconds: options.seconds,
        };
        let roles = switch.is_some().then_some(Role::Switch).into_iter();
        let roles = roles.chain((0..replicas).map(Role::Server)).chain([Role::Client]);
        let jobs: Vec<Job> = roles.map(job).collect();
        let outcomes: Vec<Outcome> = run_workers(TABLE, &jobs, jobs.len())?;
        let calls: u64 = outcomes.iter().map(|outcome| outcome.calls).sum();
        let seconds: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
        Ok(Self {
            latencies: merged(outcomes.iter().map(|outcome| &outcome.latencies))?,
            rate: calls as f64 / seconds.max(1e-9),
        })
    }
}

/// Runs one process of this benchmark.
pub(crate) fn work(parent_pid: &str, job: &str) -> Result<()> {
    die_with_parent(parent_pid.parse().context("invalid pid of the parent")?)?;
    let job: Job = serde_json::from_str(job).with_context(|| format!("reading the job {job}"))?;
    process::run(&job)
}

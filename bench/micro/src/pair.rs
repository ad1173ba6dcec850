//! Two processes: how many messages go from one to the other, and how long one takes.

use anyhow::{Context, Result};

use crate::crowd::{self, Fabric, Job, Role};
use crate::{Better, Harness, Progress, Report};

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct PairOptions {
    /// How often each side runs. Default 5.
    pub runs: usize,
    /// How long each run takes, in seconds. Default 1.
    pub seconds: f64,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self { runs: 5, seconds: 1.0 }
    }
}

/// Messages of 64 octets between two processes over shared memory, all the way from `scatter` to
/// delivery in order. Yardstick: a bare ring between two cores.
///
/// # Errors
/// When a process fails, or delivers out of order.
pub fn pair_shm(options: &PairOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let about = "64-octet messages from one process to another over shared memory, submit to \
                 ordered delivery; yardstick: a bare ring of 64-octet entries between two cores";
    let mut harness =
        Harness::new("pair", about).with_runs(options.runs).with_progress(progress);
    let seconds = options.seconds;
    let jobs = |roles: [Role; 2], run: &str| -> Vec<Job> {
        let name = format!("bench-pair-{}-{run}", std::process::id());
        let job = |process: u32| Job {
            role: roles[process as usize],
            fabric: Fabric::Shm(name.clone()),
            process,
            processes: 2,
            octets: 64,
            seconds,
            core: Some(process as usize),
            idle: "spin".to_string(),
        };
        vec![job(0), job(1)]
    };
    harness.measure(
        "transport=shm octets=64 throughput",
        "msg/s",
        Better::Higher,
        || {
            let outcomes = crowd::run(&jobs([Role::Flood, Role::Sink], "flood"))?;
            Ok(outcomes[1].delivered as f64 / outcomes[1].seconds)
        },
        || crowd::ring_rate(seconds),
    )?;
    harness.measure(
        "transport=shm octets=64 one-way p50",
        "ns",
        Better::Lower,
        || {
            let outcomes = crowd::run(&jobs([Role::Ping, Role::Pong], "ping"))?;
            let latency = outcomes[0].latency_ns.context("process 0 pinged")?;
            Ok(latency[0] as f64)
        },
        || crowd::ring_round_trip_ns(200_000),
    )?;
    Ok(harness.finish())
}

//! Two processes: throughput and one-way latency.

use anyhow::{Context, Result};

use crate::processes::{self, Fabric, Job, Location, Role};
use crate::{Better, Harness, Progress, Report};

/// Options of the pair benchmarks.
#[derive(Clone, Debug, PartialEq)]
pub struct PairOptions {
    /// Number of runs of each side. Default 5.
    pub runs: usize,
    /// Length of each run, in s. Default 1.
    pub seconds: f64,
    /// Whether frames in shared memory bear checksums. Default false.
    pub has_checksums: bool,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self { runs: 5, seconds: 1.0, has_checksums: false }
    }
}

/// Measures 64-byte messages between two processes over shared memory, from `scatter` to ordered
/// delivery. Yardstick: a bare ring between two cores.
///
/// # Errors
/// Returns an error when a process fails, or delivers out of order.
pub fn pair_shm(options: &PairOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let about = "64-byte messages from one process to another over shared memory, submit to \
                 ordered delivery; yardstick: a bare ring of 64-byte entries between two cores";
    let mut harness = Harness::new("pair", about).with_runs(options.runs).with_progress(progress);
    let seconds = options.seconds;
    let jobs = |roles, run: &str| {
        let fabric = Fabric::Shm(format!("bench-pair-{}-{run}", std::process::id()));
        two(roles, &fabric, options, "spin")
    };
    harness.measure(
        "transport=shm bytes=64 throughput",
        "msg/s",
        Better::Higher,
        || {
            let outcomes = processes::run(&jobs([Role::Flood, Role::Sink], "flood"))?;
            Ok(outcomes[1].delivered as f64 / outcomes[1].seconds)
        },
        || processes::ring_rate(seconds),
    )?;
    harness.measure(
        "transport=shm bytes=64 one-way p50",
        "ns",
        Better::Lower,
        || {
            let outcomes = processes::run(&jobs([Role::Ping, Role::Pong], "ping"))?;
            let latency = outcomes[0].latency_ns.context("process 0 pinged")?;
            Ok(latency[0] as f64)
        },
        || processes::ring_one_way_ns(200_000),
    )?;
    Ok(harness.finish())
}

/// Returns one process of each role, each pinned to a core.
fn two(roles: [Role; 2], fabric: &Fabric, options: &PairOptions, idle: &str) -> Vec<Job> {
    let job = |(process, role): (usize, Role)| Job {
        window: None,
        method: None,
        role,
        fabric: fabric.clone(),
        location: Location::default(),
        is_reliable: false,
        process: process as u32,
        processes: 2,
        bytes: 64,
        has_checksums: options.has_checksums,
        seconds: options.seconds,
        core: Some(process),
        idle: idle.to_string(),
    };
    roles.into_iter().enumerate().map(job).collect()
}

/// Measures 64-byte messages between two processes over UDP on loopback, through the software
/// switch. Yardsticks: the rate of 64-byte segments with GSO and GRO, and the one-way time of a
/// bare datagram; neither passes a switch.
///
/// # Errors
/// Returns an error when a process fails, or delivers out of order.
pub fn pair_udp(options: &PairOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let about = "64-byte messages from one process to another over UDP through the software \
                 switch, submit to ordered delivery; yardstick: bare 64-byte datagrams over \
                 loopback without a switch (GSO and GRO for the rate)";
    let mut harness = Harness::new("pair", about).with_runs(options.runs).with_progress(progress);
    let seconds = options.seconds;
    let run = |roles, frame_len, idle: &str| {
        let fabric = Fabric::Udp { switch: processes::free_address()?, frame_len };
        let mut jobs = two(roles, &fabric, options, idle);
        jobs.push(Job { role: Role::Switch, core: None, ..jobs[0].clone() });
        processes::run(&jobs)
    };
    for frame_len in [1472, 8192] {
        harness.measure(
            &format!("transport=udp bytes=64 frame={frame_len} throughput"),
            "msg/s",
            Better::Higher,
            || {
                let outcomes = run([Role::Flood, Role::Sink], frame_len, "yield")?;
                Ok(outcomes[1].delivered as f64 / outcomes[1].seconds)
            },
            || processes::datagram_rate(seconds),
        )?;
    }
    for (idle, word) in [("yield", "all spin"), ("backoff", "blocking")] {
        for (at, quantile) in ["p50", "p99"].into_iter().enumerate() {
            harness.measure(
                &format!("transport=udp bytes=64 one-way {quantile} {word}"),
                "ns",
                Better::Lower,
                || {
                    let outcomes = run([Role::Ping, Role::Pong], 1472, idle)?;
                    Ok(outcomes[0].latency_ns.context("process 0 pinged")?[at] as f64)
                },
                || processes::datagram_one_way_ns(20_000, idle == "yield"),
            )?;
        }
    }
    Ok(harness.finish())
}

/// Measures reliable 64-byte messages between two processes, over shared memory or over UDP through
/// the software switch. Yardstick: best effort, in the same run.
///
/// # Errors
/// Returns an error when a process fails, or delivers out of order.
pub fn pair_reliable(
    options: &PairOptions,
    is_udp: bool,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let about = "64-byte messages from one process to another, submit to ordered delivery, sent \
                 reliably; yardstick: the same by best effort";
    let mut harness = Harness::new("pair", about).with_runs(options.runs).with_progress(progress);
    let (name, idle) = if is_udp { ("udp", "yield") } else { ("shm", "spin") };
    let run = |roles: [Role; 2], is_reliable| {
        let fabric = match is_udp {
            true => Fabric::Udp { switch: processes::free_address()?, frame_len: 1472 },
            false => Fabric::Shm(format!("bench-reliable-{}", std::process::id())),
        };
        let mut jobs = two(roles, &fabric, options, idle);
        jobs.iter_mut().for_each(|job| job.is_reliable = is_reliable);
        if is_udp {
            jobs.push(Job { role: Role::Switch, core: None, ..jobs[0].clone() });
        }
        processes::run(&jobs)
    };
    let rate = |is_reliable| {
        let outcomes = run([Role::Flood, Role::Sink], is_reliable)?;
        Ok(outcomes[1].delivered as f64 / outcomes[1].seconds)
    };
    harness.measure(
        &format!("transport={name} bytes=64 reliable throughput"),
        "msg/s",
        Better::Higher,
        || rate(true),
        || rate(false),
    )?;
    let one_way = |is_reliable| {
        let outcomes = run([Role::Ping, Role::Pong], is_reliable)?;
        Ok(outcomes[0].latency_ns.context("process 0 pinged")?[0] as f64)
    };
    harness.measure(
        &format!("transport={name} bytes=64 reliable one-way p50"),
        "ns",
        Better::Lower,
        || one_way(true),
        || one_way(false),
    )?;
    Ok(harness.finish())
}

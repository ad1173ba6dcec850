//! Light load, as programs in operation have it: processes that wait most of the time.

mod job;
mod member;
mod relay;
mod schedule;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use onepipe::Idle;
use onepipe_daemon_switch::SoftwareSwitch;

use crate::children::{die_with_parent, run_workers};
use crate::processes::free_address;
use crate::{Better, Detail, Harness, Progress, Report};
use job::{Job, JobIdle, Outcome, Role, Sample};
pub(crate) use job::{counts, merged, monotonic_ns};

/// Second argument of a process of this benchmark.
pub(crate) const LIGHT: &str = "light";

/// Time from the start of the processes to the measurement, in ns.
const START_NS: u64 = 1_500_000_000;

/// Goals, as yardsticks where bare datagrams have no counterpart: CPU time at rest in cores, and
/// frames a second (docs/results/benchmarks.md).
const REST_CORES_GOAL: f64 = 0.02;
const REST_FRAMES_GOAL: f64 = 100.0;
/// The relay sends each frame by a call of its own.
const RELAY_FRAMES_PER_SEND: f64 = 1.0;

/// Options of [`idle`] and [`light`].
#[derive(Clone, Debug, PartialEq)]
pub struct LightOptions {
    /// Number of processes, 2 to 64.
    pub processes: u32,
    /// Uses UDP through the software switch, or shared memory.
    pub is_udp: bool,
    /// Sends beacons at the fixed interval, not on demand.
    pub has_fixed_interval: bool,
    /// What processes and the switch do with a core while there is nothing to do.
    pub idle: Idle,
    /// Scatterings per second of each process, each to all processes.
    pub rate: f64,
    /// Message size in bytes, 8 to 1,024.
    pub bytes: usize,
    /// Number of messages after pauses.
    pub wakes: u32,
    /// Number of runs of each side.
    pub runs: usize,
    /// Length of each run, in s.
    pub seconds: f64,
}

impl LightOptions {
    /// Returns the defaults of [`idle`]: 4 processes over UDP for 2 s, then 20 messages.
    pub fn idle() -> Self {
        Self {
            processes: 4,
            is_udp: true,
            has_fixed_interval: false,
            idle: Idle::default(),
            rate: 0.0,
            bytes: 64,
            wakes: 20,
            runs: 3,
            seconds: 2.0,
        }
    }

    /// Returns the defaults of [`light`]: 3 processes over UDP, 1,000 scatterings a second each.
    pub fn light() -> Self {
        Self { processes: 3, rate: 1_000.0, wakes: 0, ..Self::idle() }
    }

    fn check(&self) -> Result<()> {
        ensure!((2..=64).contains(&self.processes), "2 to 64 processes, not {}", self.processes);
        ensure!((8..=1_024).contains(&self.bytes), "messages have 8 to 1024 bytes");
        ensure!(self.rate >= 0.0 && self.rate <= 1e6, "0 to 1,000,000 scatterings a second");
        Ok(())
    }

    fn transport(&self) -> String {
        let transport = if self.is_udp { "udp" } else { "shm" };
        let beacons = if self.is_udp && self.has_fixed_interval { " beacons=fixed" } else { "" };
        let idle = match self.idle {
            Idle::Spin => " idle=spin",
            Idle::Yield => " idle=yield",
            Idle::Backoff => "",
        };
        format!("{transport}{beacons}{idle}")
    }
}

/// Measures a fabric that nobody uses: its CPU time, its frames, and how long a message after a
/// pause takes.
///
/// # Errors
/// Returns an error when an option is out of range, or a process fails.
pub fn idle(options: &LightOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    options.check()?;
    let about = "a fabric without messages: CPU time of all processes and the switch, frames that \
                 the switch sends and receives, and the latency of a message after a pause of \
                 300 ms; yardsticks: the goals, and the same pause with bare datagrams through a \
                 relay";
    let mut harness = Harness::new("idle", about).with_runs(options.runs).with_progress(progress);
    let case = format!("transport={} processes={}", options.transport(), options.processes);
    let mut measured = Vec::new();
    harness.measure(
        &format!("{case} cpu"),
        "cores",
        Better::Lower,
        || {
            let run = Run::of(options, false)?;
            let cores = run.cores;
            measured.push(run);
            Ok(cores)
        },
        || Ok(REST_CORES_GOAL),
    )?;
    if options.is_udp {
        let mut frames = measured.iter().map(|run| run.frames_per_second);
        harness.measure(
            &format!("{case} frames"),
            "frames/s",
            Better::Lower,
            || frames.next().context("measured above"),
            || Ok(REST_FRAMES_GOAL),
        )?;
    }
    let mut wakes = measured.iter().map(|run| us(&run.wake_latencies, 0.5));
    harness.measure(
        &format!("{case} after a pause, p50"),
        "us",
        Better::Lower,
        || wakes.next().context("measured above"),
        || {
            Ok(us(
                &Run::of(&LightOptions { seconds: 0.2, ..options.clone() }, true)?.wake_latencies,
                0.5,
            ))
        },
    )?;
    Ok(harness.finish())
}

/// Measures processes that scatter to all at a given rate and block in between: the latency from
/// the time at which a message was due (so that a late sender hides nothing), CPU time, frames and
/// wake-ups for each message.
///
/// # Errors
/// Returns an error when an option is out of range, or a process fails.
pub fn light(options: &LightOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    options.check()?;
    ensure!(options.rate > 0.0, "the rate must be above 0");
    let about = "processes that scatter to all at a rate, with the blocking interface: latency \
                 from the due time of a message to its delivery, CPU time of all processes and \
                 the switch; yardstick: bare datagrams through a relay, without order";
    let mut harness = Harness::new("light", about).with_runs(options.runs).with_progress(progress);
    let LightOptions { processes, rate, bytes, .. } = options;
    let case = format!(
        "transport={} processes={processes} rate={rate} bytes={bytes}",
        options.transport()
    );
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    harness.measure(
        &format!("{case} p50"),
        "us",
        Better::Lower,
        || {
            ours.push(Run::of(options, false)?);
            Ok(us(&ours[ours.len() - 1].latencies, 0.5))
        },
        || {
            bare.push(Run::of(options, true)?);
            Ok(us(&bare[bare.len() - 1].latencies, 0.5))
        },
    )?;
    type Number = fn(&Run) -> f64;
    let numbers: [(&str, &str, Number); 4] = [
        ("p99", "us", |run| us(&run.latencies, 0.99)),
        ("cpu", "cores", |run| run.cores),
        ("frames", "frames/msg", |run| run.frames_per_message),
        ("wake-ups", "wake-ups/msg", |run| run.wake_ups_per_message),
    ];
    for (name, unit, number) in numbers {
        let (mut ours, mut bare) = (ours.iter().map(number), bare.iter().map(number));
        // A count of 0, as of frames over shared memory, has no ratio.
        let floor = |number: f64| number.max(1e-6);
        harness.measure(
            &format!("{case} {name}"),
            unit,
            Better::Lower,
            || ours.next().map(floor).context("measured above"),
            || bare.next().map(floor).context("measured above"),
        )?;
    }
    if options.is_udp {
        let mut batches = ours.iter().map(|run| run.frames_per_send);
        harness.measure(
            &format!("{case} batch"),
            "frames/send",
            Better::Higher,
            || batches.next().context("measured above"),
            || Ok(RELAY_FRAMES_PER_SEND),
        )?;
    }
    let lost = ours.iter().map(|run| run.lost as f64).sum::<f64>() / ours.len() as f64;
    harness.detail(vec![Detail { name: "lost".into(), value: lost, unit: "messages".into() }]);
    Ok(harness.finish())
}

/// Returns a quantile in us.
pub(crate) fn us(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}

/// Result of one run.
pub(crate) struct Run {
    pub(crate) latencies: Histogram<u64>,
    wake_latencies: Histogram<u64>,
    /// CPU time of all processes per second.
    pub(crate) cores: f64,
    frames_per_second: f64,
    frames_per_message: f64,
    /// Frames that the switch sends with one system call.
    frames_per_send: f64,
    wake_ups_per_message: f64,
    pub(crate) lost: u64,
}

impl Run {
    /// Runs all processes once: ours, or the bare yardstick.
    pub(crate) fn of(options: &LightOptions, is_bare: bool) -> Result<Self> {
        let begin_ns = monotonic_ns() + START_NS;
        let needs_switch = options.is_udp || is_bare;
        let switch = if needs_switch { Some(free_address()?) } else { None };
        let job = |role, process| Job {
            role,
            process,
            processes: options.processes,
            switch: switch.clone(),
            has_fixed_interval: options.has_fixed_interval,
            idle: options.idle.into(),
            fabric: format!("bench-light-{}", std::process::id()),
            rate: options.rate,
            bytes: options.bytes,
            window_ns: [begin_ns, begin_ns + (options.seconds * 1e9) as u64],
            wakes: options.wakes,
        };
        let (switch_role, member_role) = match is_bare {
            true => (Role::BareRelay, Role::BareMember),
            false => (Role::Switch, Role::Member),
        };
        let switch_job = needs_switch.then(|| job(switch_role, 0));
        let members = (0..options.processes).map(|process| job(member_role, process));
        let jobs: Vec<Job> = switch_job.into_iter().chain(members).collect();
        let outcomes: Vec<Outcome> = run_workers(LIGHT, &jobs, 0)?;
        Self::sum(options, &outcomes)
    }

    fn sum(options: &LightOptions, outcomes: &[Outcome]) -> Result<Self> {
        let latencies = merged(outcomes.iter().map(|outcome| &outcome.latencies))?;
        let wake_latencies = merged(outcomes.iter().map(|outcome| &outcome.wake_latencies))?;
        let all = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
        let datagrams = all(|outcome| outcome.datagrams as f64);
        let seconds = outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max);
        let messages = (f64::from(options.processes) * options.rate * seconds).max(1.0);
        Ok(Self {
            latencies,
            wake_latencies,
            cores: all(|outcome| outcome.cpu_seconds / outcome.seconds.max(1e-9)),
            frames_per_second: datagrams / seconds.max(1e-9),
            frames_per_message: datagrams / messages,
            frames_per_send: all(|outcome| outcome.frames_sent as f64)
                / all(|outcome| outcome.sends as f64).max(1.0),
            wake_ups_per_message: all(|outcome| outcome.wake_ups as f64) / messages,
            lost: outcomes.iter().map(|outcome| outcome.lost).sum(),
        })
    }
}

/// Runs one process of this benchmark.
pub(crate) fn work(parent_pid: &str, job: &str) -> Result<()> {
    die_with_parent(parent_pid.parse().context("invalid pid of the parent")?)?;
    let job: Job = serde_json::from_str(job).with_context(|| format!("reading the job {job}"))?;
    let outcome = match job.role {
        Role::Member => member::run(&job),
        Role::Switch => switch(&job),
        Role::BareMember => relay::member(&job),
        Role::BareRelay => relay::relay(&job),
    }?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Runs the switch until all messages were sent.
fn switch(job: &Job) -> Result<Outcome> {
    let bind = job.switch.as_deref().context("the switch has an address")?;
    let mut config = onepipe_daemon_switch::Config::new(bind.parse()?);
    if job.has_fixed_interval {
        config.heartbeat_interval_ns = 0;
    }
    config.idle = match job.idle {
        JobIdle::Spin => onepipe_transport_driver::Idle::Spin,
        JobIdle::Yield => onepipe_transport_driver::Idle::Yield,
        JobIdle::Backoff => onepipe_transport_driver::Idle::ADAPTIVE,
    };
    let mut switch = SoftwareSwitch::new(&config)?;
    let (stop, doorbell) = (AtomicBool::new(false), switch.doorbell());
    // One run for each phase: a thread of its own ends it on time.
    let run_until = |switch: &mut SoftwareSwitch, until_ns: u64| {
        stop.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let left_ns = until_ns.saturating_sub(monotonic_ns());
                std::thread::sleep(Duration::from_nanos(left_ns));
                stop.store(true, Ordering::Release);
                doorbell.ring();
            });
            switch.run(&stop, |_| {});
        });
    };
    run_until(&mut switch, job.window_ns[0]);
    let (sample, before) = (Sample::take(), *switch.socket_stats());
    run_until(&mut switch, job.window_ns[1]);
    let mut outcome = Outcome::default();
    sample.finish(&mut outcome);
    let after = switch.socket_stats();
    outcome.frames_sent = after.frames_sent - before.frames_sent;
    outcome.datagrams = outcome.frames_sent + (after.frames_received - before.frames_received);
    outcome.sends = after.sends - before.sends;
    // The processes leave after the last message.
    run_until(&mut switch, job.end_ns() + START_NS);
    Ok(outcome)
}

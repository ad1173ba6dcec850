//! All-to-all: messages per second at each receiver, in one total order.

use anyhow::{Context, Result, ensure};

use crate::hosts::Hosts;
use crate::machine_cpu::MachineCpu;
use crate::processes::{self, Api, Fabric, Job, Location, Outcome, RivalMethod, Role};
use crate::{Better, Detail, Harness, Progress, Report};

/// Bytes of the longest message measured: longer ones travel by bulk multicast.
const LEN_MAX: usize = 1 << 20;

/// Goal for the CPU time of a message at a receiver, in ns (docs/results/benchmarks.md): a constant
/// as the yardstick of the CPU time.
const CPU_GOAL_NS: f64 = 2_000.0;

/// Options of [`order`].
#[derive(Clone, Debug, PartialEq)]
pub struct OrderOptions {
    /// Message sizes in bytes: 8 to 1 MiB. Default 64 and 1,024.
    pub bytes: Vec<usize>,
    /// Measures the reliable service, with best effort as the yardstick.
    pub is_reliable: bool,
    /// Number of processes, 2 to 64. Default 3.
    pub processes: u32,
    /// Uses UDP through the software switch, or shared memory.
    pub is_udp: bool,
    /// Maximum number of scatterings that a process has in flight: it sends through `Pipe`, with
    /// `EmbeddedPipe` as the yardstick. `None`: no maximum, by programs that drive an endpoint
    /// themselves.
    pub window: Option<u32>,
    /// Measures a rival, with our protocol as the yardstick.
    pub rival: Option<RivalMethod>,
    /// Measures the switch in the kernel, with the software switch as the yardstick, between
    /// emulated hosts.
    pub is_in_kernel: bool,
    /// Whether frames in shared memory bear checksums. Default false. Those of rivals do, and so do
    /// ours in comparison with a rival.
    pub has_checksums: bool,
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Length of each run, in s. Default 2.
    pub seconds: f64,
}

impl Default for OrderOptions {
    fn default() -> Self {
        Self {
            bytes: vec![64, 1024],
            is_reliable: false,
            processes: 3,
            is_udp: true,
            window: None,
            rival: None,
            is_in_kernel: false,
            has_checksums: false,
            runs: 3,
            seconds: 2.0,
        }
    }
}

/// Measures scatterings from every process to all of them, itself included, for each message size.
/// Checks over the whole run that all receivers deliver the same order. Yardstick: bare 64-byte
/// datagrams or entries of a bare ring; for the reliable service, best effort.
///
/// A rival does the same over the same links, with a switch that only forwards, and is measured in
/// the same run as our protocol.
///
/// # Errors
/// Returns an error when a process fails, two receivers disagree on the order, or a switch
/// sequencer is requested over shared memory.
pub fn order(options: &OrderOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    ensure!((2..=64).contains(&options.processes), "2 to 64 processes, not {}", options.processes);
    let fits = |bytes: &usize| (8..=LEN_MAX).contains(bytes);
    ensure!(options.bytes.iter().all(fits), "messages have 8 to {LEN_MAX} bytes");
    if let Some(method) = options.rival {
        ensure!(!options.is_reliable, "a rival is compared with best effort");
        return rival(options, method, progress);
    }
    if options.is_in_kernel {
        return in_kernel(options, progress);
    }
    let transport = if options.is_udp { "udp" } else { "shm" };
    let yardstick = match (options.is_reliable, options.window, options.is_udp) {
        (true, ..) => "our best-effort order",
        (false, Some(_), _) => "the same by EmbeddedPipe instead of Pipe",
        (false, None, true) => "bare 64-byte datagrams over loopback (GSO and GRO)",
        (false, None, false) => "a bare ring of 64-byte entries between two cores",
    };
    let service = if options.is_reliable { "service=reliable " } else { "" };
    let window = options.window.map_or(String::new(), |window| format!(" window={window}"));
    let about = format!(
        "messages delivered at each receiver in one order, all processes scattering to all; cpu is \
         the CPU time of all processes per message and receiver; yardstick: {yardstick}"
    );
    let mut harness = Harness::new("order", &about).with_runs(options.runs).with_progress(progress);
    for &bytes in &options.bytes {
        let processes = options.processes;
        let case =
            format!("{service}transport={transport} processes={processes} bytes={bytes}{window}");
        let (mut cpu, mut embedded_cpu) = (Vec::new(), Vec::new());
        let (mut lost, mut unknown) = (0, 0);
        harness.measure(
            &case,
            "msg/s",
            Better::Higher,
            || {
                let measured = rates(options, bytes, Side::Ours)?;
                cpu.push(measured.cpu_ns);
                lost += measured.lost;
                unknown += measured.unknown;
                Ok(measured.rate)
            },
            || match (options.is_reliable, options.window, options.is_udp) {
                (true, ..) => Ok(rates(options, bytes, Side::BestEffort)?.rate),
                (false, Some(_), _) => {
                    let measured = rates(options, bytes, Side::Embedded)?;
                    embedded_cpu.push(measured.cpu_ns);
                    Ok(measured.rate)
                }
                (false, None, true) => processes::datagram_rate(options.seconds / 2.0),
                (false, None, false) => processes::ring_rate(options.seconds / 2.0),
            },
        )?;
        let per_run = |name: &str, count: u64| {
            let value = count as f64 / cpu.len() as f64;
            Detail { name: name.into(), value, unit: "messages".into() }
        };
        harness.detail(vec![per_run("lost", lost), per_run("unknown", unknown)]);
        let (mut cpu, mut embedded_cpu) = (cpu.into_iter(), embedded_cpu.into_iter());
        harness.measure(
            &format!("{case} cpu"),
            "ns",
            Better::Lower,
            || cpu.next().context("measured above"),
            || Ok(embedded_cpu.next().unwrap_or(CPU_GOAL_NS)),
        )?;
    }
    Ok(harness.finish())
}

/// Measures a rival, with our protocol as the yardstick.
fn rival(
    options: &OrderOptions,
    method: RivalMethod,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    ensure!(
        options.is_udp || method != RivalMethod::SwitchSequencer,
        "shared memory has no switch for a sequencer"
    );
    let about = "messages delivered at each receiver of a rival, all processes sending to all; cpu \
                 is the members' CPU time per message and receiver, without switch and \
                 sequencer; yardstick: our best-effort order over the same links";
    let mut harness = Harness::new("order", about).with_runs(options.runs).with_progress(progress);
    let transport = if options.is_udp { "udp" } else { "shm" };
    for &bytes in &options.bytes {
        let processes = options.processes;
        let name = method.name();
        let case =
            format!("rival={name} transport={transport} processes={processes} bytes={bytes}");
        let measure = |side| {
            let measured = rates(options, bytes, side)?;
            Ok((measured.rate, measured.cpu_ns))
        };
        measure_with_cpu(
            &mut harness,
            &case,
            || measure(Side::Rival(method)),
            || measure(Side::BestEffort),
        )?;
    }
    Ok(harness.finish())
}

/// Measures the switch in the kernel, with the software switch as the yardstick.
fn in_kernel(options: &OrderOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    ensure!(options.window.is_none(), "the switch in the kernel is measured without a window");
    ensure!(
        cfg!(feature = "xdp"),
        "this program was built without the switch in the kernel; build it with `cargo install \
         --locked --path cli --features xdp`, which needs clang"
    );
    let about = "messages delivered at each receiver in one order, all processes scattering to \
                 all, each on a host of its own (a network namespace); cpu is the time that all \
                 cores of the machine were busy per message and receiver; yardstick: the software \
                 switch between the same hosts";
    let mut harness = Harness::new("order", about).with_runs(options.runs).with_progress(progress);
    let hosts = Hosts::new(options.processes)?;
    for &bytes in &options.bytes {
        let service = if options.is_reliable { "service=reliable " } else { "" };
        let case = format!("{service}switch=kernel hosts={} bytes={bytes}", options.processes);
        let measure = |side| {
            let before = MachineCpu::now()?;
            let outcomes = run_on(options, bytes, side, Some(&hosts))?;
            let busy = MachineCpu::now()?.busy_since(&before);
            let measured = Measured::of(options, side, &outcomes)?;
            let receivers = &outcomes[..options.processes as usize];
            let messages: u64 = receivers.iter().map(|outcome| outcome.delivered).sum();
            Ok((measured.rate, busy.as_nanos() as f64 / messages as f64))
        };
        measure_with_cpu(&mut harness, &case, || measure(Side::InKernel), || measure(Side::Ours))?;
    }
    Ok(harness.finish())
}

/// Measures a case twice from the same runs: by messages per second, and by the CPU time of a
/// message in ns. Both sides return these two.
fn measure_with_cpu(
    harness: &mut Harness<'_>,
    case: &str,
    mut ours: impl FnMut() -> Result<(f64, f64)>,
    mut yardstick: impl FnMut() -> Result<(f64, f64)>,
) -> Result<()> {
    let (mut cpu, mut yardstick_cpu) = (Vec::new(), Vec::new());
    harness.measure(
        case,
        "msg/s",
        Better::Higher,
        || {
            let (rate, cpu_ns) = ours()?;
            cpu.push(cpu_ns);
            Ok(rate)
        },
        || {
            let (rate, cpu_ns) = yardstick()?;
            yardstick_cpu.push(cpu_ns);
            Ok(rate)
        },
    )?;
    let (mut cpu, mut yardstick_cpu) = (cpu.into_iter(), yardstick_cpu.into_iter());
    harness.measure(
        &format!("{case} cpu"),
        "ns",
        Better::Lower,
        || cpu.next().context("measured above"),
        || yardstick_cpu.next().context("measured above"),
    )?;
    Ok(())
}

/// Result of one run.
struct Measured {
    /// Messages per second at the slowest receiver.
    rate: f64,
    /// CPU time of all processes per message and receiver, in ns.
    cpu_ns: f64,
    /// Messages that were reported as lost, and those whose outcome is unknown.
    lost: u64,
    unknown: u64,
}

/// The protocol that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Our protocol with the service of the options.
    Ours,
    /// Our protocol with best effort, as a reference.
    BestEffort,
    /// Our protocol by programs that drive their pipes themselves, as a reference.
    Embedded,
    /// Our protocol through the switch in the kernel.
    InKernel,
    Rival(RivalMethod),
}

impl Side {
    /// Whether the side uses the reliable service.
    fn is_reliable(self, options: &OrderOptions) -> bool {
        options.is_reliable && matches!(self, Self::Ours | Self::InKernel)
    }
}

impl Measured {
    fn of(options: &OrderOptions, side: Side, outcomes: &[Outcome]) -> Result<Self> {
        let receivers = &outcomes[..options.processes as usize];
        let lost = receivers.iter().map(|outcome| outcome.lost).sum();
        let unknown = receivers.iter().map(|outcome| outcome.unknown).sum();
        // Each receiver has checked that its deliveries ascend, which implies one order. With best
        // effort a descheduled process loses messages, so logs may differ by these.
        let may_differ = side == Side::Rival(RivalMethod::Unordered)
            || (!side.is_reliable(options) && lost + unknown > 0);
        if !may_differ {
            check_same_order(receivers)?;
        }
        let messages: u64 = receivers.iter().map(|outcome| outcome.delivered).sum();
        // A rival's switch and sequencer cannot detect the end of the flood, so only the members
        // count.
        let counted = if options.rival.is_some() { receivers } else { outcomes };
        let seconds: f64 = counted.iter().map(|outcome| outcome.cpu_seconds).sum();
        let rate = |outcome: &Outcome| outcome.delivered as f64 / outcome.seconds;
        let slowest = receivers.iter().map(rate).min_by(f64::total_cmp);
        let rate = slowest.context("there are receivers")?;
        Ok(Self { rate, cpu_ns: seconds * 1e9 / messages as f64, lost, unknown })
    }
}

fn rates(options: &OrderOptions, bytes: usize, side: Side) -> Result<Measured> {
    Measured::of(options, side, &run_on(options, bytes, side, None)?)
}

/// Runs all processes, on `hosts` if there are any.
fn run_on(
    options: &OrderOptions,
    bytes: usize,
    side: Side,
    hosts: Option<&Hosts>,
) -> Result<Vec<Outcome>> {
    let method = match side {
        Side::Rival(method) => Some(method),
        Side::Ours | Side::BestEffort | Side::Embedded | Side::InKernel => None,
    };
    let is_udp = options.is_udp || hosts.is_some();
    let fabric = match is_udp {
        true => Fabric::Udp { switch: processes::free_address()?, frame_len: 1472 },
        false => {
            let name = method.map_or("ours", RivalMethod::name);
            Fabric::Shm(format!("bench-order-{name}-{}-{bytes}", std::process::id()))
        }
    };
    let fabric_of = |process| match hosts {
        Some(hosts) => Fabric::Udp { switch: hosts.switch(process), frame_len: 1472 },
        None => fabric.clone(),
    };
    let job = |process| Job {
        role: Role::AllToAll,
        fabric: fabric_of(process),
        location: Location {
            namespace: hosts.map(|hosts| hosts.namespace(process)),
            xdp: Vec::new(),
        },
        window: options.window.map(|window| match side {
            Side::Embedded => (window, Api::Embedded),
            _ => (window, Api::Pipe),
        }),
        method,
        is_reliable: side.is_reliable(options),
        process,
        processes: options.processes,
        bytes,
        has_checksums: options.has_checksums || options.rival.is_some(),
        seconds: options.seconds,
        core: None,
        idle: "backoff".to_string(),
    };
    let mut jobs: Vec<Job> = (0..options.processes).map(job).collect();
    if method == Some(RivalMethod::Sequencer) {
        jobs.push(Job { role: Role::Sequencer, ..job(options.processes) });
    }
    if let Some(hosts) = hosts {
        let fabric = Fabric::Udp { switch: Hosts::listen(), frame_len: 1472 };
        let devices = (0..options.processes).map(|host| hosts.device(host));
        let xdp = if side == Side::InKernel { devices.collect() } else { Vec::new() };
        let location = Location { namespace: None, xdp };
        jobs.push(Job { role: Role::Switch, fabric, location, ..job(0) });
    } else if is_udp {
        jobs.push(Job { role: Role::Switch, ..job(0) });
    }
    processes::run(&jobs)
}

/// Checks that the delivery logs of all receivers agree as far as the shorter of two logs goes. A
/// lost message looks like a disagreement, so the error states how many were lost.
fn check_same_order(receivers: &[Outcome]) -> Result<()> {
    let failed: u64 = receivers.iter().map(|outcome| outcome.undelivered()).sum();
    for (at, outcome) in receivers.iter().enumerate() {
        ensure!(!outcome.checkpoints.is_empty(), "process {at} delivered nothing");
        let both = outcome.checkpoints.iter().zip(&receivers[0].checkpoints);
        let same = both.take_while(|(one, other)| one == other).count();
        let common = outcome.checkpoints.len().min(receivers[0].checkpoints.len());
        ensure!(
            same == common,
            "processes 0 and {at} disagree on the order after {same} of {common} checkpoints \
             ({failed} messages were reported lost)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(checkpoints: &[u64]) -> Outcome {
        Outcome { checkpoints: checkpoints.to_vec(), ..Outcome::default() }
    }

    #[test]
    fn prefix_agrees_with_longer_log() {
        check_same_order(&[outcome(&[1, 2, 3]), outcome(&[1, 2])])
            .expect("the same as far as it goes");
    }

    #[test]
    fn detects_disagreeing_receivers() {
        let refusal =
            check_same_order(&[outcome(&[1, 2, 3]), outcome(&[1, 9, 3])]).expect_err("differ");
        assert!(refusal.to_string().contains("disagree on the order after 1 of 3"));
        assert!(check_same_order(&[outcome(&[1, 2]), outcome(&[])]).is_err());
    }
}

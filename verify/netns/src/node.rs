//! A process that scatters reliably to all others and logs its deliveries.

use std::io::{BufWriter, Write, stdout};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onepipe_base::{Controllers, Incarnation, ProcessId};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message};
use onepipe_transport_clock::{SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, LocalProcess, UdpOverlay};

/// Interval between scatterings, some hundreds per second.
const SEND_INTERVAL: Duration = Duration::from_millis(2);
/// Interval between scatterings until the direct paths to all other processes are open. Each path
/// needs a request and a reply.
const STARTUP_SEND_INTERVAL: Duration = Duration::from_millis(20);
/// Beacon interval as in the crate `onepipe`: what a shared machine sustains.
const BEACON_INTERVAL_NS: u64 = 50_000;
const PROBE_TIMEOUT_NS: u64 = 1_000_000;
const PROBES_MAX: u32 = 128;
/// Without controllers no process fails, and no receiver is given up, however busy the machine is.
const PROBES_MAX_WITHOUT_FAILURES: u32 = 100_000;
const CLOCK_FOLLOW_NS: u64 = 100_000_000;
const LINK_TIMEOUT_NS: u64 = 1_000_000_000;
/// Payload that each survivor of a failure sends last, to all survivors: a process that has
/// delivered it from every survivor has, by FIFO order, delivered everything.
const LAST_MARKER: &str = "last";
/// Size of the fabric, as in the software switch.
pub(crate) const PROCESSES_MAX: u32 = 1024;

pub(crate) type Node = Driver<Endpoint, UdpOverlay, SystemClock>;

/// Creates a process that is attached to `aggregator`; `tune` changes its configuration.
pub(crate) fn connect_node(
    aggregator: SocketAddr,
    process: u32,
    incarnation: Incarnation,
    tune: impl FnOnce(&mut Config),
    idle: Idle,
) -> Result<Node> {
    let process = ProcessId(process);
    let mut config = Config {
        links: Links::Overlay,
        processes_max: PROCESSES_MAX,
        beacon_interval_ns: BEACON_INTERVAL_NS,
        link_timeout_ns: 0,
        probe_timeout_min_ns: PROBE_TIMEOUT_NS,
        probes_max: PROBES_MAX,
        // IP networks reorder, and the configuration must say so (driver rule D4).
        reorder_packets: 0,
        ..Config::new(process, incarnation)
    };
    tune(&mut config);
    let local = LocalProcess { process, incarnation, processes_max: PROCESSES_MAX };
    let transport = UdpOverlay::connect(aggregator, local, None, &UdpConfig::default())
        .with_context(|| format!("cannot connect to the aggregator at {aggregator}"))?
        .joining();
    let endpoint = Endpoint::new(config).context("the endpoint's configuration is out of range")?;
    let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
    let driver_config = DriverConfig { idle, ..DriverConfig::default() };
    Ok(Driver::new(endpoint, transport, clock, driver_config))
}

/// Scatters `count` numbers to the processes below `process_count`. Prints each delivery, as
/// `delivered TIMESTAMP FROM NUMBER`, and each message without one, as `failed NUMBER TO`. Once
/// nothing is outstanding, prints `done DIRECT TREE`: the frames sent on direct paths and by the
/// tree since the direct paths to all others were open. Runs until standard input ends. With
/// controllers, a failed process is printed as `gone PROCESS TIMESTAMP` and gets no further
/// messages.
pub(crate) fn run(
    aggregator: SocketAddr,
    process: u32,
    process_count: u32,
    count: u64,
    controllers: Option<Controllers>,
) -> Result<()> {
    let tune = |config: &mut Config| match controllers {
        Some(_) => (config.controllers, config.link_timeout_ns) = (controllers, LINK_TIMEOUT_NS),
        None => config.probes_max = PROBES_MAX_WITHOUT_FAILURES,
    };
    let mut node =
        connect_node(aggregator, process, start_incarnation(process), tune, Idle::ADAPTIVE)?;
    let mut failed_processes: Vec<ProcessId> = Vec::new();
    let stop = crate::stop_at_end_of_input(node.doorbell());
    let mut out = BufWriter::new(stdout().lock());
    let (mut sent, mut delivered, mut is_done) = (0, 0, false);
    let (mut is_last_sent, mut last_markers) = (false, 0);
    // The statistics at the time when all direct paths were open; none before.
    let mut startup_stats = None;
    let mut next_send = Instant::now();
    while !stop.load(Ordering::Acquire) {
        if sent < count && Instant::now() >= next_send {
            let transport = node.transport();
            if startup_stats.is_none() && transport.direct_count() + 1 >= process_count as usize {
                startup_stats = Some(*transport.overlay_stats());
            }
            // While messages go by the tree, few are sent: the test expects most to go directly.
            next_send = if startup_stats.is_some() {
                next_send + SEND_INTERVAL
            } else {
                Instant::now() + STARTUP_SEND_INTERVAL
            };
            let payload = sent.to_string();
            let message = |to| Message { to: ProcessId(to), payload: payload.as_bytes() };
            let messages: Vec<_> = (0..process_count)
                .map(message)
                .filter(|message| !failed_processes.contains(&message.to))
                .collect();
            node.machine_mut().scatter_reliably(&messages).context("cannot scatter a number")?;
            sent += 1;
        }
        if sent == count && !failed_processes.is_empty() && !is_last_sent {
            let message = |to| Message { to: ProcessId(to), payload: LAST_MARKER.as_bytes() };
            let messages: Vec<_> = (0..process_count)
                .map(message)
                .filter(|message| !failed_processes.contains(&message.to))
                .collect();
            node.machine_mut().scatter_reliably(&messages).context("cannot scatter the marker")?;
            is_last_sent = true;
        }
        // The callback cannot return an error of the output, so the first one is checked after it.
        let mut result = Ok(());
        let progress = node.turn(|endpoint, event| match event {
            Event::Delivered(delivery) => {
                let payload = String::from_utf8_lossy(endpoint.payload(&delivery));
                let (at, from) = (delivery.timestamp.as_ns(), delivery.from.0);
                if result.is_ok() {
                    result = writeln!(out, "delivered {at} {from} {payload}");
                }
                delivered += 1;
                last_markers += usize::from(payload == LAST_MARKER);
                endpoint.release(delivery);
            }
            Event::SendFailed(failed) if result.is_ok() => {
                result = writeln!(out, "failed {} {}", failed.scattering.0, failed.to.0);
            }
            Event::ProcessFailed(failed) => {
                failed_processes.push(failed.process);
                endpoint.on_failure_handled();
                if result.is_ok() {
                    result = writeln!(out, "gone {} {}", failed.process.0, failed.at.as_ns());
                }
            }
            _ => {}
        });
        result?;
        let has_all = match failed_processes.len() {
            0 => delivered >= u64::from(process_count) * count,
            // A failed process sent fewer messages, so count the survivors' markers instead.
            failures => last_markers + failures >= process_count as usize,
        };
        if !is_done && sent == count && has_all && node.machine().is_drained() {
            is_done = true;
            let stats = *node.transport().overlay_stats();
            let start = startup_stats.unwrap_or(stats);
            let direct = stats.frames_direct - start.frames_direct;
            writeln!(out, "done {direct} {}", stats.frames_by_tree - start.frames_by_tree)?;
            out.flush()?;
        }
        if sent == count || progress.is_idle() {
            node.rest(progress);
        }
    }
    Ok(())
}

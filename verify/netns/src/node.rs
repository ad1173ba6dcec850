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
/// Interval until the direct paths to all other processes are open, which takes them a request and
/// a reply each.
const STARTUP_SEND_INTERVAL: Duration = Duration::from_millis(20);
/// Beacon interval as in the API: what a shared machine sustains.
const BEACON_INTERVAL_NS: u64 = 50_000;
const PROBE_TIMEOUT_NS: u64 = 1_000_000;
const PROBES_MAX: u32 = 128;
/// Without controllers no process fails, and no receiver is given up, however busy the machine is.
const PROBES_MAX_WITHOUT_FAILURES: u32 = 100_000;
const CLOCK_FOLLOW_NS: u64 = 100_000_000;
const LINK_TIMEOUT_NS: u64 = 1_000_000_000;
/// Message to all survivors after a failure, sent after everything else: a process that has
/// delivered it from every survivor has, by FIFO order, delivered everything.
const LAST_MARKER: &str = "last";
/// As in the software switch.
pub(crate) const PROCESSES_MAX: u32 = 1024;

pub(crate) type Node = Driver<Endpoint, UdpOverlay, SystemClock>;

/// Creates a process that is attached to `aggregator`.
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
        // Networks reorder (driver rule D4).
        reorder_packets: 0,
        ..Config::new(process, incarnation)
    };
    tune(&mut config);
    let own = LocalProcess { process, incarnation, processes_max: PROCESSES_MAX };
    let links = UdpOverlay::connect(aggregator, own, None, &UdpConfig::default())
        .with_context(|| format!("cannot connect to the aggregator at {aggregator}"))?;
    let endpoint = Endpoint::new(config).context("the endpoint's configuration is out of range")?;
    let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
    let driver = DriverConfig { idle, ..DriverConfig::default() };
    Ok(Driver::new(endpoint, links, clock, driver))
}

/// Scatters `count` numbers to the processes below `all`. Prints `delivered TIMESTAMP FROM NUMBER`
/// and `failed NUMBER TO`, then `done DIRECT TREE`, the frames sent since the direct paths to all
/// others were open, and runs until standard input ends. With controllers, a failed process is
/// printed as `gone PROCESS TIMESTAMP` and gets no further messages.
pub(crate) fn run(
    aggregator: SocketAddr,
    process: u32,
    all: u32,
    count: u64,
    controllers: Option<Controllers>,
) -> Result<()> {
    let tune = |config: &mut Config| match controllers {
        Some(_) => (config.controllers, config.link_timeout_ns) = (controllers, LINK_TIMEOUT_NS),
        None => config.probes_max = PROBES_MAX_WITHOUT_FAILURES,
    };
    let mut node = connect_node(aggregator, process, start_incarnation(), tune, Idle::ADAPTIVE)?;
    let mut gone: Vec<ProcessId> = Vec::new();
    let stop = crate::ends_with_input(node.doorbell());
    let mut out = BufWriter::new(stdout().lock());
    let (mut sent, mut delivered, mut is_done) = (0, 0, false);
    let (mut is_last_sent, mut last_markers) = (false, 0);
    let (mut next, mut before) = (Instant::now(), None);
    while !stop.load(Ordering::Acquire) {
        if sent < count && Instant::now() >= next {
            let transport = node.transport();
            if before.is_none() && transport.direct_count() + 1 >= all as usize {
                before = Some(*transport.overlay_stats());
            }
            next = if before.is_some() {
                next + SEND_INTERVAL
            } else {
                Instant::now() + STARTUP_SEND_INTERVAL
            };
            let payload = sent.to_string();
            let message = |to| Message { to: ProcessId(to), payload: payload.as_bytes() };
            let messages: Vec<_> =
                (0..all).map(message).filter(|message| !gone.contains(&message.to)).collect();
            node.machine_mut().scatter_reliably(&messages).context("cannot scatter a number")?;
            sent += 1;
        }
        if sent == count && !gone.is_empty() && !is_last_sent {
            let message = |to| Message { to: ProcessId(to), payload: LAST_MARKER.as_bytes() };
            let survivors = (0..all).map(message).filter(|message| !gone.contains(&message.to));
            let survivors: Vec<_> = survivors.collect();
            node.machine_mut().scatter_reliably(&survivors).context("cannot scatter the marker")?;
            is_last_sent = true;
        }
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
                gone.push(failed.process);
                endpoint.on_failure_handled();
                if result.is_ok() {
                    result = writeln!(out, "gone {} {}", failed.process.0, failed.at.as_ns());
                }
            }
            _ => {}
        });
        result?;
        let has_all = match gone.len() {
            0 => delivered >= u64::from(all) * count,
            // The number of messages from a failed process is not known.
            dead => last_markers + dead >= all as usize,
        };
        let is_through = sent == count && has_all;
        if !is_done && is_through && node.machine().is_drained() {
            is_done = true;
            let stats = *node.transport().overlay_stats();
            let before = before.unwrap_or(stats);
            let direct = stats.frames_direct - before.frames_direct;
            writeln!(out, "done {direct} {}", stats.frames_by_tree - before.frames_by_tree)?;
            out.flush()?;
        }
        if sent == count || progress.is_idle() {
            node.rest(progress);
        }
    }
    Ok(())
}

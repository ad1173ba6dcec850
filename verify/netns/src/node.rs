//! A process that scatters reliably to everybody, and logs what it delivers.

use std::io::{BufWriter, Write, stdout};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onepipe_base::{Controllers, Incarnation, ProcessId};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message};
use onepipe_transport_clock::{SystemClock, begin_life};
use onepipe_transport_driver::{Config as DriverConfig, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, UdpOverlay, Whoami};

/// One scattering in this time: every process some hundreds a second.
const PACE: Duration = Duration::from_millis(2);
/// The same until the ways to all others are open, which takes a question and an answer each: what
/// goes by the tree until then is no measure of how busy the machine is.
const FIRST_PACE: Duration = Duration::from_millis(20);
/// As the API's: what a shared machine keeps up with.
const BEACON_INTERVAL_NS: u64 = 50_000;
const PROBE_TIMEOUT_NS: u64 = 1_000_000;
const PROBES_MAX: u32 = 128;
const CLOCK_FOLLOW_NS: u64 = 100_000_000;
const STANDSTILL_NS: u64 = 1_000_000_000;
/// After a failure nothing more comes when our own messages have their fate, and nothing has come
/// for this long.
const QUIET: Duration = Duration::from_secs(2);
/// As the software switch's.
pub(crate) const PROCESSES_MAX: u32 = 1024;

pub(crate) type Station = Driver<Endpoint, UdpOverlay, SystemClock>;

/// A process that hangs on `aggregator`.
pub(crate) fn station(
    aggregator: SocketAddr,
    process: u32,
    incarnation: Incarnation,
    tune: impl FnOnce(&mut Config),
    idle: Idle,
) -> Result<Station> {
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
    let own = Whoami { process, incarnation, processes_max: PROCESSES_MAX };
    let links = UdpOverlay::connect(aggregator, own, None, &UdpConfig::default())
        .with_context(|| format!("no way to {aggregator}"))?;
    let endpoint = Endpoint::new(config).context("numbers out of range")?;
    let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
    let driver = DriverConfig { idle, ..DriverConfig::default() };
    Ok(Driver::new(endpoint, links, clock, driver))
}

/// Scatters `count` numbers to the processes below `all`, prints `delivered TIMESTAMP FROM NUMBER`
/// and `failed NUMBER TO`, then `done DIRECT TREE`, and stays until its input ends. Where there are
/// controllers a process that fails is told as `gone PROCESS TIMESTAMP`, and sent nothing more.
pub(crate) fn run(
    aggregator: SocketAddr,
    process: u32,
    all: u32,
    count: u64,
    controllers: Option<Controllers>,
) -> Result<()> {
    let tune = |config: &mut Config| {
        if controllers.is_some() {
            (config.controllers, config.link_timeout_ns) = (controllers, STANDSTILL_NS);
        }
    };
    let mut station = station(aggregator, process, begin_life(), tune, Idle::CIVIL)?;
    let mut gone: Vec<ProcessId> = Vec::new();
    let mut last = Instant::now();
    let stop = crate::ends_with_input(station.doorbell());
    let mut out = BufWriter::new(stdout().lock());
    let (mut sent, mut delivered, mut is_done) = (0, 0, false);
    // Of our own, to ourselves: delivered, or taken back.
    let mut own_known = 0;
    let (mut next, mut was_open) = (Instant::now(), false);
    while !stop.load(Ordering::Acquire) {
        if sent < count && Instant::now() >= next {
            was_open |= station.transport().direct_count() + 1 >= all as usize;
            next = if was_open { next + PACE } else { Instant::now() + FIRST_PACE };
            let payload = sent.to_string();
            let message = |to| Message { to: ProcessId(to), payload: payload.as_bytes() };
            let messages: Vec<_> =
                (0..all).map(message).filter(|message| !gone.contains(&message.to)).collect();
            station.machine_mut().scatter_reliably(&messages).context("cannot scatter")?;
            sent += 1;
        }
        let mut result = Ok(());
        let progress = station.turn(|endpoint, event| match event {
            Event::Delivered(delivery) => {
                let payload = String::from_utf8_lossy(endpoint.payload(&delivery));
                let (at, from) = (delivery.timestamp.as_ns(), delivery.from.0);
                if result.is_ok() {
                    result = writeln!(out, "delivered {at} {from} {payload}");
                }
                delivered += 1;
                own_known += u64::from(from == process);
                last = Instant::now();
                endpoint.release(delivery);
            }
            Event::SendFailed(failed) => {
                own_known += u64::from(failed.to.0 == process);
                if result.is_ok() {
                    result = writeln!(out, "failed {} {}", failed.scattering.0, failed.to.0);
                }
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
            // Nobody can say how many of its messages there are.
            _ => own_known >= count && last.elapsed() >= QUIET,
        };
        let is_through = sent == count && has_all;
        if !is_done && is_through && station.machine().is_settled() {
            is_done = true;
            let stats = station.transport().overlay_stats();
            writeln!(out, "done {} {}", stats.frames_direct, stats.frames_by_tree)?;
            out.flush()?;
        }
        if sent == count || progress.is_idle() {
            station.rest(progress);
        }
    }
    Ok(())
}

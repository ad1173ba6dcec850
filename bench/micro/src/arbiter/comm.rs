//! `bench arbiter comm`: cost of a granted timeslot at the daemon, including its sockets.

mod endpoint;
mod endpoints;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use hdrhistogram::Histogram;
use onepipe_base::ProcessId;
use onepipe_daemon_arbiter::{ArbiterDaemon, Config, Report as DaemonReport};
use onepipe_transport_clock::cores;
use onepipe_transport_driver::Idle;

use self::endpoint::DESTINATIONS;
use self::endpoints::{EndpointUsage, Endpoints};
use super::workers::thread_cpu_time;
use crate::{Better, Detail, Harness, Progress, Report};

/// Options of [`arbiter_comm`].
#[derive(Clone, Debug, PartialEq)]
pub struct CommOptions {
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Length of each run, in s. Default 1.
    pub seconds: f64,
    /// Numbers of endpoints. Default 64 and 256.
    pub nodes: Vec<u32>,
    /// Worker threads that allocate timeslots beside the I/O thread. Default none: the I/O thread
    /// allocates as well.
    pub workers: usize,
}

impl Default for CommOptions {
    fn default() -> Self {
        Self { runs: 3, seconds: 1.0, nodes: vec![64, 256], workers: 0 }
    }
}

const ABOUT: &str = "the arbiter's daemon over UDP: control packets in, allocation, paths, control \
                    packets out, in CPU time of its I/O thread; endpoints with a permanent backlog, \
                    four destinations each; yardstick: a thread that receives and sends as many \
                    bare datagrams";
/// Process id of the arbiter.
const ARBITER: ProcessId = ProcessId(5_000);
/// Total traffic demand of the endpoints, at 1500 bytes per timeslot, in bit/s: more than the
/// 130 Gbit/s of the paper.
const TRAFFIC_BPS: u64 = 150_000_000_000;
/// Bits of a 1500-byte packet, the unit of the Fastpass paper.
const PACKET_BITS: u64 = 12_000;
/// Time until arbiter and endpoints have exchanged their resets.
const WARM_UP: Duration = Duration::from_millis(300);

/// Returns the length of a timeslot that yields [`TRAFFIC_BPS`].
const fn slot_ns(nodes: u32) -> u64 {
    nodes as u64 * PACKET_BITS * 1_000_000_000 / TRAFFIC_BPS
}

/// Measures the CPU time of a granted timeslot.
///
/// # Errors
/// Returns an error when nothing is granted or the system refuses a socket.
pub fn arbiter_comm(options: &CommOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let harness = Harness::new("arbiter comm", ABOUT).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    let time = Duration::from_secs_f64(options.seconds);
    for &nodes in &options.nodes {
        let mut details = Vec::new();
        // Datagrams per timeslot in the previous run.
        let datagrams = std::cell::Cell::new(0.0);
        harness.measure(
            &format!("nodes={nodes} slot={}ns workers={}", slot_ns(nodes), options.workers),
            "ns/timeslot",
            Better::Lower,
            || {
                let run = run(nodes, time, options.workers)?;
                details = run.details();
                datagrams.set(run.packets() as f64 / run.counters.slots_granted as f64);
                Ok(run.cpu_ns_per_slot())
            },
            || Ok(bare_datagram_ns(time / 4)? * datagrams.get()),
        )?;
        harness.detail(details);
    }
    Ok(harness.finish())
}

/// Result of a run: the daemon's counters and its CPU time.
struct Run {
    counters: DaemonReport,
    seconds: f64,
    spent: Duration,
    /// Lengths of polls that received something, in ns: an upper bound of the queueing delay of
    /// packets that arrive meanwhile.
    turn_times: Histogram<u64>,
    /// Usage of the endpoints' thread.
    endpoints: EndpointUsage,
}

impl Run {
    /// Returns the CPU time per granted timeslot, in ns.
    fn cpu_ns_per_slot(&self) -> f64 {
        self.spent.as_nanos() as f64 / self.counters.slots_granted as f64
    }

    fn packets(&self) -> u64 {
        self.counters.packets_received + self.counters.packets_sent
    }

    fn details(&self) -> Vec<Detail> {
        let detail = |name: &str, value: f64, unit: &str| Detail {
            name: name.to_string(),
            value,
            unit: unit.to_string(),
        };
        let DaemonReport { slots_granted, slots_demanded, packets_received, packets_sent, .. } =
            self.counters;
        let rate = |count: u64| count as f64 / self.seconds;
        vec![
            detail("asked for", rate(slots_demanded), "slots/s"),
            detail("granted", rate(slots_granted), "slots/s"),
            detail("packets in", rate(packets_received), "/s"),
            detail("packets out", rate(packets_sent), "/s"),
            detail("pure acknowledgements", rate(self.counters.acks_sent), "/s"),
            detail("busy", self.spent.as_secs_f64() / self.seconds * 100.0, "%"),
            detail(
                "endpoints busy",
                self.endpoints.spent.as_secs_f64() / self.seconds * 100.0,
                "%",
            ),
            detail("dropped before the endpoints", rate(self.endpoints.lost.into()), "/s"),
            detail("turn p50", self.turn_times.value_at_quantile(0.5) as f64 / 1e3, "us"),
            detail("turn p99", self.turn_times.value_at_quantile(0.99) as f64 / 1e3, "us"),
            detail("per core", PACKET_BITS as f64 / self.cpu_ns_per_slot(), "Gbit/s"),
        ]
    }
}

/// Runs the daemon in its own thread and all endpoints in this one, behind one socket that acts as
/// the daemon's switch. Packets in timeslots are not sent.
fn run(nodes: u32, time: Duration, workers: usize) -> Result<Run> {
    ensure!(
        nodes > DESTINATIONS as u32,
        "each of {nodes} endpoints sends to {DESTINATIONS} others"
    );
    let mut endpoints = Endpoints::new(nodes, ARBITER, slot_ns(nodes))?;
    let mut config = Config::new(endpoints.addr()?, ARBITER, nodes, slot_ns(nodes));
    // Idle polling must not count as CPU time.
    config.idle = Idle::Backoff { spins: 0, yields: 0 };
    if workers > 0 {
        config.cores = cores()?.into_iter().cycle().take(1 + workers).collect();
    }
    let daemon = ArbiterDaemon::new(&config)?;
    let (doorbell, stop, is_warm) =
        (daemon.doorbell(), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| serve(daemon, &is_warm, &stop));
        endpoints.run_for(WARM_UP);
        is_warm.store(true, Ordering::Release);
        let usage = endpoints.run_for(time);
        stop.store(true, Ordering::Release);
        doorbell.ring();
        let mut run = daemon.join().map_err(|_| anyhow!("the daemon thread panicked"))??;
        run.endpoints = usage;
        ensure!(run.counters.slots_granted > 0, "nothing was granted");
        Ok(run)
    })
}

/// Polls the daemon; counters start when `is_warm` is set.
fn serve(mut daemon: ArbiterDaemon, is_warm: &AtomicBool, stop: &AtomicBool) -> Result<Run> {
    let mut turn_times = Histogram::new_with_bounds(1, 10_000_000_000, 3)?;
    let mut baseline = None;
    while !stop.load(Ordering::Acquire) {
        if baseline.is_none() && is_warm.load(Ordering::Acquire) {
            baseline = Some((daemon.report(), thread_cpu_time(), Instant::now()));
        }
        let begin = Instant::now();
        let progress = daemon.turn(|_| {});
        if baseline.is_some() && progress.frames_received > 0 {
            turn_times.saturating_record(begin.elapsed().as_nanos() as u64);
        }
        daemon.rest(progress);
    }
    let (before, spent_before, began) =
        baseline.unwrap_or_else(|| (daemon.report(), thread_cpu_time(), Instant::now()));
    let mut counters = daemon.report();
    counters.slots_granted -= before.slots_granted;
    counters.slots_demanded -= before.slots_demanded;
    counters.packets_received -= before.packets_received;
    counters.packets_sent -= before.packets_sent;
    counters.acks_sent -= before.acks_sent;
    let seconds = began.elapsed().as_secs_f64();
    let spent = thread_cpu_time() - spent_before;
    Ok(Run { counters, seconds, spent, turn_times, endpoints: EndpointUsage::default() })
}

/// Returns the CPU time per datagram, received or sent, of a thread that echoes datagrams.
fn bare_datagram_ns(time: Duration) -> Result<f64> {
    const LEN: usize = 200;
    let [one, other] = [(); 2].map(|()| UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))));
    let (one, other) = (one?, other?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    one.set_read_timeout(Some(Duration::from_millis(100)))?;
    other.set_read_timeout(Some(Duration::from_millis(100)))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let responder = scope.spawn(|| {
            let (mut count, mut frame) = (0u64, [0; LEN]);
            let before = thread_cpu_time();
            while !stop.load(Ordering::Acquire) {
                if let Ok(bytes) = other.recv(&mut frame) {
                    count += 1 + u64::from(other.send(&frame[..bytes]).is_ok());
                }
            }
            (thread_cpu_time() - before).as_nanos() as f64 / count.max(1) as f64
        });
        let (end, mut frame) = (Instant::now() + time, [0; LEN]);
        while Instant::now() < end {
            // As many in flight as the daemon receives in one batch.
            for _ in 0..16 {
                let _ = one.send(&frame);
            }
            for _ in 0..16 {
                let _ = one.recv(&mut frame);
            }
        }
        stop.store(true, Ordering::Release);
        responder.join().map_err(|_| anyhow!("the responder thread panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_grants_requested_timeslots() {
        for workers in [0, 1] {
            let run = run(8, Duration::from_millis(300), workers).expect("timeslots are granted");
            assert!(run.counters.packets_received > 0 && run.cpu_ns_per_slot() > 0.0);
            assert!(!run.turn_times.is_empty());
        }
        assert!(bare_datagram_ns(Duration::from_millis(50)).is_ok_and(|ns| ns > 0.0));
    }
}

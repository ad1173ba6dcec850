//! `onepipe demo arbiter`: the same incast without and with an arbiter.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::incast::{Incast, Phase, Snapshot, Timeslots};
use crate::units::{self, readable, readable_ns};

/// Interval of progress lines.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  onepipe demo arbiter                           4 senders, one receiver, links of 100 Mbit/s
  onepipe demo arbiter --senders 16 --link-rate 50M --queue 4MiB
  onepipe demo arbiter --json | tail -n 1        for programs";

/// Send from many to one, with TCP alone and then in timeslots of an arbiter; compare queues and
/// RTT
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Number of concurrent senders
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=48))]
    senders: u32,
    /// Rate of the switch's links in bit/s
    #[arg(long, value_name = "BITS", default_value = "100M", value_parser = units::bits_per_s)]
    link_rate: u64,
    /// Size of the queue before each link of the switch
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = units::bytes)]
    queue: usize,
    /// Length of each phase in seconds
    #[arg(long, default_value = "4", value_parser = units::seconds)]
    seconds: f64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Result of one phase.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    goodput_bits_per_s: f64,
    queue_bytes: Quantiles,
    ping_ns: Quantiles,
    pings: u64,
    frames_lost: u64,
    segments_sent: u64,
    /// Bytes of the flows that were received.
    received_bytes: u64,
    timeslots: Timeslots,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Quantiles {
    p50: u64,
    p99: u64,
    max: u64,
}

#[derive(Debug, Serialize)]
struct Summary {
    senders: u32,
    link_bits_per_s: u64,
    seconds: f64,
    unscheduled: Outcome,
    scheduled: Outcome,
    /// Median RTT, unscheduled over scheduled.
    ping_ratio: f64,
    /// Goodput, scheduled over unscheduled.
    goodput_ratio: f64,
    timeslots_granted_twice: u64,
}

/// Runs both phases, one after the other, and compares them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_flag = Arc::clone(&stop);
    crate::interrupt::on_interrupt(move || stop_flag.store(true, Ordering::Release))?;
    let Arguments { senders, link_rate, queue, seconds, .. } = *arguments;
    let incast = Incast { senders, bits_per_s: link_rate, queue_bytes: queue };
    onepipe_transport_clock::reduce_wakeup_latency();
    let mut outcomes = Vec::new();
    let mut granted_twice = 0;
    for is_scheduled in [false, true] {
        let Some(snapshot) = run_phase(incast, is_scheduled, seconds, &stop)? else {
            eprintln!("onepipe: interrupted");
            return Ok(ExitCode::from(crate::interrupt::EXIT_STATUS));
        };
        granted_twice += snapshot.timeslots.granted_twice;
        outcomes.push(Outcome::of(&snapshot));
    }
    let [unscheduled, scheduled] = <[Outcome; 2]>::try_from(outcomes)
        .map_err(|outcomes| anyhow::anyhow!("{} outcomes of two phases", outcomes.len()))?;
    let summary = Summary {
        senders,
        link_bits_per_s: link_rate,
        seconds,
        ping_ratio: unscheduled.ping_ns.p50 as f64 / scheduled.ping_ns.p50.max(1) as f64,
        goodput_ratio: scheduled.goodput_bits_per_s / unscheduled.goodput_bits_per_s.max(1.0),
        unscheduled,
        scheduled,
        timeslots_granted_twice: granted_twice,
    };
    summary.print(arguments.json).context("cannot write the summary")?;
    Ok(if granted_twice == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one phase and prints its progress. Returns `None` if it was interrupted.
fn run_phase(
    incast: Incast,
    is_scheduled: bool,
    seconds: f64,
    stop: &AtomicBool,
) -> Result<Option<Snapshot>> {
    let name = if is_scheduled { "scheduled" } else { "unscheduled" };
    let phase = Phase::begin(incast, is_scheduled)?;
    let began = Instant::now();
    let mut before = phase.snapshot();
    while began.elapsed().as_secs_f64() < seconds {
        std::thread::sleep(REPORT_INTERVAL.min(Duration::from_secs_f64(seconds)));
        if stop.load(Ordering::Acquire) {
            return Ok(None);
        }
        let snapshot = phase.snapshot();
        let bytes = snapshot.received_bytes - before.received_bytes;
        let rate = bytes as f64 * 8.0 / (snapshot.seconds - before.seconds).max(1e-3);
        eprintln!(
            "{name:>11} {:>5.1} s: {:>7}bit/s, {:>6} bytes queued, ping {}",
            snapshot.seconds,
            readable(rate),
            readable(snapshot.queues.present_bytes as f64),
            readable_ns(snapshot.pings.value_at_quantile(0.5)),
        );
        before = snapshot;
    }
    phase.end().map(Some)
}

impl Outcome {
    fn of(snapshot: &Snapshot) -> Self {
        let [p50, _, p99, _, max] = snapshot.queues.bytes;
        let ping = |quantile| snapshot.pings.value_at_quantile(quantile);
        Self {
            goodput_bits_per_s: snapshot.received_bytes as f64 * 8.0 / snapshot.seconds.max(1e-3),
            queue_bytes: Quantiles { p50, p99, max },
            ping_ns: Quantiles { p50: ping(0.5), p99: ping(0.99), max: snapshot.pings.max() },
            pings: snapshot.pings.len(),
            frames_lost: snapshot.queues.dropped,
            segments_sent: snapshot.segments_sent,
            received_bytes: snapshot.received_bytes,
            timeslots: snapshot.timeslots,
        }
    }
}

impl Summary {
    fn print(&self, is_json: bool) -> Result<()> {
        let mut out = stdout().lock();
        if is_json {
            serde_json::to_writer(&mut out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        let (one, other) = (&self.unscheduled, &self.scheduled);
        let bits = |outcome: &Outcome| format!("{}bit/s", readable(outcome.goodput_bits_per_s));
        let bytes = |bytes: u64| readable(bytes as f64);
        let rows = [
            ("goodput", bits(one), bits(other)),
            ("bytes queued, p50", bytes(one.queue_bytes.p50), bytes(other.queue_bytes.p50)),
            ("bytes queued, p99", bytes(one.queue_bytes.p99), bytes(other.queue_bytes.p99)),
            ("ping, p50", readable_ns(one.ping_ns.p50), readable_ns(other.ping_ns.p50)),
            ("ping, p99", readable_ns(one.ping_ns.p99), readable_ns(other.ping_ns.p99)),
            ("frames lost", one.frames_lost.to_string(), other.frames_lost.to_string()),
        ];
        writeln!(
            out,
            "{} senders, links of {}bit/s\n{:<20} {:>14} {:>14}",
            self.senders,
            readable(self.link_bits_per_s as f64),
            "",
            "unscheduled",
            "scheduled"
        )?;
        for (what, one, other) in rows {
            writeln!(out, "{what:<20} {one:>14} {other:>14}")?;
        }
        Ok(())
    }
}

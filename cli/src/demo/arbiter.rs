//! `onepipe demo arbiter`: the same incast without and with an arbiter.

use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use onepipe_bench_micro::{Incast, IncastOutcome, IncastPhase};
use serde::Serialize;

use crate::interrupt;
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

/// Result of both phases, as printed.
#[derive(Debug, Serialize)]
struct Summary {
    senders: u32,
    link_bits_per_s: u64,
    seconds: f64,
    unscheduled: IncastOutcome,
    scheduled: IncastOutcome,
    /// Median RTT, unscheduled over scheduled.
    ping_ratio: f64,
    /// Goodput, scheduled over unscheduled.
    goodput_ratio: f64,
    timeslots_granted_twice: u64,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let summary = run_phases(arguments, &*interrupt::flag()?)?;
    super::conclude(&summary, arguments.json, summary.timeslots_granted_twice == 0)
}

/// Runs both phases, one after the other, and compares them.
fn run_phases(arguments: &Arguments, stop: &AtomicBool) -> Result<Summary> {
    let Arguments { senders, link_rate, queue, seconds, .. } = *arguments;
    let incast = Incast { senders, bits_per_s: link_rate, queue_bytes: queue };
    onepipe_transport_clock::reduce_wakeup_latency();
    let unscheduled = run_phase(incast, false, seconds, stop)?;
    let scheduled = run_phase(incast, true, seconds, stop)?;
    Ok(Summary {
        senders,
        link_bits_per_s: link_rate,
        seconds,
        ping_ratio: unscheduled.ping_ns.p50 as f64 / scheduled.ping_ns.p50.max(1) as f64,
        goodput_ratio: scheduled.goodput_bits_per_s / unscheduled.goodput_bits_per_s.max(1.0),
        timeslots_granted_twice: scheduled.timeslots.granted_twice,
        unscheduled,
        scheduled,
    })
}

/// Runs one phase and prints its progress.
fn run_phase(
    incast: Incast,
    is_scheduled: bool,
    seconds: f64,
    stop: &AtomicBool,
) -> Result<IncastOutcome> {
    let name = if is_scheduled { "scheduled" } else { "unscheduled" };
    let phase = IncastPhase::begin(incast, is_scheduled)?;
    let began = Instant::now();
    let mut before = phase.snapshot();
    while began.elapsed().as_secs_f64() < seconds {
        std::thread::sleep(REPORT_INTERVAL.min(Duration::from_secs_f64(seconds)));
        interrupt::check(stop)?;
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
    Ok(phase.end()?.outcome())
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, other) = (&self.unscheduled, &self.scheduled);
        let bits =
            |outcome: &IncastOutcome| format!("{}bit/s", readable(outcome.goodput_bits_per_s));
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
            f,
            "{} senders, links of {}bit/s\n{:<20} {:>14} {:>14}",
            self.senders,
            readable(self.link_bits_per_s as f64),
            "",
            "unscheduled",
            "scheduled"
        )?;
        rows.iter()
            .try_for_each(|(what, one, other)| writeln!(f, "{what:<20} {one:>14} {other:>14}"))
    }
}

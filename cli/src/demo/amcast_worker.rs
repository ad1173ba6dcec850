//! A replica or a client of `onepipe demo amcast`: runs until its standard input ends, and reports
//! in lines of JSON.

use std::io::{Read, Write, stdin, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use onepipe::{Amcast, AmcastReplica};
use serde::{Deserialize, Serialize};

use crate::amcast::GroupArgs;
use crate::args::address;

/// Interval of reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// Deliveries between two checkpoints of the order.
const CHECKPOINT: u64 = 256;
/// Time for a client to complete its messages before it exits.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which a replica checks whether it is to exit.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Sleep of an idle client.
const IDLE_SLEEP: Duration = Duration::from_micros(200);

/// One replica or client of a demo
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    groups: GroupArgs,
    /// Own address
    #[arg(long, value_parser = address)]
    listen: SocketAddr,
    /// Run a client instead of a replica
    #[arg(long)]
    sends: bool,
    /// Bytes per message
    #[arg(long, default_value_t = 150)]
    size: usize,
    /// Messages per second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
}

/// Report of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerReport {
    Replica(Delivered),
    Client(Sent),
}

/// Deliveries of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    pub count: u64,
    /// Hash of all deliveries in order.
    pub hash: u64,
    /// The hash after every [`CHECKPOINT`] deliveries.
    pub checkpoints: Vec<u64>,
    /// Longest gap between deliveries since the previous report, in ns, and its end, in ns since
    /// 1970.
    pub gap_ns: u64,
    pub gap_until_ns: u64,
    /// Whether it missed more messages than members retain.
    pub is_behind: bool,
}

/// Messages sent by a client, and those that are complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub sent: u64,
    pub completed: u64,
}

/// Returns the time in ns since 1970, the common clock of the demo's processes.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Runs until standard input ends.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let directory = arguments.groups.directory()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stop_flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        // An error ends the input as well.
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        stop_flag.store(true, Ordering::Release);
    });
    if arguments.sends {
        let client = Amcast::open(&directory, arguments.listen).context("cannot start")?;
        send(client, arguments, &stop)?;
    } else {
        let replica = AmcastReplica::open(&directory, arguments.listen).context("cannot start")?;
        deliver(replica, &stop)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_report(report: &WorkerReport) -> Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    writeln!(out)?;
    out.flush().context("cannot write to the parent process")
}

/// Sends at the given rate as the window permits; on exit waits until all messages are complete.
fn send(mut client: Amcast, arguments: &Arguments, stop: &AtomicBool) -> Result<()> {
    let mut sent = Sent::default();
    let mut message = vec![0; arguments.size.max(8)];
    print_report(&WorkerReport::Client(sent))?;
    let began = Instant::now();
    let (mut last_report, mut deadline) = (began, None);
    while deadline.is_none_or(|deadline| Instant::now() < deadline && sent.completed < sent.sent) {
        if deadline.is_none() && stop.load(Ordering::Acquire) {
            deadline = Some(Instant::now() + DRAIN_TIMEOUT);
        }
        let due = (began.elapsed().as_secs_f64() * arguments.rate) as u64;
        let mut can_send = deadline.is_none();
        while can_send && sent.sent < due {
            message[..8].copy_from_slice(&sent.sent.to_be_bytes());
            can_send = client.amcast(&[0], &message).is_ok();
            sent.sent += u64::from(can_send);
        }
        let before = sent.completed;
        client.poll(|_| sent.completed += 1);
        if sent.completed == before {
            std::thread::sleep(IDLE_SLEEP);
        }
        if last_report.elapsed() >= REPORT_INTERVAL {
            last_report = Instant::now();
            print_report(&WorkerReport::Client(sent))?;
        }
    }
    print_report(&WorkerReport::Client(sent))
}

/// Delivers until `stop` is set.
fn deliver(mut replica: AmcastReplica, stop: &AtomicBool) -> Result<()> {
    let mut delivered = Delivered::default();
    print_report(&WorkerReport::Replica(delivered.clone()))?;
    let (mut last_report, mut last_delivery_ns) = (Instant::now(), None);
    while !stop.load(Ordering::Acquire) && !delivered.is_behind {
        let mut has_delivered = false;
        let waited = replica.wait(POLL_INTERVAL, |message, id, position| {
            has_delivered = true;
            delivered.record(message, (id.client, id.sequence), position.0);
        });
        delivered.is_behind = waited.is_err();
        if has_delivered {
            delivered.record_gap(&mut last_delivery_ns);
        }
        if last_report.elapsed() >= REPORT_INTERVAL {
            last_report = Instant::now();
            print_report(&WorkerReport::Replica(delivered.clone()))?;
            delivered.checkpoints.clear();
            delivered.gap_ns = 0;
        }
    }
    print_report(&WorkerReport::Replica(delivered))
}

impl Delivered {
    /// Adds a delivery to the count and to the hash.
    fn record(&mut self, message: &[u8], (client, sequence): (u32, u32), position: u64) {
        let number = message.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        for word in [u64::from(client) << 32 | u64::from(sequence), position, number] {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.count += 1;
        if self.count.is_multiple_of(CHECKPOINT) {
            self.checkpoints.push(self.hash);
        }
    }

    /// Records the gap since the previous delivery.
    fn record_gap(&mut self, last_delivery_ns: &mut Option<u64>) {
        let now_ns = unix_ns();
        if let Some(before) = last_delivery_ns.replace(now_ns) {
            let gap_ns = now_ns.saturating_sub(before);
            if gap_ns > self.gap_ns {
                (self.gap_ns, self.gap_until_ns) = (gap_ns, now_ns);
            }
        }
    }
}

//! The endpoint alone: two endpoints on one core, connected by a buffer.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message};
use onepipe_transport_driver::DrivenMachine;

use crate::{Better, Harness, Progress, Report};

/// Options of [`endpoint`].
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointOptions {
    /// Number of runs of each side. Default 5.
    pub runs: usize,
    /// Messages per run. Default 4 million.
    pub messages: u64,
    /// Maximum frame length in bytes. Default 8,192.
    pub frame_len: usize,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self { runs: 5, messages: 4_000_000, frame_len: 8192 }
    }
}

/// Measures 64-byte messages on one core: submit, stamp, coalesce, seal, check, reorder, deliver
/// and acknowledge. Yardstick: copying the 64 bytes as often as the endpoints must (into the send
/// buffer, the frame and the receive buffer) through a buffer of the same depth.
///
/// # Errors
/// Returns an error when messages are lost or out of order.
pub fn endpoint(options: &EndpointOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let about = "64-byte messages through two endpoints on one core, no transport; yardstick: \
                 three copies of the 64 bytes";
    let mut harness =
        Harness::new("endpoint", about).with_runs(options.runs).with_progress(progress);
    let case = format!("bytes=64 frame={}", options.frame_len);
    harness.measure(
        &case,
        "msg/s",
        Better::Higher,
        || through_endpoints(options),
        || Ok(through_copies(options.messages)),
    )?;
    Ok(harness.finish())
}

/// Returns the cost of a 64-byte message on one core, from submission to delivery including its
/// share of the acknowledgements, in ns: the median of five runs.
///
/// # Errors
/// Returns an error when messages are lost or out of order.
pub fn message_ns() -> Result<f64> {
    let options = EndpointOptions { messages: 500_000, ..EndpointOptions::default() };
    let mut costs = Vec::new();
    for _ in 0..options.runs {
        costs.push(1e9 / through_endpoints(&options)?);
    }
    costs.sort_by(f64::total_cmp);
    Ok(costs[costs.len() / 2])
}

fn through_endpoints(options: &EndpointOptions) -> Result<f64> {
    let new_endpoint = |process| {
        Endpoint::new(Config {
            links: Links::Mesh,
            processes_max: 2,
            beacon_interval_ns: 0,
            frame_len_max: options.frame_len,
            ..Config::new(ProcessId(process), Incarnation(1))
        })
    };
    let (mut sender, mut receiver) = (new_endpoint(0)?, new_endpoint(1)?);
    let mut slot = vec![0; options.frame_len];
    let (mut ns, mut sent, mut delivered) = (1 << 40, 0u64, 0u64);
    let mut payload = [7; 64];
    let start = Instant::now();
    while delivered < options.messages {
        while sender.send_buffer_bytes() < 96 << 10 && sent < options.messages {
            payload[..8].copy_from_slice(&sent.to_le_bytes());
            sender.scatter(&[Message { to: ProcessId(1), payload: &payload }])?;
            sent += 1;
        }
        ns += 10_000;
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) };
        exchange_frames(now, Port(0), &mut sender, &mut receiver, &mut slot);
        exchange_frames(now, Port(1), &mut receiver, &mut sender, &mut slot);
        let mut misplaced = None;
        // As a driver hands them out.
        receiver.poll_events(usize::MAX, &mut |receiver, event| {
            let Event::Delivered(delivery) = event else { return };
            let word =
                receiver.payload(&delivery).first_chunk().map(|word| u64::from_le_bytes(*word));
            if word != Some(delivered) {
                misplaced = Some((word, delivered));
            }
            delivered += 1;
            receiver.release(delivery);
        });
        ensure!(misplaced.is_none(), "delivered, and what was expected: {misplaced:?}");
    }
    Ok(options.messages as f64 / start.elapsed().max(Duration::from_nanos(1)).as_secs_f64())
}

/// Runs `one` once and hands its frames to `other` without delay.
fn exchange_frames(
    now: Now,
    port: Port,
    one: &mut Endpoint,
    other: &mut Endpoint,
    slot: &mut [u8],
) {
    if one.poll_timeout().is_some_and(|due| due <= now.mono) {
        one.handle_timeout(now);
    }
    while let Some(transmit) = one.poll_transmit(now, slot) {
        other.handle_frame(now, port, &mut slot[..transmit.bytes]);
    }
    if let Some(promises) = one.promises() {
        other.handle_promises(now, port, promises);
    }
}

fn through_copies(messages: u64) -> f64 {
    const DEPTH: usize = 512;
    let mut buffers = [[[0u8; 64]; DEPTH], [[0; 64]; DEPTH], [[0; 64]; DEPTH]];
    let start = Instant::now();
    for number in 0..messages {
        let at = number as usize % DEPTH;
        buffers[0][at][..8].copy_from_slice(&number.to_le_bytes());
        buffers[1][at] = black_box(buffers[0][at]);
        buffers[2][at] = black_box(buffers[1][at]);
    }
    black_box(&buffers);
    messages as f64 / start.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}

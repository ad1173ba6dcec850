//! The endpoint alone: two endpoints on one core, connected by a buffer.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message};
use onepipe_transport_driver::DrivenMachine;
use onepipe_wire::{Opcode, parse_header};

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
    let messages = options.messages.min(ACKED_MESSAGES_MAX);
    harness.measure(
        "receiving an acknowledgement; yardstick: a 64-byte message, with acknowledging it",
        "ns",
        Better::Lower,
        || Ok(receive_costs(messages)?.ack_ns),
        || Ok(receive_costs(messages)?.message_ns),
    )?;
    Ok(harness.finish())
}

/// Most messages that are measured with an acknowledgement for each.
const ACKED_MESSAGES_MAX: u64 = 500_000;
/// Number of messages between two readings of the clock.
const BATCH: usize = 64;
/// Number of batches before the measurement: the connection opens, and its window grows.
const WARM_UP_BATCHES: usize = 100;

/// CPU times of reception, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ReceiveCosts {
    /// Of a message: its frame, its delivery and its acknowledgement.
    message_ns: f64,
    /// Of a frame with the acknowledgement of one message.
    ack_ns: f64,
}

/// Measures reliable 64-byte messages, each in a frame of its own, which the receiver acknowledges
/// in a frame of its own, as messages to many receivers are.
fn receive_costs(messages: u64) -> Result<ReceiveCosts> {
    const FRAME_LEN: usize = 1472;
    let (mut sender, mut receiver) = (new_endpoint(0, FRAME_LEN)?, new_endpoint(1, FRAME_LEN)?);
    let mut frames = vec![vec![0; FRAME_LEN]; BATCH];
    let mut acks = vec![vec![0; FRAME_LEN]; 2 * BATCH];
    let (mut frame_lens, mut ack_lens) = (Vec::new(), Vec::new());
    let (mut message_time, mut ack_time) = (Duration::ZERO, Duration::ZERO);
    let (mut ns, mut delivered, mut acked) = (1 << 40, 0u64, 0u64);
    let mut batches = 0;
    while delivered < messages {
        let is_measured = batches >= WARM_UP_BATCHES;
        ensure!(batches < WARM_UP_BATCHES + 4 * messages as usize, "messages are not delivered");
        batches += 1;
        ns += 10_000;
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) };
        sender.handle_timeout(now);
        frame_lens.clear();
        for frame in &mut frames {
            sender.scatter_reliably(&[Message { to: ProcessId(1), payload: &[7; 64] }])?;
            let Some(transmit) = sender.poll_transmit(now, frame) else { break };
            frame_lens.push(transmit.bytes);
        }
        ack_lens.clear();
        let start = Instant::now();
        for (frame, len) in frames.iter_mut().zip(&frame_lens) {
            receiver.handle_frame(now, Port(0), &mut frame[..*len]);
            while ack_lens.len() < acks.len()
                && let Some(transmit) = receiver.poll_transmit(now, &mut acks[ack_lens.len()])
            {
                ack_lens.push(transmit.bytes);
            }
        }
        let received = start.elapsed();
        let start = Instant::now();
        for (ack, len) in acks.iter_mut().zip(&ack_lens) {
            sender.handle_frame(now, Port(1), &mut ack[..*len]);
        }
        let handled = start.elapsed();
        // The sender's barriers pass the messages that are acknowledged.
        ns += 10_000;
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) };
        exchange_frames(now, Port(0), &mut sender, &mut receiver, &mut frames[0]);
        exchange_frames(now, Port(1), &mut receiver, &mut sender, &mut frames[0]);
        let mut count = 0;
        let start = Instant::now();
        receiver.poll_events(usize::MAX, &mut |receiver, event| {
            let Event::Delivered(delivery) = event else { return };
            count += 1;
            receiver.release(delivery);
        });
        let handed_out = start.elapsed();
        sender.poll_events(usize::MAX, &mut |_, _| {});
        let is_ack = |(ack, len): (&Vec<u8>, &usize)| {
            parse_header(&ack[..*len])
                .is_ok_and(|(_, opcode)| opcode.in_best_effort() == Opcode::Ack)
        };
        let are_acks = acks.iter().zip(&ack_lens).all(is_ack);
        if is_measured && are_acks && count == frame_lens.len() && count == ack_lens.len() {
            message_time += received + handed_out;
            ack_time += handled;
            delivered += count as u64;
            acked += ack_lens.len() as u64;
        }
    }
    Ok(ReceiveCosts {
        message_ns: message_time.as_nanos() as f64 / delivered as f64,
        ack_ns: ack_time.as_nanos() as f64 / acked as f64,
    })
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

/// Creates one of two endpoints.
fn new_endpoint(process: u32, frame_len_max: usize) -> Result<Endpoint> {
    Ok(Endpoint::new(Config {
        links: Links::Mesh,
        processes_max: 2,
        beacon_interval_ns: 0,
        frame_len_max,
        ..Config::new(ProcessId(process), Incarnation(1))
    })?)
}

fn through_endpoints(options: &EndpointOptions) -> Result<f64> {
    let (mut sender, mut receiver) =
        (new_endpoint(0, options.frame_len)?, new_endpoint(1, options.frame_len)?);
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

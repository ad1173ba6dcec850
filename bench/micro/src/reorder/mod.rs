//! `bench reorder`: the reorder stage against a binary heap (1Pipe, figure 11).
//!
//! A receiver of many senders may deliver a message only when the barrier has passed it; the
//! delivery delay is how far the barrier trails the arrivals. The paper's receiver does 6.1 M
//! messages/s without delay and 4.3 M at 125 us.

mod arrivals;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use onepipe_base::Timestamp;
use onepipe_endpoint::reorder::{Entry, Reorder, ReorderConfig};

use self::arrivals::{Arrivals, Value};
use crate::{Better, Harness, Progress, Report};

/// Options of [`reorder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReorderOptions {
    /// Number of senders. Default 512 (1Pipe section 7.1).
    pub senders: u32,
    /// Messages that arrive per second of the receiver's clock. Default 20,000,000: the target of
    /// one process over shared memory. It determines how many messages wait at a given delay, not
    /// the speed of the benchmark.
    pub rate_per_s: u64,
    /// Messages that arrive between two barriers, each of another sender. Default 16: the batch
    /// that a driver receives at once.
    pub batch: usize,
    /// Delivery delays in ns. Default 0, 1, 5, 25 and 125 us (1Pipe figure 11).
    pub delays_ns: Vec<u64>,
    /// Messages per run. Default 524,288.
    pub messages: usize,
    /// Runs of each side for each delay. A run takes about 10 ms, so other work on a busy computer
    /// disturbs many runs; the median needs more of them. Default 11.
    pub runs: usize,
}

impl Default for ReorderOptions {
    fn default() -> Self {
        Self {
            senders: 512,
            rate_per_s: 20_000_000,
            batch: 16,
            delays_ns: vec![0, 1_000, 5_000, 25_000, 125_000],
            messages: 1 << 19,
            runs: 11,
        }
    }
}

/// Description of the benchmark in its report.
const ABOUT: &str = "messages through the reorder stage a second, insert and pop on one core; \
                     yardstick: std::collections::BinaryHeap on the same input";

/// Measures the rate of messages through the reorder stage, for every delay.
pub fn reorder(options: &ReorderOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    ensure!(options.senders > 0 && options.rate_per_s > 0, "no sender is configured");
    ensure!(options.batch > 0 && options.messages >= options.batch, "no batch of messages");
    let mut harness =
        Harness::new("reorder", ABOUT).with_runs(options.runs).with_progress(progress);
    for &delay_ns in &options.delays_ns {
        let arrivals = Arrivals::new(options, delay_ns);
        // Warms both up and checks that they agree.
        let (ours, heap) = (through_reorder(&arrivals), through_heap(&arrivals));
        ensure!(ours.order == heap.order, "the reorder stage and the heap disagree");
        ensure!(ours.messages == heap.messages, "the reorder stage and the heap disagree");
        let ReorderOptions { senders, rate_per_s, batch, .. } = *options;
        let case = format!(
            "senders={senders} delay_us={} batch={batch} rate_m={}",
            delay_ns as f64 / 1e3,
            rate_per_s as f64 / 1e6,
        );
        harness.measure(
            &case,
            "msg/s",
            Better::Higher,
            || Ok(through_reorder(&arrivals).rate()),
            || Ok(through_heap(&arrivals).rate()),
        )?;
    }
    Ok(harness.finish())
}

/// Cost of a delivery delay at a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reordered {
    /// Messages per second through the reorder stage on one core, the median of 11 runs.
    pub rate_per_s: f64,
    /// Maximum bytes of waiting messages, for 1,024-byte messages that arrive at 100 Gbit/s,
    /// including the state of the reorder stage.
    pub waiting_bytes_max: usize,
}

/// Measures the cost of `delay_ns` of delivery delay.
///
/// # Errors
/// Returns an error when a message is missing.
pub fn reordered(delay_ns: u64) -> Result<Reordered> {
    let options = ReorderOptions::default();
    let arrivals = Arrivals::new(&options, delay_ns);
    let outcomes: Vec<Outcome> = (0..options.runs).map(|_| through_reorder(&arrivals)).collect();
    let mut rates: Vec<f64> = outcomes.iter().map(Outcome::rate).collect();
    rates.sort_by(f64::total_cmp);
    ensure!(outcomes[0].messages > 0, "nothing was delivered");
    let rate_per_s = 100_000_000_000 / (8 * LARGE_BYTES as u64);
    let full = Arrivals::new(&ReorderOptions { rate_per_s, ..options }, delay_ns);
    let waiting_bytes_max = waiting_max(&full) * (LARGE_BYTES + size_of::<Entry<Value>>());
    Ok(Reordered { rate_per_s: rates[rates.len() / 2], waiting_bytes_max })
}

/// Bytes of a message that fills a link.
const LARGE_BYTES: usize = 1_024;

/// Returns the maximum number of waiting messages.
fn waiting_max(arrivals: &Arrivals) -> usize {
    let mut queue = Reorder::new(ReorderConfig::default());
    let (mut waiting, mut most) = (0, 0);
    for (batch, barrier) in arrivals.batches() {
        batch.iter().for_each(|entry| queue.insert(*entry));
        waiting += batch.len();
        most = most.max(waiting);
        while queue.pop(barrier).is_some() {
            waiting -= 1;
        }
    }
    most
}

/// Result of one run.
struct Outcome {
    messages: u64,
    seconds: f64,
    /// Hash of all messages in order.
    order: u64,
}

impl Outcome {
    fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }
}

/// Consumes the delivered messages.
#[derive(Default)]
struct Receiver {
    messages: u64,
    order: u64,
}

impl Receiver {
    #[inline(always)]
    fn take(&mut self, timestamp: Timestamp, order: u64, value: Value) {
        self.messages += 1;
        let mixed = timestamp.as_ns() ^ order ^ u64::from(value.offset);
        self.order = self.order.wrapping_mul(31).wrapping_add(mixed);
    }
}

fn through_reorder(arrivals: &Arrivals) -> Outcome {
    let mut receiver = Receiver::default();
    let start = Instant::now();
    let mut queue = Reorder::new(ReorderConfig::default());
    for (batch, barrier) in arrivals.batches() {
        for &entry in batch {
            queue.insert(entry);
        }
        while let Some(entry) = queue.pop(barrier) {
            receiver.take(entry.timestamp, entry.order, entry.value);
        }
    }
    black_box(&queue);
    finish_run(&receiver, start)
}

fn through_heap(arrivals: &Arrivals) -> Outcome {
    let mut receiver = Receiver::default();
    let start = Instant::now();
    let mut queue = BinaryHeap::with_capacity(ReorderConfig::default().entries);
    for (batch, barrier) in arrivals.batches() {
        for &Entry { timestamp, order, value } in batch {
            queue.push(Reverse((timestamp, order, value)));
        }
        while queue.peek().is_some_and(|Reverse((timestamp, ..))| *timestamp < barrier) {
            if let Some(Reverse((timestamp, order, value))) = queue.pop() {
                receiver.take(timestamp, order, value);
            }
        }
    }
    black_box(&queue);
    finish_run(&receiver, start)
}

fn finish_run(receiver: &Receiver, start: Instant) -> Outcome {
    let seconds = start.elapsed().as_secs_f64();
    Outcome { messages: receiver.messages, seconds, order: receiver.order }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_at_every_delay() {
        let options = ReorderOptions { messages: 20_000, runs: 3, ..ReorderOptions::default() };
        let mut calls = 0;
        let report = reorder(&options, |_| calls += 1).expect("the stage and the heap agree");
        let cases: Vec<_> = report.results.iter().map(|case| case.case.as_str()).collect();
        assert_eq!(cases.len(), 5);
        assert_eq!(cases[4], "senders=512 delay_us=125 batch=16 rate_m=20");
        assert_eq!(calls, 5 * 7);
    }

    #[test]
    fn rejects_empty_benchmark() {
        let options = ReorderOptions { batch: 0, ..ReorderOptions::default() };
        assert!(reorder(&options, |_| {}).is_err());
    }
}

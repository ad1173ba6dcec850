//! Deliveries of one receiver.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

/// Deliveries between two checkpoints of the order.
const CHECKPOINT: u64 = 1_024;
/// Longer latencies are recorded as this value, in ns.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Counts, latencies, and a rolling hash of all deliveries in order.
#[derive(Debug)]
pub(super) struct Deliveries {
    began: Instant,
    /// Time since `began`, read once per poll.
    now_ns: u64,
    delivered: u64,
    hash: u64,
    checkpoints: Vec<u64>,
    is_behind: bool,
    latencies: Histogram<u64>,
    /// Start of counting with the deliveries before it, and end of counting.
    from: Option<(Instant, u64)>,
    until: Option<Instant>,
}

impl Deliveries {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            began,
            now_ns: 0,
            delivered: 0,
            hash: 0,
            checkpoints: Vec::new(),
            is_behind: false,
            latencies: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .expect("these bounds are within its range"),
            from: None,
            until: None,
        }
    }

    /// Starts counting; further calls have no effect.
    pub(super) fn start_counting(&mut self) {
        self.from.get_or_insert_with(|| (Instant::now(), self.delivered));
    }

    pub(super) fn stop_counting(&mut self) {
        self.until = Some(Instant::now());
    }

    pub(super) fn update_clock(&mut self) {
        self.now_ns = self.began.elapsed().as_nanos() as u64;
    }

    /// Records a message, whose first eight bytes are its submission time.
    pub(super) fn record(&mut self, message: &[u8]) {
        let sent_ns = message.first_chunk().map_or(0, |sent| u64::from_be_bytes(*sent));
        self.delivered += 1;
        self.hash = self.hash.rotate_left(5) ^ sent_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if self.delivered.is_multiple_of(CHECKPOINT) {
            let mut hasher = DefaultHasher::new();
            (self.hash, self.delivered).hash(&mut hasher);
            self.checkpoints.push(hasher.finish());
        }
        if self.from.is_some() {
            // The clock was read before the batch; later messages count as 1 ns.
            self.latencies.saturating_record(self.now_ns.saturating_sub(sent_ns).max(1));
        }
    }

    /// Records that the replica fell behind and gets no more deliveries.
    pub(super) fn set_behind(&mut self) {
        self.is_behind = true;
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns the number of deliveries since the start.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the number of deliveries while counting.
    pub(super) fn counted(&self) -> u64 {
        self.from.map_or(0, |(_, before)| self.delivered - before)
    }

    pub(super) fn rate(&self) -> f64 {
        match (self.from, self.until) {
            (Some((from, _)), Some(until)) => {
                self.counted() as f64 / until.duration_since(from).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    pub(super) fn latency_us(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// Checks that all receivers delivered the same sequence, as far as each has come.
pub(super) fn check_same_order(per_receiver: &[Deliveries]) -> Result<()> {
    let longest = per_receiver.iter().max_by_key(|deliveries| deliveries.checkpoints.len());
    for deliveries in per_receiver {
        let is_same =
            longest.is_some_and(|longest| longest.checkpoints.starts_with(&deliveries.checkpoints));
        ensure!(is_same, "receivers disagree on the delivery order");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliveries(order: &[u64]) -> Deliveries {
        let mut deliveries = Deliveries::new(Instant::now());
        (0..CHECKPOINT).for_each(|at| {
            let sent = order[at as usize % order.len()];
            deliveries.record(&sent.to_be_bytes());
        });
        deliveries
    }

    #[test]
    fn detects_different_delivery_order() {
        assert!(check_same_order(&[deliveries(&[1, 2, 3]), deliveries(&[1, 2, 3])]).is_ok());
        assert!(check_same_order(&[deliveries(&[1, 2, 3]), deliveries(&[1, 3, 2])]).is_err());
        let short = Deliveries::new(Instant::now());
        assert!(
            check_same_order(&[deliveries(&[1, 2, 3]), short]).is_ok(),
            "as far as it has come"
        );
    }
}

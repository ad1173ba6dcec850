//! Arrivals at a receiver of many senders.

use onepipe_base::Timestamp;
use onepipe_endpoint::reorder::Entry;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::ReorderOptions;

/// The state that an endpoint keeps of a waiting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Value {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    pub(super) charge: u32,
}

/// Messages in the order of arrival, and the barrier after each batch.
///
/// Messages arrive at an even rate, each from a random sender. The delay of a message is that of
/// its sender's path, fixed between zero and half of the delivery delay, plus a random jitter of up
/// to as much; links are FIFO, so a sender's timestamps ascend. The barrier trails the arrivals by
/// the delivery delay.
pub(super) struct Arrivals {
    entries: Vec<Entry<Value>>,
    barriers: Vec<Timestamp>,
    batch: usize,
}

impl Arrivals {
    pub(super) fn new(options: &ReorderOptions, delay_ns: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(delay_ns);
        let start = Timestamp::from_ns(1 << 50);
        let half = delay_ns / 2;
        let paths: Vec<u64> = (0..options.senders).map(|_| random.random_range(0..=half)).collect();
        let mut last = vec![start; paths.len()];
        let mut arrivals = Self { entries: Vec::new(), barriers: Vec::new(), batch: options.batch };
        for n in 0..options.messages as u64 {
            let since_start = u128::from(n) * 1_000_000_000 / u128::from(options.rate_per_s);
            let now = start.wrapping_add_ns(delay_ns + since_start as u64);
            let sender = random.random_range(0..paths.len());
            let path_delay = paths[sender] + random.random_range(0..=half);
            let timestamp = now.saturating_sub_ns(path_delay).max(last[sender].wrapping_add_ns(1));
            last[sender] = timestamp;
            let value = Value { segment: sender as u32, offset: n as u32, bytes: 64, charge: 64 };
            arrivals.entries.push(Entry { timestamp, order: (sender as u64) << 16, value });
            let is_last = n + 1 == options.messages as u64;
            if is_last || arrivals.entries.len().is_multiple_of(options.batch) {
                arrivals.barriers.push(now.saturating_sub_ns(delay_ns));
            }
        }
        arrivals
    }

    /// Returns the batches in the order of arrival, each with the barrier that holds after it.
    pub(super) fn batches(&self) -> impl Iterator<Item = (&[Entry<Value>], Timestamp)> {
        self.entries.chunks(self.batch).zip(self.barriers.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_arrives_below_a_barrier_and_senders_are_fifo() {
        for delay_ns in [0, 125_000] {
            let options = ReorderOptions { messages: 10_000, ..ReorderOptions::default() };
            let arrivals = Arrivals::new(&options, delay_ns);
            let mut barrier = Timestamp::from_ns(0);
            let mut last = vec![Timestamp::from_ns(0); options.senders as usize];
            let mut messages = 0;
            for (batch, next) in arrivals.batches() {
                for entry in batch {
                    assert!(entry.timestamp >= barrier);
                    let last = &mut last[entry.value.segment as usize];
                    assert!(entry.timestamp > *last);
                    *last = entry.timestamp;
                    messages += 1;
                }
                assert!(next >= barrier);
                barrier = next;
            }
            assert_eq!(messages, options.messages);
        }
    }
}

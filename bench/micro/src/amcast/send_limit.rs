//! Limits how far a client is ahead of the slowest receiver. Members do not wait for a replica that
//! lags; an application that must not lose one limits itself, as this benchmark does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Interval at which a blocked client polls the delivery counts.
pub(super) const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Counts messages sent and limits them by the messages delivered.
#[derive(Debug)]
pub(super) struct SendLimit {
    ahead_max: u64,
    sent: u64,
    /// Messages delivered by each receiver.
    delivered: Vec<Arc<AtomicU64>>,
}

impl SendLimit {
    /// Creates a limit of `ahead_max` messages not yet delivered by the slowest receiver.
    pub(super) fn new(delivered: &[Arc<AtomicU64>], ahead_max: u64) -> Self {
        Self { ahead_max, sent: 0, delivered: delivered.to_vec() }
    }

    /// Sends while `submit` succeeds. Returns whether a receiver's lag stopped it.
    pub(super) fn send_while(&mut self, mut submit: impl FnMut() -> bool) -> bool {
        let delivered = self.delivered.iter().map(|count| count.load(Ordering::Acquire));
        let until = delivered.min().unwrap_or_default().saturating_add(self.ahead_max);
        while self.sent < until && submit() {
            self.sent += 1;
        }
        self.sent >= until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_waits_for_slowest_receiver() {
        let delivered = [7, 3].map(|count| Arc::new(AtomicU64::new(count)));
        let mut send_limit = SendLimit::new(&delivered, 4);
        assert!(send_limit.send_while(|| true));
        assert_eq!(send_limit.sent, 7);
        delivered[1].store(5, Ordering::Release);
        let mut free = 1;
        let mut submit = || std::mem::replace(&mut free, 0) > 0;
        assert!(!send_limit.send_while(&mut submit), "its own window is full");
        assert_eq!(send_limit.sent, 8);
    }
}

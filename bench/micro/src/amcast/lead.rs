//! How far a client is ahead of who delivers. Nobody in a group waits for a replica that lags; an
//! application that must not lose one waits itself, and this is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a client waits before it looks again how far the slowest receiver has come.
pub(super) const PAUSE: Duration = Duration::from_micros(50);

/// Messages sent, and how many more there may be.
#[derive(Debug)]
pub(super) struct Lead {
    most: u64,
    sent: u64,
    /// By each receiver, so far.
    delivered: Vec<Arc<AtomicU64>>,
}

impl Lead {
    /// Nothing was sent; `most` messages may be that the slowest receiver has not delivered.
    pub(super) fn new(delivered: &[Arc<AtomicU64>], most: u64) -> Self {
        Self { most, sent: 0, delivered: delivered.to_vec() }
    }

    /// Sends while `submit` does. Answers whether it was a receiver that made it stop.
    pub(super) fn extend(&mut self, mut submit: impl FnMut() -> bool) -> bool {
        let delivered = self.delivered.iter().map(|count| count.load(Ordering::Acquire));
        let until = delivered.min().unwrap_or_default().saturating_add(self.most);
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
    fn the_slowest_receiver_is_waited_for() {
        let delivered = [7, 3].map(|count| Arc::new(AtomicU64::new(count)));
        let mut lead = Lead::new(&delivered, 4);
        assert!(lead.extend(|| true));
        assert_eq!(lead.sent, 7);
        delivered[1].store(5, Ordering::Release);
        let mut room = 1;
        let mut submit = || std::mem::replace(&mut room, 0) > 0;
        assert!(!lead.extend(&mut submit), "its own window is full");
        assert_eq!(lead.sent, 8);
    }
}

//! Strict-priority queues of a link with several classes.

use std::collections::VecDeque;

use crate::pool::FrameRef;

/// The queues of a link, class 0 first. All ordered frames of a service share one class, so that
/// the link is FIFO for them (driver rule D3). Other traffic may use other classes.
#[derive(Debug)]
pub(crate) struct PriorityQueues {
    /// The frames of each class, with their lengths.
    queues: Vec<VecDeque<(FrameRef, u32)>>,
    /// Queued bytes of each class.
    bytes: Vec<u64>,
    /// Whether a frame is in transmission.
    pub is_busy: bool,
}

impl PriorityQueues {
    pub fn new(count: u8) -> Self {
        let count = usize::from(count);
        Self {
            queues: (0..count).map(|_| VecDeque::new()).collect(),
            bytes: vec![0; count],
            is_busy: false,
        }
    }

    /// Maps a class to a queue index; classes beyond the last queue share the last one.
    pub fn clamp(&self, class: u8) -> usize {
        usize::from(class).min(self.queues.len() - 1)
    }

    /// Returns the bytes that are queued in one class.
    pub fn queued_bytes(&self, class: usize) -> u64 {
        self.bytes[class]
    }

    /// Returns the bytes that are queued in all classes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    pub fn push(&mut self, class: usize, frame: FrameRef, bytes: usize) {
        self.bytes[class] += bytes as u64;
        self.queues[class].push_back((frame, bytes as u32));
    }

    /// Removes the next frame to transmit; returns the frame and its length.
    pub fn pop(&mut self) -> Option<(FrameRef, usize)> {
        let class = self.queues.iter().position(|queue| !queue.is_empty())?;
        let (frame, bytes) = self.queues[class].pop_front()?;
        self.bytes[class] -= u64::from(bytes);
        Some((frame, bytes as usize))
    }
}
